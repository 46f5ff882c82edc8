//! The book of a job's pending timers: which stand, which are due, how far they hold the output watermark.
//! The earliest are in memory, the rest is in storage.
//!
//! **Invariant:** what the book answers depends on what was set, cancelled and fired, in that order; never on
//! how much of it is in memory, nor on which epochs storage has decided by then.

mod due;
mod error;
mod reading;
#[cfg(test)]
mod tests;

use crate::engine::timer_log::{TimerLog, TimerStream};
use crate::engine::timer_window::{HoldAt, TimerAt, TimerWindow, Window, WindowLimit};
use crate::storage::timer_keys::TimerKey;
use crate::storage::{Storage, StorageError, timer_rows};
use crate::types::batch::{Effects, TimeDomain, TimerDeclaration, Timestamp};
use crate::types::column::Column;
use crate::types::ids::PartitionId;
use crate::types::small_bytes::SmallBytes;
use crate::types::timer::{TimerChanges, TimerTimes};

pub use due::{DueLimit, DueTimers};
pub use error::TimersError;

/// A name that is greater than that of any stream.
const NAME_BEHIND_ALL: &str = "\u{10ffff}";

/// The least delay of a timer of the system's clock, in milliseconds: it fires behind the epoch that sets it.
const DELAY_MIN: Timestamp = 1;

/// The pending timers of one job.
pub struct Timers {
    partition: PartitionId,
    run: u64,
    /// In the order of their names.
    streams: Vec<TimerStream>,
    /// For each declared stream its place among `streams`.
    ranks: Vec<u16>,
    /// Those that fire in this run, by clock.
    event: TimerWindow<RowTimes>,
    system: TimerWindow<RowTimes>,
    holds: Window<HoldAt, ()>,
    limit: WindowLimit,
    log: TimerLog,
    /// Whether a timer was seen that does not fire in this run: it is in none of the windows of a clock.
    has_held: bool,
}

/// What is known of a timer beside its place.
#[derive(Debug, Clone, Copy)]
struct RowTimes {
    event_time: Timestamp,
    held_in_run: u64,
}

/// A timer that a call sets or cancels.
struct Wish<'a> {
    stream: u16,
    key: &'a [u8],
    /// As the timer is named: 0 where one stands for each key.
    named_trigger_time: Timestamp,
    /// `None`: it is cancelled.
    times: Option<TimerTimes>,
}

impl Timers {
    /// The timers of a partition as its last epoch left them, for a component with these declarations in this
    /// run of the pipeline.
    ///
    /// # Errors
    ///
    /// When timers are pending that the component does not know, or the store fails.
    pub fn open(
        declarations: &[TimerDeclaration],
        partition: PartitionId,
        run: u64,
        limit: WindowLimit,
        storage: &dyn Storage,
    ) -> Result<Timers, TimersError> {
        let declared = |(place, it): (u16, &TimerDeclaration)| TimerStream {
            name: it.name.clone(),
            domain: it.time,
            declared: place,
            pending: 0,
        };
        let mut streams: Vec<TimerStream> = (0..).zip(declarations).map(declared).collect();
        streams.sort_by(|left, right| left.name.cmp(&right.name));
        let mut ranks = vec![0; streams.len()];
        for (rank, stream) in (0..).zip(&streams) {
            ranks[usize::from(stream.declared)] = rank;
        }
        for found in timer_rows::pending_streams(storage, partition)? {
            let (stream, pending) = (found.stream, found.pending);
            let clock = match found.domain {
                TimeDomain::EventTime => "event-time",
                TimeDomain::SystemTime => "system-time",
            };
            match streams.iter_mut().find(|declared| declared.name == stream) {
                Some(declared) if declared.domain == found.domain => declared.pending = pending,
                Some(_) => {
                    return Err(TimersError::OtherClock {
                        stream,
                        partition,
                        pending,
                        clock,
                    });
                }
                None => {
                    return Err(TimersError::Undeclared {
                        stream,
                        partition,
                        pending,
                        clock,
                    });
                }
            }
        }
        let is_empty = |domain| {
            let mut of_clock = streams.iter().filter(|stream| stream.domain == domain);
            of_clock.all(|stream| stream.pending == 0)
        };
        let (event, system) = (
            is_empty(TimeDomain::EventTime),
            is_empty(TimeDomain::SystemTime),
        );
        Ok(Timers {
            partition,
            run,
            streams,
            ranks,
            event: TimerWindow::new(limit, event),
            system: TimerWindow::new(limit, system),
            holds: Window::new(limit, (!(event && system)).then(HoldAt::least)),
            limit,
            log: TimerLog::default(),
            has_held: false,
        })
    }

