//! Items that an epoch moves past though nothing could be made of them.

use crate::types::dead_letter::{DeadLetter, DeadLetterId};

/// Those of the open epoch of a job, in the order in which it moved past them.
#[derive(Debug, Default)]
pub(super) struct PassedItems {
    /// Those that are kept.
    pub(super) letters: Vec<DeadLetter>,
    /// How many are not (`on_failure = "skip"`).
    pub(super) skipped: u64,
    /// Dead letters of earlier epochs that go with this one.
    pub(super) removed: Vec<DeadLetterId>,
}
