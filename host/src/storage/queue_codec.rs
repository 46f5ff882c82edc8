//! The bytes of queue rows: in staged epochs, and as they are stored, in chunks of rows that were written
//! together.

use std::sync::Arc;

use crate::storage::codec::{
    FORMAT_VERSION, Fields, Finding, decode, len_u32, put_column, put_u32, put_u64, put_u64s,
};
use crate::storage::{StorageError, keys};
use crate::types::batch::Timestamp;
use crate::types::epoch::EpochCommit;
use crate::types::ids::{EpochId, PartitionId};
use crate::types::queue::{QueueAppend, QueueBounds, QueuePlace, QueueRows, QueueSpan, ROW_BYTES};

/// What follows the version of a chunk: its rows.
const KIND_ROWS: u8 = 0;
/// Or who has them.
const KIND_WITHHELD: u8 = 1;

/// Rows at their place in a queue's partition, as one append brought them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueChunk {
    pub(super) place: QueuePlace,
    pub(super) append: QueueAppend,
}

/// The place of rows that a damaged partition has in one of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WithheldRows {
    pub(super) span: QueueSpan,
    pub(super) partition: PartitionId,
    pub(super) epoch: EpochId,
}

/// What is stored at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoredChunk {
    Rows(QueueChunk),
    Withheld(WithheldRows),
}

impl QueueChunk {
    pub(super) fn span(&self) -> QueueSpan {
        self.append.span(self.place)
    }

    /// The value of its row.
    pub(super) fn encode(&self) -> Vec<u8> {
        let rows = &self.append.rows;
        let mut value = Vec::with_capacity(48 + 12 * rows.len() + rows.size_bytes());
        value.extend_from_slice(&[FORMAT_VERSION, KIND_ROWS]);
        put_u64(&mut value, self.place.bytes_before);
        put_queue_rows(&mut value, rows);
        value
    }
}

impl WithheldRows {
    /// The value of its row, which has the key that the rows will have once their epoch is applied.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = vec![FORMAT_VERSION, KIND_WITHHELD];
        let span = &self.span;
        put_u64s(
            &mut value,
            &[
                span.place.bytes_before,
                span.count,
                span.size_bytes,
                self.partition.0,
                self.epoch.0,
            ],
        );
        value
    }
}

impl StoredChunk {
    pub(super) fn span(&self) -> QueueSpan {
        match self {
            StoredChunk::Rows(chunk) => chunk.span(),
            StoredChunk::Withheld(withheld) => withheld.span,
        }
    }
}

/// Key of the row of a chunk.
pub(super) fn chunk_key(span: &QueueSpan) -> Vec<u8> {
    keys::queue_rows(span.queue, span.end().saturating_sub(1))
}

/// What a row with this key holds.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub(super) fn decode_queue_chunk(key: &[u8], value: &[u8]) -> Result<StoredChunk, StorageError> {
    let (queue, last) = keys::parse_queue_rows(key).unwrap_or((PartitionId(0), 0));
    let what = || format!("the chunk up to row {last} of queue partition {queue}");
    let place_of = |count: u64, bytes_before| {
        let before_last = count.checked_sub(1);
        let offset = before_last.and_then(|before_last| last.checked_sub(before_last));
        let offset = offset.ok_or_else(|| format!("it has {count} rows"))?;
        Ok::<_, Finding>(QueuePlace {
            offset,
            bytes_before,
        })
    };
    decode(what, value, |fields| match fields.u8()? {
        KIND_ROWS => {
            let bytes_before = fields.u64()?;
            let rows = Arc::new(fields.queue_rows()?);
            let place = place_of(rows.len() as u64, bytes_before)?;
            let append = QueueAppend { queue, rows };
            Ok(StoredChunk::Rows(QueueChunk { place, append }))
        }
        KIND_WITHHELD => {
            let (bytes_before, count) = (fields.u64()?, fields.u64()?);
            let span = QueueSpan {
                queue,
                place: place_of(count, bytes_before)?,
                count,
                size_bytes: fields.u64()?,
            };
            Ok(StoredChunk::Withheld(WithheldRows {
                span,
                partition: PartitionId(fields.u64()?),
                epoch: EpochId(fields.u64()?),
            }))
        }
        kind => Err(format!("there is no kind {kind} of chunk")),
    })
}

/// What a row with this key holds, without looking at the rows themselves: its place, and when rows were written;
/// `None` where a damaged partition has them.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub(super) fn decode_queue_chunk_header(
    key: &[u8],
    value: &[u8],
) -> Result<(QueueSpan, Option<Timestamp>), StorageError> {
    let (queue, last) = keys::parse_queue_rows(key).unwrap_or((PartitionId(0), 0));
    let what = || format!("the chunk up to row {last} of queue partition {queue}");
    if value.get(1) != Some(&KIND_ROWS) {
        return Ok((decode_queue_chunk(key, value)?.span(), None));
    }
    decode(what, value, |fields| {
        let (_, bytes_before, count) = (fields.u8()?, fields.u64()?, fields.count(16)?);
        let write_time = fields.u64()?;
        fields.take(4 * count)?;
        let key_bytes = fields.bytes()?.len();
        fields.take((8 + 4) * count)?;
        let size_bytes = key_bytes + fields.bytes()?.len() + ROW_BYTES * count;
        let first = (last + 1).checked_sub(count as u64);
        let span = QueueSpan {
            queue,
            place: QueuePlace {
                offset: first.ok_or_else(|| format!("it has {count} rows"))?,
                bytes_before,
            },
            count: count as u64,
            size_bytes: size_bytes as u64,
        };
        Ok((span, Some(write_time)))
    })
}

