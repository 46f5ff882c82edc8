//! How fast the states of a transform move to another number of partitions over the embedded storage,
//! and are removed from the ones before. Prints states per second of both, and the memory.
//!
//! `cargo bench -p tidelock --bench repartition`; a number behind `--` replaces that of the states.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use tidelock::controller::repartition::{MoveLimits, Repartition, sweep};
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::{CommitOutcome, Storage, leases};
use tidelock::types::epoch::{EpochCommit, StateChanges};
use tidelock::types::ids::{EpochId, PartitionId};

const STATES: u64 = 5_000_000;
const STATES_PER_EPOCH: u64 = 50_000;
const VALUE_BYTES: usize = 100;

fn main() {
    let states = std::env::args().find_map(|word| word.parse().ok());
    let states = states.unwrap_or(STATES);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let storage = EmbeddedStorage::open(dir.path(), EmbeddedOptions::default());
    let storage = storage.expect("the storage opens");
    fill(&storage, PartitionId(1), states);
    println!("partitions        states   moved/s  removed/s  seconds  RSS MB");
    let mut from = vec![PartitionId(1)];
    for (first, count) in [(11, 4), (21, 3), (31, 1)] {
        let to: Vec<PartitionId> = (first..first + count).map(PartitionId).collect();
        let repartition = Repartition {
            from: &from,
            to: &to,
            producers: &[],
            deployment: 1,
            limits: MoveLimits::default(),
        };
        let begin = Instant::now();
        let done = repartition.run(&storage, &mut |_| {});
        let moved = done.expect("the states move").states;
        assert_eq!(moved, states);
        let moving = begin.elapsed().as_secs_f64();
        for partition in &from {
            let swept = sweep(&storage, *partition, 1, &MoveLimits::default(), &mut |_| {});
            swept.expect("the old ones go");
        }
        storage.settle().expect("the storage settles");
        let all = begin.elapsed().as_secs_f64();
        println!(
            "{:>4} to {:<4} {moved:>11} {:>9.0} {:>10.0} {all:>8.1} {:>7}",
            from.len(),
            to.len(),
            moved as f64 / moving,
            moved as f64 / (all - moving),
            resident_megabytes()
        );
        from = to;
    }
}

fn fill(storage: &EmbeddedStorage, partition: PartitionId, states: u64) {
    let lease = leases::grant(storage, partition).expect("a lease");
    for epoch in 0..states.div_ceil(STATES_PER_EPOCH) {
        let first = epoch * STATES_PER_EPOCH;
        let mut commit = EpochCommit::empty(&lease, EpochId(epoch + 1));
        // Spread, so that each epoch's keys lie all over the partition.
        let mut keys: Vec<String> = (first..states.min(first + STATES_PER_EPOCH))
            .map(|key| format!("user-{:016x}", key.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        keys.sort_unstable();
        let mut totals = StateChanges {
            state: "totals".to_owned(),
            ..StateChanges::default()
        };
        for key in keys {
            totals.keys.push(key.as_bytes());
            totals.values.push(&[7; VALUE_BYTES]);
        }
        commit.states = vec![totals];
        let outcome = storage
            .commit_epoch(lease, commit)
            .expect("the store works");
        assert!(
            matches!(outcome, CommitOutcome::Committed(_)),
            "{outcome:?}"
        );
    }
    storage.settle().expect("the storage settles");
}

fn resident_megabytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() / 1_024
}
