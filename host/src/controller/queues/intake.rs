//! Rows that come into a queue from outside of a pipeline, each once: they are epochs of the queue's intake, a
//! partition of its own, and the last number of each producer is a state of it, in the same commit.
//!
//! **Invariant:** a row whose number is not above the last one of its producer is in the queue already. So whoever
//! pushes the same rows under the same numbers again, after a kill or to be sure, adds those that are missing and no
//! other.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::controller::queues::registry::QueueRow;
use crate::storage::{CommitOutcome, CommitTicket, Refusal, Storage, StorageError, leases, rows};
use crate::types::batch::Timestamp;
use crate::types::epoch::{EpochCommit, EpochRecord, StateChanges};
use crate::types::format_version::unknown_version;
use crate::types::ids::{EpochId, PartitionId};
use crate::types::key::{MESSAGE_KEY_BYTES_MAX, key_hash, partition_of};
use crate::types::lease::Lease;
use crate::types::queue::{QueueAppend, QueueRows};

/// The state that has the last number of each producer.
const PRODUCERS: &str = "producers";

/// Version of the values of that state.
const PRODUCER_VERSION: u8 = 1;

/// The longest name of a producer, in bytes.
pub const PRODUCER_BYTES_MAX: usize = 256;

/// How many producers are kept in memory between two commits; beyond it they are read again.
const PRODUCERS_CACHED_MAX: usize = 65_536;

/// The last number of a producer, as the state has it.
pub(in crate::controller) fn encode_last_number(last: u64) -> Vec<u8> {
    [&[PRODUCER_VERSION], last.to_be_bytes().as_slice()].concat()
}

/// The last number of a producer of a queue with this intake.
pub(in crate::controller) fn decode_last_number(
    intake: PartitionId,
    producer: &[u8],
    value: &[u8],
) -> Result<u64, StorageError> {
    let finding = match value {
        [PRODUCER_VERSION, number @ ..] => match number.try_into() {
            Ok(number) => return Ok(u64::from_be_bytes(number)),
            Err(_) => format!("it has {} bytes", value.len()),
        },
        [version, ..] => unknown_version(*version, PRODUCER_VERSION),
        [] => "it is empty".to_owned(),
    };
    Err(StorageError::Undecodable {
        what: format!(
            "the last number of producer {} in the intake {intake} of a queue",
            producer.escape_ascii()
        ),
        finding,
    })
}

/// How much one commit brings at most, but for its last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntakeLimits {
    /// Rows: 10,000.
    pub rows: usize,
    /// Bytes of them: 4 MiB.
    pub bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> IntakeLimits {
        IntakeLimits {
            rows: 10_000,
            bytes: 4 << 20,
        }
    }
}

/// A row on its way into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntakeRow<'a> {
    /// Its key; empty for none.
    pub key: &'a [u8],
    /// Its event time; 0 for none.
    pub event_time: Timestamp,
    /// What it carries.
    pub payload: &'a [u8],
    /// Who sends it and under which number, where a repeat is to be recognized.
    pub number: Option<ProducerNumber<'a>>,
}

/// The number of a row among those of its producer; it rises from one row to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerNumber<'a> {
    /// The producer, 1 to [`PRODUCER_BYTES_MAX`] bytes.
    pub producer: &'a [u8],
    /// The number.
    pub seq_no: u64,
}

/// What became of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IntakeCounts {
    /// Rows that are committed.
    pub pushed: u64,
    /// Rows that were in the queue already, by their numbers.
    pub repeated: u64,
}

/// Rows could not be brought into a queue. Those that were committed before stay.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// Somebody else pushes into the queue.
    #[error(
        "the right to push into the queue was lost; see that nothing else pushes into it, and push again"
    )]
    Refused(#[source] Refusal),
    /// Storage could not tell whether rows were committed.
    #[error(
        "whether the last {rows} rows are in the queue is unknown; push again under the same producer id and numbers, and those that are in are recognized"
    )]
    OutcomeUnknown {
        /// How many.
        rows: u64,
    },
    /// A row's key is too long.
    #[error(
        "a key of {size_bytes} bytes, allowed are {MESSAGE_KEY_BYTES_MAX}; use a hash of it as the key"
    )]
    KeyTooLong {
        /// Its bytes.
        size_bytes: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The way into one queue.
pub struct Intake<'a> {
    storage: &'a dyn Storage,
    lease: Lease,
    next: EpochId,
    limits: IntakeLimits,
    partitions: Vec<PartitionId>,
    /// Of each partition, what is not handed over yet.
    rows: Vec<QueueRows>,
    row_count: usize,
    size_bytes: usize,
    producers: BTreeMap<Vec<u8>, Producer>,
    /// Write times never fall, though the clock is set back.
    write_time: Timestamp,
    /// Rows that are on their way to their decision.
    pending: Option<(CommitTicket, u64)>,
    counts: IntakeCounts,
}

