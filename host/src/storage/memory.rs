//! The storage contract in memory, for tests and simulation: everything happens on the caller's
//! thread, in one order, so that a run repeats exactly. Faults come from an injected plan.
//!
//! It is no cache and no default: nothing outlives the value, except through
//! [`MemoryStorage::crash_and_reopen`], which plays a process that died and came back.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::codec::NewValue;
use crate::storage::entry::{AppendPlaces, EntryDraft};
use crate::storage::leases::{self, Counter};
use crate::storage::queue_codec::{
    QueueChunk, chunk_key, decode_queue_bounds, encode_queue_bounds,
};
use crate::storage::queue_rows::trimmed_bounds;
use crate::storage::scan::{ScanLimit, ScanPage};
use crate::storage::{
    CatalogChange, CatalogOutcome, CommitOutcome, CommitTicket, EpochName, QueueListener, Refusal,
    Storage, StorageError, StoreSize, StoreSnapshot, StoredRow, check_catalog_change, codec,
    final_name, judge, keys,
};
use crate::types::epoch::{EpochCommit, Head};
use crate::types::ids::{PartitionId, SinkFileId};
use crate::types::lease::Lease;
use crate::types::queue::{QueueAppend, QueueBounds, QueuePlace};

/// What goes wrong with an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommitFault {
    /// Nothing.
    #[default]
    None,
    /// It is refused as though its lease had just ended.
    Refused,
    /// It is decided, and the answer is lost.
    UnknownDecided,
    /// It is not decided, and the answer is lost.
    UnknownUndecided,
    /// The sync fails: no answer, and the storage stops. Whether the epoch is there afterwards is
    /// for [`MemoryStorage::crash_and_reopen`] to say.
    FailedSync,
}

/// What became of the epochs whose sync had failed when the process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsyncedTail {
    /// They never reached the disk.
    Lost,
    /// They did.
    Survived,
}

/// Says for each epoch, in the order of submission, what goes wrong with it.
pub type FaultPlan = Box<dyn FnMut(&EpochCommit) -> CommitFault + Send>;

/// Storage in memory.
pub struct MemoryStorage {
    state: Mutex<State>,
    listeners: Mutex<Vec<QueueListener>>,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    catalog: BTreeMap<Vec<u8>, Vec<u8>>,
    heads: BTreeMap<PartitionId, Head>,
    sink_files: BTreeMap<SinkFileId, SinkFile>,
    /// What was in files that are finished, by their names.
    finished_files: BTreeMap<PathBuf, Vec<u8>>,
    unsynced: Vec<EpochCommit>,
    has_stopped: bool,
    plan: Option<FaultPlan>,
    faults_made: usize,
}

struct SinkFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Default for MemoryStorage {
    fn default() -> MemoryStorage {
        MemoryStorage::new()
    }
}

impl fmt::Debug for MemoryStorage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryStorage")
            .finish_non_exhaustive()
    }
}

impl MemoryStorage {
    /// Empty storage without faults.
    pub fn new() -> MemoryStorage {
        MemoryStorage {
            state: Mutex::new(State::default()),
            listeners: Mutex::default(),
        }
    }

    /// Replaces the plan; `None`: no faults from here on.
    pub fn set_faults(&self, plan: Option<FaultPlan>) {
        self.lock().plan = plan;
    }

    /// How many faults there have been, to show that a test met them.
    pub fn faults_made(&self) -> usize {
        self.lock().faults_made
    }

    /// What a sink file holds.
    pub fn sink_bytes(&self, file: SinkFileId) -> Option<Vec<u8>> {
        (self.lock().sink_files.get(&file)).map(|sink| sink.bytes.clone())
    }

    /// Puts a row there as it is.
    #[cfg(test)]
    pub(crate) fn insert_row(&self, key: &[u8], value: &[u8]) {
        self.lock().rows.insert(key.to_vec(), value.to_vec());
    }

    /// What is in a finished file.
    pub fn finished_bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.lock().finished_files.get(path).cloned()
    }

    /// The process dies and another one opens the same storage. The plan does not come along, nor do those who
    /// listen.
    pub fn crash_and_reopen(self, tail: UnsyncedTail) -> MemoryStorage {
        let mut state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let unsynced = std::mem::take(&mut state.unsynced);
        if tail == UnsyncedTail::Survived {
            for commit in &unsynced {
                state.apply(commit);
            }
        }
        state.has_stopped = false;
        state.plan = None;
        MemoryStorage {
            state: Mutex::new(state),
            listeners: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> Result<MutexGuard<'_, State>, StorageError> {
        let state = self.lock();
        match state.has_stopped {
            false => Ok(state),
            true => Err(StorageError::Stopped),
        }
    }
}

