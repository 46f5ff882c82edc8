//! How often items are tried.
//!
//! Verdicts of pure computations are the same each time and need no second attempt. What may pass another time is an
//! item whose computation sees the machine's clock, random numbers or files, or that ran into the deadline: it is
//! tried again after a wait, and failures are counted in the store, so that a budget survives restarts.
//!
//! And there is what ends the process. After an unclean stop a job is *careful*: it writes down how many items it is
//! about to take, takes them in an epoch of their own, and goes on carefully until it is past everything that the
//! attempt before may have taken. Where the process ends again, the next one takes an eighth as many, until one item
//! stands alone; that one is begun as often as it has attempts, and then passed over without being called, or fails.
//!
//! **Invariant:** while a job is careful, what it is about to try is durable before it is tried.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::guest::policy::Determinism;
use crate::guest::{AfterFailure, GuestError};
use crate::storage::attempts::{
    BegunAttempt, FailedAttempts, PartitionAttempts, read_attempts, write_attempts,
};
use crate::storage::{Storage, StorageError};
use crate::types::epoch::Checksum;
use crate::types::ids::{EpochId, PartitionId};
use crate::types::pipeline::{EpochLimits, FailurePolicy, OnFailure};
use crate::worker::board::LaneBoard;

/// By how many times fewer items are taken after each unclean stop.
const FEWER: u32 = 8;

/// How many epochs the items were in, at most, that the process ended with: one on its way to storage, and the next.
const EPOCHS_IN_FLIGHT: u64 = 2;

/// The attempts at the items of one partition.
pub struct Attempts {
    partition: PartitionId,
    storage: Arc<dyn Storage>,
    board: Arc<LaneBoard>,
    clock: Arc<dyn Clock>,
    /// What is in the store.
    known: PartitionAttempts,
    /// Set while the job is careful.
    careful: Option<Careful>,
    /// Whether the item at hand is that of a dead letter, which has no attempts of its own.
    is_replaying: bool,
    /// Whether the run was stopped while an item waited for its next attempt.
    is_interrupted: bool,
    /// Why a count could not be kept.
    failed: Option<StorageError>,
}

/// How a job goes on after an unclean stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Careful {
    rows: u32,
    left: u64,
}

/// What is to become of items that a job has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    /// They are to be processed.
    Begun,
    /// There is one, and it has no attempt left: no computation may be called with it.
    GivenUp {
        /// How often it was begun.
        attempts: u32,
    },
}

