//! Messages that wait in lanes of the old layout move to lanes of the new one, under their ids.
//!
//! A producer's lanes of one stream move together, epoch by epoch: messages of one epoch that went
//! to several old partitions may go to one new partition, and there they are one chunk. Watermark steps
//! go to each of the new partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::writer::PartitionWriter;
use super::{Repartition, RepartitionError};
use crate::engine::lane::Frontier;
use crate::storage::{Storage, StorageError, rows};
use crate::types::epoch::{ChunkMessages, LaneChunk, LaneTrim};
use crate::types::ids::{EpochId, LaneId};
use crate::types::key::partition_of;
use crate::types::watermark::LaneStep;

/// Moves what waits for the old layout; `moved` is told how many messages each commit moved.
pub(super) fn reroute(
    repartition: &Repartition<'_>,
    storage: &dyn Storage,
    moved: &mut dyn FnMut(u64),
) -> Result<(), RepartitionError> {
    for producer in repartition.producers {
        let mut lanes = rows::lanes_kept(storage, *producer)?;
        lanes.retain(|lane| repartition.from.contains(&lane.reader));
        if lanes.is_empty() {
            continue;
        }
        let mut writer = PartitionWriter::open(storage, *producer, repartition.deployment)?;
        // Their order is that of the streams.
        for of_stream in lanes.chunk_by(|left, right| left.stream == right.stream) {
            let mut rerouting = Rerouting {
                repartition,
                storage,
                writer: &mut writer,
                moved: &mut *moved,
                batch: Batch::default(),
            };
            rerouting.run(of_stream)?;
        }
        writer.close()?;
    }
    Ok(())
}

/// The lanes of one stream of one producer on their way.
struct Rerouting<'a, 's> {
    repartition: &'a Repartition<'a>,
    storage: &'a dyn Storage,
    writer: &'a mut PartitionWriter<'s>,
    moved: &'a mut dyn FnMut(u64),
    batch: Batch,
}

/// What the next commit changes.
#[derive(Default)]
struct Batch {
    chunks: Vec<LaneChunk>,
    trims: Vec<LaneTrim>,
    messages: u64,
    size_bytes: usize,
}

impl Rerouting<'_, '_> {
    fn run(&mut self, lanes: &[LaneId]) -> Result<(), RepartitionError> {
        let mut frontiers = BTreeMap::new();
        let mut holders: BTreeMap<EpochId, Vec<LaneId>> = BTreeMap::new();
        for lane in lanes {
            frontiers.insert(*lane, frontier(self.storage, *lane)?);
            let (first, end) = (EpochId(0), EpochId(u64::MAX));
            for epoch in rows::chunk_epochs(self.storage, *lane, first, end)? {
                holders.entry(epoch).or_default().push(*lane);
            }
        }
        for (epoch, lanes) in holders {
            self.take_epoch(epoch, &lanes, &frontiers)?;
            let rows = self.batch.chunks.len() + self.batch.trims.len();
            let limits = &self.repartition.limits;
            if self.batch.size_bytes >= limits.commit_bytes || rows >= limits.commit_rows {
                self.commit()?;
            }
        }
        self.commit()
    }

    /// Takes one epoch's chunks into the batch, spread anew.
    fn take_epoch(
        &mut self,
        epoch: EpochId,
        lanes: &[LaneId],
        frontiers: &BTreeMap<LaneId, Frontier>,
    ) -> Result<(), StorageError> {
        let mut chunks = Vec::with_capacity(lanes.len());
        let mut waiting = Vec::new();
        // Each lane has all steps of the stream. One that a reader has not passed is in a lane still.
        let mut steps: BTreeMap<u32, LaneStep> = BTreeMap::new();
        for lane in lanes {
            let chunk = rows::read_chunk(self.storage, *lane, epoch)?.unwrap_or_default();
            let passed = frontiers[lane].passed(epoch, &chunk);
            waiting.extend((passed..chunk.len()).map(|at| (chunk.indexes[at], chunks.len(), at)));
            let passed_steps = frontiers[lane].passed_steps(epoch, &chunk);
            let waiting_steps = chunk.steps[passed_steps..].iter();
            steps.extend(waiting_steps.map(|step| (step.index, *step)));
            chunks.push(chunk);
            self.batch.trims.push(LaneTrim { lane: *lane, epoch });
        }
        // An index occurs once: a message has one reader partition in each layout.
        waiting.sort_unstable();
        let (to, lane) = (self.repartition.to, lanes[0]);
        let mut spread: BTreeMap<LaneId, ChunkMessages> = BTreeMap::new();
        for (_, chunk, at) in &waiting {
            let chunk = &chunks[*chunk];
            let reader = to[partition_of(chunk.key_hashes[*at], to.len())];
            let messages = spread.entry(LaneId { reader, ..lane }).or_default();
            messages.push_from(chunk, *at);
        }
        if !steps.is_empty() {
            for reader in to.iter().copied() {
                let messages = spread.entry(LaneId { reader, ..lane }).or_default();
                messages.steps = steps.values().copied().collect();
            }
        }
        self.batch.messages += waiting.len() as u64;
        for (lane, messages) in spread {
            self.batch.size_bytes += messages.size_bytes();
            self.batch.chunks.push(LaneChunk {
                lane,
                epoch,
                messages: Arc::new(messages),
            });
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), RepartitionError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.trims.is_empty() {
            return Ok(());
        }
        self.writer.commit(|epoch| {
            epoch.chunks = batch.chunks;
            epoch.trims = batch.trims;
        })?;
        tracing::debug!(messages = batch.messages, "messages rerouted");
        (self.moved)(batch.messages);
        Ok(())
    }
}

fn frontier(storage: &dyn Storage, lane: LaneId) -> Result<Frontier, StorageError> {
    let at = rows::read_frontier(storage, lane)?;
    Ok(at.map_or_else(Frontier::default, |at| Frontier {
        epoch: at.epoch,
        index: at.index,
    }))
}
