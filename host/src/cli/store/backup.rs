//! `tidelock store backup`: everything that is stored into one file. Of a store that a run has, the run
//! writes it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::{Deserialize, Serialize};

use crate::cli::control::{self, Answered, Request, Told};
use crate::cli::data::{DataArguments, Opened, open_embedded, tell_damage};
use crate::cli::printing::{print_json, print_line};
use crate::cli::task_view::TaskView;
use crate::cli::{Outcome, OutputFormat};
use crate::clock::{Clock, SystemClock};
use crate::storage::Storage;
use crate::storage::backup::writer::write_backup;
use crate::storage::backup::{
    BackupContents, BackupError, BackupHeader, BackupProgress, ObserveBackup,
};
use crate::telemetry::LogOutput;

/// Arguments of `tidelock store backup`.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The file to write; it must not be there yet.
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// A backup that was written.
#[derive(Debug, Serialize, Deserialize)]
pub struct BackupReport {
    /// The file.
    pub backup: PathBuf,
    /// What it says of itself.
    #[serde(flatten)]
    pub header: BackupHeader,
    /// What it holds.
    #[serde(flatten)]
    pub contents: BackupContents,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// Writes a backup.
///
/// # Errors
///
/// When there is no store, it or the file fails, or the process that has the store can't write it.
pub fn backup(
    arguments: &BackupArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let directory = arguments.data.existing()?;
    refuse_within(&directory, &arguments.to)?;
    // Another process may have another current folder.
    let to = std::path::absolute(&arguments.to)
        .with_context(|| format!("{} is no name of a file", arguments.to.display()))?;
    let mut view = TaskView::start(logs, "backup");
    let mut show = |progress: BackupProgress| {
        view.show(progress.done, progress.total, &|| {
            format!(
                "{} rows, {} written",
                HumanCount(progress.done),
                HumanBytes(progress.file_bytes)
            )
        });
    };
    let mut outcome = Outcome::Done;
    let report = match open_embedded(&directory)? {
        Opened::Free(storage) => {
            outcome = tell_damage(&storage, logs);
            let observe = &mut |progress| {
                show(progress);
                ControlFlow::Continue(())
            };
            take_backup(&storage, &to, &SystemClock::start(), observe)?
        }
        Opened::Held(error) => {
            let request = Request::Backup { to };
            let mut show = |told| {
                if let Told::Progress(progress) = told {
                    show(progress);
                }
                Ok(())
            };
            match control::ask(&directory, &request, &mut show) {
                Ok(Answered::Backup(report)) => report,
                Ok(_) => anyhow::bail!("the answer is another request's"),
                Err(refused) if refused.root_cause().is::<std::io::Error>() => {
                    logs.print_line(&format!("error: {refused:#}; {error}"));
                    return Ok(Outcome::Conflict);
                }
                Err(refused) => return Err(refused),
            }
        }
    };
    view.finish();
    let contents = report.contents;
    logs.print_line(&format!(
        "{}: {} rows, {} in {} on disk, in {:.1} s",
        report.backup.display(),
        HumanCount(contents.catalog_rows + contents.bulk_rows),
        HumanBytes(contents.row_bytes),
        HumanBytes(contents.file_bytes),
        Duration::from_millis(report.elapsed_ms).as_secs_f64(),
    ));
    match output {
        OutputFormat::Json => print_json(&report)?,
        OutputFormat::Text => print_line(&report.backup.display().to_string())?,
    }
    Ok(outcome)
}

/// Refuses a backup in the directory that it is one of: it would go with it.
fn refuse_within(directory: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = match to.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // A folder that is not there is told of when the file is made.
    let is_within = (folder.canonicalize()).is_ok_and(|folder| folder.starts_with(directory));
    anyhow::ensure!(
        !is_within,
        "{} lies in the data directory {}, and a backup must outlive it; name a file outside",
        to.display(),
        directory.display()
    );
    Ok(())
}

/// Writes a backup of an open store. Commits go on meanwhile.
///
/// # Errors
///
/// As [`write_backup`].
pub fn take_backup(
    storage: &dyn Storage,
    to: &Path,
    clock: &dyn Clock,
    observe: &mut ObserveBackup<'_>,
) -> Result<BackupReport, BackupError> {
    let start = clock.elapsed();
    let snapshot = storage.snapshot()?;
    let header = BackupHeader::of(&*snapshot, clock.now())?;
    let contents = write_backup(&*snapshot, &header, to, observe)?;
    Ok(BackupReport {
        backup: to.to_owned(),
        header,
        contents,
        elapsed_ms: (clock.elapsed() - start).as_millis() as u64,
    })
}
