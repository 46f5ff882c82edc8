//! Reads commands from lines.
#![cfg(target_arch = "wasm32")]

tidelock_guest::export!(guest_alarms::commands::ReadsCommands);
