//! Where a job stands in time: the watermarks of its input, what it has told its readers, and what
//! each of its epochs commits of that.
//!
//! **Invariant:** of a transform all of it changes at watermark steps of its input and nowhere else, so that it
//! depends on the sequence of items and never on how that was cut into epochs. A source's partition makes
//! that sequence: by its records, and by the clock where it has none.

use crate::engine::generator::WatermarkGenerator;
use crate::engine::stream::InputMessages;
use crate::engine::watermark::InputWatermarks;
use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::epoch::{EpochTime, StateAges};
use crate::types::pipeline::WatermarkOptions;
use crate::types::timer::{TimerPlace, TimerStep};
use crate::types::watermark::{END_OF_TIME, LaneTime};
use crate::worker::plan::{InputPlan, JobPlan, SourcePlan};

/// The time of one job.
pub(super) struct JobTime {
    /// As the next epoch commits it.
    now: EpochTime,
    /// Of a job that reads a source.
    generator: Option<WatermarkGenerator>,
    /// Whether the inputs are idle, as of the last step.
    is_idle: bool,
    /// A step by the host's clock that is not done: up to which moment, and the last timer that fired
    /// in it.
    system_step: Option<(Timestamp, TimerPlace)>,
    /// For each input how far behind the watermark a message may be without being late.
    allowed_lateness: Vec<Timestamp>,
    /// Whether the last epoch said that its step is not done.
    is_step_recorded: bool,
}

impl JobTime {
    /// Goes on from the record of the partition's last epoch. In a new run watermarks begin again.
    pub(super) fn open(plan: &JobPlan, committed: Option<EpochTime>) -> JobTime {
        let mut committed = committed.unwrap_or_default();
        if let InputPlan::Source(SourcePlan { reads_on: true, .. }) = plan.input {
            committed.input_watermarks.clear();
        }
        let now = match committed.run == plan.run {
            true => committed,
            false => EpochTime {
                run: plan.run,
                latest_watermark: committed.latest_watermark,
                ages: committed.ages,
                pending_timers: committed.pending_timers,
                ..EpochTime::default()
            },
        };
        let watermarks = match &plan.input {
            InputPlan::Source(source) => Some(&source.watermarks),
            InputPlan::Lanes(_) => None,
        };
        JobTime::standing_at(now, watermarks, plan.time.allowed_lateness.clone())
    }

    /// That of a job which stands there; `watermarks` is how a source's partition makes them.
    pub(super) fn standing_at(
        now: EpochTime,
        watermarks: Option<&WatermarkOptions>,
        allowed_lateness: Vec<Timestamp>,
    ) -> JobTime {
        JobTime {
            generator: watermarks.map(|options| WatermarkGenerator::new(options, now.generator)),
            is_idle: now.output.is_idle,
            is_step_recorded: now.fired_up_to.is_some(),
            now: now.without_counts(),
            system_step: None,
            allowed_lateness,
        }
    }

    /// As of the last step.
    pub(super) fn now(&self) -> &EpochTime {
        &self.now
    }

    /// The least watermark of the inputs: what timers and lateness go by.
    pub(super) fn watermark(&self) -> Timestamp {
        self.now.watermark().unwrap_or(0)
    }

    /// Whether the inputs are at their end in this run.
    pub(super) fn is_at_end(&self) -> bool {
        self.watermark() == END_OF_TIME
    }

    // ------------------------------------------------------------------------- steps of the input

    /// The watermarks of the inputs are these from here on. The step is done with
    /// [`JobTime::end_step`].
    pub(super) fn take_step(&mut self, watermarks: &InputWatermarks) {
        self.now.step_count += 1;
        self.now.input_watermarks = watermarks.of_inputs().to_vec();
        self.is_idle = watermarks.is_idle();
        // Before every timer: none has fired.
        self.now.fired_up_to = Some(TimerPlace::default());
        let watermark = self.watermark();
        if watermark != END_OF_TIME {
            self.now.latest_watermark = self.now.latest_watermark.max(watermark);
        }
    }

    /// The clock has come to a system-time timer.
    pub(super) fn begin_system_step(&mut self, now: Timestamp) {
        self.now.step_count += 1;
        self.system_step = Some((now, TimerPlace::default()));
    }

    /// The step that is not done, if there is one. One by the clock is only known to this job: a successor
    /// begins one of its own.
    pub(super) fn step(&self) -> Option<TimerStep> {
        let system_step = || {
            let (until, behind) = self.system_step.clone()?;
            Some(TimerStep {
                domain: TimeDomain::SystemTime,
                until,
                behind,
            })
        };
        match &self.now.fired_up_to {
            Some(behind) => Some(TimerStep {
                domain: TimeDomain::EventTime,
                until: self.watermark(),
                behind: behind.clone(),
            }),
            None => system_step(),
        }
    }

