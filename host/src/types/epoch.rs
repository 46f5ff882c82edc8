//! What one epoch commits: inputs read, state, outputs, all or none.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::batch::Timestamp;
use crate::types::column::Column;
use crate::types::dead_letter::{DeadLetter, DeadLetterId};
use crate::types::ids::{EpochId, Generation, LaneId, PartitionId, PublicId, SinkFileId};
use crate::types::lease::Lease;
use crate::types::queue::QueueAppend;
use crate::types::timer::{TimerChanges, TimerPlace};
use crate::types::timestamp_runs::TimestampRuns;
use crate::types::watermark::{LaneStep, LaneTime};

/// The first 16 bytes of the BLAKE3 hash of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checksum(pub [u8; 16]);

impl Checksum {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum::finish(blake3::Hasher::new().update(bytes))
    }

    /// The checksum of all that `hasher` was fed.
    pub fn finish(hasher: &blake3::Hasher) -> Checksum {
        let mut checksum = [0; 16];
        checksum.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Checksum(checksum)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Where a partition stands: its last decided epoch. The default is the head of a partition that
/// has committed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The generation of the job that committed it.
    pub generation: Generation,
    /// The epoch.
    pub epoch: EpochId,
    /// Checksum of the epoch's entry, which binds the chain of entries together.
    pub checksum: Checksum,
}

impl Default for Head {
    fn default() -> Head {
        Head {
            generation: Generation(0),
            epoch: EpochId::NONE,
            checksum: Checksum::default(),
        }
    }
}

/// Everything that one epoch of one partition changes. Storage writes it whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochCommit {
    /// The partition whose job made the epoch.
    pub partition: PartitionId,
    /// Which of the partition's jobs.
    pub generation: Generation,
    /// The epoch: one more than the partition's head.
    pub epoch: EpochId,
    /// The new position in the partition's source, as the source encodes it.
    pub source_position: Option<Vec<u8>>,
    /// What the source keeps beside its position, names rising.
    pub source_marks: Vec<SourceMark>,
    /// How far the job has read in each lane that it moved on in.
    pub frontiers: Vec<FrontierAdvance>,
    /// Lanes that the partition never reads again: their frontiers go.
    pub dropped_frontiers: Vec<LaneId>,
    /// Epochs of the partition whose records go before their time, its own among them perhaps: what the
    /// last epoch of a partition does that is about to be forgotten.
    pub dropped_records: Vec<EpochId>,
    /// New state values: one item for each state that has any, names rising.
    pub states: Vec<StateChanges>,
    /// Timers set, cancelled and fired: one item for each timer stream that has any, names rising.
    pub timers: Vec<TimerChanges>,
    /// Messages for other partitions, one chunk for each lane that got any.
    pub chunks: Vec<LaneChunk>,
    /// Chunks of the partition's own lanes that every reader has passed.
    pub trims: Vec<LaneTrim>,
    /// Rows of synchronous file sinks.
    pub appends: Vec<SinkAppend>,
    /// Files that get no more rows behind those of this epoch.
    pub finished_files: Vec<SinkFileId>,
    /// Rows of queues, at most one item for each partition of a queue.
    pub queue_appends: Vec<QueueAppend>,
    /// How far sinks are that have to know it, names rising.
    pub sink_progress: Vec<SinkProgress>,
    /// Items that the epoch moves past and that are kept.
    pub dead_letters: Vec<DeadLetter>,
    /// Dead letters of the partition that go, rising: what they hold was processed in this epoch, or is not wanted.
    pub removed_letters: Vec<DeadLetterId>,
    /// What the epoch was, for those who look at it later.
    pub record: EpochRecord,
}

impl EpochCommit {
    /// An epoch of the lease's partition that changes nothing yet.
    pub fn empty(lease: &Lease, epoch: EpochId) -> EpochCommit {
        EpochCommit {
            partition: lease.partition,
            generation: lease.generation,
            epoch,
            source_position: None,
            source_marks: Vec::new(),
            frontiers: Vec::new(),
            dropped_frontiers: Vec::new(),
            dropped_records: Vec::new(),
            states: Vec::new(),
            timers: Vec::new(),
            chunks: Vec::new(),
            trims: Vec::new(),
            appends: Vec::new(),
            finished_files: Vec::new(),
            queue_appends: Vec::new(),
            sink_progress: Vec::new(),
            dead_letters: Vec::new(),
            removed_letters: Vec::new(),
            record: EpochRecord::default(),
        }
    }
}

