//! Does with timers what its messages tell it.
#![cfg(target_arch = "wasm32")]

tidelock_guest::export!(guest_alarms::alarms::KeepsAlarms);
