//! Every key of every stored row, in one table, with the functions that build it.
//!
//! Those of timers, which are many, are built in `timer_keys.rs`.
//!
//! Two key spaces: *bulk rows* (many, large, one owner) and the *catalog* (few, small, changed by
//! expectation). In keys numbers are big-endian, so that the order of bytes is the order of numbers.
//!
//! **Invariant:** a bulk key that belongs to a partition is a prefix byte and then the partition's
//! id, so that a deleted partition's rows can be swept as one range for each prefix and never come
//! back under another's name. A prefix byte is never given a new meaning.
//!
//! | bulk prefix | then | value |
//! |---|---|---|
//! | `00` [`STORE_ID`] | | the store id |
//! | `01` [`ENTRY`] | partition, generation, epoch | a staged epoch |
//! | `02` [`APPLIED`] | partition | the head that the rows stand at |
//! | `03` [`SOURCE_POSITION`] | partition | position in the source |
//! | `04` [`FRONTIER`] | reader, producer, stream | epoch and index of the last message read |
//! | `05` [`STATE`] | partition, name, `00`, key | a state value |
//! | `06` [`CHUNK`] | producer, stream, reader, epoch | one epoch's messages in a lane |
//! | `07` [`EPOCH_RECORD`] | partition, epoch | what the epoch was |
//! | `08` [`SINK_LENGTH`] | sink file | committed length that is in the file and synced |
//! | `09` [`DECISIONS_MARK`] | | how far the decisions were, as far as the bulk rows know |
//! | `0a` [`SET_ASIDE`] | as `01` | a staged epoch whose decision may have been lost |
//! | `0b` [`TIMER`] | partition, clock, trigger time, stream name, `00`, key | a pending timer, as it will fire |
//! | `0c` [`TIMER_HOLD`] | partition, moment, clock, trigger time, stream name, `00`, key | a timer that holds the output watermark at that moment |
//! | `0d` [`SYSTEM_TIMER`] | partition, stream name, `00`, key | the timer that stands for a key by the system's clock |
//! | `0e` [`TIMER_STREAM`] | partition, stream name | its clock, how many of its timers are pending |
//! | `0f` [`SOURCE_MARK`] | partition, name | something that the partition's source keeps by name |
//! | `10` [`SINK_PROGRESS`] | partition, sink name | how far a sink is that the partition feeds |
//! | `11` [`QUEUE_ROWS`] | queue partition, offset of the last row | rows that were written together |
//! | `12` [`QUEUE_BOUNDS`] | queue partition | from where to where it has rows, and their bytes |
//! | `13` [`DEAD_LETTER`] | partition, epoch, index | an item that nothing could be made of |
//!
//! | catalog prefix | then | value |
//! |---|---|---|
//! | `i` [`CATALOG_STORE_ID`] | | the store id |
//! | `h` [`CATALOG_HEAD`] | partition | the partition's last decided epoch |
//! | `l` [`CATALOG_LEASE`] | partition | generation, and the lease in force |
//! | `n` [`CATALOG_COUNTER`] | name | the next number |
//! | `f` [`CATALOG_SINK_FILE`] | sink file | where the file lies |
//! | `m` [`CATALOG_MARK`] | | how many changes there were, and a digest of all rows |
//! | `p` [`CATALOG_PIPELINE`] | pipeline name, `00`, rest | the controller's rows |
//! | `q` [`CATALOG_QUEUE`] | queue name | the queue's partitions and retention |
//! | `q` [`CATALOG_QUEUE`] | `00`, first partition | the same of a queue that was deleted, until its rows are gone |
//! | `t` [`CATALOG_ATTEMPTS`] | partition | how often its items were tried |
//! | `d` [`CATALOG_LETTER_REQUESTS`] | partition, epoch, index of the first letter | what is asked to be done with dead letters |

use crate::types::dead_letter::DeadLetterId;
use crate::types::ids::{EpochId, Generation, LaneId, PartitionId, SinkFileId, StreamId};

