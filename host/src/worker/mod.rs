//! Runs the jobs that this process holds leases for, each on a thread of its own: guests burn CPU
//! and never run inside an asynchronous task.

pub mod announced;
pub mod attempts;
pub mod board;
pub mod chain;
pub mod channel;
pub mod cut_audit;
pub mod error;
pub mod input;
pub mod job;
mod job_time;
pub mod letter_requests;
mod output;
mod passed_items;
pub mod plan;
pub mod progress;
pub mod queue_keeper;
pub mod reading;
pub mod rolling;
mod source_pace;
pub mod source_times;
pub mod stall;
mod sweep;
pub mod time_progress;
pub mod timers;
pub mod turns;

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread;

use crate::clock::Clock;
use crate::storage::Storage;
use crate::types::dead_letter::LetterRequest;
use crate::types::ids::PartitionId;
use crate::types::pipeline::LaneLimits;
use crate::worker::announced::{AnnouncedJob, JobContext};
use crate::worker::board::LaneBoard;
use crate::worker::error::JobError;
use crate::worker::job::{Job, JobEnd};
use crate::worker::plan::{InputPlan, JobPlan};
use crate::worker::progress::RunProgress;
use crate::worker::queue_keeper::QueueKeeper;
use crate::worker::timers::TimersError;

/// Stack of a job's thread: WebAssembly runs on it, up to the engine's own bound.
const JOB_STACK_BYTES: usize = 8 << 20;

/// A set of jobs that run to the end of their finite input.
pub struct Worker {
    jobs: Vec<(String, Job)>,
    board: Arc<LaneBoard>,
    keeper: Option<QueueKeeper>,
}

/// Stops a worker from outside.
#[derive(Clone)]
pub struct WorkerHandle {
    board: Arc<LaneBoard>,
}

impl WorkerHandle {
    /// Asks every job to end after its current epoch.
    pub fn stop(&self) {
        self.board.stop();
    }

    /// Hands requests for dead letters, which must be durable in the catalog, to the jobs of their partitions. Returns how
    /// many have one; the others wait for another run.
    pub fn request_letters(&self, requests: &[LetterRequest]) -> usize {
        self.board.request_letters(requests)
    }
}

/// The partition of a queue that a job reads, if it reads one.
fn queue_partition(plan: &JobPlan) -> Option<PartitionId> {
    match &plan.input {
        InputPlan::Source(source) => source.source.queue_partition(),
        InputPlan::Lanes(_) => None,
    }
}

impl Worker {
    /// Opens all jobs at their committed positions.
    ///
    /// # Errors
    ///
    /// When storage fails, or timers are pending that a transform does not know.
    pub fn open(
        plans: Vec<JobPlan>,
        storage: &Arc<dyn Storage>,
        progress: &RunProgress,
        clock: &Arc<dyn Clock>,
        limits: LaneLimits,
    ) -> Result<Worker, TimersError> {
        let context = JobContext {
            storage: Arc::clone(storage),
            board: Arc::new(LaneBoard::new(limits)),
            progress: progress.clone(),
            clock: Arc::clone(clock),
        };
        // Jobs that wait for rows of a queue look again when there are any; rows that nobody here reads wake nobody.
        let board = Arc::downgrade(&context.board);
        let read: BTreeSet<PartitionId> = plans.iter().filter_map(queue_partition).collect();
        storage.on_queue_append(Arc::new(move |queues| {
            let is_read = queues.iter().any(|queue| read.contains(queue));
            if let Some(board) = board.upgrade().filter(|_| is_read) {
                board.wake_all();
            }
        }));
        let mut announced = Vec::with_capacity(plans.len());
        for plan in plans {
            let name = plan.label();
            announced.push((name, AnnouncedJob::announce(plan, context.clone())?));
        }
        let mut jobs = Vec::with_capacity(announced.len());
        for (name, job) in announced {
            jobs.push((name, job.open()?));
        }
        Ok(Worker {
            jobs,
            board: context.board,
            keeper: None,
        })
    }

    /// Has queues kept within their retention while the jobs run.
    #[must_use]
    pub fn with_queue_keeper(mut self, keeper: QueueKeeper) -> Worker {
        self.keeper = keeper.is_needed().then_some(keeper);
        self
    }

    /// What stops the worker from outside.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle {
            board: Arc::clone(&self.board),
        }
    }

    /// Runs all jobs and waits for them. When one fails the others end after their current epoch.
    ///
    /// # Errors
    ///
    /// The failure of each job that failed, with the job's name.
    pub fn run(self) -> Result<JobEnd, Vec<(String, JobError)>> {
        let board = &self.board;
        let (jobs_run, jobs_ended) = mpsc::channel();
        let ends: Vec<(String, Result<JobEnd, JobError>)> = thread::scope(|scope| {
            if let Some(keeper) = self.keeper {
                let thread = thread::Builder::new().name("queue keeper".to_owned());
                let spawned = thread.spawn_scoped(scope, move || keeper.run(&jobs_ended));
                if let Err(error) = spawned {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(
                        error,
                        "no thread to trim queues: none is trimmed in this run"
                    );
                }
            }
            let threads: Vec<_> = self
                .jobs
                .into_iter()
                .map(|(name, job)| {
                    let thread = thread::Builder::new()
                        .name(name.clone())
                        .stack_size(JOB_STACK_BYTES)
                        .spawn_scoped(scope, move || {
                            let mut others = StopOthers::on_failure(board);
                            let end = job.run();
                            others.leave_running = end.is_ok();
                            end
                        });
                    if thread.is_err() {
                        // Others would wait for it for ever.
                        board.stop();
                    }
                    (name, thread)
                })
                .collect();
            let ends = threads
                .into_iter()
                .map(|(name, thread)| {
                    let end = match thread.map(thread::ScopedJoinHandle::join) {
                        Ok(Ok(end)) => end,
                        Ok(Err(panic)) => Err(panicked(&*panic)),
                        Err(error) => Err(JobError::NotStarted(error)),
                    };
                    (name, end)
                })
                .collect();
            drop::<mpsc::Sender<()>>(jobs_run);
            ends
        });
        let mut end = JobEnd::Finished;
        let mut failures = Vec::new();
        for (name, job_end) in ends {
            match job_end {
                Ok(JobEnd::Finished) => {}
                Ok(JobEnd::Stopped) => end = JobEnd::Stopped,
                Err(error) => failures.push((name, error)),
            }
        }
        if failures.is_empty() {
            Ok(end)
        } else {
            Err(failures)
        }
    }
}

/// Stops the run when a job fails or panics, so that no other job waits for it for ever.
struct StopOthers<'a> {
    board: &'a LaneBoard,
    leave_running: bool,
}

impl<'a> StopOthers<'a> {
    fn on_failure(board: &'a LaneBoard) -> StopOthers<'a> {
        StopOthers {
            board,
            leave_running: false,
        }
    }
}

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        if !self.leave_running {
            self.board.stop();
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> JobError {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned());
    JobError::Panicked { message }
}
