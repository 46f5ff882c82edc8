//! Engines that are broken on purpose: the positive control of the checkers. Some take the epoch that
//! a sound job commits and commit what a broken one would; others take a sound plan of a job and make
//! it what a broken placement would.

mod commit;
mod time;

use std::time::Duration;

use tidelock::storage::keys;
use tidelock::types::ids::EpochId;
use tidelock::types::pipeline::LaneLimits;
use tidelock::worker::plan::{InputPlan, JobPlan};

use crate::checkers::Checker;

pub(crate) use commit::Kept;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Frontiers are no part of the commit.
    FrontierNotCommitted,
    /// Frontiers stand one message before the last one processed.
    FrontierOneShort,
    /// The position of a source is no part of the commit.
    SourcePositionNotCommitted,
    /// Of an epoch that was not decided all is kept but the states.
    StateLost,
    /// A key whose states are not in memory has none.
    StatesNotReadBack,
    /// Chunks are handed on before their epoch is decided, and stay when it is not.
    ChunkBeforeCommit,
    /// Neither lease nor predecessor is compared: whoever commits, commits.
    StaleEpochAccepted,
    /// A chunk is removed when the next one is written, read or not.
    TrimBeforeCovered,
    /// Rows of an epoch that was not decided stay in the sink and go out with the next one.
    RowsOfUndecidedEpoch,
    /// Rows of a queue are there though their epoch was not decided.
    QueueRowsOfUndecidedEpoch,
    /// The last row that an epoch appends to a queue is lost.
    QueueRowLost,
    /// The position in a queue stands one row before the last one that was taken.
    QueuePositionOneShort,
    /// Alignment timestamps are the times of records and epochs, though they fall.
    ClampDropped,
    /// The greatest alignment timestamp is no part of the commit.
    AlignmentNotCommitted,
    /// What a transform makes is stamped with the time of the record that it goes back to.
    CreationTimeInherited,
    /// The inputs of a transform are taken one after the other, whatever their timestamps say.
    InputsNotMerged,
    /// Of messages with equal timestamps that of the last input is taken first.
    TieRuleReversed,
    /// The delays of streams are not heeded.
    DelaysIgnored,
    /// A reader that has missed chunks takes the newest one for the next.
    GapSkipped,
    /// Writers go on though their readers have fallen behind.
    BoundIgnored,
    /// Writers wait long before the bound.
    WaitsTooEarly,
    /// What the old reader has passed moves to the new one too.
    PassedMessagesMoved,
    /// A state is lost on its way to the new partition.
    StateNotMoved,
    /// Readers take what new partitions write before what retiring ones have written.
    NewLanesFirst,
    /// Of several transforms that read a stream, jobs do not know the last one.
    ReaderForgotten,
    /// The partitions of a reader stand in another order than its key hashes.
    PartitionsRotated,
    /// The maps of a chain run before those that feed them.
    MapsReversed,
    /// A map does not see the last of the chain's streams that feed it.
    InputSilent,
    /// Watermarks of a run are no part of the commit: a job that starts again takes them back.
    WatermarksNotCommitted,
    /// Watermark steps overtake the messages of their epoch.
    StepBeforeMessages,
    /// A step behind messages is not handed on.
    StepLost,
    /// What a lane has said is no part of the frontier.
    FrontierTimeNotCommitted,
    /// An event time in the future moves the watermark, however far it is.
    FutureBelieved,
    /// Watermarks are at the greatest event time, whatever the bound on disorder.
    DisorderIgnored,
    /// Pending timers do not hold the watermark.
    HoldIgnored,
    /// Late messages go to the transform though there is an output for them.
    LateTaken,
    /// What is behind the watermark is late, whatever is allowed.
    LatenessIgnored,
    /// Timers that are set are no part of the commit.
    TimerNotStored,
    /// Timers that have fired stay: after a crash they fire again.
    FiredTimerStays,
    /// Timers that have fired go with a later epoch.
    FiredTimerGoesLater,
    /// Two timers of a step fire in the wrong order.
    TimersSwapped,
    /// Timers are set for an earlier moment than they were meant for.
    TimerEarly,
    /// What is set at the end of a run does not wait for the next one.
    HeldTimerFires,
    /// A step that is not done is forgotten with the job.
    StepForgotten,
    /// A job that starts again begins its step again.
    StepBegunAgain,
    /// States do not grow old.
    StatesNeverOld,
    /// When a state was touched last is no part of the commit.
    TouchNotCommitted,
}

impl Mutation {
    /// All of them.
    pub(crate) const ALL: [Mutation; 47] = [
        Mutation::FrontierNotCommitted,
        Mutation::FrontierOneShort,
        Mutation::SourcePositionNotCommitted,
        Mutation::StateLost,
        Mutation::StatesNotReadBack,
        Mutation::ChunkBeforeCommit,
        Mutation::StaleEpochAccepted,
        Mutation::TrimBeforeCovered,
        Mutation::RowsOfUndecidedEpoch,
        Mutation::QueueRowsOfUndecidedEpoch,
        Mutation::QueueRowLost,
        Mutation::QueuePositionOneShort,
        Mutation::ClampDropped,
        Mutation::AlignmentNotCommitted,
        Mutation::CreationTimeInherited,
        Mutation::InputsNotMerged,
        Mutation::TieRuleReversed,
        Mutation::DelaysIgnored,
        Mutation::GapSkipped,
        Mutation::BoundIgnored,
        Mutation::WaitsTooEarly,
        Mutation::PassedMessagesMoved,
        Mutation::StateNotMoved,
        Mutation::NewLanesFirst,
        Mutation::ReaderForgotten,
        Mutation::PartitionsRotated,
        Mutation::MapsReversed,
        Mutation::InputSilent,
        Mutation::WatermarksNotCommitted,
        Mutation::StepBeforeMessages,
        Mutation::StepLost,
        Mutation::FrontierTimeNotCommitted,
        Mutation::FutureBelieved,
        Mutation::DisorderIgnored,
        Mutation::HoldIgnored,
        Mutation::LateTaken,
        Mutation::LatenessIgnored,
        Mutation::TimerNotStored,
        Mutation::FiredTimerStays,
        Mutation::FiredTimerGoesLater,
        Mutation::TimersSwapped,
        Mutation::TimerEarly,
        Mutation::HeldTimerFires,
        Mutation::StepForgotten,
        Mutation::StepBegunAgain,
        Mutation::StatesNeverOld,
        Mutation::TouchNotCommitted,
    ];

