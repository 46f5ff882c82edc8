//! When a job ends an epoch: a real job over the embedded store, whose disk the test holds, a source that
//! always has more, and a clock that moves on a little with each look at it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidelock::clock::Clock;
use tidelock::source::{
    PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords,
};
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage, FaultPoints};
use tidelock::storage::{Storage, leases, rows};
use tidelock::types::batch::Timestamp;
use tidelock::types::ids::{EpochId, PartitionId, StreamId};
use tidelock::types::pipeline::{EpochLimits, LaneLimits, OnFailure, WatermarkOptions};
use tidelock::worker::announced::{AnnouncedJob, JobContext};
use tidelock::worker::board::LaneBoard;
use tidelock::worker::job::{Job, JobStep};
use tidelock::worker::plan::{
    InputPlan, JobMemory, JobPlan, PartitionPlace, SourcePlan, StreamPlan, TimePlan,
};
use tidelock::worker::progress::RunProgress;

const PARTITION: PartitionId = PartitionId(1);
/// Far more than an epoch of any of these tests takes.
const RECORD_COUNT: usize = 100_000;
/// Records in a batch.
const BATCH: usize = 10;
/// What the test's clock makes of it: at most thirty batches.
const SHORT: Duration = Duration::from_millis(30);
/// How long a job gets to do what it must not do.
const PATIENCE: Duration = Duration::from_millis(500);

/// Each look at it takes a millisecond.
#[derive(Default)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn now(&self) -> Timestamp {
        1_000
    }
}

/// How many records were taken, for a test to wait on.
#[derive(Default)]
struct Taken {
    count: AtomicUsize,
    changed: Condvar,
    lock: Mutex<()>,
}

impl Taken {
    /// Waits until so many were taken; whether they were.
    fn wait_for(&self, count: usize) -> bool {
        let guard = self.lock.lock().expect("no test panics with it");
        let is_short = |(): &mut ()| self.count.load(Ordering::Relaxed) < count;
        let waited = self.changed.wait_timeout_while(guard, PATIENCE, is_short);
        !waited.expect("no test panics with it").1.timed_out()
    }
}

struct EndlessSource(Arc<Taken>);

impl Source for EndlessSource {
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        let before = self.0.count.load(Ordering::Relaxed);
        let count = limit.rows.min(RECORD_COUNT - before);
        for at in before..before + count {
            records.payloads.push(b"record");
            records.lines.push(at as u64 + 1);
            records.write_times.push(1);
        }
        let _guard = self.0.lock.lock();
        self.0.count.store(before + count, Ordering::Relaxed);
        self.0.changed.notify_all();
        match count {
            0 => Ok(PollOutcome::End),
            _ => Ok(PollOutcome::More),
        }
    }

    fn position(&self) -> Vec<u8> {
        self.0.count.load(Ordering::Relaxed).to_be_bytes().to_vec()
    }

    fn write_time(&self) -> Timestamp {
        1
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress::default()
    }
}

