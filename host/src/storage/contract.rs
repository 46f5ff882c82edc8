//! The contract of [`Storage`] as tests: one function for each promise, run against every
//! implementation by [`storage_contract_tests`](crate::storage_contract_tests). Nothing here knows
//! which implementation it tests.
#![expect(
    clippy::unwrap_used,
    reason = "a suite of tests: a panic is its verdict"
)]

mod files;
mod queues;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use files::*;
pub use queues::*;

use crate::storage::codec::EPOCH_RECORDS_MAX;
use crate::storage::leases::{self, Counter};
use crate::storage::rows::{self, ChunkLimit};
use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::TimerKey;
use crate::storage::{
    CATALOG_VALUE_BYTES_MAX, CatalogChange, CatalogOutcome, CommitOutcome, Refusal, Storage,
    StorageError, keys, timer_rows,
};
use crate::types::batch::TimeDomain;
use crate::types::epoch::{
    ChunkMessages, EpochCommit, EpochRecord, FrontierAdvance, Head, LaneChunk, LaneTrim,
    SinkAppend, StateChanges,
};
use crate::types::ids::{EpochId, LaneId, PartitionId, SinkFileId, StreamId};
use crate::types::key::key_hash;
use crate::types::lease::Lease;
use crate::types::timer::{PendingTimers, TimerChanges, TimerTimes};
use crate::types::watermark::LaneTime;

/// Fresh storage, and what the suite can't know about it.
pub struct Fixture {
    /// The storage, empty.
    pub storage: Arc<dyn Storage>,
    /// Where sink files may be made.
    pub sink_directory: PathBuf,
    /// What a sink file holds once the storage is settled.
    #[expect(clippy::type_complexity, reason = "one closure, named by its field")]
    pub read_sink: Box<dyn Fn(SinkFileId, &Path) -> Vec<u8>>,
    /// What must live as long as the storage.
    pub keep: Box<dyn std::any::Any>,
}

/// Makes one test of each promise; `$fixture` is a function that returns a [`Fixture`].
#[macro_export]
macro_rules! storage_contract_tests {
    ($fixture:path) => {
        $crate::storage_contract_tests! { $fixture,
            an_epoch_is_committed_whole
            l3_commit_without_lease_writes_nothing
            l5_zombie_epoch_writes_nothing
            a_lease_covers_one_partition_and_one_generation
            an_epoch_that_does_not_follow_the_head_is_refused
            two_epochs_in_flight_are_taken_in_order
            the_second_epoch_in_flight_falls_with_the_first
            epochs_from_many_threads_are_all_committed
            what_a_partition_keeps_is_found_and_a_dropped_frontier_goes
            reads_and_scans_see_every_decided_epoch
            sink_bytes_follow_without_gap_when_one_of_a_group_is_refused
            a_finished_file_has_its_rows_and_its_name_and_is_forgotten
            what_is_finished_or_cannot_be_is_refused
            a_file_that_a_refused_epoch_finishes_goes_on
            lanes_are_read_in_order_and_trimmed
            f3_chunks_stay_until_they_are_trimmed
            epoch_records_are_kept_for_the_last_thousand_epochs
            an_epoch_drops_the_records_that_it_names
            timers_are_found_in_the_order_in_which_they_fire
            a_timer_goes_with_all_that_finds_it
            an_epoch_that_cannot_be_stored_leaves_nothing
            a_catalog_change_is_whole_or_refused
            the_catalog_refuses_reserved_rows_and_large_values
            numbers_are_never_handed_out_twice
            l4_end_all_ends_every_lease_and_generations_rise
            rows_of_queues_have_offsets_without_gap_in_the_order_of_decision
            o3_rows_of_queues_and_states_of_an_epoch_are_all_there_or_none_is
            many_producers_share_a_partition_of_a_queue
            a_trimmed_queue_keeps_its_end_and_says_what_is_gone
            a_removed_queue_leaves_nothing
            who_listens_is_told_of_rows_that_can_be_read
            rows_that_cannot_be_stored_are_refused_with_their_queue
        }
    };
    ($fixture:path, $($promise:ident)+) => {
        $(
            #[test]
            fn $promise() {
                $crate::storage::contract::$promise(&$fixture());
            }
        )+
    };
}

// ------------------------------------------------------------------------------- material

/// An epoch of the lease's partition that changes nothing but its record.
pub fn commit_of(lease: Lease, epoch: u64) -> EpochCommit {
    EpochCommit {
        record: EpochRecord {
            input_count: epoch,
            ..EpochRecord::default()
        },
        ..EpochCommit::empty(&lease, EpochId(epoch))
    }
}

/// New values of the one state that the tests know; `None` deletes a row.
pub fn states<K: AsRef<str>, V: AsRef<str>>(
    rows: impl IntoIterator<Item = (K, Option<V>)>,
) -> Vec<StateChanges> {
    let mut rows: Vec<(K, Option<V>)> = rows.into_iter().collect();
    rows.sort_by(|left, right| left.0.as_ref().cmp(right.0.as_ref()));
    let mut changes = StateChanges {
        state: "count".to_owned(),
        ..StateChanges::default()
    };
    for (key, value) in &rows {
        let value = value.as_ref().map_or("", AsRef::as_ref);
        changes.keys.push(key.as_ref().as_bytes());
        changes.values.push(value.as_bytes());
    }
    vec![changes]
}

