//! Moves over storage in memory, stopped at every commit and in every way, against a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::writer::PartitionWriter;
use super::*;
use crate::storage::leases;
use crate::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
use crate::storage::rows;
use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::TimerKey;
use crate::storage::timer_rows;
use crate::types::batch::TimeDomain;
use crate::types::epoch::{
    ChunkMessages, EpochCommit, EpochTime, FrontierAdvance, LaneChunk, LaneTrim, StateAge,
    StateAges, StateChanges, StoredState,
};
use crate::types::ids::{LaneId, StreamId};
use crate::types::key::{key_hash, partition_of};
use crate::types::timer::{PendingTimers, TimerChanges, TimerPlace, TimerTimes};
use crate::types::watermark::{LaneStep, LaneTime};

/// States of the first kind in a store that [`begun`] made.
pub(in crate::controller) const KEYS: u64 = 60;
const EPOCHS: u64 = 7;
/// The run of the pipeline that the old partitions are in.
const RUN: u64 = 4;
const STREAMS: [StreamId; 2] = [StreamId(1), StreamId(2)];
/// The greatest alignment timestamp of a producer, and of an old partition.
const ALIGNMENT: u64 = 1_000 + EPOCHS;

/// So small that nothing is read or committed at once.
const LIMITS: MoveLimits = MoveLimits {
    commit_bytes: 1 << 20,
    commit_rows: 12,
    page_rows: 5,
    page_bytes: 1 << 20,
};

/// Producers 1 and 2; the old layout is 11.., the new one 21...
fn partitions(first: u64, count: usize) -> Vec<PartitionId> {
    (first..first + count as u64).map(PartitionId).collect()
}

fn producers() -> Vec<PartitionId> {
    partitions(1, 2)
}

/// A message as its reader would see it: its place in the producer's output, key and payload.
pub(in crate::controller) type Message = (EpochId, u32, Vec<u8>, Vec<u8>);

/// For each producer, stream and key the messages that have not been read, in order.
pub(in crate::controller) type Waiting = BTreeMap<(PartitionId, StreamId, Vec<u8>), Vec<Message>>;

/// What all partitions of a layout hold.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::controller) struct Content {
    pub(in crate::controller) waiting: Waiting,
    /// For each producer and stream the watermark steps that not every reader has taken.
    pub(in crate::controller) steps: BTreeMap<(PartitionId, StreamId), Steps>,
    pub(in crate::controller) states: BTreeMap<(String, Vec<u8>), StoredState>,
    /// By clock, trigger time, stream and key.
    pub(in crate::controller) timers: BTreeMap<(TimeDomain, u64, String, Vec<u8>), TimerTimes>,
}

/// Watermark steps by their places in the producer's output.
pub(in crate::controller) type Steps = BTreeMap<(EpochId, u32), LaneTime>;

/// What a lane says of the time behind an epoch.
fn lane_time(epoch: EpochId) -> LaneTime {
    LaneTime {
        watermark: 100 * epoch.0,
        is_idle: epoch.0 % 2 == 0,
    }
}

fn commit(storage: &dyn Storage, lease: &crate::types::lease::Lease, commit: EpochCommit) {
    let outcome = storage.commit_epoch(*lease, commit).unwrap();
    assert!(matches!(
        outcome,
        crate::storage::CommitOutcome::Committed(_)
    ));
}

fn begun(from: &[PartitionId]) -> MemoryStorage {
    let storage = MemoryStorage::new();
    begin(&storage, &producers(), from);
    storage
}

