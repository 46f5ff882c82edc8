//! Storage in a local directory: one store decides, another carries.
//!
//! ```text
//!  submit ─▶ queue ─▶ committer ─ stage ──▶ bulk store: entry, synced
//!                              └─ decide ─▶ decisions: head, synced      ◀── the epoch is committed
//!                              └─ publish ▶ overlay, answer
//!                              └─ apply ──▶ sink files; bulk store: rows, entry removed (lags)
//! ```
//!
//! This file opens the directory, hands epochs to the committer and serves reads: the overlay holds
//! what is decided and not applied, the bulk store the rest (`reads.rs`). `committer.rs` tells the commit,
//! `recovery.rs` what happens after a crash, `pair.rs` how the two stores stay together.
//!
//! **Invariant:** one process at a time has the directory (`lock.rs`).

mod applying;
mod bulk;
mod chain;
mod committer;
mod decisions;
pub mod directories;
mod faults;
mod finishing;
mod format;
mod journal;
mod later_files;
mod lock;
mod mark;
mod opening;
mod overlay;
mod pair;
mod positions;
mod queue;
mod queue_partitions;
mod reads;
mod recovery;
pub mod restore;
mod run;
mod sink_checks;
mod sink_files;
mod sink_handle;
mod snapshot;
mod withheld;

#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod crash_files;
#[cfg(test)]
mod crash_queues;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod finishing_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use crate::storage::entry::EntryDraft;
use crate::storage::leases::{self, Counter};
use crate::storage::scan::ScanLimit;
use crate::storage::{
    CatalogChange, CatalogOutcome, CommitOutcome, CommitTicket, EpochName, QueueListener, Storage,
    StorageError, StoreSize, StoreSnapshot, StoredRow, check_catalog_change, codec, timer_codec,
};
use crate::types::epoch::{EpochCommit, Head};
use crate::types::ids::{EpochId, PartitionId, SinkFileId};
use crate::types::lease::Lease;

use bulk::Bulk;
use committer::Committer;
use decisions::Decisions;
use faults::pass;
pub use faults::{FaultPoints, NoFaults};
pub use later_files::LaterFiles;
use lock::DirectoryLock;
use opening::read_or_refuse;
use overlay::Overlay;
use queue::{Queue, QueueTrim, Submitted, TrimmedRows, Work};
use queue_partitions::SweptQueue;
use run::Run;
pub use sink_checks::check_new_sink_file;
pub use sink_files::SinkFileLength;
use sink_files::SinkFiles;

/// Exit code of a process whose storage met a failed write or sync.
pub const EXIT_AFTER_FAILED_SYNC: i32 = 74;

/// Told of the data directory and the failure that ends the storage.
pub type OnFailedSync = Arc<dyn Fn(&Path, &StorageError) + Send + Sync>;

