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
    BegunAttempt, BegunReplay, FailedAttempts, PartitionAttempts, read_attempts, write_attempts,
};
use crate::storage::{Storage, StorageError};
use crate::types::dead_letter::DeadLetterId;
use crate::types::epoch::Checksum;
use crate::types::ids::PartitionId;
use crate::types::pipeline::{EpochLimits, FailurePolicy, OnFailure};
use crate::worker::board::LaneBoard;

/// By how many times fewer items are taken after each unclean stop.
const FEWER: u32 = 8;

/// How often an item alone is begun at least with which the process ends, whatever the policy says: a process may end for
/// other reasons.
pub const UNCLEAN_ATTEMPTS_MIN: u32 = 3;

/// How often a job that waits for its turn to be careful looks for it.
const TURN_LOOK_PERIOD: Duration = Duration::from_millis(5);

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
    /// How the process before ended with a replay, if it did.
    unclean_replay: Option<BegunReplay>,
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

/// How the replay of a letter may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextReplay {
    /// In one epoch with those that follow.
    WithOthers,
    /// In an epoch of its own.
    Alone,
    /// Not any more: the process has ended with it too often.
    GivenUp,
}

impl Attempts {
    /// Those of a partition, gone on with from its last job.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn open(
        partition: PartitionId,
        limits: &EpochLimits,
        (storage, board, clock): (&Arc<dyn Storage>, &Arc<LaneBoard>, &Arc<dyn Clock>),
    ) -> Result<Attempts, StorageError> {
        let known = read_attempts(&**storage, partition)?;
        Ok(Attempts {
            partition,
            careful: known.is_unclean.then(|| careful_after(known.begun, limits)),
            unclean_replay: known.replay.filter(|_| known.is_unclean),
            known,
            storage: Arc::clone(storage),
            board: Arc::clone(board),
            clock: Arc::clone(clock),
            is_replaying: false,
            is_interrupted: false,
            failed: None,
        })
    }

    /// Where the job is careful, waits for the turn to be so: of the jobs of a process one at a time, as only what that one
    /// takes may be what the process ends with. Whoever has it is about to commit, and waits for no other job. No turn
    /// comes once the run is stopped.
    pub fn take_turn(&self) {
        while self.careful.is_some() && !self.board.take_careful_turn(self.partition) {
            let version = self.board.version();
            if self.board.is_stopped() {
                return;
            }
            self.board.wait_past(version, Some(TURN_LOOK_PERIOD));
        }
    }

    /// Passes the turn on, if the job has it.
    pub fn pass_turn_on(&self) {
        self.board.pass_careful_turn_on(self.partition);
    }

    /// Where the job takes its items carefully, how many at most, in an epoch of their own.
    pub fn careful_rows(&self) -> Option<usize> {
        self.careful.map(|careful| careful.rows as usize)
    }

    /// Where the job is careful, writes down that it is about to process what it has taken. An item alone, known by `item`,
    /// has `attempts_max` attempts, and no less than [`UNCLEAN_ATTEMPTS_MIN`].
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn begin(
        &mut self,
        attempts_max: u32,
        item: impl FnOnce() -> Checksum,
    ) -> Result<NextAttempt, StorageError> {
        let Some(careful) = self.careful else {
            return Ok(NextAttempt::Begun);
        };
        let mut begun = BegunAttempt {
            rows: careful.rows,
            left: careful.left,
            item: None,
            count: 0,
        };
        if careful.rows == 1 {
            begun.item = Some(item());
            let before = self.known.begun.filter(|before| before.item == begun.item);
            begun.count = before.map_or(0, |before| before.count);
            if begun.count >= attempts_max.max(UNCLEAN_ATTEMPTS_MIN) {
                let attempts = begun.count;
                return Ok(NextAttempt::GivenUp { attempts });
            }
            begun.count += 1;
        }
        self.keep(PartitionAttempts {
            begun: Some(begun),
            ..self.known
        })?;
        tracing::debug!(partition = %self.partition, rows = begun.rows, count = begun.count, "attempt begun");
        Ok(NextAttempt::Begun)
    }

    /// So many items are behind the job, in a committed epoch. Once it is past all that the process may have ended
    /// with, it is no longer careful.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn passed(&mut self, items: u64) -> Result<(), StorageError> {
        self.pass_turn_on();
        let Some(careful) = &mut self.careful else {
            return Ok(());
        };
        careful.left = careful.left.saturating_sub(items);
        if careful.left > 0 {
            return Ok(());
        }
        self.careful = None;
        self.keep(PartitionAttempts {
            is_unclean: false,
            begun: None,
            replay: None,
            ..self.known
        })
    }

    /// Writes down that the replay of a letter, the first one of its epoch or not, is about to be tried, if it may be:
    /// alone after an unclean stop in the middle of replays, and not more often than an item is begun with which the
    /// process ends.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn begin_replay(
        &mut self,
        letter: DeadLetterId,
        is_first: bool,
    ) -> Result<NextReplay, StorageError> {
        let unclean = self.unclean_replay;
        if unclean.is_none() && !is_first {
            // The epoch's first one is written down.
            return Ok(NextReplay::WithOthers);
        }
        let ended_with_it = unclean.filter(|replay| replay.letter == letter);
        let alone = match (unclean, ended_with_it) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(_), Some(replay)) => replay.alone + 1,
        };
        if alone > UNCLEAN_ATTEMPTS_MIN {
            // The next letter is not to pay for this one, nor this one if it is asked for again.
            self.unclean_replay = None;
            self.keep(PartitionAttempts {
                replay: None,
                ..self.known
            })?;
            return Ok(NextReplay::GivenUp);
        }
        self.keep(PartitionAttempts {
            replay: Some(BegunReplay { letter, alone }),
            ..self.known
        })?;
        Ok(match alone {
            0 => NextReplay::WithOthers,
            _ => NextReplay::Alone,
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
            Ok(count) if count >= policy.attempts && is_deadline => {
                // The next run has all its attempts.
                let forgotten = self.keep(PartitionAttempts {
                    failed: None,
                    ..self.known
                });
                self.failed = forgotten.err();
                AfterFailure::Fail
            }
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
    use crate::storage::leases;
    use crate::storage::memory::MemoryStorage;
    use crate::types::ids::EpochId;
    use crate::types::pipeline::LaneLimits;

    const PARTITION: PartitionId = PartitionId(3);

    fn open(storage: &Arc<dyn Storage>, ended_cleanly: bool) -> Attempts {
        if !ended_cleanly {
            end_unclean(storage, PARTITION);
        }
        let board = Arc::new(LaneBoard::new(LaneLimits::default()));
        open_on(storage, PARTITION, &board)
    }

    fn open_on(
        storage: &Arc<dyn Storage>,
        partition: PartitionId,
        board: &Arc<LaneBoard>,
    ) -> Attempts {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let context = (storage, board, &clock);
        Attempts::open(partition, &EpochLimits::default(), context).unwrap()
    }

    /// The process ends with a job of the partition.
    fn end_unclean(storage: &Arc<dyn Storage>, partition: PartitionId) {
        leases::grant(&**storage, partition).unwrap();
        assert_eq!(leases::end_all_unclean(&**storage).unwrap(), [partition]);
    }

    fn item(number: u64) -> Checksum {
        Checksum::of(&number.to_le_bytes())
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
            match attempts.begin(3, || item(301)).unwrap() {
                NextAttempt::Begun => taken.push(rows),
                NextAttempt::GivenUp { attempts } => break attempts,
            }
        };
        assert_eq!(taken, [1_000, 125, 15, 1, 1, 1]);
        assert_eq!(given_up, 3);
        // Another item that comes first is none of it.
        let mut attempts = open(&storage, false);
        assert_eq!(attempts.begin(3, || item(7)).unwrap(), NextAttempt::Begun);
        // Nor is one of a partition whose jobs have ended in order.
        let board = Arc::new(LaneBoard::new(LaneLimits::default()));
        let mut other = open_on(&storage, PartitionId(9), &board);
        assert_eq!(other.careful_rows(), None);
        assert_eq!(other.begin(3, || item(301)).unwrap(), NextAttempt::Begun);
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
    fn p1_a_replay_that_the_process_ends_with_is_tried_alone_and_given_up() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let letter = |index| DeadLetterId {
            partition: PARTITION,
            epoch: EpochId(2),
            index,
        };
        // The process ends each time with letter 1, which comes behind letter 0 as long as that is there.
        let mut first = open(&storage, true);
        for index in [0, 1] {
            assert_eq!(
                first.begin_replay(letter(index), index == 0).unwrap(),
                NextReplay::WithOthers
            );
        }
        let mut second = open(&storage, false);
        assert_eq!(
            second.begin_replay(letter(0), true).unwrap(),
            NextReplay::Alone
        );
        for _attempt in 0..UNCLEAN_ATTEMPTS_MIN {
            assert_eq!(
                second.begin_replay(letter(1), true).unwrap(),
                NextReplay::Alone
            );
            second = open(&storage, false);
        }
        assert_eq!(
            second.begin_replay(letter(1), true).unwrap(),
            NextReplay::GivenUp
        );
        assert_eq!(
            second.begin_replay(letter(2), true).unwrap(),
            NextReplay::WithOthers
        );
    }

    /// Of two jobs that are careful one is so at a time: what the other one takes can't be what the process ends with.
    #[test]
    fn p1_one_job_at_a_time_is_careful() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let board = Arc::new(LaneBoard::new(LaneLimits::default()));
        for partition in [1, 2] {
            end_unclean(&storage, PartitionId(partition));
        }
        let of = |partition| open_on(&storage, PartitionId(partition), &board);
        let (mut one, other, clean) = (of(1), of(2), of(3));
        one.take_turn();
        one.take_turn();
        clean.take_turn();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.take_turn());
            assert!(!board.take_careful_turn(PartitionId(2)), "one has it");
            one.passed(10).unwrap();
            waiting.join().unwrap();
            assert!(
                !board.take_careful_turn(PartitionId(1)),
                "and then the other"
            );
        });
        other.pass_turn_on();
        assert!(board.take_careful_turn(PartitionId(1)));
        // A run that is stopped keeps nobody waiting.
        board.stop();
        other.take_turn();
    }

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
        open(&storage, false).begin(3, || item(1)).unwrap();
        let mut attempts = open(&storage, false);
        for _ in 0..8 {
            assert_eq!(attempts.careful_rows(), Some(125));
            attempts.begin(3, || item(1)).unwrap();
            attempts.passed(125).unwrap();
        }
        assert_eq!(attempts.careful_rows(), None);
        let known = read_attempts(&*storage, PARTITION).unwrap();
        assert_eq!(known, PartitionAttempts::default());
    }

    #[test]
    fn p1_who_is_careful_stays_so_over_starts_that_come_to_nothing_and_stops_in_order() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        open(&storage, false).begin(3, || item(1)).unwrap();
        end_unclean(&storage, PARTITION);
        for _ in 0..3 {
            assert_eq!(open(&storage, true).careful_rows(), Some(125));
        }
    }
}
