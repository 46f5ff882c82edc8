//! `tidelock state export`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use indicatif::HumanCount;

use crate::cli::Outcome;
use crate::cli::data::DataArguments;
use crate::cli::printing::print;
use crate::cli::state::rows::MergedRows;
use crate::cli::state::shown::json_line;
use crate::cli::state::{Selected, StateName, open, unfinished};
use crate::cli::task_view::TaskView;
use crate::storage::Storage as _;
use crate::storage::embedded::EmbeddedStorage;
use crate::telemetry::LogOutput;

/// Rows between two looks at how far it is.
const ROWS_PER_LOOK: u64 = 1_024;

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Arguments of `tidelock state export`.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Which state.
    #[command(flatten)]
    pub name: StateName,
    /// Write to this file, which must not be there yet, and not to standard output.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Write values too that a run would not see any more because of their age.
    #[arg(long)]
    pub absent: bool,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// Writes all keys and values.
///
/// # Errors
///
/// When there is no such state, the store fails, or the file can't be written.
pub(super) fn export(arguments: &ExportArguments, logs: &LogOutput) -> anyhow::Result<Outcome> {
    let Some(storage) = open(&arguments.data, logs)? else {
        return Ok(Outcome::Conflict);
    };
    let selected = Selected::find(&storage, &arguments.name)?;
    let count = match &arguments.to {
        None => {
            let mut count = None;
            print(|output| {
                count = Some(write(&storage, &selected, arguments, output, logs)?.0);
                Ok(())
            })?;
            match count {
                Some(count) => count,
                // Whoever reads has had enough.
                None => return Ok(Outcome::Done),
            }
        }
        Some(path) => {
            let unfinished = unfinished(path)?;
            let written = File::create(&unfinished)
                .map_err(anyhow::Error::from)
                .and_then(|file| write(&storage, &selected, arguments, file, logs))
                .and_then(|(count, file)| {
                    file.sync_all()?;
                    std::fs::rename(&unfinished, path)?;
                    Ok(count)
                });
            if written.is_err() {
                // What went wrong is worth more than this.
                let _ = std::fs::remove_file(&unfinished);
            }
            written.with_context(|| format!("failed to write {}", path.display()))?
        }
    };
    logs.print_line(&format!(
        "{} keys of state {}",
        HumanCount(count),
        selected.state
    ));
    Ok(Outcome::Done)
}

fn write<W: Write>(
    storage: &EmbeddedStorage,
    selected: &Selected,
    arguments: &ExportArguments,
    output: W,
    logs: &LogOutput,
) -> anyhow::Result<(u64, W)> {
    let total = storage.snapshot()?.approximate_rows();
    let mut view = TaskView::start(logs, "export");
    let mut output = BufWriter::with_capacity(WRITE_BYTES, output);
    let mut count = 0;
    for row in MergedRows::new(storage, selected, b"", b"")? {
        let row = row?;
        if row.is_absent && !arguments.absent {
            continue;
        }
        writeln!(output, "{}", json_line(&selected.format, &row))?;
        count += 1;
        if count % ROWS_PER_LOOK == 0 {
            view.show(count, total.max(count), &|| {
                format!("{} keys", HumanCount(count))
            });
        }
    }
    let output = output
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    view.finish();
    Ok((count, output))
}
