//! How far the partitions of each source are in event time, and which of them have nothing to read:
//! what they hold each other back by, and how many of them may be left out. One for all jobs of a run; a
//! copy of what they know themselves, so a job that starts again says it anew.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::types::batch::Timestamp;
use crate::types::ids::Generation;

/// Why the lock can be taken.
const UNPOISONED: &str = "no job panics while it looks how far others are";

/// The partitions of all sources of a run.
#[derive(Debug, Default)]
pub struct SourceTimes {
    by_source: Mutex<BTreeMap<String, BTreeMap<usize, PartitionTime>>>,
}

/// Where a partition of a source stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionTime {
    /// Which of the partition's jobs says so.
    pub generation: Generation,
    /// What it does.
    pub activity: Activity,
    /// Its watermark as of what it has read; 0 before the first event time.
    pub watermark: Timestamp,
}

/// What a partition of a source does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It waits for its turn.
    Waiting,
    /// It has records.
    Reading,
    /// It has no records for now.
    Quiet,
    /// It has been quiet for so long that it is left out.
    Idle,
    /// It is at its end.
    Ended,
}

/// More partitions of a source are quiet than may be left out, so the watermark stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleStall {
    /// How many are quiet or left out.
    pub quiet: usize,
    /// How many there are that are not at their end.
    pub partitions: usize,
    /// How many may be left out.
    pub allowed: usize,
}

impl SourceTimes {
    /// Where partition `index` of a source stands. A job that has a successor has no say any more: it may be
    /// the last to speak, and others would wait for it.
    pub fn set(&self, source: &str, index: usize, time: PartitionTime) {
        let mut sources = self.sources();
        let partitions = match sources.get_mut(source) {
            Some(partitions) => partitions,
            None => sources.entry(source.to_owned()).or_default(),
        };
        let known = partitions.entry(index).or_insert(time);
        if known.generation <= time.generation {
            *known = time;
        }
    }

    /// The slowest of the others that read, and what it does, if the partition is more than `bound_ms` ahead of
    /// it: then it is to wait. The slowest itself never waits.
    pub fn held_back_by(
        &self,
        source: &str,
        index: usize,
        bound_ms: Timestamp,
    ) -> Option<(usize, Activity)> {
        let sources = self.sources();
        let partitions = sources.get(source)?;
        let own = partitions.get(&index)?.watermark;
        let (slowest, time) = (partitions.iter())
            .filter(|(other, _)| **other != index)
            .filter(|(_, time)| matches!(time.activity, Activity::Reading | Activity::Quiet))
            .min_by_key(|(_, time)| time.watermark)?;
        let is_too_far_ahead = own > time.watermark.saturating_add(bound_ms);
        is_too_far_ahead.then_some((*slowest, time.activity))
    }

    /// Leaves a quiet partition out, if no more than `max_ratio` of those that are not at their end are left
    /// out then. Of those that are quiet the ones that are furthest behind go first: leaving out the others
    /// would help nobody.
    ///
    /// # Errors
    ///
    /// When too many would be, or others have the places.
    pub fn try_leave_out(
        &self,
        source: &str,
        index: usize,
        max_ratio: f64,
    ) -> Result<(), IdleStall> {
        let mut sources = self.sources();
        let partitions = sources.entry(source.to_owned()).or_default();
        let count_of = |wanted: &[Activity]| {
            let times = partitions.values();
            times.filter(|time| wanted.contains(&time.activity)).count()
        };
        let ended = count_of(&[Activity::Ended]);
        let stall = IdleStall {
            quiet: count_of(&[Activity::Quiet, Activity::Idle]),
            partitions: partitions.len() - ended,
            allowed: share(partitions.len() - ended, max_ratio),
        };
        let own = partitions.get(&index).map_or(0, |time| time.watermark);
        let goes_before = |(other, time): &(&usize, &PartitionTime)| {
            matches!(time.activity, Activity::Quiet | Activity::Idle)
                && (time.watermark, **other) < (own, index)
        };
        let has_a_place = |(other, time): &(&usize, &PartitionTime)| {
            time.activity == Activity::Idle && **other != index
        };
        if partitions.iter().filter(goes_before).count() >= stall.allowed
            || partitions.iter().filter(has_a_place).count() >= stall.allowed
        {
            return Err(stall);
        }
        if let Some(time) = partitions.get_mut(&index) {
            time.activity = Activity::Idle;
        }
        Ok(())
    }

