//! The timers of one transform as they must stand: set, replaced, cancelled and fired one at a time, in
//! the order in which its decided items came. They belong to keys, whichever partition has them.

use std::collections::BTreeMap;

use guest_behaviours::trace::{Fired, TIMERS, TimerWish};
use tidelock::types::batch::{TimeDomain, Timestamp};
use tidelock::types::epoch::EpochCommit;
use tidelock::types::timer::{PendingTimers, TimerPlace, TimerTimes};

use crate::pipeline::domain;

/// A pending timer: clock, trigger time, stream, key.
pub(crate) type TimerName = (TimeDomain, TimerPlace);

/// Pending timers with what is known of them: the event time, and the run in which they do not fire.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TimerBook {
    timers: BTreeMap<TimerName, BookedTimer>,
}

/// What is known of a pending timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BookedTimer {
    /// The event time that it carries.
    pub(crate) event_time: Timestamp,
    /// The run in which it does not fire; 0 for none.
    pub(crate) held_in_run: u64,
    /// Which of all items set it.
    pub(crate) set_by: usize,
}

/// The place of a timer that fires.
pub(crate) fn place_of(fired: &Fired) -> TimerPlace {
    TimerPlace {
        trigger_time: fired.trigger_time,
        stream: fired.stream.clone(),
        key: fired.key.clone(),
    }
}

/// The clock of a timer stream.
pub(crate) fn clock_of(stream: &str) -> Option<TimeDomain> {
    let mut timers = TIMERS.into_iter();
    let (_, time) = timers.find(|(name, _)| *name == stream)?;
    Some(domain(time))
}

impl TimerBook {
    /// Item number `by` of a key wants something of a timer. A delay counts from `now`; a timer that is set
    /// when `held_in_run` is not 0 does not fire in that run.
    pub(crate) fn wish(
        &mut self,
        key: &[u8],
        wish: TimerWish,
        now: Timestamp,
        (run, is_held): (u64, bool),
        by: usize,
    ) {
        let (stream, time) = TIMERS[usize::from(wish.stream)];
        let domain = domain(time);
        let trigger_time = match domain {
            TimeDomain::EventTime => wish.at,
            TimeDomain::SystemTime => now + wish.at.max(1),
        };
        let place = TimerPlace {
            trigger_time,
            stream: stream.to_owned(),
            key: key.to_vec(),
        };
        let standing = match domain {
            TimeDomain::EventTime => self.timers.remove_entry(&(domain, place.clone())),
            TimeDomain::SystemTime => {
                let is_same = |(other, at): &&TimerName| {
                    *other == domain && at.stream == stream && at.key == key
                };
                let standing = self.timers.keys().find(is_same).cloned();
                standing.and_then(|name| self.timers.remove_entry(&name))
            }
        };
        let Some(event_time) = wish.event_time else {
            return;
        };
        let timer = BookedTimer {
            event_time,
            held_in_run: if is_held { run } else { 0 },
            set_by: by,
        };
        // What stands as it is set stands on.
        let is_same = |(name, other): &(TimerName, BookedTimer)| {
            name.1 == place
                && other.event_time == event_time
                && (other.held_in_run == run) == (timer.held_in_run == run)
        };
        let (name, timer) = (standing.filter(is_same)).unwrap_or(((domain, place), timer));
        self.timers.insert(name, timer);
    }

    /// A pending timer.
    pub(crate) fn get(&self, domain: TimeDomain, place: &TimerPlace) -> Option<BookedTimer> {
        self.timers.get(&(domain, place.clone())).copied()
    }

    /// A timer has fired.
    pub(crate) fn remove(&mut self, domain: TimeDomain, place: &TimerPlace) {
        self.timers.remove(&(domain, place.clone()));
    }

