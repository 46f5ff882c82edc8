//! Passive data: what the modules hand to each other. Nothing here acts, reads or writes.

pub mod batch;
pub mod column;
pub mod connectors;
pub mod dead_letter;
pub mod digest;
pub mod epoch;
pub mod finding;
pub mod format_version;
pub mod ids;
pub mod key;
pub mod lease;
pub mod moment;
pub mod pipeline;
pub mod queue;
pub mod small_bytes;
pub mod timer;
pub mod timestamp_runs;
pub mod watermark;
