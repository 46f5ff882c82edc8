//! A small store by hand, each time with one thing wrong.

use super::*;
use crate::storage::codec::LeaseRow;
use crate::storage::contract::queue_append;
use crate::storage::letter_codec::encode_letter;
use crate::storage::letter_codec::tests::full_letter;
use crate::storage::letter_requests::tests::letter;
use crate::storage::queue_codec::{QueueChunk, WithheldRows, chunk_key, encode_queue_bounds};
use crate::storage::{StoredRow, codec, timer_keys};
use crate::types::batch::TimeDomain;
use crate::types::epoch::{ChunkMessages, EpochCommit, EpochRecord, Head, StateChanges};
use crate::types::ids::{EpochId, Generation, LaneId, LeaseId, SinkFileId, StreamId};
use crate::types::lease::Lease;
use crate::types::queue::{QueueBounds, QueuePlace};

/// A small store by hand: what a partition has after two epochs.
struct Store {
    catalog: Vec<StoredRow>,
    bulk: Vec<StoredRow>,
    /// Rows that can't be read.
    unreadable: Vec<Vec<u8>>,
}

const PARTITION: PartitionId = PartitionId(3);

fn head() -> Head {
    Head {
        generation: Generation(1),
        epoch: EpochId(2),
        ..Head::default()
    }
}

fn commit(epoch: u64) -> EpochCommit {
    let lease = Lease {
        id: LeaseId(1),
        partition: PARTITION,
        generation: Generation(1),
    };
    EpochCommit {
        record: EpochRecord::default(),
        states: vec![StateChanges {
            state: "totals".to_owned(),
            keys: [b"a".as_slice(), b"b"].into_iter().collect(),
            values: [b"1".as_slice(), b"2"].into_iter().collect(),
            touched: Vec::new(),
        }],
        ..EpochCommit::empty(&lease, EpochId(epoch))
    }
}

fn lane() -> LaneId {
    LaneId {
        producer: PARTITION,
        stream: StreamId(1),
        reader: PartitionId(4),
    }
}

impl Store {
    fn whole() -> Store {
        let lease = LeaseRow {
            generation: 1,
            current: None,
        };
        let mut bulk = std::collections::BTreeMap::from([
            (keys::store_id(), codec::encode_plain(b"id")),
            (keys::applied(PARTITION), codec::encode_head(&head())),
            (keys::sink_length(SinkFileId(1)), codec::encode_number(7)),
            (
                keys::chunk(lane(), EpochId(2)),
                codec::encode_chunk(&ChunkMessages::default()),
            ),
        ]);
        for epoch in [1, 2] {
            codec::for_each_row(&commit(epoch), |key, value| {
                if let codec::NewValue::Bytes(value) = value {
                    bulk.insert(key.to_vec(), value.to_vec());
                }
            });
        }
        Store {
            catalog: vec![
                (keys::sink_file(SinkFileId(1)), codec::encode_plain(b"rout")),
                (keys::head(PARTITION), codec::encode_head(&head())),
                (keys::catalog_store_id(), codec::encode_plain(b"id")),
                (keys::lease(PARTITION), codec::encode_lease(&lease)),
                (keys::counter("partition"), codec::encode_number(5)),
                (keys::counter("sink_file"), codec::encode_number(2)),
            ],
            bulk: bulk.into_iter().collect(),
            unreadable: Vec::new(),
        }
    }

    fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bulk.retain(|(other, _)| *other != key);
        self.bulk.extend(value.map(|value| (key, value)));
        self.bulk.sort();
    }
}

impl StoreSnapshot for Store {
    fn catalog(&self) -> &[StoredRow] {
        &self.catalog
    }

    fn scan(&self, start: &[u8], limit: ScanLimit) -> Result<Vec<StoredRow>, StorageError> {
        let from = self.bulk.iter().filter(|(key, _)| key.as_slice() >= start);
        let mut rows = Vec::new();
        for (key, value) in from.take(limit.rows.min(2)) {
            if self.unreadable.contains(key) {
                break;
            }
            rows.push((key.clone(), value.clone()));
        }
        let is_next = |key: &&Vec<u8>| key.as_slice() >= start;
        let next = self.bulk.iter().map(|(key, _)| key).find(is_next);
        match next {
            Some(key) if rows.is_empty() && self.unreadable.contains(key) => {
                Err(StorageError::Stopped)
            }
            _ => Ok(rows),
        }
    }

