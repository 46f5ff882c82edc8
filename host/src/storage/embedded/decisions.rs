//! The decisions: the only file that names sled. Leases, heads, counters, the catalog: few small
//! rows, changed in transactions.
//!
//! Rules that sled 0.34 asks for, each for a reason: no flusher of its own (only we say when);
//! `flush()` and then `sync_data()` on a handle of its `db` file, because its flush alone never
//! syncs the device; small values, because larger ones go to files that are never synced;
//! half-written snapshots removed before opening, because it would take one for the newest.
//!
//! **Invariant:** nothing written here counts before [`Decisions::sync`] has returned. Every
//! transaction moves the mark on, so that what the rows should be is known from two of them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sled::transaction::{ConflictableTransactionError, TransactionError, TransactionalTree};

use crate::storage::embedded::lock::open_when_released;
use crate::storage::embedded::mark::Mark;
use crate::storage::{
    CatalogChange, CatalogOutcome, EpochName, Refusal, StorageError, StoredRow, codec, judge, keys,
};
use crate::types::epoch::Head;
use crate::types::ids::PartitionId;
use crate::types::lease::Lease;

/// Memory for sled's pages.
const CACHE_BYTES: u64 = 64 << 20;

/// The transactional half of a data directory.
pub(super) struct Decisions {
    database: sled::Db,
    log: File,
    progress: Mutex<Progress>,
}

/// How far the marks of this process have come.
#[derive(Debug, Default)]
struct Progress {
    written: Option<Mark>,
    flushed: Option<Mark>,
    durable: Option<Mark>,
}

/// An epoch to decide on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proposal {
    pub(super) lease: Lease,
    pub(super) epoch: EpochName,
    /// The head that its entry names as its predecessor.
    pub(super) predecessor: Head,
    /// The head that it would bring the partition to.
    pub(super) head: Head,
    /// Whether its entry holds room in sink files or queues, so that the entries behind it can't stay as they
    /// are when it is refused.
    pub(super) holds_room: bool,
}

/// What became of the proposals, in their order.
#[derive(Debug)]
pub(super) enum Decision {
    /// The heads of all that are not refused are written.
    Written(Vec<Option<Refusal>>),
    /// Nothing is written: a refused one holds room, the others must be staged anew.
    Withheld(Vec<Option<Refusal>>),
}

impl Decisions {
    /// Opens the decisions in `dir`, or makes them. The data directory's lock must be held.
    pub(super) fn open(dir: &Path) -> Result<Decisions, StorageError> {
        remove_unfinished_snapshots(dir)?;
        let open = || {
            (sled::Config::new().path(dir))
                .cache_capacity(CACHE_BYTES)
                .flush_every_ms(None)
                .open()
        };
        let database =
            open_when_released(open, is_locked).map_err(|error| failed("open", error))?;
        let path = dir.join("db");
        let log = File::open(&path).map_err(|source| StorageError::File {
            action: "open",
            path,
            source,
        })?;
        Ok(Decisions {
            database,
            log,
            progress: Mutex::default(),
        })
    }

    /// The store id, if there is one yet.
    pub(super) fn store_id(&self) -> Result<Option<Vec<u8>>, StorageError> {
        (self.get(&keys::catalog_store_id())?)
            .map(|value| codec::decode_plain(|| "the store id of the decisions".to_owned(), value))
            .transpose()
    }

    /// Writes rows without looking at anything; to be synced.
    pub(super) fn put(&self, rows: &[StoredRow]) -> Result<(), StorageError> {
        self.transact("write rows", |transaction| {
            for (key, value) in rows {
                transaction.write(key, Some(value))?;
            }
            Ok(())
        })
    }

    /// Writes rows that were lost, and the mark that is right for what is there with them; to be
    /// synced.
    pub(super) fn repair(&self, rows: &[StoredRow], mark: Mark) -> Result<(), StorageError> {
        let repaired = self.database.transaction(|tree| {
            for (key, value) in rows {
                tree.insert(key.as_slice(), value.as_slice())?;
            }
            tree.insert(keys::catalog_mark(), mark.encode())?;
            Ok::<(), ConflictableTransactionError<StorageError>>(())
        });
        repaired.map_err(|error| transaction_failed("repair rows", error))?;
        self.progress().written = Some(mark);
        Ok(())
    }

