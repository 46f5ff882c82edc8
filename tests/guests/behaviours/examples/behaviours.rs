//! A transform that behaves as its parameters say.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::behaviours;
use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};

struct Behaviours;

impl Guest for Behaviours {
    fn describe() -> Description {
        behaviours::describe()
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        behaviours::process(&parameters, &input)
    }
}

guest_behaviours::bindings::export_computation!(Behaviours);
