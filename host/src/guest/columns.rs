//! Batches to the guest's columns, and effects back: the one file that knows the layout of what
//! crosses the boundary.
//!
//! A batch is lent: its vectors are copied once, as blocks, into the guest's memory. Effects are
//! moved out of what the engine copied, after every column was checked against the batch and the
//! description; nothing else of the host sees them before.

use std::collections::HashMap;

use crate::guest::bindings::exports::tidelock::computation::computation as contract;
use crate::guest::column_fault::{ColumnFault, ColumnName};
use crate::guest::computation::ComputationSettings;
use crate::guest::effect_limits;
use crate::types::batch::{
    Batch, ComputationKind, Description, Effects, LogLevel, LogLine, OutputColumns, StateColumn,
    TimerColumns,
};
use crate::types::column::Column;
use crate::types::key::MESSAGE_KEY_BYTES_MAX;

/// A batch's state columns as the guest gets them; they must outlive the batch that lends them.
pub(super) fn lend_states(batch: &Batch) -> Vec<contract::StateColumnParam<'_>> {
    batch.states.iter().map(lend_state).collect()
}

fn lend_state(state: &StateColumn) -> contract::StateColumnParam<'_> {
    contract::StateColumnParam {
        keys: &state.keys,
        values: lend_column(&state.values),
    }
}

/// A batch as the guest gets it.
pub(super) fn lend_batch<'a>(
    batch: &'a Batch,
    states: &'a [contract::StateColumnParam<'a>],
) -> contract::Batch<'a> {
    contract::Batch {
        watermarks: &batch.watermarks,
        keys: lend_column(&batch.keys),
        states,
        timers: contract::TimersParam {
            streams: &batch.timers.streams,
            keys: &batch.timers.keys,
            trigger_times: &batch.timers.trigger_times,
            event_times: &batch.timers.event_times,
        },
        messages: contract::Messages {
            streams: &batch.messages.streams,
            keys: &batch.messages.keys,
            event_times: &batch.messages.event_times,
            payloads: lend_column(&batch.messages.payloads),
        },
        visits: &batch.visits,
    }
}

fn lend_column(column: &Column) -> contract::ColumnParam<'_> {
    contract::ColumnParam {
        ends: &column.ends,
        bytes: &column.bytes,
    }
}

/// The size of all columns in bytes: what the limit on a call's output counts.
pub(super) fn size_bytes(effects: &contract::Effects) -> usize {
    let column = |column: &contract::ColumnResult| column.bytes.len() + 4 * column.ends.len();
    let timers = |timers: &contract::TimersResult| {
        2 * timers.streams.len()
            + 4 * timers.keys.len()
            + 8 * (timers.trigger_times.len() + timers.event_times.len())
    };
    let outputs = &effects.outputs;
    let states: usize = effects
        .states
        .iter()
        .map(|state| 4 * state.keys.len() + column(&state.values))
        .sum();
    2 * outputs.streams.len()
        + 4 * (outputs.parents.len() + outputs.parent_ends.len())
        + 8 * outputs.event_times.len()
        + column(&outputs.keys)
        + column(&outputs.payloads)
        + states
        + timers(&effects.set_timers)
        + timers(&effects.cancel_timers)
}

/// Checks effects and moves them out of the guest's types. Log lines are kept up to the limits; how many were
/// not is the last line.
///
/// # Errors
///
/// The first contradiction that is found.
pub(super) fn take_effects(
    effects: contract::Effects,
    batch: &Batch,
    description: &Description,
    settings: &ComputationSettings,
) -> Result<Effects, ColumnFault> {
    let outputs = take_outputs(effects.outputs);
    check_outputs(&outputs, batch, description, settings.relaxed_batching)?;

    let states: Vec<StateColumn> = effects.states.into_iter().map(take_state).collect();
    check_states(&states, batch, description)?;

    let set_timers = take_timers(effects.set_timers);
    let cancel_timers = take_timers(effects.cancel_timers);
    check_timers(&set_timers, &cancel_timers, batch, description)?;

    check_log_items(&effects.logs, batch)?;
    let mut logs = effects.logs.into_iter().map(take_log_line).collect();
    effect_limits::bound_logs(&mut logs, &settings.limits);
    Ok(Effects {
        outputs,
        states,
        set_timers,
        cancel_timers,
        logs,
    })
}

