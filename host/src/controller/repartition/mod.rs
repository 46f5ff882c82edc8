//! Moves what a transform has from one layout (its list of partitions) to another, between two
//! runs.
//!
//! ```text
//!  lanes to the old partitions ──1 reroute──▶ lanes to the new ones
//!  states, timers and frontiers ─2 hand over▶ those of the new ones
//!                                             3 written down by the registry
//!  what the old ones still hold ──4 sweep───▶ nothing
//! ```
//!
//! Everything is an epoch under a lease of the partition that it changes, so each step is whole or
//! not there. A process that dies, or a commit that is refused or whose answer is lost, leaves a
//! state from which the same call goes on: messages that have moved are not found again, states and timers
//! are written again with the same values, as nobody has processed anything in between.
//!
//! **Invariant:** a message keeps its id, and the messages of one producer in one lane stay in the order
//! of their ids. What the old reader's frontier has passed does not move. A watermark step moves unless all
//! of the old readers have passed it, to all of the new ones.
//!
//! What the old partitions wrote themselves stays where it is, for their readers to read to its end.

mod frontiers;
mod hand_over;
mod reroute;
mod succession;
mod sweep;
pub(in crate::controller) mod writer;

#[cfg(test)]
pub(super) mod tests;

use crate::storage::{Refusal, Storage, StorageError};
use crate::types::ids::{EpochId, PartitionId};

pub use frontiers::drop_silent_frontiers;
pub use sweep::{keeps_anything, sweep};

/// How much is read and committed at a time. What moves does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveLimits {
    /// About how many bytes of messages or states a group of commits carries: 8 MiB. One epoch's
    /// messages of one stream go together, whatever their size.
    pub commit_bytes: usize,
    /// How many states, timers or chunks of lanes a group of commits changes at most, but for one page:
    /// 16,384.
    pub commit_rows: usize,
    /// How many states or timers are read at a time: 1,000, as many as a batch of a job has keys.
    pub page_rows: usize,
    /// About how many bytes of states or timers are read at a time: 1 MiB. A state is read whole, whatever its
    /// size.
    pub page_bytes: usize,
}

impl Default for MoveLimits {
    fn default() -> MoveLimits {
        MoveLimits {
            commit_bytes: 8 << 20,
            commit_rows: 16_384,
            page_rows: 1_000,
            page_bytes: 1 << 20,
        }
    }
}

/// A transform goes over from one layout to another.
#[derive(Debug, Clone, Copy)]
pub struct Repartition<'a> {
    /// The partitions that it had, in the order of their ranges of key hashes.
    pub from: &'a [PartitionId],
    /// The partitions that it is to have, in that order.
    pub to: &'a [PartitionId],
    /// All partitions that may have written messages for `from`; others in the list do not matter.
    pub producers: &'a [PartitionId],
    /// Number of the deployment in force.
    pub deployment: u64,
    /// How much is committed at a time.
    pub limits: MoveLimits,
}

/// How much has been done so far, and is durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepartitionProgress {
    /// Messages that wait in lanes of the new layout now.
    pub messages: u64,
    /// States that the new layout has now.
    pub states: u64,
    /// Pending timers that it has now.
    pub timers: u64,
    /// Rows of old partitions that are gone.
    pub swept: u64,
}

/// Is told how much has been done, after each commit.
pub type Observer<'a> = dyn FnMut(RepartitionProgress) + 'a;

/// A move stopped before its end. The same call goes on with it.
#[derive(Debug, thiserror::Error)]
pub enum RepartitionError {
    /// Somebody else has taken a partition over.
    #[error("a move to other partitions lost its lease; run the pipeline again to go on with it")]
    Refused(#[source] Refusal),
    /// Storage could not tell whether an epoch was committed.
    #[error(
        "a move to other partitions can't tell whether epoch {epoch} of partition {partition} was committed; run the pipeline again to go on with it"
    )]
    OutcomeUnknown {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: EpochId,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Repartition<'_> {
    /// Moves waiting messages, then states and timers. Nothing may run the pipeline meanwhile, and neither layout
    /// may be processed until this has returned once without an error and that is written down.
    ///
    /// # Errors
    ///
    /// When a commit is refused, its answer is lost, or the store fails.
    pub fn run(
        &self,
        storage: &dyn Storage,
        observe: &mut Observer<'_>,
    ) -> Result<RepartitionProgress, RepartitionError> {
        let mut progress = RepartitionProgress::default();
        reroute::reroute(self, storage, &mut |messages| {
            progress.messages += messages;
            observe(progress);
        })?;
        hand_over::hand_over(self, storage, &mut |moved| {
            progress.states += moved.states;
            progress.timers += moved.timers;
            observe(progress);
        })?;
        Ok(progress)
    }
}
