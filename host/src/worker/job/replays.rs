//! What a job is asked to do with dead letters of its partition: to process their items again, or to let them go.
//!
//! **Invariant:** a letter goes with the epoch that has processed its item, or says that it is not wanted. So an item is
//! replayed once, whatever happens to the process, and what follows from it has ids of that epoch.

use crate::engine::epoch::OpenEpoch;
use crate::storage::letter_rows::{letter_size_bound, read_letter};
use crate::storage::{StorageError, keys};
use crate::types::dead_letter::{
    DeadLetter, DeadLetterId, LetterItem, LetterOrigin, LetterRequest, LetterRequestKind,
};
use crate::types::ids::PublicId;
use crate::types::timestamp_runs::TimestampRuns;
use crate::worker::attempts::NextReplay;
use crate::worker::error::JobError;
use crate::worker::input::ItemLocation;

use super::items::chain_failed;
use super::{Job, JobInput, JobStep};

/// What has become of a replay.
enum Replayed {
    /// Its effects are in the epoch, or another letter is.
    Processed,
    /// Nobody in the job takes it.
    ByNobody,
    /// Whether the record can be decoded can't be told.
    Unreadable,
}

/// What has become of a request.
enum Served {
    /// The letter goes with the epoch.
    Yes {
        /// Whether nothing else may be in the epoch.
        alone: bool,
    },
    /// Nobody here can; the request waits.
    No {
        /// Why.
        why: &'static str,
    },
    /// It is not tried any more, and the letter stays.
    Dropped {
        /// Why.
        why: &'static str,
    },
}

/// The most requests that one epoch serves.
const REQUESTS_PER_EPOCH_MAX: usize = 4_096;

impl Job {
    /// Whether there is a request for a letter that the job may serve now. Behind the end of its input it may not: what
    /// follows would be late for every reader; the next run serves it.
    pub(super) fn has_letter_requests(&self) -> bool {
        let requests = self.board.letter_requests();
        !self.time.is_at_end() && requests.is_any(self.lease.partition)
    }

    /// Serves requests in an epoch of their own.
    pub(super) fn serve_letters(&mut self) -> Result<JobStep, JobError> {
        if self.submitted.is_some() {
            // What an epoch on its way does to letters is to be seen.
            return self.settle_or_idle();
        }
        self.chain.attempts().take_turn();
        let mut epoch = self.open_epoch();
        self.serve_letter_requests(&mut epoch)?;
        if epoch.has_content() || !self.passed.removed.is_empty() {
            self.submit(epoch)?;
        } else {
            self.chain.attempts().pass_turn_on();
            let served = std::mem::take(&mut self.served);
            let requests = self.board.letter_requests();
            requests.done(&served, &*self.storage)?;
        }
        Ok(JobStep::Advanced)
    }

    /// What the open epoch removes, in the order that storage wants.
    pub(super) fn take_removed_letters(&mut self) -> Vec<DeadLetterId> {
        let mut removed = std::mem::take(&mut self.passed.removed);
        removed.sort_unstable();
        removed
    }

    fn serve_letter_requests(&mut self, epoch: &mut OpenEpoch) -> Result<(), JobError> {
        let until = (self.clock.elapsed()).saturating_add(self.limits.max_duration);
        while self.served.len() < REQUESTS_PER_EPOCH_MAX && epoch.room().is_some() {
            if self.board.is_stopped() || (epoch.has_content() && self.clock.elapsed() >= until) {
                break;
            }
            let Some(request) = self.board.letter_requests().next(self.lease.partition) else {
                break;
            };
            let LetterRequest { id, kind } = request;
            if self.storage.get(&keys::dead_letter(id))?.is_none() {
                // An epoch that was decided has served it.
                self.served.push(id);
                continue;
            }
            let served = match kind {
                LetterRequestKind::Discard => Served::Yes { alone: false },
                LetterRequestKind::Replay => self.begin_replay(id, epoch)?,
            };
            match served {
                Served::Yes { alone } => {
                    self.passed.removed.push(id);
                    self.served.push(id);
                    tracing::debug!(letter = %id, %kind, "dead letter served");
                    if alone {
                        break;
                    }
                }
                Served::No { why } => {
                    tracing::warn!(letter = %id, why, "dead letter not replayed");
                    self.board.letter_requests().set_aside(id);
                }
                Served::Dropped { why } => {
                    tracing::warn!(letter = %id, why, "dead letter not replayed");
                    self.served.push(id);
                }
            }
        }
        Ok(())
    }

