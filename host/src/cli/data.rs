//! Which data directory a command is about, and its storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use crate::cli::run::DATA_DIRECTORY_NAME;
use crate::cli::{OpenStorage, Outcome};
use crate::config;
use crate::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use crate::storage::{Storage, StorageError};
use crate::telemetry::LogOutput;

/// Which data directory.
#[derive(Debug, Clone, Args)]
pub struct DataArguments {
    /// A data directory, or a pipeline file or its folder: the data directory beside that file [default: .tidelock].
    #[arg(long, value_name = "DIR|FILE")]
    pub data: Option<PathBuf>,
}

impl DataArguments {
    /// The data directory.
    pub fn directory(&self) -> PathBuf {
        let Some(named) = &self.data else {
            return PathBuf::from(DATA_DIRECTORY_NAME);
        };
        if named.is_file() {
            return (named.parent().unwrap_or(Path::new(""))).join(DATA_DIRECTORY_NAME);
        }
        match named.join(config::PIPELINE_FILE_NAME).is_file() {
            true => named.join(DATA_DIRECTORY_NAME),
            false => named.clone(),
        }
    }

    /// The data directory, in which there must be a store.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn existing(&self) -> anyhow::Result<PathBuf> {
        let directory = self.directory();
        anyhow::ensure!(
            EmbeddedStorage::exists_in(&directory),
            "there is no store in {}; name the data directory of a run with --data, or its pipeline file",
            directory.display()
        );
        // An absolute path is what files of sinks and a running process go by.
        (directory.canonicalize())
            .with_context(|| format!("failed to find the data directory {}", directory.display()))
    }
}

/// Names the damaged partitions of a store, if there are any: then whatever else a command does, it fails.
pub fn tell_damage(storage: &EmbeddedStorage, logs: &LogOutput) -> Outcome {
    let damaged = storage.damaged();
    for (partition, damage) in &damaged {
        logs.print_line(&format!(
            "error: partition {partition} is damaged at epoch {}: {}; restore the data directory from an older backup",
            damage.epoch, damage.finding
        ));
    }
    match damaged.is_empty() {
        true => Outcome::Done,
        false => Outcome::Failed,
    }
}

/// A store that this process has opened, or the process that has it.
pub enum Opened<S> {
    /// Nobody had it.
    Free(S),
    /// Somebody has it: the error says who.
    Held(StorageError),
}

impl<S> Opened<S> {
    /// The store; `None` when somebody has it, and a person was told who.
    pub fn free_or_tell(self, logs: &LogOutput) -> Option<S> {
        match self {
            Opened::Free(storage) => Some(storage),
            Opened::Held(error) => {
                logs.print_line(&format!("error: {error}"));
                None
            }
        }
    }
}

/// Opens the storage of an existing data directory by `open_storage`.
///
/// # Errors
///
/// When it can't be opened for another reason than that somebody has it.
pub fn open(
    directory: &Path,
    open_storage: &OpenStorage,
) -> anyhow::Result<Opened<Arc<dyn Storage>>> {
    sort_out(directory, open_storage(directory))
}

/// Opens the embedded storage of an existing data directory.
///
/// # Errors
///
/// As [`open`].
pub fn open_embedded(directory: &Path) -> anyhow::Result<Opened<EmbeddedStorage>> {
    sort_out(
        directory,
        EmbeddedStorage::open(directory, EmbeddedOptions::default()),
    )
}

fn sort_out<S>(directory: &Path, opened: Result<S, StorageError>) -> anyhow::Result<Opened<S>> {
    match opened {
        Err(error @ (StorageError::InUse { .. } | StorageError::SinkFileInUse { .. })) => {
            Ok(Opened::Held(error))
        }
        opened => {
            let opened = opened.with_context(|| format!("failed to open {}", directory.display()));
            Ok(Opened::Free(opened?))
        }
    }
}
