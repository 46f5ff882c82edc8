//! The bytes of a staged epoch: its *entry*. Encoded where the epoch is submitted, sealed by the
//! committer with what it assigns, proven by checksum when it is read back.
//!
//! **Invariant:** the entry's checksum covers its head, its head holds the checksum of its body and
//! of its predecessor: from a partition's head the whole chain can be proven.

use std::sync::Arc;

use crate::storage::codec::{
    FORMAT_VERSION, Fields, Finding, len_u32, put_bytes, put_chunk, put_column, put_head, put_lane,
    put_lane_time, put_optional, put_record, put_u32, put_u64, put_u64s,
};
use crate::storage::letter_codec::{decode_letter_bytes, encode_letter, letter_size_bound};
use crate::storage::queue_codec::put_queue_rows;
use crate::storage::timer_codec::{put_timers, timers_size_bound};
use crate::types::column::Column;
use crate::types::dead_letter::DeadLetterId;
use crate::types::epoch::{
    Checksum, EpochCommit, FrontierAdvance, Head, LaneChunk, LaneTrim, SinkAppend, SinkProgress,
    SourceMark, StateChanges,
};
use crate::types::ids::{EpochId, Generation, PartitionId, SinkFileId};
use crate::types::queue::{QueueAppend, QueuePlace, QueueSpan};

/// A staged epoch on its way to the store: the body is encoded by whoever submits it, the head of
/// the entry (predecessor, places in sink files and queues) is filled in by the committer, as often as needed.
#[derive(Debug, Clone)]
pub struct EntryDraft {
    bytes: Vec<u8>,
    file_count: usize,
    queue_count: usize,
}

/// Where an epoch's appends begin, in their order: what the committer assigns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendPlaces {
    /// Offsets in sink files.
    pub files: Vec<u64>,
    /// Places in partitions of queues.
    pub queues: Vec<QueuePlace>,
}

impl AppendPlaces {
    /// Whether there is no append.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.queues.is_empty()
    }
}

/// Where the parts of an entry's head lie: version, predecessor, the body's checksum, how many appends to
/// files and to queues, the offset of each in its file, the span of each in its queue's partition.
const PREDECESSOR_AT: usize = 1;
const BODY_CHECKSUM_AT: usize = PREDECESSOR_AT + 32;
const COUNTS_AT: usize = BODY_CHECKSUM_AT + 16;
const PLACES_AT: usize = COUNTS_AT + 8;
const OFFSET_BYTES: usize = 8;
/// Partition, count, bytes; then the place: offset, bytes before.
const SPAN_BYTES: usize = 40;
const PLACE_IN_SPAN_AT: usize = 24;

impl EntryDraft {
    /// Encodes an epoch that [`check_storable`](crate::storage::codec::check_storable) let through.
    pub fn new(commit: &EpochCommit) -> EntryDraft {
        let (file_count, queue_count) = (commit.appends.len(), commit.queue_appends.len());
        let mut bytes = Vec::with_capacity(entry_size_bound(commit));
        bytes.push(FORMAT_VERSION);
        bytes.resize(COUNTS_AT, 0);
        put_u32(&mut bytes, len_u32(file_count));
        put_u32(&mut bytes, len_u32(queue_count));
        bytes.resize(PLACES_AT + OFFSET_BYTES * file_count, 0);
        for append in &commit.queue_appends {
            put_span(&mut bytes, &append.span(QueuePlace::default()));
        }
        let body_at = bytes.len();
        put_body(&mut bytes, commit);
        let checksum = Checksum::of(&bytes[body_at..]);
        bytes[BODY_CHECKSUM_AT..COUNTS_AT].copy_from_slice(&checksum.0);
        EntryDraft {
            bytes,
            file_count,
            queue_count,
        }
    }

    /// Fills in what the committer assigns and returns the entry's checksum.
    ///
    /// # Panics
    ///
    /// When there are not as many places as the epoch has appends.
    pub fn seal(&mut self, predecessor: &Head, places: &AppendPlaces) -> Checksum {
        assert_eq!(
            (places.files.len(), places.queues.len()),
            (self.file_count, self.queue_count),
            "one place for each append"
        );
        let mut head = Vec::with_capacity(32);
        put_head(&mut head, predecessor);
        self.bytes[PREDECESSOR_AT..BODY_CHECKSUM_AT].copy_from_slice(&head);
        let mut at = PLACES_AT;
        for offset in &places.files {
            self.bytes[at..at + OFFSET_BYTES].copy_from_slice(&offset.to_le_bytes());
            at += OFFSET_BYTES;
        }
        for place in &places.queues {
            let numbers = [place.offset, place.bytes_before].map(u64::to_le_bytes);
            self.bytes[at + PLACE_IN_SPAN_AT..at + SPAN_BYTES]
                .copy_from_slice(numbers.as_flattened());
            at += SPAN_BYTES;
        }
        // The head holds the body's checksum, so this binds the whole entry.
        Checksum::of(&self.bytes[..at])
    }

