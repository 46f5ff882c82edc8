//! The embedded storage in one process: the contract, opening and reopening, what it refuses, what
//! it does when a write or sync fails. A *crash image* is a copy of the directory of a running
//! storage. `crash_tests.rs` kills real processes.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::bulk::{OpenError, prefix_range};
use super::*;
use crate::storage::contract::{self, chunk, commit_of, states};
use crate::storage::{CommitOutcome, Refusal, keys, rows};
use crate::types::epoch::SinkAppend;
use crate::types::ids::{LaneId, StreamId};

fn fixture() -> contract::Fixture {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let storage = EmbeddedStorage::open(&dir.path().join("data"), EmbeddedOptions::default());
    contract::Fixture {
        storage: Arc::new(storage.expect("the storage opens")),
        sink_directory: dir.path().to_owned(),
        read_sink: Box::new(|_, path| std::fs::read(path).expect("the sink file is there")),
        keep: Box::new(dir),
    }
}

crate::storage_contract_tests!(fixture);

// ------------------------------------------------------------------------------- material

/// What a test does at a point.
type Action = Box<dyn FnMut(&'static str) -> io::Result<()> + Send>;

/// Counts the points that are passed and lets a test act at them.
#[derive(Default)]
pub(super) struct Probe {
    counts: Mutex<HashMap<&'static str, usize>>,
    action: Mutex<Option<Action>>,
}

impl Probe {
    pub(super) fn count(&self, point: &str) -> usize {
        self.counts.lock().unwrap().get(point).copied().unwrap_or(0)
    }

    pub(super) fn act(&self, action: impl FnMut(&'static str) -> io::Result<()> + Send + 'static) {
        *self.action.lock().unwrap() = Some(Box::new(action));
    }
}

impl FaultPoints for Probe {
    fn reach(&self, point: &'static str) -> io::Result<()> {
        *self.counts.lock().unwrap().entry(point).or_default() += 1;
        // Taken out while it runs: what it does passes points too.
        let taken = self.action.lock().unwrap().take();
        let Some(mut action) = taken else {
            return Ok(());
        };
        let result = action(point);
        self.action.lock().unwrap().get_or_insert(action);
        result
    }
}

/// What a test does to a path behind the storage's back.
type Spoil = fn(&Path);

/// Applies only when told to.
pub(super) fn lagging(probe: &Arc<Probe>) -> EmbeddedOptions {
    EmbeddedOptions {
        apply_idle_ms: 3_600_000,
        sink_idle_ms: 3_600_000,
        faults: Arc::<Probe>::clone(probe),
        ..EmbeddedOptions::default()
    }
}

pub(super) fn open(dir: &Path) -> Result<EmbeddedStorage, StorageError> {
    EmbeddedStorage::open(dir, EmbeddedOptions::default())
}

pub(super) fn grant(storage: &dyn Storage, partition: u64) -> Lease {
    leases::grant(storage, PartitionId(partition)).unwrap()
}

/// An epoch whose rows are large enough to span pages.
pub(super) fn epoch_of(lease: Lease, epoch: u64) -> EpochCommit {
    let rows = (0..100).map(|key| (format!("key {key}"), Some(format!("{epoch:0100}"))));
    EpochCommit {
        states: states(rows),
        ..commit_of(lease, epoch)
    }
}

pub(super) fn commit_epochs(
    storage: &dyn Storage,
    lease: Lease,
    epochs: std::ops::RangeInclusive<u64>,
) {
    for epoch in epochs {
        let outcome = storage.commit_epoch(lease, epoch_of(lease, epoch)).unwrap();
        assert!(
            matches!(outcome, CommitOutcome::Committed(_)),
            "{outcome:?}"
        );
    }
}

/// The epoch whose rows a partition has, all of them; 0 where it has none.
pub(super) fn epoch_of_rows(storage: &dyn Storage, partition: u64) -> u64 {
    let page = rows::scan_states(
        storage,
        PartitionId(partition),
        "count",
        b"",
        ScanLimit::rows(1_000),
    )
    .unwrap();
    assert!(
        page.rows.len() == 100 || page.rows.is_empty(),
        "{} rows",
        page.rows.len()
    );
    let epochs: std::collections::BTreeSet<u64> = (page.rows.iter())
        .map(|(_, stored)| std::str::from_utf8(&stored.value).unwrap().parse().unwrap())
        .collect();
    assert!(epochs.len() <= 1, "a mix of epochs: {epochs:?}");
    epochs.into_iter().next().unwrap_or(0)
}

pub(super) fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let target = to.join(file.file_name());
        match file.file_type().unwrap().is_dir() {
            true => copy_directory(&file.path(), &target),
            false => drop(std::fs::copy(file.path(), target).unwrap()),
        }
    }
}

/// A directory with partitions 1 and 2, each with `applied` epochs applied and two more decided.
fn image_with_lag(dir: &Path, applied: u64) -> PathBuf {
    let (live, image) = (dir.join("live"), dir.join("image"));
    let storage = EmbeddedStorage::open(&live, lagging(&Arc::default())).unwrap();
    for partition in [1, 2] {
        let lease = grant(&storage, partition);
        commit_epochs(&storage, lease, 1..=applied);
    }
    storage.settle().unwrap();
    for partition in [1, 2] {
        let lease = grant(&storage, partition);
        commit_epochs(&storage, lease, applied + 1..=applied + 2);
    }
    copy_directory(&live, &image);
    image
}

pub(super) fn open_bulk(image: &Path) -> Bulk {
    match Bulk::open(&image.join("bulk"), 1 << 20) {
        Ok(bulk) => bulk,
        Err(OpenError::Failed(error)) => panic!("{error}"),
        Err(OpenError::TornJournal(error)) => panic!("{error}"),
    }
}

pub(super) fn entry_keys(bulk: &Bulk) -> Vec<Vec<u8>> {
    let keys = bulk.view().keys(prefix_range(keys::ENTRY));
    keys.map(|key| key.unwrap().to_vec()).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let (_sender, never) = mpsc::channel::<()>();
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    panic!("{what} did not come");
}

// -------------------------------------------------------------------------------- opening

#[test]
fn decided_epochs_are_there_after_a_crash_and_after_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 3);
    for directory in [image, dir.path().join("live")] {
        for _again in 0..2 {
            let storage = open(&directory).unwrap();
            assert!(storage.damaged().is_empty());
            for partition in [1, 2] {
                assert_eq!(
                    storage.head(PartitionId(partition)).unwrap().epoch,
                    EpochId(5)
                );
                assert_eq!(epoch_of_rows(&storage, partition), 5);
            }
            assert_eq!(entry_keys(&storage.shared.bulk), Vec::<Vec<u8>>::new());
        }
    }
}

