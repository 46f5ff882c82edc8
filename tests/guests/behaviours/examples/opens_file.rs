//! A map that reads a file outside its sandbox.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_map, one_output_each};

struct OpensFile;

impl Guest for OpensFile {
    fn describe() -> Description {
        describe_map()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| {
            let path = "/data/greeting.txt";
            match std::fs::read(path) {
                Ok(bytes) => bytes,
                Err(error) => format!("{path}: {error}").into_bytes(),
            }
        }))
    }
}

guest_behaviours::bindings::export_computation!(OpensFile);