    /// The entry's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The head of a staged epoch, proven by itself: what stands in it holds even where the body is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryHead {
    /// The head that the epoch follows.
    pub predecessor: Head,
    /// Where each append begins in its file.
    pub files: Vec<u64>,
    /// What each append to a queue is, and where it lies.
    pub queues: Vec<QueueSpan>,
    body_checksum: Checksum,
}

impl EntryHead {
    /// Decodes the head of an entry and proves that it is the one whose checksum is `expected`.
    ///
    /// # Errors
    ///
    /// What was found instead.
    pub fn decode(bytes: &[u8], expected: Checksum) -> Result<EntryHead, Finding> {
        EntryHead::decode_front(bytes, expected).map(|(head, _)| head)
    }

    /// The head, and the body behind it.
    fn decode_front(bytes: &[u8], expected: Checksum) -> Result<(EntryHead, &[u8]), Finding> {
        let fields = Fields::open(bytes);
        let mut fields = fields.map_err(|finding| format!("its entry can't be read: {finding}"))?;
        let predecessor = fields.head()?;
        let body_checksum = fields.checksum()?;
        let file_count = fields.count(OFFSET_BYTES)?;
        let queue_count = fields.count(SPAN_BYTES)?;
        let files = fields.u64s(file_count)?;
        let queues = (0..queue_count)
            .map(|_| fields.span())
            .collect::<Result<_, _>>()?;
        let body = fields.rest();
        if Checksum::of(&bytes[..bytes.len() - body.len()]) != expected {
            return Err(WRONG_CHECKSUM.to_owned());
        }
        let head = EntryHead {
            predecessor,
            files,
            queues,
            body_checksum,
        };
        Ok((head, body))
    }
}

const WRONG_CHECKSUM: &str = "the entry's checksum does not match";

/// A staged epoch as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What binds it to the epoch before, and where its appends lie.
    pub head: EntryHead,
    /// The epoch.
    pub commit: EpochCommit,
}

impl Entry {
    /// Decodes an entry and proves that it is the one whose checksum is `expected`.
    ///
    /// # Errors
    ///
    /// What was found instead.
    pub fn decode(bytes: &[u8], expected: Checksum) -> Result<Entry, Finding> {
        let (head, body) = EntryHead::decode_front(bytes, expected)?;
        if Checksum::of(body) != head.body_checksum {
            return Err(WRONG_CHECKSUM.to_owned());
        }
        let mut fields = Fields::behind_version(body);
        let commit = fields.body()?;
        fields.end()?;
        let spans = (commit.queue_appends.iter().zip(&head.queues))
            .all(|(append, span)| append.span(span.place) == *span);
        let are_as_many = commit.appends.len() == head.files.len()
            && commit.queue_appends.len() == head.queues.len();
        if !are_as_many || !spans {
            return Err("the entry does not have one place for each append".to_owned());
        }
        Ok(Entry { head, commit })
    }
}

fn put_span(buffer: &mut Vec<u8>, span: &QueueSpan) {
    put_u64(buffer, span.queue.0);
    put_u64(buffer, span.count);
    put_u64(buffer, span.size_bytes);
    put_u64(buffer, span.place.offset);
    put_u64(buffer, span.place.bytes_before);
}

/// At least the size of the epoch's entry, and not much more.
pub(super) fn entry_size_bound(commit: &EpochCommit) -> usize {
    let states: usize = (commit.states.iter())
        .map(|changes| {
            let columns = [&changes.keys, &changes.values].map(Column::size_bytes);
            20 + changes.state.len() + columns[0] + columns[1] + 8 * changes.touched.len()
        })
        .sum();
    let chunks: usize = (commit.chunks.iter())
        .map(|chunk| 72 + chunk.messages.size_bytes())
        .sum();
    let appends: usize = (commit.appends.iter())
        .map(|append| 24 + append.bytes.len())
        .sum();
    let queue_appends: usize = (commit.queue_appends.iter())
        .map(|append| 80 + 16 * append.rows.len() + append.rows.size_bytes())
        .sum();
    let marks = commit.source_marks.iter();
    let marks = marks.map(|mark| (mark.name.len(), &mark.value));
    let progress = commit.sink_progress.iter();
    let named: usize = (progress.map(|of| (of.sink.len(), &of.value)).chain(marks))
        .map(|(name, value)| 8 + name + value.as_ref().map_or(0, Vec::len))
        .sum();
    let letters: usize = (commit.dead_letters.iter())
        .map(|letter| 4 + letter_size_bound(letter))
        .sum();
    let position = commit.source_position.as_ref().map_or(0, Vec::len);
    let time = &commit.record.time;
    let fired = time.fired_up_to.as_ref();
    let ages: usize = (time.ages.states.iter())
        .map(|age| 20 + age.state.len())
        .sum();
    let time = ages
        + 8 * time.input_watermarks.len()
        + fired.map_or(0, |place| 16 + place.stream.len() + place.key.len());
    512 + position
        + time
        + states
        + timers_size_bound(&commit.timers)
        + chunks
        + appends
        + queue_appends
        + named
        + letters
        + 12 * commit.removed_letters.len()
        + 8 * commit.finished_files.len()
        + 64 * commit.frontiers.len()
        + 24 * commit.dropped_frontiers.len()
        + 8 * commit.dropped_records.len()
        + 40 * commit.trims.len()
}

