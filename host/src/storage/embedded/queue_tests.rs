//! Queues over the embedded storage: what becomes of them when a partition that writes to them is damaged, and
//! what they cost the disk.

use super::bulk::RowBytes;
use super::tests::{Probe, copy_directory, entry_keys, grant, lagging, open, open_bulk};
use super::*;
use crate::storage::contract::{commit_of, queue_append, queue_texts};
use crate::storage::keys;
use crate::storage::queue_rows::{QueueError, QueueLimit, read_bounds, read_queue};
use crate::storage::scan::ScanLimit;
use crate::types::epoch::SinkAppend;
use crate::types::queue::{QueueAppend, QueueRows};

const QUEUE: PartitionId = PartitionId(60);
const LIMIT: QueueLimit = QueueLimit {
    rows: 100,
    bytes: 1 << 20,
};

/// What the epochs of [`image`] append, in the order of their offsets: the partition, then its rows.
const APPENDED: [(u64, [&str; 2]); 5] = [
    (1, ["a", "b"]),
    (2, ["c", "d"]),
    (1, ["e", "f"]),
    (2, ["g", "h"]),
    (1, ["i", "j"]),
];

/// A crash image in which none of the epochs is applied. Partition 1 writes to a sink file too.
fn image(dir: &Path) -> PathBuf {
    let (live, image) = (dir.join("live"), dir.join("image"));
    std::fs::create_dir_all(&live).unwrap();
    let storage = EmbeddedStorage::open(&live.join("data"), lagging(&Arc::default())).unwrap();
    let sink = storage.open_sink_file(&live.join("sink")).unwrap();
    let jobs = [1, 2].map(|partition| grant(&storage, partition));
    let mut epochs = [0, 0];
    for (partition, rows) in APPENDED {
        let index = partition as usize - 1;
        epochs[index] += 1;
        let mut commit = commit_of(jobs[index], epochs[index]);
        commit.queue_appends.push(queue_append(QUEUE, 1, &rows));
        if partition == 1 {
            let bytes = b"row\n".to_vec();
            commit.appends.push(SinkAppend { file: sink, bytes });
        }
        let outcome = storage.commit_epoch(jobs[index], commit).unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
    }
    copy_directory(&live, &image);
    image
}

fn all_rows() -> Vec<String> {
    let rows = APPENDED.iter().flat_map(|(_, rows)| rows);
    rows.map(|row| (*row).to_owned()).collect()
}

