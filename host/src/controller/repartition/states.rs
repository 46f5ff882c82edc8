//! States of the old partitions become states of the new ones; later they go from the old ones.

use super::writer::{PartitionWriter, PendingEpochs, last_record, raise};
use super::{MoveLimits, Observer, Repartition, RepartitionError, RepartitionProgress};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, rows};
use crate::types::column::Column;
use crate::types::epoch::{EpochRecord, StateChanges, StoredState};
use crate::types::ids::PartitionId;
use crate::types::key::{key_hash, partition_of};

/// Gives each new partition the states of its range of key hashes; `moved` is told how many states
/// each group of commits wrote. Writes all of them each time that it is called.
pub(super) fn hand_over(
    repartition: &Repartition<'_>,
    storage: &dyn Storage,
    moved: &mut dyn FnMut(u64),
) -> Result<(), RepartitionError> {
    let mut latest = EpochRecord::default();
    for partition in repartition.from {
        raise(&mut latest, &last_record(storage, *partition)?);
    }
    let mut successors = Vec::with_capacity(repartition.to.len());
    for partition in repartition.to {
        let mut writer = PartitionWriter::open(storage, *partition, repartition.deployment)?;
        successors.push(Successor {
            owes_record: writer.raise_record(&latest),
            writer,
            changes: StateChanges::default(),
        });
    }
    let limits = &repartition.limits;
    let mut moving = HandOver {
        storage,
        limits,
        successors,
        size_bytes: 0,
        rows: 0,
        pending: (PendingEpochs::default(), 0),
        moved,
    };
    for partition in repartition.from {
        for state in rows::state_names_kept(storage, *partition)? {
            for_each_page(storage, *partition, &state, limits, |rows| {
                moving.take(&state, rows)
            })?;
            // An epoch has each state once, its keys rising, as one partition's pages have them.
            moving.submit(&state)?;
        }
    }
    moving.finish()
}

/// A new partition and the states that its next epoch brings.
struct Successor<'a> {
    writer: PartitionWriter<'a>,
    changes: StateChanges,
    /// Whether an epoch has yet to say which alignment timestamps were given before, and which
    /// watermarks there were.
    owes_record: bool,
}

struct HandOver<'a> {
    storage: &'a dyn Storage,
    limits: &'a MoveLimits,
    successors: Vec<Successor<'a>>,
    size_bytes: usize,
    rows: usize,
    /// The group of epochs that is being decided while the next one is read, and how many states it
    /// brings.
    pending: (PendingEpochs, u64),
    moved: &'a mut dyn FnMut(u64),
}

impl HandOver<'_> {
    fn take(
        &mut self,
        state: &str,
        rows: Vec<(Vec<u8>, StoredState)>,
    ) -> Result<(), RepartitionError> {
        self.rows += rows.len();
        for (key, stored) in rows {
            self.size_bytes += key.len() + stored.value.len();
            let successor = partition_of(key_hash(&key), self.successors.len());
            let changes = &mut self.successors[successor].changes;
            changes.keys.push(&key);
            changes.values.push(&stored.value);
            changes.touched.push(stored.touched);
        }
        match self.size_bytes >= self.limits.commit_bytes || self.rows >= self.limits.commit_rows {
            true => self.submit(state),
            false => Ok(()),
        }
    }

    /// Submits what was read of a state, once the group before it is decided.
    fn submit(&mut self, state: &str) -> Result<(), RepartitionError> {
        self.wait()?;
        let mut epochs = Vec::new();
        for successor in &mut self.successors {
            let changes = std::mem::take(&mut successor.changes);
            if changes.keys.is_empty() {
                continue;
            }
            let (lease, mut epoch) = successor.writer.next_epoch();
            let is_aging = changes.touched.iter().any(|touched| *touched != 0);
            epoch.states = vec![StateChanges {
                state: state.to_owned(),
                touched: if is_aging {
                    changes.touched
                } else {
                    Vec::new()
                },
                ..changes
            }];
            successor.owes_record = false;
            epochs.push((lease, epoch));
        }
        self.size_bytes = 0;
        let count = std::mem::take(&mut self.rows) as u64;
        self.pending = (PendingEpochs::submit(self.storage, epochs), count);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), RepartitionError> {
        let (pending, count) = std::mem::take(&mut self.pending);
        pending.wait()?;
        if count > 0 {
            tracing::debug!(states = count, "states moved");
            (self.moved)(count);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), RepartitionError> {
        self.wait()?;
        let mut epochs = Vec::new();
        for successor in self
            .successors
            .iter_mut()
            .filter(|successor| successor.owes_record)
        {
            epochs.push(successor.writer.next_epoch());
        }
        PendingEpochs::submit(self.storage, epochs).wait()?;
        for successor in self.successors {
            successor.writer.close()?;
        }
        Ok(())
    }
}

