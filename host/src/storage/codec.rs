//! The bytes of stored values: every value begins with a format version, numbers are
//! little-endian, and a version that this release does not know is refused by name.
//!
//! Also here, because every implementation must agree on them: what makes an epoch storable at all,
//! and [`for_each_row`], the one function that turns an epoch into row changes. Staged epochs are
//! in `entry.rs`. Layouts are written down in `docs/format.md`.
//!
//! **Invariant:** whatever bytes decode, they never panic, and never allocate more than a small
//! multiple of their own length.

use std::sync::Arc;

use crate::storage::keys::KEY_BYTES_MAX;
use crate::storage::{StorageError, entry, keys, letter_codec, queue_codec, timer_codec};
use crate::types::batch::Timestamp;
use crate::types::column::Column;
use crate::types::epoch::{
    Checksum, ChunkMessages, EpochCommit, EpochRecord, EpochTime, FrontierAdvance, GeneratorTime,
    Head, StateAge, StateAges, StateChanges, StoredState,
};
use crate::types::format_version::unknown_version;
use crate::types::ids::{EpochId, Generation, LaneId, LeaseId, PartitionId, PublicId, StreamId};
use crate::types::timer::TimerPlace;
use crate::types::timestamp_runs::TimestampRuns;
use crate::types::watermark::{LaneStep, LaneTime};

/// The format version of every kind of value in this release.
pub const FORMAT_VERSION: u8 = 1;

/// How many of a partition's epoch records are kept; older ones go in the same commit.
pub const EPOCH_RECORDS_MAX: u64 = 1_000;

/// Largest encoded epoch, in bytes. Far above what the limits of an epoch let through.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Set in the version byte of a state's row in which the time of the last touch stands before the
/// value.
const TOUCHED: u8 = 0x80;

/// Stands for "no value" where a length is expected.
const ABSENT: u32 = u32::MAX;

/// What was wrong with some bytes.
pub(super) type Finding = String;

/// A partition's lease row: the generation of its last job, and the lease in force, if any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseRow {
    /// Never falls; the next job gets one more.
    pub generation: u64,
    /// The lease in force.
    pub current: Option<LeaseId>,
}

// ---------------------------------------------------------------------------------- rows

