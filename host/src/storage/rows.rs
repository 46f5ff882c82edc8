//! Typed reads of what epochs wrote: states, positions, frontiers, chunks, records. Knows keys and
//! values, and works over any [`Storage`]; it writes nothing.

use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, codec, keys};
use crate::types::epoch::{ChunkMessages, EpochRecord, FrontierAdvance, SourceMark, StoredState};
use crate::types::ids::{EpochId, LaneId, PartitionId};

/// Chunk keys read at a time where only keys are wanted.
const CHUNK_KEYS_PER_SCAN: usize = 256;

/// Rows with names that are read at a time.
const NAMED_ROWS_PER_SCAN: ScanLimit = ScanLimit {
    rows: 1_024,
    bytes: 1 << 20,
};

/// How much one call of [`read_chunks`] returns. The first chunk is returned whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimit {
    /// Chunks.
    pub chunks: usize,
    /// Bytes, as [`ChunkMessages::size_bytes`] counts them.
    pub bytes: usize,
}

/// One page of a scan over a named state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatePage {
    /// Keys and what is held of them, in the order of the keys.
    pub rows: Vec<(Vec<u8>, StoredState)>,
    /// Where the next page begins, to be passed as `from`; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// What is held of `keys` in one named state, in the order of `keys`.
///
/// # Errors
///
/// When the store fails or a value does not decode.
pub fn read_states(
    storage: &dyn Storage,
    partition: PartitionId,
    state: &str,
    keys: &[&[u8]],
) -> Result<Vec<StoredState>, StorageError> {
    let rows: Vec<_> = keys
        .iter()
        .map(|key| keys::state(partition, state, key))
        .collect();
    let values = storage.get_many(&rows)?;
    (values.into_iter())
        .map(|value| match value {
            Some(value) => decode_state(partition, state, value),
            None => Ok(StoredState::default()),
        })
        .collect()
}

/// Rows of one named state from key `from` on, as many as `limit` says.
///
/// # Errors
///
/// When the store fails or a value does not decode.
pub fn scan_states(
    storage: &dyn Storage,
    partition: PartitionId,
    state: &str,
    from: &[u8],
    limit: ScanLimit,
) -> Result<StatePage, StorageError> {
    let mut prefix = Vec::new();
    keys::push_state_prefix(&mut prefix, partition, state);
    let start = keys::state(partition, state, from);
    let rows = storage.scan(&start, &keys::prefix_end(&prefix), limit)?;
    let size_bytes: usize = rows
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let is_full = rows.len() >= limit.rows || size_bytes >= limit.bytes;
    let rows = (rows.into_iter())
        .map(|(mut key, value)| {
            key.drain(..prefix.len());
            Ok((key, decode_state(partition, state, value)?))
        })
        .collect::<Result<Vec<_>, StorageError>>()?;
    // The least key behind the last one is that key and a zero byte.
    let next = rows
        .last()
        .filter(|_| is_full)
        .map(|(key, _)| [key, [0].as_slice()].concat());
    Ok(StatePage { rows, next })
}

/// At most `limit` keys of one named state from key `from` on, in order. Fewer are the last ones.
///
/// # Errors
///
/// When the store fails.
pub fn scan_state_keys(
    storage: &dyn Storage,
    partition: PartitionId,
    state: &str,
    from: &[u8],
    limit: usize,
) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut prefix = Vec::new();
    keys::push_state_prefix(&mut prefix, partition, state);
    let start = keys::state(partition, state, from);
    let mut keys = storage.scan_keys(&start, &keys::prefix_end(&prefix), limit)?;
    for key in &mut keys {
        key.drain(..prefix.len());
    }
    Ok(keys)
}

