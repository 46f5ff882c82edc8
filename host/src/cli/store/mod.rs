//! `tidelock store`: what lies in a data directory, as a whole.

pub mod backup;
pub mod check;
pub mod compact;
pub mod restore;
pub mod size;

use clap::Subcommand;

use crate::cli::{Outcome, OutputFormat};
use crate::telemetry::LogOutput;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Write everything that is stored into one file, also while a run goes on.
    Backup(backup::BackupArguments),
    /// Make a data directory out of a backup.
    Restore(restore::RestoreArguments),
    /// Look at every stored row and at the files of sinks, and report all that is wrong.
    Check(check::CheckStoreArguments),
    /// Free the disk space of what was overwritten and removed.
    Compact(compact::CompactArguments),
    /// Show how much disk space is used, and by what.
    Size(size::SizeArguments),
}

/// Carries one out.
///
/// # Errors
///
/// As each of them.
pub fn run(
    command: &StoreCommand,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    match command {
        StoreCommand::Backup(arguments) => backup::backup(arguments, output, logs),
        StoreCommand::Restore(arguments) => restore::restore(arguments, output, logs),
        StoreCommand::Check(arguments) => check::check(arguments, output, logs),
        StoreCommand::Compact(arguments) => compact::compact(arguments, output, logs),
        StoreCommand::Size(arguments) => size::size(arguments, output, logs),
    }
}
