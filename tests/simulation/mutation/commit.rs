//! What broken engines commit in place of a sound epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock::source::queue::QueuePosition;
use tidelock::storage::{CommitOutcome, Refusal, Storage, StorageError, leases};
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::{EpochCommit, LaneTrim, SinkAppend};
use tidelock::types::ids::{EpochId, LaneId, PartitionId};
use tidelock::types::lease::Lease;
use tidelock::types::timer::{PendingTimers, TimerPlace};
use tidelock::types::watermark::LaneTime;

use super::Mutation;
use super::time::{self, RemovedLater};
use crate::record_source::{number_of, part_of, write_time};
use crate::storage::SimulatedStorage;

/// How much earlier than it was meant to a timer fires.
const EARLY_MS: Timestamp = 40;

/// What a broken engine keeps between two epochs.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    newest_chunks: BTreeMap<LaneId, EpochId>,
    undecided_rows: BTreeMap<PartitionId, Vec<SinkAppend>>,
    removed_timers: RemovedLater,
}

impl Mutation {
    /// Commits an epoch the broken way.
    pub(crate) fn commit(
        self,
        storage: &SimulatedStorage,
        lease: Lease,
        mut commit: EpochCommit,
        kept: &mut Kept,
    ) -> Result<CommitOutcome, StorageError> {
        match self {
            Mutation::FrontierNotCommitted => commit.frontiers.clear(),
            Mutation::FrontierOneShort => {
                for frontier in &mut commit.frontiers {
                    frontier.index = frontier.index.saturating_sub(1);
                }
            }
            Mutation::SourcePositionNotCommitted => commit.source_position = None,
            Mutation::StateLost => {
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_turned_down(storage, &commit, outcome) {
                    commit.states.clear();
                    storage.commit_honestly(lease, commit)?;
                }
                return Ok(outcome);
            }
            Mutation::ChunkBeforeCommit => {
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_turned_down(storage, &commit, outcome) {
                    storage.commit_honestly(lease, chunks_alone(commit))?;
                }
                return Ok(outcome);
            }
            Mutation::StaleEpochAccepted => {
                let head = storage.head(commit.partition)?;
                if let Some(current) = leases::current(storage, commit.partition)? {
                    commit.generation = current.generation;
                    commit.epoch = head.epoch.next();
                    return storage.commit_honestly(current, commit);
                }
            }
            Mutation::TrimBeforeCovered => trim_all_but_newest(&mut commit, kept),
            Mutation::RowsOfUndecidedEpoch => {
                let before = kept.undecided_rows.remove(&commit.partition);
                prepend(&mut commit, before.unwrap_or_default());
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_turned_down(storage, &commit, outcome) && !commit.appends.is_empty() {
                    // The first rows are the witness's: the other checkers must not see this.
                    let rows = commit.appends.split_off(1);
                    kept.undecided_rows.insert(commit.partition, rows);
                }
                return Ok(outcome);
            }
            Mutation::QueueRowsOfUndecidedEpoch => {
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_turned_down(storage, &commit, outcome) && !commit.queue_appends.is_empty() {
                    storage.commit_honestly(lease, queue_rows_alone(commit))?;
                }
                return Ok(outcome);
            }
            Mutation::QueueRowLost => lose_queue_row(&mut commit),
            Mutation::QueuePositionOneShort => {
                if let Some(position) = &mut commit.source_position
                    && let Ok(mut of_queue) = QueuePosition::decode(position)
                {
                    of_queue.next = of_queue.next.saturating_sub(1);
                    *position = of_queue.encode();
                }
            }
            Mutation::ClampDropped => {
                let now = storage.now();
                match commit.source_position {
                    Some(_) => align(&mut commit, written_at),
                    None => align(&mut commit, |_| now),
                }
            }
            Mutation::AlignmentNotCommitted => commit.record.alignment = 0,
            Mutation::CreationTimeInherited => {
                if commit.source_position.is_none() {
                    align(&mut commit, written_at);
                }
            }
            Mutation::StatesNotReadBack
            | Mutation::InputsNotMerged
            | Mutation::TieRuleReversed
            | Mutation::DelaysIgnored
            | Mutation::GapSkipped
            | Mutation::BoundIgnored
            | Mutation::WaitsTooEarly
            | Mutation::PassedMessagesMoved
            | Mutation::StateNotMoved
            | Mutation::NewLanesFirst
            | Mutation::ReaderForgotten
            | Mutation::PartitionsRotated
            | Mutation::MapsReversed
            | Mutation::InputSilent => {}
            other => other.commit_in_time(&mut commit, kept),
        }
        storage.commit_honestly(lease, commit)
    }

