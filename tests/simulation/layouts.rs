//! Every partition that ever was: its kind of job, its layout, and its place in it. Partition ids are
//! never used again, so what an epoch's partition was can be told long after it is gone.

use std::collections::BTreeMap;

use tidelock::types::ids::PartitionId;
use tidelock::types::key::{key_hash, partition_of};

/// What a partition is or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LayoutPlace {
    /// Its kind of job, as an index into the graph's shapes.
    pub(crate) shape: usize,
    /// Its layout among those of its shape, from 0.
    pub(crate) layout: usize,
    /// Its place in the layout.
    pub(crate) index: usize,
    /// How many partitions the layout has.
    count: usize,
}

impl LayoutPlace {
    /// Whether messages of this key are its own.
    pub(crate) fn owns(&self, key: &[u8]) -> bool {
        partition_of(key_hash(key), self.count) == self.index
    }
}

/// All layouts of all shapes.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    by_shape: BTreeMap<usize, Vec<Vec<PartitionId>>>,
    places: BTreeMap<PartitionId, LayoutPlace>,
    /// For each start of a worker and each shape the layout in force.
    in_force: Vec<BTreeMap<usize, usize>>,
}

impl Layouts {
    /// A shape has this layout now.
    pub(crate) fn follow(&mut self, shape: usize, layout: &[PartitionId]) {
        let of_shape = self.by_shape.entry(shape).or_default();
        if of_shape.last().is_some_and(|last| last == layout) {
            return;
        }
        for (index, partition) in layout.iter().enumerate() {
            let place = LayoutPlace {
                shape,
                layout: of_shape.len(),
                index,
                count: layout.len(),
            };
            let before = self.places.insert(*partition, place);
            assert!(before.is_none(), "{partition} is used again");
        }
        of_shape.push(layout.to_vec());
    }

    /// A worker starts with the newest layouts. Returns the number of the start.
    pub(crate) fn start(&mut self) -> usize {
        let shapes = self.by_shape.iter();
        let newest = shapes.map(|(shape, layouts)| (*shape, layouts.len() - 1));
        self.in_force.push(newest.collect());
        self.in_force.len() - 1
    }

    /// Whether a partition had a successor layout when this start was made.
    pub(crate) fn is_retiring(&self, partition: PartitionId, start: usize) -> bool {
        let place = self.place(partition);
        place.layout < self.in_force[start][&place.shape]
    }

    /// What a partition is or was.
    pub(crate) fn place(&self, partition: PartitionId) -> LayoutPlace {
        self.places[&partition]
    }

    /// Every partition of a shape, those of older layouts first.
    pub(crate) fn partitions(&self, shape: usize) -> impl Iterator<Item = PartitionId> {
        self.by_shape[&shape].iter().flatten().copied()
    }

    /// Every partition.
    pub(crate) fn all(&self) -> impl Iterator<Item = PartitionId> {
        self.places.keys().copied()
    }

    /// The partitions of a shape that are in force.
    pub(crate) fn in_force(&self, shape: usize) -> &[PartitionId] {
        self.by_shape[&shape].last().map_or(&[], Vec::as_slice)
    }
}
