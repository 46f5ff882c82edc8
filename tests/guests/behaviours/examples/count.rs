//! A well-behaved transform that counts messages by key.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::count;

struct Count;

impl Guest for Count {
    fn describe() -> Description {
        count::describe()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(count::process(&input))
    }
}

guest_behaviours::bindings::export_computation!(Count);