/// The new value of a row.
#[derive(Debug, Clone, Copy)]
pub enum NewValue<'a> {
    /// The row goes.
    Gone,
    /// These bytes.
    Bytes(&'a [u8]),
    /// What [`encode_chunk`] makes of a chunk. Most are gone before anybody needs that.
    Chunk(&'a Arc<ChunkMessages>),
}

/// Calls `emit` with every row that the epoch changes, sink files, queues and heads excepted, in the order
/// of their keys, each once. Reuses its buffers: nothing is allocated for the row of a state.
pub fn for_each_row(commit: &EpochCommit, mut emit: impl FnMut(&[u8], NewValue<'_>)) {
    let partition = commit.partition;
    let mut value = Vec::with_capacity(256);
    if let Some(position) = &commit.source_position {
        put_plain(&mut value, position);
        emit(&keys::source_position(partition), NewValue::Bytes(&value));
    }
    let frontiers = (commit.frontiers.iter()).map(|advance| {
        let mut value = vec![FORMAT_VERSION];
        put_u64(&mut value, advance.epoch.0);
        put_u32(&mut value, advance.index);
        put_u64(&mut value, advance.run);
        put_lane_time(&mut value, advance.time);
        (keys::frontier(advance.lane), Some(value))
    });
    let dropped = (commit.dropped_frontiers.iter()).map(|lane| (keys::frontier(*lane), None));
    for (key, value) in in_order(frontiers.chain(dropped)) {
        let value = value.as_deref();
        emit(&key, value.map_or(NewValue::Gone, NewValue::Bytes));
    }
    for_each_state_row(commit, &mut emit);
    let written = (commit.chunks.iter()).map(|chunk| {
        let key = keys::chunk(chunk.lane, chunk.epoch);
        (key, NewValue::Chunk(&chunk.messages))
    });
    let trimmed =
        (commit.trims.iter()).map(|trim| (keys::chunk(trim.lane, trim.epoch), NewValue::Gone));
    for (key, value) in in_order(written.chain(trimmed)) {
        emit(&key, value);
    }
    value.clear();
    value.push(FORMAT_VERSION);
    put_record(&mut value, &commit.record);
    let own = (commit.epoch, NewValue::Bytes(&value));
    let too_old = (commit.epoch.0.checked_sub(EPOCH_RECORDS_MAX))
        .filter(|oldest| *oldest > 0)
        .map(EpochId);
    let gone = too_old
        .into_iter()
        .chain(commit.dropped_records.iter().copied());
    let records = std::iter::once(own).chain(gone.map(|epoch| (epoch, NewValue::Gone)));
    let records = records.map(|(epoch, value)| (keys::epoch_record(partition, epoch), value));
    for (key, value) in in_order(records) {
        emit(&key, value);
    }
    timer_codec::for_each_timer_row(partition, &commit.timers, &mut emit);
    let marks = commit.source_marks.iter();
    let marks = marks.map(|mark| (keys::source_mark(partition, &mark.name), &mark.value));
    let progress = commit.sink_progress.iter();
    let progress = progress.map(|of| (keys::sink_progress(partition, &of.sink), &of.value));
    for (key, kept) in marks.chain(progress) {
        match kept {
            Some(kept) => {
                put_plain(&mut value, kept);
                emit(&key, NewValue::Bytes(&value));
            }
            None => emit(&key, NewValue::Gone),
        }
    }
    letter_codec::for_each_letter_row(commit, &mut emit);
}

/// Rows sorted by key; of two with one key the later one counts.
fn in_order<V>(rows: impl Iterator<Item = (Vec<u8>, V)>) -> Vec<(Vec<u8>, V)> {
    let mut rows: Vec<(Vec<u8>, V)> = rows.collect();
    rows.reverse();
    rows.sort_by(|left, right| left.0.cmp(&right.0));
    rows.dedup_by(|earlier, later| earlier.0 == later.0);
    rows
}

fn for_each_state_row(commit: &EpochCommit, emit: &mut impl FnMut(&[u8], NewValue<'_>)) {
    let mut value = Vec::with_capacity(256);
    let mut key = Vec::with_capacity(128);
    for changes in &commit.states {
        key.clear();
        keys::push_state_prefix(&mut key, commit.partition, &changes.state);
        let prefix_len = key.len();
        let touched = changes.touched.iter().copied();
        let touched = touched.chain(std::iter::repeat(0));
        let rows = changes.keys.iter().zip(changes.values.iter()).zip(touched);
        for ((of_key, new), touched) in rows {
            key.truncate(prefix_len);
            key.extend_from_slice(of_key);
            if new.is_empty() && touched == 0 {
                emit(&key, NewValue::Gone);
            } else {
                put_state(&mut value, new, touched);
                emit(&key, NewValue::Bytes(&value));
            }
        }
    }
}

/// Whether the epoch can be stored: its keys fit, its columns agree, and it touches only what its
/// partition owns.
///
/// # Errors
///
/// [`StorageError::Unstorable`] with the first thing that is wrong.
pub fn check_storable(commit: &EpochCommit) -> Result<(), StorageError> {
    let unstorable = |finding: Finding| StorageError::Unstorable {
        partition: commit.partition,
        epoch: commit.epoch,
        finding,
    };
    check_states(&commit.states).map_err(unstorable)?;
    timer_codec::check_timers(&commit.timers).map_err(unstorable)?;
    queue_codec::check_queue_appends(commit).map_err(unstorable)?;
    letter_codec::check_letters(commit).map_err(unstorable)?;
    check_names(commit).map_err(unstorable)?;
    let advances = commit.frontiers.iter().map(|advance| &advance.lane);
    for lane in advances.chain(&commit.dropped_frontiers) {
        if lane.reader != commit.partition {
            return Err(unstorable(format!("lane {lane} has another reader")));
        }
    }
    for lane in commit
        .chunks
        .iter()
        .map(|chunk| chunk.lane)
        .chain(commit.trims.iter().map(|trim| trim.lane))
    {
        if lane.producer != commit.partition {
            return Err(unstorable(format!("lane {lane} has another producer")));
        }
    }
    for epoch in &commit.dropped_records {
        if *epoch > commit.epoch {
            return Err(unstorable(format!(
                "the record of epoch {epoch}, which is not made yet, would go"
            )));
        }
    }
    for chunk in &commit.chunks {
        if chunk.epoch > commit.epoch {
            return Err(unstorable(format!(
                "lane {} would get a chunk of epoch {}, which is not made yet",
                chunk.lane, chunk.epoch
            )));
        }
        if !chunk_is_well_formed(&chunk.messages) {
            return Err(unstorable(format!(
                "the columns of lane {} do not agree",
                chunk.lane
            )));
        }
    }
    let size = entry::entry_size_bound(commit);
    if size > ENTRY_BYTES_MAX {
        return Err(unstorable(format!(
            "it is {size} bytes long, at most {ENTRY_BYTES_MAX} fit; lower max_bytes_per_epoch"
        )));
    }
    Ok(())
}

/// Whether what is kept by name has names that rise and fit.
fn check_names(commit: &EpochCommit) -> Result<(), Finding> {
    let marks = commit.source_marks.iter().map(|mark| &mark.name);
    let sinks = commit.sink_progress.iter().map(|of| &of.sink);
    let names: [Vec<&String>; 2] = [marks.collect(), sinks.collect()];
    for names in names {
        if !names.is_sorted_by(|left, right| left < right) {
            return Err(format!("the names {names:?} do not rise"));
        }
        let long = names.iter().find(|name| name.len() + 9 > KEY_BYTES_MAX);
        if let Some(name) = long {
            return Err(format!("a name has {} bytes", name.len()));
        }
    }
    Ok(())
}

fn check_states(states: &[StateChanges]) -> Result<(), Finding> {
    for changes in states {
        let (state, keys) = (&changes.state, &changes.keys);
        if state.is_empty() || state.as_bytes().contains(&0) {
            return Err(format!(
                "the state name {state:?} is empty or holds a zero byte"
            ));
        }
        let fit = keys::state_key_bytes_max(state);
        if let Some(key) = keys.iter().find(|key| key.len() > fit) {
            return Err(format!(
                "a key of state {state} is {} bytes long, at most {fit} fit; use a hash of it as \
                 the key",
                key.len()
            ));
        }
        let are_columns = keys.is_well_formed() && changes.values.is_well_formed();
        if !are_columns || keys.len() != changes.values.len() {
            return Err(format!("the columns of state {state} do not agree"));
        }
        if !changes.touched.is_empty() && changes.touched.len() != keys.len() {
            return Err(format!("the columns of state {state} do not agree"));
        }
        if !keys.iter().is_sorted_by(|left, right| left < right) {
            return Err(format!("the keys of state {state} do not rise"));
        }
    }
    if !states.is_sorted_by(|left, right| left.state < right.state) {
        return Err("the names of its states do not rise".to_owned());
    }
    Ok(())
}

fn chunk_is_well_formed(messages: &ChunkMessages) -> bool {
    let count = messages.indexes.len();
    messages.key_hashes.len() == count
        && messages.event_times.len() == count
        && messages.alignments.len() == count
        && messages.alignments.is_well_formed()
        && messages.keys.len() == count
        && messages.payloads.len() == count
        && messages.keys.is_well_formed()
        && messages.payloads.is_well_formed()
        && (messages.public_ids.is_empty() || messages.public_ids.len() == count)
        && (messages.steps).is_sorted_by(|left, right| left.index < right.index)
}

// --------------------------------------------------------------------------------- values

/// A value that is the caller's own bytes, behind its format version.
pub fn encode_plain(bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(1 + bytes.len());
    put_plain(&mut value, bytes);
    value
}

/// The caller's own bytes of such a value; the buffer is reused.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_plain(
    what: impl FnOnce() -> String,
    mut value: Vec<u8>,
) -> Result<Vec<u8>, StorageError> {
    decode(what, &value, |fields| {
        fields.rest();
        Ok(())
    })?;
    value.remove(0);
    Ok(value)
}

/// The row of a key in a named state; the buffer is used again.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_state(
    what: impl FnOnce() -> String,
    mut value: Vec<u8>,
) -> Result<StoredState, StorageError> {
    let is_touched = value.first().is_some_and(|version| version & TOUCHED != 0);
    if !is_touched {
        let value = decode_plain(what, value)?;
        return Ok(StoredState { value, touched: 0 });
    }
    value[0] &= !TOUCHED;
    let touched = decode(what, &value, |fields| {
        let touched = fields.u64()?;
        fields.rest();
        Ok(touched)
    })?;
    value.drain(..1 + 8);
    Ok(StoredState { value, touched })
}

/// A head.
pub fn encode_head(head: &Head) -> Vec<u8> {
    let mut value = vec![FORMAT_VERSION];
    put_head(&mut value, head);
    value
}

/// A head.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_head(what: impl FnOnce() -> String, value: &[u8]) -> Result<Head, StorageError> {
    decode(what, value, Fields::head)
}

