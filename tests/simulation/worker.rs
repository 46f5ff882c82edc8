//! The jobs of one simulated worker and the board between them. Jobs take their steps one at a
//! time, in an order that the world chooses; a job may be gone, announced, open or at its end.

use std::sync::Arc;

use tidelock::storage::{Storage, StorageError};
use tidelock::types::lease::Lease;
use tidelock::types::pipeline::LaneLimits;
use tidelock::worker::announced::{AnnouncedJob, JobContext};
use tidelock::worker::board::LaneBoard;
use tidelock::worker::job::Job;
use tidelock::worker::plan::JobPlan;
use tidelock::worker::progress::RunProgress;
use tidelock::worker::timers::TimersError;

use crate::clock::SimulatedClock;

/// A worker.
pub(crate) struct SimulatedWorker {
    context: JobContext,
    /// One for each place of the pipeline, in the order of the registration.
    pub(crate) jobs: Vec<JobStage>,
    /// The leases that they were announced with.
    leases: Vec<Option<Lease>>,
}

/// Where a job stands.
pub(crate) enum JobStage {
    /// Crashed, to be started again.
    Gone,
    /// Its lanes are on the board.
    Announced(Box<AnnouncedJob>),
    /// It takes steps.
    Open(Box<Job>),
    /// Its input is read to the end.
    Ended,
}

impl SimulatedWorker {
    /// A worker that has started none of its `jobs`.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        clock: Arc<SimulatedClock>,
        limits: LaneLimits,
        jobs: usize,
    ) -> SimulatedWorker {
        SimulatedWorker {
            context: JobContext {
                storage,
                board: Arc::new(LaneBoard::new(limits)),
                progress: RunProgress::default(),
                clock,
            },
            jobs: (0..jobs).map(|_| JobStage::Gone).collect(),
            leases: vec![None; jobs],
        }
    }

    /// Announces a job, whatever became of the one before it.
    pub(crate) fn announce(&mut self, at: usize, plan: JobPlan) -> Result<(), StorageError> {
        self.leases[at] = Some(plan.lease);
        let job = AnnouncedJob::announce(plan, self.context.clone())?;
        self.jobs[at] = JobStage::Announced(Box::new(job));
        Ok(())
    }

    /// Opens a job that was announced.
    pub(crate) fn open(&mut self, at: usize) -> Result<(), StorageError> {
        if let JobStage::Announced(job) = std::mem::replace(&mut self.jobs[at], JobStage::Gone) {
            self.jobs[at] = JobStage::Open(Box::new(job.open().map_err(storage_error)?));
        }
        Ok(())
    }

    /// Takes a job out, if it is open.
    pub(crate) fn take_open(&mut self, at: usize) -> Option<Job> {
        match std::mem::replace(&mut self.jobs[at], JobStage::Gone) {
            JobStage::Open(job) => Some(*job),
            other => {
                self.jobs[at] = other;
                None
            }
        }
    }

    /// The lease of a job that was announced.
    pub(crate) fn lease(&self, at: usize) -> Option<Lease> {
        self.leases[at]
    }

    /// Whether every job is at its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.jobs.iter().all(|job| matches!(job, JobStage::Ended))
    }
}

/// Every timer of a simulated run is declared.
fn storage_error(error: TimersError) -> StorageError {
    match error {
        TimersError::Storage(error) => error,
        other => panic!("{other}"),
    }
}
