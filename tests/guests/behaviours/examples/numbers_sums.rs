//! A well-behaved transform that numbers the messages of each key and takes its time.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::number;

struct NumbersSums;

impl Guest for NumbersSums {
    fn describe() -> Description {
        number::describe()
    }

    fn process(parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(number::process(number::work_of(&parameters), &input))
    }
}

guest_behaviours::bindings::export_computation!(NumbersSums);
