//! How much the effects of one call may hold. What is too much is a fault of the call like any other, so a batch
//! that has it is run in halves until it passes or one item has it alone: each limit is one that a single item can
//! be blamed for. Log lines are the exception, as nothing follows from them: those over the limit are dropped, and
//! that is said.
//!
//! **Cost:** lengths of columns decide. Rows are looked at only where all of them together are more than one may be.

use std::collections::HashMap;

use crate::types::batch::{Batch, Description, Effects, LogLevel, LogLine};
use crate::types::column::Column;
use crate::types::pipeline::CallLimits;

/// How much of a key is shown, in bytes.
const SHOWN_KEY_BYTES_MAX: usize = 64;

/// Effects with more in them than one call may return: of what, how much was found, what is allowed and what to
/// change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitExcess {
    /// Too many outputs.
    #[error(
        "{found} outputs, allowed are {allowed}; emit fewer for one message, or raise `limits.outputs`"
    )]
    Outputs {
        /// How many there are.
        found: usize,
        /// The limit.
        allowed: usize,
    },
    /// An output that is too large.
    #[error(
        "{found_bytes} bytes of key and payload in output {row}, allowed are {allowed_bytes}; cut it into several messages, or raise `limits.message`"
    )]
    Message {
        /// Its place among the call's outputs, from 0.
        row: usize,
        /// Its bytes.
        found_bytes: usize,
        /// The limit in bytes.
        allowed_bytes: usize,
    },
    /// A state value that is too large.
    #[error(
        "{found_bytes} bytes as state {state} of key \"{key}\", allowed are {allowed_bytes}; spread it over several keys or states, or raise `limits.state_value`"
    )]
    StateValue {
        /// The state's name.
        state: String,
        /// The key, for people.
        key: String,
        /// Its bytes.
        found_bytes: usize,
        /// The limit in bytes.
        allowed_bytes: usize,
    },
    /// Too many timers of one key.
    #[error(
        "{found} timers of key \"{key}\", set and cancelled together, allowed are {allowed}; set fewer for one message, such as only the next one, or raise `limits.timers_per_key`"
    )]
    Timers {
        /// The key, for people.
        key: String,
        /// How many rows it has.
        found: usize,
        /// The limit.
        allowed: usize,
    },
}

/// Checks well-formed effects of a batch against the limits.
///
/// # Errors
///
/// The first excess: of outputs, then states, then timers.
pub(super) fn check(
    effects: &Effects,
    batch: &Batch,
    description: &Description,
    limits: &CallLimits,
) -> Result<(), LimitExcess> {
    check_outputs(effects, limits)?;
    check_states(effects, batch, description, limits)?;
    check_timers(effects, batch, limits)
}

fn check_outputs(effects: &Effects, limits: &CallLimits) -> Result<(), LimitExcess> {
    let outputs = &effects.outputs;
    let (found, allowed) = (outputs.streams.len(), limits.outputs);
    if found > allowed {
        return Err(LimitExcess::Outputs { found, allowed });
    }
    let allowed_bytes = limits.message_bytes;
    if outputs.keys.bytes.len() + outputs.payloads.bytes.len() <= allowed_bytes {
        return Ok(());
    }
    let rows = outputs.keys.iter().zip(outputs.payloads.iter());
    let mut sizes = rows
        .map(|(key, payload)| key.len() + payload.len())
        .enumerate();
    match sizes.find(|(_, size)| *size > allowed_bytes) {
        None => Ok(()),
        Some((row, found_bytes)) => Err(LimitExcess::Message {
            row,
            found_bytes,
            allowed_bytes,
        }),
    }
}

fn check_states(
    effects: &Effects,
    batch: &Batch,
    description: &Description,
    limits: &CallLimits,
) -> Result<(), LimitExcess> {
    let allowed_bytes = limits.state_value_bytes;
    for (column, declared) in effects.states.iter().zip(&description.states) {
        if column.values.bytes.len() <= allowed_bytes {
            continue;
        }
        let mut values = column.keys.iter().zip(column.values.iter());
        if let Some((key, value)) = values.find(|(_, value)| value.len() > allowed_bytes) {
            return Err(LimitExcess::StateValue {
                state: declared.name.clone(),
                key: shown_key(&batch.keys, *key),
                found_bytes: value.len(),
                allowed_bytes,
            });
        }
    }
    Ok(())
}

fn check_timers(effects: &Effects, batch: &Batch, limits: &CallLimits) -> Result<(), LimitExcess> {
    let allowed = limits.timers_per_key;
    let (set, cancel) = (&effects.set_timers.keys, &effects.cancel_timers.keys);
    if set.len() + cancel.len() <= allowed {
        return Ok(());
    }
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for key in set.iter().chain(cancel) {
        *counts.entry(*key).or_default() += 1;
    }
    // The same key each time, where there are several.
    let most = counts
        .into_iter()
        .max_by_key(|(key, found)| (*found, std::cmp::Reverse(*key)));
    match most.filter(|(_, found)| *found > allowed) {
        None => Ok(()),
        Some((key, found)) => Err(LimitExcess::Timers {
            key: shown_key(&batch.keys, key),
            found,
            allowed,
        }),
    }
}

fn shown_key(keys: &Column, index: u32) -> String {
    let key = keys.get(index as usize);
    let shown = key[..key.len().min(SHOWN_KEY_BYTES_MAX)].escape_ascii();
    match key.len() > SHOWN_KEY_BYTES_MAX {
        true => format!("{shown}..."),
        false => shown.to_string(),
    }
}

