//! Every kind of row and entry that storage writes, as golden files in `golden/`: what was written once must decode, and
//! what a newer release wrote is refused by name.

use std::collections::BTreeMap;
use std::error::Error as _;

use crate::golden::{self, Decode, Kind};
use crate::storage::attempts::{
    self, BegunAttempt, BegunReplay, FailedAttempts, PartitionAttempts,
};
use crate::storage::codec::tests::{full_commit, predecessor};
use crate::storage::codec::{self, FORMAT_VERSION, LeaseRow, NewValue};
use crate::storage::entry::{AppendPlaces, Entry, EntryDraft};
use crate::storage::leases::{self, Counter};
use crate::storage::letter_requests::tests::letter;
use crate::storage::letter_requests::{self, RequestPage};
use crate::storage::memory::MemoryStorage;
use crate::storage::queue_codec::{self, QueueChunk, StoredChunk, WithheldRows, chunk_key};
use crate::storage::rows::{self, ChunkLimit};
use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::{self, TimerKey};
use crate::storage::timer_rows::{self, PendingStream};
use crate::storage::{
    CatalogChange, Storage, StorageError, embedded, keys, letter_rows, queue_rows,
};
use crate::types::batch::TimeDomain;
use crate::types::dead_letter::{DeadLetterId, LetterRequestKind};
use crate::types::epoch::{Checksum, StoredState};
use crate::types::ids::{EpochId, Generation, LeaseId, PartitionId, SinkFileId};
use crate::types::lease::Lease;
use crate::types::queue::{QueueBounds, QueuePlace};
use crate::types::timer::TimerTimes;

const FOLDER: &str = "src/storage/golden";
const PARTITION: PartitionId = PartitionId(7);

#[test]
fn what_was_stored_once_decodes() {
    golden::check(FOLDER, &all_kinds());
}

#[test]
fn what_a_newer_release_stored_is_refused_by_name() {
    golden::check_newer_is_refused(&all_kinds());
}

fn shown<T: std::fmt::Debug>(decoded: Result<T, StorageError>) -> Result<String, String> {
    decoded.map(|value| format!("{value:?}")).map_err(|error| {
        let cause = error.source().map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    })
}

/// Decodes as a read does that finds the row in storage.
fn stored<T: std::fmt::Debug>(
    read: impl Fn(&dyn Storage) -> Result<T, StorageError> + 'static,
) -> Decode<'static> {
    Box::new(move |key, value| {
        let storage = MemoryStorage::new();
        storage.insert_row(key, value);
        shown(read(&storage))
    })
}

/// The same for a row of the catalog.
fn in_catalog<T: std::fmt::Debug>(
    read: impl Fn(&dyn Storage) -> Result<T, StorageError> + 'static,
) -> Decode<'static> {
    Box::new(move |key, value| {
        let storage = MemoryStorage::new();
        let change = CatalogChange {
            expectations: Vec::new(),
            writes: vec![(key.to_vec(), Some(value.to_vec()))],
        };
        storage
            .commit_catalog(&change)
            .expect("the row may be written");
        shown(read(&storage))
    })
}

/// The caller's own bytes, as who keeps them decodes them.
fn plain(called: &'static str) -> Decode<'static> {
    Box::new(move |_, value| shown(codec::decode_plain(|| called.to_owned(), value.to_vec())))
}

fn places() -> AppendPlaces {
    AppendPlaces {
        files: vec![77],
        queues: vec![QueuePlace {
            offset: 4,
            bytes_before: 99,
        }],
    }
}

/// The rows that one epoch with something of every kind becomes.
fn rows_of_epoch() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    codec::for_each_row(&full_commit(), |key, value| {
        let value = match value {
            NewValue::Gone => return,
            NewValue::Bytes(bytes) => bytes.to_vec(),
            NewValue::Chunk(messages) => codec::encode_chunk(messages),
        };
        rows.insert(key.to_vec(), value);
    });
    rows
}

/// How rows of the one epoch are decoded.
struct EpochRows {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl EpochRows {
    fn row(&self, key: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let value = self.rows.get(&key).expect("the epoch writes it").clone();
        (key, value)
    }
}

fn kind<'a>(
    name: &'a str,
    called: &'a str,
    written: (Vec<u8>, Vec<u8>),
    held: &dyn std::fmt::Debug,
    decode: Decode<'a>,
) -> Kind<'a> {
    Kind {
        name,
        called,
        version: FORMAT_VERSION,
        version_at: 0,
        written,
        held: format!("{held:?}"),
        decode,
    }
}

