//! Storage in memory that remembers every decided epoch, in the order of decision, and counts the
//! faults that came to pass. With a mutation it is the engine's accomplice: it commits what the job
//! asked for in a way that a broken engine would.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tidelock::clock::Clock as _;
use tidelock::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
use tidelock::storage::queue_rows::read_bounds;
use tidelock::storage::scan::ScanLimit;
use tidelock::storage::{
    CatalogChange, CatalogOutcome, CommitOutcome, CommitTicket, QueueListener, Refusal, Storage,
    StorageError, StoreSize, StoreSnapshot, StoredRow, keys, leases, rows,
};
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::{EpochCommit, Head};
use tidelock::types::ids::{Generation, PartitionId, SinkFileId};
use tidelock::types::lease::Lease;
use tidelock::types::queue::{QueueAppend, QueueRows};

use crate::clock::SimulatedClock;
use crate::faults::{self, DrawnFault, FEEDER, Fault, FaultCounts};
use crate::history::{Decided, HandedOn, History};
use crate::mutation::{Kept, Mutation, reads_on_in_a_lane};
use crate::random::Random;

/// Why its locks can be taken.
const UNPOISONED: &str = "nobody panics with the history";

/// Reads of which one fails, while things go wrong.
const READS_PER_FAULT: usize = 1_000;

/// Changes of the catalog in a start of which one is the last one, while things go wrong.
const CATALOG_CHANGES_PER_DEATH: usize = 300;

/// The store of one run.
pub(crate) struct SimulatedStorage {
    clock: Arc<SimulatedClock>,
    memory: MemoryStorage,
    drawn: DrawnFault,
    /// Jobs whose epochs were meant to meet a fault.
    met_fault: Mutex<BTreeSet<(PartitionId, Generation)>>,
    /// Says which reads fail; `None`: none does.
    read_faults: Mutex<Option<Random>>,
    /// Whether a read has failed since somebody asked.
    has_failed_reading: AtomicBool,
    /// Whether no job runs yet.
    is_starting: Arc<AtomicBool>,
    /// Whether anything went wrong since the start began.
    start_met_fault: AtomicBool,
    /// For each partition the rows of states that the epoch which its job has submitted last changes.
    changed_states: Mutex<BTreeMap<PartitionId, BTreeSet<Vec<u8>>>>,
    /// A row that a job read back before it submitted another epoch.
    read_back: Mutex<Option<Vec<u8>>>,
    lane_bytes_max: AtomicU64,
    start: AtomicUsize,
    history: Mutex<History>,
    mutation: Option<(Mutation, Mutex<Kept>)>,
}

impl SimulatedStorage {
    /// Empty storage without faults.
    pub(crate) fn new(clock: Arc<SimulatedClock>, mutation: Option<Mutation>) -> SimulatedStorage {
        SimulatedStorage {
            clock,
            memory: MemoryStorage::new(),
            drawn: DrawnFault::default(),
            met_fault: Mutex::default(),
            read_faults: Mutex::default(),
            has_failed_reading: AtomicBool::new(false),
            is_starting: Arc::default(),
            start_met_fault: AtomicBool::new(false),
            changed_states: Mutex::default(),
            read_back: Mutex::default(),
            lane_bytes_max: AtomicU64::new(u64::MAX),
            start: AtomicUsize::new(0),
            history: Mutex::default(),
            mutation: mutation.map(|mutation| (mutation, Mutex::default())),
        }
    }

    /// From here on epochs and reads meet faults, or no longer.
    pub(crate) fn set_faults(&self, mut random: Option<Random>) {
        *self.read_faults.lock().expect(UNPOISONED) = random.as_mut().map(Random::fork);
        *self.drawn.lock().expect(UNPOISONED) = CommitFault::None;
        let drawn = DrawnFault::clone(&self.drawn);
        let is_starting = self.is_starting.clone();
        let plan = random.map(|random| faults::plan(random, drawn, is_starting));
        self.memory.set_faults(plan);
    }

    /// Whether a read has failed since this was asked last; counts it.
    pub(crate) fn take_failed_read(&self) -> bool {
        let has_failed = self.has_failed_reading.swap(false, Ordering::Relaxed);
        if has_failed {
            self.count(Fault::ReadFailed);
        }
        has_failed
    }

    /// A start begins, before which no job runs, or is over.
    pub(crate) fn set_starting(&self, is_starting: bool) {
        self.is_starting.store(is_starting, Ordering::Relaxed);
    }

    /// Whether anything went wrong in the start that is over.
    pub(crate) fn take_start_fault(&self) -> bool {
        self.take_failed_read();
        self.start_met_fault.swap(false, Ordering::Relaxed)
    }