fn append(storage: &dyn Storage, partition: u64, row: &str) {
    let lease = grant(storage, partition);
    let epoch = storage.head(lease.partition).unwrap().epoch.0 + 1;
    let mut commit = commit_of(lease, epoch);
    commit.queue_appends.push(queue_append(QUEUE, 1, &[row]));
    let outcome = storage.commit_epoch(lease, commit).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

/// What can be read from each offset on: rows of one page, or first and last offset of what is missing and why.
fn readable(storage: &dyn Storage, from: u64) -> Result<Vec<String>, (u64, u64, String)> {
    match read_queue(storage, QUEUE, from, LIMIT) {
        Ok(page) => {
            let rows = page
                .chunks
                .iter()
                .flat_map(|(_, rows)| rows.payloads.iter());
            Ok(rows
                .map(|row| String::from_utf8_lossy(row).into_owned())
                .collect())
        }
        Err(QueueError::Missing {
            queue,
            first,
            last,
            finding,
        }) => {
            assert_eq!(queue, QUEUE);
            Err((first, last, finding))
        }
        Err(error) => panic!("{error}"),
    }
}

fn check_missing(storage: &dyn Storage, from: u64, last: u64, expected: &[&str]) {
    let (first, found, finding) = readable(storage, from).unwrap_err();
    assert_eq!((first, found), (from, last), "{finding}");
    for part in expected {
        assert!(finding.contains(part), "{part} is missing in: {finding}");
    }
}

/// Of the rows of partition 1 none is applied: they are withheld, by name, and come when it is whole again.
#[test]
fn rows_of_a_damaged_partition_are_withheld_by_name_and_come_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let (sink, kept) = (image.join("sink"), dir.path().join("kept"));
    std::fs::rename(&sink, &kept).unwrap();
    for _again in 0..2 {
        let storage = open(&image.join("data")).unwrap();
        assert_eq!(storage.damaged()[0].0, PartitionId(1));
        let whose = |epoch: &'static str| [epoch, "partition p1", "the log"];
        check_missing(&storage, 0, 1, &whose("epoch e1"));
        check_missing(&storage, 1, 1, &whose("epoch e1"));
        assert_eq!(readable(&storage, 2).unwrap(), ["c", "d"]);
        assert_eq!(readable(&storage, 3).unwrap(), ["d"]);
        check_missing(&storage, 4, 5, &whose("epoch e2"));
        assert_eq!(readable(&storage, 6).unwrap(), ["g", "h"]);
        // Nobody else gets the room at the end.
        check_missing(&storage, 8, 9, &whose("epoch e3"));
        assert_eq!(read_bounds(&storage, QUEUE).unwrap().end, 10);
        storage.check_queue_ends().unwrap();
    }
    let storage = open(&image.join("data")).unwrap();
    append(&storage, 2, "k");
    assert_eq!(readable(&storage, 10).unwrap(), ["k"]);
    // Trimmed beyond: what comes later is not brought back.
    storage.trim_queue(QUEUE, 3).unwrap();
    drop(storage);
    std::fs::rename(&kept, &sink).unwrap();
    let storage = open(&image.join("data")).unwrap();
    assert!(storage.damaged().is_empty());
    let mut expected = all_rows().split_off(3);
    expected.push("k".to_owned());
    let found = queue_texts(&storage, QUEUE, 3, LIMIT).unwrap();
    assert_eq!(found, (3..).zip(expected).collect::<Vec<_>>());
    let bounds = read_bounds(&storage, QUEUE).unwrap();
    assert_eq!(
        (bounds.written_bytes, bounds.trimmed_bytes),
        (11 * 18, 3 * 18)
    );
    let first = keys::queue_rows(QUEUE, 1);
    assert_eq!(storage.get(&first).unwrap(), None, "it was trimmed");
}

/// The entry of partition 1 and epoch 2, spoiled.
fn spoil_entry(data: &Path, spoil: impl FnOnce(&mut Vec<u8>) -> bool) {
    let bulk = open_bulk(data);
    let key = (entry_keys(&bulk).into_iter())
        .find(|key| {
            let (partition, _, epoch) = keys::parse_entry(key).unwrap();
            (partition, epoch) == (PartitionId(1), EpochId(2))
        })
        .unwrap();
    let mut entry = bulk.get(&key).unwrap().unwrap().to_vec();
    let is_kept = spoil(&mut entry);
    let entry = is_kept.then(|| RowBytes::from(entry));
    bulk.write([(key.into(), entry)]).unwrap();
    bulk.sync().unwrap();
}

#[test]
fn an_entry_with_a_damaged_body_keeps_its_room_in_queues() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    spoil_entry(&image.join("data"), |entry| {
        *entry.last_mut().unwrap() ^= 1;
        true
    });
    let storage = open(&image.join("data")).unwrap();
    // All of the partition's epochs from the damaged one back to its rows are known by their heads.
    check_missing(&storage, 0, 1, &["epoch e1", "partition p1"]);
    check_missing(&storage, 4, 5, &["epoch e2", "partition p1"]);
    check_missing(&storage, 8, 9, &["epoch e3", "partition p1"]);
    assert_eq!(readable(&storage, 6).unwrap(), ["g", "h"]);
    storage.check_queue_ends().unwrap();
}