fn check_outputs(
    outputs: &OutputColumns,
    batch: &Batch,
    description: &Description,
    may_have_several_parents: bool,
) -> Result<(), ColumnFault> {
    let name = |field| ColumnName::new("outputs", field);
    let count = outputs.streams.len();
    if outputs.parent_ends.is_empty() {
        check_length(name("parents"), outputs.parents.len(), count)?;
    } else if may_have_several_parents {
        check_parents(outputs)?;
    } else {
        return Err(ColumnFault::NotEmpty {
            column: name("parent-ends"),
            found: outputs.parent_ends.len(),
            why: "each output of a computation has exactly one parent, unless its \
                  allow_batching_with_relaxed_guarantees is true in the pipeline file",
        });
    }
    check_length(name("keys"), outputs.keys.len(), count)?;
    check_length(name("payloads"), outputs.payloads.len(), count)?;
    if !outputs.event_times.is_empty() {
        check_length(name("event-times"), outputs.event_times.len(), count)?;
    }
    check_ends(name("keys"), &outputs.keys)?;
    check_ends(name("payloads"), &outputs.payloads)?;
    check_key_lengths(name("keys"), &outputs.keys)?;
    check_indexes(
        name("streams"),
        &outputs.streams,
        description.outputs.len(),
        "declared outputs",
    )?;
    check_indexes(
        name("parents"),
        &outputs.parents,
        batch.item_count(),
        "items in the batch",
    )
}

/// Each output has a run of parents: at least one, rising, so that the last one is the one that the output belongs
/// to in the order, and none is there twice.
fn check_parents(outputs: &OutputColumns) -> Result<(), ColumnFault> {
    let name = |field| ColumnName::new("outputs", field);
    let (parents, ends) = (&outputs.parents, &outputs.parent_ends);
    check_length(name("parent-ends"), ends.len(), outputs.streams.len())?;
    let mut start = 0;
    for (row, end) in ends.iter().enumerate() {
        let (first, behind) = (start as usize, *end as usize);
        if *end <= start || behind > parents.len() {
            return Err(ColumnFault::End {
                column: name("parent-ends"),
                row,
                found: *end,
                least: start.saturating_add(1),
                most: parents.len(),
            });
        }
        let run = &parents[first..behind];
        if let Some(at) = run.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(ColumnFault::ParentsNotRising {
                output: row,
                row: first + at + 1,
                found: run[at + 1],
                before: run[at],
            });
        }
        start = *end;
    }
    check_length(name("parents"), parents.len(), start as usize)
}

fn check_states(
    states: &[StateColumn],
    batch: &Batch,
    description: &Description,
) -> Result<(), ColumnFault> {
    if states.len() != description.states.len() {
        return Err(ColumnFault::StateCount {
            found: states.len(),
            declared: description.states.len(),
        });
    }
    for (index, state) in states.iter().enumerate() {
        let name = |field| ColumnName::of_state(index, field);
        check_length(name("values"), state.values.len(), state.keys.len())?;
        check_ends(name("values"), &state.values)?;
        check_indexes(
            name("keys"),
            &state.keys,
            batch.keys.len(),
            "keys in the batch",
        )?;
        check_keys_once(name("keys"), &state.keys, batch.keys.len())?;
    }
    Ok(())
}

fn check_timers(
    set: &TimerColumns,
    cancel: &TimerColumns,
    batch: &Batch,
    description: &Description,
) -> Result<(), ColumnFault> {
    for (group, timers) in [(SET_TIMERS, set), (CANCEL_TIMERS, cancel)] {
        let count = timers.streams.len();
        if description.kind == ComputationKind::Map && count > 0 {
            return Err(ColumnFault::NotEmpty {
                column: ColumnName::new(group, "streams"),
                found: count,
                why: "a map has no timers",
            });
        }
        check_length(ColumnName::new(group, "keys"), timers.keys.len(), count)?;
        check_length(
            ColumnName::new(group, "trigger-times"),
            timers.trigger_times.len(),
            count,
        )?;
        check_indexes(
            ColumnName::new(group, "streams"),
            &timers.streams,
            description.timers.len(),
            "declared timers",
        )?;
        check_indexes(
            ColumnName::new(group, "keys"),
            &timers.keys,
            batch.keys.len(),
            "keys in the batch",
        )?;
    }
    check_length(
        ColumnName::new(SET_TIMERS, "event-times"),
        set.event_times.len(),
        set.streams.len(),
    )?;
    if !cancel.event_times.is_empty() {
        return Err(ColumnFault::NotEmpty {
            column: ColumnName::new(CANCEL_TIMERS, "event-times"),
            found: cancel.event_times.len(),
            why: "a cancelled timer carries no event time",
        });
    }
    check_timers_once(set, cancel)
}

