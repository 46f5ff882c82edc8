//! Engines that are broken on purpose, as the storage would see them: the positive control of the
//! checkers. Each takes the epoch that a sound job commits and commits what a broken one would.

use std::collections::BTreeMap;

use tidelock::storage::{CommitOutcome, Refusal, Storage, StorageError, leases};
use tidelock::types::epoch::{EpochCommit, LaneTrim, SinkAppend};
use tidelock::types::ids::{EpochId, LaneId, PartitionId};
use tidelock::types::lease::Lease;

use crate::checkers::Checker;
use crate::storage::SimulatedStorage;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Frontiers are no part of the commit.
    FrontierNotCommitted,
    /// Frontiers stand one message before the last one processed.
    FrontierOneShort,
    /// The position of a source is no part of the commit.
    SourcePositionNotCommitted,
    /// Of a refused epoch all is kept but the states.
    StateLostOnRefusal,
    /// Chunks are handed on before their epoch is decided, and stay when it is refused.
    ChunkBeforeCommit,
    /// Neither lease nor predecessor is compared: whoever commits, commits.
    StaleEpochAccepted,
    /// A chunk is removed when the next one is written, read or not.
    TrimBeforeCovered,
    /// Rows of a refused epoch stay in the sink and go out with the next one.
    RowsOfRefusedEpoch,
}

/// What a broken engine keeps between two epochs.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    newest_chunks: BTreeMap<LaneId, EpochId>,
    refused_rows: BTreeMap<PartitionId, Vec<SinkAppend>>,
}

impl Mutation {
    /// All of them.
    pub(crate) const ALL: [Mutation; 8] = [
        Mutation::FrontierNotCommitted,
        Mutation::FrontierOneShort,
        Mutation::SourcePositionNotCommitted,
        Mutation::StateLostOnRefusal,
        Mutation::ChunkBeforeCommit,
        Mutation::StaleEpochAccepted,
        Mutation::TrimBeforeCovered,
        Mutation::RowsOfRefusedEpoch,
    ];

    /// The checker that must find it, whoever else does.
    pub(crate) fn checker(self) -> Checker {
        match self {
            Mutation::StateLostOnRefusal => Checker::State,
            Mutation::RowsOfRefusedEpoch => Checker::Sinks,
            _ => Checker::Inputs,
        }
    }

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
            Mutation::StateLostOnRefusal => {
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_refused_by_fault(&outcome) {
                    commit.states.clear();
                    storage.commit_honestly(lease, commit)?;
                }
                return Ok(outcome);
            }
            Mutation::ChunkBeforeCommit => {
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_refused_by_fault(&outcome) {
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
            Mutation::RowsOfRefusedEpoch => {
                let before = kept.refused_rows.remove(&commit.partition);
                prepend(&mut commit, before.unwrap_or_default());
                let outcome = storage.commit_honestly(lease, commit.clone())?;
                if is_refused_by_fault(&outcome) && !commit.appends.is_empty() {
                    // The first rows are the witness's: the other checkers must not see this.
                    let rows = commit.appends.split_off(1);
                    kept.refused_rows.insert(commit.partition, rows);
                }
                return Ok(outcome);
            }
        }
        storage.commit_honestly(lease, commit)
    }
}

/// Whether the epoch was refused and its job still has the lease, so that another epoch in its
/// place can get through.
fn is_refused_by_fault(outcome: &CommitOutcome) -> bool {
    matches!(
        outcome,
        CommitOutcome::Refused(Refusal::LeaseLost { current: None, .. })
    )
}

fn chunks_alone(commit: EpochCommit) -> EpochCommit {
    EpochCommit {
        source_position: None,
        frontiers: Vec::new(),
        states: Vec::new(),
        trims: Vec::new(),
        appends: Vec::new(),
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
