//! A job that reads a queue and writes another one, over storage in memory, where each epoch can meet each fault:
//! rows C1 and C2 one epoch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidelock::clock::Clock;
use tidelock::controller::queues::intake::{Intake, IntakeLimits, IntakeRow};
use tidelock::controller::queues::reader::StoredQueues;
use tidelock::controller::queues::registry::{create_queue, find_queue};
use tidelock::sink::queue::QueueSink;
use tidelock::source::queue::QueuePosition;
use tidelock::source::{Opening, open};
use tidelock::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
use tidelock::storage::queue_rows::{QueueLimit, read_bounds, read_queue};
use tidelock::storage::{Storage, leases, rows};
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::{EpochId, PartitionId, StreamId};
use tidelock::types::key::{key_hash, partition_of};
use tidelock::types::pipeline::{
    EpochLimits, LaneLimits, OnFailure, QueueSourceOptions, QueueStart, SourceConnector,
    WatermarkOptions,
};
use tidelock::types::queue::Retention;
use tidelock::worker::announced::{AnnouncedJob, JobContext};
use tidelock::worker::board::LaneBoard;
use tidelock::worker::job::{Job, JobEnd, JobStep};
use tidelock::worker::plan::{
    InputPlan, JobMemory, JobPlan, PartitionPlace, SinkPlan, SinkTarget, SourcePlan, StreamPlan,
    TimePlan,
};
use tidelock::worker::progress::RunProgress;

/// The partition of the job.
const COPY: PartitionId = PartitionId(1_000);
/// Rows of the queue that is read.
const ROW_COUNT: u64 = 40;
/// How many rows an epoch takes.
const ROWS_PER_EPOCH: usize = 7;
/// Partitions of the queue that is written.
const PARTITIONS: u32 = 3;

/// A clock that stands still.
struct StillClock;

impl Clock for StillClock {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn now(&self) -> Timestamp {
        9_000
    }
}

/// The store of the job, and its queues "from" and "to".
struct Store {
    storage: Arc<MemoryStorage>,
}

/// Offset, key, event time and payload of the rows of each partition of "to".
type Written = Vec<Vec<(u64, String, Timestamp, String)>>;

fn key(number: u64) -> String {
    format!("key {}", number % 5)
}

impl Store {
    fn new() -> Store {
        let storage = MemoryStorage::new();
        let forever = Retention::default();
        create_queue(&storage, "from", 1, forever, 1).expect("the store is sound");
        create_queue(&storage, "to", PARTITIONS, forever, 1).expect("the store is sound");
        let store = Store {
            storage: Arc::new(storage),
        };
        store.push(0..ROW_COUNT);
        store
    }

    /// Pushes rows in chunks of five.
    fn push(&self, numbers: std::ops::Range<u64>) {
        let queue = find_queue(&*self.storage, "from").expect("it is there");
        let limits = IntakeLimits {
            rows: 5,
            bytes: 1 << 20,
        };
        let mut intake = Intake::open(&*self.storage, &queue, limits).expect("it opens");
        for number in numbers {
            let (key, payload) = (key(number), format!("row {number}\n"));
            let row = IntakeRow {
                key: key.as_bytes(),
                event_time: 1 + number,
                payload: payload.as_bytes(),
                number: None,
            };
            intake
                .push(row, 2_000 + number)
                .expect("the store is sound");
        }
        intake.flush(3_000).expect("the store is sound");
        intake.close().expect("the store is sound");
    }

    /// The machine stops and starts.
    fn reopen(self, tail: UnsyncedTail) -> Store {
        let storage = Arc::into_inner(self.storage).expect("no job is left");
        Store {
            storage: Arc::new(storage.crash_and_reopen(tail)),
        }
    }

    fn partitions(&self, queue: &str) -> Vec<PartitionId> {
        let row = find_queue(&*self.storage, queue).expect("it is there");
        row.partitions()
    }

    /// The job in the pipeline's first run, under a new lease.
    fn job(&self) -> Job {
        self.job_of_run(1)
    }

