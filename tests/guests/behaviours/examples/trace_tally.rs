//! A well-behaved transform that keeps a tally of each key, for the simulation.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::trace;

struct Tally;

impl Guest for Tally {
    fn describe() -> Description {
        trace::describe_tally()
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(trace::process_tally(
            &trace::Parameters::read(&parameters),
            &input,
        ))
    }
}

guest_behaviours::bindings::export_computation!(Tally);
