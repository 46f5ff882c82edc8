//! What a million pending timers of one partition cost over the embedded storage: set in random order, then
//! fired, in epochs that overlap as those of a job do. Prints the time and the bytes written for each timer,
//! and the memory.
//!
//! `cargo bench -p tidelock --bench timers`; a number behind `--` replaces that of the timers. Each kind runs
//! in a process of its own, so that each has its own peak.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::Command;
use std::time::Instant;

use tidelock::engine::timer_window::WindowLimit;
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::{CommitOutcome, CommitTicket, Storage, leases};
use tidelock::types::batch::{Effects, TimeDomain, TimerDeclaration};
use tidelock::types::column::Column;
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::{EpochId, PartitionId};
use tidelock::types::lease::Lease;
use tidelock::types::timer::TimerPlace;
use tidelock::worker::timers::{DueLimit, Timers};

const TIMERS: u64 = 1_000_000;
const ROWS_PER_BATCH: u64 = 1_000;
const ROWS_PER_EPOCH: u64 = 65_000;
const PARTITION: PartitionId = PartitionId(1);
/// Far enough from 0 for event times before it.
const BEGIN: u64 = 1_700_000_000_000;

const KINDS: [(&str, Kind); 4] = [
    (
        "spread",
        Kind {
            domain: TimeDomain::EventTime,
            is_storm: false,
            lead: 0,
        },
    ),
    (
        "spread, held earlier",
        Kind {
            domain: TimeDomain::EventTime,
            is_storm: false,
            lead: 60_000,
        },
    ),
    (
        "storm at one moment",
        Kind {
            domain: TimeDomain::EventTime,
            is_storm: true,
            lead: 0,
        },
    ),
    (
        "by the system's clock",
        Kind {
            domain: TimeDomain::SystemTime,
            is_storm: false,
            lead: 60_000,
        },
    ),
];

/// A kind of timers.
#[derive(Clone, Copy)]
struct Kind {
    domain: TimeDomain,
    /// Whether all fire at one moment.
    is_storm: bool,
    /// By how much the event time that they carry is before the moment at which they fire.
    lead: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let kind = words
        .iter()
        .find_map(|word| KINDS.iter().find(|(name, _)| name == word));
    let timers = words
        .iter()
        .find_map(|word| word.parse().ok())
        .unwrap_or(TIMERS);
    if let Some((name, kind)) = kind {
        return measure(name, *kind, timers);
    }
    println!(
        "timers                   set us  fire us  reopen ms  set B  fire B  book MB  RSS MB  over the empty"
    );
    for (name, _) in KINDS {
        let program = std::env::current_exe().expect("a benchmark knows its program");
        let ended = Command::new(program)
            .args([name, &timers.to_string()])
            .status();
        assert!(ended.is_ok_and(|status| status.success()), "{name} failed");
    }
}

fn measure(name: &str, kind: Kind, timers: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let storage = EmbeddedStorage::open(dir.path(), EmbeddedOptions::default());
    let storage = storage.expect("the storage opens");
    let empty = status_megabytes("VmRSS:");
    let mut job = Job::open(&storage, kind.domain);
    let begin = (Instant::now(), written_bytes());
    let mut first = 0;
    while first < timers {
        let end = timers.min(first + ROWS_PER_EPOCH);
        while first < end {
            let next = end.min(first + ROWS_PER_BATCH);
            job.set(kind, first..next, timers);
            first = next;
        }
        job.commit();
    }
    job.settle();
    let set = (begin.0.elapsed(), written_bytes() - begin.1);
    assert_eq!(job.timers.pending(), timers);

    let begin = Instant::now();
    let book_bytes = job.book_bytes;
    drop(job);
    let mut job = Job::open(&storage, kind.domain);
    assert!(
        job.timers
            .holds_at(&storage)
            .expect("the store works")
            .is_some()
    );
    let reopened = begin.elapsed();

    let begin = (Instant::now(), written_bytes());
    let fired = job.fire_all();
    job.settle();
    let fire = (begin.0.elapsed(), written_bytes() - begin.1);
    assert_eq!((fired, job.timers.pending()), (timers, 0));
    let each = |(elapsed, bytes): (std::time::Duration, u64)| {
        (elapsed.as_secs_f64() * 1e6 / timers as f64, bytes / timers)
    };
    let (set, fire) = (each(set), each(fire));
    let peak = status_megabytes("VmHWM:");
    println!(
        "{name:<24} {:>6.2} {:>8.2} {:>10.1} {:>6} {:>7} {:>8} {peak:>7} {:>14}",
        set.0,
        fire.0,
        reopened.as_secs_f64() * 1e3,
        set.1,
        fire.1,
        book_bytes.max(job.book_bytes) >> 20,
        peak - empty,
    );
}

