//! What a component says of itself, checked: names that can be shown and told apart, counts that
//! columns can point to.

use std::collections::BTreeSet;

use crate::guest::bindings::exports::tidelock::computation::computation as contract;
use crate::types::batch::{
    ComputationKind, Description, StateDeclaration, TimeDomain, TimerDeclaration,
};

/// How many inputs, outputs, states or timers a component may declare.
const NAMES_MAX: usize = 1_000;
/// The longest name or format, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Checks a description and takes it over.
///
/// # Errors
///
/// What is wrong, as a phrase.
pub(super) fn take_description(described: contract::Description) -> Result<Description, String> {
    let description = Description {
        kind: match described.kind {
            contract::Kind::Map => ComputationKind::Map,
            contract::Kind::Transform => ComputationKind::Transform,
        },
        inputs: described.inputs,
        outputs: described.outputs,
        states: described.states.into_iter().map(take_state).collect(),
        timers: described.timers.into_iter().map(take_timer).collect(),
    };
    check(&description)?;
    Ok(description)
}

fn take_state(state: contract::StateDeclaration) -> StateDeclaration {
    StateDeclaration {
        name: state.name,
        version: state.version,
        format: state.format,
    }
}

fn take_timer(timer: contract::TimerDeclaration) -> TimerDeclaration {
    TimerDeclaration {
        name: timer.name,
        time: match timer.time {
            contract::TimeDomain::EventTime => TimeDomain::EventTime,
            contract::TimeDomain::SystemTime => TimeDomain::SystemTime,
        },
    }
}

fn check(description: &Description) -> Result<(), String> {
    check_names("input", description.inputs.iter())?;
    check_names("output", description.outputs.iter())?;
    check_names("state", description.states.iter().map(|state| &state.name))?;
    check_names("timer", description.timers.iter().map(|timer| &timer.name))?;
    if description.inputs.is_empty() {
        return Err("it declares no input, so it would never be called".to_owned());
    }
    for state in &description.states {
        check_name("state's format", &state.format)?;
    }
    if description.kind == ComputationKind::Map {
        if let Some(state) = description.states.first() {
            return Err(format!(
                "a map declares the state \"{}\"; only a transform has states",
                state.name
            ));
        }
        if let Some(timer) = description.timers.first() {
            return Err(format!(
                "a map declares the timer \"{}\"; only a transform has timers",
                timer.name
            ));
        }
    }
    Ok(())
}

fn check_names<'a>(
    what: &str,
    names: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), String> {
    if names.len() > NAMES_MAX {
        return Err(format!(
            "it declares {} {what}s, allowed are {NAMES_MAX}",
            names.len()
        ));
    }
    let mut seen = BTreeSet::new();
    for name in names {
        check_name(&format!("{what}'s name"), name)?;
        if !seen.insert(name) {
            return Err(format!("the {what} \"{name}\" is declared twice"));
        }
    }
    Ok(())
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("a {what} is empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "a {what} has {} bytes, allowed are {NAME_BYTES_MAX}",
            name.len()
        ));
    }
    if name
        .chars()
        .any(|character| character.is_control() || character.is_whitespace())
    {
        return Err(format!(
            "a {what}, {name:?}, has a space or a control character"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> contract::Description {
        contract::Description {
            kind: contract::Kind::Transform,
            inputs: vec!["in".to_owned()],
            outputs: vec!["out".to_owned()],
            states: vec![contract::StateDeclaration {
                name: "count".to_owned(),
                version: 1,
                format: "json".to_owned(),
            }],
            timers: vec![contract::TimerDeclaration {
                name: "tick".to_owned(),
                time: contract::TimeDomain::SystemTime,
            }],
        }
    }

    fn check_refused(spoil: impl FnOnce(&mut contract::Description), expected_part: &str) {
        let mut spoiled = described();
        spoil(&mut spoiled);
        let finding = take_description(spoiled).expect_err("the fault is seen");
        assert!(finding.contains(expected_part), "{finding}");
    }

    #[test]
    fn good_description_is_taken_over() {
        let description = take_description(described()).expect("a good description");
        assert_eq!(description.kind, ComputationKind::Transform);
        assert_eq!(description.timers[0].time, TimeDomain::SystemTime);
    }

    #[test]
    fn names_that_can_not_be_shown_or_told_apart_are_refused() {
        check_refused(|it| it.inputs.clear(), "no input");
        check_refused(
            |it| it.inputs.push("in".to_owned()),
            "\"in\" is declared twice",
        );
        check_refused(|it| it.outputs[0].clear(), "output's name is empty");
        check_refused(
            |it| it.states[0].name = "a\nb".to_owned(),
            "control character",
        );
        check_refused(|it| it.states[0].format.clear(), "state's format is empty");
        check_refused(|it| it.timers[0].name = "x".repeat(201), "201 bytes");
        check_refused(
            |it| it.outputs = (0..1_001).map(|n| n.to_string()).collect(),
            "1001 outputs",
        );
    }

    #[test]
    fn a_map_declares_neither_states_nor_timers() {
        check_refused(|it| it.kind = contract::Kind::Map, "the state \"count\"");
        check_refused(
            |it| {
                it.kind = contract::Kind::Map;
                it.states.clear();
            },
            "the timer \"tick\"",
        );
    }
}
