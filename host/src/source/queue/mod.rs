//! The queue source: rows of one partition of a queue in the same store, in the order of their offsets. Its position
//! is an offset, which moves with the epoch that took the rows.
//!
//! **Invariant:** no row is passed over in silence. Rows that were trimmed before they were read, and a queue that
//! was made again under its old name, are told and wait for a person's word.

pub(super) mod position;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::error::Error;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::source::undecodable::{RecordFlaw, UndecodableRecord};
use crate::source::{
    OnChange, Opening, PartitionReading, PollLimit, PollOutcome, Source, SourceError,
    SourceProgress, SourceRecords, numbered,
};
use crate::types::batch::Timestamp;
use crate::types::column::Column;
use crate::types::epoch::Checksum;
use crate::types::ids::PartitionId;
use crate::types::key::MESSAGE_KEY_BYTES_MAX;
use crate::types::pipeline::{OnFailure, QueueSourceOptions, QueueStart};
use crate::types::queue::{QueueBounds, QueueRows};

pub(super) use position::POSITION_TAG;
pub use position::QueuePosition;

/// How many bytes of rows are read ahead of what is handed out; one chunk is read whatever its size.
const READ_AHEAD_BYTES: usize = 4 << 20;

/// The queues of the store, as a source reads them.
pub trait QueueReader: Send + Sync {
    /// The number of a queue's partition; `None` where there is no such queue.
    fn partition(&self, queue: &str, index: u32) -> Option<PartitionId>;

    /// From where to where a partition has rows now.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn bounds(&self, partition: PartitionId) -> Result<QueueBounds, QueueFailure>;

    /// Rows from the offset `from` on, in chunks without a hole between them: about `size_bytes` of them, at
    /// least one chunk where there is any row. The first row of the first chunk is that of `from`.
    ///
    /// # Errors
    ///
    /// [`QueueFailure::Trimmed`] when the partition begins behind `from`; when the store fails or rows
    /// are missing.
    fn read(
        &self,
        partition: PartitionId,
        from: u64,
        size_bytes: usize,
    ) -> Result<Vec<QueueChunk>, QueueFailure>;
}

/// Rows of a partition that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueChunk {
    /// Offset of the first one.
    pub offset: u64,
    /// The rows, at least one.
    pub rows: QueueRows,
}

/// A queue's rows can't be read.
#[derive(Debug, thiserror::Error)]
pub enum QueueFailure {
    /// They have been trimmed.
    #[error("its rows before offset {start} are gone")]
    Trimmed {
        /// The first offset that the partition still has, or the next one to be written.
        start: u64,
    },
    /// The store failed, or rows are missing that should be there.
    #[error(transparent)]
    Store(Box<dyn Error + Send + Sync>),
}

/// Rows of a partition of a queue as records.
pub struct QueueSource {
    options: QueueSourceOptions,
    queues: Arc<dyn QueueReader>,
    /// Whether rows that can't be messages are passed over.
    passes_over: bool,
    position: QueuePosition,
    /// Where it ends, unless it is followed.
    end: Option<u64>,
    /// Bytes of all rows that were written when it was opened.
    total_bytes: u64,
    /// Rows that were read and not all handed out, in their order.
    chunks: VecDeque<QueueChunk>,
}

impl QueueSource {
    /// Opens a partition of a queue at a committed position, or where it is to begin.
    ///
    /// # Errors
    ///
    /// [`SourceError::RowsTrimmed`] and [`SourceError::QueueRemade`] unless changes are accepted; when there is no such queue, the
    /// position can't be decoded or the store fails.
    pub fn open(
        options: &QueueSourceOptions,
        opening: Opening<'_>,
    ) -> Result<QueueSource, SourceError> {
        let partition = || Some((opening.queues?, options));
        let found = partition().and_then(|(queues, options)| {
            let partition = queues.partition(&options.queue, options.index)?;
            Some((queues, partition))
        });
        let Some((queues, partition)) = found else {
            return Err(SourceError::NoQueue {
                partition: options.partition_name.clone(),
            });
        };
        let bounds = queues.bounds(partition);
        let bounds = bounds.map_err(|failure| failed(options, None, failure))?;
        let position = match opening.position {
            None => begin(partition, &bounds, options.from),
            Some(encoded) => {
                let committed = QueuePosition::decode(encoded);
                let committed = committed.map_err(|finding| SourceError::UndecodablePosition {
                    path: options.partition_name.clone().into(),
                    finding,
                })?;
                go_on(options, committed, partition, &bounds, opening.on_change)?
            }
        };
        Ok(QueueSource {
            end: (!options.follow).then_some(bounds.end),
            total_bytes: bounds.written_bytes,
            options: options.clone(),
            queues: Arc::clone(queues),
            passes_over: opening.on_failure != OnFailure::Fail,
            position,
            chunks: VecDeque::new(),
        })
    }

