//! Where a job stands in time, for those who watch: taken from what its epochs commit, and what it says of
//! why its watermark stands still. Nothing here decides anything.

use serde::Serialize;

use crate::types::batch::Timestamp;
use crate::types::epoch::EpochTime;
use crate::types::moment::Moment;
use crate::types::watermark::{END_OF_TIME, LaneTime};
use crate::worker::stall::Stall;

/// What is known of a job's time.
#[derive(Debug, Default)]
pub(super) struct TimeProgress {
    /// The least watermark of the inputs; `None` of a source.
    input: Option<Timestamp>,
    /// What it last told its readers.
    output: LaneTime,
    late_messages: u64,
    /// The input's watermark behind the last epoch with late messages.
    late_behind: Option<Timestamp>,
    future_records: u64,
    timers_pending: u64,
    timers_fired: u64,
    stall: Option<Stall>,
}

/// Where a job stands in time at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TimeReading {
    /// The watermark that it goes by, the least of its inputs: a moment of RFC 3339, "end of time" or "none
    /// yet"; `None` of a source.
    pub input_watermark: Option<String>,
    /// The watermark that it last told its readers, in the same words. That nothing follows they learn by the
    /// end of their lanes.
    pub output_watermark: String,
    /// Whether it has told them that it has nothing to read and holds nobody back.
    pub is_idle: bool,
    /// Late messages that it took since the program was started.
    pub late_messages: u64,
    /// The watermark behind the last of them.
    pub late_behind: Option<String>,
    /// Records since then whose event times were too far in the future to move the watermark.
    pub future_records: u64,
    /// Timers that are pending.
    pub timers_pending: u64,
    /// Timers that fired since then.
    pub timers_fired: u64,
    /// Why its watermark stands still, where it says so.
    pub stall: Option<String>,
}

impl TimeProgress {
    /// An epoch was committed, or the job was opened behind one.
    pub(super) fn add(&mut self, time: &EpochTime) {
        self.input = time.watermark();
        self.output = time.output;
        self.timers_pending = time.pending_timers;
        self.timers_fired += time.fired_count;
        self.future_records += time.future_count;
        self.late_messages += time.late_count;
        if time.late_count > 0 {
            // The end of time comes behind them in the same epoch.
            self.late_behind = match self.input {
                Some(END_OF_TIME) => Some(time.latest_watermark),
                input => input,
            };
        }
    }

    /// Why the watermark stands still now; `None` when it does not. Whether that is new.
    pub(super) fn set_stall(&mut self, stall: Option<Stall>) -> bool {
        let is_new = self.stall != stall && stall.is_some();
        self.stall = stall;
        is_new
    }

    pub(super) fn read(&self) -> TimeReading {
        TimeReading {
            input_watermark: self.input.map(watermark),
            output_watermark: watermark(self.output.watermark),
            is_idle: self.output.is_idle,
            late_messages: self.late_messages,
            late_behind: self.late_behind.map(watermark),
            future_records: self.future_records,
            timers_pending: self.timers_pending,
            timers_fired: self.timers_fired,
            stall: self.stall.as_ref().map(Stall::to_string),
        }
    }
}

/// A watermark in words.
fn watermark(watermark: Timestamp) -> String {
    match watermark {
        0 => "none yet".to_owned(),
        END_OF_TIME => "end of time".to_owned(),
        moment => Moment(moment).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(input_watermarks: &[Timestamp], late_count: u64) -> EpochTime {
        EpochTime {
            input_watermarks: input_watermarks.to_vec(),
            late_count,
            ..EpochTime::default()
        }
    }

    #[test]
    fn watermarks_are_the_last_ones_and_counts_those_of_all_epochs() {
        let mut progress = TimeProgress::default();
        assert_eq!(progress.read().output_watermark, "none yet");
        assert_eq!(progress.read().input_watermark, None);
        progress.add(&EpochTime {
            fired_count: 2,
            future_count: 3,
            pending_timers: 7,
            ..time(&[5_000, 1_000], 4)
        });
        progress.add(&EpochTime {
            fired_count: 1,
            pending_timers: 6,
            output: LaneTime {
                watermark: 2_000,
                is_idle: true,
            },
            ..time(&[END_OF_TIME, END_OF_TIME], 0)
        });
        let expected = TimeReading {
            input_watermark: Some("end of time".to_owned()),
            output_watermark: "1970-01-01T00:00:02.000Z".to_owned(),
            is_idle: true,
            late_messages: 4,
            late_behind: Some("1970-01-01T00:00:01.000Z".to_owned()),
            future_records: 3,
            timers_pending: 6,
            timers_fired: 3,
            stall: None,
        };
        assert_eq!(progress.read(), expected);
    }

    #[test]
    fn late_messages_are_behind_a_watermark_and_not_behind_the_end_of_time() {
        let mut progress = TimeProgress::default();
        progress.add(&EpochTime {
            latest_watermark: 3_000,
            ..time(&[END_OF_TIME], 1)
        });
        let behind = progress.read().late_behind;
        assert_eq!(behind.as_deref(), Some("1970-01-01T00:00:03.000Z"));
    }

    #[test]
    fn a_stall_is_new_once_until_the_watermark_moves() {
        let mut progress = TimeProgress::default();
        let stall = || {
            let partition = "b of source s".to_owned();
            Some(Stall::NotBegun { partition })
        };
        assert!(progress.set_stall(stall()));
        assert!(!progress.set_stall(stall()));
        let shown = progress.read().stall;
        assert_eq!(
            shown.as_deref(),
            Some("waits for b of source s, which is not begun")
        );
        assert!(!progress.set_stall(None));
        assert_eq!(progress.read().stall, None);
        assert!(progress.set_stall(stall()));
    }
}
