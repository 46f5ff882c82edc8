//! Storage in memory that remembers every decided epoch, in the order of decision, and counts the
//! faults that came to pass. With a mutation it is the engine's accomplice: it commits what the job
//! asked for in a way that a broken engine would.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use tidelock::clock::Clock as _;
use tidelock::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
use tidelock::storage::{
    CatalogChange, CatalogOutcome, CommitOutcome, CommitTicket, Refusal, Storage, StorageError,
    StoredRow,
};
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::{EpochCommit, Head};
use tidelock::types::ids::{Generation, PartitionId, SinkFileId};
use tidelock::types::lease::Lease;

use crate::clock::SimulatedClock;
use crate::faults::{self, DrawnFault, Fault, FaultCounts};
use crate::mutation::{Kept, Mutation};
use crate::random::Random;

/// Why its locks can be taken.
const UNPOISONED: &str = "nobody panics with the history";

/// An epoch that was decided.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    /// What it holds.
    pub(crate) commit: EpochCommit,
    /// What the clock said while it was made.
    pub(crate) at: Timestamp,
}

/// The store of one run.
pub(crate) struct SimulatedStorage {
    clock: Arc<SimulatedClock>,
    memory: MemoryStorage,
    drawn: DrawnFault,
    /// Jobs whose epochs were meant to meet a fault.
    met_fault: Mutex<BTreeSet<(PartitionId, Generation)>>,
    history: Mutex<History>,
    mutation: Option<(Mutation, Mutex<Kept>)>,
}

/// What has become of the epochs.
#[derive(Debug, Default)]
struct History {
    decided: Vec<Decided>,
    /// Whose sync failed: the next opening tells.
    undetermined: Vec<Decided>,
    counts: FaultCounts,
}

impl SimulatedStorage {
    /// Empty storage without faults.
    pub(crate) fn new(clock: Arc<SimulatedClock>, mutation: Option<Mutation>) -> SimulatedStorage {
        SimulatedStorage {
            clock,
            memory: MemoryStorage::new(),
            drawn: DrawnFault::default(),
            met_fault: Mutex::default(),
            history: Mutex::default(),
            mutation: mutation.map(|mutation| (mutation, Mutex::default())),
        }
    }

    /// From here on epochs meet faults, or no longer.
    pub(crate) fn set_faults(&self, random: Option<Random>) {
        *self.drawn.lock().expect(UNPOISONED) = CommitFault::None;
        let drawn = DrawnFault::clone(&self.drawn);
        let plan = random.map(|random| faults::plan(random, drawn));
        self.memory.set_faults(plan);
    }

    /// Whether an epoch of the job that has this lease was meant to meet a fault.
    pub(crate) fn met_fault(&self, lease: Lease) -> bool {
        let met_fault = self.met_fault.lock().expect(UNPOISONED);
        met_fault.contains(&(lease.partition, lease.generation))
    }

    /// Whether a sync has failed.
    pub(crate) fn has_stopped(&self) -> bool {
        matches!(self.memory.settle(), Err(StorageError::Stopped))
    }

    /// The process dies and the store is opened again.
    pub(crate) fn crash_and_reopen(self, tail: UnsyncedTail) -> SimulatedStorage {
        let memory = self.memory.crash_and_reopen(tail);
        let mut history = self.history.into_inner().expect(UNPOISONED);
        let undetermined = std::mem::take(&mut history.undetermined);
        history.counts.add(match (undetermined.is_empty(), tail) {
            (true, _) => Fault::StoreKilled,
            (false, UnsyncedTail::Lost) => Fault::UnsyncedTailLost,
            (false, UnsyncedTail::Survived) => Fault::UnsyncedTailSurvived,
        });
        let was_decided = |one: &Decided| is_head(&memory, &one.commit) == Some(true);
        (history.decided).extend(undetermined.into_iter().filter(was_decided));
        SimulatedStorage {
            clock: self.clock,
            memory,
            drawn: DrawnFault::default(),
            met_fault: Mutex::default(),
            history: Mutex::new(history),
            mutation: self.mutation,
        }
    }