const SET_TIMERS: &str = "set-timers";
const CANCEL_TIMERS: &str = "cancel-timers";

fn check_log_items(logs: &[contract::LogLine], batch: &Batch) -> Result<(), ColumnFault> {
    let count = batch.item_count();
    for (row, line) in logs.iter().enumerate() {
        if let Some(item) = line.item
            && item as usize >= count
        {
            return Err(ColumnFault::Index {
                column: ColumnName::new("logs", "item"),
                row,
                found: item,
                count,
                what: "items in the batch",
            });
        }
    }
    Ok(())
}

fn check_length(column: ColumnName, found: usize, expected: usize) -> Result<(), ColumnFault> {
    match found == expected {
        true => Ok(()),
        false => Err(ColumnFault::Length {
            column,
            found,
            expected,
        }),
    }
}

fn check_ends(name: ColumnName, values: &Column) -> Result<(), ColumnFault> {
    if values.is_well_formed() {
        return Ok(());
    }
    let most = values.bytes.len();
    let mut least = 0;
    for (row, end) in values.ends.iter().enumerate() {
        if *end < least || *end as usize > most {
            return Err(ColumnFault::End {
                column: name,
                row,
                found: *end,
                least,
                most,
            });
        }
        least = *end;
    }
    Err(ColumnFault::BytesLeft {
        column: name,
        found: most,
        allowed: least,
    })
}

fn check_key_lengths(name: ColumnName, keys: &Column) -> Result<(), ColumnFault> {
    // Few keys, or short ones, need no second look.
    if keys.bytes.len() <= MESSAGE_KEY_BYTES_MAX {
        return Ok(());
    }
    let mut lengths = keys.iter().map(<[u8]>::len).enumerate();
    match lengths.find(|(_, length)| *length > MESSAGE_KEY_BYTES_MAX) {
        None => Ok(()),
        Some((row, found)) => Err(ColumnFault::KeyTooLong {
            column: name,
            row,
            found,
        }),
    }
}

fn check_indexes<I>(
    name: ColumnName,
    indexes: &[I],
    count: usize,
    what: &'static str,
) -> Result<(), ColumnFault>
where
    I: Copy + Ord + Into<u32>,
{
    // The greatest alone decides; the row is looked for only when there is something to report.
    let Some(greatest) = indexes.iter().max() else {
        return Ok(());
    };
    let is_in_range = |index: I| (index.into() as usize) < count;
    if is_in_range(*greatest) {
        return Ok(());
    }
    let row = indexes.iter().position(|index| !is_in_range(*index));
    let row = row.expect("the greatest index is out of range");
    Err(ColumnFault::Index {
        column: name,
        row,
        found: indexes[row].into(),
        count,
        what,
    })
}

fn check_keys_once(name: ColumnName, keys: &[u32], key_count: usize) -> Result<(), ColumnFault> {
    // What an SDK makes is mostly in order, and rising keys are distinct.
    if keys.is_sorted_by(|earlier, later| earlier < later) {
        return Ok(());
    }
    let mut seen = vec![false; key_count];
    for (row, key) in keys.iter().enumerate() {
        if std::mem::replace(&mut seen[*key as usize], true) {
            return Err(ColumnFault::KeyTwice {
                column: name,
                row,
                key: *key,
            });
        }
    }
    Ok(())
}

fn check_timers_once(set: &TimerColumns, cancel: &TimerColumns) -> Result<(), ColumnFault> {
    let mut seen = HashMap::with_capacity(set.streams.len() + cancel.streams.len());
    for (group, timers) in [(SET_TIMERS, set), (CANCEL_TIMERS, cancel)] {
        for (row, key) in timers.keys.iter().enumerate() {
            let timer = (*key, timers.streams[row], timers.trigger_times[row]);
            if let Some((first_group, first_row)) = seen.insert(timer, (group, row)) {
                let (key, stream, trigger_time) = timer;
                return Err(ColumnFault::TimerTwice {
                    group,
                    row,
                    first_group,
                    first_row,
                    key,
                    stream,
                    trigger_time,
                });
            }
        }
    }
    Ok(())
}

