//! The pure core: values in, decisions out. No thread, clock, file, store or guest is known here.
//!
//! An **epoch** is one atomic step of one job. The job reads items in order, runs them through its
//! chain, and collects in an [`epoch::OpenEpoch`] all that follows from them. Sealed, it becomes an
//! [`EpochCommit`](crate::types::epoch::EpochCommit): new positions together with new states and
//! new messages. Storage decides it whole or not at all, and that is why an item happens once: a
//! position that moved without its consequences, or consequences without the position, is a value
//! that does not exist.
//!
//! - [`call`]: how messages become the batch of a guest call.
//! - [`epoch`]: what an epoch collects, and when it is full.
//! - [`firing`]: which due timers may fire in one call.
//! - [`generator`]: the watermarks of a source's partition.
//! - [`hot_keys`]: which keys a partition's input mostly consists of.
//! - [`merge`]: the order in which messages of several lanes are taken.
//! - [`lane`]: a reader's frontier in a lane; what a chunk still holds for it; what may be trimmed.
//! - [`public_ids`]: the ids of messages that go back to several items.
//! - [`state`]: the states that a job has loaded, and which of them its epoch changed.
//! - [`stream`]: messages between the computations of a chain, and their merging in item order.
//! - [`timer_log`]: what epochs on their way do to timers.
//! - [`timer_window`]: the timers that fire next, as many as memory is set aside for.
//! - [`watermark`]: the watermarks of a transform's inputs.

pub mod call;
pub mod epoch;
pub mod firing;
pub mod generator;
pub mod hot_keys;
pub mod lane;
pub mod merge;
pub mod public_ids;
pub mod state;
pub mod stream;
pub mod timer_log;
pub mod timer_window;
pub mod watermark;