/// Gives the partitions `from` states, lets them read a part of what `producers` wrote for them, and
/// leaves the rest in lanes.
pub(in crate::controller) fn begin(
    storage: &MemoryStorage,
    producers: &[PartitionId],
    from: &[PartitionId],
) {
    for producer in producers.iter().copied() {
        let lease = leases::grant(storage, producer).unwrap();
        for epoch in 1..=EPOCHS {
            let mut chunks: BTreeMap<LaneId, ChunkMessages> = BTreeMap::new();
            for index in (0..40_u32).filter(|index| *index != 20) {
                let key = format!("key {}", u64::from(index) * 7 * epoch % KEYS).into_bytes();
                let hash = key_hash(&key);
                let lane = LaneId {
                    producer,
                    stream: STREAMS[index as usize % 2],
                    reader: from[partition_of(hash, from.len())],
                };
                let chunk = chunks.entry(lane).or_default();
                chunk.indexes.push(index);
                chunk.key_hashes.push(hash);
                chunk.keys.push(&key);
                chunk.event_times.push(u64::from(index));
                chunk.alignments.push(1_000 + epoch);
                chunk
                    .payloads
                    .push(format!("{producer} {epoch} {index}").as_bytes());
            }
            // A step goes to every reader of its stream, behind the messages that those have in common.
            for (index, stream) in [(20, STREAMS[0]), (40, STREAMS[1])] {
                for reader in from.iter().copied() {
                    let lane = LaneId {
                        producer,
                        stream,
                        reader,
                    };
                    chunks.entry(lane).or_default().steps.push(LaneStep {
                        index,
                        time: lane_time(EpochId(epoch)),
                    });
                }
            }
            let mut epoch = EpochCommit::empty(&lease, EpochId(epoch));
            epoch.record.alignment = 1_000 + epoch.epoch.0;
            epoch.chunks = (chunks.into_iter())
                .map(|(lane, messages)| LaneChunk {
                    lane,
                    epoch: epoch.epoch,
                    messages: Arc::new(messages),
                })
                .collect();
            commit(storage, &lease, epoch);
        }
    }
    for (place, partition) in from.iter().enumerate() {
        let lease = leases::grant(storage, *partition).unwrap();
        let mut epoch = EpochCommit::empty(&lease, EpochId(1));
        epoch.record.alignment = ALIGNMENT - place as u64;
        epoch.record.time = time_of(place as u64);
        let own = |key: &Vec<u8>| from[partition_of(key_hash(key), from.len())] == *partition;
        let mut keys: Vec<Vec<u8>> = (0..KEYS)
            .map(|key| format!("key {key}").into_bytes())
            .filter(own)
            .collect();
        keys.sort_unstable();
        for (state, every) in [("count", 1), ("worst", 3)] {
            let mut changes = StateChanges {
                state: state.to_owned(),
                ..StateChanges::default()
            };
            for (place, key) in (0..).zip(keys.iter().step_by(every)) {
                changes.keys.push(key);
                changes.values.push(&[state.as_bytes(), key].concat());
                // One of them has a time to live, since not so long ago.
                if state == "worst" {
                    changes.touched.push(place % 3 * 500);
                }
            }
            epoch.states.push(changes);
        }
        epoch.timers = timers_of(&keys);
        // The first partition has read into the third epoch, the others a little further.
        for (number, producer) in (0..).zip(producers.iter().copied()) {
            epoch.frontiers.push(FrontierAdvance {
                run: RUN,
                time: lane_time(EpochId(2 + place as u64)),
                lane: LaneId {
                    producer,
                    stream: STREAMS[0],
                    reader: *partition,
                },
                epoch: EpochId(3 + place as u64),
                index: 11 + number,
            });
        }
        commit(storage, &lease, epoch);
    }
    leases::end_all(storage).unwrap();
}

/// Timers of a partition with these keys, which rise: some of each stream, in no order of their triggers.
fn timers_of(keys: &[Vec<u8>]) -> Vec<TimerChanges> {
    let streams = [
        ("day", TimeDomain::EventTime, 4),
        ("hour", TimeDomain::EventTime, 1),
        ("quiet", TimeDomain::SystemTime, 2),
    ];
    let changes = streams.map(|(stream, domain, every)| {
        let mut timers: Vec<_> = (keys.iter().step_by(every))
            .map(|key| {
                let hash = key_hash(key);
                let times = TimerTimes {
                    trigger_time: 5_000 + hash % 7,
                    event_time: 4_990 + hash % 20,
                    held_in_run: if hash % 5 == 0 { RUN } else { 0 },
                };
                (times.trigger_time, key, times)
            })
            .collect();
        if domain == TimeDomain::EventTime {
            timers.sort_unstable_by_key(|(trigger_time, key, _)| (*trigger_time, *key));
        }
        let mut set = PendingTimers::default();
        for (_, key, times) in &timers {
            set.push(key, *times);
        }
        TimerChanges {
            stream: stream.to_owned(),
            domain,
            removed: PendingTimers::default(),
            pending: set.len() as u64,
            set,
        }
    });
    changes.into()
}

