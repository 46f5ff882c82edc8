//! The partitions of queues: how the rows of decided epochs become visible, how they are trimmed, and who is
//! told of them.
//!
//! Their bounds have no copy in memory: what the overlay holds, and the bulk rows behind it, is what counts.
//!
//! **Invariant:** only the committer, and a recovery before it, writes here.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::storage::embedded::bulk::{RowBytes, RowChange};
use crate::storage::embedded::faults::pass;
use crate::storage::embedded::overlay::NewRun;
use crate::storage::embedded::run::Run;
use crate::storage::embedded::{Sabotage, Shared};
use crate::storage::queue_codec::{QueueChunk, decode_queue_bounds, encode_queue_bounds};
use crate::storage::queue_rows::trimmed_bounds;
use crate::storage::scan::ScanLimit;
use crate::storage::{QueueListener, StorageError, keys};
use crate::types::ids::PartitionId;
use crate::types::queue::{QueueAppend, QueueBounds, QueuePlace};

/// Most chunks that are removed in one write. Others may commit between two.
const REMOVALS_PER_WRITE: usize = 4_096;

/// Chunks of decided epochs, by their queue's partition.
#[derive(Debug, Default)]
pub(super) struct DecidedChunks {
    chunks: BTreeMap<PartitionId, Vec<QueueChunk>>,
}

impl DecidedChunks {
    /// Takes in an epoch's appends at their places.
    pub(super) fn add(
        &mut self,
        appends: Vec<QueueAppend>,
        places: impl IntoIterator<Item = QueuePlace>,
    ) {
        for (append, place) in appends.into_iter().zip(places) {
            let chunks = self.chunks.entry(append.queue).or_default();
            chunks.push(QueueChunk { place, append });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// A run for each partition: its chunks, and the bounds with them. What was trimmed in the meantime is left
    /// out.
    pub(super) fn into_runs(self, shared: &Shared) -> Result<Vec<NewRun>, StorageError> {
        (self.chunks.into_iter())
            .map(|(queue, mut chunks)| {
                let mut bounds = shared.queue_bounds(queue)?;
                chunks.sort_by_key(|chunk| chunk.place.offset);
                if shared.is_sabotaged(Sabotage::QueueRowsAtTheEnd) {
                    chunks.iter_mut().for_each(|chunk| {
                        chunk.place = bounds.next_place();
                        bounds.cover(&chunk.span());
                    });
                }
                chunks.iter().for_each(|chunk| bounds.cover(&chunk.span()));
                chunks.retain(|chunk| chunk.span().end() > bounds.start);
                Ok((queue, Arc::new(Run::of_queue(queue, chunks, &bounds))))
            })
            .collect()
    }
}

impl Shared {
    /// The bounds of a queue's partition, as they are decided.
    pub(super) fn queue_bounds(&self, queue: PartitionId) -> Result<QueueBounds, StorageError> {
        let row = self.read_row(&keys::queue_bounds(queue))?;
        row.map_or(Ok(QueueBounds::default()), |value| {
            decode_queue_bounds(queue, &value)
        })
    }

    /// What a trim would make of the bounds; `None`: they stay.
    pub(super) fn plan_trim(
        &self,
        queue: PartitionId,
        before: u64,
    ) -> Result<Option<QueueBounds>, StorageError> {
        let bounds = self.queue_bounds(queue)?;
        if before <= bounds.start {
            return Ok(None);
        }
        let (start, end) = (
            keys::queue_rows(queue, before),
            keys::all_of(keys::QUEUE_ROWS, queue).1,
        );
        let at_start = self.scan_rows(&start, &end, ScanLimit::rows(1))?;
        let trimmed = trimmed_bounds(bounds, before, at_start.first())?;
        Ok(Some(trimmed).filter(|trimmed| *trimmed != bounds))
    }

    /// Writes the new bounds, with which everything below them is gone, and removes the chunks there. The
    /// overlay must be applied.
    pub(super) fn trim(
        &self,
        queue: PartitionId,
        bounds: &QueueBounds,
    ) -> Result<(), StorageError> {
        let new = (
            RowBytes::from(keys::queue_bounds(queue)),
            Some(encode_queue_bounds(bounds).into()),
        );
        if self.is_sabotaged(Sabotage::ChunksTrimmedBeforeBounds) {
            self.remove_chunks(queue, bounds.start, None)?;
        }
        // What a crash may leave of the chunks is below the bounds, and goes with the next trim.
        self.remove_chunks(queue, bounds.start, Some(new))?;
        pass(&self.faults, "trim: sync the rows")?;
        self.bulk.sync()
    }

    /// Removes a partition's chunks, then its bounds. The overlay must be applied.
    pub(super) fn remove(&self, queue: PartitionId) -> Result<(), StorageError> {
        let bounds = self.queue_bounds(queue)?;
        let empty = QueueBounds {
            start: bounds.end,
            trimmed_bytes: bounds.written_bytes,
            ..bounds
        };
        // Half of it gone must look trimmed, not torn.
        let key = RowBytes::from(keys::queue_bounds(queue));
        let emptied = (key.clone(), Some(encode_queue_bounds(&empty).into()));
        self.remove_chunks(queue, u64::MAX, Some(emptied))?;
        pass(&self.faults, "trim: remove the bounds")?;
        self.bulk.write([(key, None)])?;
        pass(&self.faults, "trim: sync the rows")?;
        self.bulk.sync()
    }

    /// Removes the chunks whose last row lies below `end`, a few at a time, the first ones together with
    /// another change.
    fn remove_chunks(
        &self,
        queue: PartitionId,
        end: u64,
        mut change: Option<RowChange>,
    ) -> Result<(), StorageError> {
        let range = (
            std::ops::Bound::Included(keys::queue_rows(queue, 0)),
            std::ops::Bound::Excluded(keys::queue_rows(queue, end)),
        );
        let view = self.bulk.view();
        let mut chunks = view.keys(range);
        loop {
            let mut changes: Vec<RowChange> = change.take().into_iter().collect();
            for key in chunks.by_ref().take(REMOVALS_PER_WRITE) {
                changes.push((key?, None));
            }
            if changes.is_empty() {
                return Ok(());
            }
            pass(&self.faults, "trim: write the rows")?;
            self.bulk.write(changes)?;
        }
    }

    /// Has a listener called from here on.
    pub(super) fn add_queue_listener(&self, listener: QueueListener) {
        let mut listeners = self
            .queue_listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push(listener);
    }

    /// Tells all who listen that there are new rows.
    pub(super) fn tell_queue_listeners(&self) {
        let listeners = self
            .queue_listeners
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener());
    }
}
