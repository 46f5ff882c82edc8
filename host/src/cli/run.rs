//! `tidelock run`: one pipeline, embedded, in the foreground, until its finite sources are at
//! their end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::control::ControlSocket;
use crate::cli::data::open;
use crate::cli::job_notes::job_notes;
use crate::cli::moves::MoveView;
use crate::cli::printing::print_json;
use crate::cli::progress::{ProgressView, passed_over};
use crate::cli::{OpenStorage, Outcome, OutputFormat};
use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::controller::admission::admit;
use crate::controller::layout_mover::LayoutMoveError;
use crate::controller::letters::unserved::UnservedReplays;
use crate::controller::placement::PlacementError;
use crate::controller::registry::RegistryError;
use crate::controller::{self, Controller, ControllerError, StartContext};
use crate::guest::{GuestOptions, GuestRuntime};
use crate::sink;
use crate::storage::embedded::directories::make_durable;
use crate::storage::{Storage, StorageError};
use crate::telemetry::LogOutput;
use crate::types::finding::Finding;
use crate::types::pipeline::{Pipeline, SinkConnector};
use crate::worker::error::JobError;
use crate::worker::job::JobEnd;
use crate::worker::progress::RunProgress;
use crate::worker::reading::{JobReading, ProgressReading};
use crate::worker::timers::TimersError;
use crate::worker::{Worker, WorkerHandle};

/// The data directory's name where none is given; it lies beside the pipeline file.
pub(crate) const DATA_DIRECTORY_NAME: &str = ".tidelock";

/// The folder of compiled components in a data directory; it may be removed at any time.
pub const COMPILED_COMPONENTS_NAME: &str = "compiled-components";

/// Exit code of a run that a second signal ended at once.
const INTERRUPTED: i32 = 130;

/// How often progress is drawn.
const DRAW_PERIOD: Duration = Duration::from_millis(100);

/// Arguments of `tidelock run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// A pipeline file, or the folder of its tidelock.toml.
    pub pipeline: PathBuf,
    /// Where states and positions are kept [default: .tidelock beside the pipeline file].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Go on although component, parameters, partitions or source are not those of the last run. A source
    /// that changed is read from its beginning.
    #[arg(long)]
    pub accept_change: bool,
}

/// What a run did, for `-o json`.
#[derive(Serialize)]
struct RunDocument<'a> {
    pipeline: &'a str,
    /// Number of the run; one that was stopped is gone on with under its number.
    run: u64,
    finished: bool,
    elapsed_ms: u64,
    /// Bytes that the data directory's store takes on disk.
    store_bytes: u64,
    #[serde(flatten)]
    progress: ProgressReading,
    outputs: Vec<&'a Path>,
    jobs: Vec<JobReading>,
    /// Dead letters that were to be replayed and that no job of the run has.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unserved_replays: &'a [UnservedReplays],
}

/// Runs a pipeline.
///
/// # Errors
///
/// Whatever keeps the pipeline from running, or ends it before its sources are at their end.
pub fn run(
    arguments: &RunArguments,
    output: OutputFormat,
    logs: &LogOutput,
    open_storage: &OpenStorage,
) -> anyhow::Result<Outcome> {
    let pipeline = match config::load(&arguments.pipeline) {
        Ok(pipeline) => pipeline,
        Err(error) => return Ok(report(&error.findings, logs)),
    };
    if output == OutputFormat::Json && stdout_sinks(&pipeline).next().is_some() {
        anyhow::bail!(
            "-o json prints its document to standard output, where a sink of pipeline {} writes too; \
             leave it out or give the sink a file",
            pipeline.name
        );
    }
    let data = data_directory(&pipeline, arguments)?;
    let runtime = GuestRuntime::new(GuestOptions {
        cache_directory: Some(data.join(COMPILED_COMPONENTS_NAME)),
        ..GuestOptions::default()
    })
    .context("failed to set the sandbox up")?;
    let admission = match admit(&pipeline, &runtime) {
        Ok(admission) => admission,
        Err(findings) => return Ok(report(&findings, logs)),
    };
    report(&admission.warnings, logs);
    tracing::debug!(pipeline = pipeline.name, "components admitted");
    notice_stdout_sinks(&pipeline, logs);

    let Some(storage) = open(&data, open_storage)?.free_or_tell(logs) else {
        return Ok(Outcome::Conflict);
    };
    tracing::debug!(data = %data.display(), "storage opened");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let mut moves = MoveView::new(logs, &*clock);
    let context = StartContext {
        runtime: &runtime,
        storage: &storage,
        clock: &clock,
        accept_change: arguments.accept_change,
        observe_move: &mut |layout_move| moves.moved(layout_move),
    };
    let opened = Controller::open(&pipeline, &admission, context);
    moves.finish();
    let controller = match opened {
        Err(error) if is_conflict(&error) => return Ok(conflict(&error, logs)),
        opened => opened.with_context(|| format!("pipeline {} can't run", pipeline.name))?,
    };
    for change in &controller.accepted_changes {
        logs.print_line(&format!("accepted: {change}"));
    }
    let unserved_replays = controller.unserved_replays;
    for unserved in &unserved_replays {
        logs.print_line(&format!("warning: {unserved}"));
    }
    let (progress, run) = (controller.progress.clone(), controller.run);
    let mut view = ProgressView::start(progress.clone(), logs, &*clock);
    let end = wait_for_end(controller.worker, &storage, &data, &mut view, logs)?;
    let elapsed = view.finish();
    let has_panicked = |(_, error): &(String, JobError)| matches!(error, JobError::Panicked { .. });
    let released = match &end {
        // Jobs are careful next time, as after a process that ended with an item.
        Err(failures) if failures.iter().any(has_panicked) => Ok(()),
        _ => controller::release(&*storage),
    };
    let end = match end {
        Err(failures) if failures.iter().all(|(_, error)| error.is_reader_gone()) => {
            logs.print_line("the reader of standard output has gone; run it again to go on");
            return Ok(Outcome::Done);
        }
        end => end.map_err(|failures| report_failures(&pipeline, failures, logs))?,
    };
    released.context("failed to end the leases of the run")?;
    if end == JobEnd::Finished {
        let completed = run.complete(&*storage);
        completed.context("failed to write down that the run is completed")?;
    }
    let ended = EndedRun {
        number: run.number,
        end,
        elapsed,
        progress: &progress,
        unserved_replays,
        store_bytes: (storage.size())
            .context("failed to measure the data directory")?
            .total(),
    };
    summarise(&pipeline, &ended, output, logs)
}