/// A chunk of one message for each payload, made by `epoch`.
pub fn chunk(lane: LaneId, epoch: u64, payloads: &[&str]) -> LaneChunk {
    let mut messages = ChunkMessages::default();
    for (index, payload) in payloads.iter().enumerate() {
        messages
            .indexes
            .push(u32::try_from(index).expect("few payloads"));
        messages.key_hashes.push(key_hash(payload.as_bytes()));
        messages.keys.push(payload.as_bytes());
        messages.event_times.push(7);
        messages.alignments.push(5);
        messages.payloads.push(payload.as_bytes());
    }
    LaneChunk {
        lane,
        epoch: EpochId(epoch),
        messages: Arc::new(messages),
    }
}

/// Changes of timers, each with its key, trigger time and event time.
pub fn timers(
    domain: TimeDomain,
    stream: &str,
    pending: u64,
    removed: &[(&str, u64, u64)],
    set: &[(&str, u64, u64)],
) -> TimerChanges {
    let columns = |timers: &[(&str, u64, u64)]| {
        let mut columns = PendingTimers::default();
        for (key, trigger_time, event_time) in timers.iter().copied() {
            let times = TimerTimes {
                trigger_time,
                event_time,
                held_in_run: 0,
            };
            columns.push(key.as_bytes(), times);
        }
        columns
    };
    TimerChanges {
        stream: stream.to_owned(),
        domain,
        removed: columns(removed),
        set: columns(set),
        pending,
    }
}

fn append(file: SinkFileId, text: &str) -> SinkAppend {
    SinkAppend {
        file,
        bytes: text.as_bytes().to_vec(),
    }
}

fn lane(producer: u64, reader: u64) -> LaneId {
    LaneId {
        producer: PartitionId(producer),
        stream: StreamId(1),
        reader: PartitionId(reader),
    }
}

fn grant(storage: &dyn Storage, partition: u64) -> Lease {
    leases::grant(storage, PartitionId(partition)).expect("a lease is granted")
}

fn commit(storage: &dyn Storage, lease: Lease, commit: EpochCommit) -> Head {
    match storage
        .commit_epoch(lease, commit)
        .expect("the store works")
    {
        CommitOutcome::Committed(head) => head,
        outcome => panic!("not committed: {outcome:?}"),
    }
}

fn refusal(outcome: Result<CommitOutcome, StorageError>) -> Refusal {
    match outcome.expect("the store works") {
        CommitOutcome::Refused(refusal) => refusal,
        outcome => panic!("not refused: {outcome:?}"),
    }
}

fn value_of(storage: &dyn Storage, partition: u64, key: &str) -> Option<String> {
    let keys = [key.as_bytes()];
    let values = rows::read_states(storage, PartitionId(partition), "count", &keys);
    let value = values.expect("the store works").remove(0).value;
    let value = String::from_utf8(value).expect("the tests write text");
    Some(value).filter(|value| !value.is_empty())
}

/// Everything that the storage shows of a partition.
fn everything(storage: &dyn Storage, partition: u64) -> (Head, usize) {
    let partition = PartitionId(partition);
    let head = storage.head(partition).expect("the store works");
    let prefixes =
        (keys::SOURCE_POSITION..=keys::EPOCH_RECORD).chain(keys::TIMER..=keys::TIMER_STREAM);
    let count = prefixes
        .map(|prefix| {
            let start = [[prefix].as_slice(), &partition.0.to_be_bytes()].concat();
            storage
                .scan(&start, &keys::prefix_end(&start), ScanLimit::rows(1_000))
                .expect("the store works")
                .len()
        })
        .sum();
    (head, count)
}

/// An epoch that writes something of every kind.
fn full_commit(lease: Lease, epoch: u64, file: SinkFileId) -> EpochCommit {
    EpochCommit {
        source_position: Some(format!("position {epoch}").into_bytes()),
        frontiers: vec![FrontierAdvance {
            run: 1,
            time: LaneTime::default(),
            lane: lane(90, lease.partition.0),
            epoch: EpochId(epoch),
            index: 3,
        }],
        states: states([("a", Some(format!("value {epoch}")))]),
        timers: vec![timers(
            TimeDomain::SystemTime,
            "quiet",
            1,
            &[],
            &[("a", epoch, 1)],
        )],
        chunks: vec![chunk(lane(lease.partition.0, 91), epoch, &["one", "two"])],
        appends: vec![append(file, &format!("{} {epoch}\n", lease.partition))],
        ..commit_of(lease, epoch)
    }
}

fn open_sink(fixture: &Fixture, name: &str) -> (SinkFileId, PathBuf) {
    let path = fixture.sink_directory.join(name);
    (
        fixture
            .storage
            .open_sink_file(&path)
            .expect("the sink file opens"),
        path,
    )
}

fn read_sink(fixture: &Fixture, (file, path): &(SinkFileId, PathBuf)) -> String {
    fixture.storage.settle().expect("the store works");
    String::from_utf8((fixture.read_sink)(*file, path)).expect("the tests write text")
}

// ------------------------------------------------------------------------------- promises