fn take_outputs(outputs: contract::Outputs) -> OutputColumns {
    OutputColumns {
        streams: outputs.streams,
        parents: outputs.parents,
        parent_ends: outputs.parent_ends,
        keys: take_column(outputs.keys),
        event_times: outputs.event_times,
        payloads: take_column(outputs.payloads),
    }
}

fn take_state(state: contract::StateColumnResult) -> StateColumn {
    StateColumn {
        keys: state.keys,
        values: take_column(state.values),
    }
}

fn take_timers(timers: contract::TimersResult) -> TimerColumns {
    TimerColumns {
        streams: timers.streams,
        keys: timers.keys,
        trigger_times: timers.trigger_times,
        event_times: timers.event_times,
    }
}

fn take_column(column: contract::ColumnResult) -> Column {
    Column {
        ends: column.ends,
        bytes: column.bytes,
    }
}

fn take_log_line(line: contract::LogLine) -> LogLine {
    LogLine {
        item: line.item,
        level: match line.level {
            contract::Level::Debug => LogLevel::Debug,
            contract::Level::Info => LogLevel::Info,
            contract::Level::Warn => LogLevel::Warn,
            contract::Level::Error => LogLevel::Error,
        },
        text: line.text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::{MessageColumns, StateDeclaration, TimeDomain, TimerDeclaration};
    use crate::types::pipeline::{CallLimits, Grants, InstancePolicy};

    /// Two keys, one due timer, two messages: three items.
    fn batch() -> Batch {
        let values = |values: &[&[u8]]| values.iter().copied().collect::<Column>();
        Batch {
            keys: values(&[b"a", b"b"]),
            states: vec![StateColumn::default()],
            timers: TimerColumns {
                streams: vec![0],
                keys: vec![0],
                trigger_times: vec![1],
                event_times: vec![1],
            },
            messages: MessageColumns {
                streams: vec![0, 0],
                keys: vec![0, 1],
                event_times: vec![1, 2],
                payloads: values(&[b"x", b"y"]),
            },
            ..Batch::default()
        }
    }

    fn description(kind: ComputationKind) -> Description {
        Description {
            kind,
            inputs: vec!["in".to_owned()],
            outputs: vec!["out".to_owned(), "late".to_owned()],
            states: vec![StateDeclaration {
                name: "count".to_owned(),
                version: 1,
                format: "bytes".to_owned(),
            }],
            timers: vec![TimerDeclaration {
                name: "tick".to_owned(),
                time: TimeDomain::EventTime,
            }],
        }
    }

    fn column_of(values: &[&[u8]]) -> contract::ColumnResult {
        let column: Column = values.iter().copied().collect();
        contract::ColumnResult {
            ends: column.ends,
            bytes: column.bytes,
        }
    }

    fn timers(trigger_time: u64, event_times: Vec<u64>) -> contract::TimersResult {
        contract::TimersResult {
            streams: vec![0],
            keys: vec![1],
            trigger_times: vec![trigger_time],
            event_times,
        }
    }

    /// Effects without a fault, with something in every column.
    fn effects() -> contract::Effects {
        contract::Effects {
            outputs: contract::Outputs {
                streams: vec![0, 1],
                parents: vec![0, 2],
                parent_ends: Vec::new(),
                keys: column_of(&[b"k", b"l"]),
                event_times: vec![1, 2],
                payloads: column_of(&[b"first", b""]),
            },
            states: vec![contract::StateColumnResult {
                keys: vec![1, 0],
                values: column_of(&[b"1", b""]),
            }],
            set_timers: timers(10, vec![5]),
            cancel_timers: timers(11, Vec::new()),
            logs: vec![line("hello")],
        }
    }

    fn line(text: &str) -> contract::LogLine {
        contract::LogLine {
            item: Some(2),
            level: contract::Level::Info,
            text: text.to_owned(),
        }
    }

    fn take(effects: contract::Effects, kind: ComputationKind) -> Result<Effects, ColumnFault> {
        take_effects(effects, &batch(), &description(kind), &settings(false))
    }

    fn settings(relaxed_batching: bool) -> ComputationSettings {
        ComputationSettings {
            name: "tried".to_owned(),
            parameters: String::new(),
            grants: Grants::default(),
            limits: CallLimits {
                log_bytes: 10,
                ..CallLimits::default()
            },
            instance: InstancePolicy::Fresh,
            relaxed_batching,
        }
    }

    /// What is made of outputs that name these parents, where they may name several.
    fn take_parents(parents: &[u32], ends: &[u32]) -> Result<Vec<u32>, String> {
        let mut with_parents = effects();
        with_parents.outputs.parents = parents.to_vec();
        with_parents.outputs.parent_ends = ends.to_vec();
        let description = description(ComputationKind::Transform);
        take_effects(with_parents, &batch(), &description, &settings(true))
            .map(|effects| effects.outputs.parents)
            .map_err(|fault| fault.to_string())
    }

    #[test]
    fn b1_runs_of_parents_are_checked() {
        assert_eq!(take_parents(&[0, 2, 1], &[2, 3]), Ok(vec![0, 2, 1]));
        // Without ends, as ever.
        assert_eq!(take_parents(&[0, 2], &[]), Ok(vec![0, 2]));
        let refuse = |parents: &[u32], ends: &[u32], expected: &str| {
            assert_eq!(take_parents(parents, ends), Err(expected.to_owned()));
        };
        refuse(
            &[0, 2],
            &[2],
            "column outputs.parent-ends has 1 rows where 2 are needed",
        );
        refuse(
            &[0, 2],
            &[2, 2],
            "row 1 of column outputs.parent-ends ends at 2, allowed are 3 to 2",
        );
        refuse(
            &[0, 2],
            &[1, 3],
            "row 1 of column outputs.parent-ends ends at 3, allowed are 2 to 2",
        );
        refuse(
            &[0, 1, 2],
            &[1, 2],
            "column outputs.parents has 3 rows where 2 are needed",
        );
        refuse(
            &[0, 1, 1],
            &[1, 3],
            "row 2 of column outputs.parents is 1 behind 1; the parents of output 1 have to rise, so that none is \
             there twice",
        );
        refuse(
            &[2, 0, 1],
            &[2, 3],
            "row 1 of column outputs.parents is 0 behind 2; the parents of output 0 have to rise, so that none is \
             there twice",
        );
        refuse(
            &[0, 3, 1],
            &[2, 3],
            "row 1 of column outputs.parents is 3, allowed is less than 3, the number of items in the batch",
        );
    }

    /// Spoils the effects and compares what the check says of them.
    fn check(spoil: impl FnOnce(&mut contract::Effects), expected: &str) {
        let mut spoiled = effects();
        spoil(&mut spoiled);
        let fault = take(spoiled, ComputationKind::Transform).expect_err("the fault is seen");
        assert_eq!(fault.to_string(), expected);
    }

    #[test]
    fn good_effects_come_out_as_they_went_in() {
        let taken = take(effects(), ComputationKind::Transform).expect("good effects");
        assert_eq!(taken.outputs.parents, [0, 2]);
        assert_eq!(taken.outputs.payloads.get(0), b"first");
        assert_eq!(taken.states[0].keys, [1, 0]);
        assert_eq!(taken.set_timers.event_times, [5]);
        assert_eq!(taken.cancel_timers.trigger_times, [11]);
        assert_eq!(taken.logs[0].text, "hello");
        assert_eq!(
            size_bytes(&effects()),
            4 + 8 + 16 + 10 + 13 + 8 + 9 + 22 + 14
        );
    }

    #[test]
    fn faults_of_outputs_are_named() {
        check(
            |effects| effects.outputs.parent_ends.push(1),
            "column outputs.parent-ends has 1 rows, allowed are none: each output of a computation has exactly one \
             parent, unless its allow_batching_with_relaxed_guarantees is true in the pipeline file",
        );
        check(
            |effects| effects.outputs.streams.truncate(1),
            "column outputs.parents has 2 rows where 1 are needed",
        );
        check(
            |effects| effects.outputs.keys = column_of(&[b"k"]),
            "column outputs.keys has 1 rows where 2 are needed",
        );
        check(
            |effects| effects.outputs.payloads = column_of(&[]),
            "column outputs.payloads has 0 rows where 2 are needed",
        );
        check(
            |effects| effects.outputs.event_times.truncate(1),
            "column outputs.event-times has 1 rows where 2 are needed",
        );
        check(
            |effects| effects.outputs.streams[1] = 2,
            "row 1 of column outputs.streams is 2, allowed is less than 2, the number of declared \
             outputs",
        );
        check(
            |effects| effects.outputs.parents[0] = 3,
            "row 0 of column outputs.parents is 3, allowed is less than 3, the number of items in \
             the batch",
        );
    }

    #[test]
    fn malformed_ends_are_named_by_row() {
        check(
            |effects| effects.outputs.payloads.ends = vec![5, 4],
            "row 1 of column outputs.payloads ends at 4, allowed are 5 to 5",
        );
        check(
            |effects| effects.outputs.keys.ends[0] = 9,
            "row 0 of column outputs.keys ends at 9, allowed are 0 to 2",
        );
        check(
            |effects| effects.outputs.keys.bytes.push(0),
            "column outputs.keys has 3 bytes, allowed are 2, where its last row ends",
        );
    }

    #[test]
    fn a_key_that_is_too_long_to_be_kept_is_a_fault() {
        let (longest, long) = (
            [b'k'; MESSAGE_KEY_BYTES_MAX],
            [b'k'; MESSAGE_KEY_BYTES_MAX + 1],
        );
        let mut good = effects();
        good.outputs.keys = column_of(&[&longest, &longest]);
        take(good, ComputationKind::Transform).expect("keys of the greatest length");
        check(
            |effects| effects.outputs.keys = column_of(&[&longest, &long]),
            "row 1 of column outputs.keys is a key of 32769 bytes, allowed are 32768; use a hash of it \
             as the key",
        );
    }

    #[test]
    fn faults_of_states_are_named() {
        check(
            |effects| effects.states.clear(),
            "there are 0 state columns, allowed are 1, one for each declared state",
        );
        check(
            |effects| effects.states[0].keys.truncate(1),
            "column states[0].values has 2 rows where 1 are needed",
        );
        check(
            |effects| effects.states[0].keys[1] = 2,
            "row 1 of column states[0].keys is 2, allowed is less than 2, the number of keys in \
             the batch",
        );
        check(
            |effects| effects.states[0].keys[1] = 1,
            "row 1 of column states[0].keys is key 1, which an earlier row has; allowed is one \
             row for each key",
        );
    }

    #[test]
    fn faults_of_timers_are_named() {
        check(
            |effects| effects.set_timers.streams[0] = 1,
            "row 0 of column set-timers.streams is 1, allowed is less than 1, the number of \
             declared timers",
        );
        check(
            |effects| effects.cancel_timers.keys[0] = 7,
            "row 0 of column cancel-timers.keys is 7, allowed is less than 2, the number of keys \
             in the batch",
        );
        check(
            |effects| effects.set_timers.trigger_times.clear(),
            "column set-timers.trigger-times has 0 rows where 1 are needed",
        );
        check(
            |effects| effects.set_timers.event_times.clear(),
            "column set-timers.event-times has 0 rows where 1 are needed",
        );
        check(
            |effects| effects.cancel_timers.event_times.push(1),
            "column cancel-timers.event-times has 1 rows, allowed are none: a cancelled timer \
             carries no event time",
        );
        check(
            |effects| effects.cancel_timers.trigger_times[0] = 10,
            "row 0 of cancel-timers names the timer of key 1, stream 0, trigger 10, which row 0 of \
             set-timers names; allowed is one row for each timer over set-timers and cancel-timers",
        );
    }

    #[test]
    fn a_map_has_no_timers() {
        let fault = take(effects(), ComputationKind::Map).expect_err("the fault is seen");
        assert!(fault.to_string().contains("a map has no timers"), "{fault}");
    }

    #[test]
    fn log_lines_point_into_the_batch_and_are_bounded() {
        check(
            |effects| effects.logs[0].item = Some(3),
            "row 0 of column logs.item is 3, allowed is less than 3, the number of items in the \
             batch",
        );
        let mut flooding = effects();
        flooding.logs.extend([line("world"), line("!"), line("")]);
        let logs = take(flooding, ComputationKind::Transform)
            .expect("good effects")
            .logs;
        assert_eq!(logs.len(), 3);
        assert!(logs[2].text.starts_with("2 more lines"), "{}", logs[2].text);
    }

    #[test]
    fn a_lent_batch_has_the_same_columns() {
        let batch = batch();
        let states = lend_states(&batch);
        let lent = lend_batch(&batch, &states);
        assert_eq!(lent.keys.bytes, b"ab");
        assert_eq!(lent.states.len(), 1);
        assert_eq!(lent.timers.trigger_times, [1]);
        assert_eq!(lent.messages.payloads.ends, [1, 2]);
    }
}
