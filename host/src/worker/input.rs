//! Where a job's items come from: a source, or the lanes of a transform. Both have a position
//! that the job's epochs commit; both are read strictly in order.

use std::collections::VecDeque;

use crate::engine::epoch::BatchRoom;
use crate::engine::lane::Frontier;
use crate::engine::stream::InputMessages;
use crate::source::{PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords};
use crate::storage::rows::{self, ChunkLimit};
use crate::storage::{Storage, StorageError};
use crate::types::epoch::{ChunkMessages, FrontierAdvance};
use crate::types::ids::{EpochId, MessageId};
use crate::types::timestamp_runs::TimestampRuns;
use crate::worker::board::LaneBoard;
use crate::worker::plan::LanePlan;

/// How much of a lane is read from storage at a time.
pub(super) const CHUNKS_READ: ChunkLimit = ChunkLimit {
    chunks: 1_024,
    bytes: 16 << 20,
};

/// Records of a source.
pub struct SourceInput {
    name: String,
    source: Box<dyn Source>,
    records: SourceRecords,
    ended: bool,
    progress: SourceProgress,
    /// The position of the last commit, of this or an earlier run.
    committed: Option<Vec<u8>>,
}

impl SourceInput {
    /// Reads on from where the source stands; `name` is what it is in errors, `committed` the
    /// position in storage.
    pub fn new(name: String, source: Box<dyn Source>, committed: Option<Vec<u8>>) -> SourceInput {
        SourceInput {
            committed,
            progress: source.progress(),
            name,
            source,
            records: SourceRecords::default(),
            ended: false,
        }
    }

    /// The next records, none at the source's end.
    pub fn next(&mut self, room: BatchRoom) -> Result<InputMessages, SourceError> {
        let limit = PollLimit {
            rows: room.rows,
            bytes: room.bytes,
        };
        self.records.payloads.clear();
        self.records.lines.clear();
        self.records.write_times.clear();
        while !self.ended && self.records.payloads.is_empty() {
            self.ended = self.source.poll(limit, &mut self.records)? == PollOutcome::End;
        }
        let payloads = std::mem::take(&mut self.records.payloads);
        let mut keys = crate::types::column::Column::default();
        keys.ends.resize(payloads.len(), 0);
        Ok(InputMessages {
            streams: vec![0; payloads.len()],
            keys,
            event_times: vec![0; payloads.len()],
            payloads,
        })
    }

    /// When the records of the last batch were written.
    pub fn write_times(&self) -> &TimestampRuns {
        &self.records.write_times
    }

    /// Whether the source is finite and at its end.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The position behind the last record, encoded.
    pub fn position(&self) -> Vec<u8> {
        self.source.position()
    }

    /// Whether the position differs from the committed one: also that of a source without records
    /// which was never read before, or was started over.
    pub fn has_moved(&self) -> bool {
        self.committed.as_ref() != Some(&self.position())
    }

    /// The position was committed.
    pub fn committed(&mut self) {
        self.committed = Some(self.position());
    }

    /// How many bytes the source has moved on by since this was last asked.
    pub fn bytes_advanced(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.progress, self.source.progress());
        self.progress.done_bytes.saturating_sub(before.done_bytes)
    }

    /// How far the source is.
    pub fn progress(&self) -> SourceProgress {
        self.progress
    }

    /// Where the given items of the last batch came from.
    pub fn locate(&self, items: &std::ops::Range<u32>) -> ItemLocation {
        let line = |item: u32| self.records.lines.get(item as usize).copied().unwrap_or(0);
        ItemLocation::Records {
            source: self.name.clone(),
            lines: line(items.start)..=line(items.end.saturating_sub(1)),
        }
    }
}

/// The lanes of a transform's partition.
pub struct LanesInput {
    lanes: Vec<LaneInput>,
    /// Ids of the last batch's messages, for errors.
    ids: Vec<MessageId>,
}

struct LaneInput {
    plan: LanePlan,
    /// Behind the last message handed out.
    frontier: Frontier,
    /// The frontier of the last commit.
    committed: Frontier,
    /// Chunks read from storage, the first one in use.
    chunks: VecDeque<(EpochId, ChunkMessages)>,
    /// The next message of the first chunk.
    next: usize,
    /// The newest epoch whose chunk has been read from storage.
    read: EpochId,
    /// The newest epoch whose chunk has been handed out whole.
    finished: EpochId,
    /// Bytes of chunks finished since the last commit.
    finished_bytes: u64,
}

impl LanesInput {
    /// Reads on from the committed frontiers.
    pub fn open(
        plans: &[LanePlan],
        storage: &dyn Storage,
        board: &LaneBoard,
    ) -> Result<LanesInput, StorageError> {
        let mut lanes = Vec::with_capacity(plans.len());
        for plan in plans {
            let frontier = rows::read_frontier(storage, plan.lane)?
                .map(|at| Frontier {
                    epoch: at.epoch,
                    index: at.index,
                })
                .unwrap_or_default();
            let mut lane = LaneInput {
                plan: *plan,
                frontier,
                committed: frontier,
                chunks: VecDeque::new(),
                next: 0,
                read: EpochId(frontier.epoch.0.saturating_sub(1)),
                finished: EpochId(frontier.epoch.0.saturating_sub(1)),
                finished_bytes: 0,
            };
            lane.load(storage, board.written_up_to(plan.lane))?;
            board.covered(plan.lane, lane.finished, 0);
            lanes.push(lane);
        }
        Ok(LanesInput {
            lanes,
            ids: Vec::new(),
        })
    }