/// Rules 1 and 4.
pub fn an_epoch_is_committed_whole(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let sink = open_sink(fixture, "whole");
    let lease = grant(storage, 1);
    let head = commit(storage, lease, full_commit(lease, 1, sink.0));
    assert_eq!(
        (head.generation, head.epoch),
        (lease.generation, EpochId(1))
    );
    for _settled in [false, true] {
        let partition = PartitionId(1);
        assert_eq!(storage.head(partition).unwrap(), head);
        let position = rows::read_source_position(storage, partition).unwrap();
        assert_eq!(position.as_deref(), Some(b"position 1".as_slice()));
        let frontier = rows::read_frontier(storage, lane(90, 1)).unwrap().unwrap();
        assert_eq!((frontier.epoch, frontier.index), (EpochId(1), 3));
        assert_eq!(value_of(storage, 1, "a").as_deref(), Some("value 1"));
        let limit = ChunkLimit {
            chunks: 10,
            bytes: 1_000,
        };
        let chunks = rows::read_chunks(storage, lane(1, 91), EpochId(1), limit).unwrap();
        assert_eq!(
            chunks,
            [(
                EpochId(1),
                Arc::unwrap_or_clone(chunk(lane(1, 91), 1, &["one", "two"]).messages)
            )]
        );
        let record = rows::read_epoch_record(storage, partition, EpochId(1))
            .unwrap()
            .unwrap();
        assert_eq!(record.input_count, 1);
        assert_eq!(read_sink(fixture, &sink), "p1 1\n");
    }
}

/// Rule 2: L3.
pub fn l3_commit_without_lease_writes_nothing(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let sink = open_sink(fixture, "without lease");
    let lease = grant(storage, 1);
    assert!(leases::end(storage, lease).unwrap());
    assert!(!leases::end(storage, lease).unwrap(), "it is over already");
    assert_eq!(leases::current(storage, PartitionId(1)).unwrap(), None);
    let refusal = refusal(storage.commit_epoch(lease, full_commit(lease, 1, sink.0)));
    let expected = Refusal::LeaseLost {
        partition: PartitionId(1),
        held: lease.id,
        current: None,
    };
    assert_eq!(refusal, expected);
    assert_eq!(everything(storage, 1), (Head::default(), 0));
    assert_eq!(read_sink(fixture, &sink), "");
    // The control: with a lease the same epoch writes.
    let lease = grant(storage, 1);
    commit(storage, lease, full_commit(lease, 1, sink.0));
    assert!(everything(storage, 1).1 > 0);
    assert_eq!(read_sink(fixture, &sink), "p1 1\n");
}

/// Rule 2: L5.
pub fn l5_zombie_epoch_writes_nothing(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let sink = open_sink(fixture, "zombie");
    let zombie = grant(storage, 1);
    commit(storage, zombie, full_commit(zombie, 1, sink.0));
    let successor = grant(storage, 1);
    assert!(successor.generation > zombie.generation && successor.id != zombie.id);
    let before = everything(storage, 1);
    // It wakes up with the very epoch that would follow.
    let refused = refusal(storage.commit_epoch(zombie, full_commit(zombie, 2, sink.0)));
    assert!(matches!(refused, Refusal::LeaseLost { current: Some(id), .. } if id == successor.id));
    assert_eq!(everything(storage, 1), before);
    let head = commit(storage, successor, full_commit(successor, 2, sink.0));
    refusal(storage.commit_epoch(zombie, full_commit(zombie, 3, sink.0)));
    assert_eq!(storage.head(PartitionId(1)).unwrap(), head);
    assert_eq!(read_sink(fixture, &sink), "p1 1\np1 2\n");
}

/// Rule 2.
pub fn a_lease_covers_one_partition_and_one_generation(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let (lease, other) = (grant(storage, 1), grant(storage, 2));
    let mut forged = commit_of(lease, 1);
    forged.partition = other.partition;
    refusal(storage.commit_epoch(lease, forged));
    let mut forged = commit_of(lease, 1);
    forged.generation.0 += 1;
    refusal(storage.commit_epoch(lease, forged));
    assert_eq!(everything(storage, 1), (Head::default(), 0));
    assert_eq!(everything(storage, 2), (Head::default(), 0));
}

/// Rule 2.
pub fn an_epoch_that_does_not_follow_the_head_is_refused(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    commit(storage, lease, commit_of(lease, 1));
    commit(storage, lease, commit_of(lease, 2));
    for wrong in [0, 1, 2, 4, u64::MAX] {
        let refused = refusal(storage.commit_epoch(lease, commit_of(lease, wrong)));
        let expected = Refusal::OutOfOrder {
            partition: PartitionId(1),
            expected: EpochId(3),
            found: EpochId(wrong),
            found_generation: lease.generation,
        };
        assert_eq!(refused, expected);
    }
    commit(storage, lease, commit_of(lease, 3));
}

/// Rule 5.
pub fn two_epochs_in_flight_are_taken_in_order(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    for pair in 0..20 {
        let first = storage.submit_epoch(lease, commit_of(lease, 2 * pair + 1));
        let second = storage.submit_epoch(lease, commit_of(lease, 2 * pair + 2));
        assert!(matches!(second.wait(), Ok(CommitOutcome::Committed(_))));
        assert!(matches!(first.wait(), Ok(CommitOutcome::Committed(_))));
    }
    assert_eq!(storage.head(PartitionId(1)).unwrap().epoch, EpochId(40));
}

