//! THE loop. A job is one partition of a source or of a transform, with the maps chained behind
//! it; it runs under a lease and moves on in epochs.
//!
//! While an epoch is made durable the job computes the next one, which sees its states. If the first
//! is not decided both go with the job.
//!
//! **Invariant:** nothing leaves a job before the epoch that made it is committed (a sink that
//! writes by itself, at least once, is the named exception), and no position moves without what
//! follows from it. A job that meets an error ends; its successor goes on from the last commit.

mod commit;
mod files;
mod items;
mod replays;
mod rest;
mod undecodable;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::epoch::{BatchRoom, EpochIdentity, OpenEpoch};
use crate::source::SourceError;
use crate::storage::{CommitTicket, Storage, rows};
use crate::types::dead_letter::DeadLetterId;
use crate::types::epoch::{EpochTime, LaneChunk};
use crate::types::ids::EpochId;
use crate::types::lease::Lease;
use crate::types::pipeline::{EpochLimits, OnFailure};
use crate::worker::announced::JobContext;
use crate::worker::attempts::Attempts;
use crate::worker::board::LaneBoard;
use crate::worker::chain::{Chain, ChainNodes, ChainPartition};
use crate::worker::error::JobError;
use crate::worker::input::InputItems;
use crate::worker::input::lane::LaneCoverage;
use crate::worker::input::lanes::LanesInput;
use crate::worker::input::source::SourceInput;
use crate::worker::job_time::JobTime;
use crate::worker::output::LanesOutput;
use crate::worker::passed_items::PassedItems;
use crate::worker::plan::{InputPlan, JobPlan, SinkPlan, StreamPlan};
use crate::worker::progress::{EpochCounts, JobIdentity, JobProgress};
use crate::worker::source_pace::SourcePace;
use crate::worker::source_times::Activity;
use crate::worker::timers::TimersError;
use crate::worker::turns::SourceTurn;

/// One job, ready to run on a thread of its own.
pub struct Job {
    name: String,
    /// The pipeline's name.
    pipeline: String,
    identity: EpochIdentity,
    lease: Lease,
    limits: EpochLimits,
    input: JobInput,
    /// Where it stands in time.
    time: JobTime,
    chain: Chain,
    streams: Vec<StreamPlan>,
    sinks: Vec<SinkPlan>,
    /// The lanes that the job writes.
    output: LanesOutput,
    /// The epoch that storage is making durable.
    submitted: Option<(CommitTicket, SubmittedEpoch)>,
    storage: Arc<dyn Storage>,
    board: Arc<LaneBoard>,
    progress: JobProgress,
    clock: Arc<dyn Clock>,
    /// Rows given to sinks in the open epoch.
    sink_rows: u64,
    /// Items that the open epoch moves past though nothing could be made of them.
    passed: PassedItems,
    /// Requests for dead letters that the open epoch serves.
    served: Vec<DeadLetterId>,
    /// What becomes of records that the source can't decode.
    on_undecodable: OnFailure,
    /// When the source's partition may be read, where it has to wait for others.
    turn: Option<SourceTurn>,
    /// How a source's partition keeps pace with the others.
    pace: Option<SourcePace>,
    /// When the next system-time timer fires, from when it was looked for last.
    system_timer_in: Option<Duration>,
    /// Why the source can't be read on: told once what was read before it is committed.
    source_error: Option<SourceError>,
    /// Whether the epoch that is sealed is the last one of the run.
    is_finishing: bool,
}

/// An epoch on its way, and what is to be said of it once it is committed.
struct SubmittedEpoch {
    epoch: EpochId,
    chunks: Vec<LaneChunk>,
    coverage: Vec<LaneCoverage>,
    counts: EpochCounts,
    time: EpochTime,
    /// Items that it took.
    items: u64,
    /// Requests for dead letters that it serves.
    served: Vec<DeadLetterId>,
}

/// Where a job's items come from.
enum JobInput {
    Source(SourceInput),
    Lanes(LanesInput),
}

/// How a job ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// Its finite input is read to the end, and its readers have taken all that it wrote.
    Finished,
    /// The run was stopped; what is not read yet waits for the next run.
    Stopped,
}

/// What one step of a job came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// An epoch was handed to storage, or seen to be committed; there may be more to do at once.
    Advanced,
    /// Nothing to do until something changes on the board.
    Idle,
    /// The job has ended.
    Ended(JobEnd),
}

