//! A map that lists a hash map, whose order hangs on a random seed.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_map, one_output_each};

struct UsesHashMap;

impl Guest for UsesHashMap {
    fn describe() -> Description {
        describe_map()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(&input, |_| {
            let map: std::collections::HashMap<u32, u32> = (0..50).map(|n| (n, n)).collect();
            map.keys()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(" ")
                .into_bytes()
        }))
    }
}

guest_behaviours::bindings::export_computation!(UsesHashMap);