impl Attempts {
    /// Those of a partition whose last job ended cleanly or not, and whose next epoch is `next`.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn open(
        partition: PartitionId,
        next: EpochId,
        ended_cleanly: bool,
        limits: &EpochLimits,
        (storage, board, clock): (&Arc<dyn Storage>, &Arc<LaneBoard>, &Arc<dyn Clock>),
    ) -> Result<Attempts, StorageError> {
        let known = read_attempts(&**storage, partition)?;
        let begun = known.begun.filter(|begun| begun.epoch == next);
        Ok(Attempts {
            partition,
            careful: (!ended_cleanly).then(|| careful_after(begun, limits)),
            known,
            storage: Arc::clone(storage),
            board: Arc::clone(board),
            clock: Arc::clone(clock),
            is_replaying: false,
            is_interrupted: false,
            failed: None,
        })
    }

    /// Where the job takes its items carefully, how many at most, in an epoch of their own.
    pub fn careful_rows(&self) -> Option<usize> {
        self.careful.map(|careful| careful.rows as usize)
    }

    /// Where the job is careful, writes down that it is about to process what it has taken in `epoch`. An item alone has
    /// `attempts_max` attempts.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn begin(
        &mut self,
        epoch: EpochId,
        attempts_max: u32,
    ) -> Result<NextAttempt, StorageError> {
        let Some(careful) = self.careful else {
            return Ok(NextAttempt::Begun);
        };
        let same_place = self.known.begun.filter(|begun| begun.epoch == epoch);
        let mut begun = BegunAttempt {
            epoch,
            rows: careful.rows,
            left: careful.left,
            count: 0,
        };
        if careful.rows == 1 {
            begun.count = same_place
                .filter(|same| same.rows == 1)
                .map_or(0, |same| same.count);
            if begun.count >= attempts_max {
                let attempts = begun.count;
                return Ok(NextAttempt::GivenUp { attempts });
            }
            begun.count += 1;
        }
        self.keep(PartitionAttempts {
            begun: Some(begun),
            ..self.known
        })?;
        tracing::debug!(partition = %self.partition, %epoch, rows = begun.rows, count = begun.count, "attempt begun");
        Ok(NextAttempt::Begun)
    }

    /// So many items are behind the job, in a committed epoch. Once it is past all that the process may have ended
    /// with, it is no longer careful.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn passed(&mut self, items: u64) -> Result<(), StorageError> {
        let Some(careful) = &mut self.careful else {
            return Ok(());
        };
        careful.left = careful.left.saturating_sub(items);
        if careful.left > 0 {
            return Ok(());
        }
        self.careful = None;
        self.keep(PartitionAttempts {
            begun: None,
            ..self.known
        })
    }

    /// What becomes of an item that failed alone. Waits where it is to be tried again.
    pub fn decide(
        &mut self,
        policy: &FailurePolicy,
        determinism: Determinism,
        item: impl FnOnce() -> Checksum,
        error: &GuestError,
    ) -> AfterFailure {
        let settled = match policy.on_failure {
            OnFailure::Fail => AfterFailure::Fail,
            OnFailure::Skip | OnFailure::DeadLetter => AfterFailure::PassOver,
        };
        let is_deadline = matches!(error, GuestError::Deadline { .. });
        if self.is_replaying || (!is_deadline && determinism != Determinism::Host) {
            return settled;
        }
        match self.count(item()) {
            Err(error) => {
                self.failed = Some(error);
                AfterFailure::Fail
            }
            // It depends on the machine's load, so nothing is decided by it.
            Ok(count) if count >= policy.attempts && is_deadline => AfterFailure::Fail,
            Ok(count) if count >= policy.attempts => settled,
            Ok(count) => match self.wait(backoff(count)) {
                true => AfterFailure::TryAgain,
                false => {
                    self.is_interrupted = true;
                    AfterFailure::Fail
                }
            },
        }
    }

    /// From here on items are those of dead letters, or no more: they are tried once, each time that a person asks for it.
    pub fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
    }

    /// How often an item was tried that is passed over.
    pub fn of(&self, item: Checksum) -> u32 {
        let failed = self.known.failed.filter(|failed| failed.item == item);
        failed.map_or(1, |failed| failed.count)
    }

    /// Whether the run was stopped while an item waited for its next attempt: its failure is none.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Why a count could not be kept, once.
    pub fn take_failure(&mut self) -> Option<StorageError> {
        self.failed.take()
    }

    /// Counts a failed attempt; durable when it returns.
    fn count(&mut self, item: Checksum) -> Result<u32, StorageError> {
        let before = self.known.failed.filter(|failed| failed.item == item);
        let count = before.map_or(0, |failed| failed.count).saturating_add(1);
        self.keep(PartitionAttempts {
            failed: Some(FailedAttempts { item, count }),
            ..self.known
        })?;
        tracing::warn!(partition = %self.partition, count, "attempt failed");
        Ok(count)
    }

    fn keep(&mut self, attempts: PartitionAttempts) -> Result<(), StorageError> {
        if attempts != self.known {
            write_attempts(&*self.storage, self.partition, &attempts)?;
            self.known = attempts;
        }
        Ok(())
    }

    /// Waits, unless the run is stopped: then the answer is no.
    fn wait(&self, length: Duration) -> bool {
        let until = self.clock.elapsed().saturating_add(length);
        loop {
            let version = self.board.version();
            if self.board.is_stopped() {
                return false;
            }
            let left = until.saturating_sub(self.clock.elapsed());
            if left.is_zero() {
                return true;
            }
            self.board.wait_past(version, Some(left));
        }
    }
}

/// How to go on where the process ended with this attempt, or with whatever a job of its own took.
fn careful_after(begun: Option<BegunAttempt>, limits: &EpochLimits) -> Careful {
    match begun {
        Some(begun) => Careful {
            rows: (begun.rows / FEWER).max(1),
            left: begun.left.min(begun.rows.into()).max(1),
        },
        None => Careful {
            rows: u32::try_from(limits.max_rows_per_batch).unwrap_or(u32::MAX),
            left: limits.max_rows_per_epoch as u64 * EPOCHS_IN_FLIGHT,
        },
    }
}