fn put_body(buffer: &mut Vec<u8>, commit: &EpochCommit) {
    put_u64(buffer, commit.partition.0);
    put_u64(buffer, commit.generation.0);
    put_u64(buffer, commit.epoch.0);
    put_optional(buffer, commit.source_position.as_deref());
    put_u32(buffer, len_u32(commit.source_marks.len()));
    for mark in &commit.source_marks {
        put_bytes(buffer, mark.name.as_bytes());
        put_optional(buffer, mark.value.as_deref());
    }
    put_u32(buffer, len_u32(commit.frontiers.len()));
    for advance in &commit.frontiers {
        put_lane(buffer, advance.lane);
        put_u64(buffer, advance.epoch.0);
        put_u32(buffer, advance.index);
        put_u64(buffer, advance.run);
        put_lane_time(buffer, advance.time);
    }
    put_u32(buffer, len_u32(commit.dropped_frontiers.len()));
    for lane in &commit.dropped_frontiers {
        put_lane(buffer, *lane);
    }
    put_u32(buffer, len_u32(commit.dropped_records.len()));
    for epoch in &commit.dropped_records {
        put_u64(buffer, epoch.0);
    }
    put_u32(buffer, len_u32(commit.states.len()));
    for changes in &commit.states {
        put_bytes(buffer, changes.state.as_bytes());
        put_u32(buffer, len_u32(changes.keys.len()));
        put_column(buffer, &changes.keys);
        put_column(buffer, &changes.values);
        put_u32(buffer, len_u32(changes.touched.len()));
        put_u64s(buffer, &changes.touched);
    }
    put_timers(buffer, &commit.timers);
    put_u32(buffer, len_u32(commit.chunks.len()));
    for chunk in &commit.chunks {
        put_lane(buffer, chunk.lane);
        put_u64(buffer, chunk.epoch.0);
        put_chunk(buffer, &chunk.messages);
    }
    put_u32(buffer, len_u32(commit.trims.len()));
    for trim in &commit.trims {
        put_lane(buffer, trim.lane);
        put_u64(buffer, trim.epoch.0);
    }
    put_u32(buffer, len_u32(commit.appends.len()));
    for append in &commit.appends {
        put_u64(buffer, append.file.0);
        put_bytes(buffer, &append.bytes);
    }
    put_u32(buffer, len_u32(commit.finished_files.len()));
    for file in &commit.finished_files {
        put_u64(buffer, file.0);
    }
    put_u32(buffer, len_u32(commit.queue_appends.len()));
    for append in &commit.queue_appends {
        put_u64(buffer, append.queue.0);
        put_queue_rows(buffer, &append.rows);
    }
    put_u32(buffer, len_u32(commit.sink_progress.len()));
    for progress in &commit.sink_progress {
        put_bytes(buffer, progress.sink.as_bytes());
        put_optional(buffer, progress.value.as_deref());
    }
    put_u32(buffer, len_u32(commit.dead_letters.len()));
    for letter in &commit.dead_letters {
        put_bytes(buffer, &encode_letter(letter));
    }
    put_u32(buffer, len_u32(commit.removed_letters.len()));
    for id in &commit.removed_letters {
        put_u64(buffer, id.epoch.0);
        put_u32(buffer, id.index);
    }
    put_record(buffer, &commit.record);
}

