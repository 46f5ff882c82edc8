//! The bulk rows: the only file that names fjall, a log-structured merge tree.
//!
//! One keyspace holds everything, so that a batch is whole in the journal, in the table in memory
//! and in every table on disk. fjall syncs its journal before it writes a table, so rows on disk are
//! never ahead of the synced journal.
//!
//! **Invariant:** nothing here decides anything. What is written becomes durable with the next
//! [`Bulk::sync`], in the order of writing: a lost tail is a tail.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::{
    AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot,
};

use crate::storage::embedded::lock::open_when_released;
use crate::storage::embedded::mark::Mark;
use crate::storage::{StorageError, StoredRow, codec, keys};

/// A key or value: shared, cheap to clone.
pub(super) type RowBytes = fjall::Slice;

/// A row's key and new value; `None`: the row goes.
pub(super) type RowChange = (RowBytes, Option<RowBytes>);

/// From where to where.
pub(super) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// All keys that begin with a prefix of the table.
pub(super) fn prefix_range(prefix: u8) -> KeyRange {
    (
        Bound::Included(vec![prefix]),
        Bound::Excluded(vec![prefix + 1]),
    )
}

/// Name of the one keyspace.
const KEYSPACE: &str = "rows";

/// Threads that write and compact tables. Of several, fjall keeps one free of compactions, which for
/// as long as another compacts hands the request for the next one round and round, at full speed.
const WORKER_THREADS: usize = 1;

/// How large tables become, in bytes. A table goes whole when all its rows are trimmed, and a compaction takes few
/// whole tables: so the smaller they are, the less of what is gone stays, and the less is written anew.
pub(super) const TABLE_BYTES: u64 = 8 << 20;

/// Most bytes of journals before tables are written to get rid of them.
const JOURNAL_BYTES_MAX: u64 = 512 << 20;

/// The bulk rows of a data directory.
pub(super) struct Bulk {
    database: Database,
    rows: Keyspace,
    /// Whether there are writes that a loss of power would undo.
    #[cfg(test)]
    has_unsynced: std::sync::atomic::AtomicBool,
}

/// Why the bulk rows could not be opened.
pub(super) enum OpenError {
    /// The journal ends in a torn batch that fjall does not cut off by itself.
    TornJournal(fjall::Error),
    /// Anything else.
    Failed(StorageError),
}

impl Bulk {
    /// Opens the rows in `dir`, or makes them.
    pub(super) fn open(dir: &Path, cache_bytes: u64) -> Result<Bulk, OpenError> {
        check_tables_are_files(dir).map_err(OpenError::Failed)?;
        let open = || {
            Database::builder(dir)
                .cache_size(cache_bytes)
                .worker_threads(WORKER_THREADS)
                .max_journaling_size(JOURNAL_BYTES_MAX)
                // Entries are short-lived and the disk is not the limit: compressing them costs
                // more time than writing them.
                .journal_compression(fjall::CompressionType::None)
                .open()
        };
        let database = open_when_released(open, |error| matches!(error, fjall::Error::Locked))
            .map_err(|error| match error {
                fjall::Error::JournalRecovery(_) => OpenError::TornJournal(error),
                error => OpenError::Failed(failed("open", error)),
            })?;
        let options = || {
            let strategy = Leveled::default().with_table_target_size(TABLE_BYTES);
            KeyspaceCreateOptions::default().compaction_strategy(Arc::new(strategy))
        };
        let rows = (database.keyspace(KEYSPACE, options))
            .map_err(|error| OpenError::Failed(failed("open its rows", error)))?;
        Ok(Bulk {
            database,
            rows,
            #[cfg(test)]
            has_unsynced: std::sync::atomic::AtomicBool::new(false),
        })
    }

    /// Makes a store without rows in `dir`, where nothing is.
    pub(super) fn make(dir: &Path, cache_bytes: u64) -> Result<Bulk, StorageError> {
        Bulk::open(dir, cache_bytes).map_err(|error| match error {
            OpenError::Failed(error) => error,
            OpenError::TornJournal(source) => failed("make", source),
        })
    }

