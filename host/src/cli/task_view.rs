//! How far a long task is: a bar on a terminal, plain lines elsewhere. For what `run` shows see
//! `progress.rs`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::clock::{Clock, SystemClock};
use crate::telemetry::LogOutput;

/// How often a plain line is printed.
const LINE_PERIOD: Duration = Duration::from_secs(2);

/// Shows one task.
pub struct TaskView<'a> {
    logs: &'a LogOutput,
    clock: SystemClock,
    last_line: Duration,
    verb: &'static str,
    bar: Option<ProgressBar>,
}

impl<'a> TaskView<'a> {
    /// Nothing is done yet; `verb` is what goes on ("counting").
    pub fn start(logs: &'a LogOutput, verb: &'static str) -> TaskView<'a> {
        let bar = logs.is_terminal().then(|| {
            let template = "{prefix}  {bar:40} {percent:>3} %  {msg}  {elapsed_precise}";
            let style = ProgressStyle::with_template(template)
                .expect("the template is constant")
                .progress_chars("=> ");
            logs.bars()
                .add(ProgressBar::new(0).with_style(style).with_prefix(verb))
        });
        let clock = SystemClock::start();
        TaskView {
            logs,
            clock,
            last_line: clock.elapsed(),
            verb,
            bar,
        }
    }

    /// So much is done of about so much.
    pub fn show(&mut self, done: u64, total: u64, message: &dyn Fn() -> String) {
        let now = self.clock.elapsed();
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(message());
        } else if now >= self.last_line + LINE_PERIOD {
            self.last_line = now;
            let percent = done * 100 / total.max(1);
            self.logs
                .print_line(&format!("{} {percent:>3} %  {}", self.verb, message()));
        }
    }

    /// It is done; how long it took.
    pub fn finish(self) -> Duration {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.logs.bars().remove(bar);
        }
        self.clock.elapsed()
    }
}
