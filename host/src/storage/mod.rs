//! Durable storage: one contract, kept by every implementation.
//!
//! ```text
//!              rows (bulk)                      catalog (few, small)
//!   ┌──────────────────────────────┐   ┌───────────────────────────────────┐
//!   │ positions, frontiers, states,│   │ leases, heads, counters, pipelines│
//!   │ timers, chunks, epoch records│   │ and their partitions, sink files  │
//!   │ rows of queues               │   │                                   │
//!   └──────────────▲───────────────┘   └─────────────▲─────────────────────┘
//!                  │ get, get_many, scan              │ read_catalog, commit_catalog
//!                  └────────── commit_epoch ──────────┘
//!                    checks lease and head, writes all or nothing
//! ```
//!
//! The contract. An implementation:
//!
//! 1. MUST commit an epoch whole or not at all: rows, sink bytes and the new head together.
//! 2. MUST refuse an epoch whose lease is not the partition's lease row at the moment of decision,
//!    and one that is not the successor of the partition's head; nothing of it is ever visible.
//! 3. MUST answer [`CommitOutcome::Committed`] only after the epoch survives a kill of the process
//!    and a loss of power.
//! 4. MUST let every read or scan that begins after that answer see the epoch.
//! 5. MUST take two epochs of one partition in the order in which they were submitted; when the
//!    first is refused the second is too.
//! 6. MUST append an epoch's sink bytes to each file exactly once, without gap and in the order of
//!    decision, whatever happens between decision and append.
//! 7. MUST apply a catalog change whole and durably or refuse it whole, by its expectations.
//! 8. MUST never read a clock and never assume that its process is the only one with a lease.
//! 9. MUST tell damage by partition and epoch, and never start a partition afresh because of it.
//! 10. MUST refuse an epoch that can't be stored (a key too long, columns that disagree, rows of
//!     another partition) before anything of it is written, with the reason.
//! 11. MUST refuse a catalog change that touches a row of its own (heads, sink files, the store id)
//!     or whose value is longer than [`CATALOG_VALUE_BYTES_MAX`].
//! 12. MUST give the rows that epochs append to a queue's partition offsets from 0 on, without gap, in
//!     the order of decision, and keep each there, whole and once, until it is trimmed. The partition's
//!     end never falls.
//! 13. MUST trim a queue's partition all or not at all, durably, whoever reads or writes it meanwhile.
//! 14. MUST call those who listen for rows of queues after the rows can be read, and after every epoch
//!     that brought some, with the partitions that have some.
//! 15. MUST give a file that an epoch has finished its final name ([`final_name`]), with all its rows, never over
//!     another file and never before the epoch is decided; after that it keeps nothing of the file.
//!
//! `contract.rs` is the suite that every implementation passes.

pub mod attempts;
pub mod backup;
pub mod check;
pub mod codec;
#[cfg(any(test, feature = "contract-suite"))]
pub mod contract;
pub mod embedded;
pub mod entry;
#[cfg(test)]
mod golden_tests;
pub mod keys;
pub mod kinds;
pub mod leases;
mod letter_codec;
pub mod letter_requests;
pub mod letter_rows;
pub mod memory;
pub mod merged_pages;
mod queue_codec;
pub mod queue_rows;
pub mod rows;
pub mod scan;
mod timer_codec;
pub mod timer_keys;
pub mod timer_rows;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use crate::storage::scan::ScanLimit;
use crate::types::epoch::{EpochCommit, Head};
use crate::types::ids::{EpochId, Generation, LeaseId, PartitionId, SinkFileId};
use crate::types::lease::Lease;

/// Longest value of a catalog row, in bytes. Longer documents go into several rows: one store that
/// decides keeps values above a few kilobytes in files that it never syncs.
pub const CATALOG_VALUE_BYTES_MAX: usize = 4_096;

/// Longest key of a catalog row, in bytes.
pub const CATALOG_KEY_BYTES_MAX: usize = 1_024;

/// About how many bytes of rows a scan of keys holds at a time, in bytes.
const KEY_SCAN_BYTES: usize = 1 << 20;

/// What the names of files end with that are still written and will be finished.
pub const PART_SUFFIX: &str = ".part";

/// The name that a file gets once it is finished: its own without [`PART_SUFFIX`]. `None` for one that has no
/// other name, which can't be finished.
pub fn final_name(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix(PART_SUFFIX)?;
    (!name.is_empty()).then(|| path.with_file_name(name))
}

