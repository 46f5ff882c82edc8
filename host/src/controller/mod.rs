//! Brings a pipeline to its target state. Today there is one: run until every finite source is at
//! its end, in this process.
//!
//! - [`admission`]: whether the pipeline may run at all.
//! - [`registry`]: what the store remembers of it.
//! - [`change`]: what differs from its last run.
//! - [`layouts`]: the partitions that transforms had before; [`layout_mover`] and [`repartition`] move what
//!   those have to the ones in force.
//! - [`graph`]: how its graph is cut into jobs.
//! - [`wiring`]: which lanes and sinks join the jobs.
//! - [`source_lists`]: what came into the lists of its sources and what left them.
//! - [`queues`]: the queues of the store.
//! - [`sources`]: its sources, opened and compared with what was read before.
//! - [`letters`]: dead letters, and what is asked to be done with them.
//! - [`orphaned_files`]: what partitions and sinks that are gone have left open.
//! - [`placement`]: the plans of the jobs, each under a lease.

pub mod admission;
pub mod catalog_check;
pub mod change;
#[cfg(test)]
mod golden_tests;
pub mod graph;
pub mod inventory;
pub mod layout_mover;
pub mod layouts;
pub mod letters;
pub mod orphaned_files;
pub mod placement;
pub mod queues;
pub mod registry;
pub mod repartition;
pub mod retiring;
pub mod source_lists;
mod source_rows;
pub mod sources;
pub mod wiring;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::clock::Clock;
use crate::controller::admission::Admission;
use crate::controller::change::{Change, lines};
use crate::controller::layout_mover::{LayoutMove, LayoutMoveError, LayoutMover};
use crate::controller::letters::discard::DiscardError;
use crate::controller::letters::unserved::{UnservedReplays, settle_unserved};
use crate::controller::orphaned_files::{finish_orphaned_files, sweep_forgotten_marks};
use crate::controller::placement::{PlacementError, Planner};
use crate::controller::queues::QueueError;
use crate::controller::queues::declared::DeclaredQueues;
use crate::controller::queues::reader::StoredQueues;
use crate::controller::queues::registry::{finish_deletions, kept_queues};
use crate::controller::registry::{
    ComputationIntent, Intent, Registration, RegistryError, RunInProgress, SinkIntent,
    SourceIntent, StateEncoding,
};
use crate::controller::repartition::RepartitionError;
use crate::controller::source_lists::compare_lists;
use crate::controller::sources::open_sources;
use crate::guest::GuestRuntime;
use crate::source;
use crate::storage::{Storage, StorageError, leases};
use crate::types::batch::{ComputationKind, Description};
use crate::types::pipeline::{Pipeline, SinkConnector, SinkOptions, SourceOptions};
use crate::worker::Worker;
use crate::worker::progress::RunProgress;
use crate::worker::queue_keeper::QueueKeeper;

/// A pipeline about to run: registered, leased, opened.
pub struct Controller {
    /// Its jobs.
    pub worker: Worker,
    /// Counters that the jobs raise.
    pub progress: RunProgress,
    /// What has changed since the last run, and was accepted.
    pub accepted_changes: Vec<Change>,
    /// Dead letters that were to be replayed and have no job in this run.
    pub unserved_replays: Vec<UnservedReplays>,
    /// The run that its jobs belong to.
    pub run: RunInProgress,
}

