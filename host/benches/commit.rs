//! How fast the embedded storage commits: one partition, every record changes one 100-byte state,
//! keys uniform over 100,000, or appends a row of that size to a partition of a queue, or both. Prints records per
//! second and the time from submitting an epoch to its answer.
//!
//! `cargo bench -p tidelock --bench commit`; numbers behind `--` replace the bytes at which decided
//! epochs are applied.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::VecDeque;
use std::time::Instant;

use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::{CommitOutcome, Storage as _, leases};
use tidelock::types::epoch::{EpochCommit, StateChanges};
use tidelock::types::ids::{EpochId, PartitionId};
use tidelock::types::lease::Lease;
use tidelock::types::queue::{QueueAppend, QueueRows};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 100;
const RECORDS: u64 = 1_200_000;
const QUEUE: PartitionId = PartitionId(1_000);

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    State,
    QueueRow,
    Both,
}

fn main() {
    let marks: Vec<usize> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let marks = match marks.is_empty() {
        true => vec![EmbeddedOptions::default().apply_bytes],
        false => marks,
    };
    println!(
        "effect    records/epoch  in flight  apply at bytes   records/s  p50 ms  p99 ms  max ms  bytes/record  RSS MB"
    );
    for apply_bytes in marks {
        for effect in [Effect::State, Effect::QueueRow, Effect::Both] {
            for records in [600, 4_000] {
                for in_flight in [1, 2] {
                    measure(effect, records, in_flight, apply_bytes);
                }
            }
        }
    }
}

fn measure(effect: Effect, records: u64, in_flight: usize, apply_bytes: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = EmbeddedOptions {
        apply_bytes,
        ..EmbeddedOptions::default()
    };
    let storage = EmbeddedStorage::open(dir.path(), options).expect("the storage opens");
    let lease = leases::grant(&storage, PartitionId(1)).expect("a lease");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let epochs: Vec<EpochCommit> = (1..=RECORDS / records)
        .map(|epoch| make_epoch(effect, lease, epoch, records, &mut random))
        .collect();
    let mut latencies = Vec::with_capacity(epochs.len());
    let mut waiting = VecDeque::new();
    let written_before = written_bytes();
    let processor_before = processor_seconds();
    let begin = Instant::now();
    for epoch in epochs {
        if waiting.len() == in_flight {
            latencies.extend(waiting.pop_front().map(wait));
        }
        let submitted = Instant::now();
        waiting.push_back((submitted, storage.submit_epoch(lease, epoch)));
    }
    latencies.extend(waiting.into_iter().map(wait));
    storage.settle().expect("the storage settles");
    let elapsed = begin.elapsed().as_secs_f64();
    let written = written_bytes() - written_before;
    let processor = processor_seconds() - processor_before;
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    println!(
        "{:<9} {records:>13} {in_flight:>10} {apply_bytes:>15} {:>11.0} {:>7.2} {:>7.2} {:>7.2} {:>14.2} \
         {:>13.0} {:>7}",
        format!("{effect:?}"),
        RECORDS as f64 / elapsed,
        at(0.5),
        at(0.99),
        at(1.0),
        processor * 1_000_000.0 / RECORDS as f64,
        written as f64 / RECORDS as f64,
        resident_megabytes()
    );
}

fn wait((submitted, ticket): (Instant, tidelock::storage::CommitTicket)) -> f64 {
    let outcome = ticket.wait().expect("the store works");
    assert!(
        matches!(outcome, CommitOutcome::Committed(_)),
        "{outcome:?}"
    );
    submitted.elapsed().as_secs_f64() * 1_000.0
}

fn make_epoch(
    effect: Effect,
    lease: Lease,
    epoch: u64,
    records: u64,
    random: &mut Random,
) -> EpochCommit {
    let mut commit = EpochCommit {
        source_position: Some(epoch.to_le_bytes().to_vec()),
        ..EpochCommit::empty(&lease, EpochId(epoch))
    };
    if effect != Effect::QueueRow {
        commit.states.push(make_states(records, random));
    }
    if effect != Effect::State {
        commit.queue_appends.push(make_rows(records, random));
    }
    commit
}

fn make_value(random: &mut Random) -> Vec<u8> {
    (0..VALUE_BYTES).map(|_| random.next() as u8).collect()
}

fn make_rows(records: u64, random: &mut Random) -> QueueAppend {
    let mut rows = QueueRows::default();
    for _ in 0..records {
        let key = format!("key-{:08}", random.next() % KEYS);
        rows.push(key.as_bytes(), 1, &make_value(random));
    }
    QueueAppend {
        queue: QUEUE,
        rows: rows.into(),
    }
}

fn make_states(records: u64, random: &mut Random) -> StateChanges {
    let mut keys: Vec<u64> = (0..records).map(|_| random.next() % KEYS).collect();
    let mut seen = std::collections::HashSet::new();
    keys.retain(|key| seen.insert(*key));
    keys.sort_unstable();
    let mut delays = StateChanges {
        state: "delays".to_owned(),
        ..StateChanges::default()
    };
    for key in keys {
        delays.keys.push(format!("key-{key:08}").as_bytes());
        delays.values.push(&make_value(random));
    }
    delays
}

/// An xorshift generator: the same epochs in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Time that all threads have spent on a processor: steadier than the clock on a busy machine.
fn processor_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are the 14th and 15th field; the 2nd may hold blanks, in parentheses.
    let fields = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    ticks / TICKS_PER_SECOND
}

fn written_bytes() -> u64 {
    proc_number("/proc/self/io", "write_bytes:")
}

fn resident_megabytes() -> u64 {
    proc_number("/proc/self/status", "VmRSS:") / 1_024
}

fn proc_number(path: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    (text.lines().find_map(|line| line.strip_prefix(field)))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
