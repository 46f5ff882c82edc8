//! Why a job ended before its work was done.

use crate::guest::GuestError;
use crate::sink::SinkError;
use crate::source::SourceError;
use crate::storage::{Refusal, StorageError};
use crate::types::ids::{EpochId, PartitionId};
use crate::types::key::MESSAGE_KEY_BYTES_MAX;
use crate::worker::input::ItemLocation;

/// A job's failure. Nothing of the epoch that met it is visible, and a new run goes on from the
/// last committed epoch.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A component failed.
    #[error(
        "computation {computation} failed in epoch {epoch} of partition {partition}, at {location}"
    )]
    Guest {
        /// The computation.
        computation: String,
        /// The job's partition.
        partition: PartitionId,
        /// The epoch, which was given up.
        epoch: EpochId,
        /// The items in question.
        location: Box<ItemLocation>,
        /// What the component did.
        source: Box<GuestError>,
    },
    /// The process has ended with an item too often.
    #[error(
        "the process ended {attempts} times while computation {computation} processed {location}, in epoch {epoch} of partition {partition}; find out why (memory, the machine, a defect of tidelock), then run again, or have the item passed over with on_failure = \"skip\" or \"dead_letter\""
    )]
    GivenUp {
        /// The computation.
        computation: String,
        /// The job's partition.
        partition: PartitionId,
        /// The epoch, which was given up.
        epoch: EpochId,
        /// The item.
        location: Box<ItemLocation>,
        /// How often.
        attempts: u32,
    },
    /// A stored message has a key that is longer than keys may be.
    #[error(
        "{location} has a key of {size_bytes} bytes, allowed are {MESSAGE_KEY_BYTES_MAX}, and computation {computation} can keep nothing under it, in epoch {epoch} of partition {partition}; it was written by an earlier release and can't be passed over: start afresh in another data directory, with hashes as keys"
    )]
    KeyTooLong {
        /// The transform.
        computation: String,
        /// The job's partition.
        partition: PartitionId,
        /// The epoch, which was given up.
        epoch: EpochId,
        /// The message.
        location: Box<ItemLocation>,
        /// Bytes of its key.
        size_bytes: usize,
    },
    /// The chained maps multiply one batch beyond what memory is set aside for.
    #[error(
        "one batch led to {size_bytes} bytes in the chain at computation {computation} in epoch {epoch} of partition {partition}, the limit is {limit}; set a smaller max_rows_per_batch, or emit less",
        limit = crate::worker::chain::CHAIN_BYTES_MAX
    )]
    ChainTooLarge {
        /// The computation that went past the limit.
        computation: String,
        /// The job's partition.
        partition: PartitionId,
        /// The epoch, which was given up.
        epoch: EpochId,
        /// Bytes of keys and payloads in the chain.
        size_bytes: usize,
    },
    /// A source could not be read, or one of its records could not be decoded.
    #[error(transparent)]
    Source(SourceError),
    /// A sink refused a row or could not write it.
    #[error("sink {sink} failed{}", .location.as_ref().map_or_else(String::new, |location| format!(", at what follows from {location}")))]
    Sink {
        /// The sink.
        sink: String,
        /// The item whose message it refused, if it was one.
        location: Option<Box<ItemLocation>>,
        /// Why.
        source: SinkError,
    },
    /// The job may not commit any more, or not this epoch.
    #[error(
        "the epoch was refused, nothing of it is visible; run the pipeline again to go on from the last committed epoch, and see that nothing else runs it meanwhile"
    )]
    Refused(#[source] Refusal),
    /// The store could not tell whether the epoch was committed; the next run finds out.
    #[error(
        "whether epoch {epoch} of partition {partition} was committed is unknown; the next run goes on from what was"
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
    /// The machine would not give the job a thread.
    #[error(
        "the job got no thread; raise the limit on processes and threads (ulimit -u), or use fewer partitions"
    )]
    NotStarted(#[source] std::io::Error),
    /// The job's thread panicked: a defect of the host.
    #[error(
        "the job's thread panicked: {message}; this is a defect of tidelock, please report it with its log"
    )]
    Panicked {
        /// What it said.
        message: String,
    },
}

impl JobError {
    /// Whether nobody reads a sink's output any more: not a failure, nobody wants more.
    pub fn is_reader_gone(&self) -> bool {
        matches!(
            self,
            JobError::Sink {
                source: SinkError::ReaderGone { .. },
                ..
            }
        )
    }
}