/// Where the partition of a layout stands in time.
fn time_of(place: u64) -> EpochTime {
    EpochTime {
        run: RUN,
        input_watermarks: vec![500 - place, 600 + place],
        latest_watermark: 2_000 - place,
        ages: StateAges {
            first_watermark: 100 + place,
            states: vec![StateAge {
                state: "worst".to_owned(),
                since: 200 + place,
                expired_up_to: 300 - place,
            }],
        },
        ..EpochTime::default()
    }
}

/// What the readers of a layout would find, each for the keys of its range alone.
fn content(storage: &dyn Storage, layout: &[PartitionId]) -> Content {
    content_of(storage, &producers(), layout)
}

/// The same of any producers.
pub(in crate::controller) fn content_of(
    storage: &dyn Storage,
    producers: &[PartitionId],
    layout: &[PartitionId],
) -> Content {
    let mut waiting = Waiting::new();
    let mut steps: BTreeMap<(PartitionId, StreamId), Steps> = BTreeMap::new();
    let mut states = BTreeMap::new();
    let mut timers = BTreeMap::new();
    for (place, reader) in layout.iter().enumerate() {
        let is_own = |key: &[u8]| partition_of(key_hash(key), layout.len()) == place;
        for (producer, stream) in producers
            .iter()
            .copied()
            .flat_map(|producer| STREAMS.map(|stream| (producer, stream)))
        {
            let lane = LaneId {
                producer,
                stream,
                reader: *reader,
            };
            let frontier = rows::read_frontier(storage, lane).unwrap();
            let passed = frontier.map(|at| (at.epoch, at.index));
            let last = EpochId(u64::MAX);
            for epoch in rows::chunk_epochs(storage, lane, EpochId(0), last).unwrap() {
                let chunk = rows::read_chunk(storage, lane, epoch).unwrap().unwrap();
                assert!(!chunk.is_empty() && chunk.indexes.is_sorted());
                for step in &chunk.steps {
                    if passed.is_none_or(|passed| (epoch, step.index) > passed) {
                        let of_stream = steps.entry((producer, stream)).or_default();
                        of_stream.insert((epoch, step.index), step.time);
                    }
                }
                for at in 0..chunk.len() {
                    let (index, key) = (chunk.indexes[at], chunk.keys.get(at).to_vec());
                    assert!(is_own(&key), "a message of another range");
                    assert_eq!(chunk.key_hashes[at], key_hash(&key));
                    assert_eq!(chunk.event_times[at], u64::from(index));
                    assert_eq!(chunk.alignments.get(at), 1_000 + epoch.0);
                    if passed.is_none_or(|passed| (epoch, index) > passed) {
                        let payload = chunk.payloads.get(at).to_vec();
                        let of_key = waiting.entry((producer, stream, key.clone()));
                        of_key.or_default().push((epoch, index, key, payload));
                    }
                }
            }
        }
        for state in rows::state_names_kept(storage, *reader).unwrap() {
            let page =
                rows::scan_states(storage, *reader, &state, b"", ScanLimit::rows(1_000)).unwrap();
            for (key, value) in page.rows {
                assert!(is_own(&key), "a state of another range");
                states.insert((state.clone(), key), value);
            }
        }
        let mut pending: BTreeMap<String, u64> = BTreeMap::new();
        let mut holds = Vec::new();
        let limit = ScanLimit::rows(1_000);
        for domain in [TimeDomain::EventTime, TimeDomain::SystemTime] {
            let visit = |timer: TimerKey<'_>, times: TimerTimes| {
                assert!(is_own(timer.key), "a timer of another range");
                *pending.entry(timer.stream.to_owned()).or_default() += 1;
                holds.extend(times.hold(domain));
                let read = timer_rows::read_timers(storage, *reader, &[timer]);
                assert_eq!(read.unwrap(), [Some(times)], "it is found by its name");
                let stream = timer.stream.to_owned();
                let name = (domain, times.trigger_time, stream, timer.key.to_vec());
                assert!(timers.insert(name, times).is_none());
            };
            timer_rows::scan_timers(storage, *reader, domain, None, limit, visit).unwrap();
        }
        let mut held = Vec::new();
        let visit = |moment, _: TimerKey<'_>| held.push(moment);
        timer_rows::scan_timer_holds(storage, *reader, None, limit, visit).unwrap();
        holds.sort_unstable();
        assert_eq!(held, holds);
        let counted = timer_rows::pending_streams(storage, *reader).unwrap();
        let counted = counted.into_iter().map(|it| (it.stream, it.pending));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), pending);
    }
    Content {
        waiting,
        steps,
        states,
        timers,
    }
}