    /// Whether no partition of the source has records for now or waits for its turn.
    pub fn are_all_quiet(&self, source: &str) -> bool {
        let sources = self.sources();
        let partitions = sources.get(source);
        let mut activities = partitions
            .into_iter()
            .flatten()
            .map(|(_, time)| time.activity);
        activities
            .all(|activity| matches!(activity, Activity::Quiet | Activity::Idle | Activity::Ended))
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<usize, PartitionTime>>> {
        self.by_source.lock().expect(UNPOISONED)
    }
}

/// How many of `count` partitions a share of them is, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "partitions are few and a share is from 0 to 1"
)]
fn share(count: usize, ratio: f64) -> usize {
    // A tenth of ten is one, although 0.1 is a little less than a tenth.
    (count as f64 * ratio + 1e-9) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(partitions: &[(Activity, Timestamp)]) -> SourceTimes {
        let times = SourceTimes::default();
        for (index, (activity, watermark)) in partitions.iter().enumerate() {
            let time = PartitionTime {
                generation: Generation(1),
                activity: *activity,
                watermark: *watermark,
            };
            times.set("s", index, time);
        }
        times
    }

    #[test]
    fn t1_a_partition_waits_for_the_slowest_one_that_reads() {
        use Activity::{Ended, Idle, Quiet, Reading, Waiting};
        let with = |slow| times(&[(Reading, 100), (slow, 10), (Reading, 60)]);
        let held_back_by = |slow, index, bound| with(slow).held_back_by("s", index, bound);
        assert_eq!(held_back_by(Reading, 0, 89), Some((1, Reading)));
        assert_eq!(held_back_by(Reading, 0, 90), None);
        let may_come = Some((1, Quiet));
        assert_eq!(held_back_by(Quiet, 0, 89), may_come, "records may come");
        for left_out in [Idle, Ended, Waiting] {
            assert_eq!(held_back_by(left_out, 0, 40), None, "{left_out:?}");
            assert_eq!(held_back_by(left_out, 0, 39), Some((2, Reading)));
        }
        assert_eq!(held_back_by(Reading, 1, 0), None, "the slowest");
    }

    #[test]
    fn t1_no_more_than_the_share_of_partitions_is_left_out() {
        use Activity::{Ended, Idle, Quiet, Reading};
        let times = times(&[
            (Idle, 1),
            (Quiet, 1),
            (Quiet, 1),
            (Reading, 1),
            (Reading, 1),
            (Ended, 1),
        ]);
        assert_eq!(times.try_leave_out("s", 1, 0.4), Ok(()));
        let stall = IdleStall {
            quiet: 3,
            partitions: 5,
            allowed: 2,
        };
        assert_eq!(times.try_leave_out("s", 2, 0.4), Err(stall));
        assert_eq!(times.try_leave_out("s", 2, 0.6), Ok(()));
    }

    /// Lost: the end of every stall. The partition that was ahead fell quiet too, was left out, and took the place of
    /// the one that held the watermark back.
    #[test]
    fn t1_of_quiet_partitions_those_behind_are_left_out() {
        use Activity::{Idle, Quiet};
        let times = times(&[(Idle, 30), (Quiet, 0)]);
        assert!(
            times.try_leave_out("s", 1, 0.5).is_err(),
            "there is one place"
        );
        assert!(times.try_leave_out("s", 0, 0.5).is_err(), "it is another's");
        let quiet = PartitionTime {
            generation: Generation(1),
            activity: Quiet,
            watermark: 30,
        };
        times.set("s", 0, quiet);
        assert_eq!(times.try_leave_out("s", 1, 0.5), Ok(()));
        assert!(times.try_leave_out("s", 0, 0.5).is_err());
    }

    #[test]
    fn a_job_that_has_a_successor_has_no_say() {
        use Activity::{Ended, Reading};
        let times = times(&[(Reading, 100), (Reading, 10)]);
        let say = |generation, activity| {
            let time = PartitionTime {
                generation: Generation(generation),
                activity,
                watermark: 10,
            };
            times.set("s", 1, time);
            times.held_back_by("s", 0, 50).is_some()
        };
        assert!(!say(2, Ended));
        assert!(!say(1, Reading), "it was replaced");
        assert!(say(3, Reading));
    }

    #[test]
    fn all_are_quiet_when_none_reads_or_waits_for_its_turn() {
        use Activity::{Ended, Idle, Quiet, Reading, Waiting};
        assert!(times(&[(Quiet, 1), (Idle, 1), (Ended, 1)]).are_all_quiet("s"));
        assert!(!times(&[(Quiet, 1), (Reading, 1)]).are_all_quiet("s"));
        assert!(!times(&[(Quiet, 1), (Waiting, 1)]).are_all_quiet("s"));
    }

    #[test]
    fn a_tenth_of_ten_is_one() {
        assert_eq!([0, 1, 9, 10].map(|count| share(count, 0.1)), [0, 0, 0, 1]);
        assert_eq!(share(4, 1.0), 4);
    }
}
