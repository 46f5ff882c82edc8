//! How a run's progress is shown: a bar on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::clock::Clock;
use crate::telemetry::LogOutput;
use crate::worker::progress::RunProgress;
use crate::worker::reading::ProgressReading;

/// How often a plain line is printed.
const LINE_PERIOD: Duration = Duration::from_secs(2);

/// Shows one run's progress.
pub struct ProgressView<'a> {
    progress: RunProgress,
    logs: &'a LogOutput,
    clock: &'a dyn Clock,
    start: Duration,
    last_line: Duration,
    bar: Option<ProgressBar>,
}

impl<'a> ProgressView<'a> {
    /// Starts showing.
    pub fn start(
        progress: RunProgress,
        logs: &'a LogOutput,
        clock: &'a dyn Clock,
    ) -> ProgressView<'a> {
        let bar = logs.is_terminal().then(|| {
            let total = progress.read().source_total_bytes;
            let template = match total {
                Some(_) => "{bar:40} {percent:>3} %  {msg}  {elapsed_precise}",
                None => "{msg}  {elapsed_precise}",
            };
            let style = ProgressStyle::with_template(template)
                .expect("the templates are constant")
                .progress_chars("=> ");
            let bar = ProgressBar::new(total.unwrap_or(0)).with_style(style);
            logs.bars().add(bar)
        });
        let start = clock.elapsed();
        ProgressView {
            progress,
            logs,
            clock,
            start,
            last_line: start,
            bar,
        }
    }

    /// Draws what has changed.
    pub fn draw(&mut self) {
        let reading = self.progress.read();
        if let Some(bar) = &self.bar {
            bar.set_position(reading.source_done_bytes);
            bar.set_message(self.describe(&reading));
        } else if self.clock.elapsed() >= self.last_line + LINE_PERIOD {
            self.last_line = self.clock.elapsed();
            let percent = |total: u64| reading.source_done_bytes * 100 / total.max(1);
            let done = match reading.source_total_bytes {
                Some(total) => format!("{:>3} %  ", percent(total)),
                None => String::new(),
            };
            let line = format!("{done}{}", self.describe(&reading));
            self.logs.print_line(&line);
        }
    }

    /// Stops showing; how long it took.
    pub fn finish(self) -> Duration {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.logs.bars().remove(bar);
        }
        self.clock.elapsed() - self.start
    }

    fn describe(&self, reading: &ProgressReading) -> String {
        let mut text = format!(
            "{} records, {} epochs, {} rows out, {}",
            HumanCount(reading.source_records),
            HumanCount(reading.epochs),
            HumanCount(reading.sink_rows),
            HumanBytes(reading.source_done_bytes),
        );
        if let Some(total) = reading.source_total_bytes {
            text.push_str(&format!(" of {}", HumanBytes(total)));
        }
        text.push_str(" read");
        text.push_str(&passed_over(reading));
        if let Some((job, lane, others)) = self.progress.waiting_job() {
            text.push_str(&format!(", {job} waits for {}", lane.reader));
            if others > 0 {
                text.push_str(&format!(" and {others} more jobs wait"));
            }
        }
        if let Some((job, stall, others)) = self.progress.stalled_job() {
            text.push_str(&format!(", the watermark of {job} stands still: {stall}"));
            if others > 0 {
                text.push_str(&format!("; {others} more jobs say why theirs does"));
            }
        }
        text
    }
}

/// How many items nothing could be made of, to stand behind other counts: ", 3 skipped, 1 dead letter"; empty where
/// there are none.
pub(super) fn passed_over(reading: &ProgressReading) -> String {
    let mut text = String::new();
    if reading.skipped > 0 {
        text.push_str(&format!(", {} skipped", HumanCount(reading.skipped)));
    }
    match reading.dead_letters {
        0 => {}
        1 => text.push_str(", 1 dead letter"),
        count => text.push_str(&format!(", {} dead letters", HumanCount(count))),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_nothing_was_made_of_are_told_where_there_are_any() {
        let told = |skipped, dead_letters| {
            passed_over(&ProgressReading {
                skipped,
                dead_letters,
                ..ProgressReading::default()
            })
        };
        assert_eq!(told(0, 0), "");
        assert_eq!(told(1, 0), ", 1 skipped");
        assert_eq!(told(0, 1), ", 1 dead letter");
        assert_eq!(told(12_000, 2), ", 12,000 skipped, 2 dead letters");
    }
}
