//! Where a partition stands in time, by all that its decided epochs did so far.

use std::time::Duration;

use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::{EpochTime, GeneratorTime};
use tidelock::types::pipeline::WatermarkOptions;
use tidelock::types::timer::TimerPlace;

/// Where a partition stands.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Whether a job of it has made an epoch.
    pub(crate) has_run: bool,
    /// The run.
    pub(crate) run: u64,
    /// The watermarks of its inputs.
    pub(crate) watermarks: Vec<Timestamp>,
    /// The watermark that it has told.
    pub(crate) out: Timestamp,
    /// The least watermark that it must have told.
    pub(crate) floor: Timestamp,
    /// The timer that fired last in the step that is not done; the default where none has.
    pub(crate) step: Option<TimerPlace>,
    /// The last item of all that was no timer of the system's clock.
    pub(crate) system_since: usize,
    /// The latest moment of its clock, which may be set back while a step goes on.
    pub(crate) clock: Timestamp,
    /// Of a source, what its next watermark is made from.
    pub(crate) generator: GeneratorTime,
    /// As the last record says.
    pub(crate) time: EpochTime,
}

impl Standing {
    /// Another run begins, in which watermarks begin again.
    pub(crate) fn begin_run(&mut self, run: u64, inputs: usize) {
        *self = Standing {
            has_run: self.has_run,
            run,
            watermarks: vec![0; inputs],
            system_since: self.system_since,
            clock: self.clock,
            time: std::mem::take(&mut self.time),
            ..Standing::default()
        };
    }

    /// It takes over from partitions of an earlier layout.
    pub(crate) fn inherit(&mut self, time: &EpochTime, inputs: usize) {
        self.run = time.run;
        self.watermarks.clone_from(&time.input_watermarks);
        self.watermarks.resize(inputs, 0);
        self.step.clone_from(&time.fired_up_to);
    }

    /// The least watermark of its inputs.
    pub(crate) fn watermark(&self) -> Timestamp {
        self.watermarks.iter().copied().min().unwrap_or(0)
    }

    /// Of a source, the watermark as of what it has read.
    pub(crate) fn read_watermark(&self, options: &WatermarkOptions) -> Timestamp {
        let bound = milliseconds(options.out_of_orderness_bound);
        self.generator.greatest.saturating_sub(bound)
    }

    /// A source has read a record that led to messages of these event times. How many of those are too far
    /// in the future to be believed.
    pub(crate) fn count_record(
        &mut self,
        options: &WatermarkOptions,
        write_time: Timestamp,
        event_times: &[Timestamp],
    ) -> u64 {
        let limit = write_time + milliseconds(options.future_limit);
        let (believed, future): (Vec<Timestamp>, Vec<Timestamp>) =
            event_times.iter().partition(|time| **time <= limit);
        let greatest = believed.into_iter().max().unwrap_or(0);
        self.generator.greatest = self.generator.greatest.max(greatest);
        self.generator.records += 1;
        if self.generator.records >= options.records_per_watermark {
            self.generator.records = 0;
            self.floor = self.floor.max(self.read_watermark(options));
        }
        future.len() as u64
    }
}

fn milliseconds(duration: Duration) -> Timestamp {
    duration.as_millis().try_into().unwrap_or(Timestamp::MAX)
}
