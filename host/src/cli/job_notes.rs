//! What a person should know of the jobs of a run once it has ended, a line each: items that nothing could be made
//! of, messages that came late,
//! event times that nobody believed, timers that wait, watermarks that stood still, keys that keep a
//! transform's partitions from sharing the work, and readers that others waited for.

use crate::worker::reading::JobReading;
use crate::worker::time_progress::TimeReading;

/// How many lines there are of each kind; the document of `-o json` has all.
const LINES_MAX: usize = 5;

/// The lines; `is_finished` where every job came to its end.
pub fn job_notes(jobs: &[JobReading], is_finished: bool) -> Vec<String> {
    let mut notes = passed_over_notes(jobs);
    notes.extend(late_notes(jobs));
    notes.extend(future_notes(jobs));
    notes.extend(timer_notes(jobs, is_finished));
    if !is_finished {
        notes.extend(stall_notes(jobs));
    }
    notes.extend(hot_key_notes(jobs));
    notes.extend(wait_notes(jobs));
    notes
}

fn passed_over_notes(jobs: &[JobReading]) -> Vec<String> {
    let passed = jobs.iter().filter_map(|job| {
        let skipped = || counted(job.skipped, "item was skipped", "items were skipped");
        let letters = || {
            counted(
                job.dead_letters,
                "item became a dead letter",
                "items became dead letters",
            )
        };
        let told = match (job.skipped, job.dead_letters) {
            (0, 0) => return None,
            (_, 0) => skipped(),
            (0, _) => letters(),
            _ => format!("{}, {}", skipped(), letters()),
        };
        Some(format!("job {}: {told}", job.job))
    });
    let passed: Vec<String> = passed.collect();
    let mut lines = shortened(passed.into_iter(), "jobs that passed over items");
    if jobs.iter().any(|job| job.dead_letters > 0) {
        lines.push("  `tidelock dlq list` shows the dead letters".to_owned());
    }
    lines
}

fn late_notes(jobs: &[JobReading]) -> Vec<String> {
    let late = most_first(jobs, |time| time.late_messages);
    let lines = late.iter().map(|(job, count)| {
        let behind = job.time.late_behind.as_deref().unwrap_or("none yet");
        format!(
            "job {}: {} late, its watermark was at {behind} then",
            job.job,
            counted(*count, "message came", "messages came"),
        )
    });
    let mut lines = shortened(lines, "jobs with late messages");
    if !lines.is_empty() {
        lines.push(
            "  out_of_orderness_bound of a source or allowed_lateness of a transform lets more of them be in \
             time, late_output keeps them apart"
                .to_owned(),
        );
    }
    lines
}

fn future_notes(jobs: &[JobReading]) -> Vec<String> {
    let future = most_first(jobs, |time| time.future_records);
    let lines = future.iter().map(|(job, count)| {
        format!(
            "job {}: {} by more than future_limit and moved no watermark",
            job.job,
            counted(
                *count,
                "event time lay in the future",
                "event times lay in the future"
            ),
        )
    });
    shortened(lines, "jobs with event times in the future")
}

fn timer_notes(jobs: &[JobReading], is_finished: bool) -> Vec<String> {
    let pending = most_first(jobs, |time| time.timers_pending);
    let lines = pending.iter().map(|(job, count)| {
        let (job, timers) = (&job.job, counted(*count, "timer", "timers"));
        match (is_finished, *count) {
            (true, 1) => format!("job {job}: {timers} waits for the next run"),
            (true, _) => format!("job {job}: {timers} wait for the next run"),
            (false, _) => format!("job {job}: {timers} pending"),
        }
    });
    shortened(lines, "jobs with timers")
}

fn stall_notes(jobs: &[JobReading]) -> Vec<String> {
    let stalled = jobs.iter().filter_map(|job| {
        let stall = job.time.stall.as_ref()?;
        let at = &job.time.output_watermark;
        let job = &job.job;
        Some(format!(
            "job {job}: its watermark ({at}) stands still: {stall}"
        ))
    });
    let stalled: Vec<String> = stalled.collect();
    shortened(stalled.into_iter(), "watermarks that stood still")
}

/// The jobs of which there is any of something, the most first.
fn most_first(jobs: &[JobReading], count: impl Fn(&TimeReading) -> u64) -> Vec<(&JobReading, u64)> {
    let counted = jobs.iter().map(|job| (job, count(&job.time)));
    let mut found: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found
}

fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
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
            skipped: 0,
            dead_letters: 0,
            epochs: 0,
            state_cache_hits: 0,
            state_cache_misses: 0,
            waits: Vec::new(),
            waits_now: None,
            hot_keys: Vec::new(),
            time: TimeReading::default(),
        }
    }

    fn with_time(index: u32, time: TimeReading) -> JobReading {
        JobReading {
            time,
            ..job(index, 2)
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
    fn items_that_nothing_could_be_made_of_are_told_by_job() {
        let passed = |index, skipped, dead_letters| JobReading {
            skipped,
            dead_letters,
            ..job(index, 3)
        };
        let skipping = [passed(0, 1, 0), passed(1, 0, 0), passed(2, 12, 0)];
        assert_eq!(
            job_notes(&skipping, true),
            [
                "job delays[0]: 1 item was skipped",
                "job delays[2]: 12 items were skipped",
            ]
        );
        assert_eq!(
            job_notes(&[passed(0, 2, 1), passed(1, 0, 3)], false),
            [
                "job delays[0]: 2 items were skipped, 1 item became a dead letter",
                "job delays[1]: 3 items became dead letters",
                "  `tidelock dlq list` shows the dead letters",
            ]
        );
    }

    #[test]
    fn late_messages_are_told_with_the_watermark_and_a_remedy() {
        let late = |count, behind: &str| TimeReading {
            late_messages: count,
            late_behind: Some(behind.to_owned()),
            ..TimeReading::default()
        };
        let jobs = [
            with_time(0, late(1, "end of time")),
            with_time(1, late(12, "2013-01-01T06:15:00.000Z")),
        ];
        let notes = job_notes(&jobs, true);
        assert_eq!(
            notes[..2],
            [
                "job delays[1]: 12 messages came late, its watermark was at \
                 2013-01-01T06:15:00.000Z then",
                "job delays[0]: 1 message came late, its watermark was at \
                 end of time then",
            ]
        );
        assert!(notes[2].contains("late_output"), "{}", notes[2]);
        assert_eq!(notes.len(), 3);
    }

    #[test]
    fn event_times_in_the_future_and_timers_are_told() {
        let time = |future_records, timers_pending| TimeReading {
            future_records,
            timers_pending,
            ..TimeReading::default()
        };
        let jobs = [with_time(0, time(3, 1)), with_time(1, time(0, 20))];
        assert_eq!(
            job_notes(&jobs, true),
            [
                "job delays[0]: 3 event times lay in the future by more than future_limit and moved no \
                 watermark",
                "job delays[1]: 20 timers wait for the next run",
                "job delays[0]: 1 timer waits for the next run",
            ]
        );
        assert_eq!(
            job_notes(&jobs, false)[1..],
            [
                "job delays[1]: 20 timers pending",
                "job delays[0]: 1 timer pending",
            ]
        );
    }

    #[test]
    fn a_watermark_that_stood_still_is_told_of_a_run_that_was_stopped() {
        let time = TimeReading {
            output_watermark: "none yet".to_owned(),
            stall: Some("waits for tuesday.csv, which is not begun".to_owned()),
            ..TimeReading::default()
        };
        let jobs = [with_time(0, time)];
        assert_eq!(
            job_notes(&jobs, false),
            [
                "job delays[0]: its watermark (none yet) stands still: waits for tuesday.csv, which is not \
                 begun"
            ]
        );
        assert!(job_notes(&jobs, true).is_empty());
    }

    #[test]
    fn hot_keys_are_told_by_their_share_with_advice() {
        let notes = job_notes(
            &[
                with_hot_key(0, 3, 0.2),
                job(1, 3),
                with_hot_key(2, 3, 0.4399),
            ],
            true,
        );
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
        assert!(job_notes(&[with_hot_key(0, 1, 0.9)], true).is_empty());
    }

    #[test]
    fn those_that_were_waited_for_most_come_first() {
        let notes = job_notes(&[with_wait(1), with_wait(12)], true);
        let expected = [
            "job departures waited 12 times for delays[1] (stream legs)",
            "job departures waited once for delays[1] (stream legs)",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn of_many_the_first_are_shown() {
        let jobs: Vec<JobReading> = (1..=20).map(with_wait).collect();
        let notes = job_notes(&jobs, true);
        assert_eq!(notes.len(), LINES_MAX + 1);
        assert!(notes[0].contains("waited 20 times"), "{}", notes[0]);
        assert!(
            notes[LINES_MAX].contains("15 more lanes"),
            "{}",
            notes[LINES_MAX]
        );
    }
}