/// The id that both halves of a store carry.
pub const STORE_ID: u8 = 0x00;
/// Staged epochs.
pub const ENTRY: u8 = 0x01;
/// The head that a partition's rows stand at.
pub const APPLIED: u8 = 0x02;
/// Source positions.
pub const SOURCE_POSITION: u8 = 0x03;
/// Frontiers.
pub const FRONTIER: u8 = 0x04;
/// Keyed state.
pub const STATE: u8 = 0x05;
/// Chunks of lanes.
pub const CHUNK: u8 = 0x06;
/// Epoch records.
pub const EPOCH_RECORD: u8 = 0x07;
/// Committed lengths of sink files.
pub const SINK_LENGTH: u8 = 0x08;
/// The copy of the decisions' mark.
pub const DECISIONS_MARK: u8 = 0x09;
/// Staged epochs kept for a person to look at.
pub const SET_ASIDE: u8 = 0x0a;

/// Pending timers in the order in which those of one clock fire.
pub const TIMER: u8 = 0x0b;
/// Pending timers in the order of the moments at which they hold the output watermark, where those are not
/// their trigger times.
pub const TIMER_HOLD: u8 = 0x0c;
/// Pending timers of the system's clock by stream and key.
pub const SYSTEM_TIMER: u8 = 0x0d;
/// Streams that have pending timers.
pub const TIMER_STREAM: u8 = 0x0e;

/// What sources keep by name.
pub const SOURCE_MARK: u8 = 0x0f;
/// How far sinks are.
pub const SINK_PROGRESS: u8 = 0x10;
/// Rows of queues.
pub const QUEUE_ROWS: u8 = 0x11;
/// From where to where queue partitions have rows.
pub const QUEUE_BOUNDS: u8 = 0x12;
/// Dead letters.
pub const DEAD_LETTER: u8 = 0x13;

/// The id that both halves of a store carry.
pub const CATALOG_STORE_ID: u8 = b'i';
/// Heads; only an implementation of storage writes them.
pub const CATALOG_HEAD: u8 = b'h';
/// Leases.
pub const CATALOG_LEASE: u8 = b'l';
/// Counters.
pub const CATALOG_COUNTER: u8 = b'n';
/// Sink files; only an implementation of storage writes them.
pub const CATALOG_SINK_FILE: u8 = b'f';
/// The mark of the catalog; only an implementation of storage writes it.
pub const CATALOG_MARK: u8 = b'm';
/// Rows of pipelines, which the controller owns.
pub const CATALOG_PIPELINE: u8 = b'p';

/// Rows of queues, which the controller owns.
pub const CATALOG_QUEUE: u8 = b'q';

/// What is asked to be done with dead letters.
pub const CATALOG_LETTER_REQUESTS: u8 = b'd';

/// How often the items of partitions were tried.
pub const CATALOG_ATTEMPTS: u8 = b't';

/// Longest bulk key, in bytes; one below what the store underneath can express.
pub const KEY_BYTES_MAX: usize = 65_534;

pub(super) fn key<const N: usize>(prefix: u8, numbers: [u64; N]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 * N);
    key.push(prefix);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

/// Key of the store id among the bulk rows.
pub fn store_id() -> Vec<u8> {
    vec![STORE_ID]
}

/// Key of a staged epoch.
pub fn entry(partition: PartitionId, generation: Generation, epoch: EpochId) -> Vec<u8> {
    key(ENTRY, [partition.0, generation.0, epoch.0])
}

/// Partition, generation and epoch of a staged epoch's key.
pub fn parse_entry(key: &[u8]) -> Option<(PartitionId, Generation, EpochId)> {
    (key.len() == 25 && key[0] == ENTRY).then(|| {
        (
            PartitionId(number_at(key, 1)),
            Generation(number_at(key, 9)),
            EpochId(number_at(key, 17)),
        )
    })
}