    /// Replays a letter that can be read, once that it is about to be is written down.
    fn begin_replay(
        &mut self,
        id: DeadLetterId,
        epoch: &mut OpenEpoch,
    ) -> Result<Served, JobError> {
        let letter = match read_letter(&*self.storage, id) {
            Ok(Some(letter)) => letter,
            Ok(None) => return Ok(Served::No { why: "it is gone" }),
            Err(StorageError::Undecodable { .. }) => {
                let why = "it can't be read: discard it, or restore it from a backup";
                return Ok(Served::No { why });
            }
            Err(error) => return Err(error.into()),
        };
        let is_first = self.served.is_empty();
        let next = self.chain.attempts().begin_replay(id, is_first)?;
        if next == NextReplay::GivenUp {
            let why = "the process has ended with it each time; the letter is kept, ask again once that is repaired";
            return Ok(Served::Dropped { why });
        }
        let replayed = self.replay(id, letter, epoch);
        if replayed.is_err() {
            // The job ends with it, and its successor is not to come to it again.
            let requests = self.board.letter_requests();
            requests.done(&[id], &*self.storage)?;
        }
        Ok(match replayed? {
            Replayed::Processed => Served::Yes {
                alone: next == NextReplay::Alone,
            },
            Replayed::ByNobody => Served::No {
                why: "its computation is not in this job, or no longer reads its stream",
            },
            Replayed::Unreadable => Served::Dropped {
                why: "its source can't decode it apart from what it came from; the letter is kept, write its record where the pipeline reads it",
            },
        })
    }

    /// Processes a letter's item, if there is anybody to do so.
    fn replay(
        &mut self,
        id: DeadLetterId,
        letter: DeadLetter,
        epoch: &mut OpenEpoch,
    ) -> Result<Replayed, JobError> {
        let location = ItemLocation::Replayed {
            location: letter.location.clone(),
        };
        let setting = self.timer_setting();
        let ran = match (&letter.origin, &letter.item) {
            (
                LetterOrigin::Source { .. },
                LetterItem::Record {
                    bytes, size_bytes, ..
                },
            ) => {
                let is_whole = bytes.len() as u64 == *size_bytes;
                let JobInput::Source(source) = &mut self.input else {
                    return Ok(Replayed::ByNobody);
                };
                let records = match source.decode_again(bytes).filter(|_| is_whole) {
                    None => return Ok(Replayed::Unreadable),
                    Some(None) => return Ok(self.keep_again(letter, epoch)),
                    Some(Some(records)) => records,
                };
                let replayed = self.chain.replay_records(records, epoch);
                replayed.map(|()| true)
            }
            (LetterOrigin::Computation(computation), item) => {
                let name = &computation.name;
                (self.chain).replay(name, item, setting, epoch, &*self.storage)
            }
            (LetterOrigin::Source { .. }, _) => Ok(false),
        };
        let partition = self.lease.partition;
        let is_taken =
            ran.map_err(|error| chain_failed(error, partition, epoch.id(), |_| location.clone()))?;
        if !is_taken {
            return Ok(Replayed::ByNobody);
        }
        self.keep_passed_again(epoch, &letter);
        let times = TimestampRuns::repeated(setting.now, 1);
        // What else goes back to its message has the ids that follow from that.
        let ids = [PublicId::of_record(partition, id.to_string().as_bytes())];
        self.route(epoch, &times, &ids)
            .map_err(|refused| self.sink_failed(refused.sink, Some(location), refused.error))?;
        Ok(Replayed::Processed)
    }

    /// Takes what failed on the way into the epoch, as a replay of a letter.
    fn keep_passed_again(&mut self, epoch: &mut OpenEpoch, replayed: &DeadLetter) {
        let before = self.passed.letters.len();
        let passed = self.chain.passed().len();
        let location = || ItemLocation::Replayed {
            location: replayed.location.clone(),
        };
        self.keep_passed(epoch, (0..passed).map(|_| location()).collect());
        for letter in &mut self.passed.letters[before..] {
            letter.root = replayed.root;
            if letter.origin.name() == replayed.origin.name() {
                letter.attempts = letter.attempts.saturating_add(replayed.attempts);
            }
        }
    }

    /// A record that still can't be decoded: a new letter takes the place of the old one.
    fn keep_again(&mut self, letter: DeadLetter, epoch: &mut OpenEpoch) -> Replayed {
        epoch.add_output_bytes(letter_size_bound(&letter));
        self.passed.letters.push(DeadLetter {
            written: self.clock.now(),
            deployment: self.identity.deployment,
            attempts: letter.attempts.saturating_add(1),
            ..letter
        });
        Replayed::Processed
    }
}
