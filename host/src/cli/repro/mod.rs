//! A folder with which a call that failed is made again on any machine. `tidelock dlq repro` writes it and `tidelock replay`
//! runs it; it needs nothing else, and people can read it.
//!
//! - [`folder`]: its files, written and read.
//! - [`call`]: the call, as JSON.
//! - [`effects`]: what a call brings that passes, as JSON.

pub mod call;
pub mod effects;
pub mod folder;
