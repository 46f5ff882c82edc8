//! Good and bad behaviours, one for each name in [`BEHAVIOURS`], chosen by the parameter
//! `behaviour`. Each is the smallest code that does the thing; what the host makes of it is the
//! sandbox tests' business.

use std::hint::black_box;
use std::io::{IsTerminal as _, Read as _};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;

use crate::contract::{
    Batch, Description, Effects, Failure, Level, LogLine, StateColumn, TimeDomain,
    TimerDeclaration, Timers,
};
use crate::{count, empty_column, no_effects, obey, one_output_each, push, push_output, value};

/// Every behaviour; the tests compare this list with what they try.
pub const BEHAVIOURS: &[&str] = &[
    "aborts",
    "counts-calls",
    "counts-keys",
    "eats-memory",
    "eats-memory-by-try-reserve",
    "echoes",
    "emits-a-long-key",
    "emits-many",
    "exits",
    "fails",
    "fails-on-an-item",
    "fails-on-second-call",
    "floods-stderr-then-panics",
    "keeps-much",
    "logs-many-lines",
    "logs-much",
    "looks-around",
    "numbers-messages-in-the-batch",
    "obeys-payloads",
    "panics",
    "panics-on-a-payload",
    "panics-on-second-call",
    "prints-endlessly",
    "prints-much",
    "recurses",
    "returns-invalid-utf8",
    "returns-many-columns",
    "returns-much",
    "returns-nan-bits",
    "sets-many-timers",
    "spins",
    "traps",
    "wrong-column",
];

/// Columns that "wrong-column" can spoil, by the parameter `column`.
pub const WRONG_COLUMNS: &[&str] = &[
    "cancel-timers.event-times",
    "cancel-timers.keys",
    "cancel-timers.streams",
    "cancel-timers.trigger-times",
    "logs.item",
    "outputs.event-times",
    "outputs.keys.bytes",
    "outputs.keys.ends",
    "outputs.keys.length",
    "outputs.parent-ends",
    "outputs.parents",
    "outputs.parents.length",
    "outputs.payloads.bytes",
    "outputs.payloads.ends",
    "outputs.payloads.length",
    "outputs.streams",
    "outputs.streams.length",
    "set-timers.event-times",
    "set-timers.keys",
    "set-timers.streams",
    "set-timers.trigger-times",
    "states",
    "states.keys",
    "states.keys.twice",
    "states.values.bytes",
    "states.values.ends",
    "states.values.length",
    "timers.twice",
];

/// The component's parameters.
#[derive(Debug, Deserialize)]
struct Parameters {
    behaviour: String,
    #[serde(default)]
    column: String,
    #[serde(default)]
    payload: String,
    /// How much of it, for each message.
    #[serde(default)]
    amount: usize,
}

/// A transform with one state and one event-time timer stream.
pub fn describe() -> Description {
    Description {
        timers: vec![TimerDeclaration {
            name: "tick".to_owned(),
            time: TimeDomain::EventTime,
        }],
        ..count::describe()
    }
}

/// Behaves as the parameters say, without state: a map.
///
/// # Errors
///
/// As [`process`].
pub fn process_as_map(parameters: &str, batch: &Batch) -> Result<Effects, Failure> {
    let mut effects = process(parameters, batch)?;
    effects.states.clear();
    Ok(effects)
}

