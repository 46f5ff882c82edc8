//! Backups of the embedded storage, and the stores that come out of them.

use std::ops::ControlFlow;

use super::tests::{commit_epochs, epoch_of, epoch_of_rows, grant, open};
use super::*;
use crate::storage::backup::BackupHeader;
use crate::storage::backup::writer::write_backup;
use crate::storage::embedded::restore::{RestoreError, Restored, restore};
use crate::types::epoch::SinkAppend;

fn backup(storage: &dyn Storage, path: &Path) {
    let snapshot = storage.snapshot().unwrap();
    let header = BackupHeader::of(&*snapshot, 1).unwrap();
    write_backup(
        &*snapshot,
        &header,
        path,
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
}

fn restore_at(backup: &Path, dir: &Path) -> Result<Restored, RestoreError> {
    restore(backup, dir, EmbeddedOptions::default(), &mut |_| {})
}

/// All rows of a store, catalog and bulk.
fn everything(storage: &dyn Storage) -> (Vec<StoredRow>, Vec<StoredRow>) {
    let snapshot = storage.snapshot().unwrap();
    let bulk = snapshot.scan(b"", ScanLimit::rows(usize::MAX)).unwrap();
    (snapshot.catalog().to_vec(), bulk)
}

#[test]
fn a_restored_store_has_every_row_and_goes_on_where_the_backup_was_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (file, sink) = (folder.path().join("backup"), folder.path().join("sink.txt"));
    let storage = open(&folder.path().join("data")).unwrap();
    let (one, two) = (grant(&storage, 1), grant(&storage, 2));
    commit_epochs(&storage, one, 1..=5);
    let id = storage.open_sink_file(&sink).unwrap();
    let with_rows = |epoch| EpochCommit {
        appends: vec![SinkAppend {
            file: id,
            bytes: b"row\n".to_vec(),
        }],
        ..epoch_of(two, epoch)
    };
    storage.commit_epoch(two, with_rows(1)).unwrap();
    backup(&storage, &file);
    let at_backup = everything(&storage);
    // What comes later is not in it.
    storage.commit_epoch(two, with_rows(2)).unwrap();
    commit_epochs(&storage, one, 6..=9);
    storage.settle().unwrap();
    assert!(everything(&storage) != at_backup);
    drop(storage);

    let restored = restore_at(&file, &folder.path().join("again")).unwrap();
    assert_eq!(restored.header.store_id.len(), 32);
    let storage = restored.storage;
    assert!(everything(&storage) == at_backup);
    assert_eq!(epoch_of_rows(&storage, 1), 5);
    let [length] = &storage.sink_file_lengths()[..] else {
        panic!("there is one file");
    };
    assert_eq!((length.committed_bytes, length.found_bytes), (4, Some(8)));
    assert!(storage.open_sink_file(&sink).is_err());
    assert_eq!(storage.cut_sink_file(id).unwrap(), 4);
    assert_eq!(storage.open_sink_file(&sink).unwrap(), id);
    assert_eq!(grant(&storage, 1).generation.0, one.generation.0 + 1);
    drop(storage);
    // Nothing of it depends on the process that restored it.
    let storage = open(&folder.path().join("again")).unwrap();
    assert_eq!(epoch_of_rows(&storage, 2), 1);
    assert_eq!(storage.damaged(), []);
}

#[test]
fn a_backup_is_of_one_moment_while_epochs_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(open(&folder.path().join("data")).unwrap());
    let is_done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = [1, 2]
        .into_iter()
        .map(|partition| {
            let (storage, is_done) = (Arc::clone(&storage), Arc::clone(&is_done));
            let lease = grant(&*storage, partition);
            std::thread::spawn(move || {
                let mut epoch = 0;
                while !is_done.load(Ordering::Acquire) {
                    epoch += 1;
                    commit_epochs(&*storage, lease, epoch..=epoch);
                }
                epoch
            })
        })
        .collect();
    let mut epochs = Vec::new();
    for number in 0..5 {
        let file = folder.path().join(format!("backup {number}"));
        backup(&*storage, &file);
        let dir = folder.path().join(format!("again {number}"));
        let restored = restore_at(&file, &dir).unwrap().storage;
        assert_eq!(restored.damaged(), []);
        // All 100 rows of a partition are of one epoch, that of its head.
        epochs.push([1, 2].map(|partition| {
            let epoch = epoch_of_rows(&restored, partition);
            assert_eq!(
                restored.head(PartitionId(partition)).unwrap().epoch.0,
                epoch
            );
            epoch
        }));
    }
    is_done.store(true, Ordering::Release);
    let last: Vec<u64> = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .collect();
    assert!(epochs.is_sorted_by(|left, right| left[0] < right[0] && left[1] < right[1]));
    assert!(epochs[4][0] < last[0], "it went on behind the last backup");
}

#[test]
fn a_part_of_a_backup_is_never_opened_and_a_damaged_one_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    let storage = open(&folder.path().join("data")).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=3);
    backup(&storage, &file);

    let dir = folder.path().join("again");
    let whole = std::fs::read(&file).unwrap();
    let spoilt = folder.path().join("spoilt");
    std::fs::write(&spoilt, &whole[..whole.len() - 20]).unwrap();
    assert!(matches!(
        restore_at(&spoilt, &dir),
        Err(RestoreError::Backup(_))
    ));
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().flatten().collect();
    assert!(
        left.iter().all(|file| file.file_name() == "lock"),
        "{left:?}"
    );

    // As a kill leaves it: the mark is there, and a part of the rows.
    std::fs::write(dir.join("restore.unfinished"), "").unwrap();
    std::fs::create_dir(dir.join("bulk")).unwrap();
    std::fs::write(dir.join("bulk/part"), "").unwrap();
    assert!(EmbeddedStorage::exists_in(&dir));
    let text = open(&dir).unwrap_err().to_string();
    assert!(text.contains("restoring was interrupted"), "{text}");
    let storage = restore_at(&file, &dir).unwrap().storage;
    assert_eq!(epoch_of_rows(&storage, 1), 3);
    drop(storage);
    assert!(open(&dir).is_ok());

    let text = restore_at(&file, &dir).unwrap_err().to_string();
    assert!(text.contains("is not empty"), "{text}");
    let text = restore_at(&file, folder.path()).unwrap_err().to_string();
    assert!(text.contains("is not empty"), "{text}");
}

#[test]
fn compaction_keeps_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(&folder.path().join("data")).unwrap();
    let lease = grant(&storage, 1);
    commit_epochs(&storage, lease, 1..=200);
    let before = everything(&storage);
    storage.compact().unwrap();
    assert!(everything(&storage) == before);
    drop(storage);
    let storage = open(&folder.path().join("data")).unwrap();
    assert_eq!(epoch_of_rows(&storage, 1), 200);
    assert!(storage.size().unwrap().bulk_bytes > 0);
}
