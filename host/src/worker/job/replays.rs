//! What a job is asked to do with dead letters of its partition: to process their items again, or to let them go.
//!
//! **Invariant:** a letter goes with the epoch that has processed its item, or says that it is not wanted. So an item is
//! replayed once, whatever happens to the process, and what follows from it has ids of that epoch.

use crate::engine::epoch::OpenEpoch;
use crate::storage::letter_rows::read_letter;
use crate::types::dead_letter::{
    DeadLetter, DeadLetterId, LetterItem, LetterOrigin, LetterRequest, LetterRequestKind,
};
use crate::types::ids::PublicId;
use crate::types::timestamp_runs::TimestampRuns;
use crate::worker::error::JobError;

use crate::worker::input::ItemLocation;

use super::items::chain_failed;
use super::{Job, JobInput, JobStep};

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
    pub(super) fn serve_letters(&mut self, mut epoch: OpenEpoch) -> Result<JobStep, JobError> {
        if self.submitted.is_some() {
            // What an epoch on its way does to letters is to be seen.
            return self.settle_or_idle();
        }
        self.serve_letter_requests(&mut epoch)?;
        if epoch.has_content() || !self.passed.removed.is_empty() {
            self.submit(epoch)?;
        } else {
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
        while self.served.len() < REQUESTS_PER_EPOCH_MAX && epoch.room().is_some() {
            let Some(request) = self.board.letter_requests().next(self.lease.partition) else {
                break;
            };
            let LetterRequest { id, kind } = request;
            let Some(letter) = read_letter(&*self.storage, id)? else {
                // An epoch that was decided has served it.
                self.served.push(id);
                continue;
            };
            let is_served = match kind {
                LetterRequestKind::Discard => true,
                LetterRequestKind::Replay => self.replay(id, letter, epoch)?,
            };
            if is_served {
                self.passed.removed.push(id);
                self.served.push(id);
                tracing::debug!(letter = %id, %kind, "dead letter served");
            } else {
                tracing::warn!(
                    letter = %id,
                    "dead letter can't be replayed: its computation is not in this job, or no longer reads its stream"
                );
            }
        }
        Ok(())
    }

    /// Processes a letter's item. Whether there is anybody to do so.
    fn replay(
        &mut self,
        id: DeadLetterId,
        letter: DeadLetter,
        epoch: &mut OpenEpoch,
    ) -> Result<bool, JobError> {
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
                let decoded = match &mut self.input {
                    JobInput::Source(source) if is_whole => source.decode_again(bytes),
                    JobInput::Source(_) => None,
                    JobInput::Lanes(_) => return Ok(false),
                };
                let Some(records) = decoded else {
                    return Ok(self.keep_again(letter));
                };
                self.chain.replay_records(records, epoch)
            }
            (LetterOrigin::Computation(computation), item)
                if self.chain.can_replay(&computation.name, item) =>
            {
                let name = &computation.name;
                (self.chain).replay(name, item, setting, epoch, &*self.storage)
            }
            _ => return Ok(false),
        };
        let partition = self.lease.partition;
        ran.map_err(|error| chain_failed(error, partition, epoch.id(), |_| location.clone()))?;
        self.keep_passed_again(epoch, &letter);
        let times = TimestampRuns::repeated(setting.now, 1);
        // What it was known by, as far as that is kept.
        let name = id.to_string();
        let of_letter = || PublicId::of_record(partition, name.as_bytes());
        let ids = [letter.root.map_or_else(of_letter, PublicId::from)];
        self.route(epoch, &times, &ids)
            .map_err(|refused| self.sink_failed(refused.sink, Some(location), refused.error))?;
        Ok(true)
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
    fn keep_again(&mut self, letter: DeadLetter) -> bool {
        self.passed.letters.push(DeadLetter {
            written: self.clock.now(),
            deployment: self.identity.deployment,
            attempts: letter.attempts.saturating_add(1),
            ..letter
        });
        true
    }
}
