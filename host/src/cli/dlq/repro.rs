//! `tidelock dlq repro`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use crate::cli::data::DataArguments;
use crate::cli::dlq::LetterStore;
use crate::cli::dlq::question::WholeLetter;
use crate::cli::dlq::shown::LetterDocument;
use crate::cli::printing::{print_json, print_line};
use crate::cli::repro::call::{BatchDocument, CallDocument, FORMAT};
use crate::cli::repro::folder::{CALL, COMPONENT, EXPECTED, LETTER, NewFolder, RECORD};
use crate::cli::{Outcome, OutputFormat};
use crate::controller::admission::read_component;
use crate::guest::RecordedSettings;
use crate::telemetry::LogOutput;
use crate::types::dead_letter::{
    DeadLetter, DeadLetterId, FailedComputation, LetterItem, LetterOrigin,
};
use crate::types::digest::Digest;

/// Arguments of `tidelock dlq repro`.
#[derive(Debug, Args)]
pub struct ReproArguments {
    /// Which letter.
    pub id: DeadLetterId,
    /// The folder to write, a new or an empty one.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// The component, where it is no longer where the pipeline had it.
    #[arg(long, value_name = "FILE.wasm")]
    pub component: Option<PathBuf>,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// Writes a folder with all that the failing call needs.
///
/// # Errors
///
/// When there is no such letter, the component is another one, or the folder can't be written.
pub(super) fn repro(
    arguments: &ReproArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let whole = LetterStore::open(&arguments.data)?.find(arguments.id)?;
    match &whole.letter.origin {
        LetterOrigin::Computation(failed) => {
            write_call(arguments, &whole.letter, failed)?;
            if failed.left_out_state_bytes > 0 {
                logs.print_line(&format!(
                    "warning: the states of the item's key had {} bytes, too many to be kept, so the call is without them",
                    failed.left_out_state_bytes
                ));
            }
            logs.print_line(&format!(
                "the call that failed is in {0}; run `tidelock replay {0}` on any machine to make it again",
                arguments.to.display()
            ));
        }
        LetterOrigin::Source { name } => {
            write_record(arguments, &whole, name)?;
            logs.print_line(&format!(
                "source {name} could not decode the record, so there is no call; its bytes are in {}",
                arguments.to.join(RECORD).display()
            ));
        }
    }
    match output {
        OutputFormat::Json => print_json(&serde_json::json!({
            "letter": arguments.id.to_string(),
            "folder": arguments.to,
        }))?,
        OutputFormat::Text => print_line(&arguments.to.display().to_string())?,
    }
    Ok(Outcome::Done)
}

fn write_call(
    arguments: &ReproArguments,
    letter: &DeadLetter,
    failed: &FailedComputation,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        !failed.settings.is_empty(),
        "what is needed to repeat the call of dead letter {0} was left out, as too much failed with it at once; `tidelock dlq show {0}` shows its item",
        arguments.id
    );
    let settings = RecordedSettings::from_json(&failed.settings)
        .context("the settings that the dead letter has can't be read")?;
    let component = component_of(arguments, failed)?;
    let call = CallDocument {
        format: FORMAT,
        tidelock: env!("CARGO_PKG_VERSION").to_owned(),
        letter: arguments.id.to_string(),
        pipeline: letter.pipeline.clone(),
        computation: failed.name.clone(),
        component_digest: failed.digest.clone(),
        left_out_state_bytes: failed.left_out_state_bytes,
        batch: BatchDocument::of(&failed.batch, &settings.states),
        settings,
    };
    let folder = NewFolder::make(&arguments.to)?;
    folder.write_readme(&readme_of_call(letter, failed, arguments.id))?;
    folder.write(COMPONENT, &component)?;
    folder.write_json(EXPECTED, &letter.failure)?;
    folder.write_json(CALL, &call)
}

/// The bytes of the very component that failed.
fn component_of(arguments: &ReproArguments, failed: &FailedComputation) -> anyhow::Result<Vec<u8>> {
    let path = match &arguments.component {
        Some(path) => path.as_path(),
        None => Path::new(&failed.component),
    };
    let shown = path.display();
    let bytes = read_component(path).map_err(|finding| {
        anyhow::anyhow!(
            "the component {shown} {finding}; name the file that has {} now with --component",
            failed.digest
        )
    })?;
    let found = Digest::of(&bytes).to_string();
    anyhow::ensure!(
        found == failed.digest,
        "the component {shown} is {found}, and the one that failed was {}; name that one with --component; `tidelock replay --component` \
         tries another one on the same call",
        failed.digest
    );
    Ok(bytes)
}

fn readme_of_call(letter: &DeadLetter, failed: &FailedComputation, id: DeadLetterId) -> String {
    let DeadLetter {
        pipeline,
        location,
        failure,
        ..
    } = letter;
    let FailedComputation { name, digest, .. } = failed;
    format!(
        "# A call that failed\n\n\
         Computation `{name}` of pipeline `{pipeline}` failed on {location} (dead letter `{id}`): {}.\n\n\
         ```sh\n\
         tidelock replay .                                    # makes the call again\n\
         tidelock replay . --component path/to/repaired.wasm  # tries a repaired component on it\n\
         ```\n\n\
         The first command ends with 0 where the call fails as it did, in class, reason, fuel, stdout and stderr, to the byte; with 3\n\
         where it does not, and shows the difference. The second one shows what the component makes of the call: messages, states,\n\
         timers and log lines. Neither needs anything but this folder and `tidelock`.\n\n\
         - `{COMPONENT}`: the component, {digest}.\n\
         - `{CALL}`: its settings and the batch: the item, its key, and the states of the key as they were. Bytes are texts, or\n  \
         objects with their base64 where they are not UTF-8.\n\
         - `{EXPECTED}`: how the call failed.\n\n\
         {}What a component prints and its backtrace are what its author made of them; the item may be somebody's data.\n",
        failure.class,
        match failed.left_out_state_bytes {
            0 => String::new(),
            bytes => format!(
                "The states had {bytes} bytes, too many to be kept: the call is without them, and may end otherwise.\n\n"
            ),
        }
    )
}

fn write_record(
    arguments: &ReproArguments,
    whole: &WholeLetter,
    source: &str,
) -> anyhow::Result<()> {
    let LetterItem::Record {
        of,
        position,
        bytes,
        size_bytes,
    } = &whole.letter.item
    else {
        anyhow::bail!(
            "dead letter {} is of source {source} and has no record",
            arguments.id
        );
    };
    let kept = match bytes.len() as u64 == *size_bytes {
        true => "as they are".to_owned(),
        false => format!("the first {} of {size_bytes}", bytes.len()),
    };
    let readme = format!(
        "# A record that could not be decoded\n\n\
         Source `{source}` of pipeline `{}` could not decode record {position} of {of} (dead letter `{}`): {}\n\n\
         No component was called, so there is no call to make again. `{RECORD}` has the bytes of the record, {kept}; `{LETTER}` has all that\n\
         is known of it. Compare them with what the source's options say (format, columns, encoding, the longest line); correct the\n\
         options and replay the letter, or correct the record, write it where the source reads, and discard the letter.\n",
        whole.letter.pipeline, arguments.id, whole.letter.failure.reason
    );
    let folder = NewFolder::make(&arguments.to)?;
    folder.write_readme(&readme)?;
    folder.write(RECORD, bytes)?;
    folder.write_json(LETTER, &LetterDocument::of(arguments.id, whole))
}