#[test]
fn a_hole_of_a_lost_entry_is_never_read_over() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    spoil_entry(&image.join("data"), |_| false);
    let storage = open(&image.join("data")).unwrap();
    // What epoch 2 and those before it had nobody knows any more.
    check_missing(&storage, 0, 1, &["nothing is stored", "restore", "trim"]);
    assert_eq!(readable(&storage, 2).unwrap(), ["c", "d"]);
    check_missing(&storage, 4, 5, &["nothing is stored", "restore", "trim"]);
    check_missing(&storage, 8, 9, &["epoch e3", "partition p1"]);
    // Whether more rows followed nobody knows: no offset is given to others, nothing is thrown away.
    let bounds = read_bounds(&storage, QUEUE).unwrap();
    let lease = grant(&storage, 2);
    let mut commit = commit_of(lease, 3);
    commit.queue_appends.push(queue_append(QUEUE, 1, &["k"]));
    let refusals = [
        storage.commit_epoch(lease, commit).unwrap_err(),
        storage.trim_queue(QUEUE, 6).unwrap_err(),
        storage.check_queue_ends().unwrap_err(),
    ];
    for refusal in refusals {
        let text = refusal.to_string();
        for part in ["partition p1", "epoch e2", "gone", "backup"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
    assert_eq!(read_bounds(&storage, QUEUE).unwrap(), bounds);
    assert_eq!(readable(&storage, 6).unwrap(), ["g", "h"]);
    // Who brings no rows to queues goes on.
    let outcome = storage.commit_epoch(lease, commit_of(lease, 3)).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

#[test]
fn appends_to_queues_take_no_sync_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::new(Probe::default());
    let storage = EmbeddedStorage::open(&dir.path().join("data"), lagging(&probe)).unwrap();
    let lease = grant(&storage, 1);
    let syncs = || {
        [
            "stage: sync the entries",
            "decide: sync the heads",
            "trim: sync the rows",
        ]
        .map(|point| probe.count(point))
    };
    let before = syncs();
    for epoch in 1..=10 {
        let mut commit = commit_of(lease, epoch);
        if epoch > 5 {
            commit.queue_appends.push(queue_append(QUEUE, 1, &["row"]));
        }
        storage.commit_epoch(lease, commit).unwrap();
    }
    let synced: Vec<usize> = syncs()
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    assert_eq!(synced, [10, 10, 0]);
    let page = read_queue(&storage, QUEUE, 0, LIMIT).unwrap();
    assert_eq!(page.next, 5, "they are there");
}

/// An interrupted trim may leave chunks below the start: the next one takes them along.
#[test]
fn a_trim_takes_along_what_an_interrupted_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let data = image.join("data");
    let storage = open(&data).unwrap();
    let first = keys::queue_rows(QUEUE, 1);
    let row = storage.get(&first).unwrap().unwrap();
    storage.trim_queue(QUEUE, 4).unwrap();
    drop(storage);
    let bulk = open_bulk(&data);
    let left = (RowBytes::from(first.clone()), Some(RowBytes::from(row)));
    bulk.write([left]).unwrap();
    drop(bulk);
    let storage = open(&data).unwrap();
    let error = read_queue(&storage, QUEUE, 0, LIMIT).unwrap_err();
    assert!(
        matches!(error, QueueError::Trimmed { start: 4, .. }),
        "{error}"
    );
    storage.trim_queue(QUEUE, 5).unwrap();
    assert_eq!(storage.get(&first).unwrap(), None);
    assert_eq!(readable(&storage, 5).unwrap(), ["f", "g", "h", "i", "j"]);
}

#[test]
fn trims_of_many_partitions_cost_what_one_does_and_are_all_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (live, image) = (dir.path().join("live"), dir.path().join("image"));
    let probe = Arc::new(Probe::default());
    let storage = EmbeddedStorage::open(&live, lagging(&probe)).unwrap();
    let queues: Vec<PartitionId> = (100..164).map(PartitionId).collect();
    let lease = grant(&storage, 1);
    for epoch in 1..=3 {
        let mut commit = commit_of(lease, epoch);
        let appends = (queues.iter()).map(|queue| queue_append(*queue, 1, &["row", "row"]));
        commit.queue_appends.extend(appends);
        storage.commit_epoch(lease, commit).unwrap();
    }
    let costs = || {
        [
            "apply: write the rows",
            "trim: write the rows",
            "trim: sync the rows",
        ]
        .map(|point| probe.count(point))
    };
    let before = costs();
    let trims: Vec<(PartitionId, u64)> = queues.iter().map(|queue| (*queue, 3)).collect();
    storage.trim_queues(&trims).unwrap();
    let cost: Vec<usize> = (costs().iter().zip(before))
        .map(|(now, then)| now - then)
        .collect();
    assert_eq!(cost, [1, 1, 1]);
    copy_directory(&live, &image);
    drop(storage);
    let storage = open(&image).unwrap();
    for queue in queues {
        let bounds = read_bounds(&storage, queue).unwrap();
        assert_eq!((bounds.start, bounds.end), (3, 6));
        assert_eq!(storage.get(&keys::queue_rows(queue, 1)).unwrap(), None);
        let page = read_queue(&storage, queue, 3, LIMIT).unwrap();
        assert_eq!(page.next, 6);
    }
}