fn run(
    storage: &dyn Storage,
    from: &[PartitionId],
    to: &[PartitionId],
) -> Result<(), RepartitionError> {
    let repartition = Repartition {
        from,
        to,
        producers: &producers(),
        deployment: 2,
        limits: LIMITS,
    };
    repartition.run(storage, &mut |_| {}).map(drop)
}

fn sweep_all(storage: &dyn Storage, layout: &[PartitionId]) -> Result<(), RepartitionError> {
    layout
        .iter()
        .try_for_each(|partition| sweep(storage, *partition, 2, &LIMITS, &mut |_| {}))
}

fn check_moved(
    storage: &dyn Storage,
    from: &[PartitionId],
    to: &[PartitionId],
    expected: &Content,
) {
    assert_eq!(&content(storage, to), expected);
    for partition in from {
        assert!(!keeps_anything(storage, *partition).unwrap(), "{partition}");
        assert_eq!(rows::epoch_records_kept(storage, *partition).unwrap(), []);
        assert!(storage.head(*partition).unwrap().epoch > EpochId(1));
    }
    for producer in producers() {
        let readers = rows::lanes_kept(storage, producer).unwrap();
        assert!(readers.iter().all(|lane| to.contains(&lane.reader)));
    }
    for reader in to {
        // Each of them takes all steps, behind the one up to which it knows the time.
        assert_eq!(
            content(storage, std::slice::from_ref(reader)).steps,
            expected.steps
        );
        for (number, producer) in (0..).zip(producers()) {
            let lane = |stream| LaneId {
                producer,
                stream,
                reader: *reader,
            };
            let unread = rows::read_frontier(storage, lane(STREAMS[1])).unwrap();
            assert_eq!(unread, None);
            let slowest = FrontierAdvance {
                lane: lane(STREAMS[0]),
                epoch: EpochId(3),
                index: 11 + number,
                run: RUN,
                time: lane_time(EpochId(2)),
            };
            let frontier = rows::read_frontier(storage, slowest.lane).unwrap();
            assert_eq!(frontier, Some(slowest));
        }
    }
    let last = from.len() as u64 - 1;
    for partition in to {
        let time = writer::last_record(storage, *partition).unwrap().time;
        let counted = timer_rows::pending_streams(storage, *partition).unwrap();
        assert_eq!(
            time,
            EpochTime {
                run: RUN,
                input_watermarks: vec![500 - last, 600],
                fired_up_to: Some(TimerPlace::default()),
                pending_timers: counted.iter().map(|stream| stream.pending).sum(),
                latest_watermark: 2_000,
                ages: StateAges {
                    first_watermark: 100 + last,
                    states: vec![StateAge {
                        state: "worst".to_owned(),
                        since: 200 + last,
                        expired_up_to: 300,
                    }],
                },
                ..EpochTime::default()
            }
        );
    }
    for partition in to.iter().chain(&producers()) {
        let record = writer::last_record(storage, *partition).unwrap();
        assert_eq!(record.alignment, ALIGNMENT);
        assert!(leases::current(storage, *partition).unwrap().is_none());
    }
}

