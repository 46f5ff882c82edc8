//! A transform that reads the monotonic clock, around a sleep of an hour.
#![cfg(target_arch = "wasm32")]
#![expect(clippy::disallowed_methods, reason = "what the sandbox is tested with")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_transform, one_output_each};

struct ReadsMonotonicClock;

impl Guest for ReadsMonotonicClock {
    fn describe() -> Description {
        describe_transform()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| {
            let start = std::time::Instant::now();
            std::thread::sleep(std::time::Duration::from_secs(3_600));
            start.elapsed().as_nanos().to_string().into_bytes()
        }))
    }
}

guest_behaviours::bindings::export_computation!(ReadsMonotonicClock);