/// A pipeline could not be brought to run.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Something changed since the last run.
    #[error(
        "pipeline {pipeline} is not what ran last:\n{}\nrun with --accept-change to go on with it as it is now",
        lines(changes)
    )]
    Changed {
        /// The pipeline.
        pipeline: String,
        /// All differences.
        changes: Vec<Change>,
    },
    /// Its states would be misread, or another process registered it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A job could not be planned: a source, a sink's file, a lease or a component.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// States and waiting messages of a transform could not be moved to its new partitions.
    #[error(transparent)]
    LayoutMove(#[from] LayoutMoveError),
    /// A queue that it declares is not that of the store.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// What nobody goes on with could not be brought to its end.
    #[error("files and marks of partitions that are gone can't be brought to their end")]
    Orphaned(#[from] RepartitionError),
    /// Dead letters that were to go, and that no job has, could not be discarded.
    #[error(transparent)]
    Letters(#[from] DiscardError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What a start of a pipeline needs beside the pipeline.
pub struct StartContext<'a> {
    /// The sandbox.
    pub runtime: &'a Arc<GuestRuntime>,
    /// Where the pipeline's rows are.
    pub storage: &'a Arc<dyn Storage>,
    /// The time of day, for what transforms create.
    pub clock: &'a Arc<dyn Clock>,
    /// Whether to go on although something has changed since the last run.
    pub accept_change: bool,
    /// Is told how far a move to another number of partitions is; it may take a while.
    pub observe_move: &'a mut dyn FnMut(&LayoutMove),
}

impl Controller {
    /// Compares the pipeline with its last run, ends the leases of the process before this one, moves
    /// states and waiting messages where a transform has another number of partitions, grants new
    /// leases, and opens every job at its committed position.
    ///
    /// # Errors
    ///
    /// When anything has changed since the last run and `accept_change` is false; when messages
    /// would be left behind; when a source or a sink's file can't be opened; when the store fails.
    /// Nothing is written down then but numbers that are skipped; where rows of a queue went by its retention before
    /// they were read, also what was registered.
    pub fn open(
        pipeline: &Pipeline,
        admission: &Admission,
        context: StartContext<'_>,
    ) -> Result<Controller, ControllerError> {
        let StartContext {
            runtime,
            storage,
            clock,
            accept_change,
            observe_move,
        } = context;
        finish_deletions(&**storage)?;
        let queues = DeclaredQueues::draft(&**storage, &pipeline.queues, clock.now())?;
        let reader = StoredQueues::shared(storage, queues.by_name());
        let intent = intent(pipeline, admission);
        let mut registration = Registration::draft(&**storage, &pipeline.name, &intent)?;
        let changed_lists = compare_lists(pipeline, &**storage, &mut registration)?;
        let planner = Planner::new(
            pipeline,
            admission,
            runtime,
            &**storage,
            &registration,
            &queues,
        );
        planner.refuse_to_strand_messages()?;
        let (mut sources, changed_sources) =
            open_sources(pipeline, &**storage, &registration, &reader)?;
        let mut changes = registration.changes.clone();
        changes.extend(changed_lists);
        changes.extend(changed_sources);
        if !changes.is_empty() && !accept_change {
            return Err(ControllerError::Changed {
                pipeline: pipeline.name.clone(),
                changes,
            });
        }
        // Who stops in order ends them: where one is in force, the process ended with the job.
        leases::end_all_unclean(&**storage)?;
        let mut mover = LayoutMover::new(&**storage, &registration, observe_move);
        mover.finish_recorded()?;
        queues.commit(&**storage)?;
        registration.commit(&**storage)?;
        tracing::debug!(
            deployment = registration.deployment(),
            run = registration.run(),
            "pipeline registered"
        );
        mover.carry_out()?;
        sweep_forgotten_marks(&**storage, &registration)?;
        finish_orphaned_files(pipeline, &**storage, &registration, planner.wiring())?;
        let mut keeper = QueueKeeper::new(storage, clock, kept_queues(&**storage)?);
        // What is kept no longer goes before sources begin: one that has never read is not to meet the hole.
        keeper.sweep();
        let swept = sources.reopen_queues(pipeline, &**storage, &registration, &reader)?;
        if !swept.is_empty() && !accept_change {
            return Err(ControllerError::Changed {
                pipeline: pipeline.name.clone(),
                changes: swept,
            });
        }
        changes.retain(|before| swept.iter().all(|now| now.what != before.what));
        changes.extend(swept);
        let wiring = planner.wiring();
        let shapes = wiring.shapes().iter();
        let served = shapes.flat_map(|shape| wiring.partitions(&shape.head).to_vec());
        let unserved_replays = settle_unserved(&**storage, &pipeline.name, &served.collect())?;
        let plans = planner.plan(sources)?;
        let progress = RunProgress::default();
        Ok(Controller {
            worker: Worker::open(plans, storage, &progress, clock, pipeline.lanes)
                .map_err(PlacementError::Timers)?
                .with_queue_keeper(keeper),
            progress,
            accepted_changes: changes,
            unserved_replays,
            run: registration.run_in_progress(),
        })
    }
}

/// Ends the leases of jobs that have ended in order, so that the next run knows that they have.
///
/// # Errors
///
/// When the store fails.
pub fn release(storage: &dyn Storage) -> Result<(), StorageError> {
    leases::end_all(storage).map(drop)
}

/// What is about to run, as far as a change of it matters.
fn intent(pipeline: &Pipeline, admission: &Admission) -> Intent {
    let mut streams: Vec<String> = pipeline.sources.keys().cloned().collect();
    let mut computations = BTreeMap::new();
    for (name, options) in &pipeline.computations {
        streams.extend(options.streams_written().cloned());
        let admitted = &admission.computations[name];
        let mut inputs = options.inputs.clone();
        inputs.sort();
        let Description { states, timers, .. } = &admitted.description;
        let intent = ComputationIntent {
            kind: options.kind,
            digest: admitted.component.digest(),
            parameters: options.parameters.clone(),
            inputs,
            states: states
                .iter()
                .map(|state| {
                    let encoding = StateEncoding {
                        version: state.version,
                        format: state.format.clone(),
                    };
                    (state.name.clone(), encoding)
                })
                .collect(),
            timers: timers
                .iter()
                .map(|timer| (timer.name.clone(), timer.time))
                .collect(),
            partition_count: match options.kind {
                ComputationKind::Map => 0,
                ComputationKind::Transform => options.partitions,
            },
        };
        computations.insert(name.clone(), intent);
    }
    Intent {
        computations,
        sinks: pipeline
            .sinks
            .iter()
            .map(|(name, options)| (name.clone(), sink_intent(pipeline, options)))
            .collect(),
        sources: pipeline
            .sources
            .iter()
            .map(|(name, options)| (name.clone(), source_intent(options)))
            .collect(),
        streams,
    }
}

fn source_intent(options: &SourceOptions) -> SourceIntent {
    let names = options.partitions.iter();
    SourceIntent {
        // A pipeline file gives all partitions of a source the same options.
        kind: (options.partitions.first()).map_or_else(String::new, source::describe_kind),
        partitions: names.map(|it| it.partition_name().to_owned()).collect(),
    }
}

fn sink_intent(pipeline: &Pipeline, options: &SinkOptions) -> SinkIntent {
    let streams = options.inputs.join(", ");
    // As it stands to the pipeline file, so that a moved folder is no change.
    let folder = match pipeline.file.parent() {
        // A file that is named without a folder.
        Some(folder) if folder.as_os_str().is_empty() => Some(Path::new(".")),
        folder => folder,
    };
    let folder = folder.and_then(|folder| folder.canonicalize().ok());
    let shown = |path: &Path| {
        let shown = folder
            .as_ref()
            .and_then(|folder| path.strip_prefix(folder).ok());
        shown.unwrap_or(path).display().to_string()
    };
    match &options.connector {
        SinkConnector::File { path } => SinkIntent {
            identity: format!("file {} of {streams}", shown(path)),
            path: Some(path.display().to_string()),
            queue: None,
        },
        SinkConnector::Directory(directory) => {
            let files = directory.path.join(directory.files());
            SinkIntent {
                identity: format!("files {} of {streams}", shown(&files)),
                path: Some(files.display().to_string()),
                queue: None,
            }
        }
        SinkConnector::Stdout => SinkIntent {
            identity: format!("standard output of {streams}"),
            path: None,
            queue: None,
        },
        SinkConnector::Queue { queue, .. } => SinkIntent {
            identity: format!("queue {queue} of {streams}"),
            path: None,
            queue: Some(queue.clone()),
        },
        SinkConnector::Null => SinkIntent {
            identity: format!("nowhere of {streams}"),
            path: None,
            queue: None,
        },
    }
}
