//! A transform that reads the file whose path a message is, and tries to write beside it.
#![cfg(target_arch = "wasm32")]

use std::fs;

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_transform, one_output_each, value};

struct OpensFile;

impl Guest for OpensFile {
    fn describe() -> Description {
        describe_transform()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |index| {
            let path = String::from_utf8_lossy(value(&input.messages.payloads, index));
            let read = fs::read_to_string(&*path);
            let written = fs::write(format!("{path}.written"), "by the guest");
            let read = read.unwrap_or_else(|error| format!("not read: {error}"));
            let written = written.map_or("not written", |()| "written");
            format!("{read}, {written}").into_bytes()
        }))
    }
}

guest_behaviours::bindings::export_computation!(OpensFile);
