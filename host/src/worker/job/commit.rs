//! An epoch of a job on its way to storage, and what is told to others once it is committed.

use crate::engine::epoch::{OpenEpoch, SealedParts};
use crate::engine::state::StateLookups;
use crate::storage::{CommitOutcome, CommitTicket, StorageError};
use crate::types::epoch::EpochCommit;
use crate::worker::error::JobError;
use crate::worker::input::lane::LaneCoverage;
use crate::worker::progress::EpochCounts;

use super::{Job, JobInput, JobStep, SubmittedEpoch};

impl Job {
    /// Hands the epoch to storage, as soon as the one before it is committed.
    pub(super) fn submit(&mut self, epoch: OpenEpoch) -> Result<(), JobError> {
        let (input_messages, items) = (epoch.input_messages(), self.items_of_input(&epoch));
        let sealed = self.seal_parts();
        // If that one is not decided, it is why, whatever else went wrong.
        self.settle()?;
        let (parts, coverage) = sealed?;
        let commit = epoch.seal(parts);
        let counts = EpochCounts {
            input_messages,
            output_messages: commit.record.output_count,
            sink_rows: std::mem::take(&mut self.sink_rows),
            skipped: std::mem::take(&mut self.passed.skipped),
            dead_letters: commit.dead_letters.len() as u64,
            source_bytes: match &mut self.input {
                JobInput::Source(source) => source.bytes_advanced(),
                JobInput::Lanes(_) => 0,
            },
        };
        self.submitted = Some(self.hand_over(commit, coverage, counts, items));
        self.chain.shrink(1);
        if let Some(hot_keys) = self.chain.hot_keys() {
            self.progress.hot_keys(hot_keys);
        }
        if let Some(StateLookups { hits, misses }) = self.chain.state_lookups() {
            tracing::debug!(hits, misses, "states looked up");
            self.progress.state_lookups(hits, misses);
        }
        Ok(())
    }

    /// How many items of its input the job moves past with the epoch: none where it serves requests for letters.
    fn items_of_input(&self, epoch: &OpenEpoch) -> u64 {
        match self.served.is_empty() {
            true => epoch.items() as u64,
            false => 0,
        }
    }

    fn hand_over(
        &mut self,
        commit: EpochCommit,
        coverage: Vec<LaneCoverage>,
        counts: EpochCounts,
        items: u64,
    ) -> (CommitTicket, SubmittedEpoch) {
        let (epoch, chunks) = (commit.epoch, commit.chunks.clone());
        let time = commit.record.time.clone();
        self.identity.epoch = epoch.next();
        self.identity.alignment = commit.record.alignment;
        self.output.submitted(&chunks);
        let submitted = SubmittedEpoch {
            epoch,
            chunks,
            coverage,
            counts,
            time,
            items,
            served: std::mem::take(&mut self.served),
        };
        (self.storage.submit_epoch(self.lease, commit), submitted)
    }

    /// Everything that the epoch commits beside its messages, and what lanes' writers are to be told
    /// then.
    fn seal_parts(&mut self) -> Result<(SealedParts, Vec<LaneCoverage>), JobError> {
        let mut parts = SealedParts {
            trims: self.output.take_trims(&self.board),
            dead_letters: std::mem::take(&mut self.passed.letters),
            removed_letters: self.take_removed_letters(),
            ..SealedParts::default()
        };
        let mut coverage = Vec::new();
        match &mut self.input {
            JobInput::Source(source) => {
                parts.source_position = Some(source.seal());
                parts.source_marks = source.seal_marks();
            }
            JobInput::Lanes(lanes) => (parts.frontiers, coverage) = lanes.seal(),
        }
        self.chain.sweep(&*self.storage)?;
        if let Some(states) = self.chain.states() {
            parts.states = states.take_changes();
        }
        let pending;
        (parts.timers, pending) = self.chain.take_timer_changes();
        parts.time = self.time.seal(pending, self.chain.state_ages());
        let now = self.clock.now();
        for place in 0..self.sinks.len() {
            match self.sinks[place].sink.seal(now) {
                Ok(sealed) => {
                    let target = &mut self.sinks[place].target;
                    target.take(sealed, now, &*self.storage, &mut parts)?;
                }
                Err(error) => return Err(self.sink_failed(place, None, error)),
            }
        }
        if self.is_finishing {
            self.finish_files(&mut parts);
        }
        Ok((parts, coverage))
    }

    /// Waits until the submitted epoch is decided, if there is one; once it is, hands its chunks on, tells
    /// writers how far their lanes are read, and counts.
    pub(super) fn settle(&mut self) -> Result<(), JobError> {
        match self.submitted.take() {
            Some((ticket, submitted)) => self.take_decision(ticket.wait(), submitted),
            None => Ok(()),
        }
    }

    /// As [`Job::settle`], if the submitted epoch is decided already.
    pub(super) fn settle_if_decided(&mut self) -> Result<(), JobError> {
        let decision = self
            .submitted
            .as_ref()
            .and_then(|(ticket, _)| ticket.try_wait());
        match (decision, self.submitted.take()) {
            (Some(decision), Some((_, submitted))) => self.take_decision(decision, submitted),
            (_, submitted) => {
                self.submitted = submitted;
                Ok(())
            }
        }
    }

    fn take_decision(
        &mut self,
        decision: Result<CommitOutcome, StorageError>,
        submitted: SubmittedEpoch,
    ) -> Result<(), JobError> {
        let epoch = submitted.epoch;
        match decision? {
            CommitOutcome::Committed(_) => {}
            CommitOutcome::Refused(refusal) => return Err(JobError::Refused(refusal)),
            CommitOutcome::Unknown => {
                return Err(JobError::OutcomeUnknown {
                    partition: self.lease.partition,
                    epoch,
                });
            }
        }
        let EpochCounts {
            input_messages,
            output_messages,
            ..
        } = submitted.counts;
        tracing::debug!(%epoch, input_messages, output_messages, "epoch committed");
        if submitted.time.fired_count > 0 {
            tracing::debug!(%epoch, timers = submitted.time.fired_count, "timers fired");
        }
        self.chain.attempts().passed(submitted.items)?;
        let requests = self.board.letter_requests();
        requests.done(&submitted.served, &*self.storage)?;
        self.output.committed(epoch, &submitted.chunks, &self.board);
        let coverage = submitted.coverage.into_iter();
        coverage.for_each(|lane| lane.tell(&self.board));
        self.progress.epoch_committed(submitted.counts);
        self.progress.time(&submitted.time);
        Ok(())
    }

    /// There is nothing to compute: sees the submitted epoch committed, if there is one.
    pub(super) fn settle_or_idle(&mut self) -> Result<JobStep, JobError> {
        if self.submitted.is_none() {
            return Ok(JobStep::Idle);
        }
        self.settle()?;
        Ok(JobStep::Advanced)
    }
}
