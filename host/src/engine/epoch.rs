//! An epoch: open while items are read and run, sealed into an
//! [`EpochCommit`], then committed or aborted by storage.
//!
//! **Invariant:** an epoch's content depends on the items read, never on how they were cut into
//! batches; indexes of its messages rise in the order in which the messages were made.

use std::sync::Arc;

use crate::engine::stream::{InputMessages, StreamMessages};
use crate::types::batch::{Batch, Timestamp};
use crate::types::column::Column;
use crate::types::dead_letter::{DeadLetter, DeadLetterId};
use crate::types::epoch::{
    Checksum, ChunkMessages, EpochCommit, EpochRecord, EpochTime, FrontierAdvance, LaneChunk,
    LaneTrim, SinkAppend, SinkProgress, SourceMark, StateChanges,
};
use crate::types::ids::{EpochId, Generation, LaneId, PartitionId, PublicId, SinkFileId};
use crate::types::pipeline::EpochLimits;
use crate::types::queue::QueueAppend;
use crate::types::timer::TimerChanges;
use crate::types::watermark::{LaneStep, LaneTime};

/// Which epoch of which job.
#[derive(Debug, Clone, Copy)]
pub struct EpochIdentity {
    /// The partition.
    pub partition: PartitionId,
    /// The generation of the partition's job.
    pub generation: Generation,
    /// The epoch.
    pub epoch: EpochId,
    /// Number of the deployment in force.
    pub deployment: u64,
    /// The greatest alignment timestamp that the partition has given before.
    pub alignment: Timestamp,
}

/// An epoch that still takes items.
#[derive(Debug)]
pub struct OpenEpoch {
    identity: EpochIdentity,
    limits: EpochLimits,
    /// Items of every kind: messages or records, due timers, watermark steps.
    items: usize,
    input_messages: u64,
    input_bytes: usize,
    output_bytes: usize,
    /// The next index of a message or watermark step.
    next_index: u32,
    output_steps: u32,
    /// The alignment timestamp given last.
    alignment: Timestamp,
    /// One for each lane of the job, in the order of the lanes' ids.
    chunks: Vec<(LaneId, ChunkMessages)>,
    batch_count: u64,
    fuel: u64,
    input: ColumnsHasher,
    /// Records that could not be decoded, apart from the others: a batch has both.
    undecodable: Option<ColumnsHasher>,
    states: ColumnsHasher,
}

/// What is said of a message beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageName {
    /// Its place in the epoch.
    pub index: u32,
    /// The hash of its key.
    pub key_hash: u64,
    /// Its alignment timestamp.
    pub alignment: Timestamp,
    /// What it is known by outside, where that is not its place.
    pub public_id: Option<PublicId>,
}

/// What a sealed epoch holds beside its messages.
#[derive(Debug, Default)]
pub struct SealedParts {
    /// The source's new position.
    pub source_position: Option<Vec<u8>>,
    /// What the source keeps beside it, names rising.
    pub source_marks: Vec<SourceMark>,
    /// New frontiers.
    pub frontiers: Vec<FrontierAdvance>,
    /// Changed states.
    pub states: Vec<StateChanges>,
    /// Timers set, cancelled and fired.
    pub timers: Vec<TimerChanges>,
    /// Where the partition stands in time.
    pub time: EpochTime,
    /// Chunks to remove.
    pub trims: Vec<LaneTrim>,
    /// Rows of file sinks.
    pub appends: Vec<(SinkFileId, Vec<u8>)>,
    /// Files that get no more rows.
    pub finished_files: Vec<SinkFileId>,
    /// Rows of queues.
    pub queue_appends: Vec<QueueAppend>,
    /// How far sinks are, names rising.
    pub sink_progress: Vec<SinkProgress>,
    /// Items that are moved past and kept.
    pub dead_letters: Vec<DeadLetter>,
    /// Dead letters that go, rising.
    pub removed_letters: Vec<DeadLetterId>,
}

