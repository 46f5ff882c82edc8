//! `tidelock dlq discard`.

use clap::Args;

use crate::cli::dlq::selection::SelectionArguments;
use crate::cli::{Outcome, OutputFormat};
use crate::telemetry::LogOutput;
use crate::types::dead_letter::LetterRequestKind;

/// Arguments of `tidelock dlq discard`.
#[derive(Debug, Args)]
pub struct DiscardArguments {
    /// Which letters.
    #[command(flatten)]
    pub selection: SelectionArguments,
}

/// Lets letters go: at once in a store that nobody has, else by the run that has it.
///
/// # Errors
///
/// When a letter is named that is not there, the store fails, or the process that has it can't answer.
pub(super) fn discard(
    arguments: &DiscardArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    arguments
        .selection
        .ask(LetterRequestKind::Discard, output, logs)
}