/// A lease row.
pub fn encode_lease(row: &LeaseRow) -> Vec<u8> {
    let mut value = vec![FORMAT_VERSION];
    put_u64(&mut value, row.generation);
    value.push(u8::from(row.current.is_some()));
    put_u64(&mut value, row.current.map_or(0, |id| id.0));
    value
}

/// A lease row; a partition without one has never had a lease.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_lease(
    partition: PartitionId,
    value: Option<&[u8]>,
) -> Result<LeaseRow, StorageError> {
    let Some(value) = value else {
        return Ok(LeaseRow::default());
    };
    decode(
        || format!("the lease of partition {partition}"),
        value,
        |fields| {
            let generation = fields.u64()?;
            let held = fields.u8()? != 0;
            let id = fields.u64()?;
            Ok(LeaseRow {
                generation,
                current: held.then_some(LeaseId(id)),
            })
        },
    )
}

/// A number: a counter's next, a file's length.
pub fn encode_number(number: u64) -> Vec<u8> {
    let mut value = vec![FORMAT_VERSION];
    put_u64(&mut value, number);
    value
}

/// A number.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_number(what: impl FnOnce() -> String, value: &[u8]) -> Result<u64, StorageError> {
    decode(what, value, Fields::u64)
}

/// A frontier: epoch and index of the last message or step read, and the lane's time there.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_frontier(lane: LaneId, value: &[u8]) -> Result<FrontierAdvance, StorageError> {
    decode(
        || format!("the frontier of lane {lane}"),
        value,
        |fields| {
            Ok(FrontierAdvance {
                lane,
                epoch: EpochId(fields.u64()?),
                index: fields.u32()?,
                run: fields.u64()?,
                time: fields.lane_time()?,
            })
        },
    )
}

/// A chunk.
pub fn encode_chunk(messages: &ChunkMessages) -> Vec<u8> {
    let mut value = Vec::with_capacity(64 + messages.size_bytes());
    value.push(FORMAT_VERSION);
    put_chunk(&mut value, messages);
    value
}

/// A chunk.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_chunk(
    lane: LaneId,
    epoch: EpochId,
    value: &[u8],
) -> Result<ChunkMessages, StorageError> {
    decode(
        || format!("the chunk of epoch {epoch} in lane {lane}"),
        value,
        Fields::chunk,
    )
}

/// An epoch's record.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_record(
    partition: PartitionId,
    epoch: EpochId,
    value: &[u8],
) -> Result<EpochRecord, StorageError> {
    decode(
        || format!("the record of epoch {epoch} of partition {partition}"),
        value,
        Fields::record,
    )
}

// --------------------------------------------------------------------------------- fields

pub(super) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("check_storable keeps every part of an epoch below 1 GiB")
}

pub(super) fn put_u32(buffer: &mut Vec<u8>, number: u32) {
    buffer.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_u64(buffer: &mut Vec<u8>, number: u64) {
    buffer.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(buffer, len_u32(bytes.len()));
    buffer.extend_from_slice(bytes);
}

pub(super) fn put_optional(buffer: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => put_bytes(buffer, bytes),
        None => put_u32(buffer, ABSENT),
    }
}

fn put_plain(value: &mut Vec<u8>, bytes: &[u8]) {
    value.clear();
    value.push(FORMAT_VERSION);
    value.extend_from_slice(bytes);
}