/// Behaves as the parameters say.
///
/// # Errors
///
/// Where failing is the behaviour, and when the parameters can't be read.
pub fn process(parameters: &str, batch: &Batch) -> Result<Effects, Failure> {
    let parameters: Parameters = serde_json::from_str(parameters)
        .map_err(|error| failure(None, &format!("parameters can't be read: {error}")))?;
    match parameters.behaviour.as_str() {
        "aborts" => std::process::abort(),
        "counts-calls" => Ok(echo_with(batch, |_| count_calls().to_string().into_bytes())),
        "counts-keys" => Ok(count::process(batch)),
        "eats-memory" => Ok(eat_memory()),
        "eats-memory-by-try-reserve" => eat_memory_by_try_reserve(),
        "echoes" => Ok(echo(batch)),
        "emits-a-long-key" => Ok(emit_a_long_key(batch)),
        "emits-many" => Ok(emit_many(batch, parameters.amount)),
        "exits" => std::process::exit(3),
        "fails" => Err(failure(None, "the guest fails on purpose")),
        "fails-on-an-item" => Err(failure(Some(1), "the guest refuses this item on purpose")),
        "fails-on-second-call" if count_calls() > 1 => Err(failure(None, "called twice")),
        "floods-stderr-then-panics" => flood_stderr_then_panic(),
        "keeps-much" => Ok(keep_much(batch, parameters.amount)),
        "logs-many-lines" => Ok(log_many_lines(batch, parameters.amount)),
        "logs-much" => Ok(log_much(batch)),
        "looks-around" => Ok(echo_with(batch, |_| look_around().into_bytes())),
        "numbers-messages-in-the-batch" => {
            Ok(echo_with(batch, |index| index.to_string().into_bytes()))
        }
        "obeys-payloads" => obey::process(batch, parameters.payload == "forgive"),
        "panics" => panic!("the guest panics on purpose"),
        "panics-on-a-payload" => Ok(echo_but(batch, &parameters.payload)),
        "panics-on-second-call" if count_calls() > 1 => panic!("called twice"),
        "fails-on-second-call" | "panics-on-second-call" => Ok(echo(batch)),
        "prints-endlessly" => loop {
            println!("and another line");
        },
        "prints-much" => Ok(print_much(batch)),
        "recurses" => Ok(echo_with(batch, |_| recurse(1).to_le_bytes().to_vec())),
        "returns-invalid-utf8" => Err(failure(None, &invalid_utf8())),
        "returns-many-columns" => Ok(return_many_columns(batch)),
        "returns-much" => Ok(echo_with(batch, |_| vec![b'x'; 80 << 20])),
        "returns-nan-bits" => Ok(echo_with(batch, |_| nan_bits())),
        "sets-many-timers" => Ok(set_many_timers(batch, parameters.amount)),
        "spins" => spin(),
        "traps" => trap(),
        "wrong-column" => Ok(spoil(&parameters.column, batch)),
        unknown => Err(failure(None, &format!("no behaviour is called {unknown}"))),
    }
}

fn failure(item: Option<u32>, reason: &str) -> Failure {
    Failure {
        item,
        reason: reason.to_owned(),
    }
}

/// Effects with one output for each message and nothing else.
fn echo(batch: &Batch) -> Effects {
    echo_with(batch, |index| {
        value(&batch.messages.payloads, index).to_vec()
    })
}

fn echo_with(batch: &Batch, payload: impl FnMut(usize) -> Vec<u8>) -> Effects {
    let mut effects = one_output_each(batch, payload);
    effects.states.push(no_state());
    effects
}

/// Echoes, and panics when it comes to a message with this payload.
fn echo_but(batch: &Batch, refused: &str) -> Effects {
    echo_with(batch, |index| {
        let payload = value(&batch.messages.payloads, index);
        assert!(payload != refused.as_bytes(), "the guest refuses {refused}");
        payload.to_vec()
    })
}

fn no_state() -> StateColumn {
    StateColumn {
        keys: Vec::new(),
        values: empty_column(),
    }
}

/// How often this instance was called: what a fresh instance must never remember.
fn count_calls() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}

fn eat_memory() -> Effects {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(black_box(vec![1; 1 << 20]));
    }
}

fn eat_memory_by_try_reserve() -> Result<Effects, Failure> {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut next = Vec::new();
        if next.try_reserve_exact(1 << 20).is_err() {
            return Err(failure(None, "the allocator said no"));
        }
        next.resize(1 << 20, 1);
        eaten.push(black_box(next));
    }
}

fn flood_stderr_then_panic() -> ! {
    for line in 0..20_000 {
        eprintln!("line {line} of the flood");
    }
    panic!("the guest panics after a flood");
}