impl OpenEpoch {
    /// Opens an epoch of a job that writes these lanes, in the order of their ids.
    pub fn new(
        identity: EpochIdentity,
        limits: EpochLimits,
        lanes: impl IntoIterator<Item = LaneId>,
    ) -> OpenEpoch {
        OpenEpoch {
            identity,
            limits,
            items: 0,
            input_messages: 0,
            input_bytes: 0,
            output_bytes: 0,
            next_index: 0,
            output_steps: 0,
            alignment: identity.alignment,
            chunks: (lanes.into_iter())
                .map(|lane| (lane, ChunkMessages::default()))
                .collect(),
            batch_count: 0,
            fuel: 0,
            input: ColumnsHasher::default(),
            undecodable: None,
            states: ColumnsHasher::default(),
        }
    }

    /// Which epoch this is.
    pub fn id(&self) -> EpochId {
        self.identity.epoch
    }

    /// How many items it has taken: messages or records, due timers, watermark steps.
    pub fn items(&self) -> usize {
        self.items
    }

    /// Whether there is anything to commit: an item, or something to tell readers.
    pub fn has_content(&self) -> bool {
        self.items > 0 || self.output_steps > 0
    }

    /// How many messages or records it has taken.
    pub fn input_messages(&self) -> u64 {
        self.input_messages
    }

    /// How many more items and bytes the next batch may have; `None` when the epoch is full.
    pub fn room(&self) -> Option<BatchRoom> {
        let rows = (self.limits.max_rows_per_epoch).saturating_sub(self.items);
        let taken = self.input_bytes.max(self.output_bytes);
        let bytes = (self.limits.max_bytes_per_epoch).saturating_sub(taken);
        (rows > 0 && bytes > 0).then(|| BatchRoom {
            rows: rows.min(self.limits.max_rows_per_batch),
            bytes: bytes.min(self.limits.max_bytes_per_batch),
        })
    }

    /// Counts a batch of input in.
    pub fn add_input(&mut self, messages: &InputMessages) {
        self.items += messages.len();
        self.input_messages += messages.len() as u64;
        self.input_bytes += messages.payloads.bytes.len() + messages.keys.bytes.len();
        self.input.add_input(messages);
    }

    /// Counts a record in that the source could not decode, which comes behind `number` records of the epoch, with what
    /// is kept of its bytes and how many it has.
    pub fn add_undecodable(&mut self, number: u64, bytes: &[u8], size_bytes: u64) {
        self.items += 1;
        self.input_messages += 1;
        self.input_bytes += bytes.len();
        let undecodable = self.undecodable.get_or_insert_default();
        undecodable.add_numbers([number, size_bytes]);
        undecodable.add_value(bytes);
    }

    /// Counts a watermark step of the input in.
    pub fn add_step(&mut self, watermarks: &[Timestamp]) {
        self.items += 1;
        self.input.add_mark(STEP_MARK, watermarks.iter().copied());
    }

    /// Counts due timers in.
    pub fn add_timers(&mut self, timers: &Batch) {
        let columns = &timers.timers;
        self.items += columns.streams.len();
        self.input_bytes += timers.keys.bytes.len();
        self.input
            .add_mark(TIMERS_MARK, columns.trigger_times.iter().copied());
        self.input.add_column(&timers.keys);
    }

    /// Puts a watermark step into every lane, behind what they have got so far.
    pub fn send_step(&mut self, time: LaneTime) {
        let index = self.next_index();
        self.output_steps += 1;
        for (_, chunk) in &mut self.chunks {
            chunk.steps.push(LaneStep { index, time });
        }
    }

    /// Counts in what the epoch read of its states: of each key, when it is first read, the key,
    /// then its value in each state.
    pub fn add_state_read(&mut self, key_or_value: &[u8]) {
        self.states.add_value(key_or_value);
    }

    /// Counts bytes in that the epoch hands on by other ways than lanes: rows of sinks, states.
    pub fn add_output_bytes(&mut self, size_bytes: usize) {
        self.output_bytes += size_bytes;
    }

    /// Counts a guest call in.
    pub fn add_call(&mut self, fuel: u64) {
        self.batch_count += 1;
        self.fuel += fuel;
    }

