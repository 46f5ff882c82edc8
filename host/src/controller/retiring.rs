//! Partitions that are not in force any more, of earlier layouts of a transform or with files that left
//! the list of a source, and whose messages have not all been taken by their readers. They read nothing
//! any more; a job of their own removes what is taken.

use std::collections::BTreeMap;

use crate::controller::graph::JobHead;
use crate::controller::wiring::Wiring;
use crate::storage::{Storage, StorageError, rows};
use crate::types::ids::PartitionId;
use crate::worker::plan::PartitionPlace;

/// A partition that is not in force and has messages in lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiringWriter {
    /// The partition.
    pub partition: PartitionId,
    /// The rank of its layout among those of its transform, the oldest least. `None` for a source's,
    /// whose messages are taken by time together with those of the partitions in force.
    pub rank: Option<u32>,
    /// Its place among what is left of its layout, or among all that left its source.
    pub place: PartitionPlace,
}

/// All such partitions of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetiringWriters {
    by_head: BTreeMap<JobHead, Vec<RetiringWriter>>,
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
                    let of_head = writers.by_head.entry(shape.head.clone()).or_default();
                    of_head.push(RetiringWriter {
                        partition: *partition,
                        rank: match &shape.head {
                            JobHead::Source(_) => None,
                            JobHead::Transform(_) => Some(rank),
                        },
                        place: PartitionPlace::new(index, layout.len()),
                    });
                }
            }
        }
        Ok(writers)
    }

    /// Those of a source or transform, oldest layout first.
    pub fn of(&self, head: &JobHead) -> &[RetiringWriter] {
        self.by_head.get(head).map_or(&[], Vec::as_slice)
    }
}