fn all_kinds() -> Vec<Kind<'static>> {
    let mut kinds = kinds_of_entries();
    kinds.extend(kinds_of_partitions());
    kinds.extend(kinds_of_timers());
    kinds.extend(kinds_of_queues());
    kinds.extend(kinds_of_stores());
    kinds
}

/// Staged epochs, decided or set aside. Behind the key stands the checksum that the partition's head has of them.
fn kinds_of_entries() -> Vec<Kind<'static>> {
    const KEY_BYTES: usize = 25;
    let commit = full_commit();
    let mut draft = EntryDraft::new(&commit);
    let checksum = draft.seal(&predecessor(), &places());
    let key = keys::entry(PARTITION, commit.generation, commit.epoch);
    let keys = [("entry", key.clone()), ("set_aside", keys::set_aside(&key))];
    let of_key = |(name, key): (_, Vec<u8>)| {
        let decode = |key: &[u8], value: &[u8]| {
            let checksum = key[KEY_BYTES..].try_into().map(Checksum);
            let checksum = checksum.expect("a checksum stands behind the key");
            Entry::decode(value, checksum).map(|entry| format!("{:?}", entry.commit))
        };
        let key = [key.as_slice(), &checksum.0].concat();
        let written = (key, draft.bytes().to_vec());
        kind(name, "its entry", written, &commit, Box::new(decode))
    };
    keys.into_iter().map(of_key).collect()
}

/// What epochs write of their partitions.
fn kinds_of_partitions() -> Vec<Kind<'static>> {
    let commit = full_commit();
    let of_epoch = EpochRows {
        rows: rows_of_epoch(),
    };
    let lane = commit.frontiers[0].lane;
    let (chunk_lane, messages) = (commit.chunks[0].lane, &commit.chunks[0].messages);
    let epoch = commit.epoch;
    let letter = DeadLetterId {
        partition: PARTITION,
        epoch,
        index: 0,
    };
    let chunk_limit = ChunkLimit {
        chunks: 1,
        bytes: 1,
    };
    let state = |value: &[u8], touched| {
        let value = value.to_vec();
        vec![StoredState { value, touched }]
    };
    vec![
        kind(
            "source_position",
            "the source position of partition p7",
            of_epoch.row(keys::source_position(PARTITION)),
            &commit.source_position,
            stored(|storage| rows::read_source_position(storage, PARTITION)),
        ),
        kind(
            "frontier",
            "the frontier of lane p1/s1>p7",
            of_epoch.row(keys::frontier(lane)),
            &Some(commit.frontiers[0]),
            stored(move |storage| rows::read_frontier(storage, lane)),
        ),
        kind(
            "state",
            "a value of state count of partition p7",
            of_epoch.row(keys::state(PARTITION, "count", b"a")),
            &state(b"1", 0),
            stored(|storage| rows::read_states(storage, PARTITION, "count", &[b"a"])),
        ),
        kind(
            "state_with_time",
            "a value of state seen of partition p7",
            of_epoch.row(keys::state(PARTITION, "seen", b"a")),
            &state(b"1", 7),
            stored(|storage| rows::read_states(storage, PARTITION, "seen", &[b"a"])),
        ),
        kind(
            "chunk",
            "the chunk of epoch e1001 in lane p7/s2>p9",
            of_epoch.row(keys::chunk(chunk_lane, epoch)),
            &vec![(epoch, &**messages)],
            stored(move |storage| rows::read_chunks(storage, chunk_lane, epoch, chunk_limit)),
        ),
        kind(
            "epoch_record",
            "the record of epoch e1001 of partition p7",
            of_epoch.row(keys::epoch_record(PARTITION, epoch)),
            &Some(&commit.record),
            stored(move |storage| rows::read_epoch_record(storage, PARTITION, epoch)),
        ),
        kind(
            "source_mark",
            "the source mark a.csv of partition p7",
            of_epoch.row(keys::source_mark(PARTITION, "a.csv")),
            &vec![commit.source_marks[0].clone()],
            stored(|storage| rows::read_source_marks(storage, PARTITION)),
        ),
        kind(
            "sink_progress",
            "the sink progress alerts of partition p7",
            of_epoch.row(keys::sink_progress(PARTITION, "alerts")),
            &vec![("alerts", b"2")],
            stored(|storage| rows::read_sink_progress(storage, PARTITION)),
        ),
        kind(
            "dead_letter",
            "dead letter p7-e1001-0",
            of_epoch.row(keys::dead_letter(letter)),
            &Some(&commit.dead_letters[0]),
            stored(move |storage| letter_rows::read_letter(storage, letter)),
        ),
    ]
}

