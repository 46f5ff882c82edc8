//! Pending timers: set, not fired, not cancelled.

use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::column::Column;

/// Timers of one stream, as columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingTimers {
    /// The key of each.
    pub keys: Column,
    /// When each fires: by the watermark, or by the host's clock.
    pub trigger_times: Vec<Timestamp>,
    /// The event time that each carries.
    pub event_times: Vec<Timestamp>,
    /// The run in which each does not fire, as it was set when that run's input was at its end
    /// already; 0 for none.
    pub held_in_runs: Vec<u64>,
}

impl PendingTimers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.trigger_times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.trigger_times.is_empty()
    }

    /// Appends one.
    pub fn push(&mut self, key: &[u8], times: TimerTimes) {
        self.keys.push(key);
        self.trigger_times.push(times.trigger_time);
        self.event_times.push(times.event_time);
        self.held_in_runs.push(times.held_in_run);
    }

    /// Key and times of timer `index`.
    ///
    /// # Panics
    ///
    /// When there is no such timer.
    pub fn get(&self, index: usize) -> (&[u8], TimerTimes) {
        let times = TimerTimes {
            trigger_time: self.trigger_times[index],
            event_time: self.event_times[index],
            held_in_run: self.held_in_runs[index],
        };
        (self.keys.get(index), times)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], TimerTimes)> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// What is known of a timer beside its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerTimes {
    /// When it fires.
    pub trigger_time: Timestamp,
    /// The event time that it carries; 0 for none.
    pub event_time: Timestamp,
    /// The run in which it does not fire; 0 for none.
    pub held_in_run: u64,
}

impl TimerTimes {
    /// The moment that the watermark of the outputs may not pass while the timer is pending, where its
    /// place among the timers of its clock does not say so. A timer of event time that fires in its turn,
    /// as the watermark gets there, says so: it holds at its trigger time. One without event time holds
    /// nothing beyond that.
    pub fn hold(&self, domain: TimeDomain) -> Option<Timestamp> {
        let earliest = match (domain, self.event_time) {
            (TimeDomain::SystemTime, 0) => return None,
            (TimeDomain::SystemTime, event_time) => return Some(event_time),
            (TimeDomain::EventTime, 0) => self.trigger_time,
            (TimeDomain::EventTime, event_time) => event_time.min(self.trigger_time),
        };
        let fires_in_turn = self.held_in_run == 0;
        (earliest < self.trigger_time || !fires_in_turn).then_some(earliest)
    }
}

/// What an epoch does to the timers of one stream. Of a system-time stream one timer stands for each
/// key; of an event-time stream one for each key and trigger time. Both lists are in the order of those
/// names, each once: rising keys, or rising trigger times and, where they are equal, keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerChanges {
    /// The timer stream's name, as the component declares it.
    pub stream: String,
    /// The clock that it goes by.
    pub domain: TimeDomain,
    /// Timers that go, exactly as they stood before the epoch: fired, cancelled or replaced.
    pub removed: PendingTimers,
    /// Timers that stand from here on.
    pub set: PendingTimers,
    /// How many timers of the stream are pending behind the epoch, those that it does not change
    /// included.
    pub pending: u64,
}

/// A timer's place in the order in which the timers of one clock fire.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerPlace {
    /// When it fires.
    pub trigger_time: Timestamp,
    /// The name of its stream.
    pub stream: String,
    /// Its key.
    pub key: Vec<u8>,
}

/// A step in which due timers fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerStep {
    /// The clock that has moved.
    pub domain: TimeDomain,
    /// Where it stands: timers for moments up to here are due.
    pub until: Timestamp,
    /// The place of the last timer that fired in the step. What was set at or before it since then waits for the
    /// next one.
    pub behind: TimerPlace,
}

/// What timers that a call sets are set by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerSetting {
    /// The host's clock: what the delay of a system-time timer is counted from.
    pub now: Timestamp,
    /// Whether the run's input is at its end: what is set now waits for the next run.
    pub at_end: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_holds_at_the_earlier_of_trigger_and_event_time() {
        use TimeDomain::{EventTime, SystemTime};
        let hold = |domain, trigger_time, event_time, held_in_run| {
            let times = TimerTimes {
                trigger_time,
                event_time,
                held_in_run,
            };
            times.hold(domain)
        };
        assert_eq!(hold(EventTime, 9, 4, 0), Some(4));
        // Its place among the timers that fire says so.
        assert_eq!(hold(EventTime, 9, 9, 0), None);
        assert_eq!(hold(EventTime, 9, 12, 0), None);
        assert_eq!(hold(EventTime, 9, 0, 0), None);
        // Those that fire do not say so while it does not.
        assert_eq!(hold(EventTime, 9, 12, 3), Some(9));
        assert_eq!(hold(EventTime, 9, 4, 3), Some(4));
        assert_eq!(hold(EventTime, 9, 0, 3), Some(9));
        // The system's clock is another one.
        assert_eq!(hold(SystemTime, 9, 12, 0), Some(12));
        assert_eq!(hold(SystemTime, 9, 0, 3), None);
    }
}
