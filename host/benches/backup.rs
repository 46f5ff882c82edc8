//! What a backup costs those who commit meanwhile: one partition commits epochs of 600 changed states of 100 bytes, one after
//! the other, into a store that holds a million of them. Prints the time from submitting an epoch to its answer
//! without a backup and while one is taken after the other, and how fast and how small backups are.
//!
//! `cargo bench -p tidelock --bench backup`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidelock::storage::backup::writer::write_backup;
use tidelock::storage::backup::{BackupContents, BackupHeader};
use tidelock::storage::embedded::restore::restore;
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::{CommitOutcome, Storage, leases};
use tidelock::types::epoch::{EpochCommit, StateChanges};
use tidelock::types::ids::{EpochId, PartitionId};
use tidelock::types::lease::Lease;

const KEYS: u64 = 1_000_000;
const KEYS_PER_EPOCH: u64 = 600;
const VALUE_BYTES: usize = 100;
const BACKUPS: usize = 3;

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let storage = EmbeddedStorage::open(&dir.path().join("data"), EmbeddedOptions::default());
    let storage = storage.expect("the storage opens");
    let lease = leases::grant(&storage, PartitionId(1)).expect("a lease");
    let mut epoch = 0;
    for first in (0..KEYS).step_by(KEYS_PER_EPOCH as usize) {
        epoch += 1;
        commit(&storage, lease, epoch, first);
    }
    storage.settle().expect("the storage settles");

    let alone = Instant::now();
    let mut latencies = Vec::new();
    while alone.elapsed() < Duration::from_secs(3) {
        epoch += 1;
        latencies.push(commit(&storage, lease, epoch, epoch * 7_919));
    }
    print("alone", latencies);

    let is_done = AtomicBool::new(false);
    let (latencies, backups) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut latencies = Vec::new();
            while !is_done.load(Ordering::Acquire) {
                epoch += 1;
                latencies.push(commit(&storage, lease, epoch, epoch * 7_919));
            }
            latencies
        });
        let backups: Vec<_> = (0..BACKUPS)
            .map(|number| back_up(&storage, &dir.path().join(format!("backup-{number}"))))
            .collect();
        is_done.store(true, Ordering::Release);
        (writer.join().expect("the writer ends"), backups)
    });
    print("beside backups", latencies);
    for (snapshot, whole, contents) in &backups {
        println!(
            "a backup of {} rows: snapshot after {:.1} ms, whole after {:.2} s, {:.1} MB of rows in {:.1} MB",
            contents.bulk_rows,
            snapshot.as_secs_f64() * 1e3,
            whole.as_secs_f64(),
            contents.row_bytes as f64 / 1e6,
            contents.file_bytes as f64 / 1e6,
        );
    }
    let begin = Instant::now();
    let restored = restore(
        &dir.path().join("backup-0"),
        &dir.path().join("restored"),
        EmbeddedOptions::default(),
        &mut |_| {},
    );
    drop(restored.expect("the backup is whole"));
    println!("restored in {:.2} s", begin.elapsed().as_secs_f64());
}

fn print(what: &str, mut latencies: Vec<f64>) {
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    println!(
        "{what:<14} {:>7} epochs: p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
        latencies.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// How long until the snapshot is there, until the backup is, and what it holds.
fn back_up(storage: &dyn Storage, path: &Path) -> (Duration, Duration, BackupContents) {
    let begin = Instant::now();
    let snapshot = storage.snapshot().expect("a snapshot");
    let taken = begin.elapsed();
    let header = BackupHeader::of(&*snapshot, 1).expect("the store is whole");
    let contents = write_backup(
        &*snapshot,
        &header,
        path,
        &mut |_| ControlFlow::Continue(()),
    );
    let contents = contents.expect("the disk has room");
    (taken, begin.elapsed(), contents)
}

/// Milliseconds until the epoch is decided.
fn commit(storage: &dyn Storage, lease: Lease, epoch: u64, first: u64) -> f64 {
    let mut keys: Vec<u64> = (0..KEYS_PER_EPOCH)
        .map(|key| (first + key) % KEYS)
        .collect();
    keys.sort_unstable();
    let mut states = StateChanges {
        state: "totals".to_owned(),
        ..StateChanges::default()
    };
    for key in keys {
        let mixed = (key ^ epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Half of it compresses.
        let value: Vec<u8> = (0..VALUE_BYTES as u32)
            .map(|at| match at % 2 {
                0 => mixed.rotate_left(at) as u8,
                _ => b'0',
            })
            .collect();
        states.keys.push(format!("key-{key:08}").as_bytes());
        states.values.push(&value);
    }
    let commit = EpochCommit {
        states: vec![states],
        ..EpochCommit::empty(&lease, EpochId(epoch))
    };
    let begin = Instant::now();
    let outcome = storage
        .commit_epoch(lease, commit)
        .expect("the store works");
    assert!(
        matches!(outcome, CommitOutcome::Committed(_)),
        "{outcome:?}"
    );
    begin.elapsed().as_secs_f64() * 1e3
}
