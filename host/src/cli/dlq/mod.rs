//! `tidelock dlq`: the dead letters of a data directory. A store that nobody has is opened; the run that has it is asked.
//!
//! - this file: the commands, and where a store is reached.
//! - [`question`]: what is asked about letters, and the answers.
//! - `shown`: a letter as a document.
//! - `selection`: which letters a command is about.
//! - `list`, `show`, `replay`, `discard`, `repro`: one command each.

mod discard;
mod list;
pub mod question;
mod replay;
mod repro;
mod selection;
mod show;
mod shown;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;

use crate::cli::control::{self, Answered, Request, Told};
use crate::cli::data::{DataArguments, Opened, open_embedded};
use crate::cli::dlq::question::{
    AskedAs, LettersAnswer, LettersQuestion, ListedLetter, WholeLetter,
};
use crate::cli::{Outcome, OutputFormat};
use crate::storage::StorageError;
use crate::storage::embedded::EmbeddedStorage;
use crate::telemetry::LogOutput;
use crate::types::dead_letter::DeadLetterId;

/// The most dead letters that one request to a running process names.
pub(crate) const IDS_PER_REQUEST: usize = 10_000;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, the oldest first.
    List(list::ListArguments),
    /// Show all of one dead letter: the item, its states, the failure, what the component printed.
    Show(show::ShowArguments),
    /// Have items processed again, each by the computation that failed on it, in a run of their pipeline.
    Replay(replay::ReplayArguments),
    /// Let dead letters go.
    Discard(discard::DiscardArguments),
    /// Write a folder with which `tidelock replay` makes the failing call again on any machine.
    Repro(repro::ReproArguments),
}

/// Carries one out.
///
/// # Errors
///
/// As each of them.
pub fn run(
    command: &DlqCommand,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let done = match command {
        DlqCommand::List(arguments) => list::list(arguments, output, logs),
        DlqCommand::Show(arguments) => show::show(arguments, output, logs),
        DlqCommand::Replay(arguments) => replay::replay(arguments, output, logs),
        DlqCommand::Discard(arguments) => discard::discard(arguments, output, logs),
        DlqCommand::Repro(arguments) => repro::repro(arguments, output, logs),
    };
    match done {
        Err(error) if error.is::<OutOfReach>() => {
            logs.print_line(&format!("error: {error:#}"));
            Ok(Outcome::Conflict)
        }
        done => done,
    }
}

/// Somebody has the store and can't be asked.
#[derive(Debug, thiserror::Error)]
#[error("{refused:#}; {holder}")]
struct OutOfReach {
    refused: anyhow::Error,
    holder: StorageError,
}

/// Where the letters are.
enum LetterStore {
    /// In a store that this process has opened.
    Free(EmbeddedStorage),
    /// In a store that another process has.
    Held {
        directory: PathBuf,
        holder: StorageError,
    },
}

impl LetterStore {
    fn open(data: &DataArguments) -> anyhow::Result<LetterStore> {
        let directory = data.existing()?;
        Ok(match open_embedded(&directory)? {
            Opened::Free(storage) => LetterStore::Free(storage),
            Opened::Held(holder) => LetterStore::Held { directory, holder },
        })
    }

    /// Has a question answered, here or by who has the store. `take` gets the pages of a list.
    fn ask(
        self,
        question: &LettersQuestion,
        take: &mut dyn FnMut(Vec<ListedLetter>) -> anyhow::Result<()>,
    ) -> anyhow::Result<LettersAnswer> {
        match self {
            LetterStore::Free(storage) => question.answer(&storage, None, take),
            LetterStore::Held { directory, holder } => {
                let request = Request::Letters {
                    question: question.clone(),
                };
                let answered = control::ask(&directory, &request, &mut |told| match told {
                    Told::Page(page) => take(page),
                    Told::Progress(_) => Ok(()),
                });
                match answered {
                    Ok(Answered::Letters(answer)) => Ok(answer),
                    Ok(_) => anyhow::bail!("the answer is another request's"),
                    // What is no error of the socket itself has been printed, or is the answer.
                    Err(refused) if refused.root_cause().is::<std::io::Error>() => {
                        Err(OutOfReach { refused, holder }.into())
                    }
                    Err(refused) => Err(refused),
                }
            }
        }
    }

    /// One letter.
    fn find(self, id: DeadLetterId) -> anyhow::Result<Box<WholeLetter>> {
        let question = LettersQuestion::Show { id };
        let answer = self.ask(&question, &mut |_| Ok(()))?;
        let LettersAnswer::Letter(letter) = answer else {
            anyhow::bail!("the answer is another question's");
        };
        letter.with_context(|| unknown(&[id]))
    }

    /// What came of asking for letters.
    fn asked(self, question: &LettersQuestion) -> anyhow::Result<(AskedAs, question::Asked)> {
        match self.ask(question, &mut |_| Ok(()))? {
            LettersAnswer::Asked { how, asked } => Ok((how, asked)),
            _ => anyhow::bail!("the answer is another question's"),
        }
    }
}

/// That there are no letters of these ids.
fn unknown(ids: &[DeadLetterId]) -> String {
    /// So many are named.
    const NAMED_MAX: usize = 10;
    let named: Vec<String> = ids
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    let more = match ids.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!(
        "there is no dead letter {}{more}; `tidelock dlq list` shows which there are, and one that was replayed or discarded is gone",
        named.join(", ")
    )
}
