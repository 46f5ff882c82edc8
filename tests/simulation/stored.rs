//! What storage holds between two runs, against the model: states and timers.

use std::collections::{BTreeMap, BTreeSet};

use guest_behaviours::trace;
use tidelock::storage::scan::ScanLimit;
use tidelock::storage::timer_keys::TimerKey;
use tidelock::storage::{rows, timer_rows};
use tidelock::types::batch::TimeDomain;
use tidelock::types::epoch::StoredState;
use tidelock::types::timer::TimerTimes;

use crate::ages::Ages;
use crate::checkers::{Checker, Evidence, Finding};
use crate::replay::Replay;
use crate::timer_book::StoredTimers;

/// More states or timers of one partition than a run can make.
const ROWS_MAX: usize = 10_000;

impl Evidence<'_> {
    /// Storage holds for each key what the model comes to, in the partition that has the key and nowhere
    /// else.
    pub(crate) fn compare_states(&self, shape: usize, replay: &Replay<'_>) -> Vec<Finding> {
        let (name, model) = (
            self.graph.head_name(self.graph.shapes[shape].head),
            &replay.model,
        );
        let in_force = self.layouts.in_force(shape);
        let mut findings = Vec::new();
        for (at, state) in trace::STATES.into_iter().enumerate() {
            let mut stored: BTreeMap<Vec<u8>, StoredState> = BTreeMap::new();
            for partition in self.layouts.partitions(shape) {
                let page = rows::scan_states(
                    self.storage,
                    partition,
                    state,
                    b"",
                    ScanLimit::rows(ROWS_MAX),
                );
                let page = page.expect("the store is sound between two runs");
                for (key, stored_state) in page.rows {
                    let owns = self.layouts.place(partition).owns(&key);
                    if !owns || !in_force.contains(&partition) {
                        findings.push(state_finding(format!(
                            "{} has {state} of {}, which is not its own",
                            self.name(partition),
                            key.escape_ascii()
                        )));
                    }
                    stored.insert(key, stored_state);
                }
            }
            let keys = model.tallies.keys().chain(stored.keys());
            for key in keys.collect::<BTreeSet<_>>() {
                let touched = model.touched.get(key).copied().unwrap_or(0);
                let mut owners = in_force.iter();
                let owner = owners.find(|partition| self.layouts.place(**partition).owns(key));
                let ages = owner.map_or_else(Ages::default, |owner| replay.ages(*owner));
                if at < ages.states.len() && ages.is_expired(at, touched) {
                    // Whether its row is still there is the sweep's business.
                    continue;
                }
                let tally = model.tallies.get(key);
                // An empty value is none: its row must be gone, or hold the time alone.
                let expected = tally.map(|tally| tally.to_states()[at].clone());
                let expected = expected.filter(|value| !value.is_empty());
                let found = stored.get(key).filter(|found| !found.value.is_empty());
                if expected.as_ref() != found.map(|found| &found.value) {
                    findings.push(state_finding(format!(
                        "{name}: {state} of {} is {found:?}, the model has {expected:?}",
                        key.escape_ascii()
                    )));
                }
                let has_ttl = ages.states.get(at).is_some_and(Option::is_some);
                if let Some(found) = found.filter(|found| has_ttl && found.touched != touched) {
                    findings.push(state_finding(format!(
                        "{name}: {state} of {} was touched at {touched}, not at {}",
                        key.escape_ascii(),
                        found.touched
                    )));
                }
            }
        }
        findings
    }

    /// Storage holds the timers that the epochs have left.
    pub(crate) fn compare_timers(&self, shape: usize, replay: &Replay<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for partition in self.layouts.partitions(shape) {
            let mut stored = StoredTimers::default();
            for domain in [TimeDomain::EventTime, TimeDomain::SystemTime] {
                let limit = ScanLimit::rows(ROWS_MAX);
                let visit = |timer: TimerKey<'_>, times: TimerTimes| {
                    stored.insert(domain, (timer.stream, timer.key), times, 0);
                };
                let scanned =
                    timer_rows::scan_timers(self.storage, partition, domain, None, limit, visit);
                scanned.expect("the store is sound between two runs");
            }
            let committed = replay
                .committed
                .get(&partition)
                .cloned()
                .unwrap_or_default();
            if let Some(difference) = stored.difference(&committed.stored(0)) {
                findings.push(Finding {
                    checker: Checker::Timers,
                    text: format!("storage of {}: {difference}", self.name(partition)),
                });
            }
        }
        findings
    }
}

fn state_finding(text: String) -> Finding {
    Finding {
        checker: Checker::State,
        text,
    }
}