/// What is known of a producer.
struct Producer {
    /// Its last number, those that are on their way included; `None` before the first.
    last: Option<u64>,
    /// Whether rows that are not handed over yet have moved it on.
    is_changed: bool,
}

impl<'a> Intake<'a> {
    /// Takes the right to push into a queue; whoever had it has it no more.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn open(
        storage: &'a dyn Storage,
        queue: &QueueRow,
        limits: IntakeLimits,
    ) -> Result<Intake<'a>, IntakeError> {
        let lease = leases::grant(storage, queue.intake)?;
        let head = storage.head(queue.intake)?;
        let last = rows::read_epoch_record(storage, queue.intake, head.epoch)?;
        let partitions = queue.partitions();
        Ok(Intake {
            storage,
            lease,
            next: head.epoch.next(),
            limits,
            rows: vec![QueueRows::default(); partitions.len()],
            partitions,
            row_count: 0,
            size_bytes: 0,
            producers: BTreeMap::new(),
            write_time: last.map_or(0, |record| record.alignment),
            pending: None,
            counts: IntakeCounts::default(),
        })
    }

    /// Takes a row, at `now` by the host's clock. Commits those before it where they are many.
    ///
    /// # Errors
    ///
    /// When the row's key is longer than [`MESSAGE_KEY_BYTES_MAX`]; when an earlier commit failed or its answer is
    /// lost.
    pub fn push(&mut self, row: IntakeRow<'_>, now: Timestamp) -> Result<(), IntakeError> {
        let size_bytes = row.key.len();
        if size_bytes > MESSAGE_KEY_BYTES_MAX {
            return Err(IntakeError::KeyTooLong { size_bytes });
        }
        if let Some(number) = row.number
            && !self.move_on(number)?
        {
            self.counts.repeated += 1;
            return Ok(());
        }
        let place = partition_of(key_hash(row.key), self.rows.len());
        self.rows[place].push(row.key, row.event_time, row.payload);
        self.row_count += 1;
        self.size_bytes += row.key.len() + row.payload.len();
        if self.row_count >= self.limits.rows || self.size_bytes >= self.limits.bytes {
            self.submit(now)?;
        }
        Ok(())
    }

    /// Commits what was taken, and waits until it is durable.
    ///
    /// # Errors
    ///
    /// As [`Intake::push`].
    pub fn flush(&mut self, now: Timestamp) -> Result<(), IntakeError> {
        self.submit(now)?;
        self.settle()
    }

    /// Hands what was taken to storage, as soon as what was handed over before is decided.
    ///
    /// # Errors
    ///
    /// As [`Intake::push`].
    pub fn submit(&mut self, now: Timestamp) -> Result<(), IntakeError> {
        self.settle()?;
        if self.row_count == 0 {
            return Ok(());
        }
        self.write_time = self.write_time.max(now);
        let mut appends = Vec::new();
        for (partition, rows) in self.partitions.iter().zip(&mut self.rows) {
            if !rows.is_empty() {
                let rows = QueueRows {
                    write_time: now,
                    ..std::mem::take(rows)
                };
                appends.push(QueueAppend {
                    queue: *partition,
                    rows: Arc::new(rows),
                });
            }
        }
        let count = self.row_count as u64;
        let before = EpochId(self.next.0 - 1);
        let epoch = EpochCommit {
            states: self.take_producers(),
            queue_appends: appends,
            // Only the last record is of use: pushes may be many and small.
            dropped_records: (before > EpochId::NONE)
                .then_some(before)
                .into_iter()
                .collect(),
            record: EpochRecord {
                input_count: count,
                output_count: count,
                alignment: self.write_time,
                ..EpochRecord::default()
            },
            ..EpochCommit::empty(&self.lease, self.next)
        };
        self.next = self.next.next();
        (self.row_count, self.size_bytes) = (0, 0);
        self.pending = Some((self.storage.submit_epoch(self.lease, epoch), count));
        Ok(())
    }

    /// What is decided so far.
    pub fn counts(&self) -> IntakeCounts {
        self.counts
    }

    /// Gives the right to push back. What was not flushed is not in the queue.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn close(self) -> Result<IntakeCounts, IntakeError> {
        leases::end(self.storage, self.lease)?;
        Ok(self.counts)
    }

    /// Whether the number is above the last one of its producer, which it is from now on.
    fn move_on(&mut self, number: ProducerNumber<'_>) -> Result<bool, IntakeError> {
        let ProducerNumber { producer, seq_no } = number;
        if !self.producers.contains_key(producer) {
            self.forget_producers()?;
            let last = self.read_producer(producer)?;
            let is_changed = false;
            let read = Producer { last, is_changed };
            self.producers.insert(producer.to_vec(), read);
        }
        let Some(known) = self.producers.get_mut(producer) else {
            return Ok(false);
        };
        let is_new = known.last.is_none_or(|last| seq_no > last);
        if is_new {
            known.last = Some(seq_no);
            known.is_changed = true;
        }
        Ok(is_new)
    }

    /// Where many producers are known, forgets those of which nothing is on its way.
    fn forget_producers(&mut self) -> Result<(), IntakeError> {
        if self.producers.len() < PRODUCERS_CACHED_MAX {
            return Ok(());
        }
        // What is read again is then what has been committed, or was not changed.
        self.settle()?;
        self.producers.retain(|_, producer| producer.is_changed);
        Ok(())
    }

    fn read_producer(&self, producer: &[u8]) -> Result<Option<u64>, IntakeError> {
        let partition = self.lease.partition;
        let found = rows::read_states(self.storage, partition, PRODUCERS, &[producer])?;
        let value = found.into_iter().next().unwrap_or_default().value;
        match value.as_slice() {
            [] => Ok(None),
            value => Ok(Some(decode_last_number(partition, producer, value)?)),
        }
    }

    /// The producers that rows have moved on, as a change of their state.
    fn take_producers(&mut self) -> Vec<StateChanges> {
        let mut changes = StateChanges {
            state: PRODUCERS.to_owned(),
            ..StateChanges::default()
        };
        for (producer, known) in &mut self.producers {
            if let (Some(last), true) = (known.last, std::mem::take(&mut known.is_changed)) {
                changes.keys.push(producer);
                changes.values.push(&encode_last_number(last));
            }
        }
        match changes.keys.is_empty() {
            true => Vec::new(),
            false => vec![changes],
        }
    }

    fn settle(&mut self) -> Result<(), IntakeError> {
        let Some((ticket, rows)) = self.pending.take() else {
            return Ok(());
        };
        match ticket.wait()? {
            CommitOutcome::Committed(head) => {
                self.counts.pushed += rows;
                tracing::debug!(epoch = %head.epoch, rows, "rows pushed");
            }
            CommitOutcome::Refused(refusal) => return Err(IntakeError::Refused(refusal)),
            CommitOutcome::Unknown => return Err(IntakeError::OutcomeUnknown { rows }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::queues::registry::create_queue;
    use crate::storage::memory::MemoryStorage;
    use crate::types::queue::Retention;

    #[test]
    fn repeats_of_many_producers_are_recognized_in_bounded_memory() {
        let storage = MemoryStorage::new();
        let queue = create_queue(&storage, "q", 1, Retention::default(), 1).unwrap();
        let count = PRODUCERS_CACHED_MAX as u32 + 100;
        for round in 0..2 {
            let mut intake = Intake::open(&storage, &queue, IntakeLimits::default()).unwrap();
            for producer in 0..count {
                let row = IntakeRow {
                    key: b"",
                    event_time: 0,
                    payload: b"x",
                    number: Some(ProducerNumber {
                        producer: &producer.to_be_bytes(),
                        seq_no: 1,
                    }),
                };
                intake.push(row, 7).unwrap();
                assert!(
                    intake.producers.len() <= PRODUCERS_CACHED_MAX + IntakeLimits::default().rows
                );
            }
            intake.flush(7).unwrap();
            let IntakeCounts { pushed, repeated } = intake.counts();
            let expected = if round == 0 {
                (u64::from(count), 0)
            } else {
                (0, u64::from(count))
            };
            assert_eq!((pushed, repeated), expected);
        }
    }
}
