//! A transform that does with timers what its messages tell it, for tests that are about time, and the map
//! that reads its messages from lines.

pub mod alarms;
pub mod commands;
