//! What stands against registering a pipeline.

use crate::controller::change::{Change, lines};
use crate::controller::layouts::RETIRING_PARTITIONS_MAX;
use crate::controller::registry::intent::{Intent, SinkIntent};
use crate::controller::registry::rows;
use crate::storage::{Storage, StorageError};

/// A pipeline could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A state's encoding changed; there is no migration yet.
    #[error(
        "pipeline {pipeline} would misread its states:\n{}\n--accept-change does not convert them; go back to the component with the old version, or start afresh in another data directory",
        lines(changes)
    )]
    StateVersions {
        /// The pipeline.
        pipeline: String,
        /// All differences.
        changes: Vec<Change>,
    },
    /// A transform was given other numbers of partitions again and again while its readers had not
    /// taken what the earlier ones wrote.
    #[error(
        "the readers of computation {computation} of pipeline {pipeline} have yet to take messages of {count} partitions that it had before, at most {RETIRING_PARTITIONS_MAX} may be left; run it to its end with the partitions that it has now, then change them"
    )]
    TooManyRetiring {
        /// The pipeline.
        pipeline: String,
        /// The transform.
        computation: String,
        /// Partitions of earlier layouts.
        count: usize,
    },
    /// A sink's file belongs to another pipeline on the same data directory.
    #[error(
        "sink {sink} of pipeline {pipeline} would append to {path}, which pipeline {owner} writes; give it a file of its own"
    )]
    SinkTaken {
        /// The pipeline.
        pipeline: String,
        /// The sink.
        sink: String,
        /// The file.
        path: String,
        /// The pipeline that writes it.
        owner: String,
    },
    /// Another process registered the pipeline at the same time.
    #[error("pipeline {pipeline} was registered by another process at the same time; try again")]
    Contended {
        /// The pipeline.
        pipeline: String,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Refuses a sink whose file another pipeline of this data directory writes: a pipeline that was
/// renamed begins anew, and would write all its rows a second time.
pub(super) fn refuse_taken_sinks(
    storage: &dyn Storage,
    pipeline: &str,
    intent: &Intent,
) -> Result<(), RegistryError> {
    for theirs in rows::sinks_of_all_pipelines(storage)? {
        let (owner, path) = (theirs.pipeline, theirs.row.last.path);
        let is_same = |ours: &SinkIntent| ours.path.is_some() && ours.path == path;
        if owner == pipeline {
            continue;
        }
        if let Some((sink, ours)) = intent.sinks.iter().find(|(_, ours)| is_same(ours)) {
            return Err(RegistryError::SinkTaken {
                pipeline: pipeline.to_owned(),
                sink: sink.clone(),
                path: ours.path.clone().unwrap_or_default(),
                owner,
            });
        }
    }
    Ok(())
}
