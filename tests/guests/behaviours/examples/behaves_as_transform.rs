//! A transform without timers that behaves as its parameters say.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{behaviours, count};

struct BehavesAsTransform;

impl Guest for BehavesAsTransform {
    fn describe() -> Description {
        count::describe()
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        behaviours::process(&parameters, &input)
    }
}

guest_behaviours::bindings::export_computation!(BehavesAsTransform);