    /// How many timers are pending.
    pub fn pending(&self) -> u64 {
        self.streams.iter().map(|stream| stream.pending).sum()
    }

    /// How many timers the open epoch has set, cancelled, fired or found unchanged: about 200 bytes each
    /// until it is decided.
    pub fn open_count(&self) -> usize {
        self.log.open_count()
    }

    /// About how many bytes the book takes in memory.
    pub fn size_bytes(&self) -> usize {
        let windows = self.event.size_bytes() + self.system.size_bytes() + self.holds.size_bytes();
        windows + self.log.size_bytes()
    }

    // -------------------------------------------------------------------------- set and cancelled

    /// Sets and cancels timers as the effects of a call with these keys say, which have been checked. A delay
    /// by the system's clock counts from `now`. Timers that are `held` do not fire in this run, as its input
    /// is at its end. Timers that have fired in the same call must be gone by then.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn apply(
        &mut self,
        keys: &Column,
        effects: &Effects,
        now: Timestamp,
        held: bool,
        storage: &dyn Storage,
    ) -> Result<(), StorageError> {
        let mut wishes = Vec::new();
        let (set, cancel) = (&effects.set_timers, &effects.cancel_timers);
        for row in 0..set.streams.len() {
            let stream = self.ranks[usize::from(set.streams[row])];
            let (trigger_time, named_trigger_time) = match self.domain(stream) {
                TimeDomain::EventTime => (set.trigger_times[row], set.trigger_times[row]),
                TimeDomain::SystemTime => {
                    (now.saturating_add(set.trigger_times[row].max(DELAY_MIN)), 0)
                }
            };
            wishes.push(Wish {
                stream,
                key: keys.get(set.keys[row] as usize),
                named_trigger_time,
                times: Some(TimerTimes {
                    trigger_time,
                    event_time: set.event_times[row],
                    held_in_run: if held { self.run } else { 0 },
                }),
            });
        }
        for row in 0..cancel.streams.len() {
            let stream = self.ranks[usize::from(cancel.streams[row])];
            wishes.push(Wish {
                stream,
                key: keys.get(cancel.keys[row] as usize),
                named_trigger_time: match self.domain(stream) {
                    TimeDomain::EventTime => cancel.trigger_times[row],
                    TimeDomain::SystemTime => 0,
                },
                times: None,
            });
        }
        self.has_held |= held && !set.streams.is_empty();
        let standing = self.standing(&wishes, storage)?;
        for (wish, standing) in wishes.iter().zip(standing) {
            let name = wish.name();
            let times = wish.times.map(|times| self.unless_same(times, standing));
            self.change(name, standing, times);
        }
        Ok(())
    }

    /// How the timers stand that a call wants to change.
    fn standing(
        &self,
        wishes: &[Wish<'_>],
        storage: &dyn Storage,
    ) -> Result<Vec<Option<TimerTimes>>, StorageError> {
        let known: Vec<Option<Option<TimerTimes>>> =
            wishes.iter().map(|wish| self.known(wish)).collect();
        let unknown: Vec<TimerKey<'_>> = (wishes.iter().zip(&known))
            .filter(|(_, known)| known.is_none())
            .map(|(wish, _)| TimerKey {
                domain: self.domain(wish.stream),
                trigger_time: wish.named_trigger_time,
                stream: &self.streams[usize::from(wish.stream)].name,
                key: wish.key,
            })
            .collect();
        let read = match unknown.is_empty() {
            true => Vec::new(),
            false => timer_rows::read_timers(storage, self.partition, &unknown)?,
        };
        let mut read = read.into_iter();
        let standing = |known: Option<_>| known.unwrap_or_else(|| read.next().flatten());
        Ok(known.into_iter().map(standing).collect())
    }

    /// How a timer stands, as far as that is known without a look into storage.
    fn known(&self, wish: &Wish<'_>) -> Option<Option<TimerTimes>> {
        if self.streams[usize::from(wish.stream)].pending == 0 {
            return Some(None);
        }
        let name = wish.name();
        if let Some(standing) = self.log.standing(&name) {
            return Some(standing);
        }
        if self.domain(wish.stream) == TimeDomain::SystemTime || !self.event.knows(&name) {
            return None;
        }
        match self.event.get(&name) {
            Some(times) => Some(Some(times.at(name.trigger_time))),
            // What does not fire in this run is not in the window.
            None => (!self.has_held).then_some(None),
        }
    }

    /// The times of a timer that is set where one of its name stands already: the same moments, in the same
    /// run or not, leave it as it is.
    fn unless_same(&self, times: TimerTimes, standing: Option<TimerTimes>) -> TimerTimes {
        let of_run = |times: &TimerTimes| times.held_in_run == self.run;
        let is_same = |standing: &TimerTimes| {
            standing.trigger_time == times.trigger_time
                && standing.event_time == times.event_time
                && of_run(standing) == of_run(&times)
        };
        standing.filter(is_same).unwrap_or(times)
    }

    /// A timer stands like `after` from here on.
    fn change(&mut self, name: TimerAt, before: Option<TimerTimes>, after: Option<TimerTimes>) {
        let (stream, domain) = (usize::from(name.stream), self.domain(name.stream));
        if before != after {
            if let Some(times) = before {
                let at = name.firing_at(times.trigger_time);
                if let Some(moment) = times.hold(domain) {
                    self.holds.remove(&HoldAt {
                        moment,
                        domain,
                        timer: at.clone(),
                    });
                }
                self.window_mut(domain).remove(&at);
                // A job that has lost its partition may find what its successor has set.
                let pending = &mut self.streams[stream].pending;
                *pending = pending.saturating_sub(1);
            }
            if let Some(times) = after {
                let at = name.firing_at(times.trigger_time);
                if let Some(moment) = times.hold(domain) {
                    let hold = HoldAt {
                        moment,
                        domain,
                        timer: at.clone(),
                    };
                    self.holds.insert(hold, ());
                }
                if times.held_in_run != self.run {
                    self.window_mut(domain).insert(at, times.into());
                }
                self.streams[stream].pending += 1;
            }
        }
        self.log.note(name, before, after);
    }

    // --------------------------------------------------------------------------------- the epoch

    /// The open epoch's changes, names rising, for its commit. They count as committed from here on: a job whose
    /// commit is refused ends, and its timers with it.
    pub fn take_changes(&mut self) -> Vec<TimerChanges> {
        self.log.seal(&self.streams)
    }

    /// Frees what is known of epochs that are decided: all whose changes were taken but the last `undecided`.
    pub fn shrink(&mut self, undecided: usize) {
        self.log.shrink(undecided);
    }

    // --------------------------------------------------------------------------------- streams

    fn domain(&self, stream: u16) -> TimeDomain {
        self.streams[usize::from(stream)].domain
    }

    fn rank(&self, name: &str) -> Option<u16> {
        let find = |stream: &TimerStream| stream.name.as_str().cmp(name);
        self.streams
            .binary_search_by(find)
            .ok()
            .map(|rank| rank as u16)
    }

    /// The key of a place to read from.
    fn key<'a>(&'a self, domain: TimeDomain, at: &'a TimerAt) -> TimerKey<'a> {
        let stream = self.streams.get(usize::from(at.stream));
        TimerKey {
            domain,
            trigger_time: at.trigger_time,
            // Behind the last stream there is no name.
            stream: stream.map_or(NAME_BEHIND_ALL, |stream| &stream.name),
            key: &at.key,
        }
    }

    fn window(&self, domain: TimeDomain) -> &TimerWindow<RowTimes> {
        match domain {
            TimeDomain::EventTime => &self.event,
            TimeDomain::SystemTime => &self.system,
        }
    }

    fn window_mut(&mut self, domain: TimeDomain) -> &mut TimerWindow<RowTimes> {
        match domain {
            TimeDomain::EventTime => &mut self.event,
            TimeDomain::SystemTime => &mut self.system,
        }
    }
}

impl Wish<'_> {
    fn name(&self) -> TimerAt {
        TimerAt {
            trigger_time: self.named_trigger_time,
            stream: self.stream,
            key: SmallBytes::new(self.key),
        }
    }
}

impl RowTimes {
    fn at(self, trigger_time: Timestamp) -> TimerTimes {
        TimerTimes {
            trigger_time,
            event_time: self.event_time,
            held_in_run: self.held_in_run,
        }
    }
}

impl From<TimerTimes> for RowTimes {
    fn from(times: TimerTimes) -> RowTimes {
        RowTimes {
            event_time: times.event_time,
            held_in_run: times.held_in_run,
        }
    }
}
