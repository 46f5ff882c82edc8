//! What goes wrong in a run: every kind of fault by name, how often each happened, and the plan by
//! which storage meets its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidelock::storage::memory::{CommitFault, FaultPlan};
use tidelock::types::epoch::EpochRecord;
use tidelock::types::ids::PartitionId;

use crate::random::Random;

/// The partition whose epochs put records into queues: it belongs to no job, and nothing goes wrong with it.
pub(crate) const FEEDER: PartitionId = PartitionId(u64::MAX);

/// A kind of fault that a run makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// An epoch was refused under a good lease.
    EpochRefused,
    /// An epoch was decided and its answer lost.
    AnswerLostDecided,
    /// An epoch was not decided and its answer lost.
    AnswerLostUndecided,
    /// A sync failed; what it covered was gone afterwards.
    UnsyncedTailLost,
    /// A sync failed; what it covered was there afterwards.
    UnsyncedTailSurvived,
    /// The store's process was killed with nothing in doubt.
    StoreKilled,
    /// A job was dropped between two steps.
    JobCrashed,
    /// A lease was granted anew while the job that held it went on.
    LeaseMoved,
    /// Every job was dropped, or went on without a lease, and a new worker took over.
    WorkerLost,
    /// A job without a lease tried to commit.
    StaleEpochRefused,
    /// A source grew while it was read.
    SourceGrew,
    /// The clock was set back.
    ClockSetBack,
    /// Storage could not be read.
    ReadFailed,
    /// A source could not be read.
    SourceFailed,
    /// A start came to nothing and was tried again.
    StartFailed,
    /// A start found a move to other partitions that an earlier one had begun.
    MoveInterrupted,
    /// Transforms went over to other partitions.
    Repartitioned,
    /// A writer stood before a full lane whose reader got no turn.
    WriterStopped,
    /// A source brought nothing for a while.
    SourceQuiet,
    /// A partition was left out of its readers' watermarks.
    PartitionIdle,
    /// An event time was too far in the future to be believed.
    FutureTime,
    /// A message was late.
    MessageLate,
    /// A timer fired.
    TimerFired,
    /// An epoch ended in the middle of a step.
    StepCut,
    /// A run was over and nobody wrote that down.
    EndUnrecorded,
}

impl Fault {
    /// All kinds.
    pub(crate) const ALL: [Fault; 25] = [
        Fault::EpochRefused,
        Fault::AnswerLostDecided,
        Fault::AnswerLostUndecided,
        Fault::UnsyncedTailLost,
        Fault::UnsyncedTailSurvived,
        Fault::StoreKilled,
        Fault::JobCrashed,
        Fault::LeaseMoved,
        Fault::WorkerLost,
        Fault::StaleEpochRefused,
        Fault::SourceGrew,
        Fault::ClockSetBack,
        Fault::ReadFailed,
        Fault::SourceFailed,
        Fault::StartFailed,
        Fault::MoveInterrupted,
        Fault::Repartitioned,
        Fault::WriterStopped,
        Fault::SourceQuiet,
        Fault::PartitionIdle,
        Fault::FutureTime,
        Fault::MessageLate,
        Fault::TimerFired,
        Fault::StepCut,
        Fault::EndUnrecorded,
    ];
}

/// How often each fault happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    /// One more.
    pub(crate) fn add(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// What an epoch says of time.
    pub(crate) fn add_epoch(&mut self, record: &EpochRecord) {
        let time = &record.time;
        let is_cut = time
            .fired_up_to
            .as_ref()
            .is_some_and(|at| at.trigger_time > 0);
        let counts = [
            (Fault::PartitionIdle, u64::from(time.output.is_idle)),
            (Fault::FutureTime, time.future_count),
            (Fault::MessageLate, time.late_count),
            (Fault::TimerFired, time.fired_count),
            (Fault::StepCut, u64::from(is_cut)),
        ];
        for (fault, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            *self.0.entry(fault).or_default() += count;
        }
    }

    /// How often the fault happened.
    pub(crate) fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// Those of another run too.
    pub(crate) fn add_all(&mut self, other: &FaultCounts) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in Fault::ALL {
            writeln!(formatter, "{:>8} {fault:?}", self.of(fault))?;
        }
        Ok(())
    }
}

/// The fault that the last submitted epoch was given, whether or not it came to it.
pub(crate) type DrawnFault = Arc<Mutex<CommitFault>>;

/// A plan that lets most epochs through, and even more in a start, which is many epochs long.
pub(crate) fn plan(
    mut random: Random,
    drawn: DrawnFault,
    is_starting: Arc<AtomicBool>,
) -> FaultPlan {
    Box::new(move |commit| {
        if commit.partition == FEEDER {
            return CommitFault::None;
        }
        let of = match is_starting.load(Ordering::Relaxed) {
            true => 999,
            false => 99,
        };
        let fault = match random.within(0..=of) {
            0..=4 => CommitFault::Refused,
            5..=8 => CommitFault::UnknownDecided,
            9..=12 => CommitFault::UnknownUndecided,
            13 => CommitFault::FailedSync,
            _ => CommitFault::None,
        };
        *drawn.lock().expect("nobody panics with it") = fault;
        fault
    })
}