/// Removes the states and frontiers of a partition whose move is written down; once nothing that it
/// wrote waits for a reader, its epoch records as well. What stays then are its head and its lease, a
/// row each, so that its number is never used again.
///
/// # Errors
///
/// As [`Repartition::run`]; what is gone by then is gone.
pub fn sweep(
    storage: &dyn Storage,
    partition: PartitionId,
    deployment: u64,
    limits: &MoveLimits,
    observe: &mut Observer<'_>,
) -> Result<(), RepartitionError> {
    let is_read = rows::lanes_kept(storage, partition)?.is_empty();
    let has_records =
        || Ok::<_, StorageError>(!rows::epoch_records_kept(storage, partition)?.is_empty());
    if !(keeps_rows(storage, partition)? || is_read && has_records()?) {
        return Ok(());
    }
    let mut progress = RepartitionProgress::default();
    let mut writer = PartitionWriter::open(storage, partition, deployment)?;
    for state in rows::state_names_kept(storage, partition)? {
        let mut from = Some(Vec::new());
        while let Some(start) = from {
            let keys = state_keys(storage, partition, &state, start, limits)?;
            // The least key behind another one is that key and a zero byte.
            from = keys.last().map(|last| [last, [0].as_slice()].concat());
            if keys.is_empty() {
                break;
            }
            progress.swept += keys.len() as u64;
            let keys: Column = keys.iter().map(Vec::as_slice).collect();
            writer.commit(|epoch| {
                epoch.states = vec![StateChanges {
                    state: state.clone(),
                    values: keys.iter().map(|_| b"".as_slice()).collect(),
                    keys,
                    touched: Vec::new(),
                }];
            })?;
            observe(progress);
        }
    }
    loop {
        let lanes = rows::frontiers_kept(storage, partition, None, limits.page_rows)?;
        if lanes.is_empty() {
            break;
        }
        progress.swept += lanes.len() as u64;
        writer.commit(|epoch| epoch.dropped_frontiers = lanes)?;
        observe(progress);
    }
    if is_read {
        let records = rows::epoch_records_kept(storage, partition)?;
        progress.swept += records.len() as u64;
        writer.commit(|epoch| {
            epoch.dropped_records = records;
            epoch.dropped_records.push(epoch.epoch);
        })?;
        observe(progress);
    }
    writer.close()?;
    tracing::debug!(partition = %partition, rows = progress.swept, "partition swept");
    Ok(())
}

/// Whether a partition has states, frontiers, or messages that its readers have not taken yet.
///
/// # Errors
///
/// When the store fails.
pub fn keeps_anything(storage: &dyn Storage, partition: PartitionId) -> Result<bool, StorageError> {
    Ok(keeps_rows(storage, partition)? || !rows::lanes_kept(storage, partition)?.is_empty())
}

fn keeps_rows(storage: &dyn Storage, partition: PartitionId) -> Result<bool, StorageError> {
    let has_states = !rows::state_names_kept(storage, partition)?.is_empty();
    Ok(has_states || !rows::frontiers_kept(storage, partition, None, 1)?.is_empty())
}

/// The keys of a state from `start` on that one commit removes: what the limits allow, and a page at
/// most beyond.
fn state_keys(
    storage: &dyn Storage,
    partition: PartitionId,
    state: &str,
    mut start: Vec<u8>,
    limits: &MoveLimits,
) -> Result<Vec<Vec<u8>>, StorageError> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut size_bytes = 0;
    while keys.len() < limits.commit_rows && size_bytes < limits.commit_bytes {
        let page = rows::scan_state_keys(storage, partition, state, &start, limits.page_rows)?;
        let Some(last) = page.last() else {
            break;
        };
        start = [last, [0].as_slice()].concat();
        size_bytes += page.iter().map(Vec::len).sum::<usize>();
        keys.extend(page);
    }
    Ok(keys)
}

fn for_each_page(
    storage: &dyn Storage,
    partition: PartitionId,
    state: &str,
    limits: &MoveLimits,
    mut take: impl FnMut(Vec<(Vec<u8>, StoredState)>) -> Result<(), RepartitionError>,
) -> Result<(), RepartitionError> {
    let limit = ScanLimit {
        rows: limits.page_rows,
        bytes: limits.page_bytes,
    };
    let mut from = Some(Vec::new());
    while let Some(start) = from {
        let page = rows::scan_states(storage, partition, state, &start, limit)?;
        if !page.rows.is_empty() {
            take(page.rows)?;
        }
        from = page.next;
    }
    Ok(())
}