#[test]
fn a_directory_in_use_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let _storage = open(dir.path()).unwrap();
    let error = open(dir.path()).unwrap_err();
    assert!(matches!(error, StorageError::InUse { .. }), "{error}");
}

#[test]
fn a_lost_half_is_refused_and_never_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 1);
    for (lost, named) in [("bulk", "bulk rows"), ("decisions", "decisions")] {
        let copy = dir.path().join(format!("without {lost}"));
        copy_directory(&image, &copy);
        std::fs::remove_dir_all(copy.join(lost)).unwrap();
        for _again in 0..2 {
            let error = open(&copy).unwrap_err();
            assert!(
                matches!(error, StorageError::MissingStore { .. }),
                "{error}"
            );
            assert!(
                error.to_string().contains(&format!("no {named}")),
                "{error}"
            );
            assert!(!copy.join(lost).exists());
        }
    }
}

#[test]
fn a_directory_that_lost_both_halves_is_no_fresh_start() {
    for witness in ["format", "bulk-journal-0-at-9.torn-0"] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        drop(open(&data).unwrap());
        for half in ["decisions", "bulk"] {
            std::fs::remove_dir_all(data.join(half)).unwrap();
        }
        std::fs::rename(data.join("format"), data.join("kept")).unwrap();
        std::fs::copy(data.join("kept"), data.join(witness)).unwrap();
        for _again in 0..2 {
            let error = open(&data).unwrap_err();
            assert!(matches!(error, StorageError::StoresGone { .. }), "{error}");
            let text = error.to_string();
            for part in [witness, "decisions/ and bulk/", "backup", "start afresh"] {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
            assert!(!data.join("bulk").exists());
        }
        // What is no sign of a store is in nobody's way.
        std::fs::remove_file(data.join(witness)).unwrap();
        std::fs::create_dir(data.join("compiled-components")).unwrap();
        drop(open(&data).unwrap());
    }
}

#[test]
fn a_torn_tail_that_cannot_be_saved_leaves_nothing_behind_and_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    drop(open(&data).unwrap());
    let journal = data.join("bulk/0.jnl");
    let whole = crate::storage::embedded::journal::whole_until(&journal);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&journal)
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 100], whole).unwrap();
    // All names are taken, the last one, which is used again, by a device that is always full.
    let tail = |number| data.join(format!("bulk-journal-0-at-{whole}.torn-{number}"));
    for number in 0..7 {
        std::fs::write(tail(number), "an earlier one").unwrap();
    }
    std::os::unix::fs::symlink("/dev/full", tail(7)).unwrap();
    let error = open(&data).unwrap_err();
    let cause = std::error::Error::source(&error)
        .unwrap()
        .downcast_ref::<io::Error>()
        .unwrap();
    assert_eq!(cause.kind(), io::ErrorKind::StorageFull, "{error}");
    assert!(!tail(7).exists());
    // Once there is room, it is saved, and cut.
    drop(open(&data).unwrap());
    assert_eq!(std::fs::read(tail(7)).unwrap(), [7; 100]);
}

#[test]
fn halves_of_two_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 1);
    let other = dir.path().join("other");
    drop(open(&other).unwrap());
    std::fs::remove_dir_all(other.join("bulk")).unwrap();
    copy_directory(&image.join("bulk"), &other.join("bulk"));
    let error = open(&other).unwrap_err();
    assert!(matches!(error, StorageError::MixedStores { .. }), "{error}");
}

#[test]
fn an_interrupted_beginning_is_begun_again() {
    for point in [
        "open: mark the beginning",
        "open: write the format",
        "open: name the format",
        "open: make the bulk store",
        "open: write the id into the bulk store",
        "open: name a finished store",
        "open: make the decisions",
        "open: write the id into the decisions",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let probe = Arc::<Probe>::default();
        probe.act(move |passed| match passed == point {
            true => Err(io::Error::other("interrupted")),
            false => Ok(()),
        });
        assert!(EmbeddedStorage::open(dir.path(), lagging(&probe)).is_err());
        let storage = open(dir.path()).unwrap();
        let lease = grant(&storage, 1);
        commit_epochs(&storage, lease, 1..=1);
        for unfinished in ["decisions.new", "bulk.new"] {
            assert!(!dir.path().join(unfinished).exists(), "{point}");
        }
    }
}

#[test]
fn a_folder_of_the_users_is_not_taken_for_an_unfinished_store() {
    for name in ["bulk.new", "decisions.new"] {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join(name);
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("thesis"), "years of work").unwrap();
        let error = open(dir.path()).unwrap_err();
        let text = std::error::Error::source(&error).unwrap().to_string();
        assert!(text.contains("move it away"), "{text}");
        assert!(theirs.join("thesis").exists());
        // Out of the way, and back again beside finished stores.
        let aside = dir.path().join("aside");
        std::fs::rename(&theirs, &aside).unwrap();
        drop(open(dir.path()).unwrap());
        std::fs::rename(&aside, &theirs).unwrap();
        drop(open(dir.path()).unwrap());
        assert!(theirs.join("thesis").exists());
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 1);
    let bulk = open_bulk(&image);
    let key = keys::applied(PartitionId(1));
    let mut value = bulk.get(&key).unwrap().unwrap().to_vec();
    value[0] = 200;
    bulk.write([(key.into(), Some(value.into()))]).unwrap();
    bulk.sync().unwrap();
    drop(bulk);
    let text = open(&image).unwrap_err().to_string();
    assert!(text.contains("applied head of partition p1"), "{text}");
    assert!(text.contains("format version 200 is newer"), "{text}");
}

#[test]
fn a_store_that_cannot_be_read_is_refused_by_path_and_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 1);
    let spoilings: [(&str, Spoil); 4] = [
        ("a folder for a table", |image| {
            let tables = image.join("bulk/keyspaces/1/tables");
            assert!(tables.is_dir());
            std::fs::create_dir(tables.join("0")).unwrap();
        }),
        ("a folder for the log", |image| {
            std::fs::remove_file(image.join("decisions/db")).unwrap();
            std::fs::create_dir(image.join("decisions/db")).unwrap();
        }),
        ("another version", |image| {
            std::fs::write(image.join("bulk/version"), "nonsense").unwrap();
        }),
        ("settings that are none", |image| {
            std::fs::write(image.join("decisions/conf"), "nothing of the kind").unwrap();
        }),
    ];
    for (what, spoil) in spoilings {
        let copy = dir.path().join(what);
        copy_directory(&image, &copy);
        spoil(&copy);
        for _again in 0..2 {
            let error = open(&copy).unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, StorageError::Unreadable { .. }),
                "{what}: {text}"
            );
            assert!(text.contains(what), "{text}");
            assert!(text.contains("start afresh in another one"), "{text}");
        }
    }
}