/// Keeps the first log lines, as many as the limits allow; how many were dropped is the last line.
pub(super) fn bound_logs(lines: &mut Vec<LogLine>, limits: &CallLimits) {
    let mut size_bytes = 0;
    let fits = |line: &&LogLine| {
        // Empty lines cost a byte, so that they are bounded too.
        size_bytes += line.text.len().max(1);
        size_bytes <= limits.log_bytes
    };
    let kept = lines.iter().take(limits.log_lines).take_while(fits).count();
    let dropped_count = lines.len() - kept;
    if dropped_count == 0 {
        return;
    }
    lines.truncate(kept);
    let limit = match kept == limits.log_lines {
        true => format!("`log_lines` of {kept}"),
        false => format!("`log` of {} bytes", limits.log_bytes),
    };
    lines.push(LogLine {
        item: None,
        level: LogLevel::Warn,
        text: format!("{dropped_count} more lines, over the limit {limit}"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::{
        ComputationKind, OutputColumns, StateColumn, StateDeclaration, TimerColumns,
    };

    fn description() -> Description {
        let state = |name: &str| StateDeclaration {
            name: name.to_owned(),
            version: 1,
            format: "bytes".to_owned(),
        };
        Description {
            kind: ComputationKind::Transform,
            inputs: Vec::new(),
            outputs: Vec::new(),
            states: vec![state("first"), state("second")],
            timers: Vec::new(),
        }
    }

    fn values(values: &[&[u8]]) -> Column {
        values.iter().copied().collect()
    }

    /// Two outputs of 3 bytes, values of 3 and 2 bytes, 2 timers of key "b" and one of key "a".
    fn effects() -> Effects {
        Effects {
            outputs: OutputColumns {
                streams: vec![0, 0],
                parents: vec![0, 0],
                keys: values(&[b"k", b"kk"]),
                payloads: values(&[b"pp", b"p"]),
                ..OutputColumns::default()
            },
            states: vec![
                StateColumn {
                    keys: vec![0],
                    values: values(&[b"12"]),
                },
                StateColumn {
                    keys: vec![0, 1],
                    values: values(&[b"1", b"123"]),
                },
            ],
            set_timers: TimerColumns {
                keys: vec![1, 0],
                ..TimerColumns::default()
            },
            cancel_timers: TimerColumns {
                keys: vec![1],
                ..TimerColumns::default()
            },
            logs: Vec::new(),
        }
    }

    /// What the limits that hold exactly what the effects have say, once `lower` has lowered one.
    fn check_with(lower: impl FnOnce(&mut CallLimits)) -> Result<(), String> {
        let batch = Batch {
            keys: values(&[b"a", b"b"]),
            ..Batch::default()
        };
        let mut limits = CallLimits {
            outputs: 2,
            message_bytes: 3,
            state_value_bytes: 3,
            timers_per_key: 2,
            ..CallLimits::default()
        };
        lower(&mut limits);
        check(&effects(), &batch, &description(), &limits).map_err(|excess| excess.to_string())
    }

    #[test]
    fn what_a_limit_allows_passes_though_all_rows_together_are_more() {
        assert_eq!(check_with(|_| {}), Ok(()));
    }

    #[test]
    fn each_limit_says_what_was_found_what_is_allowed_and_what_to_change() {
        let check = |lower: fn(&mut CallLimits), expected: &str| {
            assert_eq!(check_with(lower), Err(expected.to_owned()));
        };
        check(
            |limits| limits.outputs = 1,
            "2 outputs, allowed are 1; emit fewer for one message, or raise `limits.outputs`",
        );
        check(
            |limits| limits.message_bytes = 2,
            "3 bytes of key and payload in output 0, allowed are 2; cut it into several messages, or \
             raise `limits.message`",
        );
        check(
            |limits| limits.state_value_bytes = 2,
            "3 bytes as state second of key \"b\", allowed are 2; spread it over several keys or states, \
             or raise `limits.state_value`",
        );
        check(
            |limits| limits.timers_per_key = 1,
            "2 timers of key \"b\", set and cancelled together, allowed are 1; set fewer for one message, \
             such as only the next one, or raise `limits.timers_per_key`",
        );
    }

    #[test]
    fn long_keys_are_shown_cut() {
        let keys = values(&[&[b'\n'; SHOWN_KEY_BYTES_MAX], &[b'x'; 65]]);
        assert_eq!(shown_key(&keys, 0), "\\n".repeat(64));
        assert_eq!(shown_key(&keys, 1), format!("{}...", "x".repeat(64)));
    }

    fn bounded(texts: &[&str], log_bytes: usize, log_lines: usize) -> Vec<String> {
        let line = |text: &&str| LogLine {
            item: None,
            level: LogLevel::Info,
            text: (*text).to_owned(),
        };
        let mut lines: Vec<LogLine> = texts.iter().map(line).collect();
        let limits = CallLimits {
            log_bytes,
            log_lines,
            ..CallLimits::default()
        };
        bound_logs(&mut lines, &limits);
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn log_lines_over_the_limits_are_dropped_and_counted() {
        assert_eq!(bounded(&["a", "bc", ""], 4, 3), ["a", "bc", ""]);
        assert_eq!(
            bounded(&["a", "bc", ""], 3, 3),
            ["a", "bc", "1 more lines, over the limit `log` of 3 bytes"]
        );
        assert_eq!(
            bounded(&["a", "bc", ""], 4, 1),
            ["a", "2 more lines, over the limit `log_lines` of 1"]
        );
    }
}
