//! What a store remembers of its epochs for those who judge them.

use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::PartitionId;

use crate::faults::FaultCounts;

/// An epoch that was decided.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// What it holds.
    pub(crate) commit: EpochCommit,
    /// What the clock said while it was made.
    pub(crate) at: Timestamp,
    /// The worker's start that it came after.
    pub(crate) start: usize,
    /// Whether no job made it, but a start that moves what jobs have.
    pub(crate) is_move: bool,
    /// How many bytes a lane was to hold at most at the time.
    pub(crate) lane_bytes_max: u64,
}

/// A job has handed on what it has written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedOn {
    /// How many epochs were decided by then.
    pub(crate) after: usize,
    /// The job's partition.
    pub(crate) partition: PartitionId,
    /// Its chunks in the first so many decided epochs were handed on.
    pub(crate) up_to: usize,
}

/// What has become of the epochs.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Those that were decided, in the order of decision.
    pub(crate) decided: Vec<Decided>,
    /// What jobs have handed on, in that order.
    pub(crate) handed_on: Vec<HandedOn>,
    /// Whose sync failed: the next opening tells.
    pub(crate) undetermined: Vec<Decided>,
    /// The faults that came to pass.
    pub(crate) counts: FaultCounts,
}