    /// The next messages, none when every lane is read as far as its writer has committed.
    pub fn next(
        &mut self,
        room: BatchRoom,
        storage: &dyn Storage,
        board: &LaneBoard,
    ) -> Result<InputMessages, StorageError> {
        let mut messages = InputMessages::default();
        self.ids.clear();
        for lane in &mut self.lanes {
            loop {
                lane.take(room, &mut messages, &mut self.ids);
                if messages.len() >= room.rows || messages.size_bytes() >= room.bytes {
                    return Ok(messages);
                }
                if !lane.load(storage, board.written_up_to(lane.plan.lane))? {
                    break;
                }
            }
        }
        Ok(messages)
    }

    /// The frontiers that have moved since the last commit.
    pub fn advances(&self) -> Vec<FrontierAdvance> {
        let moved = self
            .lanes
            .iter()
            .filter(|lane| lane.frontier != lane.committed);
        moved
            .map(|lane| FrontierAdvance {
                lane: lane.plan.lane,
                epoch: lane.frontier.epoch,
                index: lane.frontier.index,
            })
            .collect()
    }

    /// The frontiers were committed: tells the lanes' writers.
    pub fn committed(&mut self, board: &LaneBoard) {
        for lane in &mut self.lanes {
            if lane.frontier != lane.committed {
                lane.committed = lane.frontier;
                let size_bytes = std::mem::take(&mut lane.finished_bytes);
                board.covered(lane.plan.lane, lane.finished, size_bytes);
            }
        }
    }

    /// Whether everything that can come in this run has been read.
    pub fn is_ended(&self, board: &LaneBoard) -> bool {
        // Closed first: a writer closes its lane after its last chunk.
        board.are_closed(self.lanes.iter().map(|lane| lane.plan.lane))
            && self.lanes.iter().all(|lane| {
                lane.chunks.is_empty() && lane.read >= board.written_up_to(lane.plan.lane)
            })
    }

    /// Where the given items of the last batch came from.
    pub fn locate(&self, items: &std::ops::Range<u32>) -> ItemLocation {
        let id = |item: u32| self.ids.get(item as usize).copied();
        ItemLocation::Messages {
            first: id(items.start),
            last: id(items.end.saturating_sub(1)),
        }
    }
}

impl LaneInput {
    /// Reads the next chunks from storage. False when there are none.
    fn load(&mut self, storage: &dyn Storage, written: EpochId) -> Result<bool, StorageError> {
        if self.read >= written {
            return Ok(false);
        }
        let from = self.read.next();
        let chunks = rows::read_chunks(storage, self.plan.lane, from, CHUNKS_READ)?;
        let Some((newest, _)) = chunks.last() else {
            // The newest chunks were passed and trimmed before.
            self.read = written;
            return Ok(false);
        };
        self.read = *newest;
        self.chunks.extend(chunks);
        self.skip_passed();
        Ok(true)
    }

    /// Drops what the frontier has passed: duplicates, found after a restart.
    fn skip_passed(&mut self) {
        while let Some((epoch, chunk)) = self.chunks.front() {
            self.next = self.next.max(self.frontier.passed(*epoch, chunk));
            if self.next < chunk.len() {
                return;
            }
            self.finish_chunk();
        }
    }

    /// Hands messages out while there is room.
    fn take(&mut self, room: BatchRoom, messages: &mut InputMessages, ids: &mut Vec<MessageId>) {
        while let Some((epoch, chunk)) = self.chunks.front() {
            while self.next < chunk.len() {
                if messages.len() >= room.rows || messages.size_bytes() >= room.bytes {
                    return;
                }
                let index = chunk.indexes[self.next];
                messages.push(
                    self.plan.input,
                    chunk.keys.get(self.next),
                    chunk.event_times[self.next],
                    chunk.payloads.get(self.next),
                );
                ids.push(MessageId {
                    partition: self.plan.lane.producer,
                    epoch: *epoch,
                    index,
                });
                self.frontier.advance(*epoch, index);
                self.next += 1;
            }
            self.finish_chunk();
        }
    }

    fn finish_chunk(&mut self) {
        if let Some((epoch, chunk)) = self.chunks.pop_front() {
            self.finished = epoch;
            self.finished_bytes += chunk.size_bytes() as u64;
            self.next = 0;
        }
    }
}

/// Where items came from, for a person to look there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemLocation {
    /// Records of a source.
    Records {
        /// The source, and which file of several.
        source: String,
        /// Their lines.
        lines: std::ops::RangeInclusive<u64>,
    },
    /// Messages of lanes.
    Messages {
        /// The first one.
        first: Option<MessageId>,
        /// The last one.
        last: Option<MessageId>,
    },
}

impl std::fmt::Display for ItemLocation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ItemLocation::Records { source, lines } if lines.start() == lines.end() => {
                write!(formatter, "line {} of {source}", lines.start())
            }
            ItemLocation::Records { source, lines } => {
                let (start, end) = (lines.start(), lines.end());
                write!(formatter, "lines {start} to {end} of {source}")
            }
            ItemLocation::Messages {
                first: Some(first),
                last: Some(last),
            } if first == last => write!(formatter, "message {first}"),
            ItemLocation::Messages {
                first: Some(first),
                last: Some(last),
            } => write!(formatter, "messages {first} to {last}"),
            ItemLocation::Messages { .. } => write!(formatter, "no message"),
        }
    }
}