/// A reader's new position in a lane: the last message or watermark step that it has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontierAdvance {
    /// The lane.
    pub lane: LaneId,
    /// Epoch of the last one processed.
    pub epoch: EpochId,
    /// Index of the last one processed, in that epoch.
    pub index: u32,
    /// The run of the pipeline that `time` belongs to.
    pub run: u64,
    /// What the lane's writer had said of the time up to here.
    pub time: LaneTime,
}

/// The new values of one named state, as columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateChanges {
    /// The state's name, as the component declares it.
    pub state: String,
    /// Keys, rising, so each once: storage writes them in this order and searches in it.
    pub keys: Column,
    /// The value of each key; an empty one deletes the row.
    pub values: Column,
    /// When each key was last touched, where the state has a time to live, 0 where that is not known; empty
    /// where it has none. Of a key without value whose time is not 0 a row stays that holds the time.
    pub touched: Vec<Timestamp>,
}

/// What storage holds of one key in one named state. The default stands for no row.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredState {
    /// The value; empty where the key has none.
    pub value: Vec<u8>,
    /// When the key was last touched, as [`StateChanges::touched`] has it; 0 where that is not known.
    pub touched: Timestamp,
}

/// The messages that one epoch put into one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneChunk {
    /// The lane.
    pub lane: LaneId,
    /// The epoch that made the messages: the one that commits them, or an earlier one of the same
    /// partition whose messages move to another lane.
    pub epoch: EpochId,
    /// Its messages and watermark steps, at least one of them. Shared with the lane's reader, where it runs in this process.
    pub messages: Arc<ChunkMessages>,
}

/// Messages of one epoch in one lane, as columns. The id of message `i` is (producer partition,
/// epoch of the chunk, `indexes[i]`); what it is known by outside may be another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkMessages {
    /// Rising.
    pub indexes: Vec<u32>,
    /// 64-bit hash of each key (see [`crate::types::key::key_hash`]).
    pub key_hashes: Vec<u64>,
    /// Keys.
    pub keys: Column,
    /// Event times; 0 where there is none.
    pub event_times: Vec<Timestamp>,
    /// Alignment timestamps, by which messages of several lanes are merged: the write time of
    /// the source record that a message goes back to, or the creation time of a transform's output. Never
    /// falling within what one partition ever writes.
    pub alignments: TimestampRuns,
    /// Payloads.
    pub payloads: Column,
    /// The public id of each message, where the messages of the stream may go back to several items; otherwise none,
    /// as that of the place is public.
    pub public_ids: Vec<PublicId>,
    /// Watermark steps among the messages; their indexes rise, and none is a message's.
    pub steps: Vec<LaneStep>,
}

impl ChunkMessages {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Whether there is neither message nor step.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty() && self.steps.is_empty()
    }

    /// The index of its last message or step; `None` when there is neither.
    pub fn last_index(&self) -> Option<u32> {
        let step = self.steps.last().map(|step| step.index);
        self.indexes.last().copied().max(step)
    }

    /// Appends message `at` of another chunk of the same epoch, which stands behind all that are here.
    pub fn push_from(&mut self, other: &ChunkMessages, at: usize) {
        self.indexes.push(other.indexes[at]);
        self.key_hashes.push(other.key_hashes[at]);
        self.keys.push(other.keys.get(at));
        self.event_times.push(other.event_times[at]);
        self.alignments.push(other.alignments.get(at));
        self.payloads.push(other.payloads.get(at));
        self.public_ids.extend(other.public_ids.get(at));
    }

    /// About how much memory the messages take, in bytes.
    pub fn size_bytes(&self) -> usize {
        let columns = self.len() * (4 + 8 + 4 + 8 + 4) + self.alignments.ends.len() * (4 + 8);
        let columns = columns + self.public_ids.len() * PublicId::BYTES;
        let columns = columns + self.steps.len() * size_of::<LaneStep>();
        self.keys.bytes.len() + self.payloads.bytes.len() + columns
    }
}

/// The chunk of `epoch` in `lane` is no longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneTrim {
    /// The lane.
    pub lane: LaneId,
    /// The epoch whose chunk goes.
    pub epoch: EpochId,
}

/// Bytes that the epoch appends to a sink's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkAppend {
    /// The file, as [`crate::storage::Storage::open_sink_file`] named it.
    pub file: SinkFileId,
    /// Whole rows.
    pub bytes: Vec<u8>,
}

/// Something that a source's partition keeps by name, such as that it has read a file to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceMark {
    /// The name.
    pub name: String,
    /// What is kept, as the source encodes it; `None` when it goes.
    pub value: Option<Vec<u8>>,
}