    /// Timers of the step have fired, the last one of them here.
    pub(super) fn fired(&mut self, step: &TimerStep, count: usize, last: TimerPlace) {
        self.now.fired_count += count as u64;
        match (step.domain, &mut self.system_step) {
            (TimeDomain::EventTime, _) => self.now.fired_up_to = Some(last),
            (TimeDomain::SystemTime, Some((_, behind))) => *behind = last,
            (TimeDomain::SystemTime, None) => {}
        }
    }

    /// No timer is due any more in the step, and the first pending one holds the watermark at `hold`.
    /// What readers are to be told.
    pub(super) fn end_step(&mut self, hold: Option<Timestamp>) -> Option<LaneTime> {
        if self.now.fired_up_to.take().is_none() {
            self.system_step = None;
        }
        let watermark = match (self.watermark(), hold) {
            // The end of the lanes tells that.
            (END_OF_TIME, _) => self.now.output.watermark,
            (watermark, hold) => hold.map_or(watermark, |hold| hold.min(watermark)),
        };
        self.tell(LaneTime {
            watermark,
            is_idle: self.is_idle,
        })
    }

    /// Whether the last epoch says that its step is not done, and now it is: that has to be said, as a run
    /// is over when all of its steps are.
    pub(super) fn owes_end_of_step(&self) -> bool {
        self.is_step_recorded && self.now.fired_up_to.is_none()
    }

    /// The messages of a batch that are late, as indexes into it, rising. They are counted.
    pub(super) fn late_items(&mut self, input: &InputMessages) -> Vec<u32> {
        let watermark = self.watermark();
        if watermark == 0 {
            return Vec::new();
        }
        let is_late = |(stream, event_time): (&u16, &Timestamp)| {
            let lateness = self.allowed_lateness.get(usize::from(*stream));
            *event_time != 0 && event_time.saturating_add(*lateness.unwrap_or(&0)) < watermark
        };
        let items = input.streams.iter().zip(&input.event_times);
        let late: Vec<u32> = (0..)
            .zip(items)
            .filter(|(_, item)| is_late(*item))
            .map(|(index, _)| index)
            .collect();
        self.now.late_count += late.len() as u64;
        late
    }

    // ----------------------------------------------------------------------- records of a source

    /// How many records the next batch may have at most.
    pub(super) fn records_left(&self) -> usize {
        (self.generator.as_ref()).map_or(usize::MAX, WatermarkGenerator::records_left)
    }

    /// A message left the chain whose record was written at `write_time`.
    pub(super) fn observe(&mut self, event_time: Timestamp, write_time: Timestamp) {
        if let Some(generator) = &mut self.generator {
            self.now.future_count += u64::from(generator.observe(event_time, write_time));
        }
    }

    /// The watermark of a source's partition as of what it has read; 0 before the first event time.
    pub(super) fn read_watermark(&self) -> Timestamp {
        (self.generator.as_ref()).map_or(0, WatermarkGenerator::watermark)
    }

    /// Records were read and run. Where a watermark is due, what readers are to be told.
    pub(super) fn count_records(&mut self, records: usize) -> Option<LaneTime> {
        let generator = self.generator.as_mut()?;
        let due = generator.count(records);
        self.now.generator = generator.time();
        due.and_then(|watermark| self.raise_output(watermark))
    }

    // --------------------------------------------------------------------------------- the output

    /// What readers are to be told when the job may raise its watermark to `watermark`; `None` when they
    /// know.
    pub(super) fn raise_output(&mut self, watermark: Timestamp) -> Option<LaneTime> {
        self.tell(LaneTime {
            watermark,
            ..self.now.output
        })
    }

    /// What readers are to be told when the job falls idle or has something to read again.
    pub(super) fn set_idle(&mut self, is_idle: bool) -> Option<LaneTime> {
        self.tell(LaneTime {
            is_idle,
            ..self.now.output
        })
    }

    /// What readers are to be told when this holds; `None` when they know. A watermark never falls.
    pub(super) fn tell(&mut self, time: LaneTime) -> Option<LaneTime> {
        let next = LaneTime {
            watermark: time.watermark.max(self.now.output.watermark),
            is_idle: time.is_idle,
        };
        let before = std::mem::replace(&mut self.now.output, next);
        (next != before).then_some(next)
    }

    // ---------------------------------------------------------------------------------- the epoch

    /// What the sealed epoch commits; the next one begins to count.
    pub(super) fn seal(&mut self, pending_timers: u64, ages: StateAges) -> EpochTime {
        self.now.pending_timers = pending_timers;
        self.now.ages = ages;
        self.is_step_recorded = self.now.fired_up_to.is_some();
        let next = self.now.clone().without_counts();
        std::mem::replace(&mut self.now, next)
    }
}