/// Told which partitions of queues have new rows. It must return soon and must not call the storage.
pub type QueueListener = Arc<dyn Fn(&[PartitionId]) + Send + Sync>;

/// A row as it is stored: key and value.
pub type StoredRow = (Vec<u8>, Vec<u8>);

/// Durable storage. See the module's documentation for the contract.
pub trait Storage: Send + Sync {
    /// The value of a row, or `None`.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// The values of many rows, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError>;

    /// Rows with `start <= key < end`, in the order of their keys, as many as `limit` says.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: ScanLimit,
    ) -> Result<Vec<StoredRow>, StorageError>;

    /// The keys alone of such rows, at most `limit`. Never holds many of their values.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn scan_keys(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StorageError> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut start = start.to_vec();
        while keys.len() < limit {
            let page = ScanLimit {
                rows: limit - keys.len(),
                bytes: KEY_SCAN_BYTES,
            };
            let rows = self.scan(&start, end, page)?;
            let Some((last, _)) = rows.last() else {
                break;
            };
            // The least key behind another one is that key and a zero byte.
            start = [last, [0].as_slice()].concat();
            keys.extend(rows.into_iter().map(|(key, _)| key));
        }
        Ok(keys)
    }

    /// The partition's last decided epoch.
    ///
    /// # Errors
    ///
    /// When the store fails, or [`StorageError::Damaged`] when the partition is damaged.
    fn head(&self, partition: PartitionId) -> Result<Head, StorageError>;

    /// Hands an epoch to the committer and returns without waiting for the decision; it waits only
    /// while more bytes are queued than the implementation's limit allows. A job may submit its next
    /// epoch before the last one is decided (rule 5).
    fn submit_epoch(&self, lease: Lease, commit: EpochCommit) -> CommitTicket;

    /// Hands over several epochs at once, in order. An implementation that decides in groups takes
    /// them into one group.
    fn submit_epochs(&self, epochs: Vec<(Lease, EpochCommit)>) -> Vec<CommitTicket> {
        (epochs.into_iter())
            .map(|(lease, commit)| self.submit_epoch(lease, commit))
            .collect()
    }

    /// Submits an epoch and waits for the decision.
    ///
    /// # Errors
    ///
    /// As [`CommitTicket::wait`].
    fn commit_epoch(
        &self,
        lease: Lease,
        commit: EpochCommit,
    ) -> Result<CommitOutcome, StorageError> {
        self.submit_epoch(lease, commit).wait()
    }

    /// The value of a catalog row, or `None`.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn read_catalog(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// All catalog rows whose keys begin with `prefix`, in the order of their keys.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn scan_catalog(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StorageError>;

    /// Writes catalog rows if every expectation holds; durable when it returns.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn commit_catalog(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError>;

    /// Takes a file under the committer's care, or finds it again. Only epochs append to it. One whose name
    /// ends in [`PART_SUFFIX`] may be finished by an epoch (rule 15).
    ///
    /// # Errors
    ///
    /// [`StorageError::SinkFile`] when the file is no regular one, is another sink's by another name,
    /// or does not end where the store committed to: somebody else wrote to it, cut it, or it was
    /// there before the store, or if what it is to be called when it is finished is there.
    /// [`StorageError::SinkFileInUse`] when another process writes to it.
    fn open_sink_file(&self, path: &Path) -> Result<SinkFileId, StorageError>;

    /// Whether a file at `path` may be begun or gone on with as far as its series is concerned: the files of one
    /// folder whose names differ only in their number, of 8 digits or more behind a dash. Opening it asks as well.
    ///
    /// # Errors
    ///
    /// [`StorageError::SinkFile`] with the first one of the series that is finished and can't get its final name.
    fn check_file_series(&self, _path: &Path) -> Result<(), StorageError> {
        Ok(())
    }

    /// Lets the rows of a queue's partition below offset `before` go, or all of them when it is beyond the end.
    /// Durable when it returns; trimming to where it starts already changes nothing.
    ///
    /// # Errors
    ///
    /// When the store fails, or the chunk that holds the new first row does not decode.
    fn trim_queue(&self, queue: PartitionId, before: u64) -> Result<(), StorageError> {
        self.trim_queues(&[(queue, before)])
    }

    /// The same for many partitions, each named once, at the price of one.
    ///
    /// # Errors
    ///
    /// As [`Storage::trim_queue`], for the first partition that can't be trimmed; the others are.
    fn trim_queues(&self, trims: &[(PartitionId, u64)]) -> Result<(), StorageError>;

    /// Whether it is known of all queues where their rows end. Where it is not, nothing is appended or trimmed.
    ///
    /// # Errors
    ///
    /// [`StorageError::QueueEndsUnknown`].
    fn check_queue_ends(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Removes a queue's partition, rows and bounds. Nobody may append to it any more. Durable when it
    /// returns; one that is not there stays so. Interrupted, it leaves the partition without rows, or as it was.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn remove_queue(&self, queue: PartitionId) -> Result<(), StorageError>;

    /// Has `listener` called whenever queues have new rows, for as long as the storage is open. For readers in
    /// this process that wait; it may be called more often than there are rows.
    fn on_queue_append(&self, listener: QueueListener);

    /// Brings everything decided to its place (rows, sink files) and syncs it. Returns when done;
    /// what was submitted before is decided by then.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn settle(&self) -> Result<(), StorageError>;

    /// Everything that is stored as of one moment between two commits, with all that was submitted before
    /// brought to its place. Commits go on while it is read; they wait only for it to be taken.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn snapshot(&self) -> Result<Box<dyn StoreSnapshot>, StorageError>;

    /// How many bytes the store takes on its disk, files of sinks not counted.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn size(&self) -> Result<StoreSize, StorageError>;
}