/// The names of the states of which the partition has rows, in the order of their keys.
///
/// # Errors
///
/// When the store fails.
pub fn state_names_kept(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Vec<String>, StorageError> {
    let (mut start, end) = keys::states_of(partition);
    let mut names = Vec::new();
    while let Some(key) = storage.scan_keys(&start, &end, 1)?.pop() {
        let name = keys::parse_state_name(&key).ok_or_else(|| StorageError::Undecodable {
            what: format!("the key of a state of partition {partition}"),
            finding: format!("it is {}", key.escape_ascii()),
        })?;
        let mut prefix = Vec::new();
        keys::push_state_prefix(&mut prefix, partition, name);
        start = keys::prefix_end(&prefix);
        names.push(name.to_owned());
    }
    Ok(names)
}

fn decode_state(
    partition: PartitionId,
    state: &str,
    value: Vec<u8>,
) -> Result<StoredState, StorageError> {
    codec::decode_state(
        || format!("a value of state {state} of partition {partition}"),
        value,
    )
}

/// The partition's position in its source, as the source encoded it.
///
/// # Errors
///
/// When the store fails or the value does not decode.
pub fn read_source_position(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Option<Vec<u8>>, StorageError> {
    (storage.get(&keys::source_position(partition))?)
        .map(|value| {
            codec::decode_plain(
                || format!("the source position of partition {partition}"),
                value,
            )
        })
        .transpose()
}

/// What the partition's source keeps by name, names rising.
///
/// # Errors
///
/// When the store fails or a value does not decode.
pub fn read_source_marks(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Vec<SourceMark>, StorageError> {
    let mark = |(name, value)| SourceMark {
        name,
        value: Some(value),
    };
    let named = read_named(storage, keys::SOURCE_MARK, partition, "source mark")?;
    Ok(named.into_iter().map(mark).collect())
}

/// How far the sinks are that the partition feeds and that have to know it, by name, as they encoded it.
///
/// # Errors
///
/// When the store fails or a value does not decode.
pub fn read_sink_progress(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Vec<(String, Vec<u8>)>, StorageError> {
    read_named(storage, keys::SINK_PROGRESS, partition, "sink progress")
}

/// Rows of a partition by the names that their keys end with.
fn read_named(
    storage: &dyn Storage,
    prefix: u8,
    partition: PartitionId,
    what: &str,
) -> Result<Vec<(String, Vec<u8>)>, StorageError> {
    let (mut start, end) = keys::all_of(prefix, partition);
    let mut named = Vec::new();
    loop {
        let rows = storage.scan(&start, &end, NAMED_ROWS_PER_SCAN)?;
        let Some((last, _)) = rows.last() else {
            return Ok(named);
        };
        // The least key behind the last one is that key and a zero byte.
        start = [last, [0].as_slice()].concat();
        for (key, value) in rows {
            let name = keys::parse_name(&key).ok_or_else(|| StorageError::Undecodable {
                what: format!("the key of a {what} of partition {partition}"),
                finding: format!("it is {}", key.escape_ascii()),
            })?;
            let name = name.to_owned();
            let what = || format!("the {what} {name} of partition {partition}");
            let value = codec::decode_plain(what, value)?;
            named.push((name, value));
        }
    }
}

/// The reader's position in a lane; `None` before it has read anything.
///
/// # Errors
///
/// When the store fails or the value does not decode.
pub fn read_frontier(
    storage: &dyn Storage,
    lane: LaneId,
) -> Result<Option<FrontierAdvance>, StorageError> {
    (storage.get(&keys::frontier(lane))?)
        .map(|value| codec::decode_frontier(lane, &value))
        .transpose()
}

/// At most `limit` lanes in which `reader` has a frontier, in the order of their keys: the first ones, or
/// those behind `after`.
///
/// # Errors
///
/// When the store fails.
pub fn frontiers_kept(
    storage: &dyn Storage,
    reader: PartitionId,
    after: Option<LaneId>,
    limit: usize,
) -> Result<Vec<LaneId>, StorageError> {
    let (mut start, end) = keys::frontiers_of(reader);
    if let Some(after) = after {
        // The least key behind that one.
        start = [keys::frontier(after).as_slice(), &[0]].concat();
    }
    let keys = storage.scan_keys(&start, &end, limit)?;
    (keys.iter())
        .map(|key| {
            keys::parse_frontier(key).ok_or_else(|| StorageError::Undecodable {
                what: format!("the key of a frontier of partition {reader}"),
                finding: format!("it has {} bytes", key.len()),
            })
        })
        .collect()
}

/// The chunks of a lane from `from_epoch` on, in order, at most as many as `limit` says.
///
/// # Errors
///
/// When the store fails or a value does not decode.
pub fn read_chunks(
    storage: &dyn Storage,
    lane: LaneId,
    from_epoch: EpochId,
    limit: ChunkLimit,
) -> Result<Vec<(EpochId, ChunkMessages)>, StorageError> {
    let end = chunks_end(lane);
    let mut start = keys::chunk(lane, from_epoch);
    let mut chunks = Vec::new();
    let mut size_bytes = 0;
    while chunks.len() < limit.chunks {
        // One at a time: a chunk may be as large as an epoch.
        let Some((key, value)) = storage.scan(&start, &end, ScanLimit::rows(1))?.pop() else {
            break;
        };
        let epoch = chunk_epoch(lane, &key)?;
        let messages = codec::decode_chunk(lane, epoch, &value)?;
        size_bytes += messages.size_bytes();
        if !chunks.is_empty() && size_bytes > limit.bytes {
            break;
        }
        chunks.push((epoch, messages));
        start = keys::chunk(lane, epoch.next());
    }
    Ok(chunks)
}

/// The chunk of one epoch in a lane, if it is kept.
///
/// # Errors
///
/// When the store fails or the value does not decode.
pub fn read_chunk(
    storage: &dyn Storage,
    lane: LaneId,
    epoch: EpochId,
) -> Result<Option<ChunkMessages>, StorageError> {
    (storage.get(&keys::chunk(lane, epoch))?)
        .map(|value| codec::decode_chunk(lane, epoch, &value))
        .transpose()
}

/// The epochs whose chunks a lane holds from `from_epoch` to below `to_epoch`, in order: what a
/// producer trims once every reader has passed it.
///
/// # Errors
///
/// When the store fails.
pub fn chunk_epochs(
    storage: &dyn Storage,
    lane: LaneId,
    from_epoch: EpochId,
    to_epoch: EpochId,
) -> Result<Vec<EpochId>, StorageError> {
    let end = keys::chunk(lane, to_epoch);
    let mut start = keys::chunk(lane, from_epoch);
    let mut epochs = Vec::new();
    loop {
        let page = storage.scan_keys(&start, &end, CHUNK_KEYS_PER_SCAN)?;
        for key in &page {
            epochs.push(chunk_epoch(lane, key)?);
        }
        match epochs.last() {
            Some(last) if page.len() == CHUNK_KEYS_PER_SCAN => {
                start = keys::chunk(lane, last.next());
            }
            _ => return Ok(epochs),
        }
    }
}

/// The lanes in which chunks of `producer` are still kept, in the order of their ids.
///
/// # Errors
///
/// When the store fails.
pub fn lanes_kept(
    storage: &dyn Storage,
    producer: PartitionId,
) -> Result<Vec<LaneId>, StorageError> {
    let (mut start, end) = keys::chunks_of(producer);
    let mut lanes = Vec::new();
    while let Some(key) = storage.scan_keys(&start, &end, 1)?.pop() {
        let lane = keys::parse_chunk_lane(&key).ok_or_else(|| StorageError::Undecodable {
            what: format!("the key of a chunk of partition {producer}"),
            finding: format!("it has {} bytes", key.len()),
        })?;
        lanes.push(lane);
        start = chunks_end(lane);
    }
    Ok(lanes)
}

/// An epoch's record; `None` when the epoch is not decided or too long ago
/// (see [`codec::EPOCH_RECORDS_MAX`]).
///
/// # Errors
///
/// When the store fails or the value does not decode.
pub fn read_epoch_record(
    storage: &dyn Storage,
    partition: PartitionId,
    epoch: EpochId,
) -> Result<Option<EpochRecord>, StorageError> {
    (storage.get(&keys::epoch_record(partition, epoch))?)
        .map(|value| codec::decode_record(partition, epoch, &value))
        .transpose()
}

/// The epochs of the partition that have a record, in order: at most
/// [`codec::EPOCH_RECORDS_MAX`].
///
/// # Errors
///
/// When the store fails.
pub fn epoch_records_kept(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Vec<EpochId>, StorageError> {
    let (start, end) = keys::epoch_records_of(partition);
    let keys = storage.scan_keys(&start, &end, codec::EPOCH_RECORDS_MAX as usize)?;
    (keys.iter())
        .map(|key| {
            keys::parse_epoch_record(key).ok_or_else(|| StorageError::Undecodable {
                what: format!("the key of an epoch record of partition {partition}"),
                finding: format!("it has {} bytes", key.len()),
            })
        })
        .collect()
}

fn chunks_end(lane: LaneId) -> Vec<u8> {
    let mut prefix = keys::chunk(lane, EpochId(0));
    prefix.truncate(prefix.len() - 8);
    keys::prefix_end(&prefix)
}

fn chunk_epoch(lane: LaneId, key: &[u8]) -> Result<EpochId, StorageError> {
    keys::parse_chunk_epoch(key).ok_or_else(|| StorageError::Undecodable {
        what: format!("the key of a chunk in lane {lane}"),
        finding: format!("it is {}", key.escape_ascii()),
    })
}