/// Spoils the bounds of the queue.
fn spoil_bounds(data: &Path) {
    let bulk = open_bulk(data);
    let spoiled = (
        RowBytes::from(keys::queue_bounds(QUEUE)),
        Some(RowBytes::from(vec![1, 2, 3])),
    );
    bulk.write([spoiled]).unwrap();
    bulk.sync().unwrap();
}

#[test]
fn a_queue_with_damaged_bounds_is_nobody_elses_loss_and_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let storage = open(&data).unwrap();
    append(&storage, 1, "a");
    drop(storage);
    spoil_bounds(&data);
    let storage = open(&data).unwrap();
    let leases = [1, 2].map(|partition| grant(&storage, partition));
    let other = PartitionId(61);
    let mut refused = commit_of(leases[0], 2);
    refused.queue_appends = [other, QUEUE]
        .map(|queue| queue_append(queue, 1, &["b"]))
        .to_vec();
    let mut accepted = commit_of(leases[1], 1);
    accepted.queue_appends.push(queue_append(other, 1, &["c"]));
    // Of one group.
    let tickets = storage.submit_epochs(vec![(leases[0], refused), (leases[1], accepted)]);
    let [refused, accepted] = <[_; 2]>::try_from(tickets).unwrap().map(CommitTicket::wait);
    let refusal = refused.unwrap_err();
    assert!(
        matches!(refusal, StorageError::Unstorable { .. }),
        "{refusal}"
    );
    let text = refusal.to_string();
    for part in ["bounds of queue partition p60", "backup", "delete"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(matches!(accepted.unwrap(), CommitOutcome::Committed(_)));
    let found = queue_texts(&storage, other, 0, LIMIT).unwrap();
    assert_eq!(
        found,
        [(0, "c".to_owned())],
        "the refused one took no offset"
    );
    storage.trim_queue(QUEUE, 1).unwrap_err();
    storage.remove_queue(QUEUE).unwrap();
    assert_eq!(read_bounds(&storage, QUEUE).unwrap().end, 0);
    // What was refused may be done now.
    let mut again = commit_of(leases[0], 2);
    again.queue_appends.push(queue_append(other, 1, &["d"]));
    let outcome = storage.commit_epoch(leases[0], again).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

#[test]
fn epochs_for_a_queue_with_damaged_bounds_stop_their_partitions_alone() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let data = image.join("data");
    spoil_bounds(&data);
    let storage = open(&data).unwrap();
    let damaged: Vec<PartitionId> = (storage.damaged().iter()).map(|(it, _)| *it).collect();
    assert_eq!(damaged, [PartitionId(1), PartitionId(2)]);
    let lease = grant(&storage, 3);
    let outcome = storage.commit_epoch(lease, commit_of(lease, 1)).unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

/// The tests that end the process keep what was written and not synced; this one does not count on it.
#[test]
fn trims_and_removals_are_synced_when_they_are_answered_and_finishes_before_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Arc::new(Probe::default());
    let storage = EmbeddedStorage::open(&dir.path().join("data"), lagging(&probe)).unwrap();
    let has_unsynced = || storage.shared.bulk.has_unsynced();
    append(&storage, 1, "a");
    append(&storage, 1, "b");
    storage.shared.bulk.write([]).unwrap();
    assert!(has_unsynced(), "it is seen");
    storage.trim_queue(QUEUE, 1).unwrap();
    assert!(!has_unsynced());
    storage.shared.bulk.write([]).unwrap();
    storage.remove_queue(QUEUE).unwrap();
    assert!(!has_unsynced());
    let part = storage
        .open_sink_file(&dir.path().join("rows.part"))
        .unwrap();
    let shared = Arc::downgrade(&storage.shared);
    let unsynced = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&unsynced);
    probe.act(move |point| {
        if point == "finish: rename the file" {
            let shared = shared.upgrade().unwrap();
            seen.lock().unwrap().push(shared.bulk.has_unsynced());
        }
        Ok(())
    });
    let lease = grant(&storage, 2);
    let mut commit = commit_of(lease, 1);
    let bytes = b"row\n".to_vec();
    commit.appends.push(SinkAppend { file: part, bytes });
    commit.finished_files.push(part);
    storage.commit_epoch(lease, commit).unwrap();
    storage.settle().unwrap();
    assert_eq!(*unsynced.lock().unwrap(), [false]);
    assert!(dir.path().join("rows").exists());
}