/// A disk that syncs nothing while it is held.
#[derive(Default)]
struct Disk {
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Disk {
    fn set_held(&self, is_held: bool) {
        *self.is_held.lock().expect("no test panics with it") = is_held;
        self.released.notify_all();
    }
}

impl FaultPoints for Disk {
    fn reach(&self, point: &'static str) -> std::io::Result<()> {
        if point == "decide: sync the heads" {
            let held = self.is_held.lock().expect("no test panics with it");
            let held = self.released.wait_while(held, |is_held| *is_held);
            drop(held.expect("no test panics with it"));
        }
        Ok(())
    }
}

struct World {
    storage: Arc<EmbeddedStorage>,
    disk: Arc<Disk>,
    taken: Arc<Taken>,
    job: Job,
    folder: tempfile::TempDir,
}

fn open(limits: EpochLimits) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Arc::new(Disk::default());
    let options = EmbeddedOptions {
        faults: disk.clone(),
        ..EmbeddedOptions::default()
    };
    let data: &Path = folder.path();
    let storage = Arc::new(EmbeddedStorage::open(&data.join("data"), options).expect("it opens"));
    let taken = Arc::new(Taken::default());
    let plan = JobPlan {
        pipeline: "records".to_owned(),
        run: 1,
        time: TimePlan::default(),
        name: "records".to_owned(),
        place: PartitionPlace::new(0, 1),
        lease: leases::grant(&*storage, PARTITION).expect("the store is sound"),
        deployment: 1,
        limits,
        memory: JobMemory::default(),
        input: InputPlan::Source(SourcePlan {
            watermarks: WatermarkOptions {
                records_per_watermark: u64::MAX,
                ..WatermarkOptions::default()
            },
            on_failure: OnFailure::Fail,
            reads_on: false,
            described: "source records".to_owned(),
            source: Box::new(EndlessSource(Arc::clone(&taken))),
            turn: None,
        }),
        transform: None,
        maps: Vec::new(),
        streams: vec![StreamPlan {
            name: "records".to_owned(),
            id: StreamId(1),
            readers: vec![vec![PartitionId(2)]],
            sinks: Vec::new(),
        }],
        sinks: Vec::new(),
    };
    let context = JobContext {
        storage: storage.clone(),
        board: Arc::new(LaneBoard::new(LaneLimits::default())),
        progress: RunProgress::default(),
        clock: Arc::new(TickingClock::default()),
    };
    let job = AnnouncedJob::announce(plan, context);
    World {
        job: job.expect("it has lanes").open().expect("the job opens"),
        storage,
        disk,
        taken,
        folder,
    }
}

fn limits(max_duration: Duration) -> EpochLimits {
    EpochLimits {
        max_rows_per_batch: BATCH,
        max_duration,
        ..EpochLimits::default()
    }
}

impl World {
    /// How many records each epoch up to now has.
    fn sizes(&self) -> Vec<u64> {
        let head = self.storage.head(PARTITION).expect("the store is sound");
        let record = |epoch| {
            let record = rows::read_epoch_record(&*self.storage, PARTITION, EpochId(epoch));
            record.expect("it can be read").expect("it is kept")
        };
        let epochs = 1..=head.epoch.0;
        epochs.map(|epoch| record(epoch).input_count).collect()
    }

    fn step(&mut self) {
        let step = self.job.step().expect("nothing fails");
        assert_eq!(step, JobStep::Advanced);
    }
}

#[test]
fn an_epoch_ends_when_it_has_taken_items_for_long_enough() {
    let mut world = open(limits(SHORT));
    for _ in 0..4 {
        world.step();
    }
    let sizes = world.sizes();
    // A few looks at the clock for each batch.
    assert!(
        sizes.iter().all(|size| (50..=300).contains(size)),
        "{sizes:?}"
    );
    let mut unhurried = open(limits(Duration::MAX));
    unhurried.step();
    unhurried.step();
    let full = EpochLimits::default().max_rows_per_epoch as u64;
    assert_eq!(unhurried.sizes(), [full], "only its other limits are left");
}

#[test]
fn an_epoch_never_grows_because_the_store_is_slow() {
    let mut world = open(limits(SHORT));
    for _ in 0..3 {
        world.step();
    }
    let World {
        mut job,
        taken,
        disk,
        storage: _storage,
        folder: _folder,
    } = world;
    let before = taken.count.load(Ordering::Relaxed);
    disk.set_held(true);
    let steps = std::thread::spawn(move || {
        // The first one may still find the third epoch durable; the second can't.
        for _ in 0..2 {
            assert_eq!(job.step().expect("nothing fails"), JobStep::Advanced);
        }
        job
    });
    assert!(taken.wait_for(before + BATCH), "the next one is computed");
    // Two epochs, a batch for each look at the clock.
    assert!(
        !taken.wait_for(before + 61 * BATCH),
        "it went on taking records while the store was held"
    );
    disk.set_held(false);
    let mut job = steps.join().expect("the job goes on");
    job.step().expect("nothing fails");
}