    /// The store id, if there is one yet.
    pub(super) fn store_id(&self) -> Result<Option<Vec<u8>>, StorageError> {
        (self.get(&keys::store_id())?)
            .map(|value| {
                codec::decode_plain(
                    || "the store id of the bulk rows".to_owned(),
                    value.to_vec(),
                )
            })
            .transpose()
    }

    /// Writes the store id; to be synced.
    pub(super) fn set_store_id(&self, id: &[u8]) -> Result<(), StorageError> {
        self.write([(
            keys::store_id().into(),
            Some(codec::encode_plain(id).into()),
        )])
    }

    /// How far the decisions were when it was last written down here, if it ever was.
    pub(super) fn decisions_mark(&self) -> Result<Option<Mark>, StorageError> {
        (self.get(&keys::decisions_mark())?)
            .map(|value| Mark::decode("the bulk rows", value.to_vec()))
            .transpose()
    }

    /// Writes that down; to be synced.
    pub(super) fn set_decisions_mark(&self, mark: Mark) -> Result<(), StorageError> {
        self.write([mark_row(mark)])
    }

    /// Whether there is anything but the store id.
    pub(super) fn has_rows(&self) -> Result<bool, StorageError> {
        let mut rows = self
            .view()
            .range((Bound::Excluded(keys::store_id()), Bound::Unbounded));
        rows.next().transpose().map(|row| row.is_some())
    }