/// Rule 5.
pub fn the_second_epoch_in_flight_falls_with_the_first(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let sink = open_sink(fixture, "in flight");
    let lease = grant(storage, 1);
    commit(storage, lease, full_commit(lease, 1, sink.0));
    let before = everything(storage, 1);
    leases::end(storage, lease).unwrap();
    let epochs = (2..5)
        .map(|epoch| (lease, full_commit(lease, epoch, sink.0)))
        .collect();
    for ticket in storage.submit_epochs(epochs) {
        refusal(ticket.wait());
    }
    // And where the first is refused for its order alone.
    let lease = grant(storage, 1);
    let epochs = (3..5)
        .map(|epoch| (lease, full_commit(lease, epoch, sink.0)))
        .collect();
    for ticket in storage.submit_epochs(epochs) {
        assert!(matches!(refusal(ticket.wait()), Refusal::OutOfOrder { .. }));
    }
    assert_eq!(everything(storage, 1), before);
    assert_eq!(read_sink(fixture, &sink), "p1 1\n");
}

/// Rules 1, 5 and 6.
pub fn epochs_from_many_threads_are_all_committed(fixture: &Fixture) {
    const THREADS: u64 = 4;
    const EPOCHS: u64 = 25;
    let storage = &*fixture.storage;
    let sink = open_sink(fixture, "threads");
    std::thread::scope(|scope| {
        for partition in 1..=THREADS {
            let file = sink.0;
            scope.spawn(move || {
                let lease = grant(storage, partition);
                for epoch in 1..=EPOCHS {
                    commit(storage, lease, full_commit(lease, epoch, file));
                    let value = value_of(storage, partition, "a");
                    assert_eq!(value, Some(format!("value {epoch}")));
                }
            });
        }
    });
    let text = read_sink(fixture, &sink);
    for partition in 1..=THREADS {
        let head = storage.head(PartitionId(partition)).unwrap();
        assert_eq!(head.epoch, EpochId(EPOCHS));
        let prefix = format!("p{partition} ");
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&prefix))
            .collect();
        let expected: Vec<String> = (1..=EPOCHS)
            .map(|epoch| format!("{prefix}{epoch}"))
            .collect();
        assert_eq!(found, expected);
    }
    assert_eq!(text.lines().count() as u64, THREADS * EPOCHS);
}

/// What a partition's epochs wrote can be found without its names, and a frontier that is dropped
/// is gone: what becomes of a partition that is replaced.
pub fn what_a_partition_keeps_is_found_and_a_dropped_frontier_goes(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let (taken, dropped) = (lane(90, 1), lane(91, 1));
    let advance = |lane| FrontierAdvance {
        run: 1,
        time: LaneTime::default(),
        lane,
        epoch: EpochId(1),
        index: 3,
    };
    let mut of_two_states = states([("a", Some("1")), ("b", Some("1"))]);
    of_two_states.extend(states([("b", Some("2"))]));
    of_two_states[1].state = "worst".to_owned();
    let written = EpochCommit {
        frontiers: vec![advance(taken), advance(dropped)],
        states: of_two_states,
        ..commit_of(lease, 1)
    };
    commit(storage, lease, written);
    let neighbour = grant(storage, 2);
    let theirs = EpochCommit {
        frontiers: vec![advance(lane(90, 2))],
        states: states([("a", Some("1"))]),
        ..commit_of(neighbour, 1)
    };
    commit(storage, neighbour, theirs);
    let drop = EpochCommit {
        dropped_frontiers: vec![dropped],
        ..commit_of(lease, 2)
    };
    for settled in [false, true] {
        let frontiers = |limit| rows::frontiers_kept(storage, PartitionId(1), None, limit).unwrap();
        let names = rows::state_names_kept(storage, PartitionId(1)).unwrap();
        assert_eq!(names, ["count", "worst"]);
        match settled {
            false => {
                assert_eq!(frontiers(10), [taken, dropped]);
                assert_eq!(frontiers(1), [taken]);
                let behind = rows::frontiers_kept(storage, PartitionId(1), Some(taken), 1);
                assert_eq!(behind.unwrap(), [dropped]);
                commit(storage, lease, drop.clone());
            }
            true => {
                assert_eq!(frontiers(10), [taken]);
                assert!(rows::read_frontier(storage, dropped).unwrap().is_none());
            }
        }
        storage.settle().unwrap();
    }
    let theirs = rows::frontiers_kept(storage, PartitionId(2), None, 10).unwrap();
    assert_eq!(theirs, [lane(90, 2)]);
}

/// Rule 4, against a model, across the moment of applying.
pub fn reads_and_scans_see_every_decided_epoch(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let neighbour = grant(storage, 2);
    commit(
        storage,
        neighbour,
        EpochCommit {
            states: states([("k1", Some("neighbour"))]),
            ..commit_of(neighbour, 1)
        },
    );
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    for epoch in 1..=60_u64 {
        // A cheap spread over 17 keys; every third change is a removal.
        let changes: BTreeMap<String, Option<String>> = (0..5_u64)
            .map(|index| {
                let key = format!("k{}", (epoch * 7 + index * 5) % 17);
                let value = ((epoch + index) % 3 != 0).then(|| format!("{epoch}.{index}"));
                (key, value)
            })
            .collect();
        commit(
            storage,
            lease,
            EpochCommit {
                states: states(changes.clone()),
                ..commit_of(lease, epoch)
            },
        );
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        if epoch % 13 == 0 {
            storage.settle().unwrap();
        }
        for key in 0..17 {
            let key = format!("k{key}");
            assert_eq!(
                value_of(storage, 1, &key),
                model.get(&key).cloned(),
                "{key} at {epoch}"
            );
        }
        for (rows, bytes) in [
            (1, 1_000),
            (2, 1_000),
            (3, 1_000),
            (100, 1_000_000),
            (100, 0),
            (100, 60),
        ] {
            let limit = ScanLimit { rows, bytes };
            let found = scan_all(storage, limit);
            assert_eq!(found, model, "pages of {limit:?} at epoch {epoch}");
        }
    }
    assert!(!model.is_empty());
    assert_eq!(value_of(storage, 2, "k1").as_deref(), Some("neighbour"));
}

