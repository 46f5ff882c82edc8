//! A well-behaved map that drops, passes on and splits messages, for the simulation.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::trace;

struct Relay;

impl Guest for Relay {
    fn describe() -> Description {
        trace::describe_relay()
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(trace::process_relay(
            &trace::Parameters::read(&parameters),
            &input,
        ))
    }
}

guest_behaviours::bindings::export_computation!(Relay);