    /// Makes an epoch what an engine would that is broken in time.
    fn commit_in_time(self, commit: &mut EpochCommit, kept: &mut Kept) {
        match self {
            Mutation::WatermarksNotCommitted => time::forget_watermarks(commit),
            Mutation::StepBeforeMessages => time::put_steps_first(commit),
            Mutation::StepLost => time::lose_steps(commit),
            Mutation::FrontierTimeNotCommitted => {
                let frontiers = commit.frontiers.iter_mut();
                frontiers.for_each(|frontier| frontier.time = LaneTime::default());
            }
            Mutation::HoldIgnored => time::ignore_holds(commit),
            Mutation::TimerNotStored => {
                time::change_timers(commit, |_, set| *set = PendingTimers::default());
            }
            Mutation::FiredTimerStays => {
                time::change_timers(commit, |removed, _| {
                    *removed = PendingTimers::default();
                });
            }
            Mutation::FiredTimerGoesLater => {
                time::remove_timers_later(commit, &mut kept.removed_timers);
            }
            Mutation::TimersSwapped => time::swap_timers(commit),
            Mutation::TimerEarly => time::change_timers(commit, |_, set| {
                let times = set.trigger_times.iter_mut();
                times.for_each(|time| *time = time.saturating_sub(EARLY_MS));
            }),
            Mutation::HeldTimerFires => {
                time::change_timers(commit, |_, set| set.held_in_runs.fill(0));
            }
            Mutation::StepForgotten => commit.record.time.fired_up_to = None,
            Mutation::StepBegunAgain => {
                let fired_up_to = &mut commit.record.time.fired_up_to;
                *fired_up_to = fired_up_to.take().map(|_| TimerPlace::default());
            }
            Mutation::TouchNotCommitted => {
                let touched = commit.states.iter_mut().map(|states| &mut states.touched);
                touched.for_each(|touched| touched.fill(0));
            }
            _ => {}
        }
    }
}

/// Whether the epoch was not decided though its job has the lease, so that another epoch in its
/// place can get through.
fn is_turned_down(
    storage: &SimulatedStorage,
    commit: &EpochCommit,
    outcome: CommitOutcome,
) -> bool {
    match outcome {
        CommitOutcome::Committed(_) => false,
        CommitOutcome::Refused(Refusal::LeaseLost { current, .. }) => current.is_none(),
        CommitOutcome::Refused(Refusal::OutOfOrder { .. }) => false,
        CommitOutcome::Unknown => storage
            .head(commit.partition)
            .is_ok_and(|head| head.epoch < commit.epoch),
    }
}

/// Stamps every message of the epoch by its payload.
fn align(commit: &mut EpochCommit, time: impl Fn(&[u8]) -> Timestamp) {
    for chunk in &mut commit.chunks {
        let messages = Arc::make_mut(&mut chunk.messages);
        let count = messages.len();
        let times = (0..count).map(|index| time(messages.payloads.get(index)));
        messages.alignments = times.collect();
    }
}

/// When the record was written that a message goes back to.
fn written_at(payload: &[u8]) -> Timestamp {
    write_time(part_of(payload), number_of(payload))
}

/// The epoch without anything but rows of queues.
fn queue_rows_alone(commit: EpochCommit) -> EpochCommit {
    EpochCommit {
        chunks: Vec::new(),
        queue_appends: commit.queue_appends.clone(),
        ..chunks_alone(commit)
    }
}

fn lose_queue_row(commit: &mut EpochCommit) {
    for append in &mut commit.queue_appends {
        let rows = Arc::make_mut(&mut append.rows);
        let left = rows.len().saturating_sub(1);
        rows.keys.truncate(left);
        rows.event_times.truncate(left);
        rows.payloads.truncate(left);
    }
    commit
        .queue_appends
        .retain(|append| !append.rows.is_empty());
}

fn chunks_alone(commit: EpochCommit) -> EpochCommit {
    EpochCommit {
        source_position: None,
        frontiers: Vec::new(),
        dropped_frontiers: Vec::new(),
        dropped_records: Vec::new(),
        states: Vec::new(),
        trims: Vec::new(),
        appends: Vec::new(),
        queue_appends: Vec::new(),
        timers: Vec::new(),
        ..commit
    }
}

fn trim_all_but_newest(commit: &mut EpochCommit, kept: &mut Kept) {
    for chunk in &commit.chunks {
        let before = kept.newest_chunks.insert(chunk.lane, commit.epoch);
        let trim = before.map(|epoch| LaneTrim {
            lane: chunk.lane,
            epoch,
        });
        let is_new = |trim: &LaneTrim| trim.epoch < commit.epoch && !commit.trims.contains(trim);
        commit.trims.extend(trim.filter(is_new));
    }
}

fn prepend(commit: &mut EpochCommit, before: Vec<SinkAppend>) {
    for mut append in before {
        match (commit.appends.iter_mut()).find(|own| own.file == append.file) {
            Some(own) => {
                append.bytes.append(&mut own.bytes);
                own.bytes = append.bytes;
            }
            None => commit.appends.push(append),
        }
    }
}
