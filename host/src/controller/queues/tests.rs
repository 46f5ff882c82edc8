//! Queues as the catalog has them, what is pushed into them, who uses them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declared::{DeclaredQueues, check_declared};
use super::intake::{Intake, IntakeCounts, IntakeError, IntakeLimits, IntakeRow, ProducerNumber};
use super::registry::{
    QueueRow, all_queues, create_queue, delete_queue, find_queue, finish_deletions, number_queue,
    set_retention,
};
use super::{QueueError, users};
use crate::controller::registry::tests::intent;
use crate::controller::registry::{Registration, SinkIntent, SourceIntent};
use crate::source::queue::QueuePosition;
use crate::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
use crate::storage::queue_rows::{QueueLimit, read_bounds, read_queue};
use crate::storage::{CatalogChange, Storage, keys, leases, rows};
use crate::types::epoch::EpochCommit;
use crate::types::ids::EpochId;
use crate::types::key::MESSAGE_KEY_BYTES_MAX;
use crate::types::pipeline::QueueOptions;
use crate::types::queue::Retention;

const FOREVER: Retention = Retention {
    time_ms: None,
    bytes: None,
};

fn queue(storage: &MemoryStorage, name: &str, partitions: u32) -> QueueRow {
    create_queue(storage, name, partitions, FOREVER, 1).unwrap()
}

fn limits(rows: usize) -> IntakeLimits {
    IntakeLimits {
        rows,
        bytes: 1 << 20,
    }
}

/// The payloads of a queue, partition by partition.
fn payloads(storage: &MemoryStorage, row: &QueueRow) -> Vec<String> {
    let all = QueueLimit {
        rows: usize::MAX,
        bytes: 1 << 20,
    };
    let mut payloads = Vec::new();
    for partition in row.partitions() {
        let start = read_bounds(storage, partition).unwrap().start;
        for (_, rows) in read_queue(storage, partition, start, all).unwrap().chunks {
            let texts = rows.payloads.iter().map(String::from_utf8_lossy);
            payloads.extend(texts.map(String::from));
        }
    }
    payloads
}

/// Pushes rows of one producer under their numbers, three with each commit.
fn push(
    storage: &MemoryStorage,
    row: &QueueRow,
    numbers: std::ops::RangeInclusive<u64>,
) -> Result<IntakeCounts, IntakeError> {
    let mut intake = Intake::open(storage, row, limits(3))?;
    for seq_no in numbers {
        let payload = format!("row {seq_no}");
        let row = IntakeRow {
            key: b"",
            event_time: 0,
            payload: payload.as_bytes(),
            number: Some(ProducerNumber {
                producer: b"p",
                seq_no,
            }),
        };
        intake.push(row, 7)?;
    }
    intake.flush(7)?;
    intake.close()
}

#[test]
fn a_row_whose_key_is_too_long_is_refused_and_those_before_it_are_in() {
    let storage = MemoryStorage::new();
    let row = queue(&storage, "q", 1);
    let mut intake = Intake::open(&storage, &row, limits(3)).unwrap();
    let key = vec![b'k'; MESSAGE_KEY_BYTES_MAX + 1];
    let of_key = |key| IntakeRow {
        key,
        event_time: 0,
        payload: b"x",
        number: None,
    };
    intake.push(of_key(&key[1..]), 7).unwrap();
    let refused = intake.push(of_key(&key), 7).unwrap_err();
    assert!(refused.to_string().contains("32769 bytes"), "{refused}");
    intake.flush(7).unwrap();
    assert_eq!(payloads(&storage, &row), ["x"]);
}

#[test]
fn a_push_that_any_fault_stopped_is_repeated_without_loss_or_repetition() {
    let expected: Vec<String> = (1..=20).map(|number| format!("row {number}")).collect();
    let mut met = 0;
    for fault in [
        CommitFault::Refused,
        CommitFault::UnknownDecided,
        CommitFault::UnknownUndecided,
        CommitFault::FailedSync,
    ] {
        for (tail, at) in [UnsyncedTail::Lost, UnsyncedTail::Survived]
            .into_iter()
            .flat_map(|tail| (1..=8).map(move |at| (tail, at)))
        {
            let storage = MemoryStorage::new();
            let row = queue(&storage, "q", 1);
            storage.set_faults(Some(Box::new(move |commit| match commit.epoch {
                EpochId(epoch) if epoch == at => fault,
                _ => CommitFault::None,
            })));
            let stopped = push(&storage, &row, 1..=20);
            assert_eq!(stopped.is_err(), storage.faults_made() > 0);
            met += storage.faults_made();
            let storage = storage.crash_and_reopen(tail);
            let before = payloads(&storage, &row).len() as u64;
            let counts = push(&storage, &row, 1..=20).unwrap();
            assert_eq!((counts.repeated, counts.pushed), (before, 20 - before));
            assert_eq!(payloads(&storage, &row), expected);
        }
    }
    assert!(met >= 4 * 2 * 7, "{met} faults were met");
}

