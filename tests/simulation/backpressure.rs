//! The checker of backpressure: a reader that falls behind stops those who write to it at the bound
//! of its lane, one epoch past it at most, and no earlier.

use std::collections::BTreeMap;

use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::{EpochId, LaneId, PartitionId};

use crate::checkers::{Checker, Evidence, Finding};
use crate::history::Decided;

/// What waits in lanes: written, and not passed by the reader's frontier.
#[derive(Debug, Default)]
pub(crate) struct WaitingChunks(BTreeMap<LaneId, Vec<Chunk>>);

/// A chunk that waits.
#[derive(Debug)]
struct Chunk {
    epoch: EpochId,
    last_index: u32,
    size_bytes: u64,
}

impl WaitingChunks {
    /// What waits after all these epochs.
    pub(crate) fn after(decided: &[Decided]) -> WaitingChunks {
        let mut waiting = WaitingChunks::default();
        decided.iter().for_each(|one| waiting.follow(&one.commit));
        waiting
    }

    /// An epoch was decided.
    fn follow(&mut self, commit: &EpochCommit) {
        for frontier in &commit.frontiers {
            let passed = (frontier.epoch, frontier.index);
            let chunks = self.0.entry(frontier.lane).or_default();
            chunks.retain(|chunk| (chunk.epoch, chunk.last_index) > passed);
        }
        for trim in &commit.trims {
            let chunks = self.0.entry(trim.lane).or_default();
            chunks.retain(|chunk| chunk.epoch != trim.epoch);
        }
        for chunk in &commit.chunks {
            let last_index = chunk.messages.last_index();
            self.0.entry(chunk.lane).or_default().push(Chunk {
                epoch: chunk.epoch,
                last_index: last_index.unwrap_or_default(),
                size_bytes: chunk.messages.size_bytes() as u64,
            });
        }
    }

    /// A lane of this producer that holds `bytes` or more, and how much it holds.
    pub(crate) fn full_lane(&self, producer: PartitionId, bytes: u64) -> Option<(LaneId, u64)> {
        let lanes = self.0.iter().filter(|(lane, _)| lane.producer == producer);
        let sizes = lanes.map(|(lane, chunks)| {
            let sizes = chunks.iter().map(|chunk| chunk.size_bytes);
            (*lane, sizes.sum())
        });
        sizes
            .into_iter()
            .find(|(_, size_bytes)| *size_bytes >= bytes)
    }

    /// Whether anything waits for this reader that it must know of: a job that gets no turn may not
    /// have handed on what it wrote last.
    pub(crate) fn has_input(&self, reader: PartitionId, starved: PartitionId) -> bool {
        let mut lanes = self.0.iter();
        lanes.any(|(lane, chunks)| {
            lane.reader == reader && lane.producer != starved && !chunks.is_empty()
        })
    }
}

/// Judges whether anybody wrote to a full lane in everything that was ever decided.
pub(crate) fn judge(evidence: &Evidence<'_>, decided: &[Decided]) -> Vec<Finding> {
    let mut waiting = WaitingChunks::default();
    let mut findings = Vec::new();
    for Decided {
        commit,
        lane_bytes_max,
        ..
    } in decided
    {
        let full = waiting.full_lane(commit.partition, *lane_bytes_max);
        if let Some((lane, size_bytes)) = full
            && commit.record.input_count + commit.record.time.fired_count > 0
        {
            findings.push(Finding {
                checker: Checker::Backpressure,
                text: format!(
                    "{} went on in epoch {} though lane {lane} held {size_bytes} of {lane_bytes_max} bytes",
                    evidence.name(commit.partition),
 commit.epoch
                ),
            });
        }
        waiting.follow(commit);
    }
    findings
}
