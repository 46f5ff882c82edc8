//! The rows of queues: chunks of each partition against each other, and against its bounds.

use std::collections::BTreeMap;

use crate::storage::check::StoreCheck;
use crate::storage::queue_codec::{StoredChunk, decode_queue_bounds, decode_queue_chunk};
use crate::storage::{StorageError, keys};
use crate::types::ids::PartitionId;
use crate::types::queue::{QueueBounds, QueueSpan};

/// Looks at chunks as they come, in the order of their offsets, and at bounds behind them.
#[derive(Debug, Default)]
pub(super) struct QueueCheck {
    seen: BTreeMap<PartitionId, SeenChunks>,
    bounds: BTreeMap<PartitionId, QueueBounds>,
}

/// What the chunks of a partition say together.
#[derive(Debug)]
struct SeenChunks {
    first: QueueSpan,
    last: QueueSpan,
    /// Rows between two chunks that are not there, and rows that two have, from where to where.
    breaks: Vec<(u64, u64)>,
}

/// Breaks of one partition that are kept; the others are like them.
const BREAKS_MAX: usize = 16;

impl QueueCheck {
    /// The next chunk. What is wrong with it, if anything is.
    pub(super) fn chunk(
        &mut self,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<String>, StorageError> {
        if keys::parse_queue_rows(key).is_none() {
            return Err(bad_key(key));
        }
        let chunk = decode_queue_chunk(key, value)?;
        let span = chunk.span();
        let seen = self.seen.entry(span.queue).or_insert(SeenChunks {
            first: span,
            last: span,
            breaks: Vec::new(),
        });
        let expected = match seen.last == span {
            true => span.place.offset,
            false => seen.last.end(),
        };
        if expected != span.place.offset && seen.breaks.len() < BREAKS_MAX {
            seen.breaks.push((expected, span.place.offset));
        }
        seen.last = span;
        Ok(match chunk {
            StoredChunk::Rows(_) => None,
            StoredChunk::Withheld(withheld) => Some(format!(
                "rows {} are withheld: epoch {} of partition {} has them, which is damaged",
                rows_between(span.place.offset, span.end()),
                withheld.epoch,
                withheld.partition
            )),
        })
    }

    /// The bounds of a partition.
    pub(super) fn bounds(
        &mut self,
        queue: PartitionId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<String>, StorageError> {
        if key.len() != keys::queue_bounds(queue).len() {
            return Err(bad_key(key));
        }
        let bounds = decode_queue_bounds(queue, value)?;
        self.bounds.insert(queue, bounds);
        let is_wrong = bounds.start > bounds.end || bounds.trimmed_bytes > bounds.written_bytes;
        Ok(is_wrong.then(|| format!("the bounds of its queue contradict each other: {bounds:?}")))
    }

    /// What shows only when all rows have been seen. Of partitions that `is_whole` does not know as such, some could
    /// not be read.
    pub(super) fn end(self, check: &mut StoreCheck, is_whole: impl Fn(PartitionId) -> bool) {
        for (queue, seen) in &self.seen {
            if !is_whole(*queue) {
                continue;
            }
            let mut find = |finding: String| check.find(Some(*queue), finding);
            let Some(bounds) = self.bounds.get(queue) else {
                find("it has rows of a queue and no bounds".to_owned());
                continue;
            };
            // What lies below the first row is what an interrupted trim has left.
            for (expected, found) in seen.breaks.iter().filter(|it| it.1 > bounds.start) {
                find(match expected < found {
                    true => format!("rows {} are missing", rows_between(*expected, *found)),
                    false => format!("rows {} are there twice", rows_between(*found, *expected)),
                });
            }
            let (first, end) = (seen.first.place.offset, seen.last.end());
            if first > bounds.start {
                let rows = rows_between(bounds.start, first);
                find(format!("rows {rows} are missing"));
            }
            if end < bounds.end {
                find(format!(
                    "rows {} are missing",
                    rows_between(end, bounds.end)
                ));
            }
            if end > bounds.end {
                let rows = rows_between(bounds.end, end);
                find(format!("rows {rows} lie behind its end"));
            }
            let written = seen.last.place.bytes_before + seen.last.size_bytes;
            if end == bounds.end && written != bounds.written_bytes {
                find(format!(
                    "its rows have {written} bytes with those that are gone, its bounds say {}",
                    bounds.written_bytes
                ));
            }
            if seen.first.end() <= bounds.start {
                check.notes.push(format!(
                    "an interrupted trim left chunks of queue partition {queue} below row {}; the next trim takes \
                     them along",
                    bounds.start
                ));
            }
        }
        for (queue, bounds) in &self.bounds {
            if !self.seen.contains_key(queue) && !bounds.is_empty() && is_whole(*queue) {
                let rows = rows_between(bounds.start, bounds.end);
                check.find(Some(*queue), format!("rows {rows} are missing"));
            }
        }
    }
}

/// Rows from an offset to below another one, in words.
fn rows_between(first: u64, end: u64) -> String {
    format!("{first} to {}", end.saturating_sub(1))
}

fn bad_key(key: &[u8]) -> StorageError {
    StorageError::Undecodable {
        what: "the key of a queue's row".to_owned(),
        finding: format!("it is {}", key.escape_ascii()),
    }
}
