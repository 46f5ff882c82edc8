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
