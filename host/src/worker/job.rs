//! THE loop. A job is one partition of a source or of a transform, with the maps chained behind
//! it; it runs under a lease and moves on in epochs.
//!
//! While an epoch is made durable the job computes the next one, which sees its states. If the first
//! is not decided both go with the job.
//!
//! **Invariant:** nothing leaves a job before the epoch that made it is committed (a sink that
//! writes by itself, at least once, is the named exception), and no position moves without what
//! follows from it. A job that meets an error ends; its successor goes on from the last commit.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::epoch::{BatchRoom, EpochIdentity, MessageName, OpenEpoch, SealedParts};
use crate::engine::stream::InputMessages;
use crate::engine::watermark::InputWatermarks;
use crate::sink::{Sealed, SinkError, SinkMessage};
use crate::source::SourceError;
use crate::storage::{CommitOutcome, CommitTicket, Storage, StorageError, rows};
use crate::types::epoch::{EpochCommit, EpochTime, LaneChunk};
use crate::types::ids::{EpochId, PartitionId};
use crate::types::key::key_hash;
use crate::types::lease::Lease;
use crate::types::pipeline::EpochLimits;
use crate::types::timer::{TimerPlace, TimerSetting, TimerStep};
use crate::types::timestamp_runs::TimestampRuns;
use crate::types::watermark::LaneTime;
use crate::worker::announced::JobContext;
use crate::worker::board::LaneBoard;
use crate::worker::chain::{Chain, ChainError, ChainNodes};
use crate::worker::error::JobError;
use crate::worker::input::lane::LaneCoverage;
use crate::worker::input::lanes::LanesInput;
use crate::worker::input::source::SourceInput;
use crate::worker::input::{InputItems, ItemLocation};
use crate::worker::job_time::JobTime;
use crate::worker::output::LanesOutput;
use crate::worker::plan::{InputPlan, JobPlan, SinkPlan, StreamPlan};
use crate::worker::progress::{EpochCounts, JobIdentity, JobProgress};
use crate::worker::resting::{FOLLOW_INTERVAL, SourcePace};
use crate::worker::source_times::Activity;
use crate::worker::stall::Stall;
use crate::worker::timers::TimersError;
use crate::worker::turns::SourceTurn;

/// One job, ready to run on a thread of its own.
pub struct Job {
    name: String,
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
    /// When the source's partition may be read, where it has to wait for others.
    turn: Option<SourceTurn>,
    /// How a source's partition keeps pace with the others.
    pace: Option<SourcePace>,
    /// When the next system-time timer fires, from when it was looked for last.
    system_timer_in: Option<Duration>,
    /// Why the source can't be read on: told once what was read before it is committed.
    source_error: Option<SourceError>,
}

