//! Partitions of earlier layouts whose messages have not all been taken by their readers. They read
//! nothing any more; a job of their own removes what is taken.

use std::collections::BTreeMap;

use crate::controller::graph::JobHead;
use crate::controller::wiring::Wiring;
use crate::storage::{Storage, StorageError, rows};
use crate::types::ids::PartitionId;
use crate::worker::plan::PartitionPlace;

/// A partition of an earlier layout that has messages in lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiringWriter {
    /// The partition.
    pub partition: PartitionId,
    /// The rank of its layout among those of its transform, the oldest least.
    pub rank: u32,
    /// Its place among what is left of its layout.
    pub place: PartitionPlace,
}

/// All such partitions of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetiringWriters {
    by_transform: BTreeMap<String, Vec<RetiringWriter>>,
}

impl RetiringWriters {
    /// Looks for them. Layouts must have been moved by then.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn find(
        wiring: &Wiring<'_>,
        storage: &dyn Storage,
    ) -> Result<RetiringWriters, StorageError> {
        let mut writers = RetiringWriters::default();
        for shape in wiring.shapes() {
            for (rank, layout) in (0..).zip(wiring.retiring(&shape.head)) {
                for (index, partition) in layout.iter().enumerate() {
                    if rows::lanes_kept(storage, *partition)?.is_empty() {
                        continue;
                    }
                    let name = shape.head.name().to_owned();
                    let of_transform = writers.by_transform.entry(name).or_default();
                    of_transform.push(RetiringWriter {
                        partition: *partition,
                        rank,
                        place: PartitionPlace::new(index, layout.len()),
                    });
                }
            }
        }
        Ok(writers)
    }

    /// Those of a transform, oldest layout first; a source has none.
    pub fn of(&self, head: &JobHead) -> &[RetiringWriter] {
        match head {
            JobHead::Source(_) => &[],
            JobHead::Transform(name) => self.by_transform.get(name).map_or(&[], Vec::as_slice),
        }
    }
}