fn kinds_of_timers() -> Vec<Kind<'static>> {
    let of_epoch = EpochRows {
        rows: rows_of_epoch(),
    };
    let hour = TimerKey {
        domain: TimeDomain::EventTime,
        trigger_time: 6,
        stream: "hour",
        key: b"b",
    };
    let quiet = TimerKey {
        domain: TimeDomain::SystemTime,
        trigger_time: 7,
        stream: "quiet",
        key: b"",
    };
    let times = |trigger_time, event_time, held_in_run| {
        vec![Some(TimerTimes {
            trigger_time,
            event_time,
            held_in_run,
        })]
    };
    let key = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut key = Vec::new();
        write(&mut key);
        key
    };
    let hold = key(&|key| timer_keys::write_timer_hold(key, PARTITION, 1, &quiet));
    let read_holds = |storage: &dyn Storage| {
        let mut found = Vec::new();
        let visit = |moment, timer: TimerKey<'_>| found.push((moment, timer.trigger_time));
        let limit = ScanLimit::rows(10);
        timer_rows::scan_timer_holds(storage, PARTITION, None, limit, visit)?;
        Ok(found)
    };
    let pending = PendingStream {
        stream: "quiet".to_owned(),
        domain: TimeDomain::SystemTime,
        pending: 1,
    };
    vec![
        kind(
            "timer",
            "a timer of stream hour of partition p7",
            of_epoch.row(key(&|key| timer_keys::write_timer(key, PARTITION, &hour))),
            &times(6, 9, 4),
            stored(move |storage| timer_rows::read_timers(storage, PARTITION, &[hour])),
        ),
        kind(
            "timer_hold",
            "a hold of a timer of partition p7",
            of_epoch.row(hold),
            &vec![(1, 7)],
            stored(read_holds),
        ),
        kind(
            "system_timer",
            "a timer of stream quiet of partition p7",
            of_epoch.row(key(&|key| {
                timer_keys::write_system_timer(key, PARTITION, quiet.stream, quiet.key);
            })),
            &times(7, 1, 0),
            stored(move |storage| timer_rows::read_timers(storage, PARTITION, &[quiet])),
        ),
        kind(
            "timer_stream",
            "the count of timers of stream quiet of partition p7",
            of_epoch.row(timer_keys::timer_stream(PARTITION, "quiet")),
            &vec![pending],
            stored(|storage| timer_rows::pending_streams(storage, PARTITION)),
        ),
    ]
}

fn kinds_of_queues() -> Vec<Kind<'static>> {
    let append = full_commit().queue_appends.remove(0);
    let queue = append.queue;
    let rows = append.rows.clone();
    let chunk = QueueChunk {
        place: places().queues[0],
        append,
    };
    let withheld = WithheldRows {
        span: chunk.span(),
        partition: PARTITION,
        epoch: EpochId(9),
    };
    let bounds = QueueBounds {
        start: 1,
        end: 6,
        written_bytes: 137,
        trimmed_bytes: 20,
    };
    let called = "the chunk up to row 5 of queue partition p8";
    let key = chunk_key(&chunk.span());
    let read_bounds = move |storage: &dyn Storage| queue_rows::read_bounds(storage, queue);
    let decode_withheld =
        |key: &[u8], value: &[u8]| shown(queue_codec::decode_queue_chunk(key, value));
    let decode_rows = move |key: &[u8], value: &[u8]| {
        let chunk = queue_codec::decode_queue_chunk(key, value);
        shown(chunk.map(|chunk| match chunk {
            StoredChunk::Rows(chunk) => (chunk.place, chunk.append.rows),
            StoredChunk::Withheld(_) => panic!("these are rows"),
        }))
    };
    vec![
        kind(
            "queue_rows",
            called,
            (key.clone(), chunk.encode()),
            &(chunk.place, rows),
            Box::new(decode_rows),
        ),
        kind(
            "queue_rows_withheld",
            called,
            (key, withheld.encode()),
            &StoredChunk::Withheld(withheld.clone()),
            Box::new(decode_withheld),
        ),
        kind(
            "queue_bounds",
            "the bounds of queue partition p8",
            (
                keys::queue_bounds(queue),
                queue_codec::encode_queue_bounds(&bounds),
            ),
            &bounds,
            stored(read_bounds),
        ),
    ]
}