fn data_directory(pipeline: &Pipeline, arguments: &RunArguments) -> anyhow::Result<PathBuf> {
    let directory = match &arguments.data {
        Some(directory) => directory.clone(),
        None => pipeline
            .file
            .parent()
            .unwrap_or(Path::new("."))
            .join(DATA_DIRECTORY_NAME),
    };
    make_durable(&directory).context("failed to make the data directory")?;
    directory
        .canonicalize()
        .with_context(|| format!("failed to find the data directory {}", directory.display()))
}

/// Runs the worker on a thread of its own, draws its progress, and hands signals on to it: the
/// first one stops it after its current epochs, the second ends the process at once.
fn wait_for_end(
    worker: Worker,
    storage: &Arc<dyn Storage>,
    data: &Path,
    view: &mut ProgressView<'_>,
    logs: &LogOutput,
) -> anyhow::Result<Result<JobEnd, Vec<(String, JobError)>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the signal loop")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut ticks = tokio::time::interval(DRAW_PERIOD);
        let handle = worker.handle();
        let mut control = ControlSocket::open(data, storage, handle.clone(), logs);
        let (sender, mut ended) = tokio::sync::oneshot::channel();
        let storage = Arc::clone(storage);
        let thread = std::thread::Builder::new()
            .name("worker".to_owned())
            .spawn(move || {
                let end = worker.run();
                let settled = storage.settle();
                // The receiver lives as long as the loop below.
                let _ = sender.send((end, settled));
            })
            .context("failed to start the worker")?;
        let mut is_stopping = false;
        let (end, settled) = loop {
            tokio::select! {
                _ = ticks.tick() => view.draw(),
                () = control.serve() => {}
                end = &mut ended => break end.context("the worker ended without a word")?,
                _ = terminate.recv() => stop(&handle, &mut is_stopping, logs),
                _ = interrupt.recv() => stop(&handle, &mut is_stopping, logs),
            }
        };
        if control.busy() > 0 {
            logs.print_line(
                "another command is being answered, or its backup written; the run ends then, signal to end at once",
            );
            tokio::select! {
                () = control.finish() => {}
                _ = terminate.recv() => std::process::exit(INTERRUPTED),
                _ = interrupt.recv() => std::process::exit(INTERRUPTED),
            }
        }
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("the worker panicked after its end"))?;
        // A job's own failure is told first; what is committed is brought to its place at the next
        // opening all the same.
        if end.is_ok() {
            settled.context("failed to bring committed rows to their files")?;
        }
        Ok(end)
    })
}

fn stop(handle: &WorkerHandle, is_stopping: &mut bool, logs: &LogOutput) {
    if std::mem::replace(is_stopping, true) {
        // Nothing is lost: the next run goes on from the last commit.
        std::process::exit(INTERRUPTED);
    }
    logs.print_line("stopping after the current batches; signal again to end at once");
    handle.stop();
}

fn report(findings: &[Finding], logs: &LogOutput) -> Outcome {
    for finding in findings {
        logs.print_line(&finding.to_string());
    }
    match findings.iter().any(Finding::is_error) {
        true => Outcome::Failed,
        false => Outcome::Done,
    }
}

fn conflict(error: &dyn std::error::Error, logs: &LogOutput) -> Outcome {
    logs.print_line(&format!("error: {error}"));
    Outcome::Conflict
}