#[expect(
    unsafe_code,
    reason = "no safe Rust makes the string that the host must refuse"
)]
fn invalid_utf8() -> String {
    // SAFETY: the string is only copied byte by byte until the host reads it.
    unsafe { String::from_utf8_unchecked(vec![b'a', 0xff, b'b']) }
}

fn log_much(batch: &Batch) -> Effects {
    let mut effects = echo(batch);
    for _ in 0..10_000 {
        effects
            .logs
            .push(log_line(Some(0), &"many words ".repeat(10)));
    }
    effects
}

/// So many lines for each message, without text.
fn log_many_lines(batch: &Batch, amount: usize) -> Effects {
    let mut effects = echo(batch);
    for _ in 0..amount * batch.messages.streams.len() {
        effects.logs.push(log_line(None, ""));
    }
    effects
}

/// Echoes under keys that have one byte more than the host keeps.
fn emit_a_long_key(batch: &Batch) -> Effects {
    let mut effects = echo(batch);
    let count = effects.outputs.streams.len();
    effects.outputs.keys = empty_column();
    for _ in 0..count {
        push(&mut effects.outputs.keys, &[b'k'; (32 << 10) + 1]);
    }
    effects
}

/// So many outputs for each message, each with its payload.
fn emit_many(batch: &Batch, amount: usize) -> Effects {
    let mut effects = no_effects();
    for index in 0..batch.messages.streams.len() {
        let payload = value(&batch.messages.payloads, index);
        for _ in 0..amount {
            push_output(&mut effects, batch, index, payload);
        }
    }
    effects.states.push(no_state());
    effects
}

/// Values of so many bytes for the key of each message.
fn keep_much(batch: &Batch, amount: usize) -> Effects {
    let mut effects = echo(batch);
    let mut keys = batch.messages.keys.clone();
    keys.sort_unstable();
    keys.dedup();
    for _ in &keys {
        push(&mut effects.states[0].values, &vec![b'x'; amount]);
    }
    effects.states[0].keys = keys;
    effects
}

/// So many timers for each message, at moments that no other message's timers have: payloads are numbers.
fn set_many_timers(batch: &Batch, amount: usize) -> Effects {
    let mut effects = echo(batch);
    for (index, key) in batch.messages.keys.iter().enumerate() {
        let payload = value(&batch.messages.payloads, index);
        let number = std::str::from_utf8(payload).map_or(0, |text| text.parse().unwrap_or(0));
        for timer in 0..amount {
            let timers = match timer % 2 {
                0 => &mut effects.set_timers,
                _ => &mut effects.cancel_timers,
            };
            timers.streams.push(0);
            timers.keys.push(*key);
            timers
                .trigger_times
                .push(number * amount as u64 + timer as u64);
        }
    }
    effects.set_timers.event_times = effects.set_timers.trigger_times.clone();
    effects
}

fn log_line(item: Option<u32>, text: &str) -> LogLine {
    LogLine {
        item,
        level: Level::Info,
        text: text.to_owned(),
    }
}

fn print_much(batch: &Batch) -> Effects {
    for line in 0..20_000 {
        println!("line {line} of many");
    }
    echo(batch)
}

#[expect(unconditional_recursion, reason = "this is the behaviour")]
fn recurse(depth: u64) -> u64 {
    black_box(recurse(black_box(depth) + 1)) + 1
}

/// What a process could learn from those who started it.
fn look_around() -> String {
    let mut input = Vec::new();
    let read = std::io::stdin().read_to_end(&mut input);
    format!(
        "{} variables, {} arguments, {} bytes of input, terminal: {}",
        std::env::vars_os().count(),
        std::env::args_os().count(),
        read.map_or("no".to_owned(), |count| count.to_string()),
        std::io::stdout().is_terminal() || std::io::stdin().is_terminal(),
    )
}

/// A million columns without a byte in any of them: only their number is large.
fn return_many_columns(batch: &Batch) -> Effects {
    let mut effects = echo(batch);
    effects.states = (0..1_000_000).map(|_| no_state()).collect();
    effects
}

