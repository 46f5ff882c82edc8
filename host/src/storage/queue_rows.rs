//! Typed reads of queues: bounds, rows from an offset on, and what retention needs to know of chunks. Works
//! over any [`Storage`] and writes nothing.
//!
//! **Invariant:** rows are returned in the order of their offsets, without a gap. What is asked for and not
//! there is an error that says why, never skipped.

use std::sync::Arc;

use crate::storage::queue_codec::{
    QueueChunk, StoredChunk, decode_queue_bounds, decode_queue_chunk, decode_queue_chunk_header,
};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, StoredRow, keys};
use crate::types::batch::Timestamp;
use crate::types::ids::PartitionId;
use crate::types::queue::{QueueBounds, QueueRows};

/// How much one call of [`read_queue`] returns. It ends with the chunk with which it has so many rows or so
/// many bytes: a chunk is never cut at its end, and one is returned whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimit {
    /// Rows.
    pub rows: usize,
    /// Bytes as they are stored.
    pub bytes: usize,
}

/// Rows of a queue's partition, read from an offset on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueuePage {
    /// Rows that were written together, each with the offset of its first one; without a gap in between. Empty
    /// at the end of the partition.
    pub chunks: Vec<(u64, QueueRows)>,
    /// Offset behind the last of them: where to read on.
    pub next: u64,
}

/// What retention needs to know of rows that were written together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueChunkHeader {
    /// Offset of the first row.
    pub first: u64,
    /// Offset behind the last row.
    pub end: u64,
    /// Bytes of all rows ever written before them, as [`QueueRows::size_bytes`] counts.
    pub bytes_before: u64,
    /// Their own bytes.
    pub size_bytes: u64,
    /// When they were written, by the writer's clock; `None` where a damaged partition has them.
    pub write_time: Option<Timestamp>,
}

/// Why rows of a queue can't be read.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The rows were there and are gone.
    #[error(
        "row {from} of queue partition {queue} is gone: rows are kept from {start} on; read from there, or keep \
         rows for longer"
    )]
    Trimmed {
        /// The queue's partition.
        queue: PartitionId,
        /// The offset that was to be read.
        from: u64,
        /// The first one that is kept.
        start: u64,
    },
    /// Nobody has written so far.
    #[error(
        "row {from} of queue partition {queue} is beyond its end: the next row gets offset {end}; a position like \
         this belongs to another queue, or to a newer copy of the data directory"
    )]
    BeyondEnd {
        /// The queue's partition.
        queue: PartitionId,
        /// The offset that was to be read.
        from: u64,
        /// Offset that the next row gets.
        end: u64,
    },
    /// Rows that were written are not there.
    #[error("rows {first} to {last} of queue partition {queue} can't be read: {finding}")]
    Missing {
        /// The queue's partition.
        queue: PartitionId,
        /// Offset of the first row that is missing.
        first: u64,
        /// Offset of the last row that is missing.
        last: u64,
        /// Why, and what to do.
        finding: String,
    },
    /// The store failed, or a chunk does not decode.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// From where to where a queue's partition has rows; empty bounds when nothing was ever written to it.
///
/// # Errors
///
/// When the store fails or the row does not decode.
pub fn read_bounds(storage: &dyn Storage, queue: PartitionId) -> Result<QueueBounds, StorageError> {
    let row = storage.get(&keys::queue_bounds(queue))?;
    row.map_or(Ok(QueueBounds::default()), |value| {
        decode_queue_bounds(queue, &value)
    })
}

/// Rows from offset `from` on. An empty page when `from` is the end.
///
/// # Errors
///
/// [`QueueError`]: what is asked for is gone, was never written, or is missing; or the store fails. Rows in
/// front of missing ones are returned first.
pub fn read_queue(
    storage: &dyn Storage,
    queue: PartitionId,
    from: u64,
    limit: QueueLimit,
) -> Result<QueuePage, QueueError> {
    let bounds = read_bounds(storage, queue)?;
    check_within(queue, from, &bounds)?;
    let mut page = QueuePage {
        chunks: Vec::new(),
        next: from,
    };
    let mut row_count = 0;
    // Each chunk has a row, so more of them than rows are asked for are never needed.
    let scan_limit = ScanLimit {
        rows: limit.rows.max(1),
        bytes: limit.bytes,
    };
    for row in scan_chunks(storage, queue, from, scan_limit)? {
        // The first hole ends the page, and fails the one that begins with it.
        let StoredChunk::Rows(chunk) = decode_queue_chunk(&row.0, &row.1)? else {
            break;
        };
        let Some(passed) = page.next.checked_sub(chunk.place.offset) else {
            break;
        };
        let passed = usize::try_from(passed).unwrap_or(usize::MAX);
        let rows = Arc::unwrap_or_clone(chunk.append.rows).without_first(passed);
        if rows.is_empty() {
            continue;
        }
        row_count += rows.len();
        let first = page.next;
        page.next += rows.len() as u64;
        page.chunks.push((first, rows));
        if row_count >= limit.rows {
            break;
        }
    }
    if page.chunks.is_empty() && from < bounds.end {
        return Err(find_missing(storage, queue, from)?);
    }
    Ok(page)
}

