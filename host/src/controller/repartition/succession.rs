//! Where the partitions of a new layout stand in time, by where those before them stood.

use crate::types::epoch::{EpochRecord, EpochTime};
use crate::types::timer::TimerPlace;

/// The time at which the partitions that take over from others begin.
///
/// Within a run a watermark says that nothing older comes, and what waited for the slowest partition still
/// comes: so they begin at the least of the watermarks, 0 where one of the partitions has none in the run
/// yet. They begin with a step there: it fires what a step before them has left, and tells the readers of
/// lanes that are new.
pub(super) fn inherited_time<'a>(
    records: impl Iterator<Item = &'a EpochRecord> + Clone,
) -> EpochTime {
    let times = records.map(|record| &record.time);
    let run = times.clone().map(|time| time.run).max().unwrap_or(0);
    let inputs = (times.clone().map(|time| time.input_watermarks.len()))
        .max()
        .unwrap_or(0);
    let of_input = |time: &EpochTime, input: usize| match time.run == run {
        true => time.input_watermarks.get(input).copied().unwrap_or(0),
        false => 0,
    };
    let least = |input| times.clone().map(|time| of_input(time, input)).min();
    let input_watermarks: Vec<_> = (0..inputs).filter_map(least).collect();
    let has_watermarks = input_watermarks.iter().any(|watermark| *watermark > 0);
    EpochTime {
        run,
        fired_up_to: has_watermarks.then(TimerPlace::default),
        input_watermarks,
        ..EpochTime::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::Timestamp;
    use crate::types::watermark::END_OF_TIME;

    fn check(old: &[(u64, &[Timestamp])], run: u64, expected: &[Timestamp]) {
        let record = |(run, watermarks): &(u64, &[Timestamp])| EpochRecord {
            time: EpochTime {
                run: *run,
                input_watermarks: watermarks.to_vec(),
                ..EpochTime::default()
            },
            ..EpochRecord::default()
        };
        let records: Vec<EpochRecord> = old.iter().map(record).collect();
        let time = inherited_time(records.iter());
        assert_eq!(
            (time.run, time.input_watermarks.as_slice()),
            (run, expected)
        );
        let has_step = time.fired_up_to == Some(TimerPlace::default());
        assert_eq!(has_step, expected.iter().any(|watermark| *watermark > 0));
    }

    #[test]
    fn t1_new_partitions_begin_at_the_least_watermark_of_those_before() {
        check(&[(3, &[7, 9]), (3, &[8, 5])], 3, &[7, 5]);
        check(&[(3, &[7]), (3, &[END_OF_TIME])], 3, &[7]);
        check(&[], 0, &[]);
    }

    #[test]
    fn t1_a_partition_that_has_no_watermark_in_the_run_holds_those_after_it() {
        check(&[(3, &[7]), (2, &[9])], 3, &[0]);
        check(&[(3, &[7]), (3, &[])], 3, &[0]);
        check(&[(2, &[9]), (2, &[END_OF_TIME])], 2, &[9]);
    }
}