impl State {
    fn commit(
        &mut self,
        lease: &Lease,
        commit: &EpochCommit,
    ) -> Result<CommitOutcome, StorageError> {
        codec::check_storable(commit)?;
        for append in &commit.appends {
            if !self.sink_files.contains_key(&append.file) {
                return Err(StorageError::Unstorable {
                    partition: commit.partition,
                    epoch: commit.epoch,
                    finding: format!("sink file {} is not open", append.file),
                });
            }
        }
        for file in &commit.finished_files {
            let sink = self.sink_files.get(file);
            if sink.and_then(|sink| final_name(&sink.path)).is_none() {
                return Err(StorageError::Unstorable {
                    partition: commit.partition,
                    epoch: commit.epoch,
                    finding: format!("sink file {file} can't be finished"),
                });
            }
        }
        let fault = self
            .plan
            .as_mut()
            .map_or(CommitFault::None, |plan| plan(commit));
        self.faults_made += usize::from(fault != CommitFault::None);
        let row = self.catalog.get(&keys::lease(commit.partition));
        let row = codec::decode_lease(commit.partition, row.map(Vec::as_slice))?;
        let head = self
            .heads
            .get(&commit.partition)
            .copied()
            .unwrap_or_default();
        if let Some(refusal) = judge(&row, &head, lease, EpochName::of(commit)) {
            return Ok(CommitOutcome::Refused(refusal));
        }
        match fault {
            CommitFault::None => Ok(CommitOutcome::Committed(self.apply(commit))),
            CommitFault::Refused => Ok(CommitOutcome::Refused(Refusal::LeaseLost {
                partition: commit.partition,
                held: lease.id,
                current: None,
            })),
            CommitFault::UnknownDecided => {
                self.apply(commit);
                Ok(CommitOutcome::Unknown)
            }
            CommitFault::UnknownUndecided => Ok(CommitOutcome::Unknown),
            CommitFault::FailedSync => {
                self.unsynced.push(commit.clone());
                self.has_stopped = true;
                Ok(CommitOutcome::Unknown)
            }
        }
    }

    fn apply(&mut self, commit: &EpochCommit) -> Head {
        codec::for_each_row(commit, |key, value| {
            let value = match value {
                NewValue::Gone => None,
                NewValue::Bytes(bytes) => Some(bytes.to_vec()),
                NewValue::Chunk(messages) => Some(codec::encode_chunk(messages)),
            };
            match value {
                Some(value) => self.rows.insert(key.to_vec(), value),
                None => self.rows.remove(key),
            };
        });
        let mut places = AppendPlaces::default();
        for append in &commit.queue_appends {
            places.queues.push(self.append_to_queue(append));
        }
        for append in &commit.appends {
            if let Some(sink) = self.sink_files.get_mut(&append.file) {
                places.files.push(sink.bytes.len() as u64);
                sink.bytes.extend_from_slice(&append.bytes);
            }
        }
        for file in &commit.finished_files {
            if let Some(sink) = self.sink_files.remove(file) {
                let name = final_name(&sink.path).unwrap_or(sink.path);
                self.finished_files.insert(name, sink.bytes);
            }
        }
        let predecessor = self
            .heads
            .get(&commit.partition)
            .copied()
            .unwrap_or_default();
        let head = Head {
            generation: commit.generation,
            epoch: commit.epoch,
            checksum: EntryDraft::new(commit).seal(&predecessor, &places),
        };
        self.heads.insert(commit.partition, head);
        head
    }

    fn queue_bounds(&self, queue: PartitionId) -> Result<QueueBounds, StorageError> {
        let row = self.rows.get(&keys::queue_bounds(queue));
        row.map_or(Ok(QueueBounds::default()), |value| {
            decode_queue_bounds(queue, value)
        })
    }

    fn append_to_queue(&mut self, append: &QueueAppend) -> QueuePlace {
        let queue = append.queue;
        let mut bounds = (self.queue_bounds(queue)).expect("only this file writes the row");
        let chunk = QueueChunk {
            place: bounds.next_place(),
            append: append.clone(),
        };
        bounds.cover(&chunk.span());
        self.rows.insert(chunk_key(&chunk.span()), chunk.encode());
        let value = encode_queue_bounds(&bounds);
        self.rows.insert(keys::queue_bounds(queue), value);
        chunk.place
    }

