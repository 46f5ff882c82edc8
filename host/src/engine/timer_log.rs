//! What epochs that storage may not show yet do to timers: the one that is being computed, and those that
//! are on their way to their decision.
//!
//! **Invariant:** what a read of storage shows, with all these changes made to it again in their order, is
//! what stands now. So it does not matter which of the epochs that read has seen.

use std::collections::{HashMap, VecDeque};

use crate::engine::timer_window::TimerAt;
use crate::types::batch::TimeDomain;
use crate::types::key::BuildKeyHasher;
use crate::types::timer::{PendingTimers, TimerChanges, TimerTimes};

/// A timer stream that a component declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerStream {
    /// Its name.
    pub name: String,
    /// The clock that it goes by.
    pub domain: TimeDomain,
    /// Its place among the declarations.
    pub declared: u16,
    /// How many of its timers are pending.
    pub pending: u64,
}

/// What an epoch makes of one timer.
#[derive(Debug, Clone, Copy)]
struct TimerChange {
    before: Option<TimerTimes>,
    after: Option<TimerTimes>,
}

/// By the timer's name: its place, without a trigger time where one timer stands for each key.
type EpochChanges = HashMap<TimerAt, TimerChange, BuildKeyHasher>;

/// Changes of timers, epoch by epoch.
#[derive(Debug, Default)]
pub struct TimerLog {
    open: EpochChanges,
    /// Oldest first.
    undecided: VecDeque<EpochChanges>,
}

impl TimerLog {
    /// How a timer stands, if an epoch has looked at it: `Some(None)` when it does not.
    pub fn standing(&self, name: &TimerAt) -> Option<Option<TimerTimes>> {
        let epochs = std::iter::once(&self.open).chain(self.undecided.iter().rev());
        let mut changes = epochs.filter_map(|epoch| epoch.get(name));
        changes.next().map(|change| change.after)
    }

    /// The open epoch has found a timer to stand like `before`, and leaves it like `after`.
    pub fn note(&mut self, name: TimerAt, before: Option<TimerTimes>, after: Option<TimerTimes>) {
        let change = self.open.entry(name);
        change.or_insert(TimerChange { before, after }).after = after;
    }

    /// Calls `visit` with each change in the order of the epochs: with the timer's name, how it stood before
    /// the epoch and behind it.
    pub fn replay(&self, mut visit: impl FnMut(&TimerAt, Option<TimerTimes>, Option<TimerTimes>)) {
        for epoch in self.undecided.iter().chain([&self.open]) {
            for (name, change) in epoch {
                if change.before != change.after {
                    visit(name, change.before, change.after);
                }
            }
        }
    }

    /// How many timers the open epoch has looked at.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// About how many bytes the changes of all epochs take in memory, keys that do not lie in place excepted.
    pub fn size_bytes(&self) -> usize {
        let epochs = self.undecided.iter().chain([&self.open]);
        let places: usize = epochs.map(HashMap::capacity).sum();
        places * (size_of::<(TimerAt, TimerChange)>() + 2)
    }

    /// The open epoch's changes for its commit; the next epoch begins. What was set and removed in one epoch
    /// leaves nothing. `streams` are in the order of their names.
    pub fn seal(&mut self, streams: &[TimerStream]) -> Vec<TimerChanges> {
        let open = std::mem::take(&mut self.open);
        let mut changed: Vec<(&TimerAt, &TimerChange)> = (open.iter())
            .filter(|(_, change)| change.before != change.after)
            .collect();
        changed.sort_unstable_by(|(left, _), (right, _)| {
            (left.stream.cmp(&right.stream)).then_with(|| left.cmp(right))
        });
        let of_streams = changed.chunk_by(|(left, _), (right, _)| left.stream == right.stream);
        let sealed = of_streams.map(|changed| {
            let stream = &streams[usize::from(changed[0].0.stream)];
            let mut changes = TimerChanges {
                stream: stream.name.clone(),
                domain: stream.domain,
                removed: PendingTimers::default(),
                set: PendingTimers::default(),
                pending: stream.pending,
            };
            for (name, change) in changed {
                if let Some(times) = change.before {
                    changes.removed.push(&name.key, times);
                }
                if let Some(times) = change.after {
                    changes.set.push(&name.key, times);
                }
            }
            changes
        });
        let sealed = sealed.collect();
        self.undecided.push_back(open);
        sealed
    }

    /// Forgets the sealed epochs but the last `undecided`: every read of storage shows them.
    pub fn shrink(&mut self, undecided: usize) {
        let decided = self.undecided.len().saturating_sub(undecided);
        self.undecided.drain(..decided);
    }
}