/// An epoch on its way, and what is to be said of it once it is committed.
struct SubmittedEpoch {
    epoch: EpochId,
    chunks: Vec<LaneChunk>,
    coverage: Vec<LaneCoverage>,
    counts: EpochCounts,
    time: EpochTime,
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
        let chain = Chain::open(
            nodes,
            &plan.streams,
            &plan.time,
            plan.limits,
            plan.memory.state_cache_bytes,
            time.now(),
            (plan.lease.partition, &*context.storage),
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
            turn,
            pace,
            system_timer_in: None,
            source_error: None,
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
            match self.step()? {
                JobStep::Advanced => {}
                JobStep::Idle => self.wait_past(version),
                JobStep::Ended(end) => return Ok(end),
            }
        }
    }

    /// Waits until there may be something to do again: the board has changed, or so much time has passed.
    fn wait_past(&self, version: u64) {
        match &self.turn {
            Some(turn) if self.waits_for_its_turn() => self.board.turns().wait_for(turn),
            _ => self.board.wait_past(version, self.rest_at_most()),
        }
    }

    /// How long the job may rest though the board does not change.
    fn rest_at_most(&self) -> Option<Duration> {
        match &self.input {
            JobInput::Source(source) if source.waits() => Some(FOLLOW_INTERVAL),
            _ => self.system_timer_in,
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
        if self.waits_for_room() || self.waits_for_others() {
            return self.settle_or_idle();
        }
        let mut epoch = self.open_epoch();
        if let Err(error) = self.take_items(&mut epoch) {
            // What failed may only have been computed because of an epoch that is not decided.
            self.settle()?;
            return Err(error);
        }
        if epoch.has_content() || self.has_moved_without_items() || self.time.owes_end_of_step() {
            self.submit(epoch)?;
            return Ok(JobStep::Advanced);
        }
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

    /// A partition that waits for its turn need not hold its readers' watermarks back.
    fn leave_out_unread(&mut self) -> Result<JobStep, JobError> {
        let pace = self.pace.as_ref();
        if pace.is_some_and(SourcePace::leaves_out_unread)
            && let Some(time) = self.time.set_idle(true)
        {
            return self.submit_step(time);
        }
        if let (Some(pace), JobInput::Source(source)) = (pace, &self.input)
            && !pace.leaves_out_unread()
        {
            let partition = source.name().to_owned();
            self.tell_stall(Some(Stall::NotBegun { partition }));
        }
        self.settle_or_idle()
    }

    /// Tells those who watch why the watermark stands still, if it does.
    fn tell_stall(&self, stall: Option<Stall>) {
        if self.progress.holds(stall.clone())
            && let Some(stall) = stall
        {
            tracing::info!(reason = %stall, "watermark stands still");
        }
    }

    /// There is nothing to read for now, and nothing on its way to storage.
    fn rest(&mut self) -> Result<JobStep, JobError> {
        let elapsed = self.clock.elapsed();
        let told = match (&mut self.pace, &self.input) {
            (Some(pace), JobInput::Source(source)) if source.waits() => {
                pace.rest(elapsed, &mut self.time, &self.board)
            }
            _ => None,
        };
        if let Some(pace) = &self.pace {
            self.tell_stall(pace.stall());
        }
        match told {
            Some(time) => self.submit_step(time),
            None => Ok(JobStep::Idle),
        }
    }

    /// Hands over an epoch that only tells readers the time.
    fn submit_step(&mut self, time: LaneTime) -> Result<JobStep, JobError> {
        let mut epoch = self.open_epoch();
        epoch.send_step(time);
        self.submit(epoch)?;
        Ok(JobStep::Advanced)
    }

    /// Whether others of the source's partitions are to catch up first.
    fn waits_for_others(&self) -> bool {
        let pace = self.pace.as_ref();
        pace.is_some_and(|pace| pace.is_too_far_ahead(&self.board))
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

    /// Takes items in order and runs them, batch by batch, until the epoch is full or there is
    /// nothing more to read for now.
    fn take_items(&mut self, epoch: &mut OpenEpoch) -> Result<(), JobError> {
        while let Some(room) = epoch.room() {
            if self.board.is_stopped() {
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
            let items = self.next_items(room)?;
            if epoch.items() == 0 && !matches!(items, InputItems::Nothing) {
                tracing::debug!(epoch = %epoch.id(), "epoch opened");
            }
            match items {
                InputItems::Messages(messages) => self.run_batch(epoch, messages)?,
                InputItems::Step(watermarks) => self.take_step(epoch, &watermarks),
                InputItems::Nothing => return Ok(()),
            }
            // Readers are not to wait for the rest of this epoch.
            self.settle_if_decided()?;
        }
        Ok(())
    }

    /// What comes next in the job's one sequence of input.
    fn next_items(&mut self, room: BatchRoom) -> Result<InputItems, JobError> {
        match &mut self.input {
            // What comes behind the end that readers were told of is the next run's.
            JobInput::Source(_) if self.time.is_at_end() => Ok(InputItems::Nothing),
            JobInput::Source(source) => {
                let room = room.at_most_rows(self.time.records_left());
                let records = source.next(room);
                self.source_error = None;
                Ok(match records {
                    Ok(records) if records.is_empty() && source.is_ended() => {
                        InputItems::Step(InputWatermarks::at_end(1))
                    }
                    Ok(records) if records.is_empty() => InputItems::Nothing,
                    Ok(records) => InputItems::Messages(records),
                    Err(error) => {
                        self.source_error = Some(error);
                        InputItems::Nothing
                    }
                })
            }
            JobInput::Lanes(lanes) => {
                let room = room.at_most_rows(self.chain.suggested_rows());
                Ok(lanes.next(room, &*self.storage, &self.board)?)
            }
        }
    }

    /// Takes a watermark step.
    fn take_step(&mut self, epoch: &mut OpenEpoch, watermarks: &InputWatermarks) {
        epoch.add_step(watermarks.of_inputs());
        self.time.take_step(watermarks);
        self.chain.set_time(self.time.now());
    }

    /// If the host's clock has come to the first system-time timer, that is a step too. Not at the end of the
    /// input: readers may be gone by then, so what is not due waits for the next run.
    fn begin_system_step(&mut self) -> Result<(), JobError> {
        let next = self.chain.next_system_timer(&*self.storage)?;
        self.system_timer_in = None;
        if let Some(next) = next
            && !self.time.is_at_end()
        {
            let now = self.clock.now();
            match next.checked_sub(now) {
                Some(left) if left > 0 => self.system_timer_in = Some(Duration::from_millis(left)),
                _ => self.time.begin_system_step(now),
            }
        }
        Ok(())
    }

    /// Fires the next due timers of a step. Once there is none, tells readers how far the job is, and
    /// answers no.
    fn fire_timers(
        &mut self,
        epoch: &mut OpenEpoch,
        room: BatchRoom,
        step: &TimerStep,
    ) -> Result<bool, JobError> {
        let room = room.at_most_rows(self.chain.suggested_rows());
        let due = self.chain.due_timers(step, room, &*self.storage)?;
        let Some(due) = due else {
            let hold = self.chain.timers_hold_at(&*self.storage)?;
            if let Some(time) = self.time.end_step(hold) {
                epoch.send_step(time);
            }
            return Ok(false);
        };
        let partition = self.lease.partition;
        let setting = self.timer_setting();
        let fired = self
            .chain
            .fire(&due, step, setting, epoch, &*self.storage)
            .map_err(|error| {
                let locate = |items: &Range<u32>| {
                    let TimerPlace {
                        trigger_time,
                        stream,
                        key,
                    } = self.chain.place_of_timer(&due, items.start as usize);
                    ItemLocation::Timer {
                        stream,
                        key,
                        trigger_time,
                    }
                };
                chain_failed(error, partition, epoch.id(), locate)
            })?;
        let last = self.chain.place_of_timer(&due, fired - 1);
        self.time.fired(step, fired, last);
        let mut times = TimestampRuns::default();
        times.push_many(setting.now, fired);
        self.route(epoch, &times)?;
        Ok(true)
    }

    /// What timers that are set now are set by.
    fn timer_setting(&self) -> TimerSetting {
        TimerSetting {
            now: self.clock.now(),
            run: self.time.now().run,
            at_end: self.time.is_at_end(),
        }
    }

    /// Runs one batch through the chain and routes what leaves it.
    fn run_batch(&mut self, epoch: &mut OpenEpoch, input: InputMessages) -> Result<(), JobError> {
        epoch.add_input(&input);
        let partition = self.lease.partition;
        let (times, count) = (self.times_of(&input), input.len());
        let late = self.time.late_items(&input);
        let setting = self.timer_setting();
        self.chain
            .run(input, &late, setting, epoch, &*self.storage)
            .map_err(|error| {
                let locate = |items: &Range<u32>| locate(&self.input, items);
                chain_failed(error, partition, epoch.id(), locate)
            })?;
        if self.pace.is_some()
            && let Some(time) = self.time.set_idle(false)
        {
            epoch.send_step(time);
        }
        self.route(epoch, &times)?;
        if let Some(time) = self.time.count_records(count) {
            epoch.send_step(time);
        }
        if let Some(pace) = &mut self.pace
            && pace.tell(Activity::Reading, &self.time, &self.board)
        {
            self.tell_stall(None);
        }
        Ok(())
    }

    /// Names the messages that the last batch led to and puts them into lanes and sinks. `times` has the
    /// write or creation time of what follows from each item.
    fn route(&mut self, epoch: &mut OpenEpoch, times: &TimestampRuns) -> Result<(), JobError> {
        let mut sink_error = None;
        self.chain.visit_leaving(|place, at| {
            let (stream, messages) = (&self.streams[place], self.chain.stream(place));
            let index = epoch.next_index();
            let time = times.get(messages.roots[at] as usize);
            self.time.observe(messages.event_times[at], time);
            let alignment = epoch.align(time);
            if self.output.is_read(place) {
                let name = MessageName {
                    index,
                    key_hash: key_hash(messages.keys.get(at)),
                    alignment,
                };
                for lane in self.output.route(place, name.key_hash) {
                    epoch.send(lane, name, messages, at);
                }
            }
            for sink in &stream.sinks {
                self.sink_rows += 1;
                epoch.add_output_bytes(messages.payloads.get(at).len());
                let message = SinkMessage {
                    stream: &stream.name,
                    index,
                    payload: messages.payloads.get(at),
                };
                if let Err(error) = self.sinks[*sink].sink.add(message) {
                    sink_error.get_or_insert((*sink, error));
                }
            }
        });
        match sink_error {
            Some((sink, error)) => Err(self.sink_failed(sink, error)),
            None => Ok(()),
        }
    }

    /// When the items of a batch were written, for records of a source, or else the moment at which
    /// what follows from them is created.
    fn times_of(&self, input: &InputMessages) -> TimestampRuns {
        match &self.input {
            JobInput::Source(source) => source.write_times().clone(),
            JobInput::Lanes(_) => {
                let mut times = TimestampRuns::default();
                times.push_many(self.clock.now(), input.len());
                times
            }
        }
    }

    /// Hands the epoch to storage, as soon as the one before it is committed.
    fn submit(&mut self, epoch: OpenEpoch) -> Result<(), JobError> {
        let input_messages = epoch.input_messages();
        let sealed = self.seal_parts();
        // If that one is not decided, it is why, whatever else went wrong.
        self.settle()?;
        let (parts, coverage) = sealed?;
        let commit = epoch.seal(parts);
        let counts = EpochCounts {
            input_messages,
            output_messages: commit.record.output_count,
            sink_rows: std::mem::take(&mut self.sink_rows),
            source_bytes: match &mut self.input {
                JobInput::Source(source) => source.bytes_advanced(),
                JobInput::Lanes(_) => 0,
            },
        };
        self.submitted = Some(self.hand_over(commit, coverage, counts));
        self.chain.shrink(1);
        if let Some(hot_keys) = self.chain.hot_keys() {
            self.progress.hot_keys(hot_keys);
        }
        Ok(())
    }

    fn hand_over(
        &mut self,
        commit: EpochCommit,
        coverage: Vec<LaneCoverage>,
        counts: EpochCounts,
    ) -> (CommitTicket, SubmittedEpoch) {
        let (epoch, chunks) = (commit.epoch, commit.chunks.clone());
        let time = commit.record.time.clone();
        self.identity.epoch = epoch.next();
        self.identity.alignment = commit.record.alignment;
        self.output.submitted(&chunks);
        let submitted = SubmittedEpoch {
            epoch,
            chunks,
            coverage,
            counts,
            time,
        };
        (self.storage.submit_epoch(self.lease, commit), submitted)
    }

    /// Everything that the epoch commits beside its messages, and what lanes' writers are to be told
    /// then.
    fn seal_parts(&mut self) -> Result<(SealedParts, Vec<LaneCoverage>), JobError> {
        let mut parts = SealedParts {
            trims: self.output.take_trims(&self.board),
            ..SealedParts::default()
        };
        let mut coverage = Vec::new();
        match &mut self.input {
            JobInput::Source(source) => parts.source_position = Some(source.seal()),
            JobInput::Lanes(lanes) => (parts.frontiers, coverage) = lanes.seal(),
        }
        self.chain.sweep(&*self.storage)?;
        if let Some(states) = self.chain.states() {
            parts.states = states.take_changes();
        }
        let pending;
        (parts.timers, pending) = self.chain.take_timer_changes();
        parts.time = self.time.seal(pending, self.chain.state_ages());
        for place in 0..self.sinks.len() {
            match self.sinks[place].sink.seal() {
                Ok(Sealed::Nothing) => {}
                Ok(Sealed::Append(bytes)) => {
                    let file = self.sinks[place].file.expect("only file sinks yield bytes");
                    parts.appends.push((file, bytes));
                }
                Err(error) => return Err(self.sink_failed(place, error)),
            }
        }
        Ok((parts, coverage))
    }

    /// Waits until the submitted epoch is decided, if there is one; once it is, hands its chunks on, tells
    /// writers how far their lanes are read, and counts.
    fn settle(&mut self) -> Result<(), JobError> {
        match self.submitted.take() {
            Some((ticket, submitted)) => self.take_decision(ticket.wait(), submitted),
            None => Ok(()),
        }
    }

    /// As [`Job::settle`], if the submitted epoch is decided already.
    fn settle_if_decided(&mut self) -> Result<(), JobError> {
        let decision = self
            .submitted
            .as_ref()
            .and_then(|(ticket, _)| ticket.try_wait());
        match (decision, self.submitted.take()) {
            (Some(decision), Some((_, submitted))) => self.take_decision(decision, submitted),
            (_, submitted) => {
                self.submitted = submitted;
                Ok(())
            }
        }
    }

    fn take_decision(
        &mut self,
        decision: Result<CommitOutcome, StorageError>,
        submitted: SubmittedEpoch,
    ) -> Result<(), JobError> {
        let epoch = submitted.epoch;
        match decision? {
            CommitOutcome::Committed(_) => {}
            CommitOutcome::Refused(refusal) => return Err(JobError::Refused(refusal)),
            CommitOutcome::Unknown => {
                return Err(JobError::OutcomeUnknown {
                    partition: self.lease.partition,
                    epoch,
                });
            }
        }
        let EpochCounts {
            input_messages,
            output_messages,
            ..
        } = submitted.counts;
        tracing::debug!(%epoch, input_messages, output_messages, "epoch committed");
        if submitted.time.fired_count > 0 {
            tracing::debug!(%epoch, timers = submitted.time.fired_count, "timers fired");
        }
        self.output.committed(epoch, &submitted.chunks, &self.board);
        let coverage = submitted.coverage.into_iter();
        coverage.for_each(|lane| lane.tell(&self.board));
        self.progress.epoch_committed(submitted.counts);
        self.progress.time(&submitted.time);
        Ok(())
    }

    /// There is nothing to compute: sees the submitted epoch committed, if there is one.
    fn settle_or_idle(&mut self) -> Result<JobStep, JobError> {
        if self.submitted.is_none() {
            return Ok(JobStep::Idle);
        }
        self.settle()?;
        Ok(JobStep::Advanced)
    }

    fn input_is_ended(&self) -> bool {
        match &self.input {
            JobInput::Source(_) => self.time.is_at_end(),
            JobInput::Lanes(lanes) => lanes.is_ended(),
        }
    }

    /// Whether positions have moved though there was no item: by watermark steps of lanes that change
    /// nothing for the job. Their writers would wait for ever.
    fn has_moved_without_items(&self) -> bool {
        match &self.input {
            JobInput::Source(_) => false,
            JobInput::Lanes(lanes) => lanes.has_moved(),
        }
    }

    /// The input is at its end: once the readers have taken everything, removes it.
    fn finish(&mut self) -> Result<JobStep, JobError> {
        self.output.close(&self.board);
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
        if self.output.has_chunks() || has_moved {
            self.submit(self.open_epoch())?;
            self.settle()?;
        }
        Ok(JobStep::Ended(JobEnd::Finished))
    }

    fn sink_failed(&self, place: usize, error: SinkError) -> JobError {
        JobError::Sink {
            sink: self.sinks[place].name.clone(),
            source: error,
        }
    }
}

fn chain_failed(
    error: ChainError,
    partition: PartitionId,
    epoch: EpochId,
    locate: impl Fn(&Range<u32>) -> ItemLocation,
) -> JobError {
    match error {
        ChainError::Storage(error) => JobError::Storage(error),
        ChainError::TooMuch {
            computation,
            size_bytes,
        } => JobError::ChainTooLarge {
            computation,
            partition,
            epoch,
            size_bytes,
        },
        ChainError::Guest(failure) => JobError::Guest {
            computation: failure.computation,
            partition,
            epoch,
            location: locate(&failure.items),
            source: Box::new(failure.error),
        },
    }
}

fn locate(input: &JobInput, items: &Range<u32>) -> ItemLocation {
    match input {
        JobInput::Source(source) => source.locate(items),
        JobInput::Lanes(lanes) => lanes.locate(items),
    }
}
