//! The channel of a lane: committed chunks on their way from the writer to the reader in memory,
//! so that neither the writing nor the reading of storage stands between the two.
//!
//! A channel is a shortcut and never needed: every chunk is in storage before it is here. So it is
//! bounded by dropping what does not fit. Each chunk names the one before it; a reader that has not
//! seen that one has found a gap, and reads on from storage.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::types::epoch::ChunkMessages;
use crate::types::ids::EpochId;

/// Chunks of one lane, oldest first.
#[derive(Debug, Default)]
pub(super) struct LaneChannel {
    blocks: VecDeque<Block>,
    size_bytes: u64,
}

/// A chunk in a channel.
#[derive(Debug)]
struct Block {
    /// The epoch of the chunk before it in the lane.
    previous: EpochId,
    epoch: EpochId,
    chunk: Arc<ChunkMessages>,
}

/// What a reader finds in a channel.
#[derive(Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The chunk that follows what it has read.
    Chunk(EpochId, Arc<ChunkMessages>),
    /// There is more, up to `written`, and it has to be read from storage.
    Gap {
        /// The newest epoch that put a chunk into the lane.
        written: EpochId,
    },
    /// It has read everything that was written so far.
    UpToDate,
    /// It has read everything, and nothing will follow in this run.
    End,
}

impl LaneChannel {
    /// Hands a chunk on, if that does not bring the channel above `bytes_max`.
    pub(super) fn send(
        &mut self,
        previous: EpochId,
        epoch: EpochId,
        chunk: &Arc<ChunkMessages>,
        bytes_max: u64,
    ) {
        let size_bytes = chunk.size_bytes() as u64;
        if self.size_bytes + size_bytes > bytes_max {
            return;
        }
        self.size_bytes += size_bytes;
        self.blocks.push_back(Block {
            previous,
            epoch,
            chunk: Arc::clone(chunk),
        });
    }

    /// What follows `read`, the newest epoch that the reader has read, in a lane that was written
    /// up to `written`.
    pub(super) fn receive(&mut self, read: EpochId, written: EpochId) -> Receipt {
        while self.blocks.front().is_some_and(|block| block.epoch <= read) {
            self.pop();
        }
        match self.blocks.front() {
            Some(block) if block.previous <= read => {
                let block = self.pop().expect("it was looked at");
                Receipt::Chunk(block.epoch, block.chunk)
            }
            _ if written > read => Receipt::Gap { written },
            _ => Receipt::UpToDate,
        }
    }

    fn pop(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.size_bytes -= block.chunk.size_bytes() as u64;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(payload: &str) -> Arc<ChunkMessages> {
        let mut chunk = ChunkMessages::default();
        chunk.indexes.push(0);
        chunk.key_hashes.push(0);
        chunk.keys.push(b"");
        chunk.event_times.push(0);
        chunk.alignments.push(0);
        chunk.payloads.push(payload.as_bytes());
        Arc::new(chunk)
    }

    /// A channel with the chunks of these epochs, each naming the one before it.
    fn channel(epochs: &[u64]) -> LaneChannel {
        let mut channel = LaneChannel::default();
        let mut previous = EpochId(0);
        for epoch in epochs {
            channel.send(previous, EpochId(*epoch), &chunk("x"), 1 << 20);
            previous = EpochId(*epoch);
        }
        channel
    }

    fn epoch_of(receipt: &Receipt) -> Option<u64> {
        match receipt {
            Receipt::Chunk(epoch, _) => Some(epoch.0),
            _ => None,
        }
    }

    #[test]
    fn chunks_come_in_order_and_then_nothing() {
        let mut channel = channel(&[2, 5]);
        assert_eq!(epoch_of(&channel.receive(EpochId(1), EpochId(5))), Some(2));
        assert_eq!(epoch_of(&channel.receive(EpochId(2), EpochId(5))), Some(5));
        assert_eq!(channel.receive(EpochId(5), EpochId(5)), Receipt::UpToDate);
        assert_eq!(channel.size_bytes, 0);
    }

    #[test]
    fn a_chunk_whose_predecessor_was_not_read_is_a_gap() {
        let mut channel = channel(&[2, 5]);
        channel.pop();
        let written = EpochId(5);
        assert_eq!(
            channel.receive(EpochId(1), written),
            Receipt::Gap { written }
        );
        // Storage gave epoch 2; now the chunk of epoch 5 follows.
        assert_eq!(epoch_of(&channel.receive(EpochId(2), written)), Some(5));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_leaves_a_gap() {
        let mut channel = channel(&[1]);
        let full = channel.size_bytes;
        channel.send(EpochId(1), EpochId(2), &chunk("y"), full);
        assert_eq!(epoch_of(&channel.receive(EpochId(0), EpochId(2))), Some(1));
        channel.send(EpochId(2), EpochId(3), &chunk("z"), full);
        let written = EpochId(3);
        assert_eq!(
            channel.receive(EpochId(1), written),
            Receipt::Gap { written }
        );
    }

    #[test]
    fn chunks_that_were_read_from_storage_are_passed_over() {
        let mut channel = channel(&[2, 5, 7]);
        assert_eq!(epoch_of(&channel.receive(EpochId(6), EpochId(7))), Some(7));
    }
}