    /// The mark, if there is one yet.
    pub(super) fn mark(&self) -> Result<Option<Mark>, StorageError> {
        (self.get(&keys::catalog_mark())?)
            .map(|value| Mark::decode("the decisions", value))
            .transpose()
    }

    /// A mark that this process has made durable, if there is one yet: the newest, or one before it.
    pub(super) fn durable_mark(&self) -> Option<Mark> {
        self.progress().durable
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All rows but the mark.
    pub(super) fn rows(&self) -> Result<Vec<StoredRow>, StorageError> {
        let mut rows = self.scan(b"")?;
        rows.retain(|(key, _)| *key != keys::catalog_mark());
        Ok(rows)
    }

    /// Runs a transaction and moves the mark on, if it writes.
    fn transact<T>(
        &self,
        action: &'static str,
        run: impl Fn(&mut Transaction<'_>) -> TransactionResult<T>,
    ) -> Result<T, StorageError> {
        let done = self.database.transaction(|tree| {
            let mut transaction = Transaction { tree, mark: None };
            let result = run(&mut transaction)?;
            if let Some(mark) = &transaction.mark {
                tree.insert(keys::catalog_mark(), mark.encode())?;
            }
            Ok((result, transaction.mark))
        });
        let (result, mark) = done.map_err(|error| transaction_failed(action, error))?;
        let mut progress = self.progress();
        // Another thread's later one may be here first.
        let is_newer = |mark: &Mark| {
            (progress.written).is_none_or(|written| written.transactions < mark.transactions)
        };
        if let Some(mark) = mark.filter(is_newer) {
            progress.written = Some(mark);
        }
        Ok(result)
    }

    /// The value of a row.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self
            .database
            .get(key)
            .map_err(|error| failed("read a row", error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// All rows whose keys begin with `prefix`, in order.
    pub(super) fn scan(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StorageError> {
        (self.database.scan_prefix(prefix))
            .map(|row| {
                let (key, value) = row.map_err(|error| failed("scan rows", error))?;
                Ok((key.to_vec(), value.to_vec()))
            })
            .collect()
    }

    /// Decides on epochs in one transaction: reads each one's lease and head and writes the new
    /// heads. An epoch behind a refused one of its partition is refused too, since it does not
    /// follow the head.
    pub(super) fn decide(&self, proposals: &[Proposal]) -> Result<Decision, StorageError> {
        self.transact("decide on epochs", |transaction| {
            let mut heads: HashMap<PartitionId, Head> = HashMap::new();
            let mut refusals = Vec::with_capacity(proposals.len());
            let mut is_withheld = false;
            for proposal in proposals {
                let partition = proposal.epoch.partition;
                let row = transaction.tree.get(keys::lease(partition))?;
                let row = codec::decode_lease(partition, row.as_deref())
                    .map_err(ConflictableTransactionError::Abort)?;
                let head = match heads.get(&partition) {
                    Some(head) => *head,
                    None => {
                        let row = transaction.tree.get(keys::head(partition))?;
                        read_head(partition, row.as_deref())
                            .map_err(ConflictableTransactionError::Abort)?
                    }
                };
                let refusal = judge(&row, &head, &proposal.lease, proposal.epoch);
                match refusal {
                    None => {
                        assert_eq!(head, proposal.predecessor, "staged behind the decided head");
                        heads.insert(partition, proposal.head);
                    }
                    Some(_) => is_withheld |= proposal.holds_room,
                }
                refusals.push(refusal);
            }
            if is_withheld {
                return Ok(Decision::Withheld(refusals));
            }
            for (partition, head) in &heads {
                transaction.write(&keys::head(*partition), Some(&codec::encode_head(head)))?;
            }
            Ok(Decision::Written(refusals))
        })
    }

    /// Writes a catalog change if its expectations hold; to be synced.
    pub(super) fn change(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError> {
        self.transact("change the catalog", |transaction| {
            for (key, expected) in &change.expectations {
                if transaction.tree.get(key)?.as_deref() != expected.as_deref() {
                    return Ok(CatalogOutcome::Refused);
                }
            }
            for (key, value) in &change.writes {
                transaction.write(key, value.as_deref())?;
            }
            Ok(CatalogOutcome::Committed)
        })
    }

    /// Bytes of its files.
    pub(super) fn size_bytes(&self) -> Result<u64, StorageError> {
        (self.database.size_on_disk()).map_err(|error| failed("measure its size", error))
    }

    /// Hands everything written so far to the operating system.
    pub(super) fn flush(&self) -> Result<(), StorageError> {
        let written = self.progress().written;
        self.database
            .flush()
            .map_err(|error| failed("flush", error))?;
        self.progress().flushed = written;
        Ok(())
    }

    /// Makes everything flushed so far durable.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        let flushed = self.progress().flushed;
        (self.log.sync_data()).map_err(|error| failed("sync its log", sled::Error::Io(error)))?;
        self.progress().durable = flushed;
        Ok(())
    }
}

type TransactionResult<T> = Result<T, ConflictableTransactionError<StorageError>>;

/// A transaction that keeps the mark.
struct Transaction<'a> {
    tree: &'a TransactionalTree,
    /// The mark that it brings the decisions to, once it writes.
    mark: Option<Mark>,
}

impl Transaction<'_> {
    /// Writes a row, or removes it.
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> TransactionResult<()> {
        let mut mark = self.next_mark()?;
        let old = match value {
            Some(value) => self.tree.insert(key, value)?,
            None => self.tree.remove(key)?,
        };
        for value in [old.as_deref(), value].into_iter().flatten() {
            mark.toggle(key, value);
        }
        self.mark = Some(mark);
        Ok(())
    }

    fn next_mark(&self) -> TransactionResult<Mark> {
        if let Some(mark) = self.mark {
            return Ok(mark);
        }
        let row = self.tree.get(keys::catalog_mark())?;
        let mut mark = (row.map(|row| Mark::decode("the decisions", row.to_vec())))
            .transpose()
            .map_err(ConflictableTransactionError::Abort)?
            .unwrap_or_default();
        mark.transactions += 1;
        Ok(mark)
    }
}

/// sled has no error of its own for a lock that is held.
fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().contains("could not acquire lock"))
}

/// A partition's head as its catalog row has it.
pub(super) fn read_head(partition: PartitionId, row: Option<&[u8]>) -> Result<Head, StorageError> {
    row.map_or(Ok(Head::default()), |value| {
        codec::decode_head(|| format!("the head of partition {partition}"), value)
    })
}

/// A process killed while it opened sled may have left a half-written snapshot, which sled would
/// take for the newest, find broken, and never open again.
fn remove_unfinished_snapshots(dir: &Path) -> Result<(), StorageError> {
    let failed = StorageError::of_file;
    if !dir.exists() {
        return Ok(());
    }
    for file in std::fs::read_dir(dir).map_err(failed("list", dir))? {
        let file = file.map_err(failed("list", dir))?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            std::fs::remove_file(file.path()).map_err(failed("remove", &file.path()))?;
        }
    }
    Ok(())
}

fn failed(action: &'static str, source: sled::Error) -> StorageError {
    StorageError::Backend {
        store: "the decision store",
        action,
        source: Box::new(source),
    }
}

fn transaction_failed(action: &'static str, error: TransactionError<StorageError>) -> StorageError {
    match error {
        TransactionError::Abort(error) => error,
        TransactionError::Storage(source) => failed(action, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_snapshot_does_not_keep_the_store_from_opening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("decisions");
        let decisions = Decisions::open(&path).unwrap();
        decisions
            .put(&[(b"pkey".to_vec(), b"value".to_vec())])
            .unwrap();
        decisions.flush().unwrap();
        decisions.sync().unwrap();
        drop(decisions);
        std::fs::write(path.join("snap.00000000000FFFFF.generating"), b"half").unwrap();
        let decisions = Decisions::open(&path).unwrap();
        assert_eq!(
            decisions.get(b"pkey").unwrap().as_deref(),
            Some(b"value".as_slice())
        );
    }
}