/// Whether something else stands in the way: the pipeline is not what the last run left, or
/// somebody else has one of its files.
fn is_conflict(error: &ControllerError) -> bool {
    if let ControllerError::Queue(error) = error {
        return error.is_conflict();
    }
    matches!(
        error,
        ControllerError::Changed { .. }
            | ControllerError::Registry(
                RegistryError::StateVersions { .. }
                    | RegistryError::TooManyRetiring { .. }
                    | RegistryError::SinkTaken { .. }
                    | RegistryError::Contended { .. }
            )
            | ControllerError::LayoutMove(LayoutMoveError::Registry(
                RegistryError::Contended { .. }
            ))
            | ControllerError::Placement(
                PlacementError::Stranded { .. }
                    | PlacementError::Storage(StorageError::SinkFileInUse { .. })
                    | PlacementError::Timers(
                        TimersError::Undeclared { .. } | TimersError::OtherClock { .. }
                    )
            )
    )
}

/// Names of the sinks that write to standard output.
fn stdout_sinks(pipeline: &Pipeline) -> impl Iterator<Item = &str> {
    let sinks = pipeline.sinks.iter();
    sinks
        .filter(|(_, sink)| matches!(sink.connector, SinkConnector::Stdout))
        .map(|(name, _)| name.as_str())
}

fn notice_stdout_sinks(pipeline: &Pipeline, logs: &LogOutput) {
    for name in stdout_sinks(pipeline) {
        logs.print_line(&format!("sink {name}: {}", sink::stdout::NOTICE));
    }
}

/// Prints every failure but the last, which becomes the program's error.
fn report_failures(
    pipeline: &Pipeline,
    mut failures: Vec<(String, JobError)>,
    logs: &LogOutput,
) -> anyhow::Error {
    let last = failures.pop();
    for (job, error) in failures {
        let error = anyhow::Error::new(error);
        logs.print_line(&format!(
            "error: job {job} of pipeline {}: {error:#}",
            pipeline.name
        ));
    }
    match last {
        Some((job, error)) => {
            anyhow::Error::new(error).context(format!("job {job} of pipeline {}", pipeline.name))
        }
        None => anyhow::anyhow!("pipeline {} failed without a word", pipeline.name),
    }
}

/// A run that did not fail.
struct EndedRun<'a> {
    number: u64,
    end: JobEnd,
    elapsed: Duration,
    progress: &'a RunProgress,
    unserved_replays: Vec<UnservedReplays>,
    store_bytes: u64,
}

fn summarise(
    pipeline: &Pipeline,
    run: &EndedRun<'_>,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let outputs: Vec<&Path> = pipeline
        .sinks
        .values()
        .filter_map(|sink| match &sink.connector {
            SinkConnector::File { path } => Some(path.as_path()),
            SinkConnector::Directory(options) => Some(options.path.as_path()),
            SinkConnector::Stdout | SinkConnector::Null | SinkConnector::Queue { .. } => None,
        })
        .collect();
    let (finished, elapsed) = (run.end == JobEnd::Finished, run.elapsed);
    let (progress, jobs) = (run.progress.read(), run.progress.read_jobs());
    let rate = progress.source_records as f64 / elapsed.as_secs_f64().max(0.001);
    logs.print_line(&format!(
        "pipeline {} {}: {} records in {:.2} s ({rate:.0} records/s), {} epochs, {} rows out{}, {} in the data directory",
        pipeline.name,
        if finished {
            "completed"
        } else {
            "stopped; run it again to go on"
        },
        progress.source_records,
        elapsed.as_secs_f64(),
        progress.epochs,
        progress.sink_rows,
        passed_over(&progress),
        HumanBytes(run.store_bytes),
    ));
    match output {
        OutputFormat::Json => print_json(&RunDocument {
            pipeline: &pipeline.name,
            run: run.number,
            finished,
            elapsed_ms: elapsed.as_millis() as u64,
            store_bytes: run.store_bytes,
            progress,
            outputs,
            jobs,
            unserved_replays: &run.unserved_replays,
        })?,
        OutputFormat::Text => {
            for path in outputs {
                logs.print_line(&format!("  {}", path.display()));
            }
            for note in job_notes(&jobs, finished) {
                logs.print_line(&note);
            }
        }
    }
    Ok(match run.end {
        JobEnd::Finished => Outcome::Done,
        JobEnd::Stopped => Outcome::Interrupted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_registration_is_a_conflict_of_a_move_and_a_failing_store_is_none() {
        let of_move = |error| ControllerError::LayoutMove(LayoutMoveError::Registry(error));
        let contended = RegistryError::Contended {
            pipeline: "a".to_owned(),
        };
        assert!(is_conflict(&of_move(contended)));
        let failed = || RegistryError::Storage(StorageError::Stopped);
        assert!(!is_conflict(&of_move(failed())));
        assert!(!is_conflict(&ControllerError::Registry(failed())));
    }
}
