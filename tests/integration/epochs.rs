//! What one epoch is, job by job: real jobs, guests, a file source and a file sink over storage in
//! memory, where each epoch can meet each fault. A job that reads a file writes a lane; a transform
//! reads it, keeps two states, answers into a sink, and writes a lane that nobody reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use guest_behaviours::trace::STATES;
use tidelock::clock::Clock;
use tidelock::guest::{Component, Computation, ComputationSettings, GuestOptions, GuestRuntime};
use tidelock::sink::file::FileSink;
use tidelock::source::{Opening, open};
use tidelock::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
use tidelock::storage::rows::{self, ChunkLimit};
use tidelock::storage::scan::ScanLimit;
use tidelock::storage::{Refusal, Storage, leases};
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::{ChunkMessages, EpochCommit, FrontierAdvance};
use tidelock::types::ids::{EpochId, LaneId, PartitionId, StreamId};
use tidelock::types::lease::Lease;
use tidelock::types::pipeline::{
    CallLimits, EpochLimits, FileSourceOptions, Grants, InstancePolicy, LaneLimits, OnFailure,
    RecordFormat, SourceConnector, WatermarkOptions,
};
use tidelock::worker::announced::{AnnouncedJob, JobContext};
use tidelock::worker::board::LaneBoard;
use tidelock::worker::error::JobError;
use tidelock::worker::job::{Job, JobStep};
use tidelock::worker::plan::{
    FailurePlan, InputPlan, JobMemory, JobPlan, LanePlan, NodePlan, PartitionPlace, SinkPlan,
    SinkTarget, SourcePlan, StreamPlan, TimePlan,
};
use tidelock::worker::progress::RunProgress;

const SOURCE: PartitionId = PartitionId(1);
const TRANSFORM: PartitionId = PartitionId(2);
const RECORDS: StreamId = StreamId(1);
const ANSWERS: StreamId = StreamId(2);
const NOTICES: StreamId = StreamId(3);
/// From the source to the transform.
const INNER: LaneId = LaneId {
    producer: SOURCE,
    stream: RECORDS,
    reader: TRANSFORM,
};
/// From the transform to a partition that never runs.
const OUTER: LaneId = LaneId {
    producer: TRANSFORM,
    stream: NOTICES,
    reader: PartitionId(3),
};
/// Where the rows of the sink are.
const SINK: &str = "/sinks/answers";
/// Records of the source.
const RECORD_COUNT: usize = 42;
/// When the source was written.
const WRITE_TIME: Timestamp = 1_000;
/// No epoch of these runs is larger.
const ALL: ChunkLimit = ChunkLimit {
    chunks: 1_000,
    bytes: 1 << 20,
};

static TALLY: LazyLock<(Arc<GuestRuntime>, Component)> = LazyLock::new(|| {
    let runtime = GuestRuntime::new(GuestOptions::default()).expect("the guest runtime starts");
    let bytes = std::fs::read(harness::component("trace_tally")).expect("the guest can be read");
    let component = runtime.load(&bytes).expect("the guest loads");
    (runtime, component)
});

/// A clock that a test sets.
#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl TestClock {
    fn set(&self, now: Timestamp) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now())
    }

    fn now(&self) -> Timestamp {
        self.0.load(Ordering::Relaxed)
    }
}

/// The two jobs and all that they need.
struct Jobs {
    storage: Arc<MemoryStorage>,
    clock: Arc<TestClock>,
    folder: tempfile::TempDir,
    board: Arc<LaneBoard>,
}

impl Jobs {
    fn new() -> Jobs {
        let folder = tempfile::tempdir().expect("a folder");
        let records: String = (0..RECORD_COUNT).map(|at| format!("r{at}\n")).collect();
        let path = folder.path().join("records");
        std::fs::write(&path, records).expect("the source can be written");
        let file = std::fs::File::options().append(true).open(&path);
        let time = UNIX_EPOCH + Duration::from_millis(WRITE_TIME);
        (file.and_then(|file| file.set_modified(time))).expect("its time can be set");
        let storage = MemoryStorage::new();
        storage
            .open_sink_file(Path::new(SINK))
            .expect("the store is sound");
        Jobs {
            storage: Arc::new(storage),
            clock: Arc::default(),
            folder,
            board: Arc::new(LaneBoard::new(LaneLimits::default())),
        }
    }