// --------------------------------------------------------------------------------- damage

/// Opens the storage and returns what that logged.
fn open_and_read_log(image: &Path) -> (EmbeddedStorage, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(Arc::new(log.reopen().unwrap()))
        .finish();
    let storage = tracing::subscriber::with_default(subscriber, || open(image)).unwrap();
    (storage, std::fs::read_to_string(log.path()).unwrap())
}

fn check_damage(spoil: impl Fn(&Bulk, &[u8]), epoch: u64, expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 3);
    let bulk = open_bulk(&image);
    let entries = entry_keys(&bulk);
    assert_eq!(entries.len(), 4);
    let key = (entries.iter())
        .find(|key| {
            let (partition, _, found) = keys::parse_entry(key).unwrap();
            (partition, found) == (PartitionId(1), EpochId(epoch))
        })
        .unwrap();
    spoil(&bulk, key);
    bulk.sync().unwrap();
    drop(bulk);
    for _again in 0..2 {
        let (storage, log) = open_and_read_log(&image);
        let logged = (log.lines()).find(|line| line.contains("partition damaged"));
        let logged = logged.unwrap_or_else(|| panic!("no damage is logged: {log}"));
        for part in [
            "ERROR",
            "partition=p1",
            &format!("epoch=e{epoch}"),
            expected,
        ] {
            assert!(logged.contains(part), "{part} is missing in: {logged}");
        }
        let damaged = storage.damaged();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        let (partition, damage) = &damaged[0];
        assert_eq!((*partition, damage.epoch), (PartitionId(1), EpochId(epoch)));
        assert!(damage.finding.contains(expected), "{}", damage.finding);
        // It stops, by name, whatever is asked of it.
        let error = storage.head(PartitionId(1)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("partition p1 is damaged at epoch e{epoch}"))
        );
        assert!(leases::grant(&storage, PartitionId(1)).is_err());
        let lease = leases::current(&storage, PartitionId(1)).unwrap().unwrap();
        for epoch in [1, 4, 6] {
            let error = storage
                .commit_epoch(lease, epoch_of(lease, epoch))
                .unwrap_err();
            assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
        }
        // The other one runs.
        let lease = grant(&storage, 2);
        let next = storage.head(PartitionId(2)).unwrap().epoch.next().0;
        assert_eq!(epoch_of_rows(&storage, 2), next - 1);
        commit_epochs(&storage, lease, next..=next);
    }
}

#[test]
fn a_hole_in_the_chain_stops_its_partition_alone() {
    let remove = |bulk: &Bulk, key: &[u8]| bulk.write([(key.into(), None)]).unwrap();
    check_damage(remove, 4, "entry of a decided epoch is gone");
    check_damage(remove, 5, "entry of a decided epoch is gone");
}

#[test]
fn a_wrong_checksum_stops_its_partition_alone() {
    let flip = |bulk: &Bulk, key: &[u8]| {
        let mut value = bulk.get(key).unwrap().unwrap().to_vec();
        let middle = value.len() / 2;
        value[middle] ^= 1;
        bulk.write([(key.into(), Some(value.into()))]).unwrap();
    };
    check_damage(flip, 4, "checksum does not match");
    check_damage(flip, 5, "checksum does not match");
}

/// A directory whose decisions are those of an earlier moment: three epochs later, and `change` made
/// to the catalog, everything is applied. Returns the head that was lost, and the lease.
fn image_with_older_decisions(dir: &Path, change: impl FnOnce(&EmbeddedStorage)) -> (Head, Lease) {
    let earlier = dir.join("earlier");
    let storage = open(&dir.join("data")).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=2);
    storage.settle().unwrap();
    copy_directory(&dir.join("data/decisions"), &earlier);
    commit_epochs(&storage, lease, 3..=5);
    change(&storage);
    let head = storage.head(PartitionId(1)).unwrap();
    drop(storage);
    std::fs::remove_dir_all(dir.join("data/decisions")).unwrap();
    copy_directory(&earlier, &dir.join("data/decisions"));
    (head, lease)
}

#[test]
fn lost_heads_are_brought_forward_to_where_the_rows_stand() {
    let dir = tempfile::tempdir().unwrap();
    let (head, lease) = image_with_older_decisions(dir.path(), |_| ());
    let bulk = open_bulk(&dir.path().join("data"));
    // Staged: whether it was decided nobody can say any more.
    let entry = keys::entry(PartitionId(1), lease.generation, EpochId(6));
    bulk.write([(entry.clone().into(), Some(b"entry".as_slice().into()))])
        .unwrap();
    bulk.sync().unwrap();
    drop(bulk);
    for _again in 0..2 {
        let storage = open(&dir.path().join("data")).unwrap();
        assert!(storage.damaged().is_empty());
        assert_eq!(storage.head(PartitionId(1)).unwrap(), head);
        assert_eq!(entry_keys(&storage.shared.bulk).len(), 0);
        let aside = storage.shared.bulk.get(&keys::set_aside(&entry)).unwrap();
        assert_eq!(aside.as_deref(), Some(b"entry".as_slice()), "kept");
    }
    let storage = open(&dir.path().join("data")).unwrap();
    commit_epochs(&storage, lease, 6..=6);
    assert_eq!(epoch_of_rows(&storage, 1), 6);
}

