//! A transform that echoes its messages and declares a timer.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{
    Batch, Description, Effects, Failure, Guest, TimeDomain, TimerDeclaration,
};
use guest_behaviours::{describe_transform, one_output_each};

struct DeclaresTimer;

impl Guest for DeclaresTimer {
    fn describe() -> Description {
        Description {
            timers: vec![TimerDeclaration {
                name: "alarm".to_owned(),
                time: TimeDomain::EventTime,
            }],
            ..describe_transform()
        }
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| b"echo".to_vec()))
    }
}

guest_behaviours::bindings::export_computation!(DeclaresTimer);
