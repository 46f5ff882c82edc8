//! The contract as Rust types and calls, generated from `wit/` at the root of the repository; and
//! nothing else.
//!
//! Parameters borrow, so a batch's columns go to the guest without a copy on the host's side.

#![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "guest",
    ownership: Borrowing { duplicate_if_necessary: true },
});
