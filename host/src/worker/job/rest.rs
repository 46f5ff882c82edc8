//! A job that has nothing to do for now: for how long it may rest, and what it tells readers and those who
//! watch.

use std::time::Duration;

use crate::types::watermark::LaneTime;
use crate::worker::error::JobError;
use crate::worker::source_pace::{FOLLOW_INTERVAL, SourcePace};
use crate::worker::stall::Stall;

use super::{Job, JobInput, JobStep};

impl Job {
    /// How long the job may rest though the board does not change.
    pub(super) fn rest_at_most(&self) -> Option<Duration> {
        let asked = match &self.input {
            JobInput::Source(source) if source.waits() => {
                let asked = source.wait_at_most().unwrap_or(FOLLOW_INTERVAL);
                Some(asked.min(FOLLOW_INTERVAL))
            }
            _ => self.system_timer_in,
        };
        asked.into_iter().chain(self.files_due_in()).min()
    }

    /// A partition that waits for its turn need not hold its readers' watermarks back.
    pub(super) fn leave_out_unread(&mut self) -> Result<JobStep, JobError> {
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
    pub(super) fn tell_stall(&self, stall: Option<Stall>) {
        if self.progress.holds(stall.clone())
            && let Some(stall) = stall
        {
            tracing::info!(reason = %stall, "watermark stands still");
        }
    }

    /// There is nothing to read for now, and nothing on its way to storage.
    pub(super) fn rest(&mut self) -> Result<JobStep, JobError> {
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
    pub(super) fn waits_for_others(&mut self) -> bool {
        let pace = self.pace.as_mut();
        pace.is_some_and(|pace| pace.is_too_far_ahead(&self.board))
    }
}
