//! The timers that stand on a bench, in the order in which they fire.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::bindings::{Effects, TimeDomain, TimerDeclaration};
use crate::timestamp::Timestamp;

/// The shortest delay of a system-time timer, in milliseconds.
const LEAST_DELAY_MS: u64 = 1;

/// A timer that is set and has not fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingTimer {
    /// When it fires: by the watermark, or by the bench's clock.
    pub trigger_time: Timestamp,
    /// The name of its timer stream.
    pub name: String,
    /// Its key.
    pub key: Vec<u8>,
    /// The event time that it carries.
    pub event_time: Timestamp,
    /// Whether it was set at the end of a run, so that it waits for the next one.
    pub waits_for_next_run: bool,
    /// Its timer stream, as the place among the declarations.
    pub(super) stream: u16,
}

impl StandingTimer {
    fn place(&self) -> TimerPlace {
        TimerPlace {
            trigger_time: self.trigger_time.0,
            name: self.name.clone(),
            key: self.key.clone(),
        }
    }
}

/// Where a timer stands among those of its clock, ordered as they fire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TimerPlace {
    pub(super) trigger_time: u64,
    pub(super) name: String,
    pub(super) key: Vec<u8>,
}

/// All timers that stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TimerBook {
    event_time: BTreeMap<TimerPlace, StandingTimer>,
    system_time: BTreeMap<TimerPlace, StandingTimer>,
}

impl TimerBook {
    /// Those that go by event time, then those that go by the clock, each as they fire.
    pub(super) fn iter(&self) -> impl Iterator<Item = &StandingTimer> {
        self.event_time.values().chain(self.system_time.values())
    }

    /// The first timers that are due, at most `limit` and one for each key: they end before the first
    /// that would be a key's second.
    ///
    /// Only timers behind the place `behind` count. It is that of the timer that fired last, so one
    /// that was set at or before the place of its handler's timer waits.
    pub(super) fn due(
        &self,
        domain: TimeDomain,
        until: u64,
        behind: Option<&TimerPlace>,
        limit: usize,
    ) -> Vec<(TimerPlace, StandingTimer)> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = BTreeSet::new();
        (self.of(domain).range((from, Bound::Unbounded)))
            .take_while(|(place, _)| place.trigger_time <= until)
            .filter(|(_, timer)| !timer.waits_for_next_run)
            .take_while(|(place, _)| keys.insert(&place.key))
            .take(limit)
            .map(|(place, timer)| (place.clone(), timer.clone()))
            .collect()
    }

    /// Takes a timer out.
    pub(super) fn remove(&mut self, domain: TimeDomain, place: &TimerPlace) {
        self.of_mut(domain).remove(place);
    }

    /// Sets and cancels what a call asked for; `keys` are those of its batch. What it sets waits for the
    /// next run if `at_end_of_run`.
    pub(super) fn apply(
        &mut self,
        declarations: &[TimerDeclaration],
        keys: &[&[u8]],
        effects: &Effects,
        clock_ms: u64,
        at_end_of_run: bool,
    ) {
        for timers in [&effects.cancel_timers, &effects.set_timers] {
            for index in 0..timers.streams.len() {
                let stream = timers.streams[index];
                let declaration = &declarations[usize::from(stream)];
                let timer = StandingTimer {
                    trigger_time: Timestamp(match declaration.time {
                        TimeDomain::EventTime => timers.trigger_times[index],
                        TimeDomain::SystemTime => {
                            let delay = timers.trigger_times[index].max(LEAST_DELAY_MS);
                            clock_ms.saturating_add(delay)
                        }
                    }),
                    name: declaration.name.clone(),
                    key: keys[timers.keys[index] as usize].to_vec(),
                    event_time: Timestamp(timers.event_times.get(index).copied().unwrap_or(0)),
                    waits_for_next_run: at_end_of_run,
                    stream,
                };
                let standing = self.of_mut(declaration.time);
                match declaration.time {
                    TimeDomain::EventTime => drop(standing.remove(&timer.place())),
                    TimeDomain::SystemTime => {
                        standing
                            .retain(|_, other| other.stream != stream || other.key != timer.key);
                    }
                }
                if !timers.event_times.is_empty() {
                    standing.insert(timer.place(), timer);
                }
            }
        }
    }

    /// The places of the event-time timers that a call set, by the batch's key.
    pub(super) fn places_set<'a>(
        declarations: &'a [TimerDeclaration],
        keys: &'a [&[u8]],
        effects: &'a Effects,
    ) -> impl Iterator<Item = TimerPlace> + 'a {
        let set = &effects.set_timers;
        (0..set.streams.len()).filter_map(move |index| {
            let declaration = &declarations[usize::from(set.streams[index])];
            (declaration.time == TimeDomain::EventTime).then(|| TimerPlace {
                trigger_time: set.trigger_times[index],
                name: declaration.name.clone(),
                key: keys[set.keys[index] as usize].to_vec(),
            })
        })
    }

    /// The least moment at which a timer holds the output watermark.
    pub(super) fn holds_at(&self) -> Option<u64> {
        let event = (self.event_time.values())
            .map(|timer| timer.event_time.min(timer.trigger_time).0)
            .min();
        let system = (self.system_time.values())
            .map(|timer| timer.event_time.0)
            .min();
        event.into_iter().chain(system).min()
    }

    /// Lets timers go that waited for the next run.
    pub(super) fn begin_run(&mut self) {
        let timers = (self.event_time.values_mut()).chain(self.system_time.values_mut());
        timers.for_each(|timer| timer.waits_for_next_run = false);
    }

    fn of(&self, domain: TimeDomain) -> &BTreeMap<TimerPlace, StandingTimer> {
        match domain {
            TimeDomain::EventTime => &self.event_time,
            TimeDomain::SystemTime => &self.system_time,
        }
    }

    fn of_mut(&mut self, domain: TimeDomain) -> &mut BTreeMap<TimerPlace, StandingTimer> {
        match domain {
            TimeDomain::EventTime => &mut self.event_time,
            TimeDomain::SystemTime => &mut self.system_time,
        }
    }
}
