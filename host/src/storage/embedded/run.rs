//! A run: the rows that one epoch changes, or several epochs together, sorted by key, each key once.
//!
//! **Invariant:** a run's rows never change once they are there.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::storage::codec::{self, NewValue};
use crate::storage::embedded::bulk::{RowBytes, RowChange};
use crate::storage::queue_codec::{QueueChunk, chunk_key, encode_queue_bounds};
use crate::storage::{keys, timer_codec};
use crate::types::column::Column;
use crate::types::epoch::{ChunkMessages, EpochCommit};
use crate::types::ids::PartitionId;
use crate::types::queue::QueueBounds;

/// Sorted rows and their rank.
#[derive(Debug)]
pub(super) struct Run {
    /// 0 for an epoch's own; one more than those that it was merged from.
    pub(super) rank: u32,
    rows: OnceLock<Rows>,
    /// What the rows are made from. They are made by whoever needs them first: usually the thread
    /// that submitted the epoch, while the committer waits for the disk.
    source: Mutex<Option<EpochCommit>>,
}

impl Run {
    pub(super) fn of_commit(commit: EpochCommit) -> Run {
        Run {
            rank: 0,
            rows: OnceLock::new(),
            source: Mutex::new(Some(commit)),
        }
    }

    /// The rows of a queue's partition: chunks in the order of their offsets, and the bounds with them.
    pub(super) fn of_queue(
        queue: PartitionId,
        chunks: Vec<QueueChunk>,
        bounds: &QueueBounds,
    ) -> Run {
        let mut rows = Rows::default();
        for chunk in chunks {
            rows.push(
                &chunk_key(&chunk.span()),
                RowValue::QueueChunk(Arc::new(chunk)),
            );
        }
        rows.push_bytes(&keys::queue_bounds(queue), &encode_queue_bounds(bounds));
        Run {
            rank: 0,
            rows: OnceLock::from(rows),
            source: Mutex::new(None),
        }
    }

    /// The rows of all, the newest winning. `runs` are in the order of their epochs.
    pub(super) fn merged(rank: u32, runs: &[Arc<Run>]) -> Run {
        Run {
            rank,
            rows: OnceLock::from(Rows::merged(runs)),
            source: Mutex::new(None),
        }
    }

    pub(super) fn rows(&self) -> &Rows {
        self.rows.get_or_init(|| {
            let source = self
                .source
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            source.map_or_else(Rows::default, |commit| Rows::of_commit(&commit))
        })
    }
}

/// Rows in the order of their keys, each key once. Keys and values lie end to end: a row costs no
/// allocation.
#[derive(Debug, Default)]
pub(super) struct Rows {
    keys: Column,
    values: Vec<RowValue>,
    /// Where short values lie.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
enum RowValue {
    /// The row goes.
    Gone,
    /// From where to where in the rows' bytes.
    Bytes { start: u32, end: u32 },
    /// Encoded when it is asked for: most chunks are read by all their readers, and gone, before.
    Chunk(Arc<ChunkMessages>),
    /// Encoded when it is asked for: the rows are in memory as they came.
    QueueChunk(Arc<QueueChunk>),
}

impl Rows {
    fn of_commit(commit: &EpochCommit) -> Rows {
        let changes = commit.states.iter();
        let (mut count, mut key_bytes, mut value_bytes) = timer_codec::size_of_rows(&commit.timers);
        for changes in changes {
            // Behind a prefix of about so many bytes.
            let prefix = 16 + changes.state.len();
            count += changes.keys.len();
            key_bytes += changes.keys.bytes.len() + changes.keys.len() * prefix;
            value_bytes += changes.values.bytes.len() + changes.values.len();
        }
        let mut rows = Rows {
            keys: Column::with_capacity(count + 16, key_bytes + 1_024),
            values: Vec::with_capacity(count + 16),
            bytes: Vec::with_capacity(value_bytes + 1_024),
        };
        codec::for_each_row(commit, |key, value| match value {
            NewValue::Gone => rows.push(key, RowValue::Gone),
            NewValue::Bytes(bytes) => rows.push_bytes(key, bytes),
            NewValue::Chunk(messages) => rows.push(key, RowValue::Chunk(Arc::clone(messages))),
        });
        rows
    }

    fn merged(runs: &[Arc<Run>]) -> Rows {
        // Newest first, and the sort is stable and made for runs: of equal keys the newest leads.
        let mut order: Vec<(&[u8], &Rows, usize)> = Vec::new();
        for rows in runs.iter().rev().map(|run| run.rows()) {
            order.extend((rows.keys.iter().enumerate()).map(|(index, key)| (key, rows, index)));
        }
        order.sort_by(|left, right| left.0.cmp(right.0));
        order.dedup_by(|later, leader| later.0 == leader.0);
        let mut merged = Rows {
            keys: Column::with_capacity(order.len(), order.iter().map(|row| row.0.len()).sum()),
            values: Vec::with_capacity(order.len()),
            bytes: Vec::new(),
        };
        for (key, rows, index) in order {
            match &rows.values[index] {
                RowValue::Bytes { start, end } => {
                    merged.push_bytes(key, &rows.bytes[*start as usize..*end as usize]);
                }
                value => merged.push(key, value.clone()),
            }
        }
        merged
    }

    fn push_bytes(&mut self, key: &[u8], bytes: &[u8]) {
        let at = |len: usize| u32::try_from(len).expect("runs are bounded far below 4 GiB");
        let start = at(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        let end = at(self.bytes.len());
        self.push(key, RowValue::Bytes { start, end });
    }

    fn push(&mut self, key: &[u8], value: RowValue) {
        self.keys.push(key);
        self.values.push(value);
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        self.keys.get(index)
    }

    /// The new value of a row; `None`: the row goes.
    pub(super) fn value(&self, index: usize) -> Option<Vec<u8>> {
        match &self.values[index] {
            RowValue::Gone => None,
            RowValue::Bytes { start, end } => {
                Some(self.bytes[*start as usize..*end as usize].to_vec())
            }
            RowValue::Chunk(messages) => Some(codec::encode_chunk(messages)),
            RowValue::QueueChunk(chunk) => Some(chunk.encode()),
        }
    }

    /// The row with this key.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        let index = self.first_from(key);
        (index < self.len() && self.key(index) == key).then_some(index)
    }

    /// The first row whose key is not less than `key`; their number if there is none.
    pub(super) fn first_from(&self, key: &[u8]) -> usize {
        let (mut least, mut end) = (0, self.len());
        while least < end {
            let middle = least + (end - least) / 2;
            match self.key(middle) < key {
                true => least = middle + 1,
                false => end = middle,
            }
        }
        least
    }

    /// The rows as the bulk store takes them.
    pub(super) fn changes(&self) -> impl Iterator<Item = RowChange> {
        (0..self.len()).map(|index| {
            let value = match &self.values[index] {
                RowValue::Gone => None,
                RowValue::Bytes { start, end } => {
                    Some(RowBytes::from(&self.bytes[*start as usize..*end as usize]))
                }
                RowValue::Chunk(messages) => Some(codec::encode_chunk(messages).into()),
                RowValue::QueueChunk(chunk) => Some(chunk.encode().into()),
            };
            (RowBytes::from(self.key(index)), value)
        })
    }

    /// About how much memory the rows take, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let chunks = self.values.iter().map(|value| match value {
            RowValue::Chunk(messages) => messages.size_bytes(),
            RowValue::QueueChunk(chunk) => chunk.append.rows.size_bytes(),
            _ => 0,
        });
        self.keys.size_bytes() + self.bytes.len() + chunks.sum::<usize>()
    }
}