    fn approximate_rows(&self) -> u64 {
        self.bulk.len() as u64
    }
}

/// Partition 3 is in force and has every key but "b".
struct Facts;

impl PartitionFacts for Facts {
    fn place_of_key(&self, _partition: PartitionId, key: &[u8]) -> Option<PartitionId> {
        (key == b"stray").then_some(PartitionId(9))
    }

    fn is_in_force(&self, partition: PartitionId) -> bool {
        partition == PARTITION
    }
}

fn check(store: &Store) -> StoreCheck {
    check_store(store, &Facts, &mut |_, _| ControlFlow::Continue(()))
}

/// The one finding about what `spoil` does to a whole store.
fn finding(spoil: impl FnOnce(&mut Store)) -> String {
    let mut store = Store::whole();
    spoil(&mut store);
    let found = check(&store);
    let [finding] = &found.findings[..] else {
        panic!("one thing is wrong: {:?}", found.findings);
    };
    let partition = (finding.partition).map_or("-".to_owned(), |of| of.to_string());
    format!("{partition}: {}", finding.finding)
}

#[test]
fn a_whole_store_has_no_findings_and_its_rows_are_counted() {
    let found = check(&Store::whole());
    assert_eq!(found.findings, []);
    assert_eq!(found.counts.rows(), Store::whole().bulk.len() as u64);
    let states = (found.counts.sizes().into_iter()).find(|size| size.kind == "states");
    assert_eq!(states.map(|states| states.rows), Some(2));
}

#[test]
fn each_kind_of_row_is_held_against_its_key_and_its_format() {
    let newer = |key: Vec<u8>| finding(|store| store.set(key, Some(vec![0x7f, 1, 2, 3])));
    let state = keys::state(PARTITION, "totals", b"a");
    for (key, what) in [
        (state, "p3: the value of key a of state totals"),
        (
            keys::source_position(PARTITION),
            "p3: the row \\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x03",
        ),
        (
            keys::frontier(LaneId {
                producer: PartitionId(1),
                reader: PARTITION,
                ..lane()
            }),
            "p3: the frontier of lane p1/s1>p3",
        ),
        (
            keys::chunk(lane(), EpochId(2)),
            "p3: the chunk of epoch e2 in lane p3/s1>p4",
        ),
        (
            keys::epoch_record(PARTITION, EpochId(2)),
            "p3: the record of epoch e2 of partition p3",
        ),
        (
            keys::sink_length(SinkFileId(1)),
            "-: the length of sink file f1",
        ),
        (
            timer_keys::timer_stream(PARTITION, "quiet"),
            "p3: the count of timers of stream quiet",
        ),
        (
            keys::source_mark(PARTITION, "monday"),
            "p3: the row \\x0f\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x03monday",
        ),
        (
            keys::dead_letter(letter(3, 2, 0)),
            "p3: dead letter p3-e2-0",
        ),
    ] {
        let mut text = String::new();
        // A record that does not decode is none.
        match key[0] {
            keys::EPOCH_RECORD => {
                let mut store = Store::whole();
                store.set(key, Some(vec![0x7f, 1, 2, 3]));
                text.push_str("p3: ");
                text.push_str(&check(&store).findings[0].finding);
            }
            _ => text.push_str(&newer(key)),
        }
        assert!(text.starts_with(what), "{text} is not {what}");
        assert!(
            text.contains("format version 127 is newer than 1"),
            "{text}"
        );
    }
    let text = finding(|store| store.set(vec![0x7e, 1], Some(Vec::new())));
    assert!(text.contains("a row's key can't be decoded"), "{text}");
    let text = finding(|store| store.set(keys::key(0x7e, [8]), Some(Vec::new())));
    assert!(text.starts_with("p8: this release knows no row"), "{text}");
}

