//! The command line. Data goes to stdout, everything else to stderr.
//!
//! Exit codes: 0 ok, 1 failure, 2 usage, 3 a failure was not reproduced, 5 conflict (a data directory in use, a pipeline that
//! changed since its last run), 74 a write or sync failed, or a sink's file was spoilt (committed
//! rows are kept, the next run goes on), 130 interrupted.

pub mod bytes;
pub mod check;
pub mod control;
pub mod data;
pub mod dlq;
pub mod graph;
pub mod inspect;
pub mod job_notes;
pub mod moves;
pub(crate) mod printing;
pub mod progress;
pub mod queue;
pub mod replay;
pub mod repro;
pub mod run;
pub mod state;
pub mod store;
pub mod task_view;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};

use crate::storage::embedded::{EXIT_AFTER_FAILED_SYNC, EmbeddedOptions, EmbeddedStorage};
use crate::storage::{Storage, StorageError};
use crate::telemetry::{LogLevel, LogOutput};

/// Runs sealed WebAssembly computations on streams of data, exactly once.
#[derive(Debug, Parser)]
#[command(name = "tidelock", version, max_term_width = 100)]
pub struct Cli {
    /// What is logged to stderr.
    #[arg(long, global = true, value_enum, default_value_t = LogLevel::Warn)]
    pub log: LogLevel,
    /// How results are printed to stdout.
    #[arg(short = 'o', long = "output", global = true, value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pipeline here until its finite sources are at their end; run it again to go on.
    Run(run::RunArguments),
    /// Check everything that a run would, and report all errors at once.
    Check(check::CheckArguments),
    /// Show the graph of a pipeline as it will run, cut into jobs: as text or as a picture.
    Graph(graph::GraphArguments),
    /// Show what a component exports and imports, and what each import means.
    Inspect(inspect::InspectArguments),
    /// Look into the states that a data directory keeps.
    #[command(subcommand)]
    State(state::StateCommand),
    /// Make, fill, read and trim the queues of a data directory that nobody uses.
    Queue(queue::QueueArguments),
    /// List, show, replay and discard dead letters: items that a computation failed on.
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Make the call of a dead letter again, from a folder that `dlq repro` wrote.
    Replay(replay::ReplayArguments),
    /// Back up, restore, check, compact or measure what a data directory holds.
    #[command(subcommand)]
    Store(store::StoreCommand),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// For programs: one JSON document.
    Json,
}

/// How a command ended that did what it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// The answer is no, and has been printed.
    Failed,
    /// A failure that was to be reproduced did not come again; the difference has been printed.
    NotReproduced,
    /// Something else stands in the way; it has been printed.
    Conflict,
    /// A signal ended it; a later run goes on.
    Interrupted,
}

impl Outcome {
    fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::NotReproduced => 3,
            Outcome::Conflict => 5,
            Outcome::Interrupted => 130,
        })
    }
}

/// How a command ends that was called wrongly, as for what the parser of arguments finds.
const USAGE_EXIT_CODE: u8 = 2;

/// Arguments that can't be meant so, for a reason that the parser of arguments can't know.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Opens the storage of a data directory.
pub type OpenStorage = dyn Fn(&Path) -> Result<Arc<dyn Storage>, StorageError>;

/// Opens the embedded storage, the default.
///
/// # Errors
///
/// As [`EmbeddedStorage::open`].
pub fn open_embedded_storage(directory: &Path) -> Result<Arc<dyn Storage>, StorageError> {
    let storage = EmbeddedStorage::open(directory, EmbeddedOptions::default())?;
    Ok(Arc::new(storage))
}

/// The whole program, over the given storage.
pub fn main(open_storage: &OpenStorage) -> ExitCode {
    let cli = Cli::parse();
    let logs = LogOutput::install(cli.log);
    let outcome = match &cli.command {
        Command::Run(arguments) => run::run(arguments, cli.output, &logs, open_storage),
        Command::Check(arguments) => check::check(arguments, cli.output),
        Command::Graph(arguments) => graph::graph(arguments, cli.output, &logs),
        Command::Inspect(arguments) => {
            inspect::inspect(arguments, cli.output).map(|()| Outcome::Done)
        }
        Command::State(command) => state::run(command, cli.output, &logs),
        Command::Queue(arguments) => queue::queue(arguments, cli.output, &logs, open_storage),
        Command::Replay(arguments) => replay::replay(arguments, cli.output, &logs),
        Command::Dlq(command) => dlq::run(command, cli.output, &logs),
        Command::Store(command) => store::run(command, cli.output, &logs),
    };
    match outcome {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            logs.print_line(&format!("error: {error:#}"));
            if is_full_disk(&error) {
                logs.print_line(
                    "there is no space on the disk: free some, then run the command again",
                );
                return ExitCode::from(u8::try_from(EXIT_AFTER_FAILED_SYNC).unwrap_or(1));
            }
            match error.is::<UsageError>() {
                true => ExitCode::from(USAGE_EXIT_CODE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// Nothing can be written before somebody makes room.
fn is_full_disk(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};

    error.chain().any(|cause| {
        let error = cause.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let failed = |kind| {
            let error = std::io::Error::from(kind);
            anyhow::Error::new(error).context("failed to open the data directory")
        };
        assert!(is_full_disk(&failed(std::io::ErrorKind::StorageFull)));
        assert!(!is_full_disk(&failed(std::io::ErrorKind::PermissionDenied)));
    }

    #[test]
    fn the_command_tree_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