/// How an [`EmbeddedStorage`] is run.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// Most bytes of entries that are decided and not applied; bounds memory and the time to
    /// reopen.
    pub staged_bytes_max: usize,
    /// Bytes of such entries at which they are applied; the rows of timers, which are several for each,
    /// count as well. Larger: a key that changes often is written
    /// less often; smaller: shorter pauses.
    pub apply_bytes: usize,
    /// Milliseconds without a submitted epoch after which everything is applied.
    pub apply_idle_ms: u64,
    /// Bytes of decided sink rows at which they are written to their files, before their epochs are
    /// applied; bounds memory.
    pub sink_bytes: usize,
    /// Milliseconds without a submitted epoch after which decided sink rows are written.
    pub sink_idle_ms: u64,
    /// Most bytes of entries that wait for the committer; who submits more waits for room.
    pub queue_bytes_max: usize,
    /// Memory for blocks of bulk rows.
    pub bulk_cache_bytes: u64,
    /// What to do after a failed write or sync in a data directory. Must not return in production;
    /// the default tells the person at stderr and ends the process with [`EXIT_AFTER_FAILED_SYNC`].
    pub on_failed_sync: OnFailedSync,
    /// Told of every point between two writes or syncs.
    pub faults: Arc<dyn FaultPoints>,
    #[cfg(test)]
    sabotage: Option<Sabotage>,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            staged_bytes_max: 256 << 20,
            // Measured with 600 to 65,536 records to an epoch: below this the processor time of a
            // record rises, above it hardly falls; the pauses grow, and more entries are still there
            // when the bulk store writes a table.
            apply_bytes: 16 << 20,
            apply_idle_ms: 1_000,
            sink_bytes: 8 << 20,
            sink_idle_ms: 50,
            queue_bytes_max: 64 << 20,
            bulk_cache_bytes: 128 << 20,
            on_failed_sync: Arc::new(exit),
            faults: Arc::new(NoFaults),
            #[cfg(test)]
            sabotage: None,
        }
    }
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EmbeddedOptions")
            .field("staged_bytes_max", &self.staged_bytes_max)
            .field("apply_bytes", &self.apply_bytes)
            .field("apply_idle_ms", &self.apply_idle_ms)
            .field("sink_bytes", &self.sink_bytes)
            .field("sink_idle_ms", &self.sink_idle_ms)
            .field("queue_bytes_max", &self.queue_bytes_max)
            .field("bulk_cache_bytes", &self.bulk_cache_bytes)
            .finish_non_exhaustive()
    }
}

fn exit(dir: &Path, error: &StorageError) {
    let mut stderr = std::io::stderr();
    // A progress bar may stand in the line.
    let start = if stderr.is_terminal() { "\n" } else { "" };
    // Nobody reads stderr any more: there is no better place to say so.
    let _ = writeln!(stderr, "{start}error: {}", last_words(dir, error));
    std::process::exit(EXIT_AFTER_FAILED_SYNC);
}

/// What a person is told before the process ends.
fn last_words(dir: &Path, error: &StorageError) -> String {
    let mut chain = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        chain = format!("{chain}: {error}");
        cause = error.source();
    }
    let what = format!(
        "data directory {} was closed at once, because what was committed could not be brought to its place: \
         {chain}.",
        dir.display()
    );
    match error {
        // It says what to do; what was in the file only its owner can bring back.
        StorageError::SinkFile { .. } | StorageError::SinkFileInUse { .. } => {
            format!("{what} Rows that wait to be written are kept for the next run.")
        }
        _ => format!(
            "{what} Nothing that was committed is lost, and the next run or command goes on from there. Free \
             space on the disk or check the disk, then run the command again."
        ),
    }
}

/// What a row that holds a mark says: how many changes, and a digest.
#[cfg(test)]
pub(in crate::storage) fn decode_mark(
    whose: &str,
    value: Vec<u8>,
) -> Result<(u64, u64), StorageError> {
    let mark = mark::Mark::decode(whose, value)?;
    Ok((mark.transactions, mark.digest))
}

/// Commits broken on purpose, to show that the crash tests see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    RowsBeforeDecision,
    EntriesNotStaged,
    EntriesRemovedBeforeRows,
    AppendWithoutOffset,
    FilesFinishedBeforeRows,
    QueueRowsBeforeDecision,
    QueueRowsAtTheEnd,
    ChunksTrimmedBeforeBounds,
}

/// Why a partition can't go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The first epoch that can't be trusted.
    pub epoch: EpochId,
    /// What was found.
    pub finding: String,
    /// Whether it may have brought rows to queues of which nobody knows to which, nor how many.
    pub hides_queue_rows: bool,
}

/// Storage in a local directory. Dropping it applies what is decided, ends the committer and
/// releases the directory.
pub struct EmbeddedStorage {
    shared: Arc<Shared>,
    committer: Option<JoinHandle<()>>,
    _lock: DirectoryLock,
}

impl fmt::Debug for EmbeddedStorage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EmbeddedStorage")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

