//! Rows of queues: durable, partitioned logs in the same store. A queue's partition has a number that is
//! never used again, as every partition has; its rows have offsets that the committer gives, from 0, without
//! gap.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::batch::Timestamp;
use crate::types::column::Column;
use crate::types::ids::PartitionId;

/// Rows that were written into a queue's partition together, as columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueRows {
    /// Keys; empty where a row has none.
    pub keys: Column,
    /// Event times; 0 where a row has none.
    pub event_times: Vec<Timestamp>,
    /// Payloads.
    pub payloads: Column,
    /// When they were written, by the writer's clock: what retention goes by.
    pub write_time: Timestamp,
}

impl QueueRows {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.event_times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.event_times.is_empty()
    }

    /// Appends a row.
    pub fn push(&mut self, key: &[u8], event_time: Timestamp, payload: &[u8]) {
        self.keys.push(key);
        self.event_times.push(event_time);
        self.payloads.push(payload);
    }

    /// Bytes of keys and payloads, and 16 for each row: what retention by size counts.
    pub fn size_bytes(&self) -> usize {
        self.keys.bytes.len() + self.payloads.bytes.len() + ROW_BYTES * self.len()
    }

    /// The same of the first `count` rows alone.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn size_bytes_of_first(&self, count: usize) -> usize {
        let end_of = |column: &Column| match count {
            0 => 0,
            count => column.ends[count - 1] as usize,
        };
        end_of(&self.keys) + end_of(&self.payloads) + ROW_BYTES * count
    }

    /// The rows behind the first `count`.
    #[must_use]
    pub fn without_first(self, count: usize) -> QueueRows {
        if count == 0 {
            return self;
        }
        let behind = |column: &Column| {
            let mut rest = Column::default();
            rest.extend_from(column, count.min(column.len())..column.len());
            rest
        };
        QueueRows {
            keys: behind(&self.keys),
            event_times: self.event_times.iter().skip(count).copied().collect(),
            payloads: behind(&self.payloads),
            write_time: self.write_time,
        }
    }
}

/// How long the rows of a queue are kept. Whatever is kept longer than one of the bounds asks for goes, a chunk of
/// rows at a time, from the start; without any bound rows stay until somebody trims them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// For how long after it was written a row is kept, in milliseconds.
    pub time_ms: Option<u64>,
    /// How many bytes of rows are kept, all partitions together, as [`QueueRows::size_bytes`] counts them.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Whether nothing is ever to go.
    pub fn is_forever(self) -> bool {
        self == Retention::default()
    }
}

/// What a row counts for beside its key and payload, in bytes.
pub(crate) const ROW_BYTES: usize = 16;

/// Rows that an epoch appends to a partition of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAppend {
    /// The queue's partition.
    pub queue: PartitionId,
    /// The rows, at least one.
    pub rows: Arc<QueueRows>,
}

impl QueueAppend {
    /// What its rows are at a place.
    pub fn span(&self, place: QueuePlace) -> QueueSpan {
        QueueSpan {
            queue: self.queue,
            place,
            count: self.rows.len() as u64,
            size_bytes: self.rows.size_bytes() as u64,
        }
    }
}

/// Where rows that were appended together lie in their partition: the committer says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueuePlace {
    /// Offset of the first one.
    pub offset: u64,
    /// Bytes of all rows that were ever written before them, as [`QueueRows::size_bytes`] counts.
    pub bytes_before: u64,
}

/// Rows that were appended to a queue's partition together, without themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSpan {
    /// The queue's partition.
    pub queue: PartitionId,
    /// Where they lie.
    pub place: QueuePlace,
    /// How many they are.
    pub count: u64,
    /// Their bytes, as [`QueueRows::size_bytes`] counts.
    pub size_bytes: u64,
}

impl QueueSpan {
    /// Offset behind the last row.
    pub fn end(&self) -> u64 {
        self.place.offset.saturating_add(self.count)
    }
}

/// From where to where a queue's partition has rows. The default is that of one that nothing was ever
/// written to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueBounds {
    /// Offset of the first row that is kept.
    pub start: u64,
    /// Offset that the next row gets; it never falls.
    pub end: u64,
    /// Bytes of all rows that were ever written, as [`QueueRows::size_bytes`] counts.
    pub written_bytes: u64,
    /// Bytes of those of them that are gone.
    pub trimmed_bytes: u64,
}

impl QueueBounds {
    /// How many rows are kept.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether no row is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the rows that are kept.
    pub fn size_bytes(&self) -> u64 {
        self.written_bytes.saturating_sub(self.trimmed_bytes)
    }

    /// Where rows that come next lie.
    pub fn next_place(&self) -> QueuePlace {
        QueuePlace {
            offset: self.end,
            bytes_before: self.written_bytes,
        }
    }

    /// Takes in rows at their place, whichever others are there already.
    pub fn cover(&mut self, span: &QueueSpan) {
        self.end = self.end.max(span.end());
        let written = span.place.bytes_before.saturating_add(span.size_bytes);
        self.written_bytes = self.written_bytes.max(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(payloads: &[&str]) -> QueueRows {
        let mut rows = QueueRows::default();
        for payload in payloads {
            rows.push(b"k", 7, payload.as_bytes());
        }
        rows
    }

    #[test]
    fn rows_behind_the_first_ones_are_the_others() {
        let all = rows(&["a", "bc", "", "d"]);
        for count in 0..=4 {
            let rest = all.clone().without_first(count);
            assert_eq!(rest, rows(&["a", "bc", "", "d"][count..]));
            let first = all.size_bytes_of_first(count);
            assert_eq!(first + rest.size_bytes(), all.size_bytes());
        }
        assert!(all.without_first(9).is_empty());
    }

    #[test]
    fn bounds_cover_appends_in_any_order() {
        let places = [(0, 0, 3, 60), (3, 60, 1, 20), (4, 80, 2, 40)];
        let cover = |order: &[usize]| {
            let mut bounds = QueueBounds::default();
            for index in order {
                let (offset, bytes_before, count, size) = places[*index];
                let place = QueuePlace {
                    offset,
                    bytes_before,
                };
                bounds.cover(&QueueSpan {
                    queue: PartitionId(1),
                    place,
                    count,
                    size_bytes: size,
                });
            }
            bounds
        };
        let bounds = cover(&[0, 1, 2]);
        assert_eq!((bounds.end, bounds.written_bytes), (6, 120));
        assert_eq!(cover(&[2, 0, 1, 2]), bounds);
    }
}
