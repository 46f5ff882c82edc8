//! A map that writes what comes on either of two streams, as it is, to one.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_map, one_output_each, value};

struct MergesStreams;

impl Guest for MergesStreams {
    fn describe() -> Description {
        Description {
            inputs: vec!["cancelled".to_owned(), "alerts".to_owned()],
            outputs: vec!["notices".to_owned()],
            ..describe_map()
        }
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |index| {
            value(&input.messages.payloads, index).to_vec()
        }))
    }
}

guest_behaviours::bindings::export_computation!(MergesStreams);