    /// The index of the next message or watermark step of the epoch.
    ///
    /// # Panics
    ///
    /// When the epoch has more than 2^32 of them; limits on epochs and outputs are far below.
    pub fn next_index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index = index
            .checked_add(1)
            .expect("outputs per epoch are bounded far below 2^32");
        index
    }

    /// The alignment timestamp of a message that was written or created at `time`: never less than
    /// one that the partition gave before (row R2), so that a lane is in the order of R1 although a
    /// clock was set back or an older file follows a newer one.
    pub fn align(&mut self, time: Timestamp) -> Timestamp {
        self.alignment = self.alignment.max(time);
        self.alignment
    }

    /// Puts message `at` of a stream into a lane, given by its place among the job's lanes.
    pub fn send(&mut self, lane: usize, name: MessageName, messages: &StreamMessages, at: usize) {
        let MessageName {
            index,
            key_hash,
            alignment,
            public_id,
        } = name;
        self.output_bytes += messages.size_bytes(at);
        let (_, chunk) = &mut self.chunks[lane];
        chunk.indexes.push(index);
        chunk.key_hashes.push(key_hash);
        chunk.keys.push(messages.keys.get(at));
        chunk.event_times.push(messages.event_times[at]);
        chunk.alignments.push(alignment);
        chunk.payloads.push(messages.payloads.get(at));
        chunk.public_ids.extend(public_id);
    }

    /// Seals the epoch: from here on only storage changes its fate.
    pub fn seal(mut self, parts: SealedParts) -> EpochCommit {
        self.chunks.retain(|(_, messages)| !messages.is_empty());
        if let Some(undecodable) = self.undecodable.take() {
            self.input.add_mark(UNDECODABLE_MARK, []);
            self.input.add_value(&undecodable.finish().0);
        }
        let output_checksum = output_checksum(&self.chunks, &parts);
        EpochCommit {
            partition: self.identity.partition,
            generation: self.identity.generation,
            epoch: self.identity.epoch,
            source_position: parts.source_position,
            source_marks: parts.source_marks,
            frontiers: parts.frontiers,
            dropped_frontiers: Vec::new(),
            dropped_records: Vec::new(),
            states: parts.states,
            timers: parts.timers,
            chunks: self
                .chunks
                .into_iter()
                .map(|(lane, messages)| LaneChunk {
                    lane,
                    epoch: self.identity.epoch,
                    messages: Arc::new(messages),
                })
                .collect(),
            trims: parts.trims,
            appends: parts
                .appends
                .into_iter()
                .map(|(file, bytes)| SinkAppend { file, bytes })
                .collect(),
            finished_files: parts.finished_files,
            queue_appends: parts.queue_appends,
            sink_progress: parts.sink_progress,
            dead_letters: parts.dead_letters,
            removed_letters: parts.removed_letters,
            record: EpochRecord {
                deployment: self.identity.deployment,
                input_count: self.input_messages,
                output_count: u64::from(self.next_index - self.output_steps),
                batch_count: self.batch_count,
                fuel: self.fuel,
                alignment: self.alignment,
                time: parts.time,
                input_checksum: self.input.finish(),
                state_checksum: self.states.finish(),
                output_checksum,
            },
        }
    }
}

/// How much the next batch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRoom {
    /// Items.
    pub rows: usize,
    /// Bytes of keys and payloads.
    pub bytes: usize,
}

impl BatchRoom {
    /// The same room for no more than this many items.
    pub fn at_most_rows(self, rows: usize) -> BatchRoom {
        BatchRoom {
            rows: self.rows.min(rows),
            ..self
        }
    }
}

/// The checksum of all that an epoch hands on: whole chunks, then whole file appends, then rows of queues.
fn output_checksum(chunks: &[(LaneId, ChunkMessages)], parts: &SealedParts) -> Checksum {
    let mut hasher = ColumnsHasher::default();
    for (lane, messages) in chunks {
        hasher.add_numbers([lane.stream.0, lane.reader.0]);
        hasher.add_column(&messages.keys);
        hasher.add_numbers(messages.event_times.iter().copied());
        hasher.add_column(&messages.payloads);
        for step in &messages.steps {
            let place = messages.indexes.partition_point(|at| *at < step.index);
            let LaneTime { watermark, is_idle } = step.time;
            hasher.add_numbers([place as u64, watermark, u64::from(is_idle)]);
        }
    }
    for (file, bytes) in &parts.appends {
        hasher.add_numbers([file.0]);
        hasher.add_value(bytes);
    }
    for QueueAppend { queue, rows } in &parts.queue_appends {
        hasher.add_numbers([queue.0]);
        hasher.add_column(&rows.keys);
        hasher.add_numbers(rows.event_times.iter().copied());
        hasher.add_column(&rows.payloads);
    }
    hasher.finish()
}

