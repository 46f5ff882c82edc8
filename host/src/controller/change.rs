//! What differs between the last run of a pipeline and the one that is about to begin.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::controller::registry::Intent;
use crate::controller::registry::rows::{KnownComputation, KnownNodes, NodeRow};
use crate::types::batch::{ComputationKind, TimeDomain};

/// One difference between the last run and this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What has changed: "parameters of computation delays".
    pub what: String,
    /// The value of the last run.
    pub was: String,
    /// The value now.
    pub now: String,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { what, was, now } = self;
        write!(formatter, "{what}: was {was}, now {now}")
    }
}

/// The changes, each on a line of its own.
pub(super) fn lines(changes: &[Change]) -> String {
    let lines: Vec<String> = changes.iter().map(|change| format!("  {change}")).collect();
    lines.join("\n")
}

/// Every difference that needs a person's word. What was never there before is none.
pub(super) fn changes(known: &KnownNodes, intent: &Intent) -> Vec<Change> {
    let mut found = Changes::default();
    for (name, row) in &known.sources {
        let node = format!("source {name}");
        if found.is_there_as_before(&node, row, intent.sources.contains_key(name)) {
            found.compare(node, &row.last, &intent.sources[name].kind);
        }
    }
    for (name, row) in &known.computations {
        let node = format!("computation {name}");
        found.compare_partitions(name, row, intent);
        if !found.is_there_as_before(&node, row, intent.computations.contains_key(name)) {
            continue;
        }
        let (was, now) = (&row.last, &intent.computations[name]);
        let of = |what: &str| format!("{what} of {node}");
        found.compare(of("kind"), &was.kind.name(), &now.kind.name());
        found.compare(of("component"), &was.digest, &now.digest);
        found.compare(of("parameters"), &was.parameters, &now.parameters);
        found.compare(of("inputs"), &was.inputs.join(", "), &now.inputs.join(", "));
        found.compare(of("timers"), &shown(&was.timers), &shown(&now.timers));
    }
    for (name, row) in &known.sinks {
        let node = format!("sink {name}");
        if found.is_there_as_before(&node, row, intent.sinks.contains_key(name)) {
            found.compare(node, &row.last.identity, &intent.sinks[name].identity);
        }
    }
    found.changes
}

/// Timer streams with their clocks, for people.
fn shown(timers: &BTreeMap<String, TimeDomain>) -> String {
    let timer = |(name, domain): (&String, &TimeDomain)| format!("{name} ({})", domain.name());
    let timers: Vec<String> = timers.iter().map(timer).collect();
    match timers.is_empty() {
        true => "none".to_owned(),
        false => timers.join(", "),
    }
}

/// States whose encoding has another version than their stored values.
pub(super) fn state_version_changes(known: &KnownNodes, intent: &Intent) -> Vec<Change> {
    let mut found = Changes::default();
    for (name, now) in &intent.computations {
        let Some(NodeRow { last: was, .. }) = known.computations.get(name) else {
            continue;
        };
        for (state, encoding) in &now.states {
            let what = format!("version of state {state} of computation {name}");
            let before = was.states.get(state).unwrap_or(encoding);
            found.compare(what, &before.version, &encoding.version);
        }
    }
    found.changes
}

#[derive(Default)]
struct Changes {
    changes: Vec<Change>,
}

impl Changes {
    fn compare(&mut self, what: String, was: &dyn fmt::Display, now: &dyn fmt::Display) {
        let (was, now) = (was.to_string(), now.to_string());
        if was != now {
            self.changes.push(Change { what, was, now });
        }
    }

    /// A transform that had partitions, in the last run or before it left the pipeline, and is to have
    /// another number of them: its states and waiting messages move.
    fn compare_partitions(&mut self, name: &str, row: &NodeRow<KnownComputation>, intent: &Intent) {
        let (was, now) = (row.last.partitions.len(), intent.computations.get(name));
        let now = now.filter(|now| now.kind == ComputationKind::Transform && was > 0);
        if let Some(now) = now {
            let what = format!("partitions of computation {name}");
            self.compare(what, &was, &now.partition_count);
        }
    }

    /// Whether a node was part of the last run and is part of this one; coming and going are
    /// changes themselves.
    fn is_there_as_before<T>(&mut self, node: &str, row: &NodeRow<T>, is_there: bool) -> bool {
        match (row.removed_in, is_there) {
            (None, true) => return true,
            (None, false) => {
                self.compare(
                    node.to_owned(),
                    &"part of the pipeline",
                    &"not in the pipeline",
                );
            }
            (Some(_), false) => {}
            (Some(deployment), true) => {
                let was = format!("removed in deployment {deployment}");
                let now = "part of the pipeline again, without what passed in between";
                self.compare(node.to_owned(), &was, &now);
            }
        }
        false
    }
}