    fn job_of_run(&self, run: u64) -> Job {
        let storage: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&self.storage);
        let named = BTreeMap::from([("from".to_owned(), self.partitions("from"))]);
        let queues = StoredQueues::shared(&storage, named);
        let position = rows::read_source_position(&*storage, COPY).expect("it is sound");
        let options = QueueSourceOptions::new("from", 0, false, QueueStart::Start);
        let opening = Opening {
            queues: Some(&queues),
            ..Opening::at(position.as_deref())
        };
        let source = open(&SourceConnector::Queue(options), opening);
        let plan = JobPlan {
            pipeline: "copy".to_owned(),
            run,
            time: TimePlan::default(),
            name: "copy".to_owned(),
            place: PartitionPlace::new(0, 1),
            lease: leases::grant(&*storage, COPY).expect("the store is sound"),
            deployment: 1,
            limits: EpochLimits {
                max_rows_per_batch: 3,
                max_rows_per_epoch: ROWS_PER_EPOCH,
                max_duration: Duration::MAX,
                ..EpochLimits::default()
            },
            memory: JobMemory::default(),
            input: InputPlan::Source(SourcePlan {
                watermarks: WatermarkOptions::default(),
                on_failure: OnFailure::Fail,
                reads_on: false,
                described: "queue from[0] (source copy)".to_owned(),
                source: source.expect("the source opens"),
                turn: None,
            }),
            transform: None,
            maps: Vec::new(),
            streams: vec![StreamPlan {
                name: "rows".to_owned(),
                id: StreamId(1),
                readers: Vec::new(),
                sinks: vec![0],
            }],
            sinks: vec![SinkPlan {
                name: "to".to_owned(),
                sink: Box::new(QueueSink::new(PARTITIONS)),
                target: SinkTarget::Queue(self.partitions("to")),
            }],
        };
        let context = JobContext {
            storage,
            board: Arc::new(LaneBoard::new(LaneLimits::default())),
            progress: RunProgress::default(),
            clock: Arc::new(StillClock),
        };
        let announced = AnnouncedJob::announce(plan, context).expect("it has no lanes");
        announced.open().expect("the job opens")
    }

    /// The offset that the job reads next, by storage.
    fn next(&self) -> u64 {
        let position = rows::read_source_position(&*self.storage, COPY).expect("it is sound");
        position.map_or(0, |encoded| {
            let position = QueuePosition::decode(&encoded).expect("it is one of a queue");
            assert_eq!(position.partition, self.partitions("from")[0]);
            position.next
        })
    }

    fn written(&self) -> Written {
        let partitions = self.partitions("to").into_iter();
        partitions
            .map(|partition| self.written_to(partition))
            .collect()
    }

    fn written_to(&self, partition: PartitionId) -> Vec<(u64, String, Timestamp, String)> {
        let all = QueueLimit {
            rows: 1_000,
            bytes: 1 << 20,
        };
        let page = read_queue(&*self.storage, partition, 0, all).expect("no row is missing");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("rows are text");
        let mut written = Vec::new();
        for (first, rows) in page.chunks {
            assert_eq!(rows.write_time, 9_000);
            for row in 0..rows.len() {
                written.push((
                    first + row as u64,
                    text(rows.keys.get(row)),
                    rows.event_times[row],
                    text(rows.payloads.get(row)),
                ));
            }
        }
        let bounds = read_bounds(&*self.storage, partition).expect("they can be read");
        assert_eq!(bounds.len(), written.len() as u64);
        written
    }

    /// What is written must follow from the rows before the position, each once and in order.
    fn check(&self) {
        let mut expected: Written = vec![Vec::new(); PARTITIONS as usize];
        for number in 0..self.next() {
            let key = key(number);
            let place = partition_of(key_hash(key.as_bytes()), PARTITIONS as usize);
            let offset = expected[place].len() as u64;
            expected[place].push((offset, key, 1 + number, format!("row {number}\n")));
        }
        assert_eq!(self.written(), expected);
    }
}

/// Takes steps until the job ends; whether it was not stopped by a fault.
fn run(job: &mut Job) -> bool {
    loop {
        match job.step() {
            Ok(JobStep::Ended(end)) => {
                assert_eq!(end, JobEnd::Finished);
                return true;
            }
            Ok(JobStep::Advanced) => {}
            Ok(JobStep::Idle) => panic!("a job with a finite source waits for nobody"),
            Err(_) => return false,
        }
    }
}

#[test]
fn c1_the_position_in_a_queue_moves_with_its_epoch_whatever_fault_that_meets() {
    // One has where the source begins.
    let epochs = 4 + ROW_COUNT / ROWS_PER_EPOCH as u64;
    let faults = [
        CommitFault::Refused,
        CommitFault::UnknownDecided,
        CommitFault::UnknownUndecided,
        CommitFault::FailedSync,
    ];
    let mut met = 0;
    for fault in faults {
        for tail in [UnsyncedTail::Lost, UnsyncedTail::Survived] {
            for at in 1..=epochs {
                let store = Store::new();
                store
                    .storage
                    .set_faults(Some(Box::new(move |commit: &EpochCommit| {
                        match commit.partition == COPY && commit.epoch == EpochId(at) {
                            true => fault,
                            false => CommitFault::None,
                        }
                    })));
                let finished = run(&mut store.job());
                met += store.storage.faults_made();
                assert_eq!(finished, store.storage.faults_made() == 0);
                let store = store.reopen(tail);
                store.check();
                assert!(run(&mut store.job()));
                assert_eq!(store.next(), ROW_COUNT);
                store.check();
            }
        }
    }
    // Seven epochs with rows each; the end's own may be one of them.
    assert!(met >= faults.len() * 2 * 6, "only {met} faults were met");
}

#[test]
fn c2_rows_of_a_queue_sink_are_there_exactly_when_their_epoch_is() {
    let store = Store::new();
    let mut job = store.job();
    let mut seen = 0;
    loop {
        let step = job.step().expect("nothing fails");
        // Whatever is there now is what the position says, neither more nor less.
        store.check();
        seen += usize::from(store.next() > 0 && store.next() < ROW_COUNT);
        if matches!(step, JobStep::Ended(_)) {
            break;
        }
    }
    assert!(seen >= 4, "the job was seen in between {seen} times");
    assert_eq!(store.next(), ROW_COUNT);
    // What comes later is read by the next run, from there on.
    store.push(ROW_COUNT..ROW_COUNT + 9);
    assert!(run(&mut store.job_of_run(2)));
    assert_eq!(store.next(), ROW_COUNT + 9);
    store.check();
}
