//! What the old partitions have becomes the new ones': states, timers, and how far each lane is read.

use std::collections::BTreeMap;

use super::succession::inherited_time;
use super::writer::{PartitionWriter, PendingEpochs, last_record, raise};
use super::{MoveLimits, Repartition, RepartitionError, RepartitionProgress};
use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::TimerKey;
use crate::storage::{Storage, StorageError, rows, timer_rows};
use crate::types::batch::TimeDomain;
use crate::types::epoch::{EpochRecord, EpochTime, FrontierAdvance, StateChanges, StoredState};
use crate::types::ids::{LaneId, PartitionId};
use crate::types::key::{key_hash, partition_of};
use crate::types::timer::{PendingTimers, TimerChanges, TimerTimes};

/// Gives each new partition the states and timers of its range of key hashes; `moved` is told what each
/// group of commits wrote. Writes all of them each time that it is called.
pub(super) fn hand_over(
    repartition: &Repartition<'_>,
    storage: &dyn Storage,
    moved: &mut dyn FnMut(RepartitionProgress),
) -> Result<(), RepartitionError> {
    let records = (repartition.from.iter())
        .map(|partition| last_record(storage, *partition))
        .collect::<Result<Vec<_>, _>>()?;
    let mut inherited = EpochRecord {
        time: inherited_time(records.iter()),
        ..EpochRecord::default()
    };
    records
        .iter()
        .for_each(|record| raise(&mut inherited, record));
    let mut successors = Vec::with_capacity(repartition.to.len());
    for partition in repartition.to {
        let mut writer = PartitionWriter::open(storage, *partition, repartition.deployment)?;
        writer.change_record(|record| {
            raise(record, &inherited);
            record.time = EpochTime {
                latest_watermark: record.time.latest_watermark,
                ages: std::mem::take(&mut record.time.ages),
                ..inherited.time.clone()
            };
        });
        successors.push(Successor {
            writer,
            states: StateChanges::default(),
            timers: BTreeMap::new(),
            pending: BTreeMap::new(),
            frontiers: Vec::new(),
        });
    }
    let mut moving = HandOver {
        storage,
        limits: &repartition.limits,
        successors,
        size_bytes: 0,
        rows: 0,
        group: RepartitionProgress::default(),
        pending: (PendingEpochs::default(), RepartitionProgress::default()),
        moved,
    };
    for partition in repartition.from {
        moving.move_states(*partition)?;
        for domain in [TimeDomain::EventTime, TimeDomain::SystemTime] {
            moving.move_timers(*partition, domain)?;
        }
    }
    moving.move_frontiers(repartition.from)?;
    moving.finish()
}

/// A new partition and what its next epoch brings.
struct Successor<'a> {
    writer: PartitionWriter<'a>,
    states: StateChanges,
    /// By the names of their streams.
    timers: BTreeMap<String, TimerChanges>,
    /// How many timers of each stream it has by then.
    pending: BTreeMap<String, u64>,
    frontiers: Vec<FrontierAdvance>,
}

impl Successor<'_> {
    fn take_timer(&mut self, domain: TimeDomain, stream: &str, key: &[u8], times: TimerTimes) {
        match self.pending.get_mut(stream) {
            Some(pending) => *pending += 1,
            None => drop(self.pending.insert(stream.to_owned(), 1)),
        }
        let changes = changes_of(&mut self.timers, stream, domain);
        changes.set.push(key, times);
    }

    /// The records of its further epochs say how many timers it has by now.
    fn record_pending(&mut self) {
        let pending = self.pending.values().sum();
        self.writer
            .change_record(|record| record.time.pending_timers = pending);
    }

    fn has_something(&self) -> bool {
        !(self.states.keys.is_empty() && self.timers.is_empty() && self.frontiers.is_empty())
    }

    fn take_states(&mut self) -> Vec<StateChanges> {
        let mut states = std::mem::take(&mut self.states);
        if states.keys.is_empty() {
            return Vec::new();
        }
        if states.touched.iter().all(|touched| *touched == 0) {
            states.touched.clear();
        }
        vec![states]
    }

    fn take_timers(&mut self) -> Vec<TimerChanges> {
        let timers = std::mem::take(&mut self.timers).into_values();
        let in_order = timers.map(|mut changes| {
            changes.pending = self.pending[&changes.stream];
            if changes.domain == TimeDomain::SystemTime {
                sort_by_key(&mut changes.set);
            }
            changes
        });
        in_order.collect()
    }
}