fn scan_all(storage: &dyn Storage, limit: ScanLimit) -> BTreeMap<String, String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the tests write text");
    let mut found = BTreeMap::new();
    let mut from = Vec::new();
    loop {
        let page = rows::scan_states(storage, PartitionId(1), "count", &from, limit).unwrap();
        assert!(page.rows.len() <= limit.rows && page.rows.is_sorted());
        // The last row is the one that reached the bytes. Its key has 15 bytes before ours, its
        // value a version.
        let sizes = page
            .rows
            .iter()
            .map(|(key, stored)| 15 + key.len() + 1 + stored.value.len());
        let all_but_last = sizes.rev().skip(1).sum::<usize>();
        assert!(
            all_but_last == 0 || all_but_last < limit.bytes,
            "{all_but_last}"
        );
        found.extend(
            page.rows
                .into_iter()
                .map(|(key, stored)| (text(key), text(stored.value))),
        );
        match page.next {
            Some(next) => from = next,
            None => return found,
        }
    }
}

/// Rule 6.
pub fn sink_bytes_follow_without_gap_when_one_of_a_group_is_refused(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let shared = open_sink(fixture, "shared");
    let own = open_sink(fixture, "own");
    assert_ne!(shared.0, own.0);
    assert_eq!(
        storage.open_sink_file(&shared.1).unwrap(),
        shared.0,
        "the same file again"
    );
    let jobs: Vec<Lease> = (1..=3).map(|partition| grant(storage, partition)).collect();
    leases::end(storage, jobs[1]).unwrap();
    let epochs = (1..=2)
        .flat_map(|epoch| {
            jobs.iter().map(move |lease| {
                let mut commit = full_commit(*lease, epoch, shared.0);
                commit.appends.push(append(own.0, "."));
                (*lease, commit)
            })
        })
        .collect();
    let outcomes: Vec<bool> = (storage.submit_epochs(epochs).into_iter())
        .map(|ticket| matches!(ticket.wait(), Ok(CommitOutcome::Committed(_))))
        .collect();
    assert_eq!(outcomes, [true, false, true, true, false, true]);
    assert_eq!(read_sink(fixture, &shared), "p1 1\np3 1\np1 2\np3 2\n");
    assert_eq!(read_sink(fixture, &own), "....");
}

/// Rules 1 and 4 for lanes.
pub fn lanes_are_read_in_order_and_trimmed(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let (read, other) = (lane(1, 5), lane(1, 6));
    for epoch in 1..=6_u64 {
        let payload = format!("message {epoch}");
        let mut chunks = vec![chunk(other, epoch, &["other"])];
        // Epoch 3 puts nothing into the lane.
        if epoch != 3 {
            chunks.push(chunk(read, epoch, &[&payload]));
        }
        let trims = (epoch > 4).then(|| LaneTrim {
            lane: read,
            epoch: EpochId(epoch - 4),
        });
        commit(
            storage,
            lease,
            EpochCommit {
                chunks,
                trims: trims.into_iter().collect(),
                ..commit_of(lease, epoch)
            },
        );
    }
    let epochs = |from: u64, chunks: usize, bytes: usize| -> Vec<u64> {
        let limit = ChunkLimit { chunks, bytes };
        let found = rows::read_chunks(storage, read, EpochId(from), limit).unwrap();
        for (epoch, messages) in &found {
            assert_eq!(
                messages.payloads.get(0),
                format!("message {}", epoch.0).as_bytes()
            );
        }
        found.into_iter().map(|(epoch, _)| epoch.0).collect()
    };
    for _settled in [false, true] {
        assert_eq!(epochs(0, 10, 10_000), [4, 5, 6]);
        assert_eq!(epochs(5, 10, 10_000), [5, 6]);
        assert_eq!(epochs(0, 2, 10_000), [4, 5]);
        assert_eq!(epochs(0, 10, 1), [4], "one chunk whatever its size");
        let kept = rows::chunk_epochs(storage, read, EpochId(0), EpochId(6)).unwrap();
        assert_eq!(kept, [EpochId(4), EpochId(5)]);
        let kept = rows::chunk_epochs(storage, other, EpochId(0), EpochId(u64::MAX)).unwrap();
        assert_eq!(kept.len(), 6);
        storage.settle().unwrap();
    }
}

/// F3: a lane is a durable log.
pub fn f3_chunks_stay_until_they_are_trimmed(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let count = 600_u64;
    for first in (1..=count).step_by(50) {
        let epochs = (first..first + 50)
            .map(|epoch| {
                let commit = EpochCommit {
                    chunks: vec![chunk(lane(1, 2), epoch, &["x"])],
                    ..commit_of(lease, epoch)
                };
                (lease, commit)
            })
            .collect();
        for ticket in storage.submit_epochs(epochs) {
            assert!(matches!(ticket.wait(), Ok(CommitOutcome::Committed(_))));
        }
    }
    let kept = rows::chunk_epochs(storage, lane(1, 2), EpochId(0), EpochId(u64::MAX)).unwrap();
    assert_eq!(kept, (1..=count).map(EpochId).collect::<Vec<_>>());
}