#[test]
fn rows_are_held_against_heads_and_against_each_other() {
    let text = finding(|store| store.set(keys::applied(PARTITION), None));
    assert_eq!(
        text,
        "p3: its head is at epoch e2, its rows stand at epoch e0"
    );
    let text = finding(|store| {
        store.set(
            keys::applied(PartitionId(4)),
            Some(codec::encode_head(&head())),
        );
    });
    assert_eq!(text, "p4: its rows stand at epoch e2, but it has no head");
    let text = finding(|store| store.set(keys::epoch_record(PARTITION, EpochId(2)), None));
    assert_eq!(
        text,
        "p3: its head is at epoch e2, its last record is of epoch e1"
    );
    let text = finding(|store| {
        store.set(keys::epoch_record(PARTITION, EpochId(1)), None);
        store.set(keys::epoch_record(PARTITION, EpochId(2)), None);
    });
    assert_eq!(text, "p3: its last epoch e2 has no record");
    let text = finding(|store| {
        let ahead = keys::chunk(lane(), EpochId(3));
        store.set(ahead, Some(codec::encode_chunk(&ChunkMessages::default())));
    });
    assert_eq!(
        text,
        "p3: lane p3/s1>p4 has a chunk of epoch e3, which is not decided"
    );
    let text = finding(|store| {
        let ahead = keys::dead_letter(letter(3, 3, 0));
        store.set(ahead, Some(encode_letter(&full_letter())));
    });
    assert_eq!(
        text,
        "p3: dead letter p3-e3-0 is of an epoch that is not decided"
    );
    let text = finding(|store| {
        let requests = keys::letter_requests(letter(3, 2, 0));
        store.catalog.push((requests, b"\x01\x00".to_vec()));
    });
    assert!(
        text.starts_with("-: the requests from dead letter p3-e2-0 on"),
        "{text}"
    );
    let text = finding(|store| {
        store.set(
            keys::entry(PARTITION, Generation(1), EpochId(2)),
            Some(vec![1]),
        );
    });
    assert_eq!(text, "p3: its decided epoch e2 can't be applied");
    let text = finding(|store| {
        let stray = keys::state(PARTITION, "totals", b"stray");
        store.set(stray, Some(codec::encode_plain(b"1")));
    });
    assert_eq!(
        text,
        "p3: key stray of state totals belongs to partition p9"
    );
    let text = finding(|store| {
        store.set(
            keys::sink_length(SinkFileId(8)),
            Some(codec::encode_number(1)),
        );
    });
    assert_eq!(text, "-: sink file f8 has a length and no place");
    let text = finding(|store| {
        store.catalog[4].1 = codec::encode_number(3);
    });
    assert_eq!(text, "-: the counter partition stands at 3, but 3 is taken");
}

#[test]
fn timers_are_counted_and_held_against_what_their_stream_says() {
    let mut key = Vec::new();
    let timer = timer_keys::TimerKey {
        domain: TimeDomain::EventTime,
        trigger_time: 5,
        stream: "quiet",
        key: b"a",
    };
    timer_keys::write_timer(&mut key, PARTITION, &timer);
    let value = [&[1], [0; 16].as_slice()].concat();
    let text = finding(|store| store.set(key.clone(), Some(value.clone())));
    assert_eq!(
        text,
        "p3: timer stream quiet has 1 pending timers and says none"
    );
    let says = |pending: u8| [&[1, 0, pending], [0; 7].as_slice()].concat();
    let text = finding(|store| {
        store.set(key.clone(), Some(value.clone()));
        store.set(timer_keys::timer_stream(PARTITION, "quiet"), Some(says(2)));
    });
    assert_eq!(
        text,
        "p3: timer stream quiet has 1 pending timers and says 2"
    );
    let mut store = Store::whole();
    store.set(key, Some(value));
    store.set(timer_keys::timer_stream(PARTITION, "quiet"), Some(says(1)));
    assert_eq!(check(&store).findings, []);
}

#[test]
fn rows_that_can_not_be_read_are_named_and_the_others_are_looked_at() {
    let text = finding(|store| {
        store
            .unreadable
            .push(keys::state(PARTITION, "totals", b"b"));
    });
    assert!(
        text.starts_with("p3: rows of state totals can't be read: storage has stopped"),
        "{text}"
    );
    // What comes behind is found all the same.
    let mut store = Store::whole();
    store
        .unreadable
        .push(keys::state(PARTITION, "totals", b"b"));
    store.set(keys::key(0x7e, [8]), Some(Vec::new()));
    assert_eq!(check(&store).findings_count(), 2);
}

const QUEUE: PartitionId = PartitionId(8);

/// A store with three chunks of two rows in a queue.
fn with_queue() -> Store {
    let mut store = Store::whole();
    let mut bounds = QueueBounds::default();
    for _ in 0..3 {
        let append = queue_append(QUEUE, 1, &["a", "b"]);
        let chunk = QueueChunk {
            place: bounds.next_place(),
            append,
        };
        bounds.cover(&chunk.span());
        store.set(chunk_key(&chunk.span()), Some(chunk.encode()));
    }
    set_bounds(&mut store, bounds);
    store
}