    /// Whether there is a row to hand out; reads more where none is at hand.
    fn has_row(&mut self) -> Result<bool, SourceError> {
        if self.end.is_some_and(|end| self.position.next >= end) {
            return Ok(false);
        }
        while let Some(chunk) = self.chunks.front() {
            if self.position.next < chunk.end() {
                return Ok(true);
            }
            self.chunks.pop_front();
        }
        let QueuePosition {
            partition, next, ..
        } = self.position;
        let read = self.queues.read(partition, next, READ_AHEAD_BYTES);
        let chunks = read.map_err(|failure| failed(&self.options, Some(next), failure))?;
        self.chunks.extend(chunks);
        Ok(!self.chunks.is_empty())
    }

    /// Hands out rows of the first chunk, as many as fit into what is left of the limit, and the first of a poll
    /// whatever its size. A row whose key is too long for a message is passed over alone.
    ///
    /// # Errors
    ///
    /// When the next row has such a key and is not passed over.
    fn take_rows(
        &mut self,
        left: PollLimit,
        is_first: bool,
        records: &mut SourceRecords,
    ) -> Result<TakenRows, SourceError> {
        let Some(chunk) = self.chunks.front() else {
            return Ok(TakenRows::default());
        };
        let rows = &chunk.rows;
        // A chunk begins at the position or was read before that moved on in it.
        let first = (self.position.next - chunk.offset) as usize;
        let mut last = rows.len();
        if let Some(end) = self.end {
            last = last.min((end - chunk.offset) as usize);
        }
        last = last.min(first + left.rows);
        if rows.keys.bytes.len() > MESSAGE_KEY_BYTES_MAX {
            let is_long = |row: &usize| rows.keys.get(*row).len() > MESSAGE_KEY_BYTES_MAX;
            match (first..last).find(is_long) {
                None => {}
                Some(row) if row > first => last = row,
                Some(row) if self.passes_over => {
                    let record = self.undecodable(rows, row, records.payloads.len());
                    let size_bytes = record.bytes.len();
                    if !is_first && size_bytes > left.bytes {
                        return Ok(TakenRows::default());
                    }
                    records.undecodable.push(record);
                    let row_bytes =
                        rows.size_bytes_of_first(row + 1) - rows.size_bytes_of_first(row);
                    self.position.passed_bytes += row_bytes as u64;
                    self.position.next += 1;
                    return Ok(TakenRows {
                        count: 1,
                        size_bytes,
                    });
                }
                Some(row) => {
                    return Err(SourceError::KeyTooLong {
                        partition: self.options.partition_name.clone(),
                        offset: self.position.next,
                        size_bytes: rows.keys.get(row).len(),
                    });
                }
            }
        }
        let before = bytes_of_first(rows, first);
        let mut taken = first + usize::from(is_first);
        while taken < last && bytes_of_first(rows, taken + 1) - before <= left.bytes {
            taken += 1;
        }
        if taken == first {
            return Ok(TakenRows::default());
        }
        records.keys.extend_from(&rows.keys, first..taken);
        records.payloads.extend_from(&rows.payloads, first..taken);
        records
            .event_times
            .extend_from_slice(&rows.event_times[first..taken]);
        let offsets = self.position.next..chunk.offset + taken as u64;
        records.lines.extend(offsets);
        let write_time = self.position.write_time.max(rows.write_time);
        records.write_times.push_many(write_time, taken - first);
        self.position = QueuePosition {
            partition: self.position.partition,
            next: chunk.offset + taken as u64,
            write_time,
            passed_bytes: self.position.passed_bytes
                + (rows.size_bytes_of_first(taken) - rows.size_bytes_of_first(first)) as u64,
        };
        Ok(TakenRows {
            count: taken - first,
            size_bytes: bytes_of_first(rows, taken) - before,
        })
    }

    /// The row that comes next, which can't be a message.
    fn undecodable(&self, rows: &QueueRows, row: usize, place: usize) -> UndecodableRecord {
        let payload = rows.payloads.get(row);
        UndecodableRecord {
            place,
            of: self.options.partition_name.clone(),
            position: self.position.next,
            bytes: UndecodableRecord::first_bytes(payload).to_vec(),
            size_bytes: payload.len() as u64,
            flaw: RecordFlaw::key_too_long(rows.keys.get(row)),
        }
    }
}

