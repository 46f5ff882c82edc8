//! The queues of a store: which there are, who uses them, and what is kept of them.
//!
//! - [`registry`]: the rows of the catalog, and what may be done to them.
//! - [`declared`]: the queues that a pipeline declares, compared with those of the store.
//! - [`reader`]: rows of queues, for sources and for people.
//! - [`intake`]: rows that come from outside of a pipeline, each once.
//! - [`users`]: which pipelines read and write a queue, and how far they are.

pub mod declared;
pub mod intake;
pub mod reader;
pub mod registry;
pub mod users;

#[cfg(test)]
mod tests;

use crate::controller::repartition::RepartitionError;
use crate::storage::StorageError;

/// Something can't be done with a queue.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// There is no queue of that name.
    #[error(
        "there is no queue {queue} in the data directory, which has {known}; `tidelock queue create` makes one"
    )]
    Unknown {
        /// The name.
        queue: String,
        /// The names that there are, or "none".
        known: String,
    },
    /// A queue is to be made that is there.
    #[error(
        "queue {queue} is there already, with {partitions} partitions; delete it first, or name another one"
    )]
    Exists {
        /// The queue.
        queue: String,
        /// How many partitions it has.
        partitions: u32,
    },
    /// A pipeline declares another number of partitions than a queue has.
    #[error(
        "queue {queue} has {stored} partitions, and the pipeline declares {declared}: rows of one key would lie in two of them, in no order; write partitions = {stored}, or name another queue"
    )]
    OtherPartitions {
        /// The queue.
        queue: String,
        /// How many it has.
        stored: u32,
        /// How many the pipeline declares.
        declared: u32,
    },
    /// A queue that pipelines use is to be deleted.
    #[error(
        "queue {queue} is used by {users}; take it out of them and run them once, or delete it all the same with --even-if-used"
    )]
    Used {
        /// The queue.
        queue: String,
        /// Who uses it: "source a of pipeline b".
        users: String,
    },
    /// Others changed the same queue at the same time.
    #[error("queue {queue} was changed by another process at the same time; try again")]
    Contended {
        /// The queue.
        queue: String,
    },
    /// What the queue's intake kept could not be removed.
    #[error(
        "failed to remove what the intake of a deleted queue kept; the next command goes on with it"
    )]
    Sweep(#[source] RepartitionError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl QueueError {
    /// Whether something else stands in the way, and nothing is broken.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            QueueError::Exists { .. }
                | QueueError::OtherPartitions { .. }
                | QueueError::Used { .. }
                | QueueError::Contended { .. }
        )
    }
}