/// What the committer and those who read and submit have in common.
struct Shared {
    dir: PathBuf,
    options: EmbeddedOptions,
    faults: Arc<dyn FaultPoints>,
    decisions: Decisions,
    bulk: Bulk,
    overlay: Overlay,
    queue: Queue,
    /// Heads that are durable: what `decisions` holds may not be yet.
    heads: RwLock<HashMap<PartitionId, Head>>,
    damaged: RwLock<BTreeMap<PartitionId, Damage>>,
    sink_files: Mutex<SinkFiles>,
    /// Below which offset no chunk of a queue's partition is stored, where that is known.
    swept_queues: Mutex<HashMap<PartitionId, SweptQueue>>,
    /// Told of new rows in queues.
    queue_listeners: RwLock<Vec<QueueListener>>,
    /// Held for writing while a catalog change is not durable yet, so that nobody reads it.
    catalog: RwLock<()>,
    has_stopped: AtomicBool,
}

impl EmbeddedStorage {
    /// Opens the data directory, or makes it, and brings everything that was decided to its place.
    ///
    /// # Errors
    ///
    /// [`StorageError::NewerDirectory`] when a newer release made it, and nothing in it is touched;
    /// [`StorageError::InUse`] when another process has it; [`StorageError::MissingStore`], [`StorageError::StoresGone`] or
    /// [`StorageError::MixedStores`] when its halves do not belong together;
    /// [`StorageError::DecisionsLost`] when decisions are gone; [`StorageError::RestoreUnfinished`] when a
    /// backup is not wholly in it; [`StorageError::Unreadable`] when a store fails. Damaged partitions are no error here: each is logged at level error with its
    /// epoch, the others run, and whatever touches it is answered with [`StorageError::Damaged`].
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<EmbeddedStorage, StorageError> {
        format::check(dir)?;
        directories::make_durable(dir)?;
        let lock = DirectoryLock::take(dir)?;
        restore::refuse_unfinished(dir)?;
        EmbeddedStorage::open_locked(dir, lock, options)
    }

    fn open_locked(
        dir: &Path,
        lock: DirectoryLock,
        options: EmbeddedOptions,
    ) -> Result<EmbeddedStorage, StorageError> {
        pair::prepare(dir, &options.faults)?;
        format::settle(dir, &options.faults)?;
        let shared = read_or_refuse(dir, || Shared::open(dir, options))?;
        let committer = Committer::new(Arc::clone(&shared));
        let committer = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(move || committer.run())
            .map_err(|source| StorageError::File {
                action: "start the committer of",
                path: dir.to_owned(),
                source,
            })?;
        Ok(EmbeddedStorage {
            shared,
            committer: Some(committer),
            _lock: lock,
        })
    }

    /// Whether `dir` holds storage, whole or not, so that opening it would make nothing new.
    pub fn exists_in(dir: &Path) -> bool {
        pair::exists_in(dir) || restore::is_unfinished(dir)
    }

    /// All files that synchronous sinks ever wrote, with what is on the disk of each.
    pub fn sink_file_lengths(&self) -> Vec<SinkFileLength> {
        self.shared.sink_files().lengths()
    }

    /// Cuts a file back to what is committed of it, if it is longer, and syncs it. Returns by how many bytes.
    ///
    /// # Errors
    ///
    /// When the file can't be opened, cut or synced, or another process writes to it.
    pub fn cut_sink_file(&self, file: SinkFileId) -> Result<u64, StorageError> {
        self.shared.sink_files().cut(file)
    }

    /// Rewrites the bulk rows without what was overwritten and removed. Commits wait for none of it, but
    /// share the disk.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn compact(&self) -> Result<(), StorageError> {
        self.settle()?;
        self.shared.bulk.compact()
    }

    /// What [`Storage::open_sink_file`] would refuse about `path`; nothing is made or changed.
    ///
    /// # Errors
    ///
    /// As [`Storage::open_sink_file`].
    pub fn check_sink_file(&self, path: &Path) -> Result<(), StorageError> {
        self.shared.check_running()?;
        self.shared.sink_files().check(path)
    }

    fn ask_to_trim(&self, what: TrimmedRows) -> Result<(), StorageError> {
        self.shared.check_running()?;
        let (answer, done) = mpsc::sync_channel(1);
        let trim = QueueTrim { what, answer };
        self.shared.queue.push(vec![Work::Trim(trim)]);
        done.recv().unwrap_or(Err(StorageError::Stopped))
    }

    /// The partitions that can't go on, and why. The others run.
    pub fn damaged(&self) -> Vec<(PartitionId, Damage)> {
        let damaged = self
            .shared
            .damaged
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        damaged
            .iter()
            .map(|(partition, damage)| (*partition, damage.clone()))
            .collect()
    }
}

