//! A map that connects to a server.
#![cfg(target_arch = "wasm32")]

use guest_behaviours::contract::{Batch, Description, Effects, Failure, Guest};
use guest_behaviours::{describe_map, one_output_each};

struct OpensSocket;

impl Guest for OpensSocket {
    fn describe() -> Description {
        describe_map()
    }

    fn process(_parameters: String, input: Batch) -> Result<Effects, Failure> {
        Ok(one_output_each(
            &input,
            |_| match std::net::TcpStream::connect(("127.0.0.1", 80)) {
                Ok(_) => b"connected".to_vec(),
                Err(error) => error.to_string().into_bytes(),
            },
        ))
    }
}

guest_behaviours::bindings::export_computation!(OpensSocket);