    fn trim_queue(&mut self, queue: PartitionId, before: u64) -> Result<(), StorageError> {
        let bounds = self.queue_bounds(queue)?;
        let (first, end) = keys::all_of(keys::QUEUE_ROWS, queue);
        let start = keys::queue_rows(queue, before.min(bounds.end));
        let at_start = self.scan(&start, &end, ScanLimit::rows(1));
        let trimmed = trimmed_bounds(bounds, before, at_start.first())?;
        if trimmed != bounds {
            self.remove_range(&first, &keys::queue_rows(queue, trimmed.start));
            let value = encode_queue_bounds(&trimmed);
            self.rows.insert(keys::queue_bounds(queue), value);
        }
        Ok(())
    }

    fn remove_range(&mut self, start: &[u8], end: &[u8]) {
        let gone = self.scan(start, end, ScanLimit::rows(usize::MAX));
        gone.iter().for_each(|(key, _)| {
            self.rows.remove(key);
        });
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: ScanLimit) -> Vec<StoredRow> {
        let mut page = ScanPage::new(limit);
        if start >= end {
            return page.into_rows();
        }
        for (key, value) in self.rows.range(start.to_vec()..end.to_vec()) {
            if page.is_full() {
                break;
            }
            page.push(key.clone(), value.clone());
        }
        page.into_rows()
    }
}