/// As much of a job as timers need.
struct Job<'a> {
    storage: &'a EmbeddedStorage,
    lease: Lease,
    domain: TimeDomain,
    timers: Timers,
    next: EpochId,
    submitted: Option<CommitTicket>,
    /// The most that the book has taken in memory.
    book_bytes: usize,
}

impl<'a> Job<'a> {
    fn open(storage: &'a EmbeddedStorage, domain: TimeDomain) -> Job<'a> {
        let lease = leases::grant(storage, PARTITION).expect("a lease");
        let declared = TimerDeclaration {
            name: "hour".to_owned(),
            time: domain,
        };
        let limit = WindowLimit::default();
        let timers = Timers::open(&[declared], PARTITION, 1, limit, storage);
        Job {
            storage,
            lease,
            domain,
            timers: timers.expect("the timers open"),
            next: storage
                .head(PARTITION)
                .expect("the store works")
                .epoch
                .next(),
            submitted: None,
            book_bytes: 0,
        }
    }

    fn set(&mut self, kind: Kind, numbers: std::ops::Range<u64>, timers: u64) {
        let mut keys = Column::default();
        let mut effects = Effects::default();
        for (row, number) in (0..).zip(numbers) {
            // Spread: no order of keys or of trigger times.
            let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            keys.push(format!("user-{spread:016x}").as_bytes());
            let moment = if kind.is_storm {
                0
            } else {
                spread % (timers * 10)
            };
            effects.set_timers.streams.push(0);
            effects.set_timers.keys.push(row);
            effects.set_timers.trigger_times.push(match kind.domain {
                TimeDomain::EventTime => BEGIN + moment,
                TimeDomain::SystemTime => moment,
            });
            effects
                .set_timers
                .event_times
                .push(BEGIN + moment - kind.lead);
        }
        let applied = self
            .timers
            .apply(&keys, &effects, BEGIN, false, self.storage);
        applied.expect("the store works");
    }

    fn fire_all(&mut self) -> u64 {
        let limit = DueLimit {
            rows: ROWS_PER_BATCH as usize,
            bytes: 10 << 20,
        };
        let (mut fired, mut in_epoch) = (0, 0);
        let mut behind: Option<TimerPlace> = None;
        loop {
            let due = self
                .timers
                .due(self.domain, u64::MAX, behind.as_ref(), limit, self.storage);
            let due = due.expect("the store works");
            if due.is_empty() {
                self.commit();
                return fired;
            }
            behind = Some(self.timers.place(&due, due.len() - 1));
            self.timers.fire(&due, due.len());
            fired += due.len() as u64;
            in_epoch += due.len() as u64;
            if in_epoch >= ROWS_PER_EPOCH {
                in_epoch = 0;
                self.commit();
            }
        }
    }

    fn commit(&mut self) {
        let mut commit = EpochCommit::empty(&self.lease, self.next);
        commit.timers = self.timers.take_changes();
        self.book_bytes = self.book_bytes.max(self.timers.size_bytes());
        // Each epoch asks.
        self.timers.holds_at(self.storage).expect("the store works");
        self.settle();
        self.submitted = Some(self.storage.submit_epoch(self.lease, commit));
        self.timers.shrink(1);
        self.next = self.next.next();
    }

    fn settle(&mut self) {
        if let Some(ticket) = self.submitted.take() {
            let outcome = ticket.wait().expect("the store works");
            assert!(
                matches!(outcome, CommitOutcome::Committed(_)),
                "{outcome:?}"
            );
        }
    }
}

fn status_megabytes(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() / 1_024
}

fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("write_bytes:"));
    let bytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    bytes.unwrap_or_default()
}