struct HandOver<'a> {
    storage: &'a dyn Storage,
    limits: &'a MoveLimits,
    successors: Vec<Successor<'a>>,
    /// What the next group of epochs brings.
    size_bytes: usize,
    rows: usize,
    group: RepartitionProgress,
    /// The group of epochs that is being decided while the next one is read, and what it brings.
    pending: (PendingEpochs, RepartitionProgress),
    moved: &'a mut dyn FnMut(RepartitionProgress),
}

impl<'a> HandOver<'a> {
    fn page_limit(&self) -> ScanLimit {
        ScanLimit {
            rows: self.limits.page_rows,
            bytes: self.limits.page_bytes,
        }
    }

    fn move_states(&mut self, partition: PartitionId) -> Result<(), RepartitionError> {
        for state in rows::state_names_kept(self.storage, partition)? {
            let mut from = Some(Vec::new());
            while let Some(start) = from {
                let limit = self.page_limit();
                let page = rows::scan_states(self.storage, partition, &state, &start, limit)?;
                self.take_states(&state, page.rows)?;
                from = page.next;
            }
            // An epoch has each state once, its keys rising, as one partition's pages have them.
            self.submit()?;
        }
        Ok(())
    }

    fn take_states(
        &mut self,
        state: &str,
        rows: Vec<(Vec<u8>, StoredState)>,
    ) -> Result<(), RepartitionError> {
        for (key, stored) in rows {
            self.count(key.len() + stored.value.len());
            self.group.states += 1;
            let states = &mut self.successor(&key).states;
            if states.keys.is_empty() {
                state.clone_into(&mut states.state);
            }
            states.keys.push(&key);
            states.values.push(&stored.value);
            states.touched.push(stored.touched);
        }
        self.submit_if_full()
    }

    fn move_timers(
        &mut self,
        partition: PartitionId,
        domain: TimeDomain,
    ) -> Result<(), RepartitionError> {
        let storage = self.storage;
        let limit = self.page_limit();
        for_each_timer_page(storage, partition, domain, limit, |timers| {
            for (stream, key, times) in timers {
                self.count(key.len() + size_of::<TimerTimes>());
                self.group.timers += 1;
                self.successor(key).take_timer(domain, stream, key, *times);
            }
            self.submit_if_full()
        })?;
        // An epoch has each stream once, its timers rising, as one partition's pages have them.
        self.submit()
    }

    /// How far the lanes of each producer are read: in lanes of the new layout it begins where the slowest of
    /// the old readers stands, before all that was moved to them, with what was said of the time up to there.
    fn move_frontiers(&mut self, from: &[PartitionId]) -> Result<(), RepartitionError> {
        let Some((first, others)) = from.split_first() else {
            return Ok(());
        };
        let (mut after, page_rows) = (None, self.limits.page_rows);
        loop {
            let lanes = rows::frontiers_kept(self.storage, *first, after, page_rows)?;
            let Some(last) = lanes.last() else {
                return self.submit();
            };
            after = Some(*last);
            for lane in lanes {
                let Some(slowest) = slowest(self.storage, lane, others)? else {
                    continue;
                };
                for successor in &mut self.successors {
                    let reader = successor.writer.partition();
                    successor.frontiers.push(FrontierAdvance {
                        lane: LaneId { reader, ..lane },
                        ..slowest
                    });
                }
                self.count(size_of::<FrontierAdvance>());
            }
            self.submit_if_full()?;
        }
    }