impl Fields<'_> {
    fn span(&mut self) -> Result<QueueSpan, Finding> {
        Ok(QueueSpan {
            queue: PartitionId(self.u64()?),
            count: self.u64()?,
            size_bytes: self.u64()?,
            place: QueuePlace {
                offset: self.u64()?,
                bytes_before: self.u64()?,
            },
        })
    }

    fn state_changes(&mut self) -> Result<StateChanges, Finding> {
        let state = self.text()?;
        let count = self.u32()? as usize;
        let (keys, values) = (self.column(count)?, self.column(count)?);
        let touched = self.count(8)?;
        Ok(StateChanges {
            state,
            keys,
            values,
            touched: self.u64s(touched)?,
        })
    }

    /// The body of an entry.
    pub(super) fn body(&mut self) -> Result<EpochCommit, Finding> {
        let partition = PartitionId(self.u64()?);
        Ok(EpochCommit {
            partition,
            generation: Generation(self.u64()?),
            epoch: EpochId(self.u64()?),
            source_position: self.optional()?,
            source_marks: self.many(8, |fields| {
                Ok(SourceMark {
                    name: fields.text()?,
                    value: fields.optional()?,
                })
            })?,
            frontiers: self.many(53, |fields| {
                Ok(FrontierAdvance {
                    lane: fields.lane()?,
                    epoch: EpochId(fields.u64()?),
                    index: fields.u32()?,
                    run: fields.u64()?,
                    time: fields.lane_time()?,
                })
            })?,
            dropped_frontiers: self.many(24, Fields::lane)?,
            dropped_records: self.many(8, |fields| Ok(EpochId(fields.u64()?)))?,
            states: self.many(20, Fields::state_changes)?,
            timers: self.timers()?,
            chunks: self.many(48, |fields| {
                Ok(LaneChunk {
                    lane: fields.lane()?,
                    epoch: EpochId(fields.u64()?),
                    messages: Arc::new(fields.chunk()?),
                })
            })?,
            trims: self.many(32, |fields| {
                Ok(LaneTrim {
                    lane: fields.lane()?,
                    epoch: EpochId(fields.u64()?),
                })
            })?,
            appends: self.many(12, |fields| {
                Ok(SinkAppend {
                    file: SinkFileId(fields.u64()?),
                    bytes: fields.bytes()?.to_vec(),
                })
            })?,
            finished_files: self.many(8, |fields| Ok(SinkFileId(fields.u64()?)))?,
            queue_appends: self.many(20, |fields| {
                Ok(QueueAppend {
                    queue: PartitionId(fields.u64()?),
                    rows: Arc::new(fields.queue_rows()?),
                })
            })?,
            sink_progress: self.many(8, |fields| {
                Ok(SinkProgress {
                    sink: fields.text()?,
                    value: fields.optional()?,
                })
            })?,
            dead_letters: self.many(4, |fields| decode_letter_bytes(fields.bytes()?))?,
            removed_letters: self.many(12, |fields| {
                Ok(DeadLetterId {
                    partition,
                    epoch: EpochId(fields.u64()?),
                    index: fields.u32()?,
                })
            })?,
            record: self.record()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::codec::tests::{full_commit, predecessor};

    fn places(file: u64, offset: u64, bytes_before: u64) -> AppendPlaces {
        AppendPlaces {
            files: vec![file],
            queues: vec![QueuePlace {
                offset,
                bytes_before,
            }],
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_was_sealed() {
        let commit = full_commit();
        let mut draft = EntryDraft::new(&commit);
        let capacity = draft.bytes.capacity();
        assert!(draft.bytes.len() <= capacity && capacity == entry_size_bound(&commit));
        draft.seal(&Head::default(), &places(0, 0, 0));
        let checksum = draft.seal(&predecessor(), &places(77, 4, 99));
        let entry = Entry::decode(draft.bytes(), checksum).unwrap();
        assert_eq!(entry.head.predecessor, predecessor());
        assert_eq!(entry.head.files, [77]);
        let place = QueuePlace {
            offset: 4,
            bytes_before: 99,
        };
        assert_eq!(entry.head.queues, [commit.queue_appends[0].span(place)]);
        assert_eq!(entry.commit, commit);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_an_entry_is_noticed() {
        let mut draft = EntryDraft::new(&full_commit());
        let checksum = draft.seal(&predecessor(), &places(77, 4, 99));
        let bytes = draft.bytes();
        for index in 0..bytes.len() {
            let mut broken = bytes.to_vec();
            broken[index] ^= 0x10;
            assert!(Entry::decode(&broken, checksum).is_err(), "byte {index}");
            // A damaged body leaves the head that tells where it had its place.
            let is_in_head = index < PLACES_AT + OFFSET_BYTES + SPAN_BYTES;
            let head = EntryHead::decode(&broken, checksum);
            assert_eq!(head.is_err(), is_in_head, "byte {index}");
            assert!(
                Entry::decode(&bytes[..index], checksum).is_err(),
                "cut at {index}"
            );
        }
    }
}