/// NaNs whose payload and sign WebAssembly leaves to the machine.
fn nan_bits() -> Vec<u8> {
    let payload = black_box(f64::from_bits(0x7ff8_dead_beef_0001));
    let negative = black_box(f64::from_bits(0xfff8_0000_0000_0007));
    let zero = black_box(0.0_f64);
    let results = [
        payload + negative,
        negative * payload,
        zero / black_box(zero),
        (-1.0 - zero).sqrt(),
    ];
    results
        .iter()
        .flat_map(|result| result.to_bits().to_le_bytes())
        .collect()
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    panic!("only WebAssembly has this trap");
}

/// Well-formed effects with one column spoiled.
fn spoil(column: &str, batch: &Batch) -> Effects {
    let mut effects = no_effects();
    push_output(&mut effects, batch, 0, b"first");
    push_output(&mut effects, batch, 0, b"second");
    effects.states.push(StateColumn {
        keys: vec![0],
        values: empty_column(),
    });
    push(&mut effects.states[0].values, b"state");
    effects.set_timers = timer(10);
    effects.cancel_timers = timer(20);
    effects.cancel_timers.event_times.clear();
    effects.logs.push(log_line(None, "spoiled"));

    let Effects {
        outputs,
        states,
        set_timers,
        cancel_timers,
        logs,
    } = &mut effects;
    match column {
        "cancel-timers.event-times" => cancel_timers.event_times.push(5),
        "cancel-timers.keys" => cancel_timers.keys[0] = 99,
        "cancel-timers.streams" => cancel_timers.streams[0] = 9,
        "cancel-timers.trigger-times" => cancel_timers.trigger_times.push(1),
        "logs.item" => logs[0].item = Some(99),
        "outputs.event-times" => outputs.event_times.push(1),
        "outputs.keys.bytes" => outputs.keys.bytes.push(0),
        "outputs.keys.ends" => outputs.keys.ends[0] = 99,
        "outputs.keys.length" => push(&mut outputs.keys, b"third"),
        "outputs.parent-ends" => outputs.parent_ends = vec![1, 2],
        "outputs.parents" => outputs.parents[1] = 99,
        "outputs.parents.length" => outputs.parents.push(0),
        "outputs.payloads.bytes" => outputs.payloads.bytes.push(0),
        "outputs.payloads.ends" => outputs.payloads.ends[1] = 1,
        "outputs.payloads.length" => push(&mut outputs.payloads, b"third"),
        "outputs.streams" => outputs.streams[1] = 1,
        "outputs.streams.length" => outputs.streams.push(0),
        "set-timers.event-times" => set_timers.event_times.clear(),
        "set-timers.keys" => set_timers.keys[0] = 99,
        "set-timers.streams" => set_timers.streams[0] = 1,
        "set-timers.trigger-times" => set_timers.trigger_times.clear(),
        "states" => states.push(no_state()),
        "states.keys" => states[0].keys[0] = 99,
        "states.keys.twice" => {
            states[0].keys.push(0);
            push(&mut states[0].values, b"again");
        }
        "states.values.bytes" => states[0].values.bytes.push(0),
        "states.values.ends" => states[0].values.ends[0] = 99,
        "states.values.length" => push(&mut states[0].values, b"more"),
        "timers.twice" => *cancel_timers = cancelled(timer(10)),
        _ => logs[0].text = format!("no column is called {column}"),
    }
    effects
}

fn timer(trigger_time: u64) -> Timers {
    Timers {
        streams: vec![0],
        keys: vec![0],
        trigger_times: vec![trigger_time],
        event_times: vec![5],
    }
}

fn cancelled(timers: Timers) -> Timers {
    Timers {
        event_times: Vec::new(),
        ..timers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{batch_of, no_timers};

    #[test]
    fn unspoiled_effects_are_what_the_spoiled_ones_start_from() {
        let batch = batch_of(&[(b"key", b"payload")], true);
        let effects = spoil("", &batch);
        assert_eq!(effects.outputs.parents, [0, 0]);
        assert_eq!(effects.cancel_timers.event_times, no_timers().event_times);
    }
}
