//! Messages of lanes as the input of a job: whatever is present, in the order of
//! [`crate::engine::merge`].
//!
//! **Invariant:** no lane is waited for. Lanes of partitions of an older layout are the exception
//! that is none: all that they will ever hold is there already, so they are read to their end first.
//!
//! A lane's watermark step is taken as soon as the messages before it are. Where that changes the
//! watermark of an input it is a step of the job: no batch reaches across it.

use crate::engine::epoch::BatchRoom;
use crate::engine::merge::{InputLead, Priority};
use crate::engine::stream::InputMessages;
use crate::engine::watermark::InputWatermarks;
use crate::storage::rows::ChunkLimit;
use crate::storage::{Storage, StorageError};
use crate::types::epoch::{EpochTime, FrontierAdvance};
use crate::types::ids::{MessageId, PublicId};
use crate::worker::board::LaneBoard;
use crate::worker::input::lane::{LaneCoverage, LaneInput, LaneRun};
use crate::worker::input::{InputItems, ItemLocation, MessageName};
use crate::worker::plan::LanePlan;

/// How many chunks of one lane are read from storage at a time.
const READ_AHEAD_CHUNKS_MAX: usize = 1_024;

/// The lanes of a transform's partition.
pub struct LanesInput {
    lanes: Vec<LaneInput>,
    /// Whether lanes of an older layout may have to be read first.
    has_retiring: bool,
    /// One for each input of the transform.
    leads: Vec<InputLead>,
    /// As of the last step that was handed out.
    watermarks: InputWatermarks,
    read_ahead: ChunkLimit,
    /// Where the last batch's messages came from, in order.
    taken: Vec<TakenRun>,
}

/// Messages of a batch that stood together in a lane.
struct TakenRun {
    lane: usize,
    run: LaneRun,
}

