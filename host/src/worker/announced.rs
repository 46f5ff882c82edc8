//! Jobs before they are opened: every reader of a run must find its lanes, so the lanes of all jobs are
//! on the board before the first job looks for its input.

use std::sync::Arc;

use crate::clock::Clock;
use crate::storage::{Storage, StorageError};
use crate::worker::board::LaneBoard;
use crate::worker::job::Job;
use crate::worker::output::LanesOutput;
use crate::worker::plan::{InputPlan, JobPlan, SourcePlan};
use crate::worker::progress::RunProgress;
use crate::worker::timers::TimersError;

/// What the jobs of one run share.
#[derive(Clone)]
pub struct JobContext {
    /// Where epochs are committed.
    pub storage: Arc<dyn Storage>,
    /// What jobs tell each other about lanes.
    pub board: Arc<LaneBoard>,
    /// What the jobs say of themselves, for those who watch.
    pub progress: RunProgress,
    /// The time of day, for what a transform creates.
    pub clock: Arc<dyn Clock>,
}

/// A job whose lanes are on the board and whose input is not open yet. All jobs of a run are
/// announced before the first one is opened, so that every reader finds its lanes.
pub struct AnnouncedJob {
    plan: JobPlan,
    output: LanesOutput,
    context: JobContext,
}

impl AnnouncedJob {
    /// Puts the lanes that the job writes on the board, and what is asked to be done with its dead letters.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn announce(plan: JobPlan, context: JobContext) -> Result<AnnouncedJob, StorageError> {
        if let InputPlan::Source(SourcePlan {
            turn: Some(turn), ..
        }) = &plan.input
        {
            context.board.turns().join(turn);
        }
        if !plan.is_retiring() {
            let requests = context.board.letter_requests();
            requests.open(plan.lease.partition, &*context.storage)?;
        }
        let output = LanesOutput::announce(&plan, &*context.storage, &context.board)?;
        Ok(AnnouncedJob {
            plan,
            output,
            context,
        })
    }

    /// Opens the input at its committed position.
    ///
    /// # Errors
    ///
    /// When storage fails, or timers are pending that the transform does not know.
    pub fn open(self) -> Result<Job, TimersError> {
        Job::open(self.plan, self.output, self.context)
    }
}
