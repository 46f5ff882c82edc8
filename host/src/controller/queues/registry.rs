//! The rows of queues in the catalog. `docs/format.md` has them byte by byte.
//!
//! **Invariant:** a queue is known by the numbers of its partitions, which are never used again: one that is deleted
//! and made again under its name is another queue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::controller::queues::QueueError;
use crate::controller::queues::users::users_of;
use crate::controller::repartition::{MoveLimits, sweep};
use crate::storage::leases::{Counter, allocate};
use crate::storage::{CatalogChange, CatalogOutcome, Storage, StorageError, keys};
use crate::types::batch::Timestamp;
use crate::types::format_version::unknown_version;
use crate::types::ids::PartitionId;
use crate::types::queue::Retention;
use crate::worker::queue_keeper::KeptQueue;

/// Format version of the rows written here.
const FORMAT_VERSION: u8 = 1;

/// A queue as the catalog has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// The number of its first partition; the others follow in a row.
    first: PartitionId,
    /// How many partitions it has.
    count: u32,
    /// The partition whose epochs carry what is pushed from outside; it has no rows of its own.
    pub intake: PartitionId,
    /// How long its rows are kept.
    pub retention: Retention,
    /// When it was made.
    pub created_at: Timestamp,
}

impl QueueRow {
    /// How many partitions it has.
    pub fn partition_count(&self) -> u32 {
        self.count
    }

    /// Its partitions, in their order.
    pub fn partitions(&self) -> Vec<PartitionId> {
        let first = self.first.0;
        (first..first.saturating_add(u64::from(self.count)))
            .map(PartitionId)
            .collect()
    }

    fn encode(&self) -> Vec<u8> {
        let encoded = postcard::to_extend(self, vec![FORMAT_VERSION]);
        encoded.expect("a queue's row is numbers only, which always encode")
    }

    fn decode(name: &str, bytes: &[u8]) -> Result<QueueRow, StorageError> {
        let finding = match bytes {
            [FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
                Ok((row, [])) => return Ok(row),
                Ok((_, rest)) => format!("it has {} bytes too many", rest.len()),
                Err(error) => error.to_string(),
            },
            [version, ..] => unknown_version(*version, FORMAT_VERSION),
            [] => "it is empty".to_owned(),
        };
        Err(StorageError::Undecodable {
            what: format!("the row of queue {name}"),
            finding,
        })
    }
}

/// A new queue with partitions that were never used, not written down yet.
///
/// # Errors
///
/// When the store fails.
pub fn number_queue(
    storage: &dyn Storage,
    partitions: u32,
    retention: Retention,
    now: Timestamp,
) -> Result<QueueRow, StorageError> {
    let first = allocate(storage, Counter::Partitions, u64::from(partitions) + 1)?;
    Ok(QueueRow {
        first: PartitionId(first),
        count: partitions,
        intake: PartitionId(first + u64::from(partitions)),
        retention,
        created_at: now,
    })
}

/// A change of queues' rows: each must be as it was found.
#[derive(Debug, Default)]
pub(super) struct QueueChanges {
    change: CatalogChange,
}

impl QueueChanges {
    /// The row of a queue is to be `now` instead of `found`.
    pub(super) fn set(&mut self, name: &str, found: Option<&QueueRow>, now: Option<&QueueRow>) {
        let key = keys::queue(name);
        let expectation = (key.clone(), found.map(QueueRow::encode));
        self.change.expectations.push(expectation);
        self.change.writes.push((key, now.map(QueueRow::encode)));
    }

    /// Makes the changes; whether nobody else had changed a row in between.
    pub(super) fn commit(&self, storage: &dyn Storage) -> Result<bool, StorageError> {
        if self.change.writes.is_empty() {
            return Ok(true);
        }
        Ok(storage.commit_catalog(&self.change)? == CatalogOutcome::Committed)
    }
}

/// All queues by name.
///
/// # Errors
///
/// When the store fails, or a row can't be decoded.
pub fn all_queues(storage: &dyn Storage) -> Result<BTreeMap<String, QueueRow>, StorageError> {
    let mut queues = BTreeMap::new();
    for (key, value) in storage.scan_catalog(&keys::queue(""))? {
        if let Some(name) = keys::parse_queue(&key) {
            queues.insert(name.to_owned(), QueueRow::decode(name, &value)?);
        }
    }
    Ok(queues)
}

/// Holds a row of a queue, or of one that was deleted, against its format.
pub(in crate::controller) fn check_row(key: &[u8], value: &[u8]) -> Result<(), StorageError> {
    let name = match key {
        [_, 0, number @ ..] if number.len() == size_of::<u64>() => Some("that was deleted"),
        key => keys::parse_queue(key),
    };
    let name = name.ok_or_else(|| StorageError::Undecodable {
        what: format!("the row {} of the catalog", key.escape_ascii()),
        finding: "its key names no queue".to_owned(),
    })?;
    QueueRow::decode(name, value).map(drop)
}

