//! Two well-behaved computations whose messages carry where they came from, so that the simulation
//! can tell every message from every other: a map that drops, passes on and splits, and gives event times
//! to what has none; and a transform that keeps a tally of each key, answers every message, and sets and
//! cancels timers.
//!
//! What one item leads to is a plain function of it ([`relay`], [`Tally::take`], [`Tally::fire`]), which the
//! simulation's model calls item by item; the components call it batch by batch. An answer says which
//! watermarks the transform saw.

mod alarms;
pub mod event_times;
mod items;
mod parameters;
mod tally;

use crate::contract::{Batch, Description, Effects, Kind, StateDeclaration, TimerDeclaration};
use crate::{describe_map, no_effects, push, value};

pub use alarms::{TIMERS, TimerWish};
pub use items::{Emitted, Fired, Seen, SeenItem, record_of, seen};
pub use parameters::Parameters;
pub use tally::{COUNT_MAX, STATES, Taken, Tally};

/// How many inputs each of the two has.
pub const INPUTS: usize = 3;
/// How many outputs each of the two has.
pub const OUTPUTS: usize = 2;
/// How many different keys the two give their outputs.
const KEYS: u64 = 6;

/// What the map makes of a message: nothing, one message, or one on each output. A message without event
/// time may get one.
pub fn relay(parameters: &Parameters, payload: &[u8], event_time: u64) -> Vec<Emitted> {
    let name = &parameters.name;
    let outputs: &[u16] = match hash(name.as_bytes(), payload) % 8 {
        0 => &[],
        1..=3 => &[0],
        4..=6 => &[1],
        _ => &[0, 1],
    };
    let event_time = match event_time {
        0 if parameters.gives_times => event_times::of_record(items::record_of(payload)),
        event_time => event_time,
    };
    let emit = |output: &u16| Emitted {
        event_time,
        ..emitted(*output, payload, &format!("/{name}.{output}"))
    };
    outputs.iter().map(emit).collect()
}

/// The map.
pub fn describe_relay() -> Description {
    let names = |prefix: &str, count: usize| (0..count).map(|at| format!("{prefix}{at}")).collect();
    Description {
        inputs: names("in", INPUTS),
        outputs: names("out", OUTPUTS),
        ..describe_map()
    }
}

/// The transform.
pub fn describe_tally() -> Description {
    let declare = |name: &str| StateDeclaration {
        name: name.to_owned(),
        version: 1,
        format: "bytes".to_owned(),
    };
    let timer = |(name, time): (&str, _)| TimerDeclaration {
        name: name.to_owned(),
        time,
    };
    Description {
        kind: Kind::Transform,
        states: STATES.into_iter().map(declare).collect(),
        timers: TIMERS.into_iter().map(timer).collect(),
        ..describe_relay()
    }
}

/// Relays every message of a batch.
pub fn process_relay(parameters: &Parameters, batch: &Batch) -> Effects {
    let mut effects = no_effects();
    for (index, event_time) in batch.messages.event_times.iter().enumerate() {
        let payload = value(&batch.messages.payloads, index);
        for message in relay(parameters, payload, *event_time) {
            effects.outputs.event_times.push(message.event_time);
            emit(&mut effects, index, &message);
        }
    }
    effects
}

/// Takes every item of a batch into the tally of its key.
pub fn process_tally(parameters: &Parameters, batch: &Batch) -> Effects {
    tally::process(parameters, batch)
}

fn emit(effects: &mut Effects, item: usize, message: &Emitted) {
    effects.outputs.streams.push(message.output);
    effects.outputs.parents.push(item as u32);
    push(&mut effects.outputs.keys, &message.key);
    push(&mut effects.outputs.payloads, &message.payload);
}

/// A message without event time of its own.
fn emitted(output: u16, payload: &[u8], step: &str) -> Emitted {
    let payload = [payload, step.as_bytes()].concat();
    Emitted {
        output,
        key: format!("k{}", hash(b"key", &payload) % KEYS).into_bytes(),
        event_time: 0,
        payload,
    }
}

/// FNV-1a over both, and a last mix so that small remainders are spread too.
fn hash(salt: &[u8], bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in salt.iter().chain(&[0]).chain(bytes) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_of;

    #[test]
    fn a_batch_is_its_messages_one_by_one() {
        let parameters = Parameters {
            name: "m".to_owned(),
            inputs: 1,
            gives_times: true,
            sets_timers: false,
        };
        let payloads = [b"s0p0.1", b"s0p0.2", b"s0p1.3"];
        let batch = batch_of(&payloads.map(|payload| (&b"k"[..], &payload[..])), true);
        let effects = process_relay(&parameters, &batch);
        let one_by_one: Vec<Emitted> = payloads
            .into_iter()
            .flat_map(|payload| relay(&parameters, payload, 0))
            .collect();
        assert_eq!(effects.outputs.streams.len(), one_by_one.len());
        for (index, message) in one_by_one.iter().enumerate() {
            assert_eq!(value(&effects.outputs.payloads, index), message.payload);
            assert_eq!(effects.outputs.event_times[index], message.event_time);
        }
    }
}