/// How long to wait after so many failed attempts.
fn backoff(count: u32) -> Duration {
    let doublings = count.saturating_sub(1).min(16);
    (FailurePolicy::BACKOFF_FIRST * (1 << doublings)).min(FailurePolicy::BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::storage::memory::MemoryStorage;
    use crate::types::pipeline::LaneLimits;

    const PARTITION: PartitionId = PartitionId(3);

    fn open(storage: &Arc<dyn Storage>, ended_cleanly: bool) -> Attempts {
        let board = Arc::new(LaneBoard::new(LaneLimits::default()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let limits = EpochLimits::default();
        let context = (storage, &board, &clock);
        Attempts::open(PARTITION, EpochId(5), ended_cleanly, &limits, context).unwrap()
    }

    #[test]
    fn each_wait_is_twice_as_long_up_to_the_longest() {
        let seconds: Vec<u64> = (1..=8).map(|count| backoff(count).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u32::MAX), FailurePolicy::BACKOFF_MAX);
    }

    #[test]
    fn p1_a_process_that_ends_with_an_item_comes_to_it_alone_and_gives_it_up() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        assert_eq!(open(&storage, true).careful_rows(), None);
        let mut taken = Vec::new();
        let given_up = loop {
            assert!(taken.len() < 20, "{taken:?}");
            // Each process ends with its first attempt.
            let mut attempts = open(&storage, false);
            let rows = attempts.careful_rows().unwrap();
            match attempts.begin(EpochId(5), 3).unwrap() {
                NextAttempt::Begun => taken.push(rows),
                NextAttempt::GivenUp { attempts } => break attempts,
            }
        };
        assert_eq!(taken, [1_000, 125, 15, 1, 1, 1]);
        assert_eq!(given_up, 3);
        // A process that was stopped by a person finds nothing wrong with the item.
        let mut attempts = open(&storage, true);
        assert_eq!(attempts.careful_rows(), None);
        assert_eq!(attempts.begin(EpochId(5), 3).unwrap(), NextAttempt::Begun);
    }

    fn failure() -> GuestError {
        GuestError::Trap {
            computation: "obey".to_owned(),
            reason: "unreachable".to_owned(),
            report: Box::default(),
        }
    }

    /// What sees the machine may pass another time, and its attempts are counted over restarts.
    #[test]
    fn p1_attempts_of_what_is_not_pure_survive_restarts() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let item = Checksum::of(b"item");
        let policy = FailurePolicy {
            on_failure: OnFailure::DeadLetter,
            attempts: 2,
        };
        let decide = |attempts: &mut Attempts, item, determinism| {
            attempts.decide(&policy, determinism, || item, &failure())
        };
        // A verdict of a pure computation is the same each time.
        let mut attempts = open(&storage, true);
        let pure = decide(&mut attempts, item, Determinism::Pure);
        assert_eq!((pure, attempts.of(item)), (AfterFailure::PassOver, 1));
        // Of the other one the first failure is counted, and the wait for the next attempt interrupted.
        attempts.board.stop();
        let first = decide(&mut attempts, item, Determinism::Host);
        assert_eq!(first, AfterFailure::Fail);
        assert!(attempts.is_interrupted());
        let mut attempts = open(&storage, true);
        let second = decide(&mut attempts, item, Determinism::Host);
        assert_eq!((second, attempts.of(item)), (AfterFailure::PassOver, 2));
        assert!(!attempts.is_interrupted());
        // Another item has attempts of its own.
        attempts.board.stop();
        let other = decide(&mut attempts, Checksum::of(b"other"), Determinism::Host);
        assert_eq!(other, AfterFailure::Fail);
        assert!(attempts.is_interrupted());
    }

    #[test]
    fn p1_a_job_is_careful_until_it_is_past_what_the_process_ended_with() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        open(&storage, false).begin(EpochId(5), 3).unwrap();
        let mut attempts = open(&storage, false);
        for epoch in 5..5 + 8 {
            assert_eq!(attempts.careful_rows(), Some(125));
            attempts.begin(EpochId(epoch), 3).unwrap();
            attempts.passed(125).unwrap();
        }
        assert_eq!(attempts.careful_rows(), None);
        let known = read_attempts(&*storage, PARTITION).unwrap();
        assert_eq!(known, PartitionAttempts::default());
    }

    #[test]
    fn attempts_with_one_item_are_counted_for_each_epoch() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        for _ in 0..4 {
            open(&storage, false).begin(EpochId(5), 3).unwrap();
        }
        // The item passed this time, and the process ended with the next one.
        let mut attempts = open(&storage, false);
        attempts.begin(EpochId(5), 3).unwrap();
        attempts.begin(EpochId(6), 3).unwrap();
        let begun = read_attempts(&*storage, PARTITION).unwrap().begun;
        assert_eq!(
            begun.map(|begun| (begun.epoch, begun.count)),
            Some((EpochId(6), 1))
        );
    }
}
