//! `tidelock dlq replay`.

use clap::Args;

use crate::cli::dlq::selection::SelectionArguments;
use crate::cli::{Outcome, OutputFormat};
use crate::telemetry::LogOutput;
use crate::types::dead_letter::LetterRequestKind;

/// Arguments of `tidelock dlq replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Which letters.
    #[command(flatten)]
    pub selection: SelectionArguments,
}

/// Asks for letters to be replayed: by the run that has the store, or by the next one.
///
/// # Errors
///
/// When a letter is named that is not there, the store fails, or the process that has it can't answer.
pub(super) fn replay(
    arguments: &ReplayArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    arguments
        .selection
        .ask(LetterRequestKind::Replay, output, logs)
}