/// What storage keeps of itself, and what the catalog has but for pipelines.
fn kinds_of_stores() -> Vec<Kind<'static>> {
    let id = vec![7_u8; 16];
    let lease = LeaseRow {
        generation: 3,
        current: Some(LeaseId(12)),
    };
    let in_force = Lease {
        id: LeaseId(12),
        partition: PARTITION,
        generation: Generation(3),
    };
    let mark = codec::encode_plain([5_u64, 6].map(u64::to_be_bytes).as_flattened());
    let location = b"rout/a.jsonl".to_vec();
    let tried = PartitionAttempts {
        is_unclean: true,
        failed: Some(FailedAttempts {
            item: Checksum::of(b"item"),
            count: 2,
        }),
        begun: Some(BegunAttempt {
            rows: 1,
            left: 125,
            item: Some(Checksum::of(b"item")),
            count: 1,
        }),
        replay: Some(BegunReplay {
            letter: letter(7, 3, 1),
            alone: 2,
        }),
    };
    let requests = RequestPage {
        kind: LetterRequestKind::Replay,
        ids: vec![letter(7, 9, 0), letter(7, 9, 3), letter(7, 300, 1)],
    };
    let head = |called: &'static str| -> Decode<'static> {
        Box::new(move |_, value| shown(codec::decode_head(|| called.to_owned(), value)))
    };
    let number = |called: &'static str| -> Decode<'static> {
        Box::new(move |_, value| shown(codec::decode_number(|| called.to_owned(), value)))
    };
    let mark_of = |whose: &'static str| -> Decode<'static> {
        Box::new(move |_, value| shown(embedded::decode_mark(whose, value.to_vec())))
    };
    let of_bulk = vec![
        kind(
            "store_id",
            "the store id of the bulk rows",
            (keys::store_id(), codec::encode_plain(&id)),
            &id,
            plain("the store id of the bulk rows"),
        ),
        kind(
            "applied",
            "the applied head of partition p7",
            (keys::applied(PARTITION), codec::encode_head(&predecessor())),
            &predecessor(),
            head("the applied head of partition p7"),
        ),
        kind(
            "sink_length",
            "the length of sink file f1",
            (keys::sink_length(SinkFileId(1)), codec::encode_number(9)),
            &9,
            number("the length of sink file f1"),
        ),
        kind(
            "mark_of_bulk",
            "the mark among the bulk rows",
            (keys::decisions_mark(), mark.clone()),
            &(5, 6),
            mark_of("the bulk rows"),
        ),
    ];
    let of_catalog = vec![
        kind(
            "catalog_store_id",
            "the store id of the decisions",
            (keys::catalog_store_id(), codec::encode_plain(&id)),
            &id,
            plain("the store id of the decisions"),
        ),
        kind(
            "catalog_mark",
            "the mark among the decisions",
            (keys::catalog_mark(), mark),
            &(5, 6),
            mark_of("the decisions"),
        ),
        kind(
            "catalog_head",
            "the head of partition p7",
            (keys::head(PARTITION), codec::encode_head(&predecessor())),
            &predecessor(),
            head("the head of partition p7"),
        ),
        kind(
            "catalog_lease",
            "the lease of partition p7",
            (keys::lease(PARTITION), codec::encode_lease(&lease)),
            &Some(in_force),
            in_catalog(|storage| leases::current(storage, PARTITION)),
        ),
        kind(
            "catalog_counter",
            "the counter stream",
            (keys::counter("stream"), codec::encode_number(8)),
            &8,
            in_catalog(|storage| leases::allocate(storage, Counter::Streams, 1)),
        ),
        kind(
            "catalog_attempts",
            "the attempts of partition p7",
            (keys::attempts(PARTITION), attempts::encode_attempts(&tried)),
            &tried,
            in_catalog(|storage| attempts::read_attempts(storage, PARTITION)),
        ),
        kind(
            "catalog_letter_requests",
            "the requests from dead letter p7-e9-0 on",
            (
                keys::letter_requests(requests.ids[0]),
                letter_requests::encode_page(&requests),
            ),
            &requests,
            Box::new(|key, value| shown(letter_requests::decode_page(key, value))),
        ),
        kind(
            "catalog_sink_file",
            "the location of sink file f1",
            (
                keys::sink_file(SinkFileId(1)),
                codec::encode_plain(&location),
            ),
            &location,
            plain("the location of sink file f1"),
        ),
    ];
    of_bulk.into_iter().chain(of_catalog).collect()
}