    fn is_starting(&self) -> bool {
        self.is_starting.load(Ordering::Relaxed)
    }

    /// In one catalog change of a start of this many, the process dies before or after it.
    fn dies_at_catalog_change(&self) -> Option<Death> {
        if !self.is_starting() {
            return None;
        }
        let mut faults = self.read_faults.lock().expect(UNPOISONED);
        let random = faults.as_mut()?;
        let death = match random.within(0..=CATALOG_CHANGES_PER_DEATH) {
            0 => Some(Death::Before),
            1 => Some(Death::After),
            _ => None,
        };
        if death.is_some() {
            self.start_met_fault.store(true, Ordering::Relaxed);
        }
        death
    }

    /// Another job begins for a partition: it knows of no epoch that is not decided.
    pub(crate) fn job_begins(&self, partition: PartitionId) {
        self.changed_states
            .lock()
            .expect(UNPOISONED)
            .remove(&partition);
    }

    /// A state that a job read back though storage need not have it: the epoch that changed it may be
    /// undecided until the job submits the next one.
    pub(crate) fn take_read_back(&self) -> Option<Vec<u8>> {
        self.read_back.lock().expect(UNPOISONED).take()
    }

    /// Whether the watermark has passed a stored row that an epoch removes: it is absent wherever it is still
    /// stored.
    fn has_gone_by_age(&self, commit: &EpochCommit, state: &str, key: &[u8]) -> bool {
        let time = &commit.record.time;
        if !time.ages.states.iter().any(|age| age.state == state) {
            return false;
        }
        let stored = rows::read_states(&self.memory, commit.partition, state, &[key]);
        let touched = stored.ok().and_then(|stored| Some(stored.first()?.touched));
        touched.is_some_and(|touched| touched <= time.latest_watermark)
    }

    fn note_changed_states(&self, commit: &EpochCommit) {
        let rows = commit.states.iter().flat_map(|states| {
            let keys = states.keys.iter().enumerate();
            keys.filter(|(row, key)| {
                let is_removed = states.values.get(*row).is_empty();
                !(is_removed && self.has_gone_by_age(commit, &states.state, key))
            })
            .map(|(_, key)| keys::state(commit.partition, &states.state, key))
            .collect::<Vec<_>>()
        });
        let mut changed = self.changed_states.lock().expect(UNPOISONED);
        changed.insert(commit.partition, rows.collect());
    }

    fn note_read_back(&self, rows: &[Vec<u8>]) {
        if self.is_starting() {
            return;
        }
        let changed = self.changed_states.lock().expect(UNPOISONED);
        let is_changed = |row: &&Vec<u8>| {
            let of_partition = keys::owner(row).and_then(|partition| changed.get(&partition));
            of_partition.is_some_and(|changed| changed.contains(*row))
        };
        if let Some(row) = rows.iter().find(is_changed) {
            *self.read_back.lock().expect(UNPOISONED) = Some(row.clone());
        }
    }

    /// Fails now and then.
    fn read(&self) -> Result<(), StorageError> {
        let mut faults = self.read_faults.lock().expect(UNPOISONED);
        match faults
            .as_mut()
            .map(|random| random.within(0..=READS_PER_FAULT))
        {
            Some(0) => {
                self.has_failed_reading.store(true, Ordering::Relaxed);
                self.start_met_fault.store(true, Ordering::Relaxed);
                Err(failure("read"))
            }
            _ => Ok(()),
        }
    }

    /// From here on epochs come after this start of a worker.
    pub(crate) fn set_start(&self, number: usize) {
        self.start.store(number, Ordering::Relaxed);
    }

