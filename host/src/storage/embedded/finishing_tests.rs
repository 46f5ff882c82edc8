//! Finished files that are not as they were left: they are found before anything is given up, and keep nobody
//! from going on who has nothing to do with them.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::tests::{Probe, grant, open};
use super::*;
use crate::storage::CommitOutcome;
use crate::storage::contract::commit_of;
use crate::types::epoch::SinkAppend;

const PART: &str = "a-1-00000000.jsonl.part";
const NAME: &str = "a-1-00000000.jsonl";
const ROWS: &str = "one\ntwo\n";

/// A store with a file of two rows that are applied.
struct Place {
    folder: tempfile::TempDir,
    storage: Option<EmbeddedStorage>,
    lease: Lease,
    file: SinkFileId,
    probe: Arc<Probe>,
    /// What ended the storage.
    failures: Arc<Mutex<Vec<String>>>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let probe = Arc::new(Probe::default());
        let failures: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&failures);
        let options = EmbeddedOptions {
            faults: Arc::<Probe>::clone(&probe),
            on_failed_sync: Arc::new(move |_, error| told.lock().unwrap().push(error.to_string())),
            ..EmbeddedOptions::default()
        };
        let storage = EmbeddedStorage::open(&folder.path().join("data"), options).unwrap();
        let lease = grant(&storage, 1);
        let file = storage.open_sink_file(&folder.path().join(PART)).unwrap();
        let bytes = ROWS.as_bytes().to_vec();
        let epoch = EpochCommit {
            appends: vec![SinkAppend { file, bytes }],
            ..commit_of(lease, 1)
        };
        let outcome = storage.commit_epoch(lease, epoch).unwrap();
        assert!(
            matches!(outcome, CommitOutcome::Committed(_)),
            "{outcome:?}"
        );
        storage.settle().unwrap();
        Place {
            folder,
            storage: Some(storage),
            lease,
            file,
            probe,
            failures,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn storage(&self) -> &EmbeddedStorage {
        self.storage.as_ref().unwrap()
    }

    /// Says that nothing more comes, which ends the storage. Returns why.
    fn finish_in_vain(&self) -> String {
        let epoch = EpochCommit {
            finished_files: vec![self.file],
            ..commit_of(self.lease, 2)
        };
        let _ = self.storage().commit_epoch(self.lease, epoch);
        let settled = self.storage().settle();
        assert!(matches!(settled, Err(StorageError::Stopped)), "{settled:?}");
        self.failures.lock().unwrap().join("; ")
    }

    fn reopen(&mut self) {
        self.storage = None;
        self.storage = Some(open(&self.path("data")).unwrap());
    }

    fn check_finished(&self) {
        assert_eq!(fs::read_to_string(self.path(NAME)).unwrap(), ROWS);
        assert!(!self.path(PART).exists());
        assert!(self.storage().sink_file_lengths().is_empty());
        assert!(self.storage().damaged().is_empty());
    }
}

/// What somebody does to a file.
type Spoil = fn(&Place);

#[test]
fn a_file_that_is_not_whole_when_it_is_to_be_finished_stops_the_store_and_loses_nothing() {
    let spoils: [(Spoil, &str); 5] = [
        (
            |place| fs::remove_file(place.path(PART)).unwrap(),
            "deleted it",
        ),
        (
            |place| fs::write(place.path(PART), "one\n").unwrap(),
            "cut it",
        ),
        (
            |place| {
                fs::write(place.path("other"), "uno\ndos\n").unwrap();
                fs::rename(place.path("other"), place.path(PART)).unwrap();
            },
            "another file was put in its place",
        ),
        (
            |place| fs::write(place.path(PART), "one\ntwo\nthree\n").unwrap(),
            "somebody else wrote to it",
        ),
        (
            // As after a backup was restored: its rows and more have the final name.
            |place| {
                fs::write(place.path(PART), "one\ntwo\nthree\n").unwrap();
                fs::rename(place.path(PART), place.path(NAME)).unwrap();
            },
            "is there with 14 bytes",
        ),
    ];
    for (spoil, expected) in spoils {
        let mut place = Place::new();
        spoil(&place);
        let failure = place.finish_in_vain();
        assert!(
            failure.contains(expected) && failure.contains(PART),
            "{failure}"
        );
        // It is put right, and nothing is missing.
        place.storage = None;
        let _ = fs::remove_file(place.path(NAME));
        fs::write(place.path(PART), ROWS).unwrap();
        place.reopen();
        place.check_finished();
    }
}

#[test]
fn a_file_that_is_gone_when_the_store_is_opened_damages_the_partition_that_was_to_finish_it() {
    let mut place = Place::new();
    fs::remove_file(place.path(PART)).unwrap();
    place.finish_in_vain();
    place.reopen();
    let damaged = place.storage().damaged();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert_eq!(damaged[0].0, PartitionId(1));
    assert!(damaged[0].1.finding.contains(PART), "{damaged:?}");
}

