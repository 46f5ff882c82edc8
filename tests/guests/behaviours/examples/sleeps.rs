//! A map that sleeps for an hour and reads no clock.
#![cfg(target_arch = "wasm32")]
#![expect(clippy::disallowed_methods, reason = "what the sandbox is tested with")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_map, one_output_each};

struct Sleeps;

impl Guest for Sleeps {
    fn describe() -> Description {
        describe_map()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| {
            std::thread::sleep(std::time::Duration::from_secs(3_600));
            b"slept".to_vec()
        }))
    }
}

guest_behaviours::bindings::export_computation!(Sleeps);
