//! What jobs say of themselves while they run, for those who watch: how much each has read, sent
//! and committed, which lane it waits for, which keys its input mostly consists of, and where it stands
//! in time. Nothing here decides anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::engine::hot_keys::HotKey;
use crate::source::SourceProgress;
use crate::types::epoch::EpochTime;
use crate::types::ids::{LaneId, PartitionId, StreamId};
use crate::worker::plan::{InputPlan, JobPlan, PartitionPlace};
use crate::worker::reading::{
    HotKeyReading, JobReading, LaneReading, ProgressReading, WaitReading,
};
use crate::worker::stall::Stall;
use crate::worker::time_progress::TimeProgress;

/// Why a lock can be taken.
const UNPOISONED: &str = "nobody panics while it holds what a job says of itself";

/// The jobs of one run, shared with whoever shows them.
#[derive(Debug, Clone, Default)]
pub struct RunProgress {
    /// In the order in which they were opened first.
    jobs: Arc<Mutex<Vec<JobProgress>>>,
}

/// Where one job says how far it is.
#[derive(Debug, Clone)]
pub struct JobProgress {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    job: JobIdentity,
    counters: Counters,
    waits: Mutex<Waits>,
    hot_keys: Mutex<Vec<HotKey>>,
    time: Mutex<TimeProgress>,
}

/// Which job it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobIdentity {
    /// The source or transform that it is a partition of.
    pub name: String,
    /// Which of its partitions.
    pub place: PartitionPlace,
    /// The partition's number in the store.
    pub partition: PartitionId,
    /// Whether it reads a source.
    pub reads_source: bool,
    /// Names of the streams that it writes.
    pub streams: BTreeMap<StreamId, String>,
}

#[derive(Debug, Default)]
struct Counters {
    input_messages: AtomicU64,
    output_messages: AtomicU64,
    sink_rows: AtomicU64,
    skipped: AtomicU64,
    dead_letters: AtomicU64,
    epochs: AtomicU64,
    state_cache_hits: AtomicU64,
    state_cache_misses: AtomicU64,
    source_done_bytes: AtomicU64,
    /// Where it is known.
    source_total_bytes: AtomicU64,
    /// Whether it reads a source of unknown length.
    is_endless: AtomicBool,
}

/// Waiting for room in lanes.
#[derive(Debug, Default)]
struct Waits {
    /// How often the job began to wait for a lane.
    by_lane: BTreeMap<LaneId, u64>,
    /// The lane that it waits for now.
    now: Option<LaneId>,
}

/// What an epoch that was committed adds to the counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpochCounts {
    /// Records of the source, or messages of lanes.
    pub input_messages: u64,
    /// Messages put into lanes and sinks.
    pub output_messages: u64,
    /// Rows given to sinks.
    pub sink_rows: u64,
    /// Items that nothing could be made of and that were passed over without being kept.
    pub skipped: u64,
    /// Items that nothing could be made of and that were kept as dead letters.
    pub dead_letters: u64,
    /// Bytes of the source that were passed.
    pub source_bytes: u64,
}

impl JobIdentity {
    /// That of a planned job.
    pub fn of(plan: &JobPlan) -> JobIdentity {
        let streams = plan.streams.iter();
        JobIdentity {
            name: plan.name.clone(),
            place: plan.place,
            partition: plan.lease.partition,
            reads_source: matches!(plan.input, InputPlan::Source(_)),
            streams: streams
                .map(|stream| (stream.id, stream.name.clone()))
                .collect(),
        }
    }
}

impl RunProgress {
    /// A job was opened. One that is opened again in the middle of a run goes on with its counts.
    pub fn job_opened(&self, job: JobIdentity, source: Option<SourceProgress>) -> JobProgress {
        let mut jobs = self.jobs();
        let known = jobs.iter().find(|known| known.shared.job == job);
        let progress = known.cloned().unwrap_or_else(|| {
            let progress = JobProgress::of(job);
            jobs.push(progress.clone());
            progress
        });
        let counters = &progress.shared.counters;
        let is_endless = source.is_some_and(|source| source.total_bytes.is_none());
        (counters.is_endless).store(is_endless, Ordering::Relaxed);
        let source = source.unwrap_or_default();
        let total_bytes = source.total_bytes.unwrap_or(0);
        (counters.source_total_bytes).store(total_bytes, Ordering::Relaxed);
        (counters.source_done_bytes).store(source.done_bytes, Ordering::Relaxed);
        progress
    }

