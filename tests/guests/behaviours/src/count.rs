//! A well-behaved transform: counts the messages of each key in state and emits the new count with
//! the message's payload. The benchmark runs it as a component and natively.

use crate::contract::{Batch, Column, Description, Effects, Kind, StateColumn, StateDeclaration};
use crate::{describe_map, empty_column, no_effects, push, push_output, value};

/// A transform with one state, "count": eight bytes, little-endian.
pub fn describe() -> Description {
    Description {
        kind: Kind::Transform,
        states: vec![StateDeclaration {
            name: "count".to_owned(),
            version: 1,
            format: "bytes".to_owned(),
        }],
        ..describe_map()
    }
}

/// Counts the messages of each key.
pub fn process(batch: &Batch) -> Effects {
    let mut counts = vec![0_u64; batch.keys.ends.len()];
    for column in &batch.states {
        for (row, key) in column.keys.iter().enumerate() {
            counts[*key as usize] = decode(value(&column.values, row));
        }
    }

    let mut effects = no_effects();
    reserve(&mut effects, batch);
    let mut touched = vec![false; counts.len()];
    let mut payload = Vec::new();
    for (index, key) in batch.messages.keys.iter().enumerate() {
        let key = *key as usize;
        counts[key] += 1;
        touched[key] = true;
        payload.clear();
        payload.extend_from_slice(&counts[key].to_le_bytes());
        payload.extend_from_slice(value(&batch.messages.payloads, index));
        push_output(&mut effects, batch, index, &payload);
    }

    let mut column = StateColumn {
        keys: Vec::with_capacity(counts.len()),
        values: Column {
            ends: Vec::with_capacity(counts.len()),
            bytes: Vec::with_capacity(counts.len() * 8),
        },
    };
    for (key, count) in counts.iter().enumerate() {
        if touched[key] {
            column.keys.push(key as u32);
            push(&mut column.values, &count.to_le_bytes());
        }
    }
    effects.states.push(column);
    effects
}

fn reserve(effects: &mut Effects, batch: &Batch) {
    let count = batch.messages.streams.len();
    let outputs = &mut effects.outputs;
    outputs.streams.reserve(count);
    outputs.parents.reserve(count);
    outputs.keys = empty_column();
    outputs.keys.ends.reserve(count);
    outputs.keys.bytes.reserve(count * 16);
    outputs.payloads.ends.reserve(count);
    outputs
        .payloads
        .bytes
        .reserve(batch.messages.payloads.bytes.len() + count * 8);
}

fn decode(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_of;

    #[test]
    fn counts_go_on_from_the_state() {
        let mut batch = batch_of(&[(b"a", b"x"), (b"b", b"y")], true);
        batch.states[0].keys.push(0);
        push(&mut batch.states[0].values, &41_u64.to_le_bytes());
        let effects = process(&batch);
        assert_eq!(decode(value(&effects.states[0].values, 0)), 42);
        assert_eq!(decode(value(&effects.states[0].values, 1)), 1);
        assert_eq!(&value(&effects.outputs.payloads, 0)[8..], b"x");
    }
}
