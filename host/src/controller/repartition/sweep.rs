//! What the old partitions still have goes, once it is written down that the new ones have it.

use std::collections::BTreeMap;

use super::hand_over::{TimerPage, changes_of, for_each_timer_page, sort_by_key};
use super::writer::PartitionWriter;
use super::{MoveLimits, Observer, RepartitionError, RepartitionProgress};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, rows, timer_rows};
use crate::types::batch::TimeDomain;
use crate::types::column::Column;
use crate::types::epoch::StateChanges;
use crate::types::ids::PartitionId;
use crate::types::timer::{TimerChanges, TimerTimes};

/// Removes the states, timers and frontiers of a partition whose move is written down; once nothing that it
/// wrote waits for a reader, its epoch records as well. What stays then are its head and its lease, a
/// row each, so that its number is never used again.
///
/// # Errors
///
/// As [`crate::controller::repartition::Repartition::run`]; what is gone by then is gone.
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
    let mut pending = BTreeMap::new();
    for stream in timer_rows::pending_streams(storage, partition)? {
        pending.insert(stream.stream, stream.pending);
    }
    for domain in [TimeDomain::EventTime, TimeDomain::SystemTime] {
        let mut timers = TimerSweep {
            writer: &mut writer,
            domain,
            pending: &mut pending,
            changes: BTreeMap::new(),
            rows: 0,
            size_bytes: 0,
        };
        let limit = ScanLimit {
            rows: limits.page_rows,
            bytes: limits.page_bytes,
        };
        for_each_timer_page(storage, partition, domain, limit, |page| {
            timers.take(page);
            if timers.rows >= limits.commit_rows || timers.size_bytes >= limits.commit_bytes {
                progress.swept += timers.commit()?;
                observe(progress);
            }
            Ok(())
        })?;
        if timers.rows > 0 {
            progress.swept += timers.commit()?;
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

/// Timers of one clock that the next commit removes.
struct TimerSweep<'a, 's> {
    writer: &'a mut PartitionWriter<'s>,
    domain: TimeDomain,
    /// How many timers of each stream are left.
    pending: &'a mut BTreeMap<String, u64>,
    changes: BTreeMap<String, TimerChanges>,
    rows: usize,
    size_bytes: usize,
}

impl TimerSweep<'_, '_> {
    fn take(&mut self, page: &TimerPage) {
        for (stream, key, times) in page {
            self.rows += 1;
            self.size_bytes += key.len() + size_of::<TimerTimes>();
            if let Some(pending) = self.pending.get_mut(stream) {
                *pending = pending.saturating_sub(1);
            }
            let changes = changes_of(&mut self.changes, stream, self.domain);
            changes.removed.push(key, *times);
        }
    }

    /// Removes what was taken; returns how many timers those were.
    fn commit(&mut self) -> Result<u64, RepartitionError> {
        let mut timers: Vec<_> = std::mem::take(&mut self.changes).into_values().collect();
        for changes in &mut timers {
            changes.pending = self.pending.get(&changes.stream).copied().unwrap_or(0);
            if changes.domain == TimeDomain::SystemTime {
                sort_by_key(&mut changes.removed);
            }
        }
        let left = self.pending.values().sum();
        self.writer
            .change_record(|record| record.time.pending_timers = left);
        self.writer.commit(|epoch| epoch.timers = timers)?;
        self.size_bytes = 0;
        Ok(std::mem::take(&mut self.rows) as u64)
    }
}

/// Whether a partition has states, timers, frontiers, or messages that its readers have not taken yet.
///
/// # Errors
///
/// When the store fails.
pub fn keeps_anything(storage: &dyn Storage, partition: PartitionId) -> Result<bool, StorageError> {
    Ok(keeps_rows(storage, partition)? || !rows::lanes_kept(storage, partition)?.is_empty())
}

fn keeps_rows(storage: &dyn Storage, partition: PartitionId) -> Result<bool, StorageError> {
    let has_states = !rows::state_names_kept(storage, partition)?.is_empty();
    let has_timers = !timer_rows::pending_streams(storage, partition)?.is_empty();
    Ok(has_states || has_timers || !rows::frontiers_kept(storage, partition, None, 1)?.is_empty())
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