/// What is stored, as of one moment. Disk space that later changes give up is kept for as long as the
/// snapshot is there.
pub trait StoreSnapshot: Send {
    /// All rows of the catalog in the order of their keys, with those that only storage writes.
    fn catalog(&self) -> &[StoredRow];

    /// Bulk rows with `start <= key` in the order of their keys, as many as `limit` says; none at their end. What
    /// stands before a row that can't be read is returned first.
    ///
    /// # Errors
    ///
    /// When the store fails at the first of them.
    fn scan(&self, start: &[u8], limit: ScanLimit) -> Result<Vec<StoredRow>, StorageError>;

    /// About how many bulk rows there are; rows that were changed lately may count several times.
    fn approximate_rows(&self) -> u64;
}

/// Bytes of a store on its disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StoreSize {
    /// Of the catalog: leases, heads, pipelines.
    pub catalog_bytes: u64,
    /// Of the bulk rows: states, positions, chunks, queues.
    pub bulk_bytes: u64,
}

impl StoreSize {
    /// Both together.
    pub fn total(self) -> u64 {
        self.catalog_bytes + self.bulk_bytes
    }
}

/// What became of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Decided and durable; the partition's new head.
    Committed(Head),
    /// Nothing of it was or will be visible.
    Refused(Refusal),
    /// The store could not tell. The job must end; its successor finds out from the head.
    Unknown,
}

/// Why an epoch was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The partition's lease is another one, or none.
    #[error("lease {held} of partition {partition} is over (current: {})", .current.map_or("none".to_owned(), |id| id.to_string()))]
    LeaseLost {
        /// The partition.
        partition: PartitionId,
        /// The lease that the epoch named.
        held: LeaseId,
        /// The partition's lease now.
        current: Option<LeaseId>,
    },
    /// It does not follow the partition's head.
    #[error(
        "epoch {found} ({found_generation}) of partition {partition} is out of order, expected {expected}"
    )]
    OutOfOrder {
        /// The partition.
        partition: PartitionId,
        /// What would have followed.
        expected: EpochId,
        /// What came.
        found: EpochId,
        /// Under which generation it came.
        found_generation: Generation,
    },
}

/// The one rule of rule 2: what stands against an epoch, given the partition's lease row and head.
/// Every implementation asks it at the moment of decision.
pub(crate) fn judge(
    row: &codec::LeaseRow,
    head: &Head,
    lease: &Lease,
    epoch: EpochName,
) -> Option<Refusal> {
    let is_held = row.current == Some(lease.id)
        && lease.partition == epoch.partition
        && lease.generation == epoch.generation
        && row.generation == epoch.generation.0;
    if !is_held {
        return Some(Refusal::LeaseLost {
            partition: epoch.partition,
            held: lease.id,
            current: row.current,
        });
    }
    let follows = epoch.epoch == head.epoch.next() && epoch.generation >= head.generation;
    (!follows).then(|| Refusal::OutOfOrder {
        partition: epoch.partition,
        expected: head.epoch.next(),
        found: epoch.epoch,
        found_generation: epoch.generation,
    })
}

/// Which epoch an [`EpochCommit`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochName {
    pub(crate) partition: PartitionId,
    pub(crate) generation: Generation,
    pub(crate) epoch: EpochId,
}