    /// From here on lanes hold this many bytes at most, and an epoch.
    pub(crate) fn set_lane_bytes_max(&self, bytes: u64) {
        self.lane_bytes_max.store(bytes, Ordering::Relaxed);
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
            memory,
            history: Mutex::new(history),
            mutation: self.mutation,
            ..SimulatedStorage::new(self.clock, None)
        }
    }

    /// Appends rows to a queue, as long as `rows` has any for where it ends, outside of what is judged.
    pub(crate) fn put_into_queue(
        &self,
        queue: PartitionId,
        mut rows: impl FnMut(u64) -> Option<QueueRows>,
    ) {
        let sound = "nothing goes wrong outside of jobs";
        loop {
            let bounds = read_bounds(&self.memory, queue).expect(sound);
            let Some(rows) = rows(bounds.end) else {
                return;
            };
            let lease = leases::grant(&self.memory, FEEDER).expect(sound);
            let epoch = self.memory.head(FEEDER).expect(sound).epoch.next();
            let append = QueueAppend {
                queue,
                rows: Arc::new(rows),
            };
            let commit = EpochCommit {
                queue_appends: vec![append],
                ..EpochCommit::empty(&lease, epoch)
            };
            let outcome = self.memory.commit_epoch(lease, commit).expect(sound);
            assert!(matches!(outcome, CommitOutcome::Committed(_)), "{sound}");
        }
    }

    /// Every decided epoch so far, in the order of decision.
    pub(crate) fn decided(&self) -> Vec<Decided> {
        self.history().decided.clone()
    }

    /// How many epochs have been decided so far.
    pub(crate) fn decided_count(&self) -> usize {
        self.history().decided.len()
    }

    /// A job has handed on what it has written in the first `up_to` decided epochs.
    pub(crate) fn hand_on(&self, partition: PartitionId, up_to: usize) {
        let mut history = self.history();
        let after = history.decided.len();
        history.handed_on.push(HandedOn {
            after,
            partition,
            up_to,
        });
    }

    /// What jobs have handed on, in that order.
    pub(crate) fn handed_on(&self) -> Vec<HandedOn> {
        self.history().handed_on.clone()
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
        // A job that has lost its lease is none any more.
        let current = leases::current(&self.memory, lease.partition)?;
        if current == Some(lease) {
            self.note_changed_states(&commit);
        }
        let outcome = self.memory.commit_epoch(lease, commit.clone())?;
        let meets_fault = *self.drawn.lock().expect(UNPOISONED) != CommitFault::None;
        if meets_fault {
            let mut met_fault = self.met_fault.lock().expect(UNPOISONED);
            met_fault.insert((lease.partition, lease.generation));
            self.start_met_fault.store(true, Ordering::Relaxed);
        }
        let mut history = self.history();
        let is_head = is_head(&self.memory, &commit);
        let at = self.clock.now();
        let decided = Decided {
            commit,
            at,
            start: self.start.load(Ordering::Relaxed),
            is_move: self.is_starting(),
            lane_bytes_max: self.lane_bytes_max.load(Ordering::Relaxed),
        };
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

/// When a process dies at a change of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    Before,
    After,
}

fn failure(action: &'static str) -> StorageError {
    StorageError::File {
        action,
        path: PathBuf::from("simulated"),
        source: io::Error::other("the simulation has it fail"),
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
        self.read()?;
        if let Some((Mutation::PassedMessagesMoved, _)) = self.mutation
            && self.is_starting()
            && key.first() == Some(&keys::FRONTIER)
        {
            return Ok(None);
        }
        self.memory.get(key)
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        self.read()?;
        self.note_read_back(keys);
        let mut values = self.memory.get_many(keys)?;
        if let Some((Mutation::StatesNotReadBack, _)) = self.mutation {
            let states = keys.iter().zip(&mut values);
            let states = states.filter(|(key, _)| key.first() == Some(&keys::STATE));
            states.for_each(|(_, value)| *value = None);
        }
        Ok(values)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: ScanLimit,
    ) -> Result<Vec<StoredRow>, StorageError> {
        self.read()?;
        if let Some((Mutation::GapSkipped, _)) = self.mutation
            && reads_on_in_a_lane(start)
        {
            let mut rows = self.memory.scan(start, end, ScanLimit::rows(usize::MAX))?;
            return Ok(rows.pop().into_iter().collect());
        }
        let mut rows = self.memory.scan(start, end, limit)?;
        if let Some((Mutation::StateNotMoved, _)) = self.mutation
            && self.is_starting()
            && start.first() == Some(&keys::STATE)
            && limit.rows > 1
        {
            rows.truncate(rows.len().saturating_sub(1));
        }
        Ok(rows)
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
        let death = self.dies_at_catalog_change();
        if death == Some(Death::Before) {
            return Err(failure("write"));
        }
        let outcome = self.memory.commit_catalog(change)?;
        match death {
            Some(_) => Err(failure("write")),
            None => Ok(outcome),
        }
    }

    fn open_sink_file(&self, path: &Path) -> Result<SinkFileId, StorageError> {
        self.memory.open_sink_file(path)
    }

    fn trim_queues(&self, trims: &[(PartitionId, u64)]) -> Result<(), StorageError> {
        self.memory.trim_queues(trims)
    }

    fn remove_queue(&self, queue: PartitionId) -> Result<(), StorageError> {
        self.memory.remove_queue(queue)
    }

    fn on_queue_append(&self, listener: QueueListener) {
        self.memory.on_queue_append(listener);
    }

    fn settle(&self) -> Result<(), StorageError> {
        self.memory.settle()
    }

    fn snapshot(&self) -> Result<Box<dyn StoreSnapshot>, StorageError> {
        self.memory.snapshot()
    }

    fn size(&self) -> Result<StoreSize, StorageError> {
        self.memory.size()
    }
}
