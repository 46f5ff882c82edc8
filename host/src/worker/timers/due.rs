//! Which timers are due, and how far the pending ones hold the output watermark.

use std::collections::HashSet;

use super::Timers;
use crate::engine::timer_window::{First, Side, TimerAt};
use crate::storage::{Storage, StorageError};
use crate::types::batch::{TimeDomain, TimerColumns, Timestamp};
use crate::types::column::Column;
use crate::types::key::BuildKeyHasher;
use crate::types::small_bytes::SmallBytes;
use crate::types::timer::TimerPlace;

/// The timers that fire next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTimers {
    /// Their clock.
    pub domain: TimeDomain,
    /// Their keys, each once.
    pub keys: Column,
    /// One timer for each key, in the order in which they fire.
    pub columns: TimerColumns,
}

impl DueTimers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none: nothing is due any more.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// How many timers fire at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueLimit {
    /// Timers, at least 1.
    pub rows: usize,
    /// Bytes of their columns; one timer is due whatever its size.
    pub bytes: usize,
}

impl Timers {
    // ---------------------------------------------------------------------------------------- due

    /// The first timers of a clock that are due at `until`, behind `behind` if given, at most one for each key:
    /// they end before the first timer whose key is among them. Never none while one is due; perhaps fewer than
    /// the limit allows.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn due(
        &mut self,
        domain: TimeDomain,
        until: Timestamp,
        behind: Option<&TimerPlace>,
        limit: DueLimit,
        storage: &dyn Storage,
    ) -> Result<DueTimers, StorageError> {
        let start = behind.map_or_else(TimerAt::default, |place| self.place_behind(place));
        self.window_mut(domain).start_at(start);
        loop {
            let due = self.due_in_memory(domain, until, limit);
            let window = self.window(domain);
            let is_all = match window.unread(Side::Behind) {
                Some((from, _)) => from.trigger_time > until,
                None => true,
            };
            if is_all || !due.is_empty() {
                return Ok(due);
            }
            self.read_on(domain, Side::Behind, storage)?;
        }
    }

    fn due_in_memory(&self, domain: TimeDomain, until: Timestamp, limit: DueLimit) -> DueTimers {
        let mut due = DueTimers {
            domain,
            keys: Column::default(),
            columns: TimerColumns::default(),
        };
        let mut distinct: HashSet<&[u8], BuildKeyHasher> = HashSet::default();
        let mut size_bytes = 0;
        for (at, times) in self.window(domain).firing() {
            let is_full = due.len() >= limit.rows || !due.is_empty() && size_bytes >= limit.bytes;
            if is_full || at.trigger_time > until || !distinct.insert(&at.key) {
                break;
            }
            size_bytes += at.key.len() + 26;
            due.columns.keys.push(due.keys.len() as u32);
            due.keys.push(&at.key);
            let stream = &self.streams[usize::from(at.stream)];
            due.columns.streams.push(stream.declared);
            due.columns.trigger_times.push(at.trigger_time);
            due.columns.event_times.push(times.event_time);
        }
        due
    }

    /// The first `count` of the timers that were due last have fired: they stand no longer.
    ///
    /// # Panics
    ///
    /// When timers of that clock were set or cancelled since, so that they do not stand any more.
    pub fn fire(&mut self, due: &DueTimers, count: usize) {
        for index in 0..count {
            let at = self.at(due, index);
            let held = self.window(due.domain).get(&at);
            let times = held
                .expect("due timers stand until they fire")
                .at(at.trigger_time);
            let name = match due.domain {
                TimeDomain::EventTime => at,
                TimeDomain::SystemTime => at.firing_at(0),
            };
            self.change(name, Some(times), None);
        }
    }

    /// The place of one of the due timers.
    pub fn place(&self, due: &DueTimers, index: usize) -> TimerPlace {
        let at = self.at(due, index);
        TimerPlace {
            trigger_time: at.trigger_time,
            stream: self.streams[usize::from(at.stream)].name.clone(),
            key: at.key.to_vec(),
        }
    }

    fn at(&self, due: &DueTimers, index: usize) -> TimerAt {
        TimerAt {
            trigger_time: due.columns.trigger_times[index],
            stream: self.ranks[usize::from(due.columns.streams[index])],
            key: SmallBytes::new(due.keys.get(index)),
        }
    }

    /// The least place behind another one, whose stream need not be declared any more.
    fn place_behind(&self, place: &TimerPlace) -> TimerAt {
        let rank = (self.streams).partition_point(|stream| stream.name < place.stream);
        let is_declared = (self.streams.get(rank)).is_some_and(|it| it.name == place.stream);
        let at = TimerAt {
            trigger_time: place.trigger_time,
            stream: rank as u16,
            key: SmallBytes::new(if is_declared { &place.key } else { &[] }),
        };
        if is_declared { at.next() } else { at }
    }

    // --------------------------------------------------------------------------------------- holds

    /// The moment that the watermark of the outputs may not pass: the least of all that pending timers hold it
    /// at. A timer of event time holds at its trigger time or the event time that it carries, one of the system's
    /// clock at the event time.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn holds_at(&mut self, storage: &dyn Storage) -> Result<Option<Timestamp>, StorageError> {
        while let (None, Some(_)) = (self.holds.first(), self.holds.bound()) {
            self.read_holds_on(storage)?;
        }
        let held = self.holds.first().map(|hold| hold.moment);
        let fires = self.first_trigger(TimeDomain::EventTime, storage)?;
        Ok(held.into_iter().chain(fires).min())
    }

    /// When the first timer of the system's clock fires in this run.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn next_system_trigger(
        &mut self,
        storage: &dyn Storage,
    ) -> Result<Option<Timestamp>, StorageError> {
        self.first_trigger(TimeDomain::SystemTime, storage)
    }

    fn first_trigger(
        &mut self,
        domain: TimeDomain,
        storage: &dyn Storage,
    ) -> Result<Option<Timestamp>, StorageError> {
        loop {
            match self.window(domain).first() {
                First::At(at) => return Ok(Some(at.trigger_time)),
                First::None => return Ok(None),
                First::Unread(side) => self.read_on(domain, side, storage)?,
            }
        }
    }
}