fn put_state(value: &mut Vec<u8>, bytes: &[u8], touched: Timestamp) {
    if touched == 0 {
        put_plain(value, bytes);
        return;
    }
    value.clear();
    value.push(FORMAT_VERSION | TOUCHED);
    put_u64(value, touched);
    value.extend_from_slice(bytes);
}

pub(super) fn put_head(buffer: &mut Vec<u8>, head: &Head) {
    put_u64(buffer, head.generation.0);
    put_u64(buffer, head.epoch.0);
    buffer.extend_from_slice(&head.checksum.0);
}

pub(super) fn put_lane(buffer: &mut Vec<u8>, lane: LaneId) {
    put_u64(buffer, lane.producer.0);
    put_u64(buffer, lane.stream.0);
    put_u64(buffer, lane.reader.0);
}

/// Many at once: a copy of memory on a little-endian machine.
fn put_u32s(buffer: &mut Vec<u8>, numbers: &[u32]) {
    let start = buffer.len();
    buffer.resize(start + 4 * numbers.len(), 0);
    let (places, _) = buffer[start..].as_chunks_mut();
    for (place, number) in places.iter_mut().zip(numbers) {
        *place = number.to_le_bytes();
    }
}

pub(super) fn put_u64s(buffer: &mut Vec<u8>, numbers: &[u64]) {
    let start = buffer.len();
    buffer.resize(start + 8 * numbers.len(), 0);
    let (places, _) = buffer[start..].as_chunks_mut();
    for (place, number) in places.iter_mut().zip(numbers) {
        *place = number.to_le_bytes();
    }
}

pub(super) fn put_column(buffer: &mut Vec<u8>, column: &Column) {
    put_u32s(buffer, &column.ends);
    put_bytes(buffer, &column.bytes);
}

pub(super) fn put_chunk(buffer: &mut Vec<u8>, messages: &ChunkMessages) {
    put_u32(buffer, len_u32(messages.len()));
    put_u32s(buffer, &messages.indexes);
    put_u64s(buffer, &messages.key_hashes);
    put_u64s(buffer, &messages.event_times);
    put_u32(buffer, len_u32(messages.alignments.ends.len()));
    for (end, value) in messages
        .alignments
        .ends
        .iter()
        .zip(&messages.alignments.values)
    {
        put_u32(buffer, *end);
        put_u64(buffer, *value);
    }
    put_column(buffer, &messages.keys);
    put_column(buffer, &messages.payloads);
    put_u32(buffer, len_u32(messages.steps.len()));
    for step in &messages.steps {
        put_u32(buffer, step.index);
        put_lane_time(buffer, step.time);
    }
    buffer.push(u8::from(!messages.public_ids.is_empty()));
    for id in &messages.public_ids {
        buffer.extend_from_slice(&id.0);
    }
}

pub(super) fn put_lane_time(buffer: &mut Vec<u8>, time: LaneTime) {
    put_u64(buffer, time.watermark);
    buffer.push(u8::from(time.is_idle));
}

fn put_time(buffer: &mut Vec<u8>, time: &EpochTime) {
    put_u64(buffer, time.run);
    put_u32(buffer, len_u32(time.input_watermarks.len()));
    put_u64s(buffer, &time.input_watermarks);
    put_lane_time(buffer, time.output);
    put_u64(buffer, time.latest_watermark);
    put_ages(buffer, &time.ages);
    put_u64(buffer, time.generator.greatest);
    put_u64(buffer, time.generator.records);
    buffer.push(u8::from(time.fired_up_to.is_some()));
    if let Some(place) = &time.fired_up_to {
        put_u64(buffer, place.trigger_time);
        put_bytes(buffer, place.stream.as_bytes());
        put_bytes(buffer, &place.key);
    }
    put_u64(buffer, time.pending_timers);
    put_u64(buffer, time.step_count);
    put_u64(buffer, time.fired_count);
    put_u64(buffer, time.late_count);
    put_u64(buffer, time.future_count);
}

fn put_ages(buffer: &mut Vec<u8>, ages: &StateAges) {
    put_u64(buffer, ages.first_watermark);
    put_u32(buffer, len_u32(ages.states.len()));
    for age in &ages.states {
        put_bytes(buffer, age.state.as_bytes());
        put_u64(buffer, age.since);
        put_u64(buffer, age.expired_up_to);
    }
}

pub(super) fn put_record(buffer: &mut Vec<u8>, record: &EpochRecord) {
    put_u64(buffer, record.deployment);
    put_u64(buffer, record.input_count);
    put_u64(buffer, record.output_count);
    put_u64(buffer, record.batch_count);
    put_u64(buffer, record.fuel);
    put_u64(buffer, record.alignment);
    put_time(buffer, &record.time);
    buffer.extend_from_slice(&record.input_checksum.0);
    buffer.extend_from_slice(&record.state_checksum.0);
    buffer.extend_from_slice(&record.output_checksum.0);
}

/// Decodes a whole value: version, fields, nothing behind them.
pub(super) fn decode<'a, T>(
    what: impl FnOnce() -> String,
    value: &'a [u8],
    read: impl FnOnce(&mut Fields<'a>) -> Result<T, Finding>,
) -> Result<T, StorageError> {
    let decoded = Fields::open(value).and_then(|mut fields| {
        let decoded = read(&mut fields)?;
        fields.end()?;
        Ok(decoded)
    });
    decoded.map_err(|finding| StorageError::Undecodable {
        what: what(),
        finding,
    })
}

