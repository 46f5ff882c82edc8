//! The right to commit for a partition.

use serde::{Deserialize, Serialize};

use crate::types::ids::{Generation, LeaseId, PartitionId};

/// The right to commit for one partition, until it is ended. A row that every commit checks; the
/// value held by a job is only a copy of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Never used again. Renewal keeps it.
    pub id: LeaseId,
    /// The partition that it covers.
    pub partition: PartitionId,
    /// The number of the job among the partition's jobs; greater than every one before.
    pub generation: Generation,
}
