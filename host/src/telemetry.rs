//! Logs: `tracing` to stderr, without tearing a progress bar that is drawn there.

use std::io::{self, IsTerminal as _, Write};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing_subscriber::fmt::MakeWriter;

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// A person must act.
    Error,
    /// Unexpected and handled.
    Warn,
    /// A job or lease changed state; what guests log.
    Info,
    /// Every epoch.
    Debug,
    /// Everything.
    Trace,
}

/// Where logs and progress go: stderr, shared by both.
#[derive(Debug, Clone)]
pub struct LogOutput {
    bars: MultiProgress,
    is_terminal: bool,
}

impl LogOutput {
    /// Sends logs of this level and above to stderr from now on.
    pub fn install(level: LogLevel) -> LogOutput {
        let output = LogOutput {
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            is_terminal: io::stderr().is_terminal(),
        };
        let level = match level {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
            LogLevel::Trace => tracing::Level::TRACE,
        };
        // What libraries log below a warning is theirs to read, not the operator's.
        let ours = tracing_subscriber::filter::Targets::new()
            .with_default(level.min(tracing::Level::WARN))
            .with_target("tidelock", level)
            .with_target("guest", level);
        use tracing_subscriber::layer::SubscriberExt as _;
        use tracing_subscriber::util::SubscriberInitExt as _;
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(output.is_terminal)
            .with_target(false)
            .with_writer(output.clone());
        // A second installation in one process keeps the first.
        let _ = tracing_subscriber::registry()
            .with(ours)
            .with(lines)
            .try_init();
        output
    }

    /// Prints a line for a person to stderr.
    pub fn print_line(&self, line: &str) {
        // Nobody reads stderr any more: there is no better place to say so.
        let _ = self.bars.suspend(|| writeln!(io::stderr(), "{line}"));
    }

    /// Where progress bars are drawn.
    pub fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Whether stderr is a terminal, where a bar makes sense.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }
}

impl<'a> MakeWriter<'a> for LogOutput {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine {
            output: self.clone(),
            bytes: Vec::new(),
        }
    }
}

/// One line of the log, written whole when it is complete.
pub struct LogLine {
    output: LogOutput,
    bytes: Vec<u8>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.output.bars.suspend(|| io::stderr().write_all(&bytes))
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        // A log line that can't be written has nowhere else to go.
        let _ = self.flush();
    }
}
