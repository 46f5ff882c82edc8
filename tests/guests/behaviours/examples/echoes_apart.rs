//! A transform that passes every message on, to a stream that no other test guest writes: a second
//! reader of what another one reads.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_transform, one_output_each, value};

struct EchoesApart;

impl Guest for EchoesApart {
    fn describe() -> Description {
        Description {
            outputs: vec!["apart".to_owned()],
            ..describe_transform()
        }
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        let payloads = &input.messages.payloads;
        Ok(one_output_each(&input, |index| {
            value(payloads, index).to_vec()
        }))
    }
}

guest_behaviours::bindings::export_computation!(EchoesApart);
