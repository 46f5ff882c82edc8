//! `tidelock dlq show`.

use anyhow::Context as _;
use clap::Args;

use crate::cli::data::DataArguments;
use crate::cli::dlq::LetterStore;
use crate::cli::dlq::shown::LetterDocument;
use crate::cli::printing::{print, print_json};
use crate::cli::{Outcome, OutputFormat};
use crate::telemetry::LogOutput;
use crate::types::dead_letter::{DeadLetterId, LetterItem};

/// Arguments of `tidelock dlq show`.
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// Which letter.
    pub id: DeadLetterId,
    /// Write the bytes of the item alone to standard output, as they are.
    #[arg(long)]
    pub payload: bool,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// Shows all of a letter.
///
/// # Errors
///
/// When there is no such letter, the store fails, or the process that has it can't answer.
pub(super) fn show(
    arguments: &ShowArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let whole = LetterStore::open(&arguments.data)?.find(arguments.id)?;
    if arguments.payload {
        let (bytes, size_bytes) = match &whole.letter.item {
            LetterItem::Message { payload, .. } => (payload, payload.len() as u64),
            LetterItem::Record {
                bytes, size_bytes, ..
            } => (bytes, *size_bytes),
            LetterItem::Timer { .. } => {
                return Err(anyhow::anyhow!("it is a timer, which has no payload"))
                    .with_context(|| format!("dead letter {}", arguments.id));
            }
        };
        if size_bytes > bytes.len() as u64 {
            logs.print_line(&format!(
                "warning: these are the first {} of {size_bytes} bytes; no more of the record were kept",
                bytes.len()
            ));
        }
        print(|to| Ok(to.write_all(bytes)?))?;
        return Ok(Outcome::Done);
    }
    let document = LetterDocument::of(arguments.id, &whole);
    match output {
        OutputFormat::Json => print_json(&document)?,
        OutputFormat::Text => print(|to| document.write_text(to))?,
    }
    Ok(Outcome::Done)
}
