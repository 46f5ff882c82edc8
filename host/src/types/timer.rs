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
}

/// What an epoch does to the timers of one stream. Of a system-time stream one timer stands for each
/// key; of an event-time stream one for each key and trigger time.
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