    /// The source has been read to its end already; its job is gone.
    fn with_source_read() -> Jobs {
        let jobs = Jobs::new();
        let mut source = jobs.source(7);
        while !matches!(source.step().expect("nothing fails"), JobStep::Idle) {}
        jobs
    }

    /// The machine stops and starts: what was not durable is gone or not, and so is the board.
    fn reopen(self, tail: UnsyncedTail) -> Jobs {
        let Jobs {
            storage,
            clock,
            folder,
            board,
        } = self;
        drop(board);
        let storage = Arc::into_inner(storage).expect("no job is left");
        let jobs = Jobs {
            storage: Arc::new(storage.crash_and_reopen(tail)),
            clock,
            folder,
            board: Arc::new(LaneBoard::new(LaneLimits::default())),
        };
        // Its lane is on the new board again, and the source at its end.
        drop(jobs.source(7));
        jobs.board.close(INNER);
        jobs
    }

    fn context(&self) -> JobContext {
        JobContext {
            storage: self.storage.clone(),
            board: Arc::clone(&self.board),
            progress: RunProgress::default(),
            clock: self.clock.clone(),
        }
    }

    fn grant(&self, partition: PartitionId) -> Lease {
        leases::grant(&*self.storage, partition).expect("the store is sound")
    }

    /// The job of the source, under a new lease, with epochs of `rows` records.
    fn source(&self, rows: usize) -> Job {
        let position = rows::read_source_position(&*self.storage, SOURCE).expect("it is sound");
        let connector = SourceConnector::File(FileSourceOptions {
            follow: false,
            path: self.folder.path().join("records"),
            written_path: "records".to_owned(),
            format: RecordFormat::Lines,
            max_record_bytes: FileSourceOptions::RECORD_BYTES_MAX_DEFAULT,
        });
        let source = open(&connector, Opening::at(position.as_deref()));
        let plan = JobPlan {
            pipeline: "records".to_owned(),
            run: 1,
            time: TimePlan::default(),
            name: "records".to_owned(),
            place: PartitionPlace::new(0, 1),
            lease: self.grant(SOURCE),
            deployment: 1,
            limits: limits(rows, rows),
            memory: JobMemory::default(),
            input: InputPlan::Source(SourcePlan {
                watermarks: WatermarkOptions::default(),
                on_failure: OnFailure::Fail,
                reads_on: false,
                described: "source records".to_owned(),
                source: source.expect("the source opens"),
                turn: None,
            }),
            transform: None,
            maps: Vec::new(),
            streams: vec![StreamPlan {
                name: "records".to_owned(),
                id: RECORDS,
                readers: vec![vec![TRANSFORM]],
                sinks: Vec::new(),
            }],
            sinks: Vec::new(),
        };
        self.open(plan)
    }

    /// The job of the transform, under a new lease.
    fn transform(&self, limits: EpochLimits) -> Job {
        let lease = self.grant(TRANSFORM);
        let (runtime, component) = &*TALLY;
        let settings = ComputationSettings {
            name: "tally".to_owned(),
            parameters: "{\"name\":\"t\"}".to_owned(),
            grants: Grants::default(),
            limits: CallLimits::default(),
            instance: InstancePolicy::Fresh,
            relaxed_batching: false,
        };
        let computation = Computation::new(runtime, component, settings);
        let file = self.storage.open_sink_file(Path::new(SINK));
        let stream = |name: &str, id, readers, sinks| StreamPlan {
            name: name.to_owned(),
            id,
            readers,
            sinks,
        };
        let plan = JobPlan {
            pipeline: "records".to_owned(),
            run: 1,
            time: TimePlan::default(),
            name: "tally".to_owned(),
            place: PartitionPlace::new(0, 1),
            lease,
            deployment: 1,
            limits,
            memory: JobMemory::default(),
            input: InputPlan::Lanes(vec![LanePlan {
                lane: INNER,
                input: 0,
                delay: Duration::ZERO,
                retiring: None,
            }]),
            transform: Some(NodePlan {
                failure: FailurePlan::default(),
                name: "tally".to_owned(),
                computation: computation.expect("the guest can be called"),
                inputs: Vec::new(),
                outputs: vec![0, 1],
            }),
            maps: Vec::new(),
            streams: vec![
                stream("answers", ANSWERS, Vec::new(), vec![0]),
                stream("notices", NOTICES, vec![vec![OUTER.reader]], Vec::new()),
            ],
            sinks: vec![SinkPlan {
                name: "answers".to_owned(),
                sink: Box::new(FileSink::new()),
                target: SinkTarget::File(file.expect("the store is sound")),
            }],
        };
        self.open(plan)
    }

