//! What the contract promises of files that are finished.

use super::{Fixture, append, commit, commit_of, grant, open_sink, read_sink};
use crate::storage::{CommitOutcome, StorageError, final_name, keys};
use crate::types::epoch::EpochCommit;

/// Rule 15.
pub fn a_finished_file_has_its_rows_and_its_name_and_is_forgotten(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    // Finished with its last rows, and finished without any.
    for (at, name) in [(0, "a-1.jsonl.part"), (1, "a-2.jsonl.part")] {
        let (file, path) = open_sink(fixture, name);
        let (first, second) = (1 + 2 * at, 2 + 2 * at);
        let epoch = EpochCommit {
            appends: vec![append(file, "one\n")],
            ..commit_of(lease, first)
        };
        commit(storage, lease, epoch);
        let epoch = EpochCommit {
            appends: if at == 0 {
                vec![append(file, "two\n")]
            } else {
                Vec::new()
            },
            finished_files: vec![file],
            ..commit_of(lease, second)
        };
        commit(storage, lease, epoch);
        let finished = (file, final_name(&path).unwrap());
        let expected = if at == 0 { "one\ntwo\n" } else { "one\n" };
        assert_eq!(read_sink(fixture, &finished), expected);
    }
    assert!(
        storage
            .scan_catalog(&[keys::CATALOG_SINK_FILE])
            .unwrap()
            .is_empty()
    );
    let (start, end) = (vec![keys::SINK_LENGTH], vec![keys::SINK_LENGTH + 1]);
    assert!(storage.scan_keys(&start, &end, 10).unwrap().is_empty());
}

/// Rules 10 and 15.
pub fn what_is_finished_or_cannot_be_is_refused(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let (file, path) = open_sink(fixture, "a.part");
    let (other, _) = open_sink(fixture, "b");
    let finish = |file, epoch| EpochCommit {
        finished_files: vec![file],
        ..commit_of(lease, epoch)
    };
    let refused = storage.commit_epoch(lease, finish(other, 1));
    assert!(
        matches!(refused, Err(StorageError::Unstorable { .. })),
        "{refused:?}"
    );
    commit(storage, lease, finish(file, 1));
    storage.settle().unwrap();
    let late = EpochCommit {
        appends: vec![append(file, "late\n")],
        ..commit_of(lease, 2)
    };
    for epoch in [late, finish(file, 2)] {
        let refused = storage.commit_epoch(lease, epoch);
        assert!(
            matches!(refused, Err(StorageError::Unstorable { .. })),
            "{refused:?}"
        );
    }
    // Its name is taken from now on.
    let refused = storage.open_sink_file(&path);
    assert!(
        matches!(refused, Err(StorageError::SinkFile { .. })),
        "{refused:?}"
    );
}

/// Rules 2 and 15.
pub fn a_file_that_a_refused_epoch_finishes_goes_on(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let sink = open_sink(fixture, "a.part");
    let finish = |epoch| EpochCommit {
        finished_files: vec![sink.0],
        ..commit_of(lease, epoch)
    };
    let refused = storage.commit_epoch(lease, finish(2)).unwrap();
    assert!(matches!(refused, CommitOutcome::Refused(_)), "{refused:?}");
    let epoch = EpochCommit {
        appends: vec![append(sink.0, "one\n")],
        ..commit_of(lease, 1)
    };
    commit(storage, lease, epoch);
    assert_eq!(read_sink(fixture, &sink), "one\n");
    commit(storage, lease, finish(2));
    let finished = (sink.0, final_name(&sink.1).unwrap());
    assert_eq!(read_sink(fixture, &finished), "one\n");
}
