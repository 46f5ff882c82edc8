//! Refuses a block.
#![cfg(target_arch = "wasm32")]

tidelock_guest::export!(guest_batches::refuses_a_block::RefusesABlock);