fn set_bounds(store: &mut Store, bounds: QueueBounds) {
    let value = encode_queue_bounds(&bounds);
    store.set(keys::queue_bounds(QUEUE), Some(value));
}

/// What is found in a store with a queue.
fn queue_findings(spoil: impl FnOnce(&mut Store)) -> (Vec<String>, Vec<String>) {
    let mut store = with_queue();
    spoil(&mut store);
    let found = check(&store);
    let findings = found.findings.into_iter().map(|it| {
        assert_eq!(it.partition, Some(QUEUE));
        it.finding
    });
    (findings.collect(), found.notes)
}

#[test]
fn rows_of_queues_are_held_against_each_other_and_their_bounds() {
    let bounds = QueueBounds {
        start: 0,
        end: 6,
        written_bytes: 6 * 18,
        trimmed_bytes: 0,
    };
    let one = |spoil: &dyn Fn(&mut Store)| {
        let (mut findings, notes) = queue_findings(spoil);
        assert_eq!((findings.len(), notes.len()), (1, 0), "{findings:?}");
        findings.remove(0)
    };
    assert_eq!(queue_findings(|_| ()), (vec![], vec![]));
    let row = |last| keys::queue_rows(QUEUE, last);
    assert_eq!(one(&|it| it.set(row(1), None)), "rows 0 to 1 are missing");
    assert_eq!(one(&|it| it.set(row(3), None)), "rows 2 to 3 are missing");
    assert_eq!(one(&|it| it.set(row(5), None)), "rows 4 to 5 are missing");
    let text = one(&|it| {
        for last in [1, 3, 5] {
            it.set(row(last), None);
        }
    });
    assert_eq!(text, "rows 0 to 5 are missing");
    let text = one(&|it| it.set(keys::queue_bounds(QUEUE), None));
    assert_eq!(text, "it has rows of a queue and no bounds");
    let text = one(&|it| set_bounds(it, QueueBounds { end: 5, ..bounds }));
    assert_eq!(text, "rows 5 to 5 lie behind its end");
    let written_bytes = 109;
    let text = one(&|it| {
        let bounds = QueueBounds {
            written_bytes,
            ..bounds
        };
        set_bounds(it, bounds);
    });
    assert!(text.contains("have 108 bytes"), "{text}");
    let (findings, _) = queue_findings(|it| it.set(row(3), Some(vec![9])));
    assert!(
        findings[0].contains("format version 9 is newer"),
        "{findings:?}"
    );
    assert_eq!(findings[1], "rows 2 to 3 are missing");
    // A chunk that has what the next one has.
    let (findings, _) = queue_findings(|it| {
        let (_, value) = it.bulk.iter().find(|(key, _)| *key == row(5)).unwrap();
        it.set(row(2), Some(value.clone()));
    });
    assert_eq!(
        findings,
        ["rows 1 to 1 are there twice", "rows 2 to 2 are there twice"]
    );
    // Trimmed, and an interrupted trim.
    let trimmed = QueueBounds {
        start: 3,
        trimmed_bytes: 54,
        ..bounds
    };
    let (findings, notes) = queue_findings(|it| {
        it.set(row(1), None);
        set_bounds(it, trimmed);
    });
    assert_eq!((findings, notes), (vec![], vec![]));
    let (findings, notes) = queue_findings(|it| set_bounds(it, trimmed));
    assert_eq!(findings, Vec::<String>::new());
    assert!(notes[0].contains("below row 3"), "{notes:?}");
}

#[test]
fn withheld_rows_of_queues_are_named_with_whose_they_are() {
    let (findings, _) = queue_findings(|it| {
        let append = queue_append(QUEUE, 1, &["a", "b"]);
        let place = QueuePlace {
            offset: 2,
            bytes_before: 36,
        };
        let withheld = WithheldRows {
            span: append.span(place),
            partition: PARTITION,
            epoch: EpochId(5),
        };
        it.set(chunk_key(&withheld.span), Some(withheld.encode()));
    });
    assert_eq!(
        findings,
        ["rows 2 to 3 are withheld: epoch e5 of partition p3 has them, which is damaged"]
    );
}
