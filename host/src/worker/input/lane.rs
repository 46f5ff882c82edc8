//! One lane as its reader sees it: what of it is at hand, and how far it is read.
//!
//! Chunks come from the lane's channel while reader and writer keep up with each other, and from
//! storage otherwise: at the start, after a failure, and whenever the channel has a gap.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::engine::lane::Frontier;
use crate::engine::merge::{InputLead, Priority};
use crate::storage::rows::{self, ChunkLimit};
use crate::storage::{Storage, StorageError};
use crate::types::epoch::{ChunkMessages, FrontierAdvance};
use crate::types::ids::{EpochId, LaneId};
use crate::types::watermark::LaneTime;
use crate::worker::board::LaneBoard;
use crate::worker::channel::Receipt;
use crate::worker::plan::LanePlan;

/// A lane of a job's input.
pub(super) struct LaneInput {
    pub(super) plan: LanePlan,
    /// Behind the last message handed out.
    frontier: Frontier,
    /// The frontier that the last epoch commits.
    sealed: Frontier,
    /// Chunks at hand, the first one in use.
    chunks: VecDeque<(EpochId, Arc<ChunkMessages>)>,
    /// The next message of the first chunk.
    next: usize,
    /// The newest epoch whose chunk has been at hand.
    read: EpochId,
    /// The newest epoch whose chunk has been handed out whole.
    finished: EpochId,
}

/// Some messages of one chunk, in the order of the lane.
pub(super) struct LaneRun {
    /// The chunk's epoch.
    pub(super) epoch: EpochId,
    /// The chunk.
    pub(super) chunk: Arc<ChunkMessages>,
    /// Which of its messages.
    pub(super) messages: Range<usize>,
}

impl LaneInput {
    /// Goes on from the committed frontier. Nothing is at hand yet.
    pub(super) fn open(plan: LanePlan, storage: &dyn Storage) -> Result<LaneInput, StorageError> {
        let frontier = rows::read_frontier(storage, plan.lane)?;
        let frontier = frontier.map_or_else(Frontier::default, |at| Frontier {
            epoch: at.epoch,
            index: at.index,
        });
        // The chunk that the frontier stands in may hold more.
        let before = EpochId(frontier.epoch.0.saturating_sub(1));
        Ok(LaneInput {
            plan,
            frontier,
            sealed: frontier,
            chunks: VecDeque::new(),
            next: 0,
            read: before,
            finished: before,
        })
    }

