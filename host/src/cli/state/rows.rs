//! The rows of a state over all its partitions, in the order of their keys.

use crate::cli::state::{Selected, SelectedPartition};
use crate::storage::merged_pages::{MergedPages, Pages};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, rows};
use crate::types::epoch::StoredState;
use crate::types::ids::PartitionId;

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
    state: &'a str,
    rows: MergedPages<StatePages<'a>>,
}

struct StatePages<'a> {
    storage: &'a dyn Storage,
    state: &'a str,
    prefix: &'a [u8],
    partition: &'a SelectedPartition,
    /// Where its next page begins.
    from: Option<Vec<u8>>,
}

impl Pages for StatePages<'_> {
    type Row = (Vec<u8>, StoredState);
    type Order = Vec<u8>;

    fn next_page(&mut self, limit: ScanLimit) -> Result<Vec<Self::Row>, StorageError> {
        let Some(from) = self.from.take() else {
            return Ok(Vec::new());
        };
        let partition = self.partition.id;
        let mut page = rows::scan_states(self.storage, partition, self.state, &from, limit)?;
        let count = page.rows.len();
        page.rows.retain(|(key, _)| key.starts_with(self.prefix));
        self.from = page.next.filter(|_| page.rows.len() == count);
        Ok(page.rows)
    }

    fn order((key, _): &Self::Row) -> Vec<u8> {
        key.clone()
    }
}

impl<'a> MergedRows<'a> {
    /// Those whose keys begin with `prefix` and are not less than `from`.
    pub(super) fn new(
        storage: &'a dyn Storage,
        selected: &'a Selected,
        prefix: &'a [u8],
        from: &'a [u8],
    ) -> Result<MergedRows<'a>, StorageError> {
        let state = &*selected.state;
        let pages = selected.partitions.iter().map(|partition| StatePages {
            storage,
            state,
            prefix,
            partition,
            from: Some(from.max(prefix).to_vec()),
        });
        Ok(MergedRows {
            state,
            rows: MergedPages::new(pages)?,
        })
    }

    fn take(&mut self) -> Result<Option<StateRow>, StorageError> {
        while let Some((pages, (key, stored))) = self.rows.take()? {
            // One without value only says when its key was touched last.
            if stored.value.is_empty() {
                continue;
            }
            let partition = pages.partition;
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
