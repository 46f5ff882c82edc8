//! The bytes of timers: in an epoch's entry and in their rows, and what makes them storable.
//!
//! **Invariant:** a timer has the same rows whoever computes them: one in the order of its clock, one by
//! which it holds the output watermark where [`TimerTimes::hold`] says so, one by its name where it
//! goes by the system's clock.

use crate::storage::codec::{
    FORMAT_VERSION, Fields, Finding, NewValue, decode, len_u32, put_bytes, put_column, put_u32,
    put_u64, put_u64s,
};
use crate::storage::timer_keys::{
    self, TIMER_KEY_BYTES, TimerKey, clock_byte, clock_of, timer_stream,
};
use crate::storage::{StorageError, keys};
use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::column::Column;
use crate::types::ids::PartitionId;
use crate::types::timer::{PendingTimers, TimerChanges, TimerTimes};

// ---------------------------------------------------------------------------------- rows

/// A timer that an epoch removes or sets.
#[derive(Clone, Copy)]
struct ChangedTimer<'a> {
    timer: TimerKey<'a>,
    times: TimerTimes,
    is_gone: bool,
}

impl<'a> ChangedTimer<'a> {
    /// What its row of a hold is, where it has one, and whether that goes.
    fn hold(&self) -> Option<((Timestamp, TimerKey<'a>), bool)> {
        let moment = self.times.hold(self.timer.domain)?;
        Some(((moment, self.timer), self.is_gone))
    }
}

/// Calls `emit` with every row of timers that an epoch changes, in the order of their keys, each once.
/// What is both removed and set is set.
pub(super) fn for_each_timer_row(
    partition: PartitionId,
    changes: &[TimerChanges],
    emit: &mut impl FnMut(&[u8], NewValue<'_>),
) {
    let mut changed: Vec<ChangedTimer<'_>> = Vec::new();
    for changes in changes {
        for (timers, is_gone) in [(&changes.removed, true), (&changes.set, false)] {
            changed.extend(timers.iter().map(|(key, times)| ChangedTimer {
                timer: TimerKey {
                    domain: changes.domain,
                    trigger_time: times.trigger_time,
                    stream: &changes.stream,
                    key,
                },
                times,
                is_gone,
            }));
        }
    }
    let (mut key, mut value) = (Vec::with_capacity(128), Vec::with_capacity(32));
    // Of two for one row the one that is set comes first and counts.
    changed.sort_unstable_by_key(|it| (it.timer, it.is_gone));
    let same = |left: &ChangedTimer<'_>, right: &ChangedTimer<'_>| left.timer == right.timer;
    for of_row in changed.chunk_by(same) {
        timer_keys::write_timer(&mut key, partition, &of_row[0].timer);
        put_held_times(&mut value, &of_row[0].times);
        emit_one(&key, &value, of_row[0].is_gone, emit);
    }
    let mut holds: Vec<_> = changed.iter().filter_map(ChangedTimer::hold).collect();
    holds.sort_unstable();
    for of_row in holds.chunk_by(|left, right| left.0 == right.0) {
        let ((moment, timer), is_gone) = of_row[0];
        timer_keys::write_timer_hold(&mut key, partition, moment, &timer);
        emit_one(&key, &[FORMAT_VERSION], is_gone, emit);
    }
    changed.retain(|it| it.timer.domain == TimeDomain::SystemTime);
    changed.sort_unstable_by_key(|it| (it.timer.stream, it.timer.key, it.is_gone));
    let same = |left: &ChangedTimer<'_>, right: &ChangedTimer<'_>| {
        (left.timer.stream, left.timer.key) == (right.timer.stream, right.timer.key)
    };
    for of_row in changed.chunk_by(same) {
        let ChangedTimer { timer, times, .. } = of_row[0];
        timer_keys::write_system_timer(&mut key, partition, timer.stream, timer.key);
        put_held_times(&mut value, &times);
        put_u64(&mut value, times.trigger_time);
        emit_one(&key, &value, of_row[0].is_gone, emit);
    }
    for changes in changes {
        let key = timer_stream(partition, &changes.stream);
        let value = encode_stream(changes.domain, changes.pending);
        emit_one(&key, &value, changes.pending == 0, emit);
    }
}

fn emit_one(key: &[u8], value: &[u8], is_gone: bool, emit: &mut impl FnMut(&[u8], NewValue<'_>)) {
    match is_gone {
        true => emit(key, NewValue::Gone),
        false => emit(key, NewValue::Bytes(value)),
    }
}

/// About how many rows changes of timers become, and how many bytes their keys and values have.
pub(super) fn size_of_rows(changes: &[TimerChanges]) -> (usize, usize, usize) {
    let (mut count, mut key_bytes, mut value_bytes) = (0, 0, 0);
    for changes in changes {
        let timers = changes.removed.len() + changes.set.len();
        let bytes = changes.removed.keys.bytes.len() + changes.set.keys.bytes.len();
        let rows = match changes.domain {
            TimeDomain::EventTime => 2,
            TimeDomain::SystemTime => 3,
        };
        count += rows * timers + 1;
        key_bytes += rows * (bytes + timers * (TIMER_KEY_BYTES + changes.stream.len()));
        value_bytes += rows * changes.set.len() * 18;
    }
    (count, key_bytes, value_bytes)
}

/// Whether changes of timers can be stored.
pub(super) fn check_timers(timers: &[TimerChanges]) -> Result<(), Finding> {
    for changes in timers {
        let stream = &changes.stream;
        if stream.is_empty() || stream.as_bytes().contains(&0) {
            return Err(format!(
                "the timer stream's name {stream:?} is empty or holds a zero byte"
            ));
        }
        for pending in [&changes.removed, &changes.set] {
            check_pending(changes, pending)?;
        }
    }
    if !timers.is_sorted_by(|left, right| left.stream < right.stream) {
        return Err("the names of its timer streams do not rise".to_owned());
    }
    Ok(())
}

fn check_pending(changes: &TimerChanges, pending: &PendingTimers) -> Result<(), Finding> {
    let (stream, count) = (&changes.stream, pending.len());
    let lengths = [
        pending.keys.len(),
        pending.event_times.len(),
        pending.held_in_runs.len(),
    ];
    if lengths != [count; 3] || !pending.keys.is_well_formed() {
        return Err(format!("the columns of timer stream {stream} do not agree"));
    }
    let fit = keys::KEY_BYTES_MAX.saturating_sub(TIMER_KEY_BYTES + stream.len());
    if let Some(key) = pending.keys.iter().find(|key| key.len() > fit) {
        return Err(format!(
            "a key with a timer of stream {stream} is {} bytes long, at most {fit} fit; use a hash \
             of it as the key",
            key.len()
        ));
    }
    let name = |(key, times): (_, TimerTimes)| match changes.domain {
        TimeDomain::EventTime => (times.trigger_time, key),
        TimeDomain::SystemTime => (0, key),
    };
    let names = pending.iter().map(name);
    match names.is_sorted_by(|left, right| left < right) {
        true => Ok(()),
        false => Err(format!("the timers of stream {stream} do not rise")),
    }
}

// --------------------------------------------------------------------------------- values

fn put_held_times(value: &mut Vec<u8>, times: &TimerTimes) {
    value.clear();
    value.push(FORMAT_VERSION);
    put_u64(value, times.event_time);
    put_u64(value, times.held_in_run);
}

/// Event time and held run of a pending timer's row.
pub(super) fn decode_timer(
    partition: PartitionId,
    timer: &TimerKey<'_>,
    value: &[u8],
) -> Result<TimerTimes, StorageError> {
    let what = || {
        format!(
            "a timer of stream {} of partition {partition}",
            timer.stream
        )
    };
    decode(what, value, |fields| {
        Ok(TimerTimes {
            trigger_time: timer.trigger_time,
            event_time: fields.u64()?,
            held_in_run: fields.u64()?,
        })
    })
}

/// All times of the timer that stands for a key by the system's clock.
pub(super) fn decode_system_timer(
    partition: PartitionId,
    stream: &str,
    value: &[u8],
) -> Result<TimerTimes, StorageError> {
    let what = || format!("a timer of stream {stream} of partition {partition}");
    decode(what, value, |fields| {
        Ok(TimerTimes {
            event_time: fields.u64()?,
            held_in_run: fields.u64()?,
            trigger_time: fields.u64()?,
        })
    })
}

/// Whether a row of a hold, which has nothing to say, is of a format that this release knows.
pub(super) fn check_timer_hold(partition: PartitionId, value: &[u8]) -> Result<(), StorageError> {
    let what = || format!("a hold of a timer of partition {partition}");
    decode(what, value, |_| Ok(()))
}

fn encode_stream(domain: TimeDomain, pending: u64) -> Vec<u8> {
    let mut value = vec![FORMAT_VERSION, clock_byte(domain)];
    put_u64(&mut value, pending);
    value
}

/// The clock of a stream and how many of its timers are pending.
pub(super) fn decode_stream(
    partition: PartitionId,
    stream: &str,
    value: &[u8],
) -> Result<(TimeDomain, u64), StorageError> {
    let what = || format!("the count of timers of stream {stream} of partition {partition}");
    decode(what, value, |fields| Ok((fields.clock()?, fields.u64()?)))
}

// ------------------------------------------------------------------------------- entries

/// At least the size of timers in an entry, and not much more.
pub(super) fn timers_size_bound(timers: &[TimerChanges]) -> usize {
    let size = |pending: &PendingTimers| pending.keys.size_bytes() + 24 * pending.len();
    let changes = timers.iter();
    changes
        .map(|it| 64 + it.stream.len() + size(&it.removed) + size(&it.set))
        .sum()
}

/// Appends an epoch's changes of timers to its entry.
pub(super) fn put_timers(buffer: &mut Vec<u8>, timers: &[TimerChanges]) {
    put_u32(buffer, len_u32(timers.len()));
    for changes in timers {
        put_bytes(buffer, changes.stream.as_bytes());
        buffer.push(clock_byte(changes.domain));
        put_u64(buffer, changes.pending);
        for pending in [&changes.removed, &changes.set] {
            put_u32(buffer, len_u32(pending.len()));
            put_column(buffer, &pending.keys);
            put_u64s(buffer, &pending.trigger_times);
            put_u64s(buffer, &pending.event_times);
            // Next to no timer is held.
            let are_held = pending.held_in_runs.iter().any(|run| *run != 0);
            buffer.push(u8::from(are_held));
            if are_held {
                put_u64s(buffer, &pending.held_in_runs);
            }
        }
    }
}

impl Fields<'_> {
    /// An epoch's changes of timers.
    pub(super) fn timers(&mut self) -> Result<Vec<TimerChanges>, Finding> {
        self.many(31, |fields| {
            Ok(TimerChanges {
                stream: fields.text()?,
                domain: fields.clock()?,
                pending: fields.u64()?,
                removed: fields.pending_timers()?,
                set: fields.pending_timers()?,
            })
        })
    }

    fn pending_timers(&mut self) -> Result<PendingTimers, Finding> {
        let count = self.u32()? as usize;
        let keys: Column = self.column(count)?;
        Ok(PendingTimers {
            keys,
            trigger_times: self.u64s(count)?,
            event_times: self.u64s(count)?,
            held_in_runs: match self.u8()? {
                0 => vec![0; count],
                _ => self.u64s(count)?,
            },
        })
    }

    fn clock(&mut self) -> Result<TimeDomain, Finding> {
        let clock = self.u8()?;
        clock_of(clock).ok_or_else(|| format!("there is no clock {clock}"))
    }
}