#[test]
fn lost_decisions_that_were_more_than_heads_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let change = |storage: &EmbeddedStorage| {
        leases::allocate(storage, Counter::Streams, 1).unwrap();
    };
    image_with_older_decisions(dir.path(), change);
    for _again in 0..2 {
        let error = open(&dir.path().join("data")).unwrap_err();
        assert!(
            matches!(error, StorageError::DecisionsLost { .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("restore the data directory"),
            "{error}"
        );
    }
}

/// What a finished directory holds that a flipped bit could take away.
#[derive(Debug, PartialEq, Eq)]
struct Finished {
    catalog: Vec<StoredRow>,
    heads: Vec<Head>,
    rows: Vec<u64>,
    sink: Result<SinkFileId, String>,
}

fn read_finished(storage: &EmbeddedStorage, partitions: u64, sink: &Path) -> Finished {
    Finished {
        catalog: storage.shared.decisions.rows().unwrap(),
        heads: (1..=partitions)
            .map(|partition| storage.head(PartitionId(partition)).unwrap())
            .collect(),
        rows: (1..=partitions)
            .map(|partition| epoch_of_rows(storage, partition))
            .collect(),
        sink: storage
            .open_sink_file(sink)
            .map_err(|error| error.to_string()),
    }
}

/// Flips a bit at many offsets of the decisions' log; returns how often the directory was opened and
/// how often refused.
fn flip_bits_of_the_decisions(partitions: u64, again: bool) -> (usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    let (data, sink) = (dir.path().join("data"), dir.path().join("sink"));
    {
        let storage = open(&data).unwrap();
        let file = storage.open_sink_file(&sink).unwrap();
        for partition in 1..=partitions {
            let lease = grant(&storage, partition);
            for epoch in 1..=3 {
                append_epoch(&storage, lease, epoch, file);
            }
        }
        storage.settle().unwrap();
    }
    if again {
        // A log behind a snapshot, and one that was written on.
        let storage = open(&data).unwrap();
        commit_epochs(&storage, grant(&storage, 1), 4..=4);
    }
    let expected = {
        let control = dir.path().join("control");
        copy_directory(&data, &control);
        read_finished(&open(&control).unwrap(), partitions, &sink)
    };
    assert!(expected.sink.is_ok(), "{expected:?}");
    let log = std::fs::read(data.join("decisions/db")).unwrap();
    let used = log.iter().rposition(|byte| *byte != 0).unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let anywhere = std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % used
    });
    let offsets = [8, 12, 16, 200, 300, 400, 500, used];
    let (mut opened, mut refused) = (0, 0);
    for offset in offsets.into_iter().chain(anywhere.take(24)) {
        let image = dir.path().join("image");
        copy_directory(&data, &image);
        let mut flipped = log.clone();
        flipped[offset] ^= 0x10;
        std::fs::write(image.join("decisions/db"), flipped).unwrap();
        for _again in 0..2 {
            match open(&image) {
                Ok(storage) => {
                    let found = read_finished(&storage, partitions, &sink);
                    assert_eq!(found, expected, "offset {offset}");
                    opened += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("from a backup"), "offset {offset}: {text}");
                    refused += 1;
                }
            }
        }
        std::fs::remove_dir_all(&image).unwrap();
    }
    println!("{partitions} partitions: opened {opened} times, refused {refused} times");
    (opened, refused)
}

#[test]
fn a_flipped_bit_in_the_decisions_takes_nothing_away_unnoticed() {
    for (partitions, again) in [(2, false), (2, true), (120, true)] {
        let (_, refused) = flip_bits_of_the_decisions(partitions, again);
        assert!(refused >= 10, "the flips did no harm: {refused}");
    }
}

#[test]
fn undecided_entries_are_removed_at_opening() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let probe = Arc::<Probe>::default();
    let live = dir.path().join("live");
    let storage = EmbeddedStorage::open(&live, lagging(&probe)).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=1);
    let (from, to) = (live.clone(), image.clone());
    probe.act(move |point| {
        // Staged, synced, not decided.
        if point == "decide: write the heads" {
            copy_directory(&from, &to);
        }
        Ok(())
    });
    commit_epochs(&storage, lease, 2..=2);
    assert_eq!(
        entry_keys(&open_bulk(&image)).len(),
        2,
        "one decided, one not"
    );
    let storage = open(&image).unwrap();
    assert_eq!(entry_keys(&storage.shared.bulk).len(), 0);
    assert_eq!(storage.head(PartitionId(1)).unwrap().epoch, EpochId(1));
    assert_eq!(epoch_of_rows(&storage, 1), 1);
    commit_epochs(&storage, lease, 2..=3);
}

// ------------------------------------------------------------------------- failed writes

fn check_failure(point: &'static str) {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let exits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&exits);
    let options = EmbeddedOptions {
        on_failed_sync: Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
        }),
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(dir.path(), options).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=1);
    let hits = probe.count(point);
    probe.act(move |passed| match passed == point {
        true => Err(io::Error::other("the disk is gone")),
        false => Ok(()),
    });
    let ticket = storage.submit_epoch(lease, epoch_of(lease, 2));
    let settled = storage.settle();
    let is_decided = point.starts_with("apply") || point.starts_with("settle");
    let expected = match is_decided {
        true => storage.shared.decided_head(PartitionId(1)).epoch,
        false => EpochId(1),
    };
    match ticket.wait().unwrap() {
        CommitOutcome::Committed(head) => {
            assert!(is_decided && head.epoch == EpochId(2), "{point}");
        }
        outcome => assert!(
            !is_decided && outcome == CommitOutcome::Unknown,
            "{point}: {outcome:?}"
        ),
    }
    assert!(matches!(settled, Err(StorageError::Stopped)), "{point}");
    assert_eq!(probe.count(point), hits + 1, "{point} was passed once more");
    assert_eq!(exits.load(Ordering::SeqCst), 1, "{point}");
    // Nothing is read again from pages that may lie, and nothing hangs.
    assert!(matches!(storage.get(b"key"), Err(StorageError::Stopped)));
    assert!(matches!(
        storage.head(PartitionId(1)),
        Err(StorageError::Stopped)
    ));
    assert!(matches!(
        storage.read_catalog(b"pkey"),
        Err(StorageError::Stopped)
    ));
    let outcome = storage.commit_epoch(lease, epoch_of(lease, 3)).unwrap();
    assert_eq!(outcome, CommitOutcome::Unknown);
    drop(storage);
    // The next process finds the epoch whole or not at all.
    let storage = open(dir.path()).unwrap();
    let head = storage.head(PartitionId(1)).unwrap().epoch;
    assert!(head >= expected && head <= EpochId(2), "{point}: {head}");
    assert_eq!(EpochId(epoch_of_rows(&storage, 1)), head, "{point}");
}

#[test]
fn a_failed_write_or_sync_ends_the_process_without_an_answer() {
    for point in [
        "stage: write the entries",
        "stage: sync the entries",
        "decide: write the heads",
        "decide: flush the heads",
        "decide: sync the heads",
        "apply: write the rows",
        "settle: sync the rows",
    ] {
        check_failure(point);
    }
}

