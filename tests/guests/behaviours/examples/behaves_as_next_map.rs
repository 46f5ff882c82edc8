//! A map that reads what another one writes and behaves as its parameters say.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{behaviours, describe_map};

struct BehavesAsNextMap;

impl Guest for BehavesAsNextMap {
    fn describe() -> Description {
        Description {
            inputs: vec!["out".to_owned()],
            outputs: vec!["next-out".to_owned()],
            ..describe_map()
        }
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        behaviours::process_as_map(&parameters, &input)
    }
}

guest_behaviours::bindings::export_computation!(BehavesAsNextMap);
