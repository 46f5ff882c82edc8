//! A well-behaved transform that numbers the messages of each key in the order in which they come, as
//! text, and takes its time for each: what it reads waits in lanes.

use crate::contract::{Batch, Description, Effects};
use crate::{count, empty_column, push, value};

/// The transform of [`count`] with other streams.
pub fn describe() -> Description {
    Description {
        inputs: vec!["sums".to_owned()],
        outputs: vec!["numbered".to_owned()],
        ..count::describe()
    }
}

/// Numbers each message among those of its key, after `work` steps that lead to nothing.
pub fn process(work: u64, batch: &Batch) -> Effects {
    let mut effects = count::process(batch);
    let mut payloads = empty_column();
    for index in 0..effects.outputs.payloads.ends.len() {
        for step in 0..work {
            std::hint::black_box(step);
        }
        let (number, text) = value(&effects.outputs.payloads, index).split_at(8);
        let number = number
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        push(
            &mut payloads,
            &[number.to_string().as_bytes(), b" ", text].concat(),
        );
    }
    effects.outputs.payloads = payloads;
    effects
}

/// How many steps each message takes: the parameter `work`, or none.
pub fn work_of(parameters: &str) -> u64 {
    #[derive(serde::Deserialize)]
    struct Parameters {
        work: u64,
    }
    serde_json::from_str::<Parameters>(parameters).map_or(0, |with| with.work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_of;

    #[test]
    fn messages_of_a_key_are_numbered_from_one() {
        let effects = process(work_of("{\"work\": 3}"), &batch_of(&[(b"a", b"x")], true));
        assert_eq!(value(&effects.outputs.payloads, 0), b"1 x");
        assert_eq!(work_of("{}"), 0);
    }
}