#[test]
fn the_last_words_tell_a_person_what_failed_where_and_what_to_do() {
    let full = StorageError::File {
        action: "write to",
        path: PathBuf::from("/data/out.csv"),
        source: io::Error::from(io::ErrorKind::StorageFull),
    };
    let words = last_words(Path::new("/data/.tidelock"), &full);
    for expected in [
        "/data/.tidelock",
        "failed to write to /data/out.csv: no storage space",
        "Nothing that was committed is lost",
        "the next run or command goes on",
        "Free space",
    ] {
        assert!(words.contains(expected), "{words}");
    }
    let cut = StorageError::SinkFile {
        path: PathBuf::from("/data/out.csv"),
        finding: "somebody cut it; put the whole file back".to_owned(),
    };
    let words = last_words(Path::new("/data/.tidelock"), &cut);
    assert!(words.contains("/data/out.csv: somebody cut it"), "{words}");
    assert!(
        !words.contains("Free space"),
        "the finding has the remedy: {words}"
    );
}

#[test]
fn a_failed_sync_of_the_catalog_ends_the_process_too() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let exits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&exits);
    let options = EmbeddedOptions {
        on_failed_sync: Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
        }),
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(dir.path(), options).unwrap();
    probe.act(|point| match point == "catalog: sync the rows" {
        true => Err(io::Error::other("the disk is gone")),
        false => Ok(()),
    });
    assert!(leases::allocate(&storage, Counter::Streams, 1).is_err());
    assert_eq!(exits.load(Ordering::SeqCst), 1);
    assert!(matches!(
        leases::end_all(&storage),
        Err(StorageError::Stopped)
    ));
}

// ------------------------------------------------------------------------------- staging

/// Commits one group of partitions 1, 2, 3 while the lease of 2 ends between look and decision.
fn commit_group_while_a_lease_ends(with_sink: bool) -> (Vec<bool>, usize, String) {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let storage = EmbeddedStorage::open(&dir.path().join("data"), lagging(&probe)).unwrap();
    let storage: Arc<EmbeddedStorage> = Arc::new(storage);
    let path = dir.path().join("sink");
    let file = storage.open_sink_file(&path).unwrap();
    let jobs: Vec<Lease> = (1..=3)
        .map(|partition| grant(&*storage, partition))
        .collect();
    let (weak, doomed): (Weak<EmbeddedStorage>, Lease) = (Arc::downgrade(&storage), jobs[1]);
    probe.act(move |point| {
        if point == "decide: write the heads"
            && let Some(storage) = weak.upgrade()
        {
            leases::end(&*storage, doomed).unwrap();
        }
        Ok(())
    });
    let epochs = (1..=2)
        .flat_map(|epoch| jobs.iter().map(move |lease| (epoch, *lease)))
        .map(|(epoch, lease)| {
            let mut commit = epoch_of(lease, epoch);
            if with_sink {
                let bytes = format!("{} {epoch}\n", lease.partition).into_bytes();
                commit.appends.push(SinkAppend { file, bytes });
            }
            (lease, commit)
        })
        .collect();
    let outcomes = (storage.submit_epochs(epochs).into_iter())
        .map(|ticket| match ticket.wait().unwrap() {
            CommitOutcome::Committed(_) => true,
            CommitOutcome::Refused(Refusal::LeaseLost { current: None, .. }) => false,
            outcome => panic!("{outcome:?}"),
        })
        .collect();
    let stagings = probe.count("stage: sync the entries");
    storage.settle().unwrap();
    assert_eq!(
        [1, 2, 3].map(|partition| epoch_of_rows(&*storage, partition)),
        [2, 0, 2]
    );
    assert_eq!(
        entry_keys(&storage.shared.bulk).len(),
        0,
        "the refused entries are gone"
    );
    drop(storage);
    (outcomes, stagings, std::fs::read_to_string(path).unwrap())
}

#[test]
fn room_of_a_refused_epoch_in_a_shared_file_is_given_to_those_behind_it() {
    let (outcomes, stagings, text) = commit_group_while_a_lease_ends(true);
    assert_eq!(outcomes, [true, false, true, true, false, true]);
    assert_eq!(text, "p1 1\np3 1\np1 2\np3 2\n");
    assert_eq!(stagings, 2, "the others were staged anew");
}

#[test]
fn a_refused_epoch_without_sink_bytes_holds_up_nobody() {
    let (outcomes, stagings, text) = commit_group_while_a_lease_ends(false);
    assert_eq!(outcomes, [true, false, true, true, false, true]);
    assert_eq!(text, "");
    assert_eq!(stagings, 1);
}

// ------------------------------------------------------------------------------- applying

#[test]
fn staged_bytes_are_bounded_by_applying_earlier() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let options = EmbeddedOptions {
        staged_bytes_max: 100_000,
        apply_bytes: usize::MAX,
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(dir.path(), options).unwrap();
    let lease = grant(&storage, 1);
    // An entry is some 12 kB.
    commit_epochs(&storage, lease, 1..=40);
    let applied = probe.count("apply: write the rows");
    assert!((4..=8).contains(&applied), "applied {applied} times");
    assert_eq!(epoch_of_rows(&storage, 1), 40);
}

#[test]
fn what_is_decided_is_applied_when_nothing_comes() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let options = EmbeddedOptions {
        apply_idle_ms: 1,
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(dir.path(), options).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=1);
    wait_until("the application", || {
        storage.shared.overlay.read().is_empty()
    });
    assert_eq!(epoch_of_rows(&storage, 1), 1);
}

#[test]
fn decided_rows_are_in_their_file_before_their_epoch_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let (live, crashed) = (dir.path().join("live"), dir.path().join("crashed"));
    let probe = Arc::<Probe>::default();
    let options = EmbeddedOptions {
        sink_idle_ms: 1,
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(&live.join("data"), options).unwrap();
    let lease = grant(&storage, 1);
    let file = storage.open_sink_file(&live.join("sink")).unwrap();
    append_epoch(&storage, lease, 1, file);
    let rows = |place: &Path| std::fs::read_to_string(place.join("sink")).unwrap();
    wait_until("the rows", || rows(&live) == "p1 1\n");
    assert_eq!(probe.count("apply: write the rows"), 0);
    // Written once more by the next process, in the same place.
    copy_directory(&live, &crashed);
    let storage = open(&crashed.join("data")).unwrap();
    assert_eq!(epoch_of_rows(&storage, 1), 1);
    assert_eq!(rows(&crashed), "p1 1\n");
}

#[test]
fn decided_rows_of_sinks_are_written_when_there_are_many() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let options = EmbeddedOptions {
        sink_bytes: 10,
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(&dir.path().join("data"), options).unwrap();
    let lease = grant(&storage, 1);
    let file = storage.open_sink_file(&dir.path().join("sink")).unwrap();
    (1..=4).for_each(|epoch| append_epoch(&storage, lease, epoch, file));
    // Refused, so it writes nothing: its answer tells that the writing before it is over.
    storage.commit_epoch(lease, epoch_of(lease, 99)).unwrap();
    // Five bytes each, so with every second epoch.
    assert_eq!(probe.count("apply: sync a sink file"), 2);
    assert_eq!(probe.count("apply: write the rows"), 0);
}

