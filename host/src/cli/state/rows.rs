//! The rows of a state over all its partitions, in the order of their keys.
//!
//! **Invariant:** a page of each partition is in memory, never a state.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::cli::state::{Selected, SelectedPartition};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, rows};
use crate::types::epoch::StoredState;
use crate::types::ids::PartitionId;

/// Rows of a partition that are read at a time.
const PAGE_ROWS: usize = 1_000;

/// Bytes of pages, those of all partitions together.
const PAGES_BYTES: usize = 32 << 20;

/// A key with its value.
pub(super) struct StateRow {
    pub(super) key: Vec<u8>,
    pub(super) stored: StoredState,
    pub(super) partition: PartitionId,
    /// Whether the partition is none of the layout in force.
    pub(super) is_retiring: bool,
    /// Whether a run would not see it, because of its age.
    pub(super) is_absent: bool,
}

/// Reads them.
pub(super) struct MergedRows<'a> {
    storage: &'a dyn Storage,
    state: &'a str,
    prefix: &'a [u8],
    limit: ScanLimit,
    cursors: Vec<Cursor<'a>>,
    /// The next key of each partition that has one.
    next: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
}

struct Cursor<'a> {
    partition: &'a SelectedPartition,
    page: VecDeque<(Vec<u8>, StoredState)>,
    /// Where its next page begins.
    from: Option<Vec<u8>>,
}

impl<'a> MergedRows<'a> {
    /// Those whose keys begin with `prefix` and are not less than `from`.
    pub(super) fn new(
        storage: &'a dyn Storage,
        selected: &'a Selected,
        prefix: &'a [u8],
        from: &'a [u8],
    ) -> Result<MergedRows<'a>, StorageError> {
        let start = from.max(prefix);
        let cursors = selected.partitions.iter().map(|partition| Cursor {
            partition,
            page: VecDeque::new(),
            from: Some(start.to_vec()),
        });
        let cursors: Vec<Cursor<'a>> = cursors.collect();
        let mut rows = MergedRows {
            storage,
            state: &selected.state,
            prefix,
            limit: ScanLimit {
                rows: PAGE_ROWS,
                bytes: PAGES_BYTES / cursors.len().max(1),
            },
            next: BinaryHeap::new(),
            cursors,
        };
        for index in 0..rows.cursors.len() {
            rows.advance(index)?;
        }
        Ok(rows)
    }

    /// Puts the next key of a partition in its place.
    fn advance(&mut self, index: usize) -> Result<(), StorageError> {
        let cursor = &mut self.cursors[index];
        while cursor.page.is_empty()
            && let Some(from) = cursor.from.take()
        {
            let id = cursor.partition.id;
            let page = rows::scan_states(self.storage, id, self.state, &from, self.limit)?;
            cursor.page.extend(page.rows);
            cursor.from = page.next;
        }
        let next = cursor.page.front().map(|(key, _)| key);
        if let Some(key) = next.filter(|key| key.starts_with(self.prefix)) {
            self.next.push(Reverse((key.clone(), index)));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<StateRow>, StorageError> {
        while let Some(Reverse((_, index))) = self.next.pop() {
            let cursor = &mut self.cursors[index];
            let partition = cursor.partition;
            let row = cursor.page.pop_front();
            self.advance(index)?;
            // One without value only says when its key was touched last.
            let Some((key, stored)) = row.filter(|(_, stored)| !stored.value.is_empty()) else {
                continue;
            };
            return Ok(Some(StateRow {
                key,
                partition: partition.id,
                is_retiring: partition.is_retiring,
                is_absent: partition.time.is_expired(self.state, stored.touched),
                stored,
            }));
        }
        Ok(None)
    }
}

impl Iterator for MergedRows<'_> {
    type Item = Result<StateRow, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take().transpose()
    }
}