impl Job {
    /// Opens an announced job's input at its committed position.
    pub(super) fn open(
        plan: JobPlan,
        output: LanesOutput,
        context: JobContext,
    ) -> Result<Job, TimersError> {
        let head = context.storage.head(plan.lease.partition)?;
        let record = rows::read_epoch_record(&*context.storage, plan.lease.partition, head.epoch)?;
        tracing::debug!(job = plan.name, head = %head.epoch, "job opened");
        let job = JobIdentity::of(&plan);
        let alignment = record.as_ref().map_or(0, |record| record.alignment);
        let time = JobTime::open(&plan, record.map(|record| record.time));
        let (mut turn, mut pace) = (None, None);
        let mut on_undecodable = OnFailure::Fail;
        let input = match plan.input {
            InputPlan::Source(source) => {
                let partition = plan.lease.partition;
                let activity = match source.turn {
                    Some(_) => Activity::Waiting,
                    None => Activity::Reading,
                };
                pace = Some(SourcePace::new(
                    plan.name.clone(),
                    (plan.place.index as usize, plan.lease.generation),
                    source.watermarks,
                    activity,
                    &time,
                    &context.board,
                ));
                let position = rows::read_source_position(&*context.storage, partition)?;
                turn = source.turn;
                on_undecodable = source.on_failure;
                JobInput::Source(SourceInput::new(source.described, source.source, position))
            }
            InputPlan::Lanes(lanes) => JobInput::Lanes(LanesInput::open(
                &lanes,
                plan.memory.read_ahead_bytes,
                time.now(),
                &*context.storage,
                &context.board,
            )?),
        };
        let source = match &input {
            JobInput::Source(source) => Some(source.progress()),
            JobInput::Lanes(_) => None,
        };
        let nodes = ChainNodes {
            transform: plan.transform,
            maps: plan.maps,
        };
        let attempts = Attempts::open(
            plan.lease.partition,
            &plan.limits,
            (&context.storage, &context.board, &context.clock),
        )?;
        let chain = Chain::open(
            nodes,
            &plan.streams,
            &plan.time,
            plan.limits,
            plan.memory.state_cache_bytes,
            time.now(),
            ChainPartition {
                partition: plan.lease.partition,
                attempts,
                storage: &*context.storage,
            },
        )?;
        Ok(Job {
            identity: EpochIdentity {
                partition: plan.lease.partition,
                generation: plan.lease.generation,
                epoch: head.epoch.next(),
                deployment: plan.deployment,
                alignment,
            },
            chain,
            time,
            progress: context.progress.job_opened(job, source),
            name: plan.name,
            pipeline: plan.pipeline,
            lease: plan.lease,
            limits: plan.limits,
            input,
            streams: plan.streams,
            sinks: plan.sinks,
            output,
            submitted: None,
            storage: context.storage,
            board: context.board,
            clock: context.clock,
            sink_rows: 0,
            passed: PassedItems::default(),
            served: Vec::new(),
            on_undecodable,
            turn,
            pace,
            system_timer_in: None,
            source_error: None,
            is_finishing: false,
        })
    }

    /// Takes step after step on the caller's thread until the job ends.
    ///
    /// # Errors
    ///
    /// The first failure: of a guest, a source, a sink or storage, or the loss of the lease.
    pub fn run(mut self) -> Result<JobEnd, JobError> {
        let span = tracing::info_span!("job", name = self.name, partition = %self.lease.partition);
        let _entered = span.enter();
        loop {
            let version = self.board.version();
            // Looked at before the step: its turn may come right behind it, and the board says nothing of that.
            let waits_for_its_turn = self.waits_for_its_turn();
            match self.step()? {
                JobStep::Advanced => {}
                JobStep::Idle if waits_for_its_turn => self.wait_for_its_turn(),
                JobStep::Idle => self.board.wait_past(version, self.rest_at_most()),
                JobStep::Ended(end) => {
                    tracing::debug!(?end, "job ended");
                    return Ok(end);
                }
            }
        }
    }

    fn wait_for_its_turn(&self) {
        if let Some(turn) = &self.turn {
            self.board.turns().wait_for(turn);
        }
    }

    /// Computes and submits one epoch, if there is anything to do; the one before it is committed then.
    /// Never waits for another job.
    ///
    /// # Errors
    ///
    /// As [`Job::run`]. The job has ended then.
    pub fn step(&mut self) -> Result<JobStep, JobError> {
        if self.board.is_stopped() {
            self.settle()?;
            return Ok(JobStep::Ended(JobEnd::Stopped));
        }
        if self.waits_for_its_turn() {
            return self.leave_out_unread();
        }
        if self.waits_for_room() {
            return self.settle_or_idle();
        }
        if self.waits_for_others() {
            self.tell_stall(self.pace.as_ref().and_then(SourcePace::stall));
            return self.settle_or_idle();
        }
        if self.owes_beginning() {
            // On its way before the first record, so that it stays, though what follows from that one fails.
            self.submit(self.open_epoch())?;
            return Ok(JobStep::Advanced);
        }
        if self.chain.attempts().careful_rows().is_some() && self.submitted.is_some() {
            // One epoch at a time, so that what is about to be tried is known to the store.
            return self.settle_or_idle();
        }
        if self.has_letter_requests() {
            return self.serve_letters();
        }
        self.chain.attempts().take_turn();
        let mut epoch = self.open_epoch();
        if let Err(error) = self.take_items(&mut epoch) {
            // What failed may only have been computed because of an epoch that is not decided.
            self.settle()?;
            let attempts = self.chain.attempts();
            if attempts.is_interrupted() {
                return Ok(JobStep::Ended(JobEnd::Stopped));
            }
            return Err(attempts.take_failure().map_or(error, JobError::Storage));
        }
        if epoch.has_content()
            || self.has_moved_without_items()
            || self.time.owes_end_of_step()
            || self.files_due_in() == Some(Duration::ZERO)
        {
            self.submit(epoch)?;
            return Ok(JobStep::Advanced);
        }
        self.chain.attempts().pass_turn_on();
        if self.submitted.is_some() {
            return self.settle_or_idle();
        }
        if let Some(error) = self.source_error.take() {
            return Err(JobError::Source(error));
        }
        match self.input_is_ended() {
            true => self.finish(),
            false => self.rest(),
        }
    }