// ----------------------------------------------------------------------------- sink files

fn append_epoch(storage: &dyn Storage, lease: Lease, epoch: u64, file: SinkFileId) {
    let bytes = format!("{} {epoch}\n", lease.partition).into_bytes();
    let commit = EpochCommit {
        appends: vec![SinkAppend { file, bytes }],
        ..epoch_of(lease, epoch)
    };
    let outcome = storage.commit_epoch(lease, commit).unwrap();
    assert!(
        matches!(outcome, CommitOutcome::Committed(_)),
        "{outcome:?}"
    );
}

/// What is said when the file is opened, and said before by a look at it.
fn sink_error(storage: &EmbeddedStorage, path: &Path) -> String {
    let looked = storage.check_sink_file(path).unwrap_err();
    let error = storage.open_sink_file(path).unwrap_err();
    assert!(matches!(error, StorageError::SinkFile { .. }), "{error}");
    assert_eq!(looked.to_string(), error.to_string());
    error.to_string()
}

#[test]
fn a_look_at_a_sink_file_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    assert!(!EmbeddedStorage::exists_in(&data));
    let storage = open(&data).unwrap();
    assert!(EmbeddedStorage::exists_in(&data));
    let path = dir.path().join("not/yet/there");
    storage.check_sink_file(&path).unwrap();
    check_new_sink_file(&path).unwrap();
    assert!(!dir.path().join("not").exists());
    let file = storage.open_sink_file(&path).unwrap();
    append_epoch(&storage, grant(&storage, 1), 1, file);
    storage.settle().unwrap();
    storage.check_sink_file(&path).unwrap();
    // To another data directory it is somebody else's.
    let error = check_new_sink_file(&path).unwrap_err();
    assert!(error.to_string().contains("holds 5 bytes"), "{error}");
    // A file cannot lie below another one.
    let below = path.join("below");
    let error = check_new_sink_file(&below).unwrap_err();
    assert!(error.to_string().contains("is no folder"), "{error}");
    // Gone together with its folder, it is still known.
    std::fs::remove_dir_all(dir.path().join("not")).unwrap();
    let error = storage.check_sink_file(&path).unwrap_err();
    assert!(error.to_string().contains("put the file back"), "{error}");
    assert!(!dir.path().join("not").exists());
}

#[test]
fn a_file_that_is_not_as_it_was_left_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (data, path) = (dir.path().join("data"), dir.path().join("sink"));
    std::fs::write(&path, "somebody's\n").unwrap();
    let storage = open(&data).unwrap();
    assert!(sink_error(&storage, &path).contains("move the file away or delete it"));
    std::fs::write(&path, "").unwrap();
    let file = storage.open_sink_file(&path).unwrap();
    let lease = grant(&storage, 1);
    append_epoch(&storage, lease, 1, file);
    drop(storage);
    for (content, expected) in [
        (Some("p1 1\nmore\n"), "truncate -s 5"),
        (Some("p1"), "put the whole file back"),
        (None, "put the file back"),
    ] {
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let storage = open(&data).unwrap();
        let text = sink_error(&storage, &path);
        assert!(text.contains(expected), "{text}");
    }
    std::fs::write(&path, "p1 1\n").unwrap();
    let storage = open(&data).unwrap();
    assert_eq!(storage.open_sink_file(&path).unwrap(), file);
    // The same file by another name.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(storage.open_sink_file(&link).unwrap(), file);
    append_epoch(&storage, lease, 2, file);
    drop(storage);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "p1 1\np1 2\n");
}

#[test]
fn two_links_to_a_file_that_is_not_there_yet_are_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir.path().join("data")).unwrap();
    let names = ["l1", "l2", "target"].map(|name| dir.path().join(name));
    for link in &names[..2] {
        std::os::unix::fs::symlink("target", link).unwrap();
    }
    let files = [0, 1, 2].map(|index| storage.open_sink_file(&names[index]).unwrap());
    assert_eq!(files, [files[0]; 3]);
    let jobs = [1, 2].map(|partition| grant(&storage, partition));
    append_epoch(&storage, jobs[0], 1, files[0]);
    append_epoch(&storage, jobs[1], 1, files[1]);
    storage.settle().unwrap();
    let text = std::fs::read_to_string(&names[2]).unwrap();
    assert_eq!(text, "p1 1\np2 1\n", "nothing is overwritten");
}

#[test]
fn a_hard_link_to_the_file_of_another_sink_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir.path().join("data")).unwrap();
    let names = ["first", "second"].map(|name| dir.path().join(name));
    storage.open_sink_file(&names[0]).unwrap();
    std::fs::hard_link(&names[0], &names[1]).unwrap();
    let text = sink_error(&storage, &names[1]);
    assert!(text.contains("another name (a hard link)"), "{text}");
    assert!(text.contains("/first"), "{text}");
}

#[test]
fn what_is_no_file_of_its_own_is_refused_as_a_sink() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let storage = open(&data).unwrap();
    let name = |name: &str| dir.path().join(name);
    for (link, target) in [
        ("round", "again"),
        ("again", "round"),
        ("data link", "data"),
    ] {
        std::os::unix::fs::symlink(target, name(link)).unwrap();
    }
    let made = std::process::Command::new("mkfifo")
        .arg(name("pipe"))
        .status();
    assert!(made.unwrap().success());
    for (path, expected) in [
        (name("round"), "in a circle"),
        (name("pipe"), "it is a pipe"),
        (PathBuf::from("/dev/null"), "it is a device"),
        (dir.path().to_owned(), "it is a folder"),
        (data.join("sink"), "in the data directory"),
        (data.join("bulk/sink"), "in the data directory"),
        (name("data link/sink"), "in the data directory"),
    ] {
        let text = sink_error(&storage, &path);
        assert!(text.contains(expected), "{text}");
    }
    assert!(!data.join("sink").exists());
}