#[test]
fn d1_what_waits_and_every_state_go_to_the_partition_of_its_key_once() {
    for (before, after) in [(1, 4), (4, 3), (3, 1), (2, 5), (1, 1)] {
        let (from, to) = (partitions(11, before), partitions(21, after));
        let storage = begun(&from);
        let expected = content(&storage, &from);
        assert!(expected.states.len() > 70 && expected.waiting.len() > 100);
        assert!(expected.timers.len() > 90 && expected.steps.len() == 4);
        // Of the first stream all have passed two epochs, and what no reader has passed is all of it.
        let counts = expected.steps.values().map(BTreeMap::len);
        assert_eq!(counts.collect::<Vec<_>>(), [5, 7, 5, 7]);
        run(&storage, &from, &to).unwrap();
        sweep_all(&storage, &from).unwrap();
        check_moved(&storage, &from, &to, &expected);
    }
}

#[test]
fn d1_a_move_that_is_stopped_at_any_commit_goes_on() {
    let (from, to) = (partitions(11, 4), partitions(21, 3));
    let expected = content(&begun(&from), &from);
    let faults = [
        (CommitFault::Refused, UnsyncedTail::Lost),
        (CommitFault::UnknownDecided, UnsyncedTail::Lost),
        (CommitFault::UnknownUndecided, UnsyncedTail::Lost),
        (CommitFault::FailedSync, UnsyncedTail::Lost),
        (CommitFault::FailedSync, UnsyncedTail::Survived),
    ];
    for (fault, tail) in faults {
        let mut stops = 0;
        for stop in 0.. {
            let mut storage = begun(&from);
            let count = Arc::new(AtomicUsize::new(0));
            storage.set_faults(Some(Box::new(move |_| {
                match count.fetch_add(1, Ordering::Relaxed) == stop {
                    true => fault,
                    false => CommitFault::None,
                }
            })));
            let moved = run(&storage, &from, &to);
            let was_moved = moved.is_ok();
            let done = moved.and_then(|()| sweep_all(&storage, &from));
            if done.is_ok() {
                break;
            }
            assert_eq!(storage.faults_made(), 1);
            stops += 1;
            storage = storage.crash_and_reopen(tail);
            leases::end_all(&storage).unwrap();
            // What is written down is not done again.
            if !was_moved {
                run(&storage, &from, &to).unwrap();
            }
            sweep_all(&storage, &from).unwrap();
            check_moved(&storage, &from, &to, &expected);
        }
        // Each stream of each producer, the states and timers of each partition, and what each of the four
        // leaves, take more than one commit.
        assert!(stops >= 2 * (2 * 2 + 3 * 2 + 4 * 2), "{stops}");
    }
}

/// Messages that the old reader's frontier has passed were processed: their states are what moves.
#[test]
fn d1_what_the_old_frontier_has_passed_does_not_move() {
    let (from, to) = (partitions(11, 2), partitions(21, 2));
    let storage = begun(&from);
    let passed = |content: &Content| {
        let mut messages = content.waiting.iter();
        !messages
            .any(|((_, stream, _), messages)| *stream == STREAMS[0] && messages[0].0 < EpochId(3))
    };
    assert!(passed(&content(&storage, &from)));
    run(&storage, &from, &to).unwrap();
    assert!(passed(&content(&storage, &to)));
}