impl LanesInput {
    /// Reads on from the committed frontiers, and tells the lanes' writers where those stand. Reads at
    /// most `read_ahead_bytes` ahead from storage, and one chunk of each lane whatever its size.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn open(
        plans: &[LanePlan],
        read_ahead_bytes: usize,
        time: &EpochTime,
        storage: &dyn Storage,
        board: &LaneBoard,
    ) -> Result<LanesInput, StorageError> {
        let mut leads = Vec::new();
        for plan in plans {
            let inputs = leads.len().max(usize::from(plan.input) + 1);
            leads.resize_with(inputs, InputLead::default);
            leads[usize::from(plan.input)] = InputLead::with_delay(plan.delay);
        }
        let watermarks = InputWatermarks::restored(
            time.input_watermarks.clone(),
            time.output.is_idle,
            leads.len(),
        );
        let read_ahead = ChunkLimit {
            chunks: READ_AHEAD_CHUNKS_MAX,
            bytes: read_ahead_bytes / plans.len().max(1),
        };
        let mut lanes = Vec::with_capacity(plans.len());
        for plan in plans {
            let mut lane = LaneInput::open(*plan, time.run, storage)?;
            let lead = &mut leads[usize::from(plan.input)];
            lane.load(storage, board, read_ahead, lead)?;
            lane.coverage().tell(board);
            lanes.push(lane);
        }
        Ok(LanesInput {
            has_retiring: plans.iter().any(|plan| plan.retiring.is_some()),
            lanes,
            leads,
            watermarks,
            read_ahead,
            taken: Vec::new(),
        })
    }

    /// The next messages or the next watermark step; nothing when every lane is read as far as its
    /// writer has committed.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn next(
        &mut self,
        room: BatchRoom,
        storage: &dyn Storage,
        board: &LaneBoard,
    ) -> Result<InputItems, StorageError> {
        let mut messages = InputMessages::default();
        self.taken.clear();
        let mut is_step = self.merge_watermarks().is_some();
        for at in 0..self.lanes.len() {
            is_step = is_step || self.come_to_message(at, storage, board)?;
        }
        if is_step && let Some(watermarks) = self.merge_watermarks() {
            self.watermarks = watermarks.clone();
            return Ok(InputItems::Step(watermarks));
        }
        self.leads.iter_mut().for_each(InputLead::take_mean);
        while messages.len() < room.rows && messages.size_bytes() < room.bytes {
            let Some((lane, bound)) = self.first_lane() else {
                break;
            };
            let rows = room.rows - messages.len();
            let bytes = room.bytes - messages.size_bytes();
            let input = self.lanes[lane].plan.input;
            let lead = &mut self.leads[usize::from(input)];
            let run = self.lanes[lane].take(bound, lead, (rows, bytes));
            messages.extend_from(input, &run.chunk, run.messages.clone());
            self.taken.push(TakenRun { lane, run });
            if self.come_to_message(lane, storage, board)? {
                break;
            }
        }
        match messages.is_empty() {
            true => Ok(InputItems::Nothing),
            false => Ok(InputItems::Messages(messages)),
        }
    }

    /// The watermarks that the lanes' times come to, if they differ from those of the last step.
    fn merge_watermarks(&self) -> Option<InputWatermarks> {
        let times = self.lanes.iter().map(|lane| (lane.plan.input, lane.time()));
        self.watermarks.merge(times)
    }

    /// Takes the watermark steps of a lane that come next, until a message comes or nothing is there. Ends
    /// early, and says so, behind one that changes the watermark of an input: what comes next is a step of
    /// the job, however much more is at hand.
    fn come_to_message(
        &mut self,
        at: usize,
        storage: &dyn Storage,
        board: &LaneBoard,
    ) -> Result<bool, StorageError> {
        loop {
            let lane = &mut self.lanes[at];
            let before = lane.time();
            let lead = &mut self.leads[usize::from(lane.plan.input)];
            lane.load(storage, board, self.read_ahead, lead)?;
            let more = lane.take_step();
            if lane.time() != before && self.merge_watermarks().is_some() {
                return Ok(true);
            }
            if !more {
                return Ok(false);
            }
        }
    }

    /// The lane whose next message goes first, and what it must go before: the priority of the
    /// next message of any other lane.
    fn first_lane(&self) -> Option<(usize, Option<Priority>)> {
        let mut first: Option<(usize, Priority)> = None;
        let mut bound: Option<Priority> = None;
        for (at, lane) in self.lanes.iter().enumerate() {
            let lead = &self.leads[usize::from(lane.plan.input)];
            let Some(priority) = lane.priority(lead) else {
                continue;
            };
            if self.has_retiring && self.is_behind_older_layout(lane) {
                continue;
            }
            match first {
                Some((_, least)) if least < priority => {
                    bound = Some(bound.map_or(priority, |bound| bound.min(priority)));
                }
                _ => {
                    bound = first.map(|(_, least)| least);
                    first = Some((at, priority));
                }
            }
        }
        first.map(|(at, _)| (at, bound))
    }

    /// Whether the lane has to wait until one of an older layout is read to its end (row R4).
    fn is_behind_older_layout(&self, lane: &LaneInput) -> bool {
        let goes_before = |other: &LaneInput| match (other.plan.retiring, lane.plan.retiring) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(other), Some(own)) => other < own,
        };
        self.lanes.iter().any(|other| {
            other.plan.lane.stream == lane.plan.lane.stream
                && goes_before(other)
                && !other.is_empty()
        })
    }

    /// Whether something was taken that no sealed epoch commits.
    pub fn has_moved(&self) -> bool {
        self.lanes.iter().any(LaneInput::has_moved)
    }

    /// The frontiers that have moved since the last epoch, for the next one to commit, and what
    /// the lanes' writers are to be told then.
    pub fn seal(&mut self) -> (Vec<FrontierAdvance>, Vec<LaneCoverage>) {
        self.lanes.iter_mut().filter_map(LaneInput::seal).unzip()
    }

    /// Whether everything that can come in this run has been handed out, the last step included.
    pub fn is_ended(&self) -> bool {
        self.lanes.iter().all(LaneInput::is_ended) && self.merge_watermarks().is_none()
    }

    /// Where the given items of the last batch came from.
    pub fn locate(&self, items: &std::ops::Range<u32>) -> ItemLocation {
        ItemLocation::Messages {
            first: self.message_name(items.start),
            last: self.message_name(items.end.saturating_sub(1)),
        }
    }

    /// What the messages of the last batch are known by.
    pub fn public_ids(&self) -> Vec<PublicId> {
        let of_run = |taken: &TakenRun| {
            let messages = taken.run.messages.clone();
            let names = messages.map(|at| self.message_name_at(taken, at));
            names.map(|name| name.public_id()).collect::<Vec<_>>()
        };
        self.taken.iter().flat_map(of_run).collect()
    }

    /// What an item of the last batch is called.
    fn message_name(&self, item: u32) -> Option<MessageName> {
        let mut left = item as usize;
        for taken in &self.taken {
            let messages = &taken.run.messages;
            if left < messages.len() {
                return Some(self.message_name_at(taken, messages.start + left));
            }
            left -= messages.len();
        }
        None
    }

    /// What message `at` of a run's chunk is called.
    fn message_name_at(&self, TakenRun { lane, run }: &TakenRun, at: usize) -> MessageName {
        MessageName {
            id: MessageId {
                partition: self.lanes[*lane].plan.lane.producer,
                epoch: run.epoch,
                index: run.chunk.indexes[at],
            },
            public_id: run.chunk.public_ids.get(at).copied(),
        }
    }
}
