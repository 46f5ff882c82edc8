//! `tidelock store restore`: a data directory out of a backup, and what became of the files of sinks since.

use std::path::PathBuf;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use crate::cli::data::DataArguments;
use crate::cli::printing::{print_json, print_line};
use crate::cli::task_view::TaskView;
use crate::cli::{Outcome, OutputFormat};
use crate::storage::backup::{BackupContents, BackupHeader};
use crate::storage::embedded::restore::{self, RestoreError};
use crate::storage::embedded::{EmbeddedOptions, EmbeddedStorage, LaterFiles, SinkFileLength};
use crate::storage::{StorageError, final_name};
use crate::telemetry::LogOutput;

/// Arguments of `tidelock store restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    /// Bring files of sinks back to what the backup knows of: those that have more are cut, those of directories that were
    /// finished since get their names with .part back, and later ones go into a folder after-backup beside them. What
    /// was written since then will be written again.
    #[arg(long)]
    pub cut_sinks: bool,
    /// Where the store is to be: a new or empty directory.
    #[command(flatten)]
    pub data: DataArguments,
}

#[derive(Debug, Serialize)]
struct RestoreReport {
    data: PathBuf,
    #[serde(flatten)]
    header: BackupHeader,
    #[serde(flatten)]
    contents: BackupContents,
    elapsed_ms: u64,
    sink_files: Vec<SinkFileReport>,
    /// Files of directory sinks that were moved.
    moved: Vec<Moved>,
    damaged_partitions: Vec<String>,
}

/// A file of a directory sink that is of after the backup.
#[derive(Debug, Serialize)]
struct Moved {
    from: PathBuf,
    to: PathBuf,
}

/// A sink's file beside what the store knows of it.
#[derive(Debug, Serialize)]
pub struct SinkFileReport {
    /// The file.
    pub path: PathBuf,
    /// How many of its bytes are committed.
    pub committed_bytes: u64,
    /// How many it has; absent when there is no such file.
    pub found_bytes: Option<u64>,
    /// How many were cut off just now.
    pub cut_bytes: u64,
    /// Why it has not got its final name although it is finished; absent where nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<String>,
}

impl SinkFileReport {
    pub(super) fn of(length: SinkFileLength) -> SinkFileReport {
        SinkFileReport {
            path: length.path,
            committed_bytes: length.committed_bytes,
            found_bytes: length.found_bytes,
            cut_bytes: 0,
            unnamed: length.unnamed,
        }
    }

    /// What a person has to do about it, if anything.
    pub(super) fn finding(&self) -> Option<String> {
        let (path, committed) = (self.path.display(), self.committed_bytes);
        if let Some(finding) = &self.unnamed {
            return Some(format!(
                "finished sink file {path} waits for its final name: {finding}"
            ));
        }
        match self.found_bytes {
            Some(found) if found == committed => None,
            // A file of which nothing is committed is made again.
            None if committed == 0 => None,
            Some(found) if found > committed => Some(format!(
                "sink file {path} holds {found} bytes, {committed} of them committed; cut it back with truncate -s {committed} \
                 or restore with --cut-sinks, what is cut off will be written again",
            )),
            Some(found) => Some(format!(
                "sink file {path} holds only {found} of {committed} committed bytes; put the whole file back"
            )),
            None => Some(format!(
                "sink file {path} is not there, {committed} bytes of it are committed; put it back"
            )),
        }
    }
}

