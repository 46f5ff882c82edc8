//! All that is stored, as of one moment: taken by the committer between two groups of epochs, read by
//! whoever asked while it goes on.
//!
//! **Invariant:** everything that was decided by then is at its place, and every change of the catalog in it
//! is durable.

use std::fmt;
use std::sync::PoisonError;

use crate::storage::embedded::Shared;
use crate::storage::embedded::bulk::BulkSnapshot;
use crate::storage::scan::{ScanLimit, ScanPage};
use crate::storage::{StorageError, StoreSnapshot, StoredRow};

/// What is stored, as of one moment.
pub(super) struct EmbeddedSnapshot {
    catalog: Vec<StoredRow>,
    bulk: BulkSnapshot,
}

impl EmbeddedSnapshot {
    /// For the committer alone, when it has settled.
    pub(super) fn take(shared: &Shared) -> Result<EmbeddedSnapshot, StorageError> {
        // A change of the catalog on its way to the device is not there yet.
        let _durable = shared
            .catalog
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(EmbeddedSnapshot {
            catalog: shared.decisions.scan(b"")?,
            bulk: shared.bulk.snapshot(),
        })
    }
}

impl fmt::Debug for EmbeddedSnapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EmbeddedSnapshot")
            .field("catalog_rows", &self.catalog.len())
            .finish_non_exhaustive()
    }
}

impl StoreSnapshot for EmbeddedSnapshot {
    fn catalog(&self) -> &[StoredRow] {
        &self.catalog
    }

    fn scan(&self, start: &[u8], limit: ScanLimit) -> Result<Vec<StoredRow>, StorageError> {
        let mut page = ScanPage::new(limit);
        for row in self.bulk.from(start) {
            let (key, value) = match row {
                Ok(row) => row,
                Err(error) if page.is_empty() => return Err(error),
                // It is met again at the first row of the next scan.
                Err(_) => break,
            };
            page.push(key.to_vec(), value.to_vec());
            if page.is_full() {
                break;
            }
        }
        Ok(page.into_rows())
    }

    fn approximate_rows(&self) -> u64 {
        self.bulk.approximate_len()
    }
}