#[test]
fn a_file_that_another_data_directory_writes_to_is_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sink");
    let first = open(&dir.path().join("first")).unwrap();
    let file = first.open_sink_file(&path).unwrap();
    let second = open(&dir.path().join("second")).unwrap();
    let in_use = |opened: Result<SinkFileId, StorageError>| {
        let error = opened.unwrap_err();
        matches!(&error, StorageError::SinkFileInUse { path: named } if named.ends_with("sink"))
    };
    assert!(in_use(second.open_sink_file(&path)));
    let lease = grant(&first, 1);
    append_epoch(&first, lease, 1, file);
    drop(first);
    // Found again, it is taken again before anything is committed.
    let first = open(&dir.path().join("first")).unwrap();
    assert_eq!(first.open_sink_file(&path).unwrap(), file);
    assert!(in_use(second.open_sink_file(&path)));
    drop(first);
    assert!(sink_error(&second, &path).contains("knows nothing of"));
    // Whoever was refused holds nothing.
    assert!(
        open(&dir.path().join("first"))
            .unwrap()
            .open_sink_file(&path)
            .is_ok()
    );
}

#[test]
fn recovery_does_not_write_to_a_file_that_another_process_has() {
    let dir = tempfile::tempdir().unwrap();
    let (live, image, path) = (
        dir.path().join("live"),
        dir.path().join("image"),
        dir.path().join("sink"),
    );
    let storage = EmbeddedStorage::open(&live, lagging(&Arc::default())).unwrap();
    let file = storage.open_sink_file(&path).unwrap();
    append_epoch(&storage, grant(&storage, 1), 1, file);
    copy_directory(&live, &image);
    let error = open(&image).unwrap_err();
    assert!(
        matches!(error, StorageError::SinkFileInUse { .. }),
        "{error}"
    );
    drop(storage);
    std::fs::write(&path, "").unwrap();
    drop(open(&image).unwrap());
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "p1 1\n",
        "nothing is lost"
    );
}

/// Spoils a sink file between two epochs; returns how the storage failed and its directory.
fn spoil_a_sink_in_use(
    spoil: impl FnOnce(&Path),
    append_more: bool,
) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sink");
    let failure = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&failure);
    let options = EmbeddedOptions {
        on_failed_sync: Arc::new(move |_, error| *kept.lock().unwrap() = error.to_string()),
        ..lagging(&Arc::default())
    };
    let storage = EmbeddedStorage::open(&dir.path().join("data"), options).unwrap();
    let file = storage.open_sink_file(&path).unwrap();
    let lease = grant(&storage, 1);
    append_epoch(&storage, lease, 1, file);
    storage.settle().unwrap();
    spoil(&path);
    if append_more {
        append_epoch(&storage, lease, 2, file);
    }
    assert!(matches!(storage.settle(), Err(StorageError::Stopped)));
    drop(storage);
    let failure = std::mem::take(&mut *failure.lock().unwrap());
    (dir, failure)
}

#[test]
fn a_sink_cut_or_deleted_during_the_run_keeps_it_from_completing() {
    let delete = |path: &Path| std::fs::remove_file(path).unwrap();
    let cut = |path: &Path| std::fs::write(path, "p1").unwrap();
    let replace = |path: &Path| {
        let other = path.with_extension("new");
        std::fs::write(&other, "p1 1\n").unwrap();
        std::fs::rename(other, path).unwrap();
    };
    let spoilings: [(Spoil, &str); 3] = [
        (delete, "deleted it or moved it away"),
        (cut, "it holds 2 of 5 committed bytes"),
        (replace, "another file was put in its place"),
    ];
    for (spoil, expected) in spoilings {
        for append_more in [false, true] {
            let (dir, failure) = spoil_a_sink_in_use(spoil, append_more);
            assert!(failure.contains(expected), "{failure}");
            assert!(failure.contains("/sink: "), "{failure}");
            // Put back, all is there: the entries were kept.
            std::fs::write(dir.path().join("sink"), "p1 1\n").unwrap();
            drop(open(&dir.path().join("data")).unwrap());
            let text = std::fs::read_to_string(dir.path().join("sink")).unwrap();
            let expected = if append_more {
                "p1 1\np1 2\n"
            } else {
                "p1 1\n"
            };
            assert_eq!(text, expected);
        }
    }
}

#[test]
fn a_moved_project_finds_its_files_again() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    std::fs::create_dir_all(before.join("out")).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    let storage = open(&before.join("data")).unwrap();
    let inside = storage.open_sink_file(&before.join("out/sink")).unwrap();
    let outside = storage.open_sink_file(&elsewhere).unwrap();
    let lease = grant(&storage, 1);
    append_epoch(&storage, lease, 1, inside);
    append_epoch(&storage, lease, 2, outside);
    drop(storage);
    std::fs::rename(&before, &after).unwrap();
    let storage = open(&after.join("data")).unwrap();
    assert_eq!(
        storage.open_sink_file(&after.join("out/sink")).unwrap(),
        inside
    );
    assert_eq!(storage.open_sink_file(&elsewhere).unwrap(), outside);
    append_epoch(&storage, lease, 3, inside);
    append_epoch(&storage, lease, 4, outside);
    drop(storage);
    assert_eq!(
        std::fs::read_to_string(after.join("out/sink")).unwrap(),
        "p1 1\np1 3\n"
    );
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "p1 2\np1 4\n");
}

#[test]
fn entries_wait_for_a_sink_file_that_was_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let (live, kept) = (dir.path().join("live"), dir.path().join("kept"));
    std::fs::create_dir_all(&live).unwrap();
    {
        let storage = EmbeddedStorage::open(&live.join("data"), lagging(&Arc::default())).unwrap();
        let sink = storage.open_sink_file(&live.join("sink")).unwrap();
        let jobs = [1, 2, 3].map(|partition| grant(&storage, partition));
        append_epoch(&storage, jobs[0], 1, sink);
        storage.settle().unwrap();
        append_epoch(&storage, jobs[0], 2, sink);
        append_epoch(&storage, jobs[1], 1, sink);
        commit_epochs(&storage, jobs[2], 1..=1);
        copy_directory(&live, &image);
    }
    std::fs::rename(image.join("sink"), &kept).unwrap();
    let storage = open(&image.join("data")).unwrap();
    let damaged: Vec<_> = storage
        .damaged()
        .into_iter()
        .map(|(id, damage)| (id.0, damage))
        .collect();
    assert_eq!(
        damaged.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(
        damaged[0].1.finding.contains("put it back and start again"),
        "{damaged:?}"
    );
    assert_eq!(epoch_of_rows(&storage, 3), 1);
    std::fs::rename(&kept, image.join("sink")).unwrap();
    // Too late for this process: what it would append would take the room of what waits.
    assert!(sink_error(&storage, &image.join("sink")).contains("wait for it"));
    drop(storage);
    let storage = open(&image.join("data")).unwrap();
    assert!(storage.damaged().is_empty());
    assert_eq!(
        [1, 2, 3].map(|partition| epoch_of_rows(&storage, partition)),
        [2, 1, 1]
    );
    assert_eq!(
        std::fs::read_to_string(image.join("sink")).unwrap(),
        "p1 1\np1 2\np2 1\n"
    );
    assert!(storage.open_sink_file(&image.join("sink")).is_ok());
}