    fn successor(&mut self, key: &[u8]) -> &mut Successor<'a> {
        let successor = partition_of(key_hash(key), self.successors.len());
        &mut self.successors[successor]
    }

    fn count(&mut self, size_bytes: usize) {
        self.size_bytes += size_bytes;
        self.rows += 1;
    }

    fn submit_if_full(&mut self) -> Result<(), RepartitionError> {
        match self.size_bytes >= self.limits.commit_bytes || self.rows >= self.limits.commit_rows {
            true => self.submit(),
            false => Ok(()),
        }
    }

    /// Submits what was read, once the group before it is decided.
    fn submit(&mut self) -> Result<(), RepartitionError> {
        self.wait()?;
        let mut epochs = Vec::new();
        for successor in &mut self.successors {
            if !successor.has_something() {
                continue;
            }
            let timers = successor.take_timers();
            successor.record_pending();
            let (lease, mut epoch) = successor.writer.next_epoch();
            epoch.states = successor.take_states();
            epoch.timers = timers;
            epoch.frontiers = std::mem::take(&mut successor.frontiers);
            epochs.push((lease, epoch));
        }
        (self.size_bytes, self.rows) = (0, 0);
        let group = std::mem::take(&mut self.group);
        self.pending = (PendingEpochs::submit(self.storage, epochs), group);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), RepartitionError> {
        let (pending, group) = std::mem::take(&mut self.pending);
        pending.wait()?;
        if group != RepartitionProgress::default() {
            let RepartitionProgress { states, timers, .. } = group;
            tracing::debug!(states, timers, "states and timers moved");
            (self.moved)(group);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), RepartitionError> {
        self.wait()?;
        let mut epochs = Vec::new();
        for successor in &mut self.successors {
            successor.record_pending();
            if successor.writer.owes_record() {
                epochs.push(successor.writer.next_epoch());
            }
        }
        PendingEpochs::submit(self.storage, epochs).wait()?;
        for successor in self.successors {
            successor.writer.close()?;
        }
        Ok(())
    }
}

/// The changes of a stream, none at first.
pub(super) fn changes_of<'a>(
    timers: &'a mut BTreeMap<String, TimerChanges>,
    stream: &str,
    domain: TimeDomain,
) -> &'a mut TimerChanges {
    let changes = timers.entry(stream.to_owned());
    changes.or_insert_with(|| TimerChanges {
        stream: stream.to_owned(),
        domain,
        removed: PendingTimers::default(),
        set: PendingTimers::default(),
        pending: 0,
    })
}

/// Puts the timers of a stream of the system's clock in the order of their keys.
pub(super) fn sort_by_key(timers: &mut PendingTimers) {
    let mut in_order: Vec<_> = timers.iter().collect();
    in_order.sort_unstable_by_key(|(key, _)| *key);
    let mut sorted = PendingTimers::default();
    for (key, times) in in_order {
        sorted.push(key, times);
    }
    *timers = sorted;
}

/// A page of timers of one clock: of each its stream, key and times.
pub(super) type TimerPage = [(String, Vec<u8>, TimerTimes)];

/// Reads all timers of one clock of a partition, page by page, in the order in which they fire.
pub(super) fn for_each_timer_page(
    storage: &dyn Storage,
    partition: PartitionId,
    domain: TimeDomain,
    limit: ScanLimit,
    mut take: impl FnMut(&TimerPage) -> Result<(), RepartitionError>,
) -> Result<(), RepartitionError> {
    let mut behind: Option<(String, Vec<u8>, TimerTimes)> = None;
    loop {
        let mut page = Vec::new();
        let visit = |timer: TimerKey<'_>, times| {
            page.push((timer.stream.to_owned(), timer.key.to_vec(), times));
        };
        let from = behind.as_mut().map(|(stream, key, times)| {
            // The least place behind the last one.
            key.push(0);
            TimerKey {
                domain,
                trigger_time: times.trigger_time,
                stream,
                key,
            }
        });
        let has_more =
            timer_rows::scan_timers(storage, partition, domain, from.as_ref(), limit, visit)?;
        take(&page)?;
        behind = page.pop();
        if !has_more || behind.is_none() {
            return Ok(());
        }
    }
}

/// The position of the slowest of a lane's reader and the others that read from its producer; `None` where one
/// of them has read nothing.
fn slowest(
    storage: &dyn Storage,
    lane: LaneId,
    others: &[PartitionId],
) -> Result<Option<FrontierAdvance>, StorageError> {
    let mut slowest = rows::read_frontier(storage, lane)?;
    for reader in others {
        let reader = *reader;
        let at = rows::read_frontier(storage, LaneId { reader, ..lane })?;
        let behind = |known: &FrontierAdvance| {
            at.filter(|at| (at.epoch, at.index) < (known.epoch, known.index))
                .unwrap_or(*known)
        };
        slowest = slowest.as_ref().filter(|_| at.is_some()).map(behind);
    }
    Ok(slowest)
}
