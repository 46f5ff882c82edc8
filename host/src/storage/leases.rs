//! Leases and counters, as rows of the catalog. Works over any [`Storage`].
//!
//! A lease row keeps the generation of the partition's last job for ever; granting takes the next
//! one and a lease id that was never used. Ending a lease is the barrier: every epoch that names it
//! is refused from then on, wherever its job is.
//!
//! **Invariant:** a number from a counter is handed out once, also across crashes: the counter's
//! row is durable before the number is returned. Numbers may be skipped.

use crate::storage::attempts::{self, PartitionAttempts};
use crate::storage::{CatalogChange, CatalogOutcome, Storage, StorageError, codec, keys};
use crate::types::ids::{Generation, LeaseId, PartitionId};
use crate::types::lease::Lease;

use codec::LeaseRow;

/// How often a change is tried again because others changed the same row in between.
const ATTEMPTS_MAX: usize = 64;

/// What is numbered by the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Partition ids.
    Partitions,
    /// Stream ids.
    Streams,
    /// Sink file ids.
    SinkFiles,
    /// Lease ids.
    Leases,
    /// Deployment numbers.
    Deployments,
}

impl Counter {
    fn name(self) -> &'static str {
        match self {
            Counter::Partitions => "partition",
            Counter::Streams => "stream",
            Counter::SinkFiles => "sink_file",
            Counter::Leases => "lease",
            Counter::Deployments => "deployment",
        }
    }
}

/// Takes `count` numbers and returns the first. The first number of a counter is 1.
///
/// # Errors
///
/// When the store fails, or [`StorageError::Contended`].
pub fn allocate(storage: &dyn Storage, counter: Counter, count: u64) -> Result<u64, StorageError> {
    let key = keys::counter(counter.name());
    for _ in 0..ATTEMPTS_MAX {
        let found = storage.read_catalog(&key)?;
        let first = match &found {
            Some(value) => {
                codec::decode_number(|| format!("the counter {}", counter.name()), value)?
            }
            None => 1,
        };
        let change = CatalogChange {
            expectations: vec![(key.clone(), found)],
            writes: vec![(key.clone(), Some(codec::encode_number(first + count)))],
        };
        if storage.commit_catalog(&change)? == CatalogOutcome::Committed {
            return Ok(first);
        }
    }
    Err(contended("take a number"))
}

/// Grants the right to commit for a partition: the next generation, a lease id never used before.
/// A lease in force is ended by it.
///
/// # Errors
///
/// [`StorageError::Damaged`] for a damaged partition, [`StorageError::Contended`], or when the
/// store fails.
pub fn grant(storage: &dyn Storage, partition: PartitionId) -> Result<Lease, StorageError> {
    let id = LeaseId(allocate(storage, Counter::Leases, 1)?);
    let head = storage.head(partition)?;
    for _ in 0..ATTEMPTS_MAX {
        let (found, row) = read(storage, partition)?;
        let generation = row.generation.max(head.generation.0) + 1;
        let granted = LeaseRow {
            generation,
            current: Some(id),
        };
        if replace(storage, partition, found, granted)? == CatalogOutcome::Committed {
            return Ok(Lease {
                id,
                partition,
                generation: Generation(generation),
            });
        }
    }
    Err(contended("grant a lease"))
}

/// Ends a lease. Returns whether it was still in force.
///
/// # Errors
///
/// [`StorageError::Contended`], or when the store fails.
pub fn end(storage: &dyn Storage, lease: Lease) -> Result<bool, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let (found, row) = read(storage, lease.partition)?;
        if row.current != Some(lease.id) {
            return Ok(false);
        }
        let ended = LeaseRow {
            generation: row.generation,
            current: None,
        };
        if replace(storage, lease.partition, found, ended)? == CatalogOutcome::Committed {
            return Ok(true);
        }
    }
    Err(contended("end a lease"))
}

/// As [`end_all`], of jobs that have ended with their process: each partition's next job is told so
/// (`attempts.rs`).
///
/// # Errors
///
/// As [`end_all`], or when what is known of attempts does not decode.
pub fn end_all_unclean(storage: &dyn Storage) -> Result<Vec<PartitionId>, StorageError> {
    end_each(storage, true)
}

/// Ends every lease in force and returns whose they were. Who starts with the data directory's
/// lock held does this first: nothing of an earlier process can commit after it.
///
/// # Errors
///
/// [`StorageError::Contended`], or when the store fails.
pub fn end_all(storage: &dyn Storage) -> Result<Vec<PartitionId>, StorageError> {
    end_each(storage, false)
}

fn end_each(storage: &dyn Storage, is_unclean: bool) -> Result<Vec<PartitionId>, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut change = CatalogChange::default();
        let mut ended_of = Vec::new();
        for (key, value) in storage.scan_catalog(&[keys::CATALOG_LEASE])? {
            let partition = PartitionId(keys::catalog_number(&key).unwrap_or_default());
            let row = codec::decode_lease(partition, Some(&value))?;
            if row.current.is_some() {
                let ended = LeaseRow {
                    generation: row.generation,
                    current: None,
                };
                if is_unclean {
                    let key = keys::attempts(partition);
                    let found = storage.read_catalog(&key)?;
                    let attempts = PartitionAttempts {
                        is_unclean: true,
                        ..attempts::decode_optional(partition, found.as_deref())?
                    };
                    change.expectations.push((key.clone(), found));
                    change
                        .writes
                        .push((key, Some(attempts::encode_attempts(&attempts))));
                }
                ended_of.push(partition);
                change.expectations.push((key.clone(), Some(value)));
                change.writes.push((key, Some(codec::encode_lease(&ended))));
            }
        }
        if change.writes.is_empty() || storage.commit_catalog(&change)? == CatalogOutcome::Committed
        {
            return Ok(ended_of);
        }
    }
    Err(contended("end all leases"))
}

/// The partition's lease in force.
///
/// # Errors
///
/// When the store fails.
pub fn current(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Option<Lease>, StorageError> {
    let (_, row) = read(storage, partition)?;
    Ok(row.current.map(|id| Lease {
        id,
        partition,
        generation: Generation(row.generation),
    }))
}

fn read(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<(Option<Vec<u8>>, LeaseRow), StorageError> {
    let found = storage.read_catalog(&keys::lease(partition))?;
    let row = codec::decode_lease(partition, found.as_deref())?;
    Ok((found, row))
}

fn replace(
    storage: &dyn Storage,
    partition: PartitionId,
    found: Option<Vec<u8>>,
    row: LeaseRow,
) -> Result<CatalogOutcome, StorageError> {
    let key = keys::lease(partition);
    storage.commit_catalog(&CatalogChange {
        expectations: vec![(key.clone(), found)],
        writes: vec![(key, Some(codec::encode_lease(&row)))],
    })
}

fn contended(action: &'static str) -> StorageError {
    StorageError::Contended {
        action,
        attempts: ATTEMPTS_MAX,
    }
}