    fn open(&self, plan: JobPlan) -> Job {
        let job = AnnouncedJob::announce(plan, self.context());
        job.expect("its lanes can be announced")
            .open()
            .expect("the job opens")
    }

    /// Everything that the transform's epochs have written, as storage has it now.
    fn written(&self) -> Written {
        let storage = &*self.storage;
        let states = STATES.map(|state| {
            let page = rows::scan_states(storage, TRANSFORM, state, b"", ScanLimit::rows(1_000));
            let rows = page.expect("states can be read").rows.into_iter();
            rows.map(|(key, stored)| (key, stored.value)).collect()
        });
        let file = storage
            .open_sink_file(Path::new(SINK))
            .expect("it is there");
        Written {
            epoch: storage.head(TRANSFORM).expect("the store is sound").epoch,
            frontier: rows::read_frontier(storage, INNER).expect("it can be read"),
            states,
            chunks: rows::read_chunks(storage, OUTER, EpochId::NONE, ALL).expect("as well"),
            sink: storage.sink_bytes(file).unwrap_or_default(),
        }
    }

    /// From here on the `at`th epoch of `partition` meets a fault.
    fn plan_fault(&self, partition: PartitionId, at: u64, fault: CommitFault) {
        self.storage
            .set_faults(Some(Box::new(move |commit: &EpochCommit| {
                match commit.partition == partition && commit.epoch == EpochId(at) {
                    true => fault,
                    false => CommitFault::None,
                }
            })));
    }
}

/// What the transform's partition stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Written {
    epoch: EpochId,
    frontier: Option<FrontierAdvance>,
    states: [Vec<(Vec<u8>, Vec<u8>)>; STATES.len()],
    chunks: Vec<(EpochId, ChunkMessages)>,
    sink: Vec<u8>,
}

fn limits(rows_per_batch: usize, rows_per_epoch: usize) -> EpochLimits {
    EpochLimits {
        max_rows_per_batch: rows_per_batch,
        max_rows_per_epoch: rows_per_epoch,
        ..EpochLimits::default()
    }
}

/// Takes steps until there is nothing to do, or until the job fails.
fn go_on(job: &mut Job) -> Result<(), JobError> {
    while job.step()? == JobStep::Advanced {}
    Ok(())
}

/// Epochs of seven messages.
const SEVEN: EpochLimits = EpochLimits {
    max_rows_per_batch: 3,
    max_bytes_per_batch: 1 << 20,
    max_rows_per_epoch: 7,
    max_bytes_per_epoch: 1 << 20,
    max_duration: Duration::MAX,
};

/// What the transform stands at after each epoch of an undisturbed run, before the first one too.
fn undisturbed() -> BTreeMap<EpochId, Written> {
    let jobs = Jobs::with_source_read();
    let mut states = BTreeMap::from([(EpochId::NONE, jobs.written())]);
    let mut transform = jobs.transform(SEVEN);
    while transform.step().expect("nothing fails") == JobStep::Advanced {
        let written = jobs.written();
        states.insert(written.epoch, written);
    }
    // Before the first epoch, those of messages, and that of the last watermark step.
    let expected = 1 + RECORD_COUNT / 7 + 1;
    assert_eq!(states.len(), expected, "each epoch was seen");
    states
}

/// Each fault, with whether the epoch that met it is decided in the end.
fn faults() -> [(CommitFault, Option<UnsyncedTail>, bool); 5] {
    [
        (CommitFault::Refused, None, false),
        (CommitFault::UnknownDecided, None, true),
        (CommitFault::UnknownUndecided, None, false),
        (CommitFault::FailedSync, Some(UnsyncedTail::Lost), false),
        (CommitFault::FailedSync, Some(UnsyncedTail::Survived), true),
    ]
}

