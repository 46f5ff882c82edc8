//! Rows of the store's queues, for sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::source::queue::{QueueChunk, QueueFailure, QueueReader};
use crate::storage::queue_rows::{QueueError, QueueLimit, read_bounds, read_queue};
use crate::storage::{Storage, StorageError};
use crate::types::ids::PartitionId;
use crate::types::queue::QueueBounds;

/// Queues of a store by their names.
pub struct StoredQueues {
    storage: Arc<dyn Storage>,
    partitions: BTreeMap<String, Vec<PartitionId>>,
}

impl StoredQueues {
    /// The queues of these names and partitions, for sources to share.
    pub fn shared(
        storage: &Arc<dyn Storage>,
        partitions: BTreeMap<String, Vec<PartitionId>>,
    ) -> Arc<dyn QueueReader> {
        Arc::new(StoredQueues {
            storage: Arc::clone(storage),
            partitions,
        })
    }
}

impl QueueReader for StoredQueues {
    fn partition(&self, queue: &str, index: u32) -> Option<PartitionId> {
        self.partitions.get(queue)?.get(index as usize).copied()
    }

    fn bounds(&self, partition: PartitionId) -> Result<QueueBounds, QueueFailure> {
        read_bounds(&*self.storage, partition).map_err(store_failed)
    }

    fn read(
        &self,
        partition: PartitionId,
        from: u64,
        size_bytes: usize,
    ) -> Result<Vec<QueueChunk>, QueueFailure> {
        let limit = QueueLimit {
            rows: usize::MAX,
            bytes: size_bytes,
        };
        match read_queue(&*self.storage, partition, from, limit) {
            Ok(page) => {
                let chunks = page.chunks.into_iter();
                Ok(chunks
                    .map(|(offset, rows)| QueueChunk { offset, rows })
                    .collect())
            }
            Err(QueueError::Trimmed { start, .. }) => Err(QueueFailure::Trimmed { start }),
            Err(error) => Err(QueueFailure::Store(Box::new(error))),
        }
    }
}

fn store_failed(error: StorageError) -> QueueFailure {
    QueueFailure::Store(Box::new(error))
}