/// Chunks that do not get smaller by being compressed, 1 MiB each.
fn append_noise(storage: &dyn Storage, lease: Lease, queue: PartitionId, chunks: u64) {
    let first = storage.head(lease.partition).unwrap().epoch.0 + 1;
    for epoch in first..first + chunks {
        let mut noise = vec![0; 1 << 20];
        let seed = [queue.0, epoch].map(u64::to_le_bytes);
        let mut hasher = blake3::Hasher::new();
        hasher.update(seed.as_flattened());
        hasher.finalize_xof().fill(&mut noise);
        let mut rows = QueueRows {
            write_time: 1,
            ..QueueRows::default()
        };
        rows.push(b"", 0, &noise);
        let mut commit = commit_of(lease, epoch);
        let rows = Arc::new(rows);
        commit.queue_appends.push(QueueAppend { queue, rows });
        let outcome = storage.commit_epoch(lease, commit).unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
    }
}

/// Chunks of a partition that are in the bulk rows, wanted or not.
fn chunks_in_bulk(storage: &EmbeddedStorage, queue: PartitionId) -> usize {
    let (start, end) = keys::all_of(keys::QUEUE_ROWS, queue);
    let range = (
        std::ops::Bound::Included(start),
        std::ops::Bound::Excluded(end),
    );
    storage.shared.bulk.view().keys(range).count()
}

/// Left to compactions, rows that nobody wants would stay for as long as no new ones lie between them.
#[test]
fn tables_of_trimmed_rows_are_given_back_at_once_and_snapshots_keep_theirs() {
    const OTHER: PartitionId = PartitionId(61);
    let dir = tempfile::tempdir().unwrap();
    let storage = open(&dir.path().join("data")).unwrap();
    let lease = grant(&storage, 1);
    append_noise(&storage, lease, QUEUE, 150);
    append_noise(&storage, lease, OTHER, 8);
    storage.compact().unwrap();
    let size = || storage.shared.bulk.size_bytes().unwrap() >> 20;
    let (before, tables) = (size(), storage.shared.bulk.table_count());
    let snapshot = storage.snapshot().unwrap();

    // Less than a table's worth is left to compactions.
    storage.trim_queue(QUEUE, 4).unwrap();
    assert_eq!(storage.shared.bulk.table_count(), tables);
    storage.trim_queue(QUEUE, 149).unwrap();
    assert!(storage.shared.bulk.table_count() < tables);
    assert_eq!(chunks_in_bulk(&storage, QUEUE), 1);
    let page = read_queue(&storage, QUEUE, 149, LIMIT).unwrap();
    assert_eq!(page.next, 150);
    let page = read_queue(
        &storage,
        OTHER,
        0,
        QueueLimit {
            bytes: 64 << 20,
            ..LIMIT
        },
    )
    .unwrap();
    assert_eq!(page.next, 8);

    // The snapshot has all of them, and once it is gone so are they.
    let first = keys::queue_rows(QUEUE, 0);
    let limit = ScanLimit {
        rows: 1_000,
        bytes: usize::MAX,
    };
    let of_then = snapshot.scan(&first, limit).unwrap();
    let chunks = of_then.iter().filter(|(key, _)| key[0] == keys::QUEUE_ROWS);
    assert_eq!(chunks.count(), 158);
    drop((of_then, snapshot));
    storage.compact().unwrap();
    let after = size();
    assert!(before - after >= 60, "{before} MiB became {after} MiB");

    append_noise(&storage, lease, QUEUE, 1);
    storage.trim_queue(QUEUE, 150).unwrap();
    drop(storage);
    let storage = open(&dir.path().join("data")).unwrap();
    let page = read_queue(&storage, QUEUE, 150, LIMIT).unwrap();
    assert_eq!(page.next, 151);
    storage.remove_queue(QUEUE).unwrap();
    assert_eq!(chunks_in_bulk(&storage, QUEUE), 0);
    assert_eq!(chunks_in_bulk(&storage, OTHER), 8);
}