/// The bounds of a queue's partition.
pub(super) fn encode_queue_bounds(bounds: &QueueBounds) -> Vec<u8> {
    let mut value = vec![FORMAT_VERSION];
    let (start, end) = (bounds.start, bounds.end);
    put_u64s(
        &mut value,
        &[start, end, bounds.written_bytes, bounds.trimmed_bytes],
    );
    value
}

/// The bounds of a queue's partition.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub(super) fn decode_queue_bounds(
    queue: PartitionId,
    value: &[u8],
) -> Result<QueueBounds, StorageError> {
    let what = || format!("the bounds of queue partition {queue}");
    decode(what, value, |fields| {
        Ok(QueueBounds {
            start: fields.u64()?,
            end: fields.u64()?,
            written_bytes: fields.u64()?,
            trimmed_bytes: fields.u64()?,
        })
    })
}

/// Appends rows: how many, the write time, then the columns.
pub(super) fn put_queue_rows(buffer: &mut Vec<u8>, rows: &QueueRows) {
    put_u32(buffer, len_u32(rows.len()));
    put_u64(buffer, rows.write_time);
    put_column(buffer, &rows.keys);
    put_u64s(buffer, &rows.event_times);
    put_column(buffer, &rows.payloads);
}

impl Fields<'_> {
    /// Rows as [`put_queue_rows`] writes them.
    pub(super) fn queue_rows(&mut self) -> Result<QueueRows, Finding> {
        let count = self.count(16)?;
        let write_time = self.u64()?;
        Ok(QueueRows {
            keys: self.column(count)?,
            event_times: self.u64s(count)?,
            payloads: self.column(count)?,
            write_time,
        })
    }
}

/// Whether queue appends can be stored; if not, why.
pub(super) fn check_queue_appends(commit: &EpochCommit) -> Result<(), Finding> {
    for (place, append) in commit.queue_appends.iter().enumerate() {
        let rows = &append.rows;
        let (queue, count) = (append.queue, rows.len());
        if rows.is_empty() {
            return Err(format!("it appends no row to queue partition {queue}"));
        }
        if rows.keys.len() != count || rows.payloads.len() != count {
            return Err(format!(
                "the columns of rows for queue partition {queue} have {}, {count} and {} items",
                rows.keys.len(),
                rows.payloads.len()
            ));
        }
        if !rows.keys.is_well_formed() || !rows.payloads.is_well_formed() {
            return Err(format!(
                "the columns of rows for queue partition {queue} do not agree"
            ));
        }
        let before = &commit.queue_appends[..place];
        if before.iter().any(|other| other.queue == queue) {
            return Err(format!("it appends to queue partition {queue} twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: PartitionId = PartitionId(8);

    fn chunk() -> QueueChunk {
        let mut rows = QueueRows {
            write_time: 5,
            ..QueueRows::default()
        };
        rows.push(b"k", 1, b"one");
        rows.push(b"", 0, b"two");
        QueueChunk {
            place: QueuePlace {
                offset: 9,
                bytes_before: 300,
            },
            append: QueueAppend {
                queue: QUEUE,
                rows: Arc::new(rows),
            },
        }
    }

    #[test]
    fn a_chunk_comes_back_at_its_place() {
        let chunk = chunk();
        let key = chunk_key(&chunk.span());
        assert_eq!(keys::parse_queue_rows(&key), Some((QUEUE, 10)));
        let withheld = WithheldRows {
            span: chunk.span(),
            partition: PartitionId(3),
            epoch: EpochId(4),
        };
        let found = decode_queue_chunk_header(&key, &withheld.encode()).unwrap();
        assert_eq!(found, (chunk.span(), None));
        let found = decode_queue_chunk_header(&key, &chunk.encode()).unwrap();
        assert_eq!(found, (chunk.span(), Some(5)));
        let found = decode_queue_chunk(&key, &withheld.encode()).unwrap();
        assert_eq!(found, StoredChunk::Withheld(withheld));
        let found = decode_queue_chunk(&key, &chunk.encode()).unwrap();
        assert_eq!(found, StoredChunk::Rows(chunk));
        let bounds = QueueBounds {
            start: 1,
            end: 2,
            written_bytes: 3,
            trimmed_bytes: 4,
        };
        let value = encode_queue_bounds(&bounds);
        assert_eq!(decode_queue_bounds(QUEUE, &value).unwrap(), bounds);
    }

    #[test]
    fn a_chunk_that_does_not_fit_its_key_is_refused() {
        let value = chunk().encode();
        let error = decode_queue_chunk(&keys::queue_rows(QUEUE, 0), &value).unwrap_err();
        let expected =
            "the chunk up to row 0 of queue partition p8 can't be decoded: it has 2 rows";
        assert_eq!(error.to_string(), expected);
        for cut in 0..value.len() {
            let key = keys::queue_rows(QUEUE, 10);
            assert!(decode_queue_chunk(&key, &value[..cut]).is_err(), "{cut}");
            let header = decode_queue_chunk_header(&key, &value[..cut]);
            assert!(header.is_err(), "{cut}");
        }
    }
}