#[test]
fn a_row_is_known_by_its_producer_and_a_number_that_rises() {
    let storage = MemoryStorage::new();
    let row = queue(&storage, "q", 2);
    let mut intake = Intake::open(&storage, &row, limits(100)).unwrap();
    let mut take = |producer: Option<&str>, seq_no: u64| {
        let number = producer.map(|producer| ProducerNumber {
            producer: producer.as_bytes(),
            seq_no,
        });
        let payload = format!("{}{seq_no}", producer.unwrap_or("-"));
        let row = IntakeRow {
            key: b"k",
            event_time: 0,
            payload: payload.as_bytes(),
            number,
        };
        intake.push(row, 1).unwrap();
    };
    take(Some("a"), 0);
    take(Some("a"), 0);
    take(Some("b"), 5);
    take(Some("b"), 4);
    take(Some("a"), 9);
    take(None, 1);
    take(None, 1);
    intake.flush(1).unwrap();
    let counts = intake.close().unwrap();
    assert_eq!((counts.pushed, counts.repeated), (5, 2));
    assert_eq!(payloads(&storage, &row), ["a0", "b5", "a9", "-1", "-1"]);
}

#[test]
fn whoever_lost_the_right_to_push_pushes_nothing() {
    let storage = MemoryStorage::new();
    let row = queue(&storage, "q", 1);
    let mut first = Intake::open(&storage, &row, limits(100)).unwrap();
    let line = IntakeRow {
        key: b"",
        event_time: 0,
        payload: b"late",
        number: None,
    };
    first.push(line, 1).unwrap();
    push(&storage, &row, 1..=1).unwrap();
    assert!(matches!(first.flush(1), Err(IntakeError::Refused(_))));
    assert_eq!(payloads(&storage, &row), ["row 1"]);
}

#[test]
fn of_the_intakes_epochs_the_last_record_alone_is_kept() {
    let storage = MemoryStorage::new();
    let row = queue(&storage, "q", 1);
    push(&storage, &row, 1..=12).unwrap();
    push(&storage, &row, 1..=15).unwrap();
    let kept = rows::epoch_records_kept(&storage, row.intake).unwrap();
    assert_eq!(kept, [EpochId(5)]);
}

#[test]
fn a_deletion_that_was_interrupted_is_finished_and_its_numbers_are_not_used_again() {
    let storage = MemoryStorage::new();
    let row = queue(&storage, "q", 2);
    push(&storage, &row, 1..=9).unwrap();
    // As a process leaves it that dies behind its decision.
    let found = storage.read_catalog(&keys::queue("q")).unwrap();
    let tombstone = keys::deleted_queue(row.partitions()[0]);
    let change = CatalogChange {
        expectations: Vec::new(),
        writes: vec![(keys::queue("q"), None), (tombstone, found)],
    };
    storage.commit_catalog(&change).unwrap();
    assert!(all_queues(&storage).unwrap().is_empty());
    let again = queue(&storage, "q", 2);
    assert_eq!(payloads(&storage, &row).len(), 9);
    finish_deletions(&storage).unwrap();
    assert!(payloads(&storage, &row).is_empty());
    assert!(
        rows::state_names_kept(&storage, row.intake)
            .unwrap()
            .is_empty()
    );
    assert!(
        rows::epoch_records_kept(&storage, row.intake)
            .unwrap()
            .is_empty()
    );
    assert!(
        storage
            .scan_catalog(&[keys::CATALOG_QUEUE, 0])
            .unwrap()
            .is_empty()
    );
    let old: Vec<_> = row.partitions().into_iter().chain([row.intake]).collect();
    let new: Vec<_> = again
        .partitions()
        .into_iter()
        .chain([again.intake])
        .collect();
    assert!(old.iter().all(|number| !new.contains(number)));
    // The producer's numbers begin again with it.
    assert_eq!(push(&storage, &again, 1..=9).unwrap().pushed, 9);
    delete_queue(&storage, "q", false).unwrap();
    assert!(matches!(
        find_queue(&storage, "q"),
        Err(QueueError::Unknown { .. })
    ));
}

