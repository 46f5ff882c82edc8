//! A transform that draws random numbers, through the import itself.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_transform, one_output_each};

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::all,
    reason = "generated"
)]
mod bindings {
    wit_bindgen::generate!({
        generate_all,
        inline: "
            package tests:random;

            world draws {
                import wasi:random/random@0.2.0;
            }

            package wasi:random@0.2.0 {
                interface random {
                    get-random-bytes: func(len: u64) -> list<u8>;
                    get-random-u64: func() -> u64;
                }
            }
        ",
    });
}

use bindings::wasi::random::random;

struct ReadsRandom;

impl Guest for ReadsRandom {
    fn describe() -> Description {
        describe_transform()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| {
            let mut drawn = random::get_random_bytes(16);
            drawn.extend_from_slice(&random::get_random_u64().to_le_bytes());
            drawn
        }))
    }
}

guest_behaviours::bindings::export_computation!(ReadsRandom);