    /// The checker that must find it, whoever else does.
    pub(crate) fn checker(self) -> Checker {
        match self {
            Mutation::StateLost
            | Mutation::StatesNotReadBack
            | Mutation::StateNotMoved
            | Mutation::StatesNeverOld
            | Mutation::TouchNotCommitted => Checker::State,
            Mutation::WatermarksNotCommitted
            | Mutation::StepBeforeMessages
            | Mutation::StepLost
            | Mutation::FrontierTimeNotCommitted
            | Mutation::FutureBelieved
            | Mutation::DisorderIgnored
            | Mutation::HoldIgnored
            | Mutation::LateTaken
            | Mutation::LatenessIgnored => Checker::Watermarks,
            Mutation::TimerNotStored
            | Mutation::FiredTimerStays
            | Mutation::FiredTimerGoesLater
            | Mutation::TimersSwapped
            | Mutation::TimerEarly
            | Mutation::HeldTimerFires
            | Mutation::StepForgotten
            | Mutation::StepBegunAgain => Checker::Timers,
            Mutation::RowsOfUndecidedEpoch
            | Mutation::QueueRowsOfUndecidedEpoch
            | Mutation::QueueRowLost => Checker::Sinks,
            Mutation::ClampDropped
            | Mutation::AlignmentNotCommitted
            | Mutation::CreationTimeInherited => Checker::Order,
            Mutation::InputsNotMerged | Mutation::TieRuleReversed | Mutation::DelaysIgnored => {
                Checker::Merge
            }
            Mutation::BoundIgnored | Mutation::WaitsTooEarly => Checker::Backpressure,
            Mutation::NewLanesFirst => Checker::Lineage,
            // Its reader waits for the end of lanes that nobody writes.
            Mutation::ReaderForgotten => Checker::Progress,
            _ => Checker::Inputs,
        }
    }

    /// The limits that a broken worker keeps.
    pub(crate) fn limit(self, limits: LaneLimits) -> LaneLimits {
        LaneLimits {
            max_bytes: match self {
                Mutation::BoundIgnored => u64::MAX,
                Mutation::WaitsTooEarly => limits.max_bytes / 8,
                _ => limits.max_bytes,
            },
            ..limits
        }
    }

    /// Plans a job the broken way.
    pub(crate) fn place(self, plan: &mut JobPlan) {
        let mut no_lanes = Vec::new();
        let lanes = match &mut plan.input {
            InputPlan::Lanes(lanes) => lanes,
            InputPlan::Source(source) => {
                match self {
                    Mutation::FutureBelieved => source.watermarks.future_limit = Duration::MAX,
                    Mutation::DisorderIgnored => {
                        source.watermarks.out_of_orderness_bound = Duration::ZERO;
                    }
                    _ => {}
                }
                &mut no_lanes
            }
        };
        match self {
            Mutation::InputsNotMerged => {
                for lane in lanes {
                    lane.delay = Duration::from_secs(3_600) * u32::from(lane.input);
                }
            }
            Mutation::TieRuleReversed => {
                let last = lanes.iter().map(|lane| lane.input).max();
                for lane in lanes {
                    lane.input = last.unwrap_or_default() - lane.input;
                }
            }
            Mutation::DelaysIgnored => {
                for lane in lanes {
                    lane.delay = Duration::ZERO;
                }
            }
            Mutation::NewLanesFirst => {
                for lane in lanes {
                    lane.retiring = match lane.retiring {
                        Some(_) => None,
                        None => Some(0),
                    };
                }
            }
            Mutation::ReaderForgotten => {
                let streams = plan.streams.iter_mut();
                for stream in streams.filter(|stream| stream.readers.len() > 1) {
                    stream.readers.pop();
                }
            }
            Mutation::PartitionsRotated => {
                let readers = plan
                    .streams
                    .iter_mut()
                    .flat_map(|stream| &mut stream.readers);
                readers.for_each(|partitions| partitions.rotate_left(1));
            }
            Mutation::MapsReversed => plan.maps.reverse(),
            Mutation::LateTaken => plan.time.late_output = None,
            Mutation::LatenessIgnored => plan.time.allowed_lateness.clear(),
            Mutation::StatesNeverOld => plan.time.state_ttls.clear(),
            Mutation::InputSilent => {
                for map in &mut plan.maps {
                    let fed = map.inputs.iter().filter(|input| input.is_some()).count();
                    if fed > 1 {
                        let mut inputs = map.inputs.iter_mut().rev();
                        if let Some(input) = inputs.find(|input| input.is_some()) {
                            *input = None;
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether rows from this key on are those of a lane that has been read before.
pub(crate) fn reads_on_in_a_lane(start: &[u8]) -> bool {
    let lane = keys::parse_chunk_lane(start);
    let epoch = keys::parse_chunk_epoch(start);
    lane.is_some() && epoch.is_some_and(|epoch| epoch > EpochId::NONE)
}
