//! A reader's position in a lane, and a writer's view of what its readers have passed.
//!
//! A lane is a durable log of chunks; the frontier is the last message of it that a committed
//! epoch has processed. What lies at or before the frontier is a duplicate by definition, so no
//! table of message ids is needed (guarantees D1, D2). Lanes are read strictly first in, first out.

use std::collections::VecDeque;

use crate::types::epoch::ChunkMessages;
use crate::types::ids::EpochId;

/// The last message or watermark step that a reader has processed in a lane. The default stands
/// before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontier {
    /// Its epoch; 0 before the first one.
    pub epoch: EpochId,
    /// Its index in the epoch.
    pub index: u32,
}

impl Frontier {
    /// How many of the chunk's leading messages have been processed.
    pub fn passed(&self, epoch: EpochId, chunk: &ChunkMessages) -> usize {
        match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Less => chunk.len(),
            std::cmp::Ordering::Greater => 0,
            std::cmp::Ordering::Equal => chunk.indexes.partition_point(|at| *at <= self.index),
        }
    }

    /// How many of the chunk's leading watermark steps have been processed.
    pub fn passed_steps(&self, epoch: EpochId, chunk: &ChunkMessages) -> usize {
        match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Less => chunk.steps.len(),
            std::cmp::Ordering::Greater => 0,
            std::cmp::Ordering::Equal => {
                (chunk.steps).partition_point(|step| step.index <= self.index)
            }
        }
    }

    /// Moves behind message or step `index` of `epoch`.
    ///
    /// # Panics
    ///
    /// When that is a step back: a lane is read first in, first out.
    pub fn advance(&mut self, epoch: EpochId, index: u32) {
        let next = Frontier { epoch, index };
        assert!(next > *self, "a frontier never moves back");
        *self = next;
    }
}

/// The chunks of a lane that its writer still keeps, oldest first.
#[derive(Debug, Default)]
pub struct KeptChunks {
    epochs: VecDeque<EpochId>,
}

impl KeptChunks {
    /// The chunks found in storage, in the order of their epochs.
    pub fn restored(epochs: impl IntoIterator<Item = EpochId>) -> KeptChunks {
        KeptChunks {
            epochs: epochs.into_iter().collect(),
        }
    }

    /// A chunk was committed.
    pub fn push(&mut self, epoch: EpochId) {
        debug_assert!(self.epochs.back().is_none_or(|last| *last < epoch));
        self.epochs.push_back(epoch);
    }

    /// Whether no chunk is kept.
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Takes out the chunks that may go once the reader has committed everything up to `covered`.
    /// Should the commit that removes them be refused, the list goes with its job.
    pub fn take_covered(&mut self, covered: EpochId) -> impl Iterator<Item = EpochId> {
        std::iter::from_fn(move || self.epochs.pop_front_if(|epoch| *epoch <= covered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(indexes: &[u32]) -> ChunkMessages {
        ChunkMessages {
            indexes: indexes.to_vec(),
            ..ChunkMessages::default()
        }
    }

    #[test]
    fn what_a_frontier_has_passed_is_a_duplicate() {
        let frontier = Frontier {
            epoch: EpochId(4),
            index: 7,
        };
        let messages = chunk(&[2, 7, 9]);
        assert_eq!(frontier.passed(EpochId(3), &messages), 3);
        assert_eq!(frontier.passed(EpochId(4), &messages), 2);
        assert_eq!(frontier.passed(EpochId(5), &messages), 0);
        assert_eq!(Frontier::default().passed(EpochId(1), &messages), 0);
    }

    #[test]
    #[should_panic(expected = "never moves back")]
    fn a_frontier_never_moves_back() {
        Frontier {
            epoch: EpochId(4),
            index: 7,
        }
        .advance(EpochId(4), 7);
    }

    #[test]
    fn only_covered_chunks_are_trimmed() {
        let mut kept = KeptChunks::restored([EpochId(2), EpochId(5)]);
        kept.push(EpochId(9));
        assert!(kept.take_covered(EpochId(5)).eq([EpochId(2), EpochId(5)]));
        assert_eq!(kept.take_covered(EpochId(8)).count(), 0);
        assert!(!kept.is_empty());
    }
}
