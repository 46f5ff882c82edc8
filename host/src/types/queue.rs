//! Rows of queues: durable, partitioned logs in the same store. A queue's partition has a number that is
//! never used again, as every partition has; its rows have offsets that the committer gives, from 0, without
//! gap.

use std::sync::Arc;

use crate::types::batch::Timestamp;
use crate::types::column::Column;
use crate::types::ids::PartitionId;

/// Rows that were written into a queue's partition together, as columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueRows {
    /// Keys; empty where a row has none.
    pub keys: Column,
    /// Event times; 0 where a row has none.
    pub event_times: Vec<Timestamp>,
    /// Payloads.
    pub payloads: Column,
    /// When they were written, by the writer's clock: what retention goes by.
    pub write_time: Timestamp,
}

impl QueueRows {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.event_times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.event_times.is_empty()
    }

    /// Appends a row.
    pub fn push(&mut self, key: &[u8], event_time: Timestamp, payload: &[u8]) {
        self.keys.push(key);
        self.event_times.push(event_time);
        self.payloads.push(payload);
    }

    /// Bytes of keys and payloads, and 16 for each row: what retention by size counts.
    pub fn size_bytes(&self) -> usize {
        self.keys.bytes.len() + self.payloads.bytes.len() + 16 * self.len()
    }
}

/// Rows that an epoch appends to a partition of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAppend {
    /// The queue's partition.
    pub queue: PartitionId,
    /// The rows, at least one.
    pub rows: Arc<QueueRows>,
}
