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
use crate::types::watermark::{END_OF_TIME, LaneTime};
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
    /// The next watermark step of the first chunk.
    next_step: usize,
    /// The run of the pipeline.
    run: u64,
    /// What the writer has said of the time, up to the frontier.
    time: LaneTime,
    /// Whether the lane is read to the end that it has in this run.
    is_ended: bool,
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
    pub(super) fn open(
        plan: LanePlan,
        run: u64,
        storage: &dyn Storage,
    ) -> Result<LaneInput, StorageError> {
        let committed = rows::read_frontier(storage, plan.lane)?;
        let frontier = committed.map_or_else(Frontier::default, |at| Frontier {
            epoch: at.epoch,
            index: at.index,
        });
        let time = committed.filter(|at| at.run == run).map(|at| at.time);
        // The chunk that the frontier stands in may hold more.
        let before = EpochId(frontier.epoch.0.saturating_sub(1));
        Ok(LaneInput {
            plan,
            frontier,
            sealed: frontier,
            chunks: VecDeque::new(),
            next: 0,
            next_step: 0,
            run,
            time: time.unwrap_or_default(),
            is_ended: false,
            read: before,
            finished: before,
        })
    }

    /// Gets the next chunks, if none is at hand, and counts their messages into the input's lead. Finds
    /// the lane's end, where that comes next.
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
                Receipt::End => {
                    self.is_ended = true;
                    return Ok(());
                }
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
        let passed_steps = self.frontier.passed_steps(epoch, &chunk);
        self.read = epoch;
        if passed == chunk.len() && passed_steps == chunk.steps.len() {
            self.finished = epoch;
            self.coverage().tell(board);
            return;
        }
        if self.chunks.is_empty() {
            self.next = passed;
            self.next_step = passed_steps;
        }
        lead.add(&chunk, passed..chunk.len());
        self.chunks.push_back((epoch, chunk));
    }

    /// Whether neither message nor step is at hand.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether the lane is read to the end that it has in this run.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// What holds of the lane's time where it is read up to.
    pub(super) fn time(&self) -> LaneTime {
        match self.is_ended {
            true => LaneTime {
                watermark: END_OF_TIME,
                is_idle: false,
            },
            false => self.time,
        }
    }

    /// Takes the watermark step that comes next, if it is a step that comes next.
    pub(super) fn take_step(&mut self) -> bool {
        let Some((epoch, chunk)) = self.chunks.front() else {
            return false;
        };
        let Some(step) = chunk.steps.get(self.next_step) else {
            return false;
        };
        let message = chunk.indexes.get(self.next);
        if message.is_some_and(|message| *message < step.index) {
            return false;
        }
        let (epoch, step) = (*epoch, *step);
        self.frontier.advance(epoch, step.index);
        self.time = step.time;
        self.next_step += 1;
        self.drop_finished();
        true
    }

    /// Lets the first chunk go once all of it was handed out.
    fn drop_finished(&mut self) {
        if let Some((epoch, chunk)) = self.chunks.front()
            && self.next == chunk.len()
            && self.next_step == chunk.steps.len()
        {
            self.finished = *epoch;
            self.chunks.pop_front();
            (self.next, self.next_step) = (0, 0);
        }
    }

    /// The priority of the next message, if one is at hand. Steps before it must have been taken.
    pub(super) fn priority(&self, lead: &InputLead) -> Option<Priority> {
        let (_, chunk) = self.chunks.front()?;
        if self.next == chunk.len() {
            return None;
        }
        let alignment = chunk.alignments.get(self.next);
        Some(lead.priority(self.plan.input, alignment, self.plan.lane.producer))
    }

    /// Hands out messages of the first chunk that go before `bound` and before the next watermark
    /// step, at least one and at most `rows`; no further one when they have `bytes` bytes of keys and payloads.
    ///
    /// # Panics
    ///
    /// When no message comes next.
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
        let end = match chunk.steps.get(self.next_step) {
            Some(step) => end.min(chunk.indexes.partition_point(|index| *index < step.index)),
            None => end,
        };
        let end = end.min(self.next.saturating_add(rows));
        let messages = self.next..end_within_bytes(&chunk, self.next..end, bytes);
        lead.remove(&chunk, messages.clone());
        self.frontier
            .advance(epoch, chunk.indexes[messages.end - 1]);
        self.next = messages.end;
        self.drop_finished();
        LaneRun {
            epoch,
            chunk,
            messages,
        }
    }

    /// Whether something was taken that no sealed epoch commits.
    pub(super) fn has_moved(&self) -> bool {
        self.frontier != self.sealed
    }

    /// The frontier for an epoch to commit, if it has moved since the last one, and what the lane's
    /// writer is to be told then.
    pub(super) fn seal(&mut self) -> Option<(FrontierAdvance, LaneCoverage)> {
        if !self.has_moved() {
            return None;
        }
        self.sealed = self.frontier;
        let advance = FrontierAdvance {
            lane: self.plan.lane,
            epoch: self.frontier.epoch,
            index: self.frontier.index,
            run: self.run,
            time: self.time,
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