/// Lets the `at`th epoch of the transform meet a fault; what storage has afterwards, and at the end
/// of a successor that nothing disturbs.
fn disturb(at: u64, fault: CommitFault, tail: Option<UnsyncedTail>) -> (Written, Written) {
    let mut jobs = Jobs::with_source_read();
    jobs.plan_fault(TRANSFORM, at, fault);
    let mut transform = jobs.transform(SEVEN);
    let error = go_on(&mut transform).expect_err("the epoch meets its fault");
    assert!(
        matches!(
            error,
            JobError::Refused(_) | JobError::OutcomeUnknown { .. }
        ),
        "{error}"
    );
    assert_eq!(jobs.storage.faults_made(), 1);
    drop(transform);
    if let Some(tail) = tail {
        jobs = jobs.reopen(tail);
    }
    jobs.storage.set_faults(None);
    let after = jobs.written();
    let mut successor = jobs.transform(SEVEN);
    go_on(&mut successor).expect("nothing disturbs it");
    (after, jobs.written())
}

#[test]
fn o3_frontier_states_chunks_and_rows_of_an_epoch_are_all_there_or_none_is() {
    let undisturbed = undisturbed();
    let last = undisturbed.values().last().expect("there are epochs");
    for at in 1..=(RECORD_COUNT / 7) as u64 {
        for (fault, tail, is_decided) in faults() {
            let (after, at_end) = disturb(at, fault, tail);
            let expected = EpochId(if is_decided { at } else { at - 1 });
            assert_eq!(after, undisturbed[&expected], "{fault:?} at epoch {at}");
            assert_eq!(at_end, *last, "after {fault:?} at epoch {at}");
        }
    }
    // Each epoch changes each part, so that one that was left out would have been seen.
    let of_messages: Vec<&Written> = undisturbed.values().take(1 + RECORD_COUNT / 7).collect();
    for (before, after) in of_messages.iter().zip(of_messages.iter().skip(1)) {
        assert!(before.frontier != after.frontier && before.states != after.states);
        assert!(before.chunks != after.chunks && before.sink != after.sink);
    }
}

#[test]
fn o1_rows_of_a_synchronous_sink_are_there_exactly_when_their_epoch_is() {
    let undisturbed = undisturbed();
    for (fault, tail, is_decided) in faults() {
        let (after, at_end) = disturb(3, fault, tail);
        let rows = |written: &Written| written.sink.iter().filter(|byte| **byte == b'\n').count();
        let expected = if is_decided { 21 } else { 14 };
        assert_eq!(
            rows(&after),
            expected,
            "{fault:?}: one row for each message"
        );
        assert_eq!(after.epoch, EpochId(expected as u64 / 7), "{fault:?}");
        let whole = &undisturbed.values().last().expect("there are epochs").sink;
        assert_eq!(&at_end.sink, whole, "{fault:?}: no row twice, none missing");
    }
}

#[test]
fn d3_a_sources_position_moves_only_with_its_epoch() {
    for (fault, tail, is_decided) in faults() {
        let mut jobs = Jobs::new();
        jobs.plan_fault(SOURCE, 3, fault);
        let mut source = jobs.source(4);
        let before = |jobs: &Jobs| {
            rows::read_source_position(&*jobs.storage, SOURCE).expect("it can be read")
        };
        assert_eq!(before(&jobs), None, "opened, not read");
        for _epoch in 1..=2 {
            source.step().expect("nothing fails yet");
        }
        let second = before(&jobs);
        let error = go_on(&mut source).expect_err("the third epoch meets its fault");
        assert!(matches!(
            error,
            JobError::Refused(_) | JobError::OutcomeUnknown { .. }
        ));
        drop(source);
        if let Some(tail) = tail {
            jobs = jobs.reopen(tail);
        }
        jobs.storage.set_faults(None);
        let position = before(&jobs);
        assert_eq!(position != second, is_decided, "{fault:?}");
        let mut source = jobs.source(4);
        go_on(&mut source).expect("nothing disturbs it");
        let chunks = rows::read_chunks(&*jobs.storage, INNER, EpochId::NONE, ALL);
        let chunks = chunks.expect("chunks can be read");
        let records = chunks.iter().flat_map(|(_, chunk)| chunk.payloads.iter());
        let records: Vec<String> = records
            .map(|record| String::from_utf8_lossy(record).into_owned())
            .collect();
        let all: Vec<String> = (0..RECORD_COUNT).map(|at| format!("r{at}")).collect();
        assert_eq!(records, all, "{fault:?}: each record once, in order");
    }
}

