//! A map that reads the wall clock.
#![cfg(target_arch = "wasm32")]
#![expect(clippy::disallowed_methods, reason = "what the sandbox is tested with")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_map, one_output_each};

struct ReadsClock;

impl Guest for ReadsClock {
    fn describe() -> Description {
        describe_map()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| {
            let now = std::time::SystemTime::now();
            let since_epoch = now
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or_default();
            since_epoch.as_nanos().to_string().into_bytes()
        }))
    }
}

guest_behaviours::bindings::export_computation!(ReadsClock);