/// Restores a backup.
///
/// # Errors
///
/// When the backup is none or is damaged, or the directory is not empty or can't be written.
pub fn restore(
    arguments: &RestoreArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let directory = std::path::absolute(arguments.data.directory())?;
    let mut view = TaskView::start(logs, "restore");
    let options = EmbeddedOptions::default();
    let restored = restore::restore(&arguments.from, &directory, options, &mut |progress| {
        view.show(progress.done, progress.total, &|| {
            format!("{} read", HumanBytes(progress.done))
        });
    });
    let restored = match restored {
        Err(RestoreError::Storage(error @ StorageError::InUse { .. })) => {
            logs.print_line(&format!("error: {error}"));
            return Ok(Outcome::Conflict);
        }
        restored => restored?,
    };
    let elapsed = view.finish();
    let later = restored.storage.later_files()?;
    let moved: Vec<Moved> = match arguments.cut_sinks {
        true => (restored.storage.put_back(&later)?.into_iter())
            .map(|(from, to)| Moved { from, to })
            .collect(),
        false => Vec::new(),
    };
    let mut sink_files = look_at_sinks(&restored.storage, arguments.cut_sinks)?;
    if !arguments.cut_sinks {
        // Told with its later name, and not as missing.
        let is_finished = |file: &SinkFileReport| {
            let mut finished = later.finished.iter();
            finished.any(|(_, name, _)| final_name(&file.path).as_ref() == Some(name))
        };
        sink_files.retain(|file| !is_finished(file));
    }
    let report = RestoreReport {
        data: directory,
        header: restored.header,
        contents: restored.contents,
        elapsed_ms: elapsed.as_millis() as u64,
        sink_files,
        moved,
        damaged_partitions: (restored.storage.damaged().into_iter())
            .map(|(partition, _)| partition.to_string())
            .collect(),
    };
    logs.print_line(&format!(
        "{}: {} rows of {}, in {:.1} s",
        report.data.display(),
        HumanCount(report.contents.catalog_rows + report.contents.bulk_rows),
        arguments.from.display(),
        elapsed.as_secs_f64(),
    ));
    match output {
        OutputFormat::Json => print_json(&report)?,
        OutputFormat::Text => print_line(&report.data.display().to_string())?,
    }
    for moved in &report.moved {
        logs.print_line(&format!(
            "sink file {} is of after the backup: moved to {}",
            moved.from.display(),
            moved.to.display()
        ));
    }
    if !arguments.cut_sinks {
        for note in notes_of_later(&restored.storage, &later) {
            logs.print_line(&format!("note: {note}"));
        }
    }
    for file in &report.sink_files {
        if file.cut_bytes > 0 {
            logs.print_line(&format!(
                "sink file {}: {} bytes cut off",
                file.path.display(),
                file.cut_bytes
            ));
        }
        if let Some(finding) = file.finding() {
            logs.print_line(&format!("note: {finding}"));
        }
    }
    Ok(Outcome::Done)
}

/// What is to be done with files of directory sinks of after the backup, where nobody asked for it to be done.
fn notes_of_later(storage: &EmbeddedStorage, later: &LaterFiles) -> Vec<String> {
    let lengths = storage.sink_file_lengths();
    let finished = later.finished.iter().filter_map(|(file, name, found)| {
        let known = lengths.iter().find(|known| known.file == *file)?;
        Some(format!(
            "sink file {} holds {found} bytes and was finished after the backup, which knows {committed} of them: rename it \
             to {} and cut it back with truncate -s {committed}, or restore with --cut-sinks",
            name.display(),
            known.path.display(),
            committed = known.committed_bytes,
        ))
    });
    let begun = later.begun.iter().map(|path| {
        format!(
            "sink file {} was begun after the backup, and its rows will be written again: move it away, or restore with \
             --cut-sinks",
            path.display()
        )
    });
    finished.chain(begun).collect()
}

/// What the files of sinks hold beside what they should.
fn look_at_sinks(
    storage: &EmbeddedStorage,
    cut_sinks: bool,
) -> Result<Vec<SinkFileReport>, StorageError> {
    let lengths = storage.sink_file_lengths().into_iter();
    lengths
        .map(|length| {
            let file = length.file;
            let is_longer = length.found_bytes > Some(length.committed_bytes);
            let mut report = SinkFileReport::of(length);
            if cut_sinks && is_longer {
                report.cut_bytes = storage.cut_sink_file(file)?;
                report.found_bytes = Some(report.committed_bytes);
            }
            Ok(report)
        })
        .collect()
}
