//! A source's partition beside the others of its source: it waits for those that it is too far ahead of,
//! and when it has no records for a while it is left out of what holds the watermark back.
//!
//! **Invariant:** a partition is left out only by a job that runs and has committed all that it read.

use std::time::Duration;

use crate::engine::generator::milliseconds;
use crate::types::batch::Timestamp;
use crate::types::ids::Generation;
use crate::types::pipeline::{AllIdle, UnreadPartitions, WatermarkOptions};
use crate::types::watermark::LaneTime;
use crate::worker::board::LaneBoard;
use crate::worker::job_time::JobTime;
use crate::worker::source_times::{Activity, IdleStall, PartitionTime};
use crate::worker::stall::Stall;

/// How often a source that may get more records is asked whether it has.
pub(super) const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// By how much at least the watermark moves when it goes on with the clock: each time is an epoch.
const ADVANCE_MIN_MS: Timestamp = 1_000;

/// How a partition of a source keeps pace.
pub(super) struct SourcePace {
    source: String,
    index: usize,
    options: WatermarkOptions,
    told: PartitionTime,
    /// When it was first found without records.
    quiet_since: Option<Duration>,
    stall: Option<IdleStall>,
}

impl SourcePace {
    /// A partition that is about to read, or to wait for its turn.
    pub(super) fn new(
        source: String,
        (index, generation): (usize, Generation),
        options: WatermarkOptions,
        activity: Activity,
        time: &JobTime,
        board: &LaneBoard,
    ) -> SourcePace {
        let told = PartitionTime {
            generation,
            activity,
            watermark: time.read_watermark(),
        };
        board.source_times().set(&source, index, told);
        SourcePace {
            source,
            index,
            options,
            told,
            quiet_since: None,
            stall: None,
        }
    }

    /// Whether others are to catch up first (`drift_bound`).
    pub(super) fn is_too_far_ahead(&self, board: &LaneBoard) -> bool {
        self.options.drift_bound.is_some_and(|bound| {
            let times = board.source_times();
            times.is_too_far_ahead(&self.source, self.index, milliseconds(bound))
        })
    }

    /// Whether it is to be left out while it waits for its turn.
    pub(super) fn leaves_out_unread(&self) -> bool {
        self.options.unread_partitions == UnreadPartitions::LeaveOut
    }

    /// Why it is not left out although it has been without records for long enough.
    pub(super) fn stall(&self) -> Option<Stall> {
        let partitions = self.stall.clone()?;
        Some(Stall::Idle {
            source: self.source.clone(),
            partitions,
        })
    }

    /// It does this now. Whether it did something else before.
    pub(super) fn tell(&mut self, activity: Activity, time: &JobTime, board: &LaneBoard) -> bool {
        if matches!(activity, Activity::Reading) {
            self.quiet_since = None;
            self.stall = None;
        }
        let now = PartitionTime {
            generation: self.told.generation,
            activity,
            watermark: time.read_watermark(),
        };
        let before = self.told.activity;
        if now != self.told {
            self.told = now;
            board.source_times().set(&self.source, self.index, now);
            if self.options.drift_bound.is_some() {
                board.wake_all();
            }
        }
        before != activity
    }

    /// It has no records for now, and all that it read is committed. What readers are to be told, if
    /// anything; `elapsed` is the clock's.
    pub(super) fn rest(
        &mut self,
        elapsed: Duration,
        time: &mut JobTime,
        board: &LaneBoard,
    ) -> Option<LaneTime> {
        if self.quiet_since.is_none() {
            self.tell(Activity::Quiet, time, board);
        }
        let since = *self.quiet_since.get_or_insert(elapsed);
        let quiet_for = elapsed.saturating_sub(since);
        if let AllIdle::AdvanceAfter(limit) = self.options.all_idle
            && quiet_for >= limit
            && board.source_times().are_all_quiet(&self.source)
        {
            return self.advance(quiet_for, time, board);
        }
        // Readers need not wait for so many more records to learn how far it is.
        let caught_up = time.raise_output(time.read_watermark());
        let Some(idle) = self.options.idle_partitions else {
            return caught_up;
        };
        if quiet_for < idle.duration || time.now().output.is_idle {
            return caught_up;
        }
        let left_out =
            (board.source_times()).try_leave_out(&self.source, self.index, idle.max_ratio);
        self.stall = left_out.err();
        if self.stall.is_some() {
            return caught_up;
        }
        self.told.activity = Activity::Idle;
        time.set_idle(true)
    }

    /// With nothing to read anywhere the watermark goes on as the clock does.
    fn advance(
        &mut self,
        quiet_for: Duration,
        time: &mut JobTime,
        board: &LaneBoard,
    ) -> Option<LaneTime> {
        let stood_at = time.read_watermark();
        let watermark = stood_at.saturating_add(milliseconds(quiet_for));
        let told = time.now().output;
        if stood_at == 0 || watermark < told.watermark.saturating_add(ADVANCE_MIN_MS) {
            return None;
        }
        self.stall = None;
        self.tell(Activity::Quiet, time, board);
        time.tell(LaneTime {
            watermark,
            is_idle: false,
        })
    }
}