/// How much is collected before it is hashed: enough for all lanes of the hash function.
const HASHED_BYTES_MIN: usize = 16 << 10;

/// Stands before the watermarks of a step in the checksum of an epoch's input.
const STEP_MARK: u64 = u64::from_le_bytes(*b"the step");
/// Stands before due timers there.
const TIMERS_MARK: u64 = u64::from_le_bytes(*b"a timer.");

/// Stands before the checksum of records that could not be decoded there.
const UNDECODABLE_MARK: u64 = u64::from_le_bytes(*b"passed->");

/// A hash of bytes that come in small pieces.
#[derive(Debug, Default)]
struct PiecesHasher {
    hasher: blake3::Hasher,
    pending: Vec<u8>,
}

impl PiecesHasher {
    fn update(&mut self, bytes: &[u8]) {
        if self.pending.len() + bytes.len() < HASHED_BYTES_MIN {
            self.pending.extend_from_slice(bytes);
            return;
        }
        self.hasher.update(&self.pending);
        self.hasher.update(bytes);
        self.pending.clear();
    }

    fn finalize(mut self) -> blake3::Hash {
        self.hasher.update(&self.pending);
        self.hasher.finalize()
    }
}

/// A checksum over values: their bytes go into one hash; their lengths and other numbers into a
/// second one, so that large blocks are hashed at once and boundaries still count.
#[derive(Debug, Default)]
struct ColumnsHasher {
    bytes: PiecesHasher,
    numbers: PiecesHasher,
    keys: PiecesHasher,
    scratch: Vec<u8>,
}

impl ColumnsHasher {
    /// Message by message, so that the result does not depend on where a batch ended.
    fn add_input(&mut self, messages: &InputMessages) {
        self.keys.update(&messages.keys.bytes);
        self.bytes.update(&messages.payloads.bytes);
        let (mut key_start, mut payload_start) = (0, 0);
        self.scratch.clear();
        for index in 0..messages.len() {
            let (key_end, payload_end) = (messages.keys.ends[index], messages.payloads.ends[index]);
            self.scratch
                .extend_from_slice(&messages.streams[index].to_le_bytes());
            self.scratch
                .extend_from_slice(&(key_end - key_start).to_le_bytes());
            self.scratch
                .extend_from_slice(&messages.event_times[index].to_le_bytes());
            self.scratch
                .extend_from_slice(&(payload_end - payload_start).to_le_bytes());
            (key_start, payload_start) = (key_end, payload_end);
        }
        self.numbers.update(&self.scratch);
    }

    /// Adds something that is no message, told from one by its mark.
    fn add_mark(&mut self, mark: u64, numbers: impl IntoIterator<Item = u64>) {
        self.add_numbers(std::iter::once(mark).chain(numbers));
    }

    fn add_value(&mut self, value: &[u8]) {
        self.bytes.update(value);
        self.numbers.update(&(value.len() as u64).to_le_bytes());
    }

    fn add_column(&mut self, column: &Column) {
        self.bytes.update(&column.bytes);
        self.add_numbers(column.ends.iter().map(|end| u64::from(*end)));
    }

    fn add_numbers(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.scratch.clear();
        for number in numbers {
            self.scratch.extend_from_slice(&number.to_le_bytes());
        }
        self.numbers.update(&self.scratch);
    }