/// Named limit [`EPOCH_RECORDS_MAX`].
pub fn epoch_records_are_kept_for_the_last_thousand_epochs(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let count = EPOCH_RECORDS_MAX + 5;
    let epochs = (1..=count)
        .map(|epoch| (lease, commit_of(lease, epoch)))
        .collect();
    for ticket in storage.submit_epochs(epochs) {
        assert!(matches!(ticket.wait(), Ok(CommitOutcome::Committed(_))));
    }
    let record = |epoch: u64| rows::read_epoch_record(storage, PartitionId(1), EpochId(epoch));
    assert_eq!(record(count - EPOCH_RECORDS_MAX).unwrap(), None);
    let oldest = count - EPOCH_RECORDS_MAX + 1;
    assert_eq!(record(oldest).unwrap().unwrap().input_count, oldest);
    assert_eq!(record(count).unwrap().unwrap().input_count, count);
}

/// The last epoch of a partition may take all records with it, its own too; heads and neighbours
/// stay.
pub fn an_epoch_drops_the_records_that_it_names(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let (lease, neighbour) = (grant(storage, 1), grant(storage, 2));
    for epoch in 1..=3 {
        commit(storage, lease, commit_of(lease, epoch));
        commit(storage, neighbour, commit_of(neighbour, epoch));
    }
    let kept = |partition| rows::epoch_records_kept(storage, PartitionId(partition)).unwrap();
    assert_eq!(kept(1), [1, 2, 3].map(EpochId));
    let some = EpochCommit {
        dropped_records: vec![EpochId(2)],
        ..commit_of(lease, 4)
    };
    commit(storage, lease, some);
    assert_eq!(kept(1), [1, 3, 4].map(EpochId));
    storage.settle().unwrap();
    let all = EpochCommit {
        dropped_records: [1, 3, 4, 5].map(EpochId).to_vec(),
        ..commit_of(lease, 5)
    };
    let head = commit(storage, lease, all);
    for _settled in [false, true] {
        assert_eq!(kept(1), []);
        assert_eq!(kept(2), [1, 2, 3].map(EpochId));
        assert_eq!(storage.head(PartitionId(1)).unwrap(), head);
        storage.settle().unwrap();
    }
    let next = commit(storage, lease, commit_of(lease, 6));
    assert_eq!(next.epoch, EpochId(6));
    assert_eq!(kept(1), [EpochId(6)]);
}

/// Trigger time, stream and key of all timers of one clock, read in pages of `rows`.
fn timers_of(storage: &dyn Storage, domain: TimeDomain, rows: usize) -> Vec<(u64, String, String)> {
    let mut found: Vec<(u64, String, String)> = Vec::new();
    loop {
        let last = found.last().cloned();
        // The least place behind the last one.
        let key = last
            .as_ref()
            .map_or_else(String::new, |(_, _, key)| format!("{key}\0"));
        let from = last.as_ref().map(|(trigger_time, stream, _)| TimerKey {
            domain,
            trigger_time: *trigger_time,
            stream,
            key: key.as_bytes(),
        });
        let limit = ScanLimit::rows(rows);
        let visit = |timer: TimerKey<'_>, times: TimerTimes| {
            assert_eq!(
                (timer.domain, timer.trigger_time),
                (domain, times.trigger_time)
            );
            let key = String::from_utf8_lossy(timer.key).into_owned();
            found.push((timer.trigger_time, timer.stream.to_owned(), key));
        };
        let partition = PartitionId(1);
        let has_more =
            timer_rows::scan_timers(storage, partition, domain, from.as_ref(), limit, visit);
        if !has_more.unwrap() {
            return found;
        }
    }
}

fn holds_of(storage: &dyn Storage) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let limit = ScanLimit::rows(100);
    let visit = |moment, timer: TimerKey<'_>| found.push((moment, timer.stream.to_owned()));
    timer_rows::scan_timer_holds(storage, PartitionId(1), None, limit, visit).unwrap();
    found
}

