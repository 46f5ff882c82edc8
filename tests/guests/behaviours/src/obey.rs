//! A transform that counts the messages of each key and does what their payloads say: a payload that begins with one
//! of [`BAD`] fails as that says, whatever is in the batch beside it; any other is emitted behind its key's count.

use std::hint::black_box;

use crate::contract::{Batch, Effects, Failure, StateColumn};
use crate::{empty_column, no_effects, push, push_output, value};

/// What payloads of bad messages begin with.
pub const BAD: &[&str] = &[
    "abort", "eat", "exit", "fail", "much", "named", "panic", "spin", "trap", "wrong",
];

/// Counts, as decimal text in the one state, until a payload says otherwise.
///
/// # Errors
///
/// Where a payload begins with "fail", or with "named": then the failure names the message. Nothing fails where all
/// is forgiven.
pub fn process(batch: &Batch, is_forgiving: bool) -> Result<Effects, Failure> {
    let mut counts = vec![0_u64; batch.keys.ends.len()];
    for column in &batch.states {
        for (row, key) in column.keys.iter().enumerate() {
            let text = std::str::from_utf8(value(&column.values, row)).unwrap_or_default();
            counts[*key as usize] = text.parse().unwrap_or_default();
        }
    }
    let mut effects = no_effects();
    let mut touched = vec![false; counts.len()];
    for (index, key) in batch.messages.keys.iter().enumerate() {
        let payload = value(&batch.messages.payloads, index);
        if !is_forgiving {
            misbehave(payload, index, &mut effects)?;
        }
        let key = *key as usize;
        counts[key] += 1;
        touched[key] = true;
        let text = String::from_utf8_lossy(payload);
        push_output(
            &mut effects,
            batch,
            index,
            format!("{} {text}", counts[key]).as_bytes(),
        );
    }
    let mut column = StateColumn {
        keys: Vec::new(),
        values: empty_column(),
    };
    for (key, count) in counts.iter().enumerate().filter(|(key, _)| touched[*key]) {
        column.keys.push(key as u32);
        push(&mut column.values, count.to_string().as_bytes());
    }
    effects.states.push(column);
    Ok(effects)
}

fn misbehave(payload: &[u8], index: usize, effects: &mut Effects) -> Result<(), Failure> {
    let is = |word: &str| payload.starts_with(word.as_bytes());
    if !BAD.iter().any(|word| is(word)) {
        return Ok(());
    }
    eprintln!("it says {}", String::from_utf8_lossy(payload));
    if is("abort") {
        std::process::abort();
    } else if is("eat") {
        let mut eaten: Vec<Vec<u8>> = Vec::new();
        loop {
            eaten.push(black_box(vec![1; 1 << 20]));
        }
    } else if is("exit") {
        std::process::exit(3);
    } else if is("fail") || is("named") {
        return Err(Failure {
            item: is("named").then_some(index as u32),
            reason: format!("refuses {}", String::from_utf8_lossy(payload)),
        });
    } else if is("much") {
        push(&mut effects.outputs.payloads, &vec![b'x'; 2 << 20]);
    } else if is("panic") {
        panic!("the payload says {}", String::from_utf8_lossy(payload));
    } else if is("spin") {
        let mut turns = 0_u64;
        loop {
            turns = black_box(turns.wrapping_add(1));
        }
    } else if is("trap") {
        #[cfg(target_arch = "wasm32")]
        core::arch::wasm32::unreachable();
    } else {
        // One more than there are outputs: malformed, however many follow.
        effects.outputs.parents.push(u32::MAX);
    }
    Ok(())
}