impl Drop for EmbeddedStorage {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(committer) = self.committer.take() {
            // A committer that panicked has stopped the storage already.
            let _ = committer.join();
        }
    }
}

impl Shared {
    /// Opens both stores and brings what was decided to its place. The directory's lock must be held.
    fn open(dir: &Path, options: EmbeddedOptions) -> Result<Arc<Shared>, StorageError> {
        let faults = Arc::clone(&options.faults);
        let (decisions, bulk) = pair::open(dir, options.bulk_cache_bytes, &faults)?;
        let sink_files = SinkFiles::load(dir, &decisions, &bulk)?;
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            faults,
            decisions,
            bulk,
            overlay: Overlay::default(),
            queue: Queue::new(options.queue_bytes_max),
            heads: RwLock::default(),
            damaged: RwLock::default(),
            sink_files: Mutex::new(sink_files),
            swept_queues: Mutex::default(),
            queue_listeners: RwLock::default(),
            catalog: RwLock::new(()),
            has_stopped: AtomicBool::new(false),
            options,
        });
        recovery::recover(&shared)?;
        Ok(shared)
    }

    fn is_sabotaged(&self, _how: Sabotage) -> bool {
        #[cfg(test)]
        return self.options.sabotage == Some(_how);
        #[cfg(not(test))]
        false
    }

    /// After a failed write or sync nothing is answered and nothing read any more.
    fn stop(&self, error: &StorageError) {
        self.has_stopped.store(true, Ordering::Release);
        (self.options.on_failed_sync)(&self.dir, error);
        self.queue.abandon();
    }

    /// Waits until no catalog change is on its way to the device, and holds off the next one, so
    /// that nobody reads what a crash could still undo.
    fn durable_catalog(&self) -> Result<RwLockReadGuard<'_, ()>, StorageError> {
        let durable = self.catalog.read().unwrap_or_else(PoisonError::into_inner);
        self.check_running()?;
        Ok(durable)
    }

    fn check_running(&self) -> Result<(), StorageError> {
        match self.has_stopped.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(StorageError::Stopped),
        }
    }

    fn check_undamaged(&self, partition: PartitionId) -> Result<(), StorageError> {
        let damaged = self.damaged.read().unwrap_or_else(PoisonError::into_inner);
        damaged.get(&partition).map_or(Ok(()), |damage| {
            Err(StorageError::Damaged {
                partition,
                epoch: damage.epoch,
                finding: damage.finding.clone(),
            })
        })
    }

    /// Where rows of queues end is only known as long as no damage hides some: their offsets would be given twice.
    fn check_queue_ends(&self) -> Result<(), StorageError> {
        let damaged = self.damaged.read().unwrap_or_else(PoisonError::into_inner);
        let mut hiding = (damaged.iter()).filter(|(_, damage)| damage.hides_queue_rows);
        hiding.next().map_or(Ok(()), |(partition, damage)| {
            Err(StorageError::QueueEndsUnknown {
                partition: *partition,
                epoch: damage.epoch,
                finding: damage.finding.clone(),
            })
        })
    }

    fn decided_head(&self, partition: PartitionId) -> Head {
        let heads = self.heads.read().unwrap_or_else(PoisonError::into_inner);
        heads.get(&partition).copied().unwrap_or_default()
    }

    fn set_decided_head(&self, partition: PartitionId, head: Head) {
        self.heads
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(partition, head);
    }

    fn set_damaged(&self, damaged: BTreeMap<PartitionId, Damage>) {
        *self.damaged.write().unwrap_or_else(PoisonError::into_inner) = damaged;
    }

    /// Lets the bulk rows know how far the decisions are, as far as that is durable; to be synced.
    fn write_mark(&self) -> Result<(), StorageError> {
        (self.decisions.durable_mark()).map_or(Ok(()), |mark| self.bulk.set_decisions_mark(mark))
    }

    fn sink_files(&self) -> MutexGuard<'_, SinkFiles> {
        self.sink_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks and encodes an epoch; the rest is the committer's.
    fn prepare(
        &self,
        lease: Lease,
        mut commit: EpochCommit,
    ) -> Result<(Submitted, CommitTicket), StorageError> {
        self.check_undamaged(commit.partition)?;
        codec::check_storable(&commit)?;
        if !commit.queue_appends.is_empty() {
            self.check_queue_ends()?;
        }
        if !commit.appends.is_empty() {
            let files = self.sink_files();
            if let Some(append) = commit
                .appends
                .iter()
                .find(|append| !files.is_open(append.file))
            {
                return Err(StorageError::Unstorable {
                    partition: commit.partition,
                    epoch: commit.epoch,
                    finding: format!("sink file {} is not open", append.file),
                });
            }
        }
        if let Some(file) =
            (commit.finished_files.iter()).find(|file| !self.sink_files().may_finish(**file))
        {
            return Err(StorageError::Unstorable {
                partition: commit.partition,
                epoch: commit.epoch,
                finding: format!("sink file {file} can't be finished"),
            });
        }
        let entry = EntryDraft::new(&commit);
        let (ticket, answer) = CommitTicket::new();
        let (_, key_bytes, value_bytes) = timer_codec::size_of_rows(&commit.timers);
        let submitted = Submitted {
            lease,
            epoch: EpochName::of(&commit),
            entry,
            appends: std::mem::take(&mut commit.appends),
            finished_files: std::mem::take(&mut commit.finished_files),
            queue_appends: std::mem::take(&mut commit.queue_appends),
            timer_row_bytes: key_bytes + value_bytes,
            run: Arc::new(Run::of_commit(commit)),
            answer,
            placement: None,
        };
        Ok((submitted, ticket))
    }

    /// Writes a catalog change and makes it durable; a failure of that ends the process.
    fn change_catalog(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError> {
        let _alone = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        self.check_running()?;
        let changed = || {
            pass(&self.faults, "catalog: write the rows")?;
            let outcome = self.decisions.change(change)?;
            if outcome == CatalogOutcome::Committed {
                pass(&self.faults, "catalog: flush the rows")?;
                self.decisions.flush()?;
                pass(&self.faults, "catalog: sync the rows")?;
                self.decisions.sync()?;
                pass(&self.faults, "catalog: write the mark")?;
                self.write_mark()?;
            }
            Ok(outcome)
        };
        changed().inspect_err(|error| self.stop(error))
    }
}