/// Rules 1 and 4 for timers.
pub fn timers_are_found_in_the_order_in_which_they_fire(fixture: &Fixture) {
    use TimeDomain::{EventTime, SystemTime};
    let storage = &*fixture.storage;
    let (lease, neighbour) = (grant(storage, 1), grant(storage, 2));
    let theirs = EpochCommit {
        timers: vec![timers(EventTime, "hour", 1, &[], &[("a", 1, 1)])],
        ..commit_of(neighbour, 1)
    };
    commit(storage, neighbour, theirs);
    for (epoch, trigger_time) in [(1, 300), (2, 20), (3, 256)] {
        let set = [("a", trigger_time, 7), ("b", trigger_time, 900)];
        let timers = vec![
            timers(EventTime, "day", epoch, &[], &set[..1]),
            timers(EventTime, "hour", 2 * epoch, &[], &set),
            timers(
                SystemTime,
                "quiet",
                1,
                &[],
                &[(&format!("k{epoch}"), trigger_time, epoch)],
            ),
        ];
        let commit_of_epoch = EpochCommit {
            timers,
            ..commit_of(lease, epoch)
        };
        commit(storage, lease, commit_of_epoch);
    }
    let timer =
        |trigger_time, stream: &str, key: &str| (trigger_time, stream.to_owned(), key.to_owned());
    let expected: Vec<_> = [20, 256, 300]
        .into_iter()
        .flat_map(|at| {
            [
                timer(at, "day", "a"),
                timer(at, "hour", "a"),
                timer(at, "hour", "b"),
            ]
        })
        .collect();
    for _settled in [false, true] {
        for rows in [1, 2, 4, 100] {
            assert_eq!(
                timers_of(storage, EventTime, rows),
                expected,
                "pages of {rows}"
            );
        }
        let system = [
            timer(20, "quiet", "k2"),
            timer(256, "quiet", "k3"),
            timer(300, "quiet", "k1"),
        ];
        assert_eq!(timers_of(storage, SystemTime, 2), system);
        // Those that carry an event time behind their trigger time hold at that, as they fire.
        let holds: Vec<u64> = holds_of(storage)
            .iter()
            .map(|(moment, _)| *moment)
            .collect();
        assert_eq!(holds, [1, 2, 3, 7, 7, 7, 7, 7, 7]);
        let streams = timer_rows::pending_streams(storage, PartitionId(1)).unwrap();
        let streams: Vec<_> = (streams.iter())
            .map(|it| (it.stream.as_str(), it.domain, it.pending))
            .collect();
        let expected = [
            ("day", EventTime, 3),
            ("hour", EventTime, 6),
            ("quiet", SystemTime, 1),
        ];
        assert_eq!(streams, expected);
        storage.settle().unwrap();
    }
}

/// Rule 1 for timers that fire, are cancelled or are replaced.
pub fn a_timer_goes_with_all_that_finds_it(fixture: &Fixture) {
    use TimeDomain::{EventTime, SystemTime};
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let of_hour =
        |pending, removed: &[_], set: &[_]| timers(EventTime, "hour", pending, removed, set);
    let of_quiet =
        |pending, removed: &[_], set: &[_]| timers(SystemTime, "quiet", pending, removed, set);
    let epochs = [
        vec![
            of_hour(2, &[], &[("a", 9, 4), ("b", 9, 9)]),
            of_quiet(1, &[], &[("a", 50, 6)]),
        ],
        // One gets another event time, the other another trigger time.
        vec![
            of_hour(2, &[("a", 9, 4)], &[("a", 9, 5)]),
            of_quiet(1, &[("a", 50, 6)], &[("a", 60, 6)]),
        ],
        vec![
            of_hour(0, &[("a", 9, 5), ("b", 9, 9)], &[]),
            of_quiet(0, &[("a", 60, 6)], &[]),
        ],
    ];
    let hour = |key| TimerKey {
        domain: EventTime,
        trigger_time: 9,
        stream: "hour",
        key,
    };
    let quiet = TimerKey {
        domain: SystemTime,
        trigger_time: 0,
        stream: "quiet",
        key: b"a",
    };
    let times = |trigger_time, event_time| {
        Some(TimerTimes {
            trigger_time,
            event_time,
            held_in_run: 0,
        })
    };
    let expected = [
        (vec![times(9, 4), times(9, 9), times(50, 6)], vec![4, 6]),
        (vec![times(9, 5), times(9, 9), times(60, 6)], vec![5, 6]),
        (vec![None; 3], vec![]),
    ];
    for (epoch, (timers, (found, holds))) in (1..).zip(epochs.into_iter().zip(expected)) {
        let commit_of_epoch = EpochCommit {
            timers,
            ..commit_of(lease, epoch)
        };
        commit(storage, lease, commit_of_epoch);
        for _settled in [false, true] {
            let names = [hour(b"a"), hour(b"b"), quiet];
            let read = timer_rows::read_timers(storage, PartitionId(1), &names).unwrap();
            assert_eq!(read, found, "behind epoch {epoch}");
            let moments: Vec<u64> = holds_of(storage)
                .iter()
                .map(|(moment, _)| *moment)
                .collect();
            assert_eq!(moments, holds, "behind epoch {epoch}");
            let standing = found.iter().flatten().count();
            let listed = [EventTime, SystemTime].map(|domain| timers_of(storage, domain, 10).len());
            assert_eq!(listed.iter().sum::<usize>(), standing);
            storage.settle().unwrap();
        }
    }
    let rows_of = |prefix: u8| {
        let (start, end) = ([prefix], [prefix + 1]);
        storage
            .scan(&start, &end, ScanLimit::rows(10))
            .unwrap()
            .len()
    };
    assert_eq!(
        (keys::TIMER..=keys::TIMER_STREAM)
            .map(rows_of)
            .sum::<usize>(),
        0
    );
}

/// Rule 10.
pub fn an_epoch_that_cannot_be_stored_leaves_nothing(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let lease = grant(storage, 1);
    let long = EpochCommit {
        states: states([("a", Some("1")), (&"x".repeat(70_000), Some("1"))]),
        ..commit_of(lease, 1)
    };
    let changed_twice = EpochCommit {
        states: states([("a", Some("1")), ("b", Some("1")), ("b", None)]),
        ..commit_of(lease, 1)
    };
    let unopened = EpochCommit {
        appends: vec![append(SinkFileId(99), "x")],
        ..commit_of(lease, 1)
    };
    let timer_twice = EpochCommit {
        timers: vec![timers(
            TimeDomain::EventTime,
            "hour",
            1,
            &[],
            &[("a", 1, 1), ("a", 1, 2)],
        )],
        ..commit_of(lease, 1)
    };
    for commit in [long, changed_twice, unopened, timer_twice] {
        let error = storage.commit_epoch(lease, commit).unwrap_err();
        assert!(matches!(error, StorageError::Unstorable { .. }), "{error}");
        assert_eq!(everything(storage, 1), (Head::default(), 0));
    }
    commit(storage, lease, commit_of(lease, 1));
}

