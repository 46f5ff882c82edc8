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
use crate::worker::source_times::{Activity, PartitionTime};
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
    quiet_since: Option<QuietSince>,
    stall: Option<Stall>,
}

/// From when on a partition is without records.
#[derive(Debug, Clone, Copy)]
struct QuietSince {
    /// When it was first found so, by the clock.
    elapsed: Duration,
    /// The watermark that it had by then; 0 for none.
    watermark: Timestamp,
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
            activity: match activity {
                // Readers leave it out until it has records, whoever told them so.
                Activity::Reading if time.now().output.is_idle => Activity::Idle,
                activity => activity,
            },
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
    pub(super) fn is_too_far_ahead(&mut self, board: &LaneBoard) -> bool {
        let Some(bound) = self.options.drift_bound else {
            return false;
        };
        let times = board.source_times();
        let slowest = times.held_back_by(&self.source, self.index, milliseconds(bound));
        self.stall = match slowest {
            // Nobody knows when it has records.
            Some((slowest, Activity::Quiet)) => Some(Stall::Drift {
                source: self.source.clone(),
                slowest,
            }),
            Some(_) => None,
            None => return false,
        };
        true
    }

    /// Whether it is to be left out while it waits for its turn.
    pub(super) fn leaves_out_unread(&self) -> bool {
        self.options.unread_partitions == UnreadPartitions::LeaveOut
    }

    /// Why its watermark stands still although it has been without records for long enough to be left out, or
    /// has records.
    pub(super) fn stall(&self) -> Option<Stall> {
        self.stall.clone()
    }