/// How far a sink is that a partition feeds, as the sink encodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkProgress {
    /// The sink's name.
    pub sink: String,
    /// How far it is; `None` when that is to be forgotten.
    pub value: Option<Vec<u8>>,
}

/// What an epoch was: counts, and digests that anybody can compute again from the same input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EpochRecord {
    /// Number of the deployment in force.
    pub deployment: u64,
    /// Messages or source records read.
    pub input_count: u64,
    /// Messages emitted by the last computations of the chain.
    pub output_count: u64,
    /// Guest calls made.
    pub batch_count: u64,
    /// Fuel that the guest calls used.
    pub fuel: u64,
    /// The greatest alignment timestamp that the partition has given so far: its successors never
    /// give a smaller one.
    pub alignment: Timestamp,
    /// Where the partition stands in time.
    pub time: EpochTime,
    /// Checksum over keys, times and payloads of the input and its watermark steps, in order.
    pub input_checksum: Checksum,
    /// Checksum over the states read.
    pub state_checksum: Checksum,
    /// Checksum over streams, keys, times and payloads of the output, in order.
    pub output_checksum: Checksum,
}

/// Where a partition stands in time behind an epoch. What a successor of its job goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EpochTime {
    /// The run of the pipeline: in a later one watermarks begin again.
    pub run: u64,
    /// The watermark of each input at the last step. Of a source none before its end: that is its only
    /// step.
    pub input_watermarks: Vec<Timestamp>,
    /// What the partition last told its readers; it never falls within a run.
    pub output: LaneTime,
    /// The greatest watermark that the partition has had in any run, the end of time excepted: what states
    /// grow old by.
    pub latest_watermark: Timestamp,
    /// What the age of its states is counted from.
    pub ages: StateAges,
    /// Of a source: what its next watermark is made from.
    pub generator: GeneratorTime,
    /// The timer that fired last, where a step's due timers did not all fit into the epoch.
    pub fired_up_to: Option<TimerPlace>,
    /// Timers that are pending.
    pub pending_timers: u64,
    /// Watermark steps that the epoch took.
    pub step_count: u64,
    /// Timers that the epoch fired.
    pub fired_count: u64,
    /// Late messages that the epoch took.
    pub late_count: u64,
    /// Records of the epoch whose event time was too far in the future to be believed.
    pub future_count: u64,
}

impl EpochTime {
    /// The least watermark of the inputs: what timers and lateness go by. `None` of a source before its
    /// end.
    pub fn watermark(&self) -> Option<Timestamp> {
        self.input_watermarks.iter().copied().min()
    }

    /// Whether the value of a key in this state counts as absent because of its age, where the key was last
    /// touched then; 0 where that is not known.
    pub fn is_expired(&self, state: &str, touched: Timestamp) -> bool {
        let age = self.ages.states.iter().find(|age| age.state == state);
        self.latest_watermark > 0
            && age.is_some_and(|age| {
                is_expired(
                    touched,
                    self.ages.first_watermark,
                    age.since,
                    age.expired_up_to,
                )
            })
    }

    /// Where the next epoch begins: it has counted nothing yet.
    #[must_use]
    pub fn without_counts(self) -> EpochTime {
        EpochTime {
            step_count: 0,
            fired_count: 0,
            late_count: 0,
            future_count: 0,
            ..self
        }
    }
}

/// What a source partition's next watermark is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GeneratorTime {
    /// The greatest event time that was believed in this run; 0 before the first.
    pub greatest: Timestamp,
    /// Records since the last watermark.
    pub records: u64,
}

/// What the age of a partition's states with a time to live is counted from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateAges {
    /// The partition's first watermark since it has such states: what counts for a state that was touched
    /// before it, at no event time. 0 before there is one, and where watermarks came first.
    pub first_watermark: Timestamp,
    /// One for each state with a time to live.
    pub states: Vec<StateAge>,
}

/// What the age of one state is counted from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateAge {
    /// The state's name.
    pub state: String,
    /// The latest watermark when it was given its time to live: no row counts as touched before.
    pub since: Timestamp,
    /// Rows that were last touched at this time or before are absent, whatever the time to live is now.
    pub expired_up_to: Timestamp,
}

/// Whether a row of a state is absent because of its age. One that does not say when it was touched (0) counts as
/// touched at the partition's first watermark, and none as touched before `since`, when the state was given its time
/// to live.
pub fn is_expired(
    touched: Timestamp,
    first_watermark: Timestamp,
    since: Timestamp,
    expired_up_to: Timestamp,
) -> bool {
    let counted = match touched {
        0 => first_watermark,
        touched => touched,
    };
    counted.max(since) <= expired_up_to
}
