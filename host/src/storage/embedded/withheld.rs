//! Rows of queues that entries of damaged partitions have: they are not applied, and others must neither take
//! their offsets nor be read past them in silence. So their place is marked, with whose they are.
//!
//! **Invariant:** a mark has the key that the rows will have: once their partition is whole again and its entries
//! are applied, they take its place.

use std::collections::BTreeMap;

use crate::storage::StorageError;
use crate::storage::embedded::Shared;
use crate::storage::embedded::bulk::RowChange;
use crate::storage::embedded::faults::pass;
use crate::storage::keys;
use crate::storage::queue_codec::{WithheldRows, chunk_key, encode_queue_bounds};
use crate::types::ids::{EpochId, PartitionId};
use crate::types::queue::{QueueBounds, QueueSpan};

/// What is known of such rows.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    rows: Vec<WithheldRows>,
}

impl Withheld {
    /// Takes in what an epoch that is not applied has for queues.
    pub(super) fn add(&mut self, partition: PartitionId, epoch: EpochId, spans: &[QueueSpan]) {
        self.rows.extend(spans.iter().map(|span| WithheldRows {
            span: *span,
            partition,
            epoch,
        }));
    }

    /// Marks their places, where they were not trimmed; to be synced. All other entries must be applied.
    pub(super) fn mark(self, shared: &Shared) -> Result<(), StorageError> {
        let mut bounds_of: BTreeMap<PartitionId, QueueBounds> = BTreeMap::new();
        let mut changes: Vec<RowChange> = Vec::new();
        for withheld in &self.rows {
            let span = &withheld.span;
            let known = match bounds_of.get(&span.queue) {
                Some(bounds) => Some(*bounds),
                None => shared.decodable_bounds(span.queue)?,
            };
            // Nobody appends to a queue whose bounds do not decode.
            let Some(mut bounds) = known else { continue };
            if span.end() > bounds.start {
                bounds.cover(span);
                changes.push((chunk_key(span).into(), Some(withheld.encode().into())));
                tracing::error!(
                    queue = %span.queue, first = span.place.offset, end = span.end(),
                    partition = %withheld.partition, epoch = %withheld.epoch, "rows of a queue withheld"
                );
            }
            bounds_of.insert(span.queue, bounds);
        }
        if changes.is_empty() {
            return Ok(());
        }
        changes.extend(bounds_of.iter().map(|(queue, bounds)| {
            let value = encode_queue_bounds(bounds);
            (keys::queue_bounds(*queue).into(), Some(value.into()))
        }));
        pass(&shared.faults, "open: mark withheld rows")?;
        shared.bulk.write(changes)
    }
}