    /// It does this now. Whether it did something else before, or could not go on.
    pub(super) fn tell(&mut self, activity: Activity, time: &JobTime, board: &LaneBoard) -> bool {
        let mut was_held = false;
        if matches!(activity, Activity::Reading) {
            self.quiet_since = None;
            was_held = self.stall.take().is_some();
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
        before != activity || was_held
    }

    /// It has no records for now, and all that it read is committed. What readers are to be told, if
    /// anything; `elapsed` is the clock's.
    pub(super) fn rest(
        &mut self,
        elapsed: Duration,
        time: &mut JobTime,
        board: &LaneBoard,
    ) -> Option<LaneTime> {
        let since = match self.quiet_since {
            Some(since) => since,
            None => self.fall_quiet(elapsed, time, board),
        };
        let quiet_for = elapsed.saturating_sub(since.elapsed);
        if let AllIdle::AdvanceAfter(limit) = self.options.all_idle
            && quiet_for >= limit
            && board.source_times().are_all_quiet(&self.source)
        {
            return self.advance(since.watermark, quiet_for, time, board);
        }
        // Readers need not wait for so many more records to learn how far it is.
        let caught_up = time.raise_output(time.read_watermark());
        let Some(idle) = self.options.idle_partitions else {
            return caught_up;
        };
        if quiet_for < idle.duration {
            return caught_up;
        }
        let left_out =
            (board.source_times()).try_leave_out(&self.source, self.index, idle.max_ratio);
        if let Err(partitions) = left_out {
            self.stall = Some(Stall::Idle {
                source: self.source.clone(),
                partitions,
            });
            // Another one may need its place.
            self.tell(Activity::Quiet, time, board);
            return time.set_idle(false).or(caught_up);
        }
        self.stall = None;
        self.tell(Activity::Idle, time, board);
        time.set_idle(true)
    }

    fn fall_quiet(&mut self, elapsed: Duration, time: &JobTime, board: &LaneBoard) -> QuietSince {
        self.stall = None;
        let output = time.now().output;
        let activity = match output.is_idle {
            true => Activity::Idle,
            false => Activity::Quiet,
        };
        self.tell(activity, time, board);
        let since = QuietSince {
            elapsed,
            // The clock may have carried it on before.
            watermark: output.watermark.max(time.read_watermark()),
        };
        self.quiet_since = Some(since);
        since
    }

    /// With nothing to read anywhere the watermark goes on as the clock does, from where it stood. A partition
    /// that never had one is left out, or the others would go on for nothing.
    fn advance(
        &mut self,
        stood_at: Timestamp,
        quiet_for: Duration,
        time: &mut JobTime,
        board: &LaneBoard,
    ) -> Option<LaneTime> {
        self.stall = None;
        if stood_at == 0 {
            self.tell(Activity::Idle, time, board);
            return time.set_idle(true);
        }
        let watermark = stood_at.saturating_add(milliseconds(quiet_for));
        let told = time.now().output;
        if watermark < told.watermark.saturating_add(ADVANCE_MIN_MS) {
            return None;
        }
        self.tell(Activity::Quiet, time, board);
        time.tell(LaneTime {
            watermark,
            is_idle: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::epoch::{EpochTime, GeneratorTime};
    use crate::types::pipeline::IdleOptions;

    const SECOND: Duration = Duration::from_secs(1);

    /// The partitions of a source, and what each has told its readers.
    struct Partitions {
        board: LaneBoard,
        of_source: Vec<(SourcePace, JobTime)>,
    }

    impl Partitions {
        /// They go on where partitions with these greatest event times and outputs have stopped.
        fn open(options: WatermarkOptions, stand_at: &[(Timestamp, LaneTime)]) -> Partitions {
            let board = LaneBoard::default();
            let of_source = (0..).zip(stand_at).map(|(index, (greatest, output))| {
                let generator = GeneratorTime {
                    greatest: *greatest,
                    ..GeneratorTime::default()
                };
                let committed = EpochTime {
                    output: *output,
                    generator,
                    ..EpochTime::default()
                };
                let time = JobTime::standing_at(committed, Some(&options), Vec::new());
                let source = "s".to_owned();
                let reading = Activity::Reading;
                let pace = SourcePace::new(
                    source,
                    (index, Generation(1)),
                    options,
                    reading,
                    &time,
                    &board,
                );
                (pace, time)
            });
            Partitions {
                of_source: of_source.collect(),
                board,
            }
        }

        /// None has records, and it is this many seconds by the clock.
        fn rest_at(&mut self, seconds: u32) {
            for (pace, time) in &mut self.of_source {
                pace.rest(SECOND * seconds, time, &self.board);
            }
        }

        fn told(&self) -> Vec<LaneTime> {
            let times = self.of_source.iter();
            times.map(|(_, time)| time.now().output).collect()
        }
    }

    fn at(watermark: Timestamp) -> LaneTime {
        LaneTime {
            watermark,
            is_idle: false,
        }
    }

    fn idle_at(watermark: Timestamp) -> LaneTime {
        LaneTime {
            watermark,
            is_idle: true,
        }
    }

    fn options() -> WatermarkOptions {
        WatermarkOptions {
            out_of_orderness_bound: Duration::ZERO,
            ..WatermarkOptions::default()
        }
    }

    fn advancing() -> WatermarkOptions {
        WatermarkOptions {
            all_idle: AllIdle::AdvanceAfter(SECOND * 10),
            ..options()
        }
    }

    #[test]
    fn t1_a_watermark_that_the_clock_carries_on_goes_on_from_where_a_job_before_it_was() {
        // An hour without records lies between the last one and the restart.
        let mut partitions = Partitions::open(advancing(), &[(5_000, at(3_605_000))]);
        partitions.rest_at(0);
        partitions.rest_at(9);
        assert_eq!(partitions.told(), [at(3_605_000)]);
        partitions.rest_at(10);
        assert_eq!(partitions.told(), [at(3_615_000)]);
        partitions.rest_at(12);
        assert_eq!(partitions.told(), [at(3_617_000)]);
    }

    #[test]
    fn t1_a_partition_that_never_had_an_event_time_does_not_stop_the_clock() {
        let mut partitions = Partitions::open(advancing(), &[(5_000, at(5_000)), (0, at(0))]);
        partitions.rest_at(0);
        assert_eq!(partitions.told(), [at(5_000), at(0)]);
        partitions.rest_at(20);
        assert_eq!(partitions.told(), [at(25_000), idle_at(0)]);
        partitions.rest_at(30);
        assert_eq!(partitions.told(), [at(35_000), idle_at(0)]);
    }

    #[test]
    fn t1_partitions_that_were_left_out_before_a_restart_count_among_those_left_out() {
        let options = WatermarkOptions {
            idle_partitions: Some(IdleOptions {
                duration: SECOND,
                max_ratio: 0.5,
            }),
            ..options()
        };
        let stood = [(7, at(7)), (8, idle_at(8))];
        let mut partitions = Partitions::open(options, &stood);
        partitions.rest_at(0);
        partitions.rest_at(5);
        // The one that is ahead gives its place up before the other takes it.
        assert_eq!(partitions.told(), [at(7), at(8)]);
        partitions.rest_at(6);
        assert_eq!(partitions.told(), [idle_at(7), at(8)]);
        let stall = partitions.of_source[1].0.stall();
        assert!(matches!(stall, Some(Stall::Idle { .. })), "{stall:?}");
    }

    #[test]
    fn t1_a_partition_that_waits_for_one_without_records_says_so_until_that_is_left_out() {
        let options = WatermarkOptions {
            drift_bound: Some(SECOND),
            idle_partitions: Some(IdleOptions {
                duration: SECOND,
                max_ratio: 0.5,
            }),
            ..options()
        };
        let mut partitions = Partitions::open(options, &[(9_000, at(9_000)), (0, at(0))]);
        let board = &partitions.board;
        let [(fast, fast_time), (slow, slow_time)] = &mut partitions.of_source[..] else {
            panic!("there are two");
        };
        assert!(fast.is_too_far_ahead(board));
        assert_eq!(fast.stall(), None, "the other one is read");
        slow.rest(Duration::ZERO, slow_time, board);
        assert!(fast.is_too_far_ahead(board));
        let stall = Stall::Drift {
            source: "s".to_owned(),
            slowest: 1,
        };
        assert_eq!(fast.stall(), Some(stall));
        let version = board.version();
        slow.rest(SECOND, slow_time, board);
        assert_ne!(board.version(), version, "who waits looks again");
        assert!(!fast.is_too_far_ahead(board));
        assert!(fast.tell(Activity::Reading, fast_time, board), "it goes on");
        assert_eq!(fast.stall(), None);
    }
}
