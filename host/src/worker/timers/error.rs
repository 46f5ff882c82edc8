//! Why a job's timers can't be taken up.

use crate::storage::StorageError;
use crate::types::ids::PartitionId;

/// Why the book can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum TimersError {
    /// The component does not declare a stream any more.
    #[error(
        "timer stream {stream} has pending timers ({pending} in partition {partition}), and the component does not declare it \
         any more; declare it, by the {clock} clock as before, until all of them have fired or been cancelled"
    )]
    Undeclared {
        /// The stream.
        stream: String,
        /// The partition.
        partition: PartitionId,
        /// How many of its timers are pending.
        pending: u64,
        /// The clock that it went by.
        clock: &'static str,
    },
    /// A stream goes by another clock than its pending timers.
    #[error(
        "timer stream {stream} has pending timers by the {clock} clock ({pending} in partition {partition}), and the component \
         declares it by the other one; declare it as before until all of them have fired or been cancelled, and a stream of \
         another name beside it"
    )]
    OtherClock {
        /// The stream.
        stream: String,
        /// The partition.
        partition: PartitionId,
        /// How many of its timers are pending.
        pending: u64,
        /// The clock that they go by.
        clock: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