    /// The newest value of a row.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<RowBytes>, StorageError> {
        self.rows
            .get(key)
            .map_err(|error| failed("read a row", error))
    }

    /// The rows as they are now, whatever is written later.
    pub(super) fn view(&self) -> BulkView<'_> {
        BulkView {
            snapshot: self.database.snapshot(),
            rows: &self.rows,
        }
    }

    /// Writes rows, all or none, without a sync.
    pub(super) fn write(
        &self,
        changes: impl IntoIterator<Item = RowChange>,
    ) -> Result<(), StorageError> {
        #[cfg(test)]
        self.has_unsynced
            .store(true, std::sync::atomic::Ordering::SeqCst);
        let mut batch = self.database.batch();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.rows, key, value),
                None => batch.remove(&self.rows, key),
            }
        }
        batch.commit().map_err(|error| failed("write rows", error))
    }

    /// The rows as they are now, for those who read them for long.
    pub(super) fn snapshot(&self) -> BulkSnapshot {
        BulkSnapshot {
            snapshot: self.database.snapshot(),
            rows: self.rows.clone(),
        }
    }

    /// Writes the rows of a store that has none, keys rising, past the journal; durable when it returns.
    /// Returns what `next` failed with, if it did.
    pub(super) fn fill<E: From<StorageError>>(
        &self,
        mut next: impl FnMut() -> Result<Option<Vec<StoredRow>>, E>,
    ) -> Result<(), E> {
        let failed = |error| E::from(failed("take rows in", error));
        let mut ingestion = self.rows.start_ingestion().map_err(failed)?;
        while let Some(rows) = next()? {
            for (key, value) in rows {
                ingestion.write(key, value).map_err(failed)?;
            }
        }
        ingestion.finish().map_err(failed)?;
        Ok(self.sync()?)
    }

    /// Rewrites all tables without what was overwritten and removed.
    pub(super) fn compact(&self) -> Result<(), StorageError> {
        (self.rows.rotate_memtable_and_wait()).map_err(|error| failed("write a table", error))?;
        (self.rows.major_compact()).map_err(|error| failed("compact its tables", error))
    }

    /// Gives back the tables whose rows all lie in a range, of which the caller wants none. What was removed in the
    /// range may be there again behind that: removals go with the tables that hold them. Views and snapshots keep
    /// what they see. Waits for a compaction that runs.
    pub(super) fn drop_tables(&self, range: KeyRange) -> Result<(), StorageError> {
        (self.rows.tree.drop_range::<Vec<u8>, _>(range))
            .map_err(|error| failed("give tables back", error.into()))
    }

    /// How many tables there are.
    #[cfg(test)]
    pub(super) fn table_count(&self) -> usize {
        self.rows.table_count()
    }

    /// Bytes of tables and journals.
    pub(super) fn size_bytes(&self) -> Result<u64, StorageError> {
        (self.database.disk_space()).map_err(|error| failed("measure its size", error))
    }

    /// Makes everything written so far durable.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        (self.database.persist(PersistMode::SyncData))
            .map_err(|error| failed("sync its journal", error))?;
        #[cfg(test)]
        self.has_unsynced
            .store(false, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// Whether a loss of power would undo something that was written.
    #[cfg(test)]
    pub(super) fn has_unsynced(&self) -> bool {
        self.has_unsynced.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// fjall asserts that its tables are files, and panics once more while it unwinds from that, which
/// ends the process whoever may catch: so this is looked at first.
fn check_tables_are_files(dir: &Path) -> Result<(), StorageError> {
    let list = |dir: &Path| match std::fs::read_dir(dir) {
        Ok(files) => files.collect::<Result<Vec<_>, _>>(),
        // Nothing there yet, or something that fjall has an error for.
        Err(_) => Ok(Vec::new()),
    };
    let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| StorageError::Backend {
        store: "the bulk store",
        action: "open",
        source,
    };
    for keyspace in list(&dir.join("keyspaces")).map_err(|error| unreadable(error.into()))? {
        for folder in ["tables", "blobs"] {
            let tables = keyspace.path().join(folder);
            for table in list(&tables).map_err(|error| unreadable(error.into()))? {
                if table.path().is_dir() {
                    let finding = format!("{} is a folder, not a file", table.path().display());
                    return Err(unreadable(finding.into()));
                }
            }
        }
    }
    Ok(())
}

/// The row that a mark goes into.
pub(super) fn mark_row(mark: Mark) -> RowChange {
    (keys::decisions_mark().into(), Some(mark.encode().into()))
}

/// The rows as they were at one moment, whatever becomes of their store.
pub(super) struct BulkSnapshot {
    snapshot: Snapshot,
    rows: Keyspace,
}

impl BulkSnapshot {
    /// Rows from `start` on, in order.
    pub(super) fn from(
        &self,
        start: &[u8],
    ) -> impl Iterator<Item = Result<(RowBytes, RowBytes), StorageError>> + use<> {
        (self.snapshot.range(&self.rows, start..))
            .map(|row| row.into_inner().map_err(|error| failed("scan rows", error)))
    }

    /// About how many rows there are; those that were changed lately may count several times.
    pub(super) fn approximate_len(&self) -> u64 {
        self.rows.approximate_len() as u64
    }
}

/// The rows as they were at one moment.
pub(super) struct BulkView<'a> {
    snapshot: Snapshot,
    rows: &'a Keyspace,
}

impl BulkView<'_> {
    /// The value of a row.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<RowBytes>, StorageError> {
        (self.snapshot.get(self.rows, key)).map_err(|error| failed("read a row", error))
    }

    /// Rows in order.
    pub(super) fn range(
        &self,
        range: KeyRange,
    ) -> impl Iterator<Item = Result<(RowBytes, RowBytes), StorageError>> + use<> {
        (self.snapshot.range(self.rows, range))
            .map(|row| row.into_inner().map_err(|error| failed("scan rows", error)))
    }

    /// Keys in order.
    pub(super) fn keys(
        &self,
        range: KeyRange,
    ) -> impl Iterator<Item = Result<RowBytes, StorageError>> + use<> {
        (self.snapshot.range(self.rows, range))
            .map(|row| row.key().map_err(|error| failed("scan keys", error)))
    }
}

pub(super) fn failed(action: &'static str, source: fjall::Error) -> StorageError {
    StorageError::Backend {
        store: "the bulk store",
        action,
        source: Box::new(source),
    }
}