#[test]
fn a_taken_final_name_keeps_its_series_waiting_and_nobody_else() {
    let mut place = Place::new();
    fs::write(place.path(NAME), "of somebody else\n").unwrap();
    let failure = place.finish_in_vain();
    assert!(failure.contains("is there already"), "{failure}");
    place.reopen();
    let lengths = place.storage().sink_file_lengths();
    let unnamed = lengths[0].unnamed.as_ref().unwrap();
    assert!(unnamed.contains("is there already"), "{unnamed}");
    let next = place.path("a-1-00000001.jsonl.part");
    for refused in [
        place.storage().check_file_series(&next),
        place.storage().check_sink_file(&next),
        place.storage().open_sink_file(&next).map(|_| ()),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains(PART) && refused.contains(NAME),
            "{refused}"
        );
    }
    assert!(!next.exists());
    // Others go on, and finish files.
    let other = place.path("a-2-00000000.jsonl.part");
    let file = place.storage().open_sink_file(&other).unwrap();
    let lease = grant(place.storage(), 2);
    let epoch = EpochCommit {
        finished_files: vec![file],
        ..commit_of(lease, 1)
    };
    place.storage().commit_epoch(lease, epoch).unwrap();
    place.storage().settle().unwrap();
    assert!(place.path("a-2-00000000.jsonl").exists());
    // What was there is as it was, and once it is moved away the file gets its name.
    fs::rename(place.path(NAME), place.path("moved")).unwrap();
    place.reopen();
    place.check_finished();
    assert_eq!(
        fs::read_to_string(place.path("moved")).unwrap(),
        "of somebody else\n"
    );
    place.storage().open_sink_file(&next).unwrap();
}

#[test]
fn a_finished_file_may_be_taken_away_but_is_not_taken_for_another_one() {
    for (content, waits) in [
        (None, false),
        (Some(ROWS), false),
        (Some("one\ntwo\nthree\n"), true),
    ] {
        let mut place = Place::new();
        place.probe.act(|point| match point {
            "finish: rename the file" => Err(io::Error::other("stopped there")),
            _ => Ok(()),
        });
        place.finish_in_vain();
        place.storage = None;
        fs::remove_file(place.path(PART)).unwrap();
        if let Some(content) = content {
            fs::write(place.path(NAME), content).unwrap();
        }
        place.reopen();
        let unnamed = place.storage().sink_file_lengths();
        assert_eq!(!unnamed.is_empty(), waits, "{unnamed:?}");
        if waits {
            let finding = unnamed[0].unnamed.as_ref().unwrap();
            assert!(finding.contains("14 bytes in place of its 8"), "{finding}");
        }
    }
}

/// As in a data directory out of a backup: a file that it knows as still written was finished with one row more, and
/// later ones were begun.
#[test]
fn files_of_after_a_backup_are_put_back_or_aside_and_nothing_else_is_touched() {
    let mut place = Place::new();
    let (next, written) = ("a-1-00000001.jsonl", "a-1-00000002.jsonl.part");
    let others = [
        "a-2-00000001.jsonl",
        "b-1-00000001.jsonl",
        "a-1-00000001.csv",
        "a-1-x.jsonl",
    ];
    let spoil = |place: &Place| {
        fs::write(place.path(PART), "one\ntwo\nthree\n").unwrap();
        fs::rename(place.path(PART), place.path(NAME)).unwrap();
        for name in [next, written].iter().chain(&others) {
            fs::write(place.path(name), name).unwrap();
        }
    };
    place.reopen();
    spoil(&place);
    fs::create_dir(place.path("after-backup")).unwrap();
    let later = place.storage().later_files().unwrap();
    assert_eq!(later.finished, [(place.file, place.path(NAME), 14)]);
    assert_eq!(later.begun, [place.path(next), place.path(written)]);
    let moved = place.storage().put_back(&later).unwrap();
    assert_eq!(moved.len(), 3);
    assert_eq!(moved[0], (place.path(NAME), place.path(PART)));
    assert_eq!(place.storage().cut_sink_file(place.file).unwrap(), 6);
    assert_eq!(fs::read_to_string(place.path(PART)).unwrap(), ROWS);
    for name in [next, written] {
        let aside = place.path("after-backup-2").join(name);
        assert_eq!(fs::read_to_string(aside).unwrap(), name);
        assert!(!place.path(name).exists());
    }
    for name in others {
        assert_eq!(fs::read_to_string(place.path(name)).unwrap(), name);
    }
    assert_eq!(
        place.storage().later_files().unwrap(),
        LaterFiles::default()
    );
    // The series goes on as if nothing had come since.
    place.storage().open_sink_file(&place.path(PART)).unwrap();
    place
        .storage()
        .open_sink_file(&place.path(&format!("{next}.part")))
        .unwrap();
}

#[test]
fn a_shorter_file_under_the_final_name_is_not_taken_for_the_one_that_was_finished() {
    let mut place = Place::new();
    place.reopen();
    fs::remove_file(place.path(PART)).unwrap();
    fs::write(place.path(NAME), "one\n").unwrap();
    let later = place.storage().later_files().unwrap();
    assert_eq!(later.finished, []);
    assert_eq!(later.begun, [place.path(NAME)]);
}