    /// The counts of all jobs now.
    pub fn read(&self) -> ProgressReading {
        let mut total = ProgressReading::default();
        let mut total_bytes = Some(0);
        for job in self.jobs().iter() {
            let Counters {
                input_messages,
                output_messages,
                sink_rows,
                skipped,
                dead_letters,
                epochs,
                state_cache_hits,
                state_cache_misses,
                source_done_bytes,
                source_total_bytes,
                is_endless,
            } = &job.shared.counters;
            if job.shared.job.reads_source {
                total.source_records += load(input_messages);
            }
            total.source_done_bytes += load(source_done_bytes);
            let of_job = (!is_endless.load(Ordering::Relaxed)).then(|| load(source_total_bytes));
            total_bytes = total_bytes.zip(of_job).map(|(all, of_job)| all + of_job);
            total.epochs += load(epochs);
            total.messages += load(output_messages);
            total.sink_rows += load(sink_rows);
            total.skipped += load(skipped);
            total.dead_letters += load(dead_letters);
            total.state_cache_hits += load(state_cache_hits);
            total.state_cache_misses += load(state_cache_misses);
        }
        total.source_total_bytes = total_bytes;
        total
    }

    /// Each job now.
    pub fn read_jobs(&self) -> Vec<JobReading> {
        let jobs = self.jobs();
        let names: BTreeMap<PartitionId, String> = (jobs.iter())
            .map(|job| (job.shared.job.partition, job.shared.job.to_string()))
            .collect();
        jobs.iter().map(|job| job.shared.read(&names)).collect()
    }

    /// The first job that waits for room in a lane now, with what it waits for, and how many others
    /// do.
    pub fn waiting_job(&self) -> Option<(String, LaneReading, usize)> {
        let waiting = self.read_jobs().into_iter();
        let mut waiting = waiting.filter_map(|job| Some((job.job, job.waits_now?)));
        let (job, lane) = waiting.next()?;
        Some((job, lane, waiting.count()))
    }

    /// The first job whose watermark stands still for a reason that it knows, with that reason, and how many
    /// others there are.
    pub fn stalled_job(&self) -> Option<(String, String, usize)> {
        let stalled = self.read_jobs().into_iter();
        let mut stalled = stalled.filter_map(|job| Some((job.job, job.time.stall?)));
        let (job, stall) = stalled.next()?;
        Some((job, stall, stalled.count()))
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<JobProgress>> {
        self.jobs.lock().expect(UNPOISONED)
    }
}

impl JobProgress {
    fn of(job: JobIdentity) -> JobProgress {
        JobProgress {
            shared: Arc::new(Shared {
                job,
                counters: Counters::default(),
                waits: Mutex::default(),
                hot_keys: Mutex::default(),
                time: Mutex::default(),
            }),
        }
    }

    /// An epoch was committed.
    pub fn epoch_committed(&self, counts: EpochCounts) {
        let add = |counter: &AtomicU64, more| counter.fetch_add(more, Ordering::Relaxed);
        let counters = &self.shared.counters;
        add(&counters.epochs, 1);
        add(&counters.input_messages, counts.input_messages);
        add(&counters.output_messages, counts.output_messages);
        add(&counters.sink_rows, counts.sink_rows);
        add(&counters.skipped, counts.skipped);
        add(&counters.dead_letters, counts.dead_letters);
        add(&counters.source_done_bytes, counts.source_bytes);
    }

    /// Where the job stands in time behind an epoch that was committed, or was opened: what that epoch counted
    /// is added to the counts.
    pub fn time(&self, time: &EpochTime) {
        self.shared.time.lock().expect(UNPOISONED).add(time);
    }