impl Storage for EmbeddedStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.shared.check_running()?;
        self.shared.read_row(key)
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        self.shared.check_running()?;
        self.shared.read_rows(keys)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: ScanLimit,
    ) -> Result<Vec<StoredRow>, StorageError> {
        self.shared.check_running()?;
        self.shared.scan_rows(start, end, limit)
    }

    fn head(&self, partition: PartitionId) -> Result<Head, StorageError> {
        self.shared.check_running()?;
        self.shared.check_undamaged(partition)?;
        Ok(self.shared.decided_head(partition))
    }

    fn submit_epoch(&self, lease: Lease, commit: EpochCommit) -> CommitTicket {
        let mut tickets = self.submit_epochs(vec![(lease, commit)]);
        tickets
            .pop()
            .unwrap_or_else(|| CommitTicket::answered(Ok(CommitOutcome::Unknown)))
    }

    fn submit_epochs(&self, epochs: Vec<(Lease, EpochCommit)>) -> Vec<CommitTicket> {
        let mut work = Vec::with_capacity(epochs.len());
        let mut runs = Vec::with_capacity(epochs.len());
        let tickets = (epochs.into_iter())
            .map(|(lease, commit)| match self.shared.prepare(lease, commit) {
                Ok((submitted, ticket)) => {
                    runs.push(Arc::clone(&submitted.run));
                    work.push(Work::Epoch(Box::new(submitted)));
                    ticket
                }
                Err(error) => CommitTicket::answered(Err(error)),
            })
            .collect();
        if !work.is_empty() {
            self.shared.queue.push(work);
        }
        // The rows are made here while the committer waits for the disk.
        for run in runs {
            run.rows();
        }
        tickets
    }

    fn read_catalog(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let _durable = self.shared.durable_catalog()?;
        self.shared.decisions.get(key)
    }

    fn scan_catalog(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StorageError> {
        let _durable = self.shared.durable_catalog()?;
        self.shared.decisions.scan(prefix)
    }

    fn commit_catalog(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError> {
        check_catalog_change(change)?;
        self.shared.change_catalog(change)
    }

    fn open_sink_file(&self, path: &Path) -> Result<SinkFileId, StorageError> {
        let path = match self.shared.sink_files().open_known(path)? {
            Ok(id) => return Ok(id),
            Err(path) => path,
        };
        let id = SinkFileId(leases::allocate(self, Counter::SinkFiles, 1)?);
        let mut files = self.shared.sink_files();
        // Another thread may have been first.
        if let Ok(id) = files.open_known(&path)? {
            return Ok(id);
        }
        pass(&self.shared.faults, "sink: make the file")?;
        let handle = files.create(&path)?;
        let row = files.location_row(id, &path)?;
        self.shared.change_catalog(&CatalogChange {
            expectations: vec![(row.0.clone(), None)],
            writes: vec![(row.0, Some(row.1))],
        })?;
        files.insert(id, path, handle);
        Ok(id)
    }

    fn check_file_series(&self, path: &Path) -> Result<(), StorageError> {
        self.shared.sink_files().check_series(path)
    }

    fn trim_queues(&self, trims: &[(PartitionId, u64)]) -> Result<(), StorageError> {
        self.shared.check_queue_ends()?;
        self.ask_to_trim(TrimmedRows::Below(trims.to_vec()))?;
        for (queue, _) in trims {
            if self.shared.give_back_trimmed(*queue)? {
                self.ask_to_trim(TrimmedRows::Leftovers(*queue))?;
            }
        }
        Ok(())
    }

    fn check_queue_ends(&self) -> Result<(), StorageError> {
        self.shared.check_queue_ends()
    }

    fn remove_queue(&self, queue: PartitionId) -> Result<(), StorageError> {
        self.ask_to_trim(TrimmedRows::All(queue))?;
        self.shared.give_back_all(queue)?;
        // Rows in tables that others share, whose removals have gone.
        self.ask_to_trim(TrimmedRows::All(queue))
    }

    fn on_queue_append(&self, listener: QueueListener) {
        self.shared.add_queue_listener(listener);
    }

    fn settle(&self) -> Result<(), StorageError> {
        self.shared.check_running()?;
        let (answer, settled) = mpsc::sync_channel(1);
        self.shared.queue.push(vec![Work::Settle(answer)]);
        settled.recv().map_err(|_| StorageError::Stopped)
    }

    fn snapshot(&self) -> Result<Box<dyn StoreSnapshot>, StorageError> {
        // What lags behind is brought to its place first, so that commits wait for little of it.
        self.settle()?;
        let (answer, snapshot) = mpsc::sync_channel(1);
        self.shared.queue.push(vec![Work::Snapshot(answer)]);
        let snapshot = snapshot.recv().map_err(|_| StorageError::Stopped)?;
        Ok(Box::new(snapshot))
    }

    fn size(&self) -> Result<StoreSize, StorageError> {
        self.shared.check_running()?;
        Ok(StoreSize {
            catalog_bytes: self.shared.decisions.size_bytes()?,
            bulk_bytes: self.shared.bulk.size_bytes()?,
        })
    }
}