/// Key of the head that a partition's rows stand at.
pub fn applied(partition: PartitionId) -> Vec<u8> {
    key(APPLIED, [partition.0])
}

/// Key of a partition's position in its source.
pub fn source_position(partition: PartitionId) -> Vec<u8> {
    key(SOURCE_POSITION, [partition.0])
}

/// Key of the reader's position in a lane.
pub fn frontier(lane: LaneId) -> Vec<u8> {
    key(FRONTIER, [lane.reader.0, lane.producer.0, lane.stream.0])
}

/// The range of keys of all frontiers of a reader.
pub fn frontiers_of(reader: PartitionId) -> (Vec<u8>, Vec<u8>) {
    let start = key(FRONTIER, [reader.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// The lane of a frontier's key.
pub fn parse_frontier(key: &[u8]) -> Option<LaneId> {
    (key.len() == 25 && key[0] == FRONTIER).then(|| LaneId {
        reader: PartitionId(number_at(key, 1)),
        producer: PartitionId(number_at(key, 9)),
        stream: StreamId(number_at(key, 17)),
    })
}

/// The range of keys of all states of a partition, whatever their names.
pub fn states_of(partition: PartitionId) -> (Vec<u8>, Vec<u8>) {
    let start = key(STATE, [partition.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// The name of the state that a key of a state belongs to.
pub fn parse_state_name(key: &[u8]) -> Option<&str> {
    let name_and_rest = key.strip_prefix(&[STATE])?.get(8..)?;
    let end = name_and_rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&name_and_rest[..end]).ok()
}

/// Appends the beginning of the keys of one named state to `buffer`.
pub fn push_state_prefix(buffer: &mut Vec<u8>, partition: PartitionId, state: &str) {
    buffer.push(STATE);
    buffer.extend_from_slice(&partition.0.to_be_bytes());
    buffer.extend_from_slice(state.as_bytes());
    buffer.push(0);
}

/// How long the keys of a named state may be, in bytes.
pub fn state_key_bytes_max(state: &str) -> usize {
    KEY_BYTES_MAX.saturating_sub(10 + state.len())
}

/// Key of one key's value in a named state.
pub fn state(partition: PartitionId, state: &str, key: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(10 + state.len() + key.len());
    push_state_prefix(&mut buffer, partition, state);
    buffer.extend_from_slice(key);
    buffer
}

/// Key of the chunk that `epoch` of the lane's producer put into the lane.
pub fn chunk(lane: LaneId, epoch: EpochId) -> Vec<u8> {
    key(
        CHUNK,
        [lane.producer.0, lane.stream.0, lane.reader.0, epoch.0],
    )
}

/// The range of keys of all chunks that a partition wrote, whatever their lanes.
pub fn chunks_of(producer: PartitionId) -> (Vec<u8>, Vec<u8>) {
    let start = key(CHUNK, [producer.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// The lane of a chunk's key.
pub fn parse_chunk_lane(key: &[u8]) -> Option<LaneId> {
    (key.len() == 33 && key[0] == CHUNK).then(|| LaneId {
        producer: PartitionId(number_at(key, 1)),
        stream: StreamId(number_at(key, 9)),
        reader: PartitionId(number_at(key, 17)),
    })
}

/// The epoch of a chunk's key.
pub fn parse_chunk_epoch(key: &[u8]) -> Option<EpochId> {
    (key.len() == 33 && key[0] == CHUNK).then(|| EpochId(number_at(key, 25)))
}

/// Key of an epoch's record.
pub fn epoch_record(partition: PartitionId, epoch: EpochId) -> Vec<u8> {
    key(EPOCH_RECORD, [partition.0, epoch.0])
}

/// The range of keys of all epoch records of a partition.
pub fn epoch_records_of(partition: PartitionId) -> (Vec<u8>, Vec<u8>) {
    let start = key(EPOCH_RECORD, [partition.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// The epoch of an epoch record's key.
pub fn parse_epoch_record(key: &[u8]) -> Option<EpochId> {
    (key.len() == 17 && key[0] == EPOCH_RECORD).then(|| EpochId(number_at(key, 9)))
}

/// Key of what the source of a partition keeps under a name.
pub fn source_mark(partition: PartitionId, name: &str) -> Vec<u8> {
    [&key(SOURCE_MARK, [partition.0]), name.as_bytes()].concat()
}

/// Key of how far a sink is that a partition feeds.
pub fn sink_progress(partition: PartitionId, sink: &str) -> Vec<u8> {
    [&key(SINK_PROGRESS, [partition.0]), sink.as_bytes()].concat()
}

/// Key of the chunk of a queue's partition whose last row has offset `last`: the first key from
/// `queue_rows(queue, offset)` on is that of the chunk that holds the offset.
pub fn queue_rows(queue: PartitionId, last: u64) -> Vec<u8> {
    key(QUEUE_ROWS, [queue.0, last])
}

/// The queue's partition and the offset of the last row, of a chunk's key.
pub fn parse_queue_rows(key: &[u8]) -> Option<(PartitionId, u64)> {
    (key.len() == 17 && key[0] == QUEUE_ROWS)
        .then(|| (PartitionId(number_at(key, 1)), number_at(key, 9)))
}

/// Key of the bounds of a queue's partition.
pub fn queue_bounds(queue: PartitionId) -> Vec<u8> {
    key(QUEUE_BOUNDS, [queue.0])
}

/// Key of a dead letter.
pub fn dead_letter(id: DeadLetterId) -> Vec<u8> {
    key(DEAD_LETTER, [id.partition.0, id.epoch.0, id.index.into()])
}

/// The id of a dead letter's key.
pub fn parse_dead_letter(key: &[u8]) -> Option<DeadLetterId> {
    letter_of_key(DEAD_LETTER, key)
}

fn letter_of_key(prefix: u8, key: &[u8]) -> Option<DeadLetterId> {
    if key.len() != 25 || key[0] != prefix {
        return None;
    }
    Some(DeadLetterId {
        partition: PartitionId(number_at(key, 1)),
        epoch: EpochId(number_at(key, 9)),
        index: u32::try_from(number_at(key, 17)).ok()?,
    })
}

/// The range of keys of all that a partition has under a prefix of the table.
pub fn all_of(prefix: u8, partition: PartitionId) -> (Vec<u8>, Vec<u8>) {
    let start = key(prefix, [partition.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// The name that follows the partition in a key of [`SOURCE_MARK`] or [`SINK_PROGRESS`].
pub fn parse_name(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(9..)?).ok()
}

/// Key of a sink file's committed length.
pub fn sink_length(file: SinkFileId) -> Vec<u8> {
    key(SINK_LENGTH, [file.0])
}

/// Key of the copy of the decisions' mark.
pub fn decisions_mark() -> Vec<u8> {
    vec![DECISIONS_MARK]
}

/// Key under which a staged epoch is set aside.
pub fn set_aside(entry_key: &[u8]) -> Vec<u8> {
    let mut key = entry_key.to_vec();
    key[0] = SET_ASIDE;
    key
}

/// The partition, or whatever else the first number of a key names, of a bulk key.
pub fn owner(key: &[u8]) -> Option<PartitionId> {
    (key.len() >= 9).then(|| PartitionId(number_at(key, 1)))
}

/// Catalog key of the store id.
pub fn catalog_store_id() -> Vec<u8> {
    vec![CATALOG_STORE_ID]
}

/// Catalog key of the catalog's mark.
pub fn catalog_mark() -> Vec<u8> {
    vec![CATALOG_MARK]
}

/// Catalog key of a partition's head.
pub fn head(partition: PartitionId) -> Vec<u8> {
    key(CATALOG_HEAD, [partition.0])
}

/// Catalog key of a partition's lease.
pub fn lease(partition: PartitionId) -> Vec<u8> {
    key(CATALOG_LEASE, [partition.0])
}

/// Catalog key of how often the items of a partition were tried.
pub fn attempts(partition: PartitionId) -> Vec<u8> {
    key(CATALOG_ATTEMPTS, [partition.0])
}

/// Catalog key of a counter.
pub fn counter(name: &str) -> Vec<u8> {
    let mut key = vec![CATALOG_COUNTER];
    key.extend_from_slice(name.as_bytes());
    key
}

/// Catalog key of a sink file.
pub fn sink_file(file: SinkFileId) -> Vec<u8> {
    key(CATALOG_SINK_FILE, [file.0])
}

/// Catalog key of a pipeline's row; an empty `rest` is the prefix of all its rows.
pub fn pipeline(name: &str, rest: &[u8]) -> Vec<u8> {
    let mut key = vec![CATALOG_PIPELINE];
    key.extend_from_slice(name.as_bytes());
    key.push(0);
    key.extend_from_slice(rest);
    key
}

/// Catalog key of a queue; an empty name is the prefix of all of them.
pub fn queue(name: &str) -> Vec<u8> {
    [&[CATALOG_QUEUE], name.as_bytes()].concat()
}

/// Catalog key of a queue that was deleted, by its first partition.
pub fn deleted_queue(first: PartitionId) -> Vec<u8> {
    [&[CATALOG_QUEUE, 0], first.0.to_be_bytes().as_slice()].concat()
}

/// The name in a queue's catalog key; `None` in that of one that was deleted.
pub fn parse_queue(key: &[u8]) -> Option<&str> {
    let name = key.strip_prefix(&[CATALOG_QUEUE])?;
    (name.first() != Some(&0)).then(|| std::str::from_utf8(name).ok())?
}

/// Catalog key of requests of which `first` is the least letter's.
pub fn letter_requests(first: DeadLetterId) -> Vec<u8> {
    let DeadLetterId {
        partition,
        epoch,
        index,
    } = first;
    key(
        CATALOG_LETTER_REQUESTS,
        [partition.0, epoch.0, index.into()],
    )
}

/// What the keys of all requests for a partition's letters begin with.
pub fn letter_requests_of(partition: PartitionId) -> Vec<u8> {
    key(CATALOG_LETTER_REQUESTS, [partition.0])
}

/// The least letter's id in the key of requests.
pub fn parse_letter_requests(key: &[u8]) -> Option<DeadLetterId> {
    letter_of_key(CATALOG_LETTER_REQUESTS, key)
}

/// Whether only an implementation of storage may write this catalog row.
pub fn is_reserved_in_catalog(key: &[u8]) -> bool {
    matches!(
        key.first(),
        None | Some(&(CATALOG_STORE_ID | CATALOG_HEAD | CATALOG_SINK_FILE | CATALOG_MARK))
    )
}

/// The number after a one-byte prefix of a catalog key, such as a partition's id.
pub fn catalog_number(key: &[u8]) -> Option<u64> {
    (key.len() == 9).then(|| number_at(key, 1))
}

/// The least key that is greater than every key that begins with `prefix`.
///
/// # Panics
///
/// When `prefix` has no byte below 255; every prefix of the table has one.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    let last = end
        .last_mut()
        .expect("a prefix of the table has a byte below 255");
    *last += 1;
    end
}

pub(super) fn number_at(key: &[u8], start: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key[start..start + 8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::StreamId;

    fn lane(producer: u64, stream: u64, reader: u64) -> LaneId {
        LaneId {
            producer: PartitionId(producer),
            stream: StreamId(stream),
            reader: PartitionId(reader),
        }
    }

    #[test]
    fn keys_order_as_their_numbers_do() {
        assert!(chunk(lane(1, 2, 3), EpochId(255)) < chunk(lane(1, 2, 3), EpochId(256)));
        assert!(chunk(lane(1, 2, 3), EpochId(9)) < chunk(lane(1, 2, 4), EpochId(1)));
        assert!(
            entry(PartitionId(1), Generation(2), EpochId(300))
                < entry(PartitionId(1), Generation(3), EpochId(1))
        );
    }

    #[test]
    fn keys_tell_what_they_were_built_from() {
        let parts = (PartitionId(7), Generation(1 << 40), EpochId(u64::MAX));
        assert_eq!(parse_entry(&entry(parts.0, parts.1, parts.2)), Some(parts));
        assert_eq!(parse_entry(&applied(PartitionId(7))), None);
        assert_eq!(
            parse_chunk_epoch(&chunk(lane(1, 2, 3), EpochId(4))),
            Some(EpochId(4))
        );
        assert_eq!(
            owner(&state(PartitionId(5), "s", b"k")),
            Some(PartitionId(5))
        );
        assert_eq!(
            owner(&chunk(lane(6, 2, 3), EpochId(4))),
            Some(PartitionId(6))
        );
        assert_eq!(owner(&frontier(lane(6, 2, 3))), Some(PartitionId(3)));
        assert_eq!(
            parse_frontier(&frontier(lane(6, 2, 3))),
            Some(lane(6, 2, 3))
        );
        assert_eq!(parse_frontier(&applied(PartitionId(7))), None);
        let of_state = state(PartitionId(5), "totals", b"a\0b");
        assert_eq!(parse_state_name(&of_state), Some("totals"));
        assert_eq!(parse_state_name(&chunk(lane(1, 2, 3), EpochId(4))), None);
        assert_eq!(owner(&store_id()), None);
        let record = epoch_record(PartitionId(5), EpochId(9));
        assert_eq!(parse_epoch_record(&record), Some(EpochId(9)));
        let (start, end) = epoch_records_of(PartitionId(5));
        assert!(start < record && record < end);
        assert_eq!(parse_epoch_record(&applied(PartitionId(7))), None);
        let rows = queue_rows(PartitionId(5), 9);
        assert_eq!(parse_queue_rows(&rows), Some((PartitionId(5), 9)));
        assert_eq!(parse_queue_rows(&record), None);
        assert_eq!(owner(&queue_bounds(PartitionId(5))), Some(PartitionId(5)));
    }

    #[test]
    fn no_state_is_a_prefix_of_another() {
        let mut prefix = Vec::new();
        push_state_prefix(&mut prefix, PartitionId(1), "a");
        assert!(state(PartitionId(1), "a", b"b").starts_with(&prefix));
        assert!(!state(PartitionId(1), "ab", b"").starts_with(&prefix));
    }

    #[test]
    fn prefix_end_bounds_all_that_begins_with_the_prefix() {
        let end = prefix_end(&[5, 0xff, 0xff]);
        assert_eq!(end, [6]);
        assert!([5, 0xff, 0xff, 0xff, 0xff].as_slice() < end.as_slice());
    }

    #[test]
    fn only_storage_writes_heads_and_sink_files() {
        assert!(is_reserved_in_catalog(&head(PartitionId(1))));
        assert!(is_reserved_in_catalog(&sink_file(SinkFileId(1))));
        assert!(is_reserved_in_catalog(&catalog_store_id()));
        assert!(is_reserved_in_catalog(&catalog_mark()));
        assert!(is_reserved_in_catalog(b""));
        assert!(!is_reserved_in_catalog(&lease(PartitionId(1))));
        assert!(!is_reserved_in_catalog(&pipeline("flights", b"")));
        assert!(!is_reserved_in_catalog(&queue("alerts")));
    }

    #[test]
    fn deleted_queues_are_told_from_others() {
        assert_eq!(parse_queue(&queue("alerts")), Some("alerts"));
        assert_eq!(parse_queue(&deleted_queue(PartitionId(1 << 60))), None);
        assert_eq!(parse_queue(&pipeline("alerts", b"")), None);
    }
}