#[test]
fn n2_of_two_attempts_at_an_epoch_one_is_applied_whole() {
    // Both stand at the same head and take the same messages, in other epochs and at another time.
    let three = limits(3, 3);
    let alone = {
        let jobs = Jobs::with_source_read();
        jobs.clock.set(70);
        let mut job = jobs.transform(three);
        job.step().expect("nothing fails");
        jobs.written()
    };
    let jobs = Jobs::with_source_read();
    let mut zombie = jobs.transform(SEVEN);
    let mut successor = jobs.transform(three);
    jobs.clock.set(60);
    // Its epoch goes out after its lease ended, and it goes on unaware.
    assert_eq!(
        zombie.step().expect("it does not know yet"),
        JobStep::Advanced
    );
    assert_eq!(
        jobs.written().epoch,
        EpochId::NONE,
        "nothing of it is there"
    );
    jobs.clock.set(70);
    assert_eq!(
        successor.step().expect("it has the lease"),
        JobStep::Advanced
    );
    assert_eq!(jobs.written(), alone, "the successor's attempt, whole");
    let refused = go_on(&mut zombie).expect_err("its lease is over");
    let is_over = |error: &JobError| matches!(error, JobError::Refused(Refusal::LeaseLost { .. }));
    assert!(is_over(&refused), "{refused}");
    assert_eq!(jobs.written(), alone, "nothing of the other one");
    // And the other way about: what was decided under the old lease counts, and is not done again.
    let jobs = Jobs::with_source_read();
    let mut first = jobs.transform(SEVEN);
    assert_eq!(first.step().expect("it has the lease"), JobStep::Advanced);
    let decided = jobs.written();
    let mut second = jobs.transform(three);
    assert!(is_over(&go_on(&mut first).expect_err("its lease is over")));
    assert_eq!(jobs.written(), decided);
    go_on(&mut second).expect("nothing disturbs it");
    let whole = undisturbed()
        .into_values()
        .last()
        .expect("there are epochs");
    assert_eq!(jobs.written().states, whole.states);
    assert_eq!(jobs.written().sink, whole.sink);
}

#[test]
fn n3_states_outputs_and_their_order_do_not_depend_on_batches_and_epochs() {
    let run = |limits: EpochLimits| {
        let jobs = Jobs::with_source_read();
        let mut job = jobs.transform(limits);
        go_on(&mut job).expect("nothing fails");
        let written = jobs.written();
        let mut outputs = Vec::new();
        for (_, chunk) in &written.chunks {
            for index in 0..chunk.len() {
                let (key, payload) = (chunk.keys.get(index), chunk.payloads.get(index));
                outputs.push((key.to_vec(), payload.to_vec(), chunk.event_times[index]));
            }
        }
        (written.states, outputs, written.sink)
    };
    let whole = run(limits(RECORD_COUNT, RECORD_COUNT));
    assert!(!whole.1.is_empty() && !whole.2.is_empty());
    for batch in [1, 2, 7, 64] {
        for epoch in [1, 2, 7, 64] {
            assert_eq!(run(limits(batch, epoch)), whole, "{batch} by {epoch}");
        }
    }
}

#[test]
fn r2_what_a_transform_makes_has_the_time_of_its_creation_and_records_that_of_their_writing() {
    let mut jobs = Jobs::with_source_read();
    let times = |jobs: &Jobs, lane| -> Vec<Timestamp> {
        let chunks = rows::read_chunks(&*jobs.storage, lane, EpochId::NONE, ALL);
        let chunks = chunks.expect("chunks can be read");
        let mut times: Vec<_> = chunks
            .iter()
            .flat_map(|(_, it)| it.alignments.iter())
            .collect();
        times.dedup();
        times
    };
    assert_eq!(times(&jobs, INNER), [WRITE_TIME]);
    let mut job = jobs.transform(SEVEN);
    for now in [5_000, 6_000, 4_000] {
        jobs.clock.set(now);
        job.step().expect("nothing fails");
    }
    assert_eq!(
        times(&jobs, OUTER),
        [5_000, 6_000],
        "a clock set back is not followed"
    );
    drop(job);
    // A successor on a machine with a slower clock knows how far its predecessor was.
    jobs = jobs.reopen(UnsyncedTail::Survived);
    jobs.clock.set(4_500);
    let mut successor = jobs.transform(SEVEN);
    for now in [4_500, 7_000] {
        jobs.clock.set(now);
        successor.step().expect("nothing fails");
    }
    assert_eq!(times(&jobs, OUTER), [5_000, 6_000, 7_000]);
    let newest = jobs.written().chunks.last().expect("there are chunks").0;
    assert_eq!(newest, EpochId(5), "each epoch wrote to the lane");
}