fn check_within(queue: PartitionId, from: u64, bounds: &QueueBounds) -> Result<(), QueueError> {
    if from < bounds.start {
        return Err(QueueError::Trimmed {
            queue,
            from,
            start: bounds.start,
        });
    }
    if from > bounds.end {
        return Err(QueueError::BeyondEnd {
            queue,
            from,
            end: bounds.end,
        });
    }
    Ok(())
}

/// Why nothing was found at `from`, which is below the end: it was trimmed in between, or is missing.
fn find_missing(
    storage: &dyn Storage,
    queue: PartitionId,
    from: u64,
) -> Result<QueueError, QueueError> {
    let bounds = read_bounds(storage, queue)?;
    check_within(queue, from, &bounds)?;
    let behind = scan_chunks(storage, queue, from, ScanLimit::rows(1))?;
    let stored = (behind.first())
        .map(|(key, value)| decode_queue_chunk(key, value))
        .transpose()?;
    let missing = |end: u64, finding: String| QueueError::Missing {
        queue,
        first: from,
        last: end.saturating_sub(1).max(from),
        finding,
    };
    Ok(match stored {
        Some(StoredChunk::Withheld(withheld)) if withheld.span.place.offset <= from => missing(
            withheld.span.end(),
            format!(
                "epoch {} of partition {} has them, which is damaged and was not brought to its place; the log \
                 of the start says why and what to do; rows behind them can be read from {} on",
                withheld.epoch,
                withheld.partition,
                withheld.span.end()
            ),
        ),
        stored => missing(
            stored.map_or(bounds.end, |chunk| chunk.span().place.offset),
            "they were written and nothing is stored of them: their epoch is lost with a damaged partition, \
             which the log of the start names, or the store is damaged; restore the data directory from a \
             backup; where no partition is damaged, the queue can be trimmed to behind them"
                .to_owned(),
        ),
    })
}

/// What retention needs to know of the chunks that hold offset `from` and those behind it.
///
/// # Errors
///
/// When the store fails or a chunk does not decode.
pub fn scan_chunk_headers(
    storage: &dyn Storage,
    queue: PartitionId,
    from: u64,
    limit: ScanLimit,
) -> Result<Vec<QueueChunkHeader>, StorageError> {
    let rows = scan_chunks(storage, queue, from, limit)?;
    let header = |(key, value): &StoredRow| {
        let (span, write_time) = decode_queue_chunk_header(key, value)?;
        Ok(QueueChunkHeader {
            first: span.place.offset,
            end: span.end(),
            bytes_before: span.place.bytes_before,
            size_bytes: span.size_bytes,
            write_time,
        })
    };
    rows.iter().map(header).collect()
}

/// Rows of chunks, from the one that holds offset `from` on.
fn scan_chunks(
    storage: &dyn Storage,
    queue: PartitionId,
    from: u64,
    limit: ScanLimit,
) -> Result<Vec<StoredRow>, StorageError> {
    let (_, end) = keys::all_of(keys::QUEUE_ROWS, queue);
    storage.scan(&keys::queue_rows(queue, from), &end, limit)
}

/// The bounds once all rows below `before` are gone. `at_start` is the first chunk whose last row is not
/// among them.
///
/// # Errors
///
/// When that chunk does not decode.
pub(super) fn trimmed_bounds(
    bounds: QueueBounds,
    before: u64,
    at_start: Option<&StoredRow>,
) -> Result<QueueBounds, StorageError> {
    let start = before.clamp(bounds.start, bounds.end);
    let trimmed_bytes = match at_start {
        _ if start == bounds.start => bounds.trimmed_bytes,
        Some((key, value)) if start < bounds.end => {
            let chunk = decode_queue_chunk(key, value)?;
            let place = chunk.span().place;
            let passed = usize::try_from(start.saturating_sub(place.offset)).unwrap_or(usize::MAX);
            let passed_bytes = match &chunk {
                StoredChunk::Rows(QueueChunk { append, .. }) => {
                    (append.rows).size_bytes_of_first(passed.min(append.rows.len()))
                }
                // Nobody knows the size of one row of them.
                StoredChunk::Withheld(_) => 0,
            };
            place.bytes_before + passed_bytes as u64
        }
        _ => bounds.written_bytes,
    };
    Ok(QueueBounds {
        start,
        trimmed_bytes: trimmed_bytes.clamp(bounds.trimmed_bytes, bounds.written_bytes),
        ..bounds
    })
}