    /// Why the job's watermark stands still now, or `None` where it does not or the job can't tell. Whether that
    /// is new.
    pub fn holds(&self, stall: Option<Stall>) -> bool {
        self.shared.time.lock().expect(UNPOISONED).set_stall(stall)
    }

    /// How many keys whose states were needed so far were in memory, and how many were not.
    pub fn state_lookups(&self, hits: u64, misses: u64) {
        let counters = &self.shared.counters;
        counters.state_cache_hits.store(hits, Ordering::Relaxed);
        counters.state_cache_misses.store(misses, Ordering::Relaxed);
    }

    /// The hot keys of the input so far.
    pub fn hot_keys(&self, hot_keys: Vec<HotKey>) {
        *self.shared.hot_keys.lock().expect(UNPOISONED) = hot_keys;
    }

    /// The job finds `lane` full, or has room in every lane. Finding one full again counts as
    /// the same wait until there was room. Whether a wait has begun.
    pub fn waits_for(&self, lane: Option<LaneId>) -> bool {
        let mut waits = self.shared.waits.lock().expect(UNPOISONED);
        let before = std::mem::replace(&mut waits.now, lane);
        match lane {
            Some(lane) if before != Some(lane) => {
                *waits.by_lane.entry(lane).or_default() += 1;
                true
            }
            _ => false,
        }
    }
}

impl Shared {
    /// `names` are those of all jobs.
    fn read(&self, names: &BTreeMap<PartitionId, String>) -> JobReading {
        let lane = |lane: &LaneId| LaneReading {
            stream: match self.job.streams.get(&lane.stream) {
                Some(name) => name.clone(),
                None => lane.stream.to_string(),
            },
            reader: match names.get(&lane.reader) {
                Some(name) => name.clone(),
                None => lane.reader.to_string(),
            },
        };
        let waits = self.waits.lock().expect(UNPOISONED);
        let mut by_lane: Vec<WaitReading> = (waits.by_lane.iter())
            .map(|(id, count)| WaitReading {
                lane: lane(id),
                count: *count,
            })
            .collect();
        by_lane.sort_by_key(|wait| std::cmp::Reverse(wait.count));
        let hot_keys = self.hot_keys.lock().expect(UNPOISONED);
        JobReading {
            job: self.job.to_string(),
            name: self.job.name.clone(),
            partition_index: self.job.place.index,
            partition_count: self.job.place.count,
            partition: self.job.partition.to_string(),
            input_messages: load(&self.counters.input_messages),
            output_messages: load(&self.counters.output_messages),
            sink_rows: load(&self.counters.sink_rows),
            skipped: load(&self.counters.skipped),
            dead_letters: load(&self.counters.dead_letters),
            epochs: load(&self.counters.epochs),
            state_cache_hits: load(&self.counters.state_cache_hits),
            state_cache_misses: load(&self.counters.state_cache_misses),
            waits: by_lane,
            waits_now: waits.now.as_ref().map(lane),
            hot_keys: hot_keys.iter().map(HotKeyReading::of).collect(),
            time: self.time.lock().expect(UNPOISONED).read(),
        }
    }
}

/// Its name, with the partition where there are several: `delays[2]`.
impl std::fmt::Display for JobIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.place.label(&self.name))
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, index: u32, partition: u64) -> JobIdentity {
        JobIdentity {
            name: name.to_owned(),
            place: PartitionPlace { index, count: 2 },
            partition: PartitionId(partition),
            reads_source: name == "events",
            streams: BTreeMap::from([(StreamId(1), "amounts".to_owned())]),
        }
    }

    fn lane(reader: u64) -> LaneId {
        LaneId {
            producer: PartitionId(1),
            stream: StreamId(1),
            reader: PartitionId(reader),
        }
    }

    #[test]
    fn totals_are_those_of_all_jobs_and_records_those_of_sources() {
        let run = RunProgress::default();
        let at = |done_bytes| SourceProgress {
            done_bytes,
            total_bytes: Some(100),
        };
        let counts = |input_messages, source_bytes| EpochCounts {
            input_messages,
            output_messages: 2,
            sink_rows: 1,
            skipped: 3,
            dead_letters: 4,
            source_bytes,
        };
        let first = run.job_opened(identity("events", 0, 1), Some(at(10)));
        let second = run.job_opened(identity("events", 1, 2), Some(at(0)));
        let sum = run.job_opened(identity("sum", 0, 3), None);
        first.epoch_committed(counts(5, 20));
        second.epoch_committed(counts(6, 30));
        sum.epoch_committed(counts(7, 0));
        let expected = ProgressReading {
            source_records: 11,
            source_done_bytes: 60,
            source_total_bytes: Some(200),
            epochs: 3,
            messages: 6,
            sink_rows: 3,
            skipped: 9,
            dead_letters: 12,
            state_cache_hits: 0,
            state_cache_misses: 0,
        };
        assert_eq!(run.read(), expected);
        let jobs = run.read_jobs();
        let inputs: Vec<(&str, u64)> = (jobs.iter())
            .map(|job| (job.job.as_str(), job.input_messages))
            .collect();
        assert_eq!(inputs, [("events[0]", 5), ("events[1]", 6), ("sum[0]", 7)]);
    }

    #[test]
    fn a_job_that_is_opened_again_goes_on_and_is_listed_once() {
        let run = RunProgress::default();
        let counts = EpochCounts {
            input_messages: 5,
            ..EpochCounts::default()
        };
        for done_bytes in [0, 50] {
            let source = SourceProgress {
                done_bytes,
                total_bytes: Some(100),
            };
            let job = run.job_opened(identity("events", 0, 1), Some(source));
            job.epoch_committed(counts);
        }
        assert_eq!(run.read_jobs().len(), 1);
        let read = run.read();
        assert_eq!((read.source_records, read.source_done_bytes), (10, 50));
        assert_eq!(read.source_total_bytes, Some(100));
        let endless = SourceProgress {
            done_bytes: 7,
            total_bytes: None,
        };
        let _ = run.job_opened(identity("log", 0, 2), Some(endless));
        let read = run.read();
        assert_eq!(
            (read.source_done_bytes, read.source_total_bytes),
            (57, None)
        );
    }

    #[test]
    fn the_first_job_that_knows_why_its_watermark_stands_still_is_told() {
        let run = RunProgress::default();
        let events = run.job_opened(identity("events", 0, 1), None);
        let sum = run.job_opened(identity("sum", 0, 2), None);
        assert_eq!(run.stalled_job(), None);
        let not_begun = |partition: &str| {
            let partition = partition.to_owned();
            Some(Stall::NotBegun { partition })
        };
        assert!(sum.holds(not_begun("b")) && events.holds(not_begun("a")));
        let text = "waits for a, which is not begun".to_owned();
        assert_eq!(run.stalled_job(), Some(("events[0]".to_owned(), text, 1)));
        events.holds(None);
        sum.holds(None);
        assert_eq!(run.stalled_job(), None);
    }

    #[test]
    fn a_wait_counts_once_until_there_is_room_and_names_its_reader() {
        let run = RunProgress::default();
        let events = run.job_opened(identity("events", 0, 1), None);
        let _ = run.job_opened(identity("sum", 1, 2), None);
        assert_eq!(run.waiting_job(), None);
        assert!(events.waits_for(Some(lane(2))));
        assert!(!events.waits_for(Some(lane(2))));
        let (job, now, others) = run.waiting_job().unwrap();
        assert_eq!((job.as_str(), others), ("events[0]", 0));
        assert_eq!(
            (now.stream.as_str(), now.reader.as_str()),
            ("amounts", "sum[1]")
        );
        assert!(!events.waits_for(None));
        assert_eq!(run.waiting_job(), None);
        assert!(events.waits_for(Some(lane(2))));
        // Of a reader that is no job of this run its number is known.
        assert!(events.waits_for(Some(lane(9))));
        let waits = &run.read_jobs()[0].waits;
        let counts: Vec<(&str, u64)> = (waits.iter())
            .map(|wait| (wait.lane.reader.as_str(), wait.count))
            .collect();
        assert_eq!(counts, [("sum[1]", 2), ("p9", 1)]);
    }
}