/// What is left to decode of a value.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Takes the format version off.
    pub(super) fn open(value: &'a [u8]) -> Result<Fields<'a>, Finding> {
        match value.split_first() {
            None => Err("it is empty".to_owned()),
            Some((&FORMAT_VERSION, bytes)) => Ok(Fields { bytes }),
            Some((&version, _)) => Err(unknown_version(version, FORMAT_VERSION)),
        }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Finding> {
        let (taken, rest) = (self.bytes.split_at_checked(count))
            .ok_or_else(|| format!("it ends {} bytes too early", count - self.bytes.len()))?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Fields of a value whose version is known from elsewhere.
    pub(super) fn behind_version(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes }
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn end(&self) -> Result<(), Finding> {
        match self.bytes.len() {
            0 => Ok(()),
            count => Err(format!("{count} bytes follow its end")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Finding> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Finding> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Finding> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Finding> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many things of at least `size` bytes each follow.
    pub(super) fn count(&mut self, size: usize) -> Result<usize, Finding> {
        let count = self.u32()? as usize;
        match count <= self.bytes.len() / size {
            true => Ok(count),
            false => Err(format!("it announces {count} values and ends before them")),
        }
    }

    pub(super) fn many<T>(
        &mut self,
        size: usize,
        mut read: impl FnMut(&mut Fields<'a>) -> Result<T, Finding>,
    ) -> Result<Vec<T>, Finding> {
        let count = self.count(size)?;
        (0..count).map(|_| read(self)).collect()
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Finding> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub(super) fn optional(&mut self) -> Result<Option<Vec<u8>>, Finding> {
        match self.u32()? {
            ABSENT => Ok(None),
            len => Ok(Some(self.take(len as usize)?.to_vec())),
        }
    }

    pub(super) fn checksum(&mut self) -> Result<Checksum, Finding> {
        self.array().map(Checksum)
    }

    pub(super) fn head(&mut self) -> Result<Head, Finding> {
        Ok(Head {
            generation: Generation(self.u64()?),
            epoch: EpochId(self.u64()?),
            checksum: self.checksum()?,
        })
    }

    pub(super) fn lane(&mut self) -> Result<LaneId, Finding> {
        Ok(LaneId {
            producer: PartitionId(self.u64()?),
            stream: StreamId(self.u64()?),
            reader: PartitionId(self.u64()?),
        })
    }

    fn u32s(&mut self, count: usize) -> Result<Vec<u32>, Finding> {
        let (words, _) = self.take(count.saturating_mul(4))?.as_chunks();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    pub(super) fn u64s(&mut self, count: usize) -> Result<Vec<u64>, Finding> {
        let (words, _) = self.take(count.saturating_mul(8))?.as_chunks();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    pub(super) fn column(&mut self, count: usize) -> Result<Column, Finding> {
        let column = Column {
            ends: self.u32s(count)?,
            bytes: self.bytes()?.to_vec(),
        };
        match column.is_well_formed() {
            true => Ok(column),
            false => Err("a column's ends do not fit its bytes".to_owned()),
        }
    }

    fn timestamp_runs(&mut self, count: usize) -> Result<TimestampRuns, Finding> {
        let mut runs = TimestampRuns::default();
        for _ in 0..self.count(4 + 8)? {
            runs.ends.push(self.u32()?);
            runs.values.push(self.u64()?);
        }
        match runs.is_well_formed() && runs.len() == count {
            true => Ok(runs),
            false => Err("a chunk's alignment timestamps do not fit its messages".to_owned()),
        }
    }

    pub(super) fn chunk(&mut self) -> Result<ChunkMessages, Finding> {
        let count = self.u32()? as usize;
        let indexes = self.u32s(count)?;
        let key_hashes = self.u64s(count)?;
        let event_times = self.u64s(count)?;
        let alignments = self.timestamp_runs(count)?;
        Ok(ChunkMessages {
            indexes,
            key_hashes,
            keys: self.column(count)?,
            event_times,
            alignments,
            payloads: self.column(count)?,
            steps: self.many(13, |fields| {
                Ok(LaneStep {
                    index: fields.u32()?,
                    time: fields.lane_time()?,
                })
            })?,
            public_ids: self.public_ids(count)?,
        })
    }

    fn public_ids(&mut self, count: usize) -> Result<Vec<PublicId>, Finding> {
        if self.u8()? == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.take(count.saturating_mul(PublicId::BYTES))?;
        let (ids, _) = bytes.as_chunks::<{ PublicId::BYTES }>();
        Ok(ids.iter().copied().map(PublicId).collect())
    }

    pub(super) fn lane_time(&mut self) -> Result<LaneTime, Finding> {
        Ok(LaneTime {
            watermark: self.u64()?,
            is_idle: self.u8()? != 0,
        })
    }

    fn time(&mut self) -> Result<EpochTime, Finding> {
        Ok(EpochTime {
            run: self.u64()?,
            input_watermarks: self.many(8, Fields::u64)?,
            output: self.lane_time()?,
            latest_watermark: self.u64()?,
            ages: self.ages()?,
            generator: GeneratorTime {
                greatest: self.u64()?,
                records: self.u64()?,
            },
            fired_up_to: match self.u8()? {
                0 => None,
                _ => Some(TimerPlace {
                    trigger_time: self.u64()?,
                    stream: self.text()?,
                    key: self.bytes()?.to_vec(),
                }),
            },
            pending_timers: self.u64()?,
            step_count: self.u64()?,
            fired_count: self.u64()?,
            late_count: self.u64()?,
            future_count: self.u64()?,
        })
    }

    fn ages(&mut self) -> Result<StateAges, Finding> {
        Ok(StateAges {
            first_watermark: self.u64()?,
            states: self.many(20, |fields| {
                Ok(StateAge {
                    state: fields.text()?,
                    since: fields.u64()?,
                    expired_up_to: fields.u64()?,
                })
            })?,
        })
    }

    pub(super) fn text(&mut self) -> Result<String, Finding> {
        let text = std::str::from_utf8(self.bytes()?);
        Ok(text
            .map_err(|_| "a name is not UTF-8".to_owned())?
            .to_owned())
    }

    pub(super) fn record(&mut self) -> Result<EpochRecord, Finding> {
        Ok(EpochRecord {
            deployment: self.u64()?,
            input_count: self.u64()?,
            output_count: self.u64()?,
            batch_count: self.u64()?,
            fuel: self.u64()?,
            alignment: self.u64()?,
            time: self.time()?,
            input_checksum: self.checksum()?,
            state_checksum: self.checksum()?,
            output_checksum: self.checksum()?,
        })
    }
}

#[cfg(test)]
pub(in crate::storage) mod tests {
    use super::*;
    use crate::storage::letter_codec::tests::{full_letter, letter_id};
    use crate::storage::timer_keys::{self, TimerKey};
    use crate::types::batch::TimeDomain;
    use crate::types::epoch::{LaneChunk, LaneTrim, SinkAppend, SinkProgress, SourceMark};
    use crate::types::ids::SinkFileId;
    use crate::types::queue::{QueueAppend, QueueRows};
    use crate::types::timer::{PendingTimers, TimerChanges, TimerTimes};

    pub(super) fn lane(reader: u64) -> LaneId {
        LaneId {
            producer: PartitionId(7),
            stream: StreamId(2),
            reader: PartitionId(reader),
        }
    }

    fn changes(state: &str, rows: &[(&str, &str)]) -> StateChanges {
        StateChanges {
            touched: Vec::new(),
            state: state.to_owned(),
            keys: rows.iter().map(|(key, _)| key.as_bytes()).collect(),
            values: rows.iter().map(|(_, value)| value.as_bytes()).collect(),
        }
    }

    pub(in crate::storage) fn full_commit() -> EpochCommit {
        EpochCommit {
            timers: full_timers(),
            partition: PartitionId(7),
            generation: Generation(3),
            epoch: EpochId(1_001),
            source_position: Some(b"line 12".to_vec()),
            source_marks: vec![mark("a.csv", Some(b"done")), mark("b.csv", None)],
            frontiers: vec![FrontierAdvance {
                run: 1,
                time: LaneTime::default(),
                lane: LaneId {
                    producer: PartitionId(1),
                    stream: StreamId(1),
                    reader: PartitionId(7),
                },
                epoch: EpochId(4),
                index: 5,
            }],
            dropped_frontiers: vec![LaneId {
                producer: PartitionId(2),
                stream: StreamId(1),
                reader: PartitionId(7),
            }],
            dropped_records: vec![EpochId(3)],
            states: vec![
                changes("count", &[("", ""), ("a", "1")]),
                StateChanges {
                    touched: vec![7, 0, 8, 0],
                    ..changes("seen", &[("a", "1"), ("b", "2"), ("c", ""), ("d", "")])
                },
                changes("worst", &[("a", "2")]),
            ],
            chunks: vec![LaneChunk {
                lane: lane(9),
                epoch: EpochId(1_001),
                messages: Arc::new(ChunkMessages {
                    steps: vec![LaneStep {
                        index: 9,
                        time: LaneTime {
                            watermark: 77,
                            is_idle: true,
                        },
                    }],
                    indexes: vec![0, 3],
                    key_hashes: vec![11, 12],
                    keys: [b"k".as_slice(), b""].into_iter().collect(),
                    event_times: vec![1, 2],
                    alignments: [5, 6].into_iter().collect(),
                    payloads: [b"one".as_slice(), b"two"].into_iter().collect(),
                    public_ids: vec![PublicId([1; 20]), PublicId([2; 20])],
                }),
            }],
            trims: vec![LaneTrim {
                lane: lane(9),
                epoch: EpochId(8),
            }],
            appends: vec![SinkAppend {
                file: SinkFileId(1),
                bytes: b"row\n".to_vec(),
            }],
            finished_files: vec![SinkFileId(1)],
            queue_appends: vec![QueueAppend {
                queue: PartitionId(8),
                rows: Arc::new(QueueRows {
                    keys: [b"k".as_slice(), b""].into_iter().collect(),
                    event_times: vec![1, 0],
                    payloads: [b"one".as_slice(), b"two"].into_iter().collect(),
                    write_time: 5,
                }),
            }],
            sink_progress: vec![SinkProgress {
                sink: "alerts".to_owned(),
                value: Some(b"2".to_vec()),
            }],
            dead_letters: vec![full_letter()],
            removed_letters: vec![letter_id(9, 2)],
            record: EpochRecord {
                time: full_time(),
                deployment: 1,
                input_count: 2,
                output_count: 3,
                batch_count: 4,
                fuel: 5,
                alignment: 6,
                input_checksum: Checksum::of(b"in"),
                state_checksum: Checksum::of(b"state"),
                output_checksum: Checksum::of(b"out"),
            },
        }
    }

    fn mark(name: &str, value: Option<&[u8]>) -> SourceMark {
        SourceMark {
            name: name.to_owned(),
            value: value.map(<[u8]>::to_vec),
        }
    }

    fn pending(timers: &[(&str, u64, u64, u64)]) -> PendingTimers {
        let mut pending = PendingTimers::default();
        for (key, trigger_time, event_time, held_in_run) in timers.iter().copied() {
            let times = TimerTimes {
                trigger_time,
                event_time,
                held_in_run,
            };
            pending.push(key.as_bytes(), times);
        }
        pending
    }

    /// Of the event timers one fires, one gets another event time, one is new and held; of the system's one
    /// is replaced.
    fn full_timers() -> Vec<TimerChanges> {
        vec![
            TimerChanges {
                stream: "hour".to_owned(),
                domain: TimeDomain::EventTime,
                removed: pending(&[("a", 5, 5, 0), ("a", 6, 2, 0)]),
                set: pending(&[("a", 6, 3, 0), ("b", 6, 9, 4)]),
                pending: 2,
            },
            TimerChanges {
                stream: "quiet".to_owned(),
                domain: TimeDomain::SystemTime,
                removed: pending(&[("", 8, 1, 0)]),
                set: pending(&[("", 7, 1, 0)]),
                pending: 1,
            },
            TimerChanges {
                stream: "spent".to_owned(),
                domain: TimeDomain::SystemTime,
                removed: pending(&[("k", 8, 1, 0)]),
                set: PendingTimers::default(),
                pending: 0,
            },
        ]
    }

    pub(in crate::storage) fn predecessor() -> Head {
        Head {
            generation: Generation(2),
            epoch: EpochId(1_000),
            checksum: Checksum::of(b"before"),
        }
    }

    fn bytes_of(value: NewValue<'_>) -> Option<Vec<u8>> {
        match value {
            NewValue::Gone => None,
            NewValue::Bytes(bytes) => Some(bytes.to_vec()),
            NewValue::Chunk(messages) => Some(encode_chunk(messages)),
        }
    }

    #[test]
    fn decoders_survive_any_cut_and_any_single_byte() {
        let mut values = Vec::new();
        for_each_row(&full_commit(), |_, value| values.extend(bytes_of(value)));
        for value in values {
            for cut in 0..value.len() {
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut broken = value[..cut].to_vec();
                    broken.push(byte);
                    let _ = decode_chunk(lane(1), EpochId(1), &broken);
                    let _ = decode_record(PartitionId(1), EpochId(1), &broken);
                    let _ = decode_frontier(lane(1), &broken);
                    let _ = decode_state(|| "a state".to_owned(), broken.clone());
                    let _ = Fields::behind_version(&broken).body();
                }
            }
        }
    }

    #[test]
    fn a_states_row_comes_back_with_the_time_of_its_last_touch() {
        for (value, touched) in [("1", 7), ("1", 0), ("", 9)] {
            let mut row = Vec::new();
            put_state(&mut row, value.as_bytes(), touched);
            let stored = decode_state(|| "a state".to_owned(), row).unwrap();
            let value = value.as_bytes().to_vec();
            assert_eq!(stored, StoredState { value, touched });
        }
        let newer = decode_state(|| "a state".to_owned(), vec![0x89, 1]).unwrap_err();
        assert!(newer.to_string().contains("format version 9 is newer"));
    }

    #[test]
    fn an_unknown_newer_version_is_refused_by_name() {
        let mut value = encode_head(&predecessor());
        value[0] = 9;
        let error = decode_head(|| "the head of partition p7".to_owned(), &value).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the head of partition p7 can't be decoded"),
            "{text}"
        );
        assert!(text.contains("format version 9 is newer than 1"), "{text}");
    }

    #[test]
    fn an_epoch_becomes_these_rows() {
        let mut rows = Vec::new();
        for_each_row(&full_commit(), |key, value| {
            rows.push((key.to_vec(), bytes_of(value)));
        });
        let partition = PartitionId(7);
        let timer = |domain, trigger_time, stream, key: &'static str| TimerKey {
            domain,
            trigger_time,
            stream,
            key: key.as_bytes(),
        };
        let hour = |trigger_time, key| timer(TimeDomain::EventTime, trigger_time, "hour", key);
        let system =
            |trigger_time, stream, key| timer(TimeDomain::SystemTime, trigger_time, stream, key);
        let key_of = |timer: TimerKey<'_>| {
            let mut key = Vec::new();
            timer_keys::write_timer(&mut key, partition, &timer);
            key
        };
        let hold_of = |moment, timer: TimerKey<'_>| {
            let mut key = Vec::new();
            timer_keys::write_timer_hold(&mut key, partition, moment, &timer);
            key
        };
        let name_of = |stream, of_key: &str| {
            let mut key = Vec::new();
            timer_keys::write_system_timer(&mut key, partition, stream, of_key.as_bytes());
            key
        };
        let keys: Vec<_> = rows
            .iter()
            .map(|(key, value)| (key.clone(), value.is_some()))
            .collect();
        assert_eq!(
            keys,
            [
                (keys::source_position(partition), true),
                (keys::frontier(full_commit().frontiers[0].lane), true),
                (keys::frontier(full_commit().dropped_frontiers[0]), false),
                (keys::state(partition, "count", b""), false),
                (keys::state(partition, "count", b"a"), true),
                (keys::state(partition, "seen", b"a"), true),
                (keys::state(partition, "seen", b"b"), true),
                (keys::state(partition, "seen", b"c"), true),
                (keys::state(partition, "seen", b"d"), false),
                (keys::state(partition, "worst", b"a"), true),
                (keys::chunk(lane(9), EpochId(8)), false),
                (keys::chunk(lane(9), EpochId(1_001)), true),
                (keys::epoch_record(partition, EpochId(1)), false),
                (keys::epoch_record(partition, EpochId(3)), false),
                (keys::epoch_record(partition, EpochId(1_001)), true),
                (key_of(hour(5, "a")), false),
                (key_of(hour(6, "a")), true),
                (key_of(hour(6, "b")), true),
                (key_of(system(7, "quiet", "")), true),
                (key_of(system(8, "quiet", "")), false),
                (key_of(system(8, "spent", "k")), false),
                (hold_of(1, system(7, "quiet", "")), true),
                (hold_of(1, system(8, "quiet", "")), false),
                (hold_of(1, system(8, "spent", "k")), false),
                (hold_of(2, hour(6, "a")), false),
                (hold_of(3, hour(6, "a")), true),
                (hold_of(6, hour(6, "b")), true),
                (name_of("quiet", ""), true),
                (name_of("spent", "k"), false),
                (timer_keys::timer_stream(partition, "hour"), true),
                (timer_keys::timer_stream(partition, "quiet"), true),
                (timer_keys::timer_stream(partition, "spent"), false),
                (keys::source_mark(partition, "a.csv"), true),
                (keys::source_mark(partition, "b.csv"), false),
                (keys::sink_progress(partition, "alerts"), true),
                (keys::dead_letter(letter_id(9, 2)), false),
                (keys::dead_letter(letter_id(1_001, 0)), true),
            ]
        );
        assert!(rows.is_sorted_by(|left, right| left.0 < right.0));
        let mut replaced = vec![FORMAT_VERSION];
        put_u64s(&mut replaced, &[1, 0, 7]);
        assert!(rows.contains(&(name_of("quiet", ""), Some(replaced))));
        let row = |state, key: &[u8], value: &[u8]| {
            let expected = (keys::state(partition, state, key), Some(value.to_vec()));
            assert!(rows.contains(&expected), "{expected:?}");
        };
        row("count", b"a", b"\x011");
        row("seen", b"a", b"\x81\x07\0\0\0\0\0\0\x001");
        row("seen", b"b", b"\x012");
        row("seen", b"c", b"\x81\x08\0\0\0\0\0\0\0");
    }

    #[test]
    fn what_cannot_be_stored_is_refused_with_its_reason() {
        fn check(spoil: impl FnOnce(&mut EpochCommit), expected: &str) {
            let mut commit = full_commit();
            spoil(&mut commit);
            let text = check_storable(&commit).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
        assert!(check_storable(&full_commit()).is_ok());
        check(
            |commit| commit.states[0].state = "a\0b".to_owned(),
            "zero byte",
        );
        check(
            |commit| commit.states[0] = changes("count", &[(&"k".repeat(70_000), "1")]),
            "70000 bytes long",
        );
        check(
            |commit| commit.states[0].values.push(b"3"),
            "the columns of state count do not agree",
        );
        check(
            |commit| commit.states[1].touched.push(3),
            "the columns of state seen do not agree",
        );
        for key in ["a", ""] {
            let twice_or_falling = changes("count", &[("a", "1"), (key, "2")]);
            check(
                |commit| commit.states[0] = twice_or_falling,
                "the keys of state count do not rise",
            );
        }
        check(
            |commit| commit.states.swap(0, 1),
            "the names of its states do not rise",
        );
        check(
            |commit| commit.timers[0].stream.clear(),
            "\"\" is empty or holds a zero byte",
        );
        check(
            |commit| commit.timers[1].stream = "a".to_owned(),
            "the names of its timer streams do not rise",
        );
        check(
            |commit| commit.timers[0].removed.event_times.push(3),
            "the columns of timer stream hour do not agree",
        );
        check(
            |commit| commit.timers[0].set = pending(&[(&"k".repeat(65_504), 1, 1, 0)]),
            "65504 bytes long, at most 65503 fit",
        );
        check(
            |commit| commit.timers[0].set = pending(&[("b", 2, 1, 0), ("b", 2, 3, 0)]),
            "the timers of stream hour do not rise",
        );
        // One timer stands for a key, whenever it fires.
        check(
            |commit| commit.timers[1].set = pending(&[("b", 2, 1, 0), ("b", 3, 1, 0)]),
            "the timers of stream quiet do not rise",
        );
        check(
            |commit| commit.frontiers[0].lane.reader = PartitionId(8),
            "another reader",
        );
        check(
            |commit| commit.dropped_frontiers[0].reader = PartitionId(8),
            "another reader",
        );
        check(
            |commit| commit.chunks[0].lane.producer = PartitionId(8),
            "another producer",
        );
        check(
            |commit| commit.trims[0].lane.producer = PartitionId(8),
            "another producer",
        );
        check(
            |commit| {
                let messages = Arc::make_mut(&mut commit.chunks[0].messages);
                messages.indexes.push(9);
            },
            "do not agree",
        );
        check(
            |commit| commit.dropped_records[0] = EpochId(1_002),
            "the record of epoch e1002, which is not made yet",
        );
        check(
            |commit| commit.chunks[0].epoch = EpochId(1_002),
            "which is not made yet",
        );
    }

    fn full_time() -> EpochTime {
        EpochTime {
            run: 3,
            input_watermarks: vec![11, 12],
            output: LaneTime {
                watermark: 10,
                is_idle: true,
            },
            latest_watermark: 12,
            ages: StateAges {
                first_watermark: 2,
                states: vec![StateAge {
                    state: "seen".to_owned(),
                    since: 3,
                    expired_up_to: 4,
                }],
            },
            generator: GeneratorTime {
                greatest: 13,
                records: 14,
            },
            fired_up_to: Some(TimerPlace {
                trigger_time: 15,
                stream: "quiet".to_owned(),
                key: b"k".to_vec(),
            }),
            pending_timers: 16,
            step_count: 17,
            fired_count: 18,
            late_count: 19,
            future_count: 20,
        }
    }
}