#[test]
fn a_lost_entry_stops_all_whose_sink_bytes_follow_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (live, image) = (dir.path().join("live"), dir.path().join("image"));
    std::fs::create_dir_all(&live).unwrap();
    {
        let storage = EmbeddedStorage::open(&live.join("data"), lagging(&Arc::default())).unwrap();
        let sink = storage.open_sink_file(&live.join("sink")).unwrap();
        let jobs = [1, 2, 3].map(|partition| grant(&storage, partition));
        append_epoch(&storage, jobs[0], 1, sink);
        append_epoch(&storage, jobs[1], 1, sink);
        append_epoch(&storage, jobs[2], 1, sink);
        copy_directory(&live, &image);
    }
    let bulk = open_bulk(&image.join("data"));
    let second = entry_keys(&bulk).swap_remove(1);
    bulk.write([(second.into(), None)]).unwrap();
    bulk.sync().unwrap();
    drop(bulk);
    for _again in 0..2 {
        let storage = open(&image.join("data")).unwrap();
        let damaged: Vec<_> = storage.damaged().into_iter().map(|(id, _)| id.0).collect();
        assert_eq!(damaged, [2, 3]);
        assert_eq!(epoch_of_rows(&storage, 1), 1);
        assert_eq!(
            std::fs::read_to_string(image.join("sink")).unwrap(),
            "p1 1\n",
            "no gap"
        );
    }
}

// ---------------------------------------------------------------------------- torn journal

/// What fjall does by itself with a journal: whether it opens.
fn opens_by_itself(image: &Path) -> bool {
    std::panic::catch_unwind(|| Bulk::open(&image.join("bulk"), 1 << 20).is_ok()).unwrap_or(false)
}

#[test]
fn a_torn_unsynced_tail_is_cut_and_no_decided_epoch_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let (synced, whole) = (dir.path().join("synced"), dir.path().join("whole"));
    let probe = Arc::<Probe>::default();
    let options = EmbeddedOptions {
        apply_bytes: 1,
        ..lagging(&probe)
    };
    let storage = EmbeddedStorage::open(&live, options).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=2);
    // Refused, so it writes nothing: its answer tells that the application before it is over.
    storage.commit_epoch(lease, epoch_of(lease, 99)).unwrap();
    let (from, before, after) = (live.clone(), synced.clone(), whole.clone());
    probe.act(move |point| {
        // All that is written by now is synced; the application that follows is not, nor is the
        // next epoch's entry.
        if point == "apply: write the rows" && !before.exists() {
            copy_directory(&from, &before);
        }
        if point == "stage: sync the entries" && before.exists() && !after.exists() {
            copy_directory(&from, &after);
        }
        Ok(())
    });
    commit_epochs(&storage, lease, 3..=4);
    let length = |image: &Path| journal::whole_until(&image.join("bulk/0.jnl"));
    let (synced_len, whole_len) = (length(&synced), length(&whole));
    assert!(whole_len > synced_len + 10_000, "{synced_len} {whole_len}");

    const PAGE_BYTES: u64 = 4_096;
    let (mut refused_by_itself, mut tears) = (0, 0);
    let mut page = synced_len.next_multiple_of(PAGE_BYTES);
    while page + PAGE_BYTES < whole_len {
        let torn = dir.path().join("torn");
        copy_directory(&whole, &torn);
        // One page in the middle never reached the disk.
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(torn.join("bulk/0.jnl"))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; PAGE_BYTES as usize], page).unwrap();
        drop(file);
        let control = dir.path().join("control");
        copy_directory(&torn, &control);
        refused_by_itself += usize::from(!opens_by_itself(&control));
        let storage = open(&torn).unwrap();
        assert!(storage.damaged().is_empty(), "{:?}", storage.damaged());
        assert_eq!(storage.head(PartitionId(1)).unwrap().epoch, EpochId(3));
        assert_eq!(epoch_of_rows(&storage, 1), 3);
        commit_epochs(&storage, lease, 4..=4);
        drop(storage);
        let saved = std::fs::read_dir(&torn).unwrap();
        let saved = saved.filter(|file| {
            file.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("bulk-journal-0-at-")
        });
        assert_eq!(saved.count(), 1, "what was cut is kept");
        std::fs::remove_dir_all(&torn).unwrap();
        std::fs::remove_dir_all(&control).unwrap();
        tears += 1;
        page += PAGE_BYTES;
    }
    println!("{tears} torn tails recovered, {refused_by_itself} of them refused by fjall alone");
    assert!(
        tears >= 2 && refused_by_itself >= 1,
        "{tears} {refused_by_itself}"
    );
}

#[test]
fn a_torn_page_of_a_decided_entry_is_damage_and_no_loss() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_lag(dir.path(), 1);
    let journal = image.join("bulk/0.jnl");
    let len = journal::whole_until(&journal);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&journal)
        .unwrap();
    // The last entry is the one of partition 2, epoch 3.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 512], len - 2_000).unwrap();
    drop(file);
    let storage = open(&image).unwrap();
    let damaged: Vec<_> = storage
        .damaged()
        .into_iter()
        .map(|(id, damage)| (id.0, damage.epoch))
        .collect();
    assert_eq!(damaged, [(2, EpochId(3))]);
    assert_eq!(epoch_of_rows(&storage, 1), 3);
}

#[test]
fn chunks_and_states_are_served_from_memory_before_they_are_applied() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::<Probe>::default();
    let storage = EmbeddedStorage::open(dir.path(), lagging(&probe)).unwrap();
    let lease = grant(&storage, 1);
    let lane = LaneId {
        producer: PartitionId(1),
        stream: StreamId(1),
        reader: PartitionId(2),
    };
    let commit = EpochCommit {
        chunks: vec![chunk(lane, 1, &["message"])],
        ..epoch_of(lease, 1)
    };
    storage.commit_epoch(lease, commit).unwrap();
    assert_eq!(
        probe.count("apply: write the rows"),
        0,
        "nothing is applied"
    );
    assert_eq!(
        storage
            .shared
            .bulk
            .get(&keys::chunk(lane, EpochId(1)))
            .unwrap(),
        None
    );
    let epochs = rows::chunk_epochs(&storage, lane, EpochId(0), EpochId(9)).unwrap();
    assert_eq!(epochs, [EpochId(1)]);
    assert_eq!(epoch_of_rows(&storage, 1), 1);
}