    /// The timers of a clock that fire in a run, for some keys, in their order.
    pub(crate) fn firing<'b>(
        &'b self,
        domain: TimeDomain,
        run: u64,
        owns: impl Fn(&[u8]) -> bool + 'b,
    ) -> impl Iterator<Item = (&'b TimerPlace, &'b BookedTimer)> {
        let timers = self.timers.iter();
        timers
            .filter(move |((other, at), timer)| {
                *other == domain && timer.held_in_run != run && owns(&at.key)
            })
            .map(|((_, at), timer)| (at, timer))
    }

    /// The moment that the watermark of the outputs may not pass, by the timers of some keys.
    pub(crate) fn hold(&self, owns: impl Fn(&[u8]) -> bool) -> Timestamp {
        let holds = self.timers.iter().filter(|((_, at), _)| owns(&at.key));
        let holds = holds.map(|((domain, at), timer)| match (domain, timer.event_time) {
            (TimeDomain::SystemTime, 0) => Timestamp::MAX,
            (TimeDomain::SystemTime, event_time) => event_time,
            (TimeDomain::EventTime, 0) => at.trigger_time,
            (TimeDomain::EventTime, event_time) => event_time.min(at.trigger_time),
        });
        holds.min().unwrap_or(Timestamp::MAX)
    }

    /// What is known of the timers of some keys, as storage would know it in a run.
    pub(crate) fn stored(&self, run: u64, owns: impl Fn(&[u8]) -> bool) -> StoredTimers {
        let timers = self.timers.iter().filter(|((_, at), _)| owns(&at.key));
        let timers = timers.map(|((domain, at), timer)| {
            let is_held = timer.held_in_run == run;
            ((*domain, at.clone()), (timer.event_time, is_held))
        });
        StoredTimers(timers.collect())
    }
}

/// Timers as epochs leave them in storage: with the event time, and whether they are held in the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredTimers(BTreeMap<TimerName, (Timestamp, bool)>);

impl StoredTimers {
    /// Another one.
    pub(crate) fn insert(
        &mut self,
        domain: TimeDomain,
        (stream, key): (&str, &[u8]),
        times: TimerTimes,
        run: u64,
    ) {
        let TimerTimes {
            trigger_time,
            event_time,
            held_in_run,
        } = times;
        let name = (domain, place(stream, key, trigger_time));
        self.0.insert(name, (event_time, held_in_run == run));
    }

    /// The first timer that only one of both has, for people.
    pub(crate) fn difference(&self, expected: &StoredTimers) -> Option<String> {
        let names = self.0.keys().chain(expected.0.keys());
        names
            .filter(|name| self.0.get(name) != expected.0.get(name))
            .map(|(domain, at)| {
                let name = (*domain, at.clone());
                format!(
                    "{} of {} at {} is {:?} there and {:?} in the model",
                    at.stream,
                    at.key.escape_ascii(),
                    at.trigger_time,
                    self.0.get(&name),
                    expected.0.get(&name)
                )
            })
            .next()
    }
}

/// What all epochs of a partition have left in storage.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommittedTimers(BTreeMap<TimerName, TimerTimes>);

impl CommittedTimers {
    /// An epoch was decided. Tells what it removes that does not stand.
    pub(crate) fn follow(&mut self, commit: &EpochCommit) -> Option<String> {
        let mut unknown = None;
        for changes in &commit.timers {
            let name = |key: &[u8], times: &TimerTimes| {
                (
                    changes.domain,
                    place(&changes.stream, key, times.trigger_time),
                )
            };
            let all = |timers: &PendingTimers| -> Vec<(TimerName, TimerTimes)> {
                let timers = timers.iter();
                timers
                    .map(|(key, times)| (name(key, &times), times))
                    .collect()
            };
            for (name, _) in all(&changes.removed) {
                if self.0.remove(&name).is_none() {
                    unknown = Some(format!("{name:?}"));
                }
            }
            self.0.extend(all(&changes.set));
        }
        unknown
    }

    /// As they stand in a run.
    pub(crate) fn stored(&self, run: u64) -> StoredTimers {
        let timers = self.0.iter();
        let timers = timers
            .map(|(name, times)| (name.clone(), (times.event_time, times.held_in_run == run)));
        StoredTimers(timers.collect())
    }
}

fn place(stream: &str, key: &[u8], trigger_time: Timestamp) -> TimerPlace {
    TimerPlace {
        trigger_time,
        stream: stream.to_owned(),
        key: key.to_vec(),
    }
}