impl Source for QueueSource {
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        let (mut taken, mut taken_bytes) = (0_usize, 0_usize);
        loop {
            let left = PollLimit {
                rows: limit.rows.saturating_sub(taken),
                bytes: limit.bytes.saturating_sub(taken_bytes),
            };
            if taken > 0 && left.rows == 0 {
                return Ok(PollOutcome::More);
            }
            let has_row = self.has_row();
            let step = has_row.and_then(|has_row| match has_row {
                true => self.take_rows(left, taken == 0, records).map(Some),
                false => Ok(None),
            });
            match step {
                Ok(Some(TakenRows { count: 0, .. })) => return Ok(PollOutcome::More),
                Ok(Some(rows)) => {
                    taken += rows.count;
                    taken_bytes += rows.size_bytes;
                }
                Ok(None) if self.end.is_some() => return Ok(PollOutcome::End),
                Ok(None) if taken == 0 => return Ok(PollOutcome::Wait),
                Ok(None) => return Ok(PollOutcome::More),
                // What was read goes first; the next call meets it again.
                Err(_) if taken > 0 => return Ok(PollOutcome::More),
                Err(error) => return Err(error),
            }
        }
    }

    fn position(&self) -> Vec<u8> {
        self.position.encode()
    }

    /// What is trimmed, or pushed, before the first row was read must not change where it begins.
    fn commits_where_it_begins(&self) -> bool {
        true
    }

    fn locate(&self, offsets: &RangeInclusive<u64>) -> String {
        numbered("offset", offsets)
    }

    fn record_name(&self, offset: u64) -> Vec<u8> {
        // Offsets are of the queue's partition, and another queue may be read next.
        let queue = self.position.partition.0.to_be_bytes();
        [queue, offset.to_be_bytes()].concat()
    }

    fn queue_partition(&self) -> Option<PartitionId> {
        Some(self.position.partition)
    }

    fn write_time(&self) -> Timestamp {
        self.position.write_time
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress {
            done_bytes: self.position.passed_bytes,
            total_bytes: (!self.options.follow).then_some(self.total_bytes),
        }
    }
}

/// Rows that were handed out or passed over.
#[derive(Debug, Clone, Copy, Default)]
struct TakenRows {
    count: usize,
    /// Of their keys and payloads, as far as they were handed out.
    size_bytes: usize,
}

impl QueueChunk {
    /// The offset behind its last row.
    fn end(&self) -> u64 {
        self.offset + self.rows.len() as u64
    }
}

/// Bytes of the keys and payloads of the first rows, as limits on batches count them.
fn bytes_of_first(rows: &QueueRows, count: usize) -> usize {
    let end_of = |column: &Column| match count {
        0 => 0,
        count => column.ends[count - 1] as usize,
    };
    end_of(&rows.keys) + end_of(&rows.payloads)
}

/// Where a partition is begun.
fn begin(partition: PartitionId, bounds: &QueueBounds, from: QueueStart) -> QueuePosition {
    let (next, passed_bytes) = match from {
        QueueStart::Start => (bounds.start, bounds.trimmed_bytes),
        QueueStart::End => (bounds.end, bounds.written_bytes),
    };
    QueuePosition {
        partition,
        next,
        write_time: 0,
        passed_bytes,
    }
}

/// Where a partition is gone on with.
fn go_on(
    options: &QueueSourceOptions,
    committed: QueuePosition,
    partition: PartitionId,
    bounds: &QueueBounds,
    on_change: OnChange,
) -> Result<QueuePosition, SourceError> {
    let name = &options.partition_name;
    if committed.partition != partition {
        return match on_change {
            OnChange::StartOver => Ok(begin(partition, bounds, QueueStart::Start)),
            OnChange::Refuse => Err(SourceError::QueueRemade {
                partition: name.clone(),
                was: committed.partition,
                now: partition,
            }),
        };
    }
    if committed.next < bounds.start {
        return match on_change {
            OnChange::StartOver => Ok(QueuePosition {
                write_time: committed.write_time,
                ..begin(partition, bounds, QueueStart::Start)
            }),
            OnChange::Refuse => Err(trimmed(options, committed.next, bounds.start)),
        };
    }
    if committed.next > bounds.end {
        let finding = format!(
            "it has rows up to offset {}, and offset {} comes next by the position",
            bounds.end, committed.next
        );
        let failure = QueueFailure::Store(finding.into());
        return Err(failed(options, Some(committed.next), failure));
    }
    Ok(committed)
}

fn trimmed(options: &QueueSourceOptions, next: u64, start: u64) -> SourceError {
    SourceError::RowsTrimmed {
        partition: options.partition_name.clone(),
        next,
        start,
    }
}

fn failed(options: &QueueSourceOptions, offset: Option<u64>, failure: QueueFailure) -> SourceError {
    match (failure, offset) {
        (QueueFailure::Trimmed { start }, Some(next)) => trimmed(options, next, start),
        (failure, offset) => SourceError::Queue {
            partition: options.partition_name.clone(),
            offset: offset.unwrap_or_default(),
            source: Box::new(failure),
        },
    }
}

/// What the partitions of a source that reads a queue have in common.
pub fn describe_kind(queue: &str) -> String {
    format!("queue {queue}")
}

/// What a position in a queue's partition says: nothing that would recognize it in another one. That its source
/// reads something else now is told as a change of what the source reads.
pub(super) fn read_position() -> PartitionReading {
    PartitionReading {
        is_at_end: true,
        is_recognizable: false,
        passed_bytes: 0,
        content: Checksum::default(),
        passed: "read as rows of a queue".to_owned(),
    }
}
