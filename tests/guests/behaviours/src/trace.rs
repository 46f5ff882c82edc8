//! Two well-behaved computations whose messages carry where they came from, so that the simulation
//! can tell every message from every other: a map that drops, passes on and splits, and a transform
//! that keeps a tally of each key and answers every message.
//!
//! What one message leads to is a plain function of it ([`relay`], [`Tally::take`]), which the
//! simulation's model calls message by message; the components call it batch by batch.

use crate::contract::{Batch, Description, Effects, Kind, StateColumn, StateDeclaration};
use crate::{describe_map, empty_column, no_effects, push, value};

/// How many inputs each of the two has.
pub const INPUTS: usize = 3;
/// How many outputs each of the two has.
pub const OUTPUTS: usize = 2;
/// The states of the transform.
pub const STATES: [&str; 2] = ["tally", "last"];
/// A tally that reaches this count is deleted.
pub const COUNT_MAX: u64 = 5;
/// How many different keys the two give their outputs.
const KEYS: u64 = 6;

/// A message that a computation emits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// Index of the output.
    pub output: u16,
    /// Its key.
    pub key: Vec<u8>,
    /// Its payload: that of the message it came from, then what was done to it.
    pub payload: Vec<u8>,
}

/// What the map `name` makes of a message: nothing, one message, or one on each output.
pub fn relay(name: &str, payload: &[u8]) -> Vec<Emitted> {
    let outputs: &[u16] = match hash(name.as_bytes(), payload) % 8 {
        0 => &[],
        1..=3 => &[0],
        4..=6 => &[1],
        _ => &[0, 1],
    };
    let emit = |output: &u16| emitted(*output, payload, &format!("/{name}.{output}"));
    outputs.iter().map(emit).collect()
}

/// What the transform keeps of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages since the tally was deleted last.
    pub count: u64,
    /// A hash over their payloads, in order.
    pub fold: u64,
    /// The hash of the last one; 0 where there is none.
    pub last: u64,
}

impl Tally {
    /// Takes a message in. The first output answers every message, the second one some.
    pub fn take(&mut self, name: &str, payload: &[u8]) -> Vec<Emitted> {
        let hash = hash(name.as_bytes(), payload);
        self.count += 1;
        self.fold = self.fold.rotate_left(7) ^ hash;
        self.last = hash;
        let count = self.count;
        if count == COUNT_MAX {
            *self = Tally::default();
        }
        let emit = |output: &u16| emitted(*output, payload, &format!("/{name}:{count}.{output}"));
        let outputs: &[u16] = if hash.is_multiple_of(3) {
            &[0, 1]
        } else {
            &[0]
        };
        outputs.iter().map(emit).collect()
    }

    /// The tally from its stored states.
    pub fn from_states(states: [&[u8]; 2]) -> Tally {
        let number = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .map_or(0, |chunk| u64::from_le_bytes(*chunk))
        };
        Tally {
            count: number(states[0]),
            fold: number(states[0].get(8..).unwrap_or_default()),
            last: number(states[1]),
        }
    }

    /// The tally as stored; empty values once it is deleted.
    pub fn to_states(self) -> [Vec<u8>; 2] {
        if self == Tally::default() {
            return [Vec::new(), Vec::new()];
        }
        let tally = [self.count.to_le_bytes(), self.fold.to_le_bytes()].concat();
        [tally, self.last.to_le_bytes().to_vec()]
    }
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
    Description {
        kind: Kind::Transform,
        states: STATES.into_iter().map(declare).collect(),
        ..describe_relay()
    }
}

/// Relays every message of a batch.
pub fn process_relay(name: &str, batch: &Batch) -> Effects {
    let mut effects = no_effects();
    for index in 0..batch.messages.streams.len() {
        let payload = value(&batch.messages.payloads, index);
        emit(&mut effects, index, relay(name, payload));
    }
    effects
}

/// Takes every message of a batch into the tally of its key.
pub fn process_tally(name: &str, batch: &Batch) -> Effects {
    let keys = batch.keys.ends.len();
    let mut stored = vec![[&[][..]; 2]; keys];
    for (state, column) in batch.states.iter().enumerate() {
        for (row, key) in column.keys.iter().enumerate() {
            stored[*key as usize][state] = value(&column.values, row);
        }
    }
    let mut tallies: Vec<Tally> = stored.into_iter().map(Tally::from_states).collect();
    let mut touched = vec![false; keys];
    let mut effects = no_effects();
    for (index, key) in batch.messages.keys.iter().enumerate() {
        let key = *key as usize;
        touched[key] = true;
        let payload = value(&batch.messages.payloads, index);
        emit(&mut effects, index, tallies[key].take(name, payload));
    }
    effects.states = states_of(&tallies, &touched);
    effects
}

fn states_of(tallies: &[Tally], touched: &[bool]) -> Vec<StateColumn> {
    let mut columns: Vec<StateColumn> = (0..STATES.len())
        .map(|_| StateColumn {
            keys: Vec::new(),
            values: empty_column(),
        })
        .collect();
    for (key, tally) in tallies.iter().enumerate().filter(|(key, _)| touched[*key]) {
        for (column, value) in columns.iter_mut().zip(tally.to_states()) {
            column.keys.push(key as u32);
            push(&mut column.values, &value);
        }
    }
    columns
}

fn emit(effects: &mut Effects, item: usize, messages: Vec<Emitted>) {
    for message in messages {
        effects.outputs.streams.push(message.output);
        effects.outputs.parents.push(item as u32);
        push(&mut effects.outputs.keys, &message.key);
        push(&mut effects.outputs.payloads, &message.payload);
    }
}

fn emitted(output: u16, payload: &[u8], step: &str) -> Emitted {
    let payload = [payload, step.as_bytes()].concat();
    Emitted {
        output,
        key: format!("k{}", hash(b"key", &payload) % KEYS).into_bytes(),
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

/// The computation's name: the parameter `name`.
pub fn name_of(parameters: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Parameters {
        name: String,
    }
    serde_json::from_str::<Parameters>(parameters).map_or_else(|_| String::new(), |with| with.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_of;

    #[test]
    fn a_tally_counts_on_from_its_states_and_is_deleted_at_its_bound() {
        let mut tally = Tally::default();
        for count in 1..COUNT_MAX {
            tally.take("t", b"a");
            assert_eq!(tally.count, count);
            let states = tally.to_states();
            assert_eq!(Tally::from_states([&states[0], &states[1]]), tally);
        }
        tally.take("t", b"a");
        assert_eq!(tally.to_states(), [Vec::<u8>::new(), Vec::new()]);
    }

    #[test]
    fn a_batch_is_its_messages_one_by_one() {
        let batch = batch_of(&[(b"k", b"a"), (b"k", b"b"), (b"k", b"c")], true);
        let effects = process_relay("m", &batch);
        let one_by_one: Vec<Emitted> = [b"a", b"b", b"c"]
            .into_iter()
            .flat_map(|payload| relay("m", payload))
            .collect();
        assert_eq!(effects.outputs.streams.len(), one_by_one.len());
        for (index, message) in one_by_one.iter().enumerate() {
            assert_eq!(value(&effects.outputs.payloads, index), message.payload);
        }
    }
}