#[test]
fn what_a_pipeline_declares_is_made_compared_and_put_in_force() {
    let storage = MemoryStorage::new();
    let week = Retention {
        time_ms: Some(7),
        bytes: None,
    };
    let declared = |partitions, retention| {
        let options = QueueOptions {
            partitions,
            retention,
            line: 3,
        };
        BTreeMap::from([("q".to_owned(), options)])
    };
    let draft = |partitions, retention| {
        DeclaredQueues::draft(&storage, &declared(partitions, retention), 5)
    };
    draft(4, Some(week)).unwrap().commit(&storage).unwrap();
    let made = find_queue(&storage, "q").unwrap();
    assert_eq!(
        (made.partition_count(), made.retention, made.created_at),
        (4, week, 5)
    );
    // What is not written stays.
    let same = draft(4, None).unwrap();
    assert_eq!(same.partitions("q"), made.partitions());
    same.commit(&storage).unwrap();
    assert_eq!(find_queue(&storage, "q").unwrap(), made);
    draft(4, Some(FOREVER)).unwrap().commit(&storage).unwrap();
    assert_eq!(find_queue(&storage, "q").unwrap().retention, FOREVER);
    let refused = draft(3, None).unwrap_err();
    assert!(matches!(
        refused,
        QueueError::OtherPartitions {
            stored: 4,
            declared: 3,
            ..
        }
    ));
    assert!(refused.is_conflict());
    let found = check_declared(&storage, &declared(3, None)).unwrap();
    assert_eq!(found.len(), 1);
    // Somebody else was quicker.
    let late = draft(4, Some(week)).unwrap();
    set_retention(
        &storage,
        "q",
        Retention {
            bytes: Some(9),
            ..FOREVER
        },
    )
    .unwrap();
    assert!(matches!(
        late.commit(&storage),
        Err(QueueError::Contended { .. })
    ));
}

#[test]
fn a_queue_knows_its_users_and_how_far_its_readers_are() {
    let storage = MemoryStorage::new();
    let row = queue(&storage, "alerts", 2);
    let mut intent = intent("{}", "file x", 1);
    let source = SourceIntent {
        kind: crate::source::queue::describe_kind("alerts"),
        partitions: vec!["alerts[0]".to_owned(), "alerts[1]".to_owned()],
    };
    let sink = SinkIntent {
        identity: "queue alerts of statistics".to_owned(),
        path: None,
        queue: Some("alerts".to_owned()),
    };
    intent.sources.insert("back".to_owned(), source);
    intent.streams.push("back".to_owned());
    intent.sinks.insert("there".to_owned(), sink);
    let registration = Registration::draft(&storage, "a", &intent).unwrap();
    registration.commit(&storage).unwrap();
    let found = users::users_of(&storage, "alerts").unwrap();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["source back of pipeline a", "sink there of pipeline a"]
    );
    let refused = delete_queue(&storage, "alerts", false).unwrap_err();
    assert!(matches!(refused, QueueError::Used { .. }), "{refused}");
    assert!(users::users_of(&storage, "alert").unwrap().is_empty());

    let position = QueuePosition {
        partition: row.partitions()[1],
        next: 17,
        write_time: 0,
        passed_bytes: 0,
    };
    let lease = leases::grant(&storage, registration.source("back")[1]).unwrap();
    let commit = EpochCommit {
        source_position: Some(position.encode()),
        ..EpochCommit::empty(&lease, EpochId(1))
    };
    storage.commit_epoch(lease, commit).unwrap();
    let readings = users::readings_of(&storage, "alerts", &row.partitions()).unwrap();
    assert_eq!(readings.len(), 1);
    assert_eq!(readings[0].next, [None, Some(17)]);
    // A reader of a queue that was deleted has not begun with this one.
    let other = number_queue(&storage, 2, FOREVER, 1).unwrap();
    let readings = users::readings_of(&storage, "alerts", &other.partitions()).unwrap();
    assert_eq!(readings[0].next, [None, None]);
}

/// These bytes are in docs/format.md.
#[test]
fn the_rows_have_the_bytes_that_are_written_down() {
    let storage = Arc::new(MemoryStorage::new());
    let retention = Retention {
        time_ms: Some(604_800_000),
        bytes: None,
    };
    leases::allocate(&*storage, leases::Counter::Partitions, 299).unwrap();
    create_queue(&*storage, "alerts", 4, retention, 1_000).unwrap();
    let row = storage.read_catalog(b"qalerts").unwrap().unwrap();
    let expected = b"\x01\xac\x02\x04\xb0\x02\x01\x80\x88\xb2\xa0\x02\x00\xe8\x07";
    assert_eq!(
        row.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}
