//! The partitions of queues: how the rows of decided epochs become visible, how they are trimmed, and who is
//! told of them.
//!
//! Their bounds have no copy in memory: what the overlay holds, and the bulk rows behind it, is what counts.
//!
//! **Invariant:** only the committer, and a recovery before it, writes here.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::storage::embedded::bulk::{KeyRange, RowBytes, RowChange, TABLE_BYTES};
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

/// Most rows that a trim changes in one write: it bounds what one batch holds in memory.
const CHANGES_PER_WRITE: usize = 4_096;

/// What was removed of a queue's partition since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SweptQueue {
    /// There is no row before this offset.
    up_to: u64,
    /// How many bytes had been trimmed when tables were given back last.
    given_back: u64,
}

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

    /// The same; `None` when they do not decode, which is the queue's damage and nobody else's.
    pub(super) fn decodable_bounds(
        &self,
        queue: PartitionId,
    ) -> Result<Option<QueueBounds>, StorageError> {
        match self.queue_bounds(queue) {
            Err(StorageError::Undecodable { .. }) => Ok(None),
            bounds => bounds.map(Some),
        }
    }

    /// What trims would make of bounds, as far as they change any, and the first failure to find that out.
    pub(super) fn plan_trims(
        &self,
        trims: &[(PartitionId, u64)],
    ) -> (Vec<(PartitionId, QueueBounds)>, Result<(), StorageError>) {
        let mut planned = Vec::with_capacity(trims.len());
        let mut done = Ok(());
        for (queue, before) in trims {
            match self.plan_trim(*queue, *before) {
                Ok(bounds) => planned.extend(bounds.map(|bounds| (*queue, bounds))),
                Err(finding) => done = done.and(Err(finding)),
            }
        }
        (planned, done)
    }

    /// What a trim would make of the bounds; `None`: they stay.
    fn plan_trim(
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

    /// Writes new bounds, with which everything below them is gone, and removes the chunks there; one sync for all.
    /// The overlay must be applied.
    pub(super) fn trim(&self, trims: &[(PartitionId, QueueBounds)]) -> Result<(), StorageError> {
        if trims.is_empty() {
            return Ok(());
        }
        let ends: Vec<(PartitionId, u64)> = (trims.iter())
            .map(|(queue, bounds)| (*queue, bounds.start))
            .collect();
        if self.is_sabotaged(Sabotage::ChunksTrimmedBeforeBounds) {
            self.remove_chunks(&ends, Vec::new())?;
        }
        // What a crash may leave of the chunks is below the bounds, and goes with the next trim.
        let bounds = (trims.iter())
            .map(|(queue, bounds)| bounds_row(*queue, bounds))
            .collect();
        self.remove_chunks(&ends, bounds)?;
        pass(&self.faults, "trim: sync the rows")?;
        self.bulk.sync()
    }

    /// Removes a partition's chunks, then its bounds. The overlay must be applied.
    pub(super) fn remove(&self, queue: PartitionId) -> Result<(), StorageError> {
        // Half of it gone must look trimmed, not torn. Bounds that do not decode are no better with their chunks.
        let emptied = self.decodable_bounds(queue)?.map(|bounds| QueueBounds {
            start: bounds.end,
            trimmed_bytes: bounds.written_bytes,
            ..bounds
        });
        let emptied = emptied.map(|bounds| bounds_row(queue, &bounds));
        self.remove_chunks(&[(queue, u64::MAX)], emptied.into_iter().collect())?;
        self.swept_queues().remove(&queue);
        pass(&self.faults, "trim: remove the bounds")?;
        self.bulk
            .write([(RowBytes::from(keys::queue_bounds(queue)), None)])?;
        pass(&self.faults, "trim: sync the rows")?;
        self.bulk.sync()
    }

    /// Removes the chunks of partitions whose last row lies below an offset, many in one write; the first ones
    /// together with other changes.
    fn remove_chunks(
        &self,
        ends: &[(PartitionId, u64)],
        mut changes: Vec<RowChange>,
    ) -> Result<(), StorageError> {
        let view = self.bulk.view();
        for (queue, end) in ends {
            // What was removed earlier leaves traces in the tree, over which a scan from the start has to go.
            let swept = self
                .swept_queues()
                .get(queue)
                .map_or(0, |swept| swept.up_to);
            let range = (
                Bound::Included(keys::queue_rows(*queue, swept.min(*end))),
                Bound::Excluded(keys::queue_rows(*queue, *end)),
            );
            for key in view.keys(range) {
                changes.push((key?, None));
                if changes.len() >= CHANGES_PER_WRITE {
                    self.write_trim(std::mem::take(&mut changes))?;
                }
            }
        }
        if !changes.is_empty() {
            self.write_trim(changes)?;
        }
        let mut swept = self.swept_queues();
        for (queue, end) in ends {
            swept.entry(*queue).or_default().up_to = *end;
        }
        Ok(())
    }

    /// Once a table's worth of a partition is trimmed, gives back the tables that hold nothing else: left to
    /// compactions they would stay for long, as new rows lie behind the old ones. The trim must be durable. Not for
    /// the committer, whom a compaction would keep waiting. Whether any may have gone: then leftovers are to be removed.
    pub(super) fn give_back_trimmed(&self, queue: PartitionId) -> Result<bool, StorageError> {
        let Some(bounds) = self.decodable_bounds(queue)? else {
            return Ok(false);
        };
        {
            let mut swept = self.swept_queues();
            let swept = swept.entry(queue).or_default();
            if bounds.trimmed_bytes.saturating_sub(swept.given_back) < TABLE_BYTES {
                return Ok(false);
            }
            // Rows whose removal goes with a table have to be removed again.
            *swept = SweptQueue {
                up_to: 0,
                given_back: bounds.trimmed_bytes,
            };
        }
        pass(&self.faults, "trim: give tables back")?;
        self.bulk.drop_tables(rows_before(queue, bounds.start))?;
        Ok(true)
    }

    /// Removes rows before a partition's first one whose removals have gone with their tables. The overlay must be applied.
    pub(super) fn remove_leftovers(&self, queue: PartitionId) -> Result<(), StorageError> {
        match self.decodable_bounds(queue)? {
            Some(bounds) => self.remove_chunks(&[(queue, bounds.start)], Vec::new()),
            None => Ok(()),
        }
    }

    /// Gives back the tables of a partition that is removed.
    pub(super) fn give_back_all(&self, queue: PartitionId) -> Result<(), StorageError> {
        pass(&self.faults, "trim: give tables back")?;
        self.bulk.drop_tables(rows_before(queue, u64::MAX))
    }

    fn write_trim(&self, changes: Vec<RowChange>) -> Result<(), StorageError> {
        pass(&self.faults, "trim: write the rows")?;
        self.bulk.write(changes)
    }

    fn swept_queues(&self) -> MutexGuard<'_, HashMap<PartitionId, SweptQueue>> {
        (self.swept_queues.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a listener called from here on.
    pub(super) fn add_queue_listener(&self, listener: QueueListener) {
        let mut listeners = self
            .queue_listeners
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push(listener);
    }

    /// Tells all who listen that there are new rows in these partitions.
    pub(super) fn tell_queue_listeners(&self, queues: &[PartitionId]) {
        let listeners = self
            .queue_listeners
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener(queues));
    }
}

fn rows_before(queue: PartitionId, end: u64) -> KeyRange {
    (
        Bound::Included(keys::queue_rows(queue, 0)),
        Bound::Excluded(keys::queue_rows(queue, end)),
    )
}

fn bounds_row(queue: PartitionId, bounds: &QueueBounds) -> RowChange {
    let key = RowBytes::from(keys::queue_bounds(queue));
    (key, Some(encode_queue_bounds(bounds).into()))
}
