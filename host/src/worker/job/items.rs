//! What a job does with the items of its input: records and messages in batches, watermark steps, due timers;
//! and where what follows from them goes.

use std::ops::Range;
use std::time::Duration;

use crate::engine::epoch::{BatchRoom, MessageName, OpenEpoch};
use crate::engine::public_ids::PublicIds;
use crate::engine::stream::InputMessages;
use crate::engine::watermark::InputWatermarks;
use crate::sink::{SinkError, SinkMessage};
use crate::storage::letter_rows::letter_size_bound;
use crate::types::batch::Timestamp;
use crate::types::dead_letter::DeadLetter;
use crate::types::epoch::Checksum;
use crate::types::ids::{EpochId, PartitionId, PublicId};
use crate::types::key::key_hash;
use crate::types::timer::{TimerPlace, TimerSetting, TimerStep};
use crate::types::timestamp_runs::TimestampRuns;
use crate::worker::attempts::NextAttempt;
use crate::worker::chain::{ChainError, KeptItem};
use crate::worker::error::JobError;
use crate::worker::input::{InputItems, ItemLocation};
use crate::worker::plan::SinkTarget;
use crate::worker::source_times::Activity;
use crate::worker::timers::DueTimers;

use super::{Job, JobInput};

impl Job {
    /// What comes next in the job's one sequence of input.
    pub(super) fn next_items(
        &mut self,
        epoch: &mut OpenEpoch,
        room: BatchRoom,
    ) -> Result<InputItems, JobError> {
        match &mut self.input {
            // What comes behind the end that readers were told of is the next run's.
            JobInput::Source(_) if self.time.is_at_end() => Ok(InputItems::Nothing),
            JobInput::Source(source) => {
                let room = room.at_most_rows(self.time.records_left());
                let records = source.next(room, self.clock.elapsed());
                let (is_ended, undecodable) = (source.is_ended(), source.take_undecodable());
                self.source_error = None;
                let passed_any = !undecodable.is_empty();
                self.pass_over(epoch, undecodable);
                Ok(match records {
                    Ok(records) if !records.is_empty() => InputItems::Messages(records),
                    Ok(_) if is_ended => InputItems::Step(InputWatermarks::at_end(1)),
                    Ok(_) if passed_any => InputItems::PassedOver,
                    Ok(_) => InputItems::Nothing,
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
    pub(super) fn take_step(&mut self, epoch: &mut OpenEpoch, watermarks: &InputWatermarks) {
        epoch.add_step(watermarks.of_inputs());
        self.time.take_step(watermarks);
        self.chain.set_time(self.time.now());
    }

    /// If the host's clock has come to the first system-time timer, that is a step too. Not at the end of the
    /// input: readers may be gone by then, so what is not due waits for the next run.
    pub(super) fn begin_system_step(&mut self) -> Result<(), JobError> {
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
    pub(super) fn fire_timers(
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
        let first = self.chain.place_of_timer(&due, 0);
        let item = || timer_checksum(&first);
        let fired = match self.begin_attempt(item)? {
            NextAttempt::Begun => (self.chain).fire(&due, step, setting, epoch, &*self.storage),
            NextAttempt::GivenUp { attempts } => {
                let given_up = self
                    .chain
                    .give_up_timer(&due, attempts, epoch, &*self.storage);
                given_up.map(|()| 1)
            }
        };
        let fired = fired.map_err(|error| {
            let locate = |items: &Range<u32>| {
                timer_location(self.chain.place_of_timer(&due, items.start as usize))
            };
            chain_failed(error, partition, epoch.id(), locate)
        })?;
        let places = |item: u32| timer_location(self.chain.place_of_timer(&due, item as usize));
        let locations: Vec<ItemLocation> = (self.chain.passed().iter())
            .map(|passed| places(passed.root))
            .collect();
        self.keep_passed(epoch, locations);
        let last = self.chain.place_of_timer(&due, fired - 1);
        self.time.fired(step, fired, last);
        let times = TimestampRuns::repeated(setting.now, fired);
        let ids = match self.chain.keeps_origins() {
            true => self.ids_of_timers(step, &due, fired),
            false => Vec::new(),
        };
        self.route(epoch, &times, &ids).map_err(|refused| {
            let item = refused.item as usize;
            let location = timer_location(self.chain.place_of_timer(&due, item));
            self.sink_failed(refused.sink, Some(location), refused.error)
        })?;
        Ok(true)
    }

    /// What timers that are set now are set by.
    pub(super) fn timer_setting(&self) -> TimerSetting {
        TimerSetting {
            now: self.clock.now(),
            at_end: self.time.is_at_end(),
        }
    }

    /// Runs one batch through the chain and routes what leaves it.
    pub(super) fn run_batch(
        &mut self,
        epoch: &mut OpenEpoch,
        input: InputMessages,
    ) -> Result<(), JobError> {
        epoch.add_input(&input);
        let partition = self.lease.partition;
        let setting = self.timer_setting();
        let (times, count) = (self.times_of(&input, setting.now), input.len());
        let late = self.time.late_items(&input);
        let ran = match self.begin_attempt(|| message_checksum(&input))? {
            NextAttempt::Begun => (self.chain).run(input, &late, setting, epoch, &*self.storage),
            NextAttempt::GivenUp { attempts } => {
                self.chain.give_up(input, attempts, epoch, &*self.storage)
            }
        };
        ran.map_err(|error| {
            let locate = |items: &Range<u32>| locate(&self.input, items);
            chain_failed(error, partition, epoch.id(), locate)
        })?;
        let locations: Vec<ItemLocation> = (self.chain.passed().iter())
            .map(|passed| locate(&self.input, &(passed.root..passed.root + 1)))
            .collect();
        self.keep_passed(epoch, locations);
        if self.pace.is_some()
            && let Some(time) = self.time.set_idle(false)
        {
            epoch.send_step(time);
        }
        let ids = match (self.chain.keeps_origins(), &self.input) {
            (false, _) => Vec::new(),
            (true, JobInput::Source(source)) => source.public_ids(partition),
            (true, JobInput::Lanes(lanes)) => lanes.public_ids(),
        };
        self.route(epoch, &times, &ids).map_err(|refused| {
            let location = locate(&self.input, &(refused.item..refused.item + 1));
            self.sink_failed(refused.sink, Some(location), refused.error)
        })?;
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

    /// What the first of some due timers are known by.
    fn ids_of_timers(&self, step: &TimerStep, due: &DueTimers, count: usize) -> Vec<PublicId> {
        let (partition, run) = (self.lease.partition, self.time.now().run);
        let places = (0..count).map(|index| self.chain.place_of_timer(due, index));
        let clock = (step.domain, step.until);
        places
            .map(|place| PublicId::of_timer(partition, run, clock, &place))
            .collect()
    }

    /// Writes down, where the job is careful, that it is about to process what it has taken.
    fn begin_attempt(&mut self, item: impl FnOnce() -> Checksum) -> Result<NextAttempt, JobError> {
        match self.chain.attempts_max() {
            Some(attempts_max) => Ok(self.chain.attempts().begin(attempts_max, item)?),
            None => Ok(NextAttempt::Begun),
        }
    }

    /// Takes the items of the last batch that computations were passed over for into the epoch; `locations` says where
    /// each comes from.
    pub(super) fn keep_passed(&mut self, epoch: &mut OpenEpoch, locations: Vec<ItemLocation>) {
        for (passed, location) in self.chain.take_passed().into_iter().zip(locations) {
            let Some(kept) = passed.kept else {
                self.passed.skipped += 1;
                continue;
            };
            let KeptItem {
                origin,
                item,
                failure,
                attempts,
            } = *kept;
            tracing::debug!(computation = origin.name(),
                class = failure.class,
                %location,
                "item dead-lettered"
            );
            let letter = DeadLetter {
                pipeline: self.pipeline.clone(),
                deployment: self.identity.deployment,
                written: self.clock.now(),
                origin,
                item,
                root: location.message_id(),
                location: location.to_string(),
                failure,
                attempts,
            };
            epoch.add_output_bytes(letter_size_bound(&letter));
            self.passed.letters.push(letter);
        }
    }

    /// Names the messages that the last batch led to and puts them into lanes and sinks. `times` has the
    /// write or creation time of what follows from each item, `ids` what each item is known by, where messages may
    /// go back to several.
    pub(super) fn route(
        &mut self,
        epoch: &mut OpenEpoch,
        times: &TimestampRuns,
        ids: &[PublicId],
    ) -> Result<(), RefusedMessage> {
        let mut refused = None;
        let mut public_ids = PublicIds::new(ids);
        self.chain.visit_leaving(|place, at| {
            let (stream, messages) = (&self.streams[place], self.chain.stream(place));
            let index = epoch.next_index();
            let time = times.get(messages.roots[at] as usize);
            self.time.observe(messages.event_times[at], time);
            let alignment = epoch.align(time);
            let public_id = match messages.origins.is_empty() {
                true => None,
                false => Some(public_ids.next(stream.id, messages.origins.get(at))),
            };
            if self.output.is_read(place) {
                let name = MessageName {
                    index,
                    key_hash: key_hash(messages.keys.get(at)),
                    alignment,
                    public_id,
                };
                for lane in self.output.route(place, name.key_hash) {
                    epoch.send(lane, name, messages, at);
                }
            }
            for sink in &stream.sinks {
                self.sink_rows += 1;
                let key_bytes = match self.sinks[*sink].target {
                    SinkTarget::Queue(_) => messages.keys.get(at).len(),
                    _ => 0,
                };
                epoch.add_output_bytes(messages.payloads.get(at).len() + key_bytes);
                let message = SinkMessage {
                    stream: &stream.name,
                    index,
                    public_id,
                    key: messages.keys.get(at),
                    event_time: messages.event_times[at],
                    payload: messages.payloads.get(at),
                };
                if let Err(error) = self.sinks[*sink].sink.add(message) {
                    refused.get_or_insert(RefusedMessage {
                        sink: *sink,
                        item: messages.roots[at],
                        error,
                    });
                }
            }
        });
        refused.map_or(Ok(()), Err)
    }

    /// When the items of a batch were written, for records of a source, or else `now`, when what follows
    /// from them is created.
    fn times_of(&self, input: &InputMessages, now: Timestamp) -> TimestampRuns {
        match &self.input {
            JobInput::Source(source) => source.write_times().clone(),
            JobInput::Lanes(_) => TimestampRuns::repeated(now, input.len()),
        }
    }

    pub(super) fn sink_failed(
        &self,
        place: usize,
        location: Option<ItemLocation>,
        error: SinkError,
    ) -> JobError {
        JobError::Sink {
            sink: self.sinks[place].name.clone(),
            location: location.map(Box::new),
            source: error,
        }
    }
}

/// A message that a sink did not take.
pub(super) struct RefusedMessage {
    /// The sink's place among the job's.
    pub(super) sink: usize,
    /// The item of the batch that it goes back to.
    item: u32,
    pub(super) error: SinkError,
}

/// What a due timer is known by while it is tried.
fn timer_checksum(place: &TimerPlace) -> Checksum {
    let time = place.trigger_time.to_le_bytes();
    let stream = place.stream.as_bytes();
    Checksum::of(&[&time[..], stream, &[0], &place.key].concat())
}

/// What the first message of some is known by while it is tried.
fn message_checksum(input: &InputMessages) -> Checksum {
    let first = [
        &input
            .streams
            .first()
            .copied()
            .unwrap_or_default()
            .to_le_bytes()[..],
        &input
            .event_times
            .first()
            .copied()
            .unwrap_or_default()
            .to_le_bytes(),
        &(input.keys.ends.first().copied().unwrap_or_default()).to_le_bytes(),
        input.keys.iter().next().unwrap_or_default(),
        input.payloads.iter().next().unwrap_or_default(),
    ];
    Checksum::of(&first.concat())
}

fn timer_location(place: TimerPlace) -> ItemLocation {
    let TimerPlace {
        trigger_time,
        stream,
        key,
    } = place;
    ItemLocation::Timer {
        stream,
        key,
        trigger_time,
    }
}

pub(super) fn chain_failed(
    error: ChainError,
    partition: PartitionId,
    epoch: EpochId,
    locate: impl Fn(&Range<u32>) -> ItemLocation,
) -> JobError {
    match error {
        ChainError::Storage(error) => JobError::Storage(error),
        ChainError::KeyTooLong {
            computation,
            item,
            size_bytes,
        } => JobError::KeyTooLong {
            computation,
            partition,
            epoch,
            location: Box::new(locate(&(item..item + 1))),
            size_bytes,
        },
        ChainError::TooMuch {
            computation,
            size_bytes,
        } => JobError::ChainTooLarge {
            computation,
            partition,
            epoch,
            size_bytes,
        },
        ChainError::GivenUp {
            computation,
            attempts,
        } => JobError::GivenUp {
            computation,
            partition,
            epoch,
            location: Box::new(locate(&(0..1))),
            attempts,
        },
        ChainError::Guest(failure) => JobError::Guest {
            computation: failure.computation,
            partition,
            epoch,
            location: Box::new(locate(&failure.items)),
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