/// Rule 7.
pub fn a_catalog_change_is_whole_or_refused(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let key = |name: &str| keys::pipeline(name, b"");
    let row =
        |name: &str, value: Option<&str>| (key(name), value.map(|value| value.as_bytes().to_vec()));
    let change = |expectations, writes| {
        let change = CatalogChange {
            expectations,
            writes,
        };
        storage.commit_catalog(&change).unwrap()
    };
    let both = vec![row("a", Some("1")), row("b", Some("1"))];
    assert_eq!(
        change(vec![row("a", None)], both.clone()),
        CatalogOutcome::Committed
    );
    assert_eq!(
        storage
            .scan_catalog(&[keys::CATALOG_PIPELINE])
            .unwrap()
            .len(),
        2
    );
    // Each of these expects one thing that does not hold.
    for wrong in [row("a", None), row("a", Some("2")), row("c", Some("1"))] {
        let writes = vec![row("a", Some("9")), row("b", None), row("c", Some("9"))];
        let expectations = vec![row("b", Some("1")), wrong];
        assert_eq!(change(expectations, writes), CatalogOutcome::Refused);
    }
    assert_eq!(
        storage.read_catalog(&key("a")).unwrap().as_deref(),
        Some(b"1".as_slice())
    );
    assert_eq!(storage.read_catalog(&key("c")).unwrap(), None);
    let writes = vec![row("a", None), row("c", Some(""))];
    assert_eq!(change(both, writes), CatalogOutcome::Committed);
    let names: Vec<_> = storage.scan_catalog(&[keys::CATALOG_PIPELINE]).unwrap();
    assert_eq!(names, [(key("b"), b"1".to_vec()), (key("c"), Vec::new())]);
}

/// Rule 11.
pub fn the_catalog_refuses_reserved_rows_and_large_values(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let fine = (
        keys::pipeline("fine", b""),
        Some(vec![0; CATALOG_VALUE_BYTES_MAX]),
    );
    let wrong = [
        (keys::head(PartitionId(1)), Some(vec![1])),
        (keys::sink_file(SinkFileId(1)), None),
        (keys::catalog_store_id(), Some(vec![1])),
        (
            keys::pipeline("large", b""),
            Some(vec![0; CATALOG_VALUE_BYTES_MAX + 1]),
        ),
        (keys::pipeline(&"n".repeat(2_000), b""), None),
    ];
    for row in wrong {
        let change = CatalogChange {
            expectations: Vec::new(),
            writes: vec![fine.clone(), row],
        };
        let error = storage.commit_catalog(&change).unwrap_err();
        assert!(matches!(error, StorageError::CatalogRow { .. }), "{error}");
        assert_eq!(storage.read_catalog(&fine.0).unwrap(), None);
    }
    let change = CatalogChange {
        expectations: Vec::new(),
        writes: vec![fine],
    };
    assert_eq!(
        storage.commit_catalog(&change).unwrap(),
        CatalogOutcome::Committed
    );
}

/// Ids are never used again.
pub fn numbers_are_never_handed_out_twice(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let mut taken: Vec<u64> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| -> Vec<u64> {
                    (0..10)
                        .flat_map(|_| {
                            let first = leases::allocate(storage, Counter::Partitions, 3).unwrap();
                            first..first + 3
                        })
                        .collect()
                })
            })
            .collect();
        takers
            .into_iter()
            .flat_map(|taker| taker.join().expect("no panic"))
            .collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, (1..=90).collect::<Vec<_>>());
    assert_eq!(
        leases::allocate(storage, Counter::Streams, 1).unwrap(),
        1,
        "counters are apart"
    );
}

/// L4: ending is the same barrier for all leases at once.
pub fn l4_end_all_ends_every_lease_and_generations_rise(fixture: &Fixture) {
    let storage = &*fixture.storage;
    let jobs: Vec<Lease> = (1..=5).map(|partition| grant(storage, partition)).collect();
    commit(storage, jobs[0], commit_of(jobs[0], 1));
    leases::end(storage, jobs[4]).unwrap();
    assert_eq!(leases::end_all(storage).unwrap().len(), 4);
    assert_eq!(leases::end_all(storage).unwrap().len(), 0);
    for job in &jobs {
        assert_eq!(leases::current(storage, job.partition).unwrap(), None);
        let epoch = storage.head(job.partition).unwrap().epoch.next();
        refusal(storage.commit_epoch(*job, commit_of(*job, epoch.0)));
        let next = grant(storage, job.partition.0);
        assert_eq!(leases::current(storage, job.partition).unwrap(), Some(next));
        assert_eq!(next.generation.0, job.generation.0 + 1);
        assert!(
            jobs.iter().all(|job| job.id != next.id),
            "a lease id is never used again"
        );
        commit(storage, next, commit_of(next, epoch.0));
    }
}
