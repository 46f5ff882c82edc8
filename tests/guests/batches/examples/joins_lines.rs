//! Joins lines in blocks.
#![cfg(target_arch = "wasm32")]

tidelock_guest::export!(guest_batches::joins_lines::JoinsLines);