impl EpochName {
    pub(crate) fn of(commit: &EpochCommit) -> EpochName {
        EpochName {
            partition: commit.partition,
            generation: commit.generation,
            epoch: commit.epoch,
        }
    }
}

/// Where the answer to a submitted epoch goes.
pub type CommitAnswer = mpsc::SyncSender<Result<CommitOutcome, StorageError>>;

/// The answer to a submitted epoch, to be waited for.
#[derive(Debug)]
pub struct CommitTicket {
    answer: mpsc::Receiver<Result<CommitOutcome, StorageError>>,
}

impl CommitTicket {
    /// A ticket, and where its answer goes. A sender dropped without an answer means
    /// [`CommitOutcome::Unknown`].
    pub fn new() -> (CommitTicket, CommitAnswer) {
        let (sender, answer) = mpsc::sync_channel(1);
        (CommitTicket { answer }, sender)
    }

    /// A ticket that is answered already.
    pub fn answered(answer: Result<CommitOutcome, StorageError>) -> CommitTicket {
        let (ticket, sender) = CommitTicket::new();
        // The channel has room for one answer and its receiver is alive.
        let _ = sender.send(answer);
        ticket
    }

    /// The decision, if there is one already.
    ///
    /// # Errors
    ///
    /// As [`CommitTicket::wait`].
    pub fn try_wait(&self) -> Option<Result<CommitOutcome, StorageError>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(Ok(CommitOutcome::Unknown)),
        }
    }

    /// Waits for the decision.
    ///
    /// # Errors
    ///
    /// When the store failed before anything of the epoch could have been decided.
    pub fn wait(self) -> Result<CommitOutcome, StorageError> {
        // A committer that is gone without an answer may have decided.
        self.answer.recv().unwrap_or(Ok(CommitOutcome::Unknown))
    }
}

/// Catalog rows to write, and what must hold for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogChange {
    /// Rows and the values that they must have (`None`: must not exist).
    pub expectations: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Rows and their new values (`None`: remove).
    pub writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What became of a catalog change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogOutcome {
    /// Written and durable.
    Committed,
    /// An expectation did not hold; nothing was written.
    Refused,
}

