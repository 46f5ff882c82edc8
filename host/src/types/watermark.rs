//! Watermarks as they travel in lanes and as positions remember them. A watermark says: nothing that
//! happened before this moment is expected any more.
//!
//! Watermarks belong to a run of the pipeline: they begin at 0 with it, never fall within it, and come
//! to [`END_OF_TIME`] when its finite sources are at their end.

use crate::types::batch::Timestamp;

/// The watermark of an input that is at its end: nothing will follow in this run.
pub const END_OF_TIME: Timestamp = Timestamp::MAX;

/// A watermark step in a lane. It has an index of its own in its epoch, as a message has, and takes
/// effect behind the messages of smaller indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneStep {
    /// Its place in the epoch that made it.
    pub index: u32,
    /// What holds from here on.
    pub time: LaneTime,
}

/// What a lane's writer has said of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneTime {
    /// Its watermark; 0 before the first one of the run.
    pub watermark: Timestamp,
    /// Whether it has had nothing to read for a while: its watermark then holds nobody back.
    pub is_idle: bool,
}