    fn finish(self) -> Checksum {
        let mut whole = blake3::Hasher::new();
        for part in [self.bytes, self.numbers, self.keys] {
            whole.update(part.finalize().as_bytes());
        }
        Checksum::finish(&whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::StreamId;

    fn open(limits: EpochLimits) -> OpenEpoch {
        let identity = EpochIdentity {
            partition: PartitionId(1),
            generation: Generation(1),
            epoch: EpochId(7),
            deployment: 1,
            alignment: 100,
        };
        let lanes = [2, 3].map(|reader| LaneId {
            producer: PartitionId(1),
            stream: StreamId(1),
            reader: PartitionId(reader),
        });
        OpenEpoch::new(identity, limits, lanes)
    }

    fn read(epoch: &mut OpenEpoch, payloads: &[&str]) {
        let mut messages = InputMessages::default();
        for payload in payloads {
            messages.push(0, b"", 0, payload.as_bytes());
        }
        epoch.add_input(&messages);
    }

    #[test]
    fn a_full_epoch_has_no_room() {
        let mut epoch = open(EpochLimits {
            max_rows_per_batch: 2,
            max_rows_per_epoch: 3,
            ..EpochLimits::default()
        });
        assert_eq!(epoch.room().map(|room| room.rows), Some(2));
        read(&mut epoch, &["a", "b"]);
        assert_eq!(epoch.room().map(|room| room.rows), Some(1));
        read(&mut epoch, &["c"]);
        assert_eq!(epoch.room(), None);
    }

    #[test]
    fn an_epoch_that_hands_on_much_is_full_though_it_read_little() {
        let mut epoch = open(EpochLimits {
            max_bytes_per_epoch: 100,
            ..EpochLimits::default()
        });
        read(&mut epoch, &["a"]);
        epoch.add_output_bytes(40);
        assert_eq!(epoch.room().map(|room| room.bytes), Some(60));
        epoch.add_output_bytes(60);
        assert_eq!(epoch.room(), None);
    }

    #[test]
    fn messages_of_a_lane_keep_their_order_and_indexes() {
        let mut epoch = open(EpochLimits::default());
        let mut messages = StreamMessages::default();
        messages.push(0, b"k", 5, b"one");
        messages.push(1, b"k", 6, b"two");
        for at in 0..2 {
            let name = MessageName {
                index: epoch.next_index(),
                key_hash: 0,
                alignment: epoch.align([200, 150][at]),
                public_id: None,
            };
            epoch.send(1, name, &messages, at);
        }
        let commit = epoch.seal(SealedParts::default());
        assert_eq!(
            commit.chunks.len(),
            1,
            "a lane without messages has no chunk"
        );
        assert_eq!(commit.chunks[0].lane.reader, PartitionId(3));
        assert_eq!(commit.chunks[0].messages.indexes, [0, 1]);
        assert_eq!(commit.chunks[0].messages.payloads.get(1), b"two");
        assert_eq!(commit.record.output_count, 2);
        assert_eq!(commit.chunks[0].messages.alignments.values, [200]);
        assert_eq!(commit.record.alignment, 200);
    }

    #[test]
    fn the_input_checksum_knows_records_and_not_batches() {
        let checksum = |batches: &[&[&str]]| {
            let mut epoch = open(EpochLimits::default());
            for batch in batches {
                read(&mut epoch, batch);
            }
            epoch.seal(SealedParts::default()).record.input_checksum
        };
        assert_eq!(checksum(&[&["ab", "c"]]), checksum(&[&["ab"], &["c"]]));
        assert_ne!(checksum(&[&["ab", "c"]]), checksum(&[&["a", "bc"]]));
    }

    #[test]
    fn what_could_not_be_decoded_counts_by_its_place_among_the_records() {
        // Words that begin with "!" can't be decoded; they come before the messages of their batch.
        let sealed = |batches: &[&[&str]]| {
            let mut epoch = open(EpochLimits::default());
            for batch in batches {
                let taken = epoch.input_messages();
                for (place, word) in (0..).zip(*batch) {
                    if word.starts_with('!') {
                        epoch.add_undecodable(taken + place, word.as_bytes(), word.len() as u64);
                    }
                }
                let good: Vec<&str> = (batch.iter().copied())
                    .filter(|word| !word.starts_with('!'))
                    .collect();
                read(&mut epoch, &good);
            }
            assert!(epoch.has_content());
            epoch.seal(SealedParts::default()).record
        };
        let whole = sealed(&[&["a", "!x", "b", "!y"]]);
        assert_eq!(whole.input_count, 4);
        assert_eq!(whole, sealed(&[&["a"], &["!x", "b", "!y"]]));
        assert_eq!(whole, sealed(&[&["a", "!x"], &["b"], &["!y"]]));
        for other in [
            sealed(&[&["!x", "a", "b", "!y"]]),
            sealed(&[&["a", "!x", "b", "!z"]]),
            sealed(&[&["a", "b"]]),
        ] {
            assert_ne!(whole.input_checksum, other.input_checksum);
        }
        assert_eq!(sealed(&[&["!x"]]).input_count, 1);
    }
}