    /// Gets the next chunks, if none is at hand, and counts their messages into the input's lead.
    pub(super) fn load(
        &mut self,
        storage: &dyn Storage,
        board: &LaneBoard,
        limit: ChunkLimit,
        lead: &mut InputLead,
    ) -> Result<(), StorageError> {
        while self.chunks.is_empty() {
            match board.receive(self.plan.lane, self.read) {
                Receipt::Chunk(epoch, chunk) => self.take_in(epoch, chunk, board, lead),
                Receipt::UpToDate => return Ok(()),
                Receipt::Gap { written } => {
                    let from = self.read.next();
                    let chunks = rows::read_chunks(storage, self.plan.lane, from, limit)?;
                    if chunks.is_empty() {
                        // The newest chunks were passed and trimmed before.
                        self.read = written;
                    }
                    for (epoch, chunk) in chunks {
                        self.take_in(epoch, Arc::new(chunk), board, lead);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes a chunk in, without what the frontier has passed: duplicates, found after a restart. The
    /// frontier is committed then, so the writer of a chunk that is passed whole is told at once.
    fn take_in(
        &mut self,
        epoch: EpochId,
        chunk: Arc<ChunkMessages>,
        board: &LaneBoard,
        lead: &mut InputLead,
    ) {
        let passed = self.frontier.passed(epoch, &chunk);
        self.read = epoch;
        if passed == chunk.len() {
            self.finished = epoch;
            self.coverage().tell(board);
            return;
        }
        if self.chunks.is_empty() {
            self.next = passed;
        }
        lead.add(&chunk, passed..chunk.len());
        self.chunks.push_back((epoch, chunk));
    }

    /// Whether no message is at hand.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether everything that its writer has committed so far was handed out.
    pub(super) fn is_read(&self, board: &LaneBoard) -> bool {
        self.chunks.is_empty() && self.read >= board.written_up_to(self.plan.lane)
    }

    /// The priority of the next message, if one is at hand.
    pub(super) fn priority(&self, lead: &InputLead) -> Option<Priority> {
        let (_, chunk) = self.chunks.front()?;
        let alignment = chunk.alignments.get(self.next);
        Some(lead.priority(self.plan.input, alignment, self.plan.lane.producer))
    }

    /// Hands out messages of the first chunk that go before `bound`, at least one and at most
    /// `rows`; no further one when they have `bytes` bytes of keys and payloads.
    ///
    /// # Panics
    ///
    /// When no message is at hand.
    pub(super) fn take(
        &mut self,
        bound: Option<Priority>,
        lead: &mut InputLead,
        (rows, bytes): (usize, usize),
    ) -> LaneRun {
        let (epoch, chunk) = self.chunks.front().expect("a message is at hand");
        let (epoch, chunk) = (*epoch, Arc::clone(chunk));
        let alignments = &chunk.alignments;
        let goes_first = |run: usize| {
            let (input, producer) = (self.plan.input, self.plan.lane.producer);
            let priority = lead.priority(input, alignments.values[run], producer);
            bound.is_none_or(|bound| priority < bound)
        };
        let first = alignments.run_of(self.next);
        let last = (first + 1..alignments.ends.len()).take_while(|run| goes_first(*run));
        let end = alignments.ends[last.last().unwrap_or(first)] as usize;
        let end = end.min(self.next.saturating_add(rows));
        let messages = self.next..end_within_bytes(&chunk, self.next..end, bytes);
        lead.remove(&chunk, messages.clone());
        self.frontier
            .advance(epoch, chunk.indexes[messages.end - 1]);
        self.next = messages.end;
        if self.next == chunk.len() {
            self.chunks.pop_front();
            self.next = 0;
            self.finished = epoch;
        }
        LaneRun {
            epoch,
            chunk,
            messages,
        }
    }

    /// The frontier for an epoch to commit, if it has moved since the last one, and what the lane's
    /// writer is to be told then.
    pub(super) fn seal(&mut self) -> Option<(FrontierAdvance, LaneCoverage)> {
        if self.frontier == self.sealed {
            return None;
        }
        self.sealed = self.frontier;
        let advance = FrontierAdvance {
            lane: self.plan.lane,
            epoch: self.frontier.epoch,
            index: self.frontier.index,
            run: 0,
            time: LaneTime::default(),
        };
        Some((advance, self.coverage()))
    }

    /// How far the lane is read.
    pub(super) fn coverage(&self) -> LaneCoverage {
        LaneCoverage {
            lane: self.plan.lane,
            covered: self.finished,
        }
    }
}

/// How far a lane is read, for its writer.
#[derive(Debug, Clone, Copy)]
pub struct LaneCoverage {
    lane: LaneId,
    /// The newest epoch whose chunk, and all before it, was read to the end.
    covered: EpochId,
}

impl LaneCoverage {
    /// Tells the writer, once it is committed.
    pub fn tell(self, board: &LaneBoard) {
        board.covered(self.lane, self.covered);
    }
}

/// Where to end so that the message that passes `bytes` is the last one.
fn end_within_bytes(chunk: &ChunkMessages, range: Range<usize>, bytes: usize) -> usize {
    let size_up_to = |end: usize| {
        let size_of = |ends: &[u32]| {
            let start = range.start.checked_sub(1).map_or(0, |before| ends[before]);
            (ends[end - 1] - start) as usize
        };
        size_of(&chunk.keys.ends) + size_of(&chunk.payloads.ends)
    };
    if size_up_to(range.end) < bytes {
        return range.end;
    }
    let (mut low, mut high) = (range.start + 1, range.end);
    while low < high {
        let middle = low.midpoint(high);
        match size_up_to(middle) < bytes {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}
