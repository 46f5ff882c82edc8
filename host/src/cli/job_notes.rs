//! What a person should know of the jobs of a run once it has ended, a line each: keys that keep a
//! transform's partitions from sharing the work, and readers that others waited for.

use crate::worker::reading::JobReading;

/// How many lines there are of each kind; the document of `-o json` has all.
const LINES_MAX: usize = 5;

/// The lines.
pub fn job_notes(jobs: &[JobReading]) -> Vec<String> {
    let mut notes = hot_key_notes(jobs);
    notes.extend(wait_notes(jobs));
    notes
}

/// Of a transform in one partition no key is told: there is nothing to spread.
fn hot_key_notes(jobs: &[JobReading]) -> Vec<String> {
    let spread = jobs.iter().filter(|job| job.partition_count > 1);
    let mut hot: Vec<(&JobReading, &str, f64)> = spread
        .flat_map(|job| (job.hot_keys.iter()).map(move |hot| (job, hot.key.as_str(), hot.share)))
        .collect();
    hot.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
    let lines = hot.iter().map(|(job, key, share)| {
        let percent = (share * 100.0).floor();
        format!("job {}: key {key} has {percent} % of its messages", job.job)
    });
    let mut lines = shortened(lines, "hot keys");
    if !lines.is_empty() {
        lines.push(
            "  all messages of a key go to one partition, so more partitions do not help a hot key: make \
             keys finer, and add up what they give in a second transform"
                .to_owned(),
        );
    }
    lines
}

fn wait_notes(jobs: &[JobReading]) -> Vec<String> {
    let mut waits: Vec<_> = (jobs.iter())
        .flat_map(|job| job.waits.iter().map(move |wait| (job, wait)))
        .collect();
    waits.sort_by_key(|(_, wait)| std::cmp::Reverse(wait.count));
    let lines = waits.iter().map(|(job, wait)| {
        let times = match wait.count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        format!(
            "job {} waited {times} for {} (stream {})",
            job.job, wait.lane.reader, wait.lane.stream
        )
    });
    shortened(lines, "lanes that were waited for")
}

/// The first lines, and how many more there are.
fn shortened(lines: impl ExactSizeIterator<Item = String>, what: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(LINES_MAX);
    let mut shown: Vec<String> = lines.take(LINES_MAX).collect();
    if more > 0 {
        shown.push(format!("  and {more} more {what}; -o json shows all"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::reading::{HotKeyReading, LaneReading, WaitReading};

    fn job(index: u32, count: u32) -> JobReading {
        JobReading {
            job: format!("delays[{index}]"),
            name: "delays".to_owned(),
            partition_index: index,
            partition_count: count,
            partition: format!("p{index}"),
            input_messages: 0,
            output_messages: 0,
            sink_rows: 0,
            epochs: 0,
            waits: Vec::new(),
            waits_now: None,
            hot_keys: Vec::new(),
        }
    }

    fn with_hot_key(index: u32, count: u32, share: f64) -> JobReading {
        let key = "UA@EWR".to_owned();
        JobReading {
            hot_keys: vec![HotKeyReading { key, share }],
            ..job(index, count)
        }
    }

    fn with_wait(count: u64) -> JobReading {
        let lane = LaneReading {
            stream: "legs".to_owned(),
            reader: "delays[1]".to_owned(),
        };
        JobReading {
            job: "departures".to_owned(),
            waits: vec![WaitReading { lane, count }],
            ..job(0, 1)
        }
    }

    #[test]
    fn hot_keys_are_told_by_their_share_with_advice() {
        let notes = job_notes(&[
            with_hot_key(0, 3, 0.2),
            job(1, 3),
            with_hot_key(2, 3, 0.4399),
        ]);
        assert_eq!(
            notes[0],
            "job delays[2]: key UA@EWR has 43 % of its messages"
        );
        assert_eq!(
            notes[1],
            "job delays[0]: key UA@EWR has 20 % of its messages"
        );
        assert!(notes[2].contains("make keys finer"), "{}", notes[2]);
        assert_eq!(notes.len(), 3);
    }

    #[test]
    fn a_single_partition_has_no_key_to_spread() {
        assert!(job_notes(&[with_hot_key(0, 1, 0.9)]).is_empty());
    }

    #[test]
    fn those_that_were_waited_for_most_come_first() {
        let notes = job_notes(&[with_wait(1), with_wait(12)]);
        let expected = [
            "job departures waited 12 times for delays[1] (stream legs)",
            "job departures waited once for delays[1] (stream legs)",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn of_many_the_first_are_shown() {
        let jobs: Vec<JobReading> = (1..=20).map(with_wait).collect();
        let notes = job_notes(&jobs);
        assert_eq!(notes.len(), LINES_MAX + 1);
        assert!(notes[0].contains("waited 20 times"), "{}", notes[0]);
        assert!(
            notes[LINES_MAX].contains("15 more lanes"),
            "{}",
            notes[LINES_MAX]
        );
    }
}