    /// Every decided epoch so far, in the order of decision.
    pub(crate) fn decided(&self) -> Vec<Decided> {
        self.history().decided.clone()
    }

    /// The faults that came to pass.
    pub(crate) fn counts(&self) -> FaultCounts {
        self.history().counts.clone()
    }

    /// What the clock says.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Counts a fault that was made elsewhere.
    pub(crate) fn count(&self, fault: Fault) {
        self.history().counts.add(fault);
    }

    /// What a sink's file holds.
    pub(crate) fn sink_bytes(&self, file: SinkFileId) -> Vec<u8> {
        self.memory.sink_bytes(file).unwrap_or_default()
    }

    /// Commits an epoch as it is and remembers what became of it.
    pub(crate) fn commit_honestly(
        &self,
        lease: Lease,
        commit: EpochCommit,
    ) -> Result<CommitOutcome, StorageError> {
        let outcome = self.memory.commit_epoch(lease, commit.clone())?;
        let meets_fault = *self.drawn.lock().expect(UNPOISONED) != CommitFault::None;
        if meets_fault {
            let mut met_fault = self.met_fault.lock().expect(UNPOISONED);
            met_fault.insert((lease.partition, lease.generation));
        }
        let mut history = self.history();
        let is_head = is_head(&self.memory, &commit);
        let at = self.clock.now();
        let decided = Decided { commit, at };
        match outcome {
            CommitOutcome::Committed(_) => history.decided.push(decided),
            CommitOutcome::Refused(Refusal::LeaseLost { current: None, .. }) if meets_fault => {
                history.counts.add(Fault::EpochRefused);
            }
            CommitOutcome::Refused(_) => history.counts.add(Fault::StaleEpochRefused),
            CommitOutcome::Unknown => match is_head {
                Some(true) => {
                    history.counts.add(Fault::AnswerLostDecided);
                    history.decided.push(decided);
                }
                Some(false) => history.counts.add(Fault::AnswerLostUndecided),
                None => history.undetermined.push(decided),
            },
        }
        Ok(outcome)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect(UNPOISONED)
    }
}

/// Whether the epoch is its partition's head; `None` while the store has stopped.
fn is_head(memory: &MemoryStorage, commit: &EpochCommit) -> Option<bool> {
    let head = memory.head(commit.partition).ok()?;
    Some((head.generation, head.epoch) == (commit.generation, commit.epoch))
}

impl Storage for SimulatedStorage {
    fn submit_epoch(&self, lease: Lease, commit: EpochCommit) -> CommitTicket {
        CommitTicket::answered(match &self.mutation {
            None => self.commit_honestly(lease, commit),
            Some((mutation, kept)) => {
                let mut kept = kept.lock().expect(UNPOISONED);
                mutation.commit(self, lease, commit, &mut kept)
            }
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.memory.get(key)
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        self.memory.get_many(keys)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<StoredRow>, StorageError> {
        self.memory.scan(start, end, limit)
    }

    fn head(&self, partition: PartitionId) -> Result<Head, StorageError> {
        self.memory.head(partition)
    }

    fn read_catalog(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.memory.read_catalog(key)
    }

    fn scan_catalog(&self, prefix: &[u8]) -> Result<Vec<StoredRow>, StorageError> {
        self.memory.scan_catalog(prefix)
    }

    fn commit_catalog(&self, change: &CatalogChange) -> Result<CatalogOutcome, StorageError> {
        self.memory.commit_catalog(change)
    }

    fn open_sink_file(&self, path: &Path) -> Result<SinkFileId, StorageError> {
        self.memory.open_sink_file(path)
    }

    fn settle(&self) -> Result<(), StorageError> {
        self.memory.settle()
    }
}