impl Storage for MemoryStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.running()?.rows.get(key).cloned())
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        let state = self.running()?;
        Ok(keys
            .iter()
            .map(|key| state.rows.get(key).cloned())
            .collect())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: ScanLimit,
    ) -> Result<Vec<StoredRow>, StorageError> {
        Ok(self.running()?.scan(start, end, limit))
    }

    fn head(&self, partition: PartitionId) -> Result<Head, StorageError> {
        Ok(self
            .running()?
            .heads
            .get(&partition)
            .copied()
            .unwrap_or_default())
    }

    fn submit_epoch(&self, lease: Lease, commit: EpochCommit) -> CommitTicket {
        let answer = match self.running() {
            Ok(mut state) => state.commit(&lease, &commit),
            Err(_) => Ok(CommitOutcome::Unknown),
        };
        if !commit.queue_appends.is_empty() {
            let listeners = self.listeners.lock();
            let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
            let queues: Vec<PartitionId> = (commit.queue_appends.iter())
                .map(|append| append.queue)
                .collect();
            listeners.iter().for_each(|listener| listener(&queues));
        }
        CommitTicket::answered(answer)
    }

    fn read_catalog(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.running()?.catalog.get(key).cloned())
    }

    fn scan_catalog(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StorageError> {
        let state = self.running()?;
        Ok((state.catalog.range(prefix.to_vec()..))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn commit_catalog(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError> {
        check_catalog_change(change)?;
        let mut state = self.running()?;
        let holds = |(key, expected): &(Vec<u8>, Option<Vec<u8>>)| {
            state.catalog.get(key) == expected.as_ref()
        };
        if !change.expectations.iter().all(holds) {
            return Ok(CatalogOutcome::Refused);
        }
        for (key, value) in &change.writes {
            match value {
                Some(value) => state.catalog.insert(key.clone(), value.clone()),
                None => state.catalog.remove(key),
            };
        }
        Ok(CatalogOutcome::Committed)
    }

    fn open_sink_file(&self, path: &Path) -> Result<SinkFileId, StorageError> {
        let known = (self.running()?.sink_files.iter())
            .find(|(_, sink)| sink.path == path)
            .map(|(id, _)| *id);
        if let Some(id) = known {
            return Ok(id);
        }
        if let Some(name) = final_name(path)
            && self.running()?.finished_files.contains_key(&name)
        {
            return Err(StorageError::SinkFile {
                path: path.to_owned(),
                finding: format!("{} is there already", name.display()),
            });
        }
        let id = SinkFileId(leases::allocate(self, Counter::SinkFiles, 1)?);
        let sink = SinkFile {
            path: path.to_owned(),
            bytes: Vec::new(),
        };
        self.running()?.sink_files.insert(id, sink);
        Ok(id)
    }

    fn trim_queues(&self, trims: &[(PartitionId, u64)]) -> Result<(), StorageError> {
        let mut state = self.running()?;
        let mut done = Ok(());
        for (queue, before) in trims {
            // The others are trimmed whatever becomes of one.
            done = done.and(state.trim_queue(*queue, *before));
        }
        done
    }

    fn remove_queue(&self, queue: PartitionId) -> Result<(), StorageError> {
        let mut state = self.running()?;
        let (start, end) = keys::all_of(keys::QUEUE_ROWS, queue);
        state.remove_range(&start, &end);
        state.rows.remove(&keys::queue_bounds(queue));
        Ok(())
    }

    fn on_queue_append(&self, listener: QueueListener) {
        let listeners = self.listeners.lock();
        listeners
            .unwrap_or_else(PoisonError::into_inner)
            .push(listener);
    }

    fn settle(&self) -> Result<(), StorageError> {
        self.running().map(drop)
    }

    fn snapshot(&self) -> Result<Box<dyn StoreSnapshot>, StorageError> {
        let state = self.running()?;
        let mut catalog = state.catalog.clone();
        let heads = state.heads.iter();
        catalog.extend(
            heads.map(|(partition, head)| (keys::head(*partition), codec::encode_head(head))),
        );
        Ok(Box::new(MemorySnapshot {
            catalog: catalog.into_iter().collect(),
            rows: state.rows.clone(),
        }))
    }

    fn size(&self) -> Result<StoreSize, StorageError> {
        Ok(StoreSize::default())
    }
}

/// What was stored at one moment.
struct MemorySnapshot {
    catalog: Vec<StoredRow>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl StoreSnapshot for MemorySnapshot {
    fn catalog(&self) -> &[StoredRow] {
        &self.catalog
    }

    fn scan(&self, start: &[u8], limit: ScanLimit) -> Result<Vec<StoredRow>, StorageError> {
        let mut page = ScanPage::new(limit);
        for (key, value) in self.rows.range(start.to_vec()..) {
            if page.is_full() {
                break;
            }
            page.push(key.clone(), value.clone());
        }
        Ok(page.into_rows())
    }

    fn approximate_rows(&self) -> u64 {
        self.rows.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::contract::{self, commit_of};
    use crate::types::ids::EpochId;

    fn fixture() -> contract::Fixture {
        let storage = Arc::new(MemoryStorage::new());
        let reader = Arc::clone(&storage);
        contract::Fixture {
            storage,
            sink_directory: PathBuf::from("/sinks"),
            read_sink: Box::new(move |id, path| {
                let finished = || reader.finished_bytes(path);
                reader
                    .sink_bytes(id)
                    .or_else(finished)
                    .expect("it is there")
            }),
            keep: Box::new(()),
        }
    }

    crate::storage_contract_tests!(fixture);

    fn storage_with(fault: CommitFault) -> (MemoryStorage, Lease) {
        let storage = MemoryStorage::new();
        let lease = leases::grant(&storage, PartitionId(1)).unwrap();
        storage.set_faults(Some(Box::new(move |commit| match commit.epoch {
            EpochId(1) => fault,
            _ => CommitFault::None,
        })));
        (storage, lease)
    }

    fn check(fault: CommitFault, tail: UnsyncedTail, answered: &str, head: u64) {
        let (storage, lease) = storage_with(fault);
        let outcome = storage.commit_epoch(lease, commit_of(lease, 1)).unwrap();
        assert!(format!("{outcome:?}").starts_with(answered), "{outcome:?}");
        assert_eq!(storage.faults_made(), 1);
        let storage = storage.crash_and_reopen(tail);
        assert_eq!(storage.head(PartitionId(1)).unwrap().epoch, EpochId(head));
        let row = storage
            .get(&keys::epoch_record(PartitionId(1), EpochId(1)))
            .unwrap();
        assert_eq!(row.is_some(), head == 1, "rows and head go together");
    }

    #[test]
    fn each_fault_does_what_it_says() {
        check(CommitFault::Refused, UnsyncedTail::Survived, "Refused", 0);
        check(
            CommitFault::UnknownDecided,
            UnsyncedTail::Lost,
            "Unknown",
            1,
        );
        check(
            CommitFault::UnknownUndecided,
            UnsyncedTail::Survived,
            "Unknown",
            0,
        );
        check(CommitFault::FailedSync, UnsyncedTail::Lost, "Unknown", 0);
        check(
            CommitFault::FailedSync,
            UnsyncedTail::Survived,
            "Unknown",
            1,
        );
    }

    #[test]
    fn after_a_failed_sync_nothing_is_answered() {
        let (storage, lease) = storage_with(CommitFault::FailedSync);
        storage.commit_epoch(lease, commit_of(lease, 1)).unwrap();
        assert!(matches!(
            storage.head(PartitionId(1)),
            Err(StorageError::Stopped)
        ));
        assert!(matches!(storage.get(b"x"), Err(StorageError::Stopped)));
        let outcome = storage.commit_epoch(lease, commit_of(lease, 2)).unwrap();
        assert_eq!(outcome, CommitOutcome::Unknown);
    }
}