#[test]
fn a_move_that_another_one_takes_over_writes_nothing_more() {
    let (from, to) = (partitions(11, 2), partitions(21, 3));
    let storage = begun(&from);
    let mut writer = PartitionWriter::open(&storage, to[0], 1).unwrap();
    run(&storage, &from, &to).unwrap();
    let late = writer.commit(|_| {});
    assert!(
        matches!(late, Err(RepartitionError::Refused(_))),
        "{late:?}"
    );
    let mut progress = RepartitionProgress::default();
    let repartition = Repartition {
        from: &to,
        to: &from,
        producers: &producers(),
        deployment: 3,
        limits: MoveLimits::default(),
    };
    let told = repartition
        .run(&storage, &mut |now| progress = now)
        .unwrap();
    assert_eq!(told, progress);
    assert!(told.states > 70 && told.messages > 100, "{told:?}");
}

/// What a retired partition wrote is read by its epochs, whose records stay until all of it is.
#[test]
fn the_records_of_a_partition_stay_while_what_it_wrote_is_to_be_read() {
    let (from, to) = (partitions(11, 2), partitions(21, 3));
    let storage = begun(&from);
    run(&storage, &from, &to).unwrap();
    let producer = producers()[0];
    let before = rows::epoch_records_kept(&storage, producer).unwrap();
    assert_eq!(before.len() as u64, storage.head(producer).unwrap().epoch.0);
    sweep_all(&storage, &[producer]).unwrap();
    assert_eq!(
        rows::epoch_records_kept(&storage, producer).unwrap(),
        before
    );

    let trims = rows::lanes_kept(&storage, producer).unwrap();
    let trims = trims.into_iter().flat_map(|lane| {
        let epochs = rows::chunk_epochs(&storage, lane, EpochId(0), EpochId(u64::MAX));
        let trim = move |epoch| LaneTrim { lane, epoch };
        epochs.unwrap().into_iter().map(trim)
    });
    let mut writer = PartitionWriter::open(&storage, producer, 2).unwrap();
    let trims: Vec<LaneTrim> = trims.collect();
    writer.commit(|epoch| epoch.trims = trims).unwrap();
    sweep_all(&storage, &[producer]).unwrap();
    assert_eq!(rows::epoch_records_kept(&storage, producer).unwrap(), []);
    // It is done once.
    let head = storage.head(producer).unwrap();
    sweep_all(&storage, &[producer]).unwrap();
    assert_eq!(storage.head(producer).unwrap(), head);
}

/// States were read a thousand at a time, whatever their size.
#[test]
fn large_states_move_a_few_at_a_time() {
    const VALUE_BYTES: usize = 10_000;
    let (from, to) = (partitions(11, 1), partitions(21, 2));
    let storage = begun(&[PartitionId(99)]);
    let mut writer = PartitionWriter::open(&storage, from[0], 1).unwrap();
    let mut changes = StateChanges {
        state: "large".to_owned(),
        ..StateChanges::default()
    };
    for key in 0..100 {
        changes.keys.push(format!("key {key:0>3}").as_bytes());
        changes.values.push(&[b'x'; VALUE_BYTES]);
    }
    writer.commit(|epoch| epoch.states = vec![changes]).unwrap();
    writer.close().unwrap();

    let largest = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&largest);
    storage.set_faults(Some(Box::new(move |commit| {
        let sizes = commit
            .states
            .iter()
            .map(|changes| changes.values.bytes.len());
        seen.fetch_max(sizes.sum(), Ordering::Relaxed);
        CommitFault::None
    })));
    let limits = MoveLimits {
        commit_bytes: 4 * VALUE_BYTES,
        page_bytes: 2 * VALUE_BYTES,
        ..MoveLimits::default()
    };
    let repartition = Repartition {
        from: &from,
        to: &to,
        producers: &producers(),
        deployment: 2,
        limits,
    };
    let moved = repartition.run(&storage, &mut |_| {}).unwrap();
    assert_eq!(moved.states, 100);
    let largest = largest.load(Ordering::Relaxed);
    assert!(
        (VALUE_BYTES..=7 * VALUE_BYTES).contains(&largest),
        "{largest}"
    );
    let states = content(&storage, &to).states;
    assert_eq!(states.len(), 100);
    assert!(
        states
            .values()
            .all(|stored| stored.value.len() == VALUE_BYTES)
    );
}