/// A failure of the store itself. Every one of them ends the job or the process: none is retried
/// by the one that met it.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another process holds the data directory.
    #[error("data directory {} is in use by {holder}; stop it or name another directory with --data", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who holds it, as far as its lock file tells.
        holder: String,
    },
    /// A newer release made the data directory, in a format that this one does not know.
    #[error(
        "data directory {} has format {found}, this release knows formats up to {known}; nothing in it was touched: \
         run the release that made it, or a newer one, or name another directory with --data", .path.display()
    )]
    NewerDirectory {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this release knows.
        known: u32,
    },
    /// A file or directory could not be opened, read, written or synced.
    #[error("failed to {action} {}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A store underneath failed.
    #[error("{store} failed to {action}")]
    Backend {
        /// Which store.
        store: &'static str,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What a data directory holds can't be read.
    #[error(
        "{store} in data directory {} failed to {action}; unless the cause tells otherwise, \
         restore the data directory from a backup, or start afresh in another one", .path.display()
    )]
    Unreadable {
        /// The data directory.
        path: PathBuf,
        /// Which store.
        store: &'static str,
        /// What was tried.
        action: &'static str,
        /// What it met.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A partition's stored rows contradict each other. Other partitions go on.
    #[error(
        "partition {partition} is damaged at epoch {epoch}: {finding}; restore the data directory from a backup"
    )]
    Damaged {
        /// The partition.
        partition: PartitionId,
        /// The first epoch that can't be trusted.
        epoch: EpochId,
        /// What was found.
        finding: String,
    },
    /// A damaged partition may have brought rows to any queue, and what it had is gone.
    #[error(
        "queues can't be written or trimmed: partition {partition} is damaged at epoch {epoch} ({finding}) and may have \
         had rows for any of them, whose offsets would be given twice; restore the data directory from a backup"
    )]
    QueueEndsUnknown {
        /// The partition.
        partition: PartitionId,
        /// The first epoch that can't be trusted.
        epoch: EpochId,
        /// What was found.
        finding: String,
    },
    /// An epoch holds what can't be stored. Nothing of it was written.
    #[error("epoch {epoch} of partition {partition} can't be stored: {finding}")]
    Unstorable {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: EpochId,
        /// What is wrong, and what to do.
        finding: String,
    },
    /// A catalog change touches what it must not, or is too large. Nothing of it was written.
    #[error(
        "catalog row {key} can't be written: {finding}; nothing was changed; this is a defect of tidelock, please report it with its log"
    )]
    CatalogRow {
        /// The row's key, printable.
        key: String,
        /// What is wrong.
        finding: String,
    },
    /// Others changed the same catalog row again and again.
    #[error("failed to {action}: others changed the same row {attempts} times in between")]
    Contended {
        /// What was tried.
        action: &'static str,
        /// How often.
        attempts: usize,
    },
    /// One half of a data directory is gone.
    #[error("{} holds {present} but no {missing}; put it back, or restore both from one backup", .path.display())]
    MissingStore {
        /// The directory.
        path: PathBuf,
        /// The half that is there.
        present: &'static str,
        /// The half that is gone.
        missing: &'static str,
    },
    /// Both halves of a data directory are gone, and something that says that they were there is not.
    #[error(
        "{} held a store, as {} says, and both halves of it ({present_once}) are gone; nothing was started afresh; put them \
         back, restore a backup into another directory, or remove what is left to start afresh", .path.display(), .witness.display()
    )]
    StoresGone {
        /// The directory.
        path: PathBuf,
        /// What says so.
        witness: PathBuf,
        /// The names of the halves.
        present_once: &'static str,
    },
    /// Decisions that were durable are gone: a damaged disk, or a file changed from outside. What is
    /// left is not taken for all there was.
    #[error(
        "the decisions in {} are not whole: as of change {found}, or with rows missing, where there were \
         {expected} changes; nothing was started afresh; restore the data directory from a backup, \
         or start afresh in another one", .path.display()
    )]
    DecisionsLost {
        /// The data directory.
        path: PathBuf,
        /// How many changes there were at least.
        expected: u64,
        /// How many of them what is left knows of.
        found: u64,
    },
    /// A flush or sync failed earlier: what the disk holds is no longer known to this process.
    #[error(
        "storage has stopped after a failed write or sync; look for it in the log, see to the disk and start again"
    )]
    Stopped,
    /// The two halves of a data directory do not belong together.
    #[error("the stores in {} do not belong together ({decisions} and {bulk}); restore both from one backup", .path.display())]
    MixedStores {
        /// The directory.
        path: PathBuf,
        /// Store id that the decisions carry.
        decisions: String,
        /// Store id that the bulk rows carry.
        bulk: String,
    },
    /// A stored value has a format that this release does not know, or does not decode.
    #[error("{what} can't be decoded: {finding}")]
    Undecodable {
        /// Which kind of value, and whose.
        what: String,
        /// What was wrong.
        finding: String,
    },
    /// A backup was being restored into a data directory and is not there as a whole.
    #[error(
        "{} holds a part of a backup whose restoring was interrupted; restore it again into this directory, or remove the directory", .path.display()
    )]
    RestoreUnfinished {
        /// The directory.
        path: PathBuf,
    },
    /// Another process, with another data directory, writes to a sink's file.
    #[error("sink file {} is in use by another process, which writes to it from another data directory; stop that one or name another path", .path.display())]
    SinkFileInUse {
        /// The file.
        path: PathBuf,
    },
    /// A sink's file is not as the store left it, or no file that a sink can use.
    #[error("sink file {}: {finding}", .path.display())]
    SinkFile {
        /// The file.
        path: PathBuf,
        /// What was found and what to do.
        finding: String,
    },
}

impl StorageError {
    /// What the failure of an action on a path becomes: for `map_err`.
    pub(crate) fn of_file(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> StorageError + use<> {
        let path = path.to_owned();
        move |source| StorageError::File {
            action,
            path,
            source,
        }
    }
}

/// Whether a catalog change keeps to rule 11.
///
/// # Errors
///
/// [`StorageError::CatalogRow`] with the first row that does not.
pub(crate) fn check_catalog_change(change: &CatalogChange) -> Result<(), StorageError> {
    for (key, value) in &change.writes {
        let value_len = value.as_ref().map_or(0, Vec::len);
        let finding = if keys::is_reserved_in_catalog(key) {
            "only storage itself writes it".to_owned()
        } else if key.len() > CATALOG_KEY_BYTES_MAX {
            format!(
                "the key is {} bytes long, at most {CATALOG_KEY_BYTES_MAX} fit",
                key.len()
            )
        } else if value_len > CATALOG_VALUE_BYTES_MAX {
            format!("the value is {value_len} bytes long, at most {CATALOG_VALUE_BYTES_MAX} fit")
        } else {
            continue;
        };
        return Err(StorageError::CatalogRow {
            key: key.escape_ascii().to_string(),
            finding,
        });
    }
    Ok(())
}