/// The queue of a name.
///
/// # Errors
///
/// [`QueueError::Unknown`], or when the store fails.
pub fn find_queue(storage: &dyn Storage, name: &str) -> Result<QueueRow, QueueError> {
    if let Some(found) = storage.read_catalog(&keys::queue(name))? {
        return Ok(QueueRow::decode(name, &found)?);
    }
    let names: Vec<String> = all_queues(storage)?.into_keys().collect();
    Err(QueueError::Unknown {
        queue: name.to_owned(),
        known: match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        },
    })
}

/// Makes a queue.
///
/// # Errors
///
/// [`QueueError::Exists`], [`QueueError::Contended`], or when the store fails.
pub fn create_queue(
    storage: &dyn Storage,
    name: &str,
    partitions: u32,
    retention: Retention,
    now: Timestamp,
) -> Result<QueueRow, QueueError> {
    if let Some(found) = all_queues(storage)?.get(name) {
        return Err(QueueError::Exists {
            queue: name.to_owned(),
            partitions: found.count,
        });
    }
    let row = number_queue(storage, partitions, retention, now)?;
    let mut changes = QueueChanges::default();
    changes.set(name, None, Some(&row));
    commit_of(storage, name, &changes)?;
    Ok(row)
}

/// Gives a queue another retention.
///
/// # Errors
///
/// [`QueueError::Unknown`], [`QueueError::Contended`], or when the store fails.
pub fn set_retention(
    storage: &dyn Storage,
    name: &str,
    retention: Retention,
) -> Result<(), QueueError> {
    let found = find_queue(storage, name)?;
    let mut changes = QueueChanges::default();
    let now = QueueRow {
        retention,
        ..found.clone()
    };
    changes.set(name, Some(&found), Some(&now));
    commit_of(storage, name, &changes)
}

/// Deletes a queue with all its rows. From the moment that this is decided on the name is free; the rows go then, or with the
/// next [`finish_deletions`].
///
/// # Errors
///
/// [`QueueError::Used`] unless `even_if_used`, [`QueueError::Unknown`], [`QueueError::Contended`], or
/// when the store fails.
pub fn delete_queue(
    storage: &dyn Storage,
    name: &str,
    even_if_used: bool,
) -> Result<(), QueueError> {
    let found = find_queue(storage, name)?;
    let users = users_of(storage, name)?;
    if !users.is_empty() && !even_if_used {
        let users: Vec<String> = users.iter().map(ToString::to_string).collect();
        return Err(QueueError::Used {
            queue: name.to_owned(),
            users: users.join(", "),
        });
    }
    let mut changes = QueueChanges::default();
    changes.set(name, Some(&found), None);
    let tombstone = (keys::deleted_queue(found.first), Some(found.encode()));
    changes.change.writes.push(tombstone);
    commit_of(storage, name, &changes)?;
    finish_deletions(storage)
}

/// Removes what is left of queues that were deleted. Whoever opens a store to use its queues does this first.
///
/// # Errors
///
/// When the store fails; what is gone by then is gone.
pub fn finish_deletions(storage: &dyn Storage) -> Result<(), QueueError> {
    for (key, value) in storage.scan_catalog(&[keys::CATALOG_QUEUE, 0])? {
        let row = QueueRow::decode("that was deleted", &value)?;
        for partition in row.partitions() {
            storage.remove_queue(partition)?;
        }
        let limits = MoveLimits::default();
        sweep(storage, row.intake, 0, &limits, &mut |_| {}).map_err(QueueError::Sweep)?;
        let change = CatalogChange {
            expectations: vec![(key.clone(), Some(value))],
            writes: vec![(key, None)],
        };
        // Refused: another process has removed it.
        storage.commit_catalog(&change)?;
        tracing::info!(first = %row.first, "deleted queue removed");
    }
    Ok(())
}

/// The queues of the store that have a retention, whichever pipeline uses them.
///
/// # Errors
///
/// As [`all_queues`].
pub fn kept_queues(storage: &dyn Storage) -> Result<Vec<KeptQueue>, StorageError> {
    let queues = all_queues(storage)?.into_iter();
    let kept = queues.filter(|(_, row)| !row.retention.is_forever());
    Ok(kept
        .map(|(name, row)| KeptQueue {
            name,
            partitions: row.partitions(),
            retention: row.retention,
        })
        .collect())
}

fn commit_of(storage: &dyn Storage, name: &str, changes: &QueueChanges) -> Result<(), QueueError> {
    match changes.commit(storage)? {
        true => Ok(()),
        false => Err(QueueError::Contended {
            queue: name.to_owned(),
        }),
    }
}

#[cfg(test)]
pub(in crate::controller) mod tests {
    use super::*;

    pub(in crate::controller) fn row() -> QueueRow {
        QueueRow {
            first: PartitionId(300),
            count: 4,
            intake: PartitionId(304),
            retention: Retention {
                time_ms: Some(60_000),
                bytes: None,
            },
            created_at: 1_700_000_000_000,
        }
    }

    pub(in crate::controller) fn encode(row: &QueueRow) -> Vec<u8> {
        row.encode()
    }

    pub(in crate::controller) fn decode_shown(
        name: &str,
        value: &[u8],
    ) -> Result<String, StorageError> {
        QueueRow::decode(name, value).map(|row| format!("{row:?}"))
    }
}