    /// Whether other partitions of the source are to be read first.
    fn waits_for_its_turn(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| !self.board.turns().is_at(turn))
    }

    fn open_epoch(&self) -> OpenEpoch {
        OpenEpoch::new(self.identity, self.limits, self.output.ids())
    }

    /// Whether a lane that the job writes is full; those who watch are told.
    fn waits_for_room(&self) -> bool {
        let full = self.output.full_lane(&self.board);
        if self.progress.waits_for(full)
            && let Some(lane) = full
        {
            tracing::debug!(%lane, "lane full");
        }
        full.is_some()
    }

    /// Takes items in order and runs them, batch by batch, until the epoch is full, has taken items for
    /// long enough, or there is nothing more to read for now. How long storage takes for the epoch
    /// before it makes no difference.
    fn take_items(&mut self, epoch: &mut OpenEpoch) -> Result<(), JobError> {
        let until = (self.clock.elapsed()).saturating_add(self.limits.max_duration);
        while let Some(room) = self.room(epoch) {
            if self.board.is_stopped() {
                return Ok(());
            }
            let is_careful = self.chain.attempts().careful_rows().is_some();
            if epoch.has_content() && (is_careful || self.clock.elapsed() >= until) {
                return Ok(());
            }
            if self.time.step().is_none() {
                self.begin_system_step()?;
            }
            if let Some(step) = self.time.step() {
                if self.fire_timers(epoch, room, &step)? {
                    self.settle_if_decided()?;
                }
                continue;
            }
            if epoch.has_content() && self.waits_for_others() {
                return Ok(());
            }
            let items = self.next_items(epoch, room)?;
            if epoch.items() == 0 && !matches!(items, InputItems::Nothing) {
                tracing::debug!(epoch = %epoch.id(), "epoch opened");
            }
            match items {
                InputItems::Messages(messages) => self.run_batch(epoch, messages)?,
                InputItems::Step(watermarks) => self.take_step(epoch, &watermarks),
                InputItems::PassedOver => {}
                InputItems::Nothing => return Ok(()),
            }
            // Readers are not to wait for the rest of this epoch.
            self.settle_if_decided()?;
        }
        Ok(())
    }

    /// What the next batch of an epoch may hold; `None` when the epoch is full.
    fn room(&mut self, epoch: &OpenEpoch) -> Option<BatchRoom> {
        let careful_rows = self.chain.attempts().careful_rows();
        let room = epoch.room()?;
        Some(careful_rows.map_or(room, |rows| room.at_most_rows(rows)))
    }

    fn input_is_ended(&self) -> bool {
        match &self.input {
            JobInput::Source(_) => self.time.is_at_end(),
            JobInput::Lanes(lanes) => lanes.is_ended(),
        }
    }

    /// Whether positions have moved though there was no item: by watermark steps of lanes that change
    /// nothing for the job, as their writers would wait for ever.
    fn has_moved_without_items(&self) -> bool {
        match &self.input {
            JobInput::Source(_) => false,
            JobInput::Lanes(lanes) => lanes.has_moved(),
        }
    }

    /// Whether where the source begins is to be committed, before anything is read of it.
    fn owes_beginning(&self) -> bool {
        match &self.input {
            JobInput::Source(source) => source.owes_beginning(),
            JobInput::Lanes(_) => false,
        }
    }

    /// The input is at its end: once the readers have taken everything, removes it.
    fn finish(&mut self) -> Result<JobStep, JobError> {
        self.output.close(&self.board);
        self.board.letter_requests().leave(self.lease.partition);
        if let Some(pace) = &mut self.pace {
            pace.tell(Activity::Ended, &self.time, &self.board);
        }
        if let Some(turn) = self.turn.take() {
            self.board.turns().pass_on(&turn);
        }
        if !self.output.are_covered(&self.board) {
            return Ok(JobStep::Idle);
        }
        let has_moved = match &self.input {
            JobInput::Source(source) => source.has_moved(),
            JobInput::Lanes(_) => false,
        };
        if self.output.has_chunks() || has_moved || self.has_open_files() {
            self.is_finishing = true;
            self.submit(self.open_epoch())?;
            self.settle()?;
        }
        Ok(JobStep::Ended(JobEnd::Finished))
    }
}
