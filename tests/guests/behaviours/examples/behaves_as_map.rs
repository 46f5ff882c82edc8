//! A map that behaves as its parameters say.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{behaviours, describe_map};

struct BehavesAsMap;

impl Guest for BehavesAsMap {
    fn describe() -> Description {
        describe_map()
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        behaviours::process_as_map(&parameters, &input)
    }
}

guest_behaviours::bindings::export_computation!(BehavesAsMap);
