//! A batch cut into parts, each a run of its items, and what the parts want done put together
//! again, as the whole would have said it.
//!
//! **Invariant:** a part knows nothing of how the batch was cut: it has its own items, the keys that
//! they point to and those keys' states after all items before, and nothing else. So an item that
//! stands alone makes the same call whatever batch it came in.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::guest::cut_difference::item_event_time;
use crate::guest::effect_limits;
use crate::types::batch::{
    Batch, Description, Effects, LogLine, MessageColumns, OutputColumns, StateColumn, TimeDomain,
    TimerColumns, Timestamp,
};
use crate::types::column::Column;
use crate::types::pipeline::CallLimits;

/// A batch that is run part by part, in the order of its items.
pub(super) struct CutBatch<'a> {
    batch: &'a Batch,
    description: &'a Description,
    /// For each declared state the values that the batch came with, by key.
    states: Vec<BTreeMap<u32, &'a [u8]>>,
    /// For each declared state the values that the parts so far gave, by key; empty ones delete.
    changes: Vec<BTreeMap<u32, Vec<u8>>>,
    outputs: OutputColumns,
    timers: BTreeMap<TimerName, TimerWord>,
    logs: Vec<LogLine>,
    size_bytes: usize,
}

/// One run of a batch's items, as a batch of its own.
pub(super) struct Part {
    /// What the guest is called with.
    pub(super) batch: Batch,
    /// For each of its keys the key's index in the whole batch; rising.
    keys: Vec<u32>,
    first_item: u32,
}

/// What a timer is known by in its computation: key, timer stream, and the trigger time unless the
/// stream goes by the system's clock, where one timer stands for each key.
type TimerName = (u32, u16, Option<Timestamp>);

/// The last word on a timer.
enum TimerWord {
    Set {
        trigger_time: Timestamp,
        event_time: Timestamp,
    },
    Cancel {
        trigger_time: Timestamp,
    },
}

impl<'a> CutBatch<'a> {
    pub(super) fn new(batch: &'a Batch, description: &'a Description) -> CutBatch<'a> {
        let by_key = |state: &'a StateColumn| -> BTreeMap<u32, &'a [u8]> {
            state
                .keys
                .iter()
                .copied()
                .zip(state.values.iter())
                .collect()
        };
        CutBatch {
            batch,
            description,
            states: batch.states.iter().map(by_key).collect(),
            changes: vec![BTreeMap::new(); batch.states.len()],
            outputs: OutputColumns::default(),
            timers: BTreeMap::new(),
            logs: Vec::new(),
            size_bytes: 0,
        }
    }

    /// Bytes of all that the parts so far want done.
    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// These items with their keys and the states that the parts so far left behind.
    pub(super) fn part(&self, items: Range<usize>) -> Part {
        let (timers, messages) = (&self.batch.timers, &self.batch.messages);
        let timer_count = timers.streams.len();
        let first_visit = timer_count + messages.streams.len();
        let of_timers = within(&items, 0..timer_count);
        let of_messages = within(&items, timer_count..first_visit);
        let of_visits = within(&items, first_visit..self.batch.item_count());

        let key_columns = [
            &timers.keys[of_timers.clone()],
            &messages.keys[of_messages.clone()],
            &self.batch.visits[of_visits.clone()],
        ];
        let mut keys = key_columns.concat();
        keys.sort_unstable();
        keys.dedup();
        let [timer_keys, message_keys, visits] = key_columns.map(|column| {
            let index = |key: &u32| keys.binary_search(key).expect("collected above") as u32;
            column.iter().map(index).collect::<Vec<u32>>()
        });
        let payloads = of_messages.clone().map(|row| messages.payloads.get(row));
        let batch = Batch {
            watermarks: self.batch.watermarks.clone(),
            keys: keys
                .iter()
                .map(|key| self.batch.keys.get(*key as usize))
                .collect(),
            states: self.states_of(&keys),
            timers: TimerColumns {
                streams: timers.streams[of_timers.clone()].to_vec(),
                keys: timer_keys,
                trigger_times: timers.trigger_times[of_timers.clone()].to_vec(),
                event_times: timers.event_times[of_timers].to_vec(),
            },
            messages: MessageColumns {
                streams: messages.streams[of_messages.clone()].to_vec(),
                keys: message_keys,
                event_times: messages.event_times[of_messages].to_vec(),
                payloads: payloads.collect(),
            },
            visits,
        };
        Part {
            batch,
            keys,
            first_item: items.start as u32,
        }
    }

    fn states_of(&self, keys: &[u32]) -> Vec<StateColumn> {
        let mut columns = vec![StateColumn::default(); self.states.len()];
        for (state, column) in columns.iter_mut().enumerate() {
            for (index, key) in (0..).zip(keys) {
                let changed = self.changes[state].get(key).map(Vec::as_slice);
                let before = || self.states[state].get(key).copied();
                match changed.or_else(before) {
                    None | Some([]) => {}
                    Some(value) => {
                        column.keys.push(index);
                        column.values.push(value);
                    }
                }
            }
        }
        columns
    }

    /// Takes in what the next part wants done. It has been checked against the part.
    pub(super) fn add(&mut self, part: &Part, effects: Effects) {
        self.size_bytes += size_bytes(&effects);
        self.add_outputs(part, &effects.outputs);
        for (changes, column) in self.changes.iter_mut().zip(&effects.states) {
            for (key, value) in column.keys.iter().zip(column.values.iter()) {
                changes.insert(part.keys[*key as usize], value.to_vec());
            }
        }
        self.add_timers(part, &effects.set_timers, &effects.cancel_timers);
        self.logs
            .extend(effects.logs.into_iter().map(|line| LogLine {
                item: line.item.map(|item| part.first_item + item),
                ..line
            }));
    }

    fn add_outputs(&mut self, part: &Part, outputs: &OutputColumns) {
        let into = &mut self.outputs;
        let earlier_count = into.streams.len();
        add_parent_ends(into, outputs);
        let parents = outputs.parents.iter().map(|item| part.first_item + item);
        into.parents.extend(parents);
        into.streams.extend(&outputs.streams);
        append(&mut into.keys, &outputs.keys);
        append(&mut into.payloads, &outputs.payloads);

        // No event times at all stand for those of the parents, so they are spelled out as soon as
        // one part has its own.
        if into.event_times.is_empty() && outputs.event_times.is_empty() {
            return;
        }
        // Visits have no event time to hand on.
        let batch = self.batch;
        let event_time =
            |parent: &u32| item_event_time(batch, *parent as usize).unwrap_or_default();
        let inherit = |into: &mut OutputColumns, up_to: usize| {
            for output in into.event_times.len()..up_to {
                let of_parents = into.parents_of(output).iter().map(event_time);
                let least = of_parents.min().unwrap_or_default();
                into.event_times.push(least);
            }
        };
        inherit(into, earlier_count);
        into.event_times.extend(&outputs.event_times);
        inherit(into, into.streams.len());
    }

    fn add_timers(&mut self, part: &Part, set: &TimerColumns, cancel: &TimerColumns) {
        for (row, stream) in set.streams.iter().enumerate() {
            let (key, trigger_time) = (set.keys[row], set.trigger_times[row]);
            let name = self.timer_name(part, key, *stream, trigger_time);
            let event_time = set.event_times[row];
            self.timers.insert(
                name,
                TimerWord::Set {
                    trigger_time,
                    event_time,
                },
            );
        }
        for (row, stream) in cancel.streams.iter().enumerate() {
            let (key, trigger_time) = (cancel.keys[row], cancel.trigger_times[row]);
            let name = self.timer_name(part, key, *stream, trigger_time);
            self.timers.insert(name, TimerWord::Cancel { trigger_time });
        }
    }

    fn timer_name(&self, part: &Part, key: u32, stream: u16, trigger_time: Timestamp) -> TimerName {
        let named_by_trigger = match self.description.timers[stream as usize].time {
            TimeDomain::EventTime => Some(trigger_time),
            TimeDomain::SystemTime => None,
        };
        (part.keys[key as usize], stream, named_by_trigger)
    }

    /// What all parts want done, with the whole batch's indexes. Each part's log lines were bounded by
    /// themselves; together they may be no more than one call's.
    pub(super) fn finish(mut self, limits: &CallLimits) -> Effects {
        effect_limits::bound_logs(&mut self.logs, limits);
        let state_column = |changes: BTreeMap<u32, Vec<u8>>| StateColumn {
            values: changes.values().map(Vec::as_slice).collect(),
            keys: changes.into_keys().collect(),
        };
        let (mut set, mut cancel) = (TimerColumns::default(), TimerColumns::default());
        for ((key, stream, _), word) in self.timers {
            let (into, trigger_time) = match word {
                TimerWord::Set {
                    trigger_time,
                    event_time,
                } => {
                    set.event_times.push(event_time);
                    (&mut set, trigger_time)
                }
                TimerWord::Cancel { trigger_time } => (&mut cancel, trigger_time),
            };
            into.streams.push(stream);
            into.keys.push(key);
            into.trigger_times.push(trigger_time);
        }
        Effects {
            outputs: self.outputs,
            states: self.changes.into_iter().map(state_column).collect(),
            set_timers: set,
            cancel_timers: cancel,
            logs: self.logs,
        }
    }
}

/// The part of `items` that lies in `section`, counted from the section's beginning.
fn within(items: &Range<usize>, section: Range<usize>) -> Range<usize> {
    let place = |item: usize| item.clamp(section.start, section.end) - section.start;
    place(items.start)..place(items.end)
}

/// Says where the parents of more outputs end, which are not there yet. No ends at all stand for one parent each, so
/// they are spelled out as soon as one part has its own.
fn add_parent_ends(into: &mut OutputColumns, more: &OutputColumns) {
    if into.parent_ends.is_empty() && more.parent_ends.is_empty() {
        return;
    }
    let before = into.parents.len() as u32;
    if into.parent_ends.is_empty() {
        into.parent_ends.extend(1..=before);
    }
    match more.parent_ends.is_empty() {
        true => {
            let after = before + more.parents.len() as u32;
            into.parent_ends.extend(before + 1..=after);
        }
        false => (into.parent_ends).extend(more.parent_ends.iter().map(|end| before + end)),
    }
}

fn append(column: &mut Column, values: &Column) {
    for value in values.iter() {
        column.push(value);
    }
}

/// About what effects take in the host's memory.
fn size_bytes(effects: &Effects) -> usize {
    const ROW_BYTES: usize = 32;
    let outputs = &effects.outputs;
    let column = |column: &Column| column.bytes.len() + column.len() * ROW_BYTES;
    let states = effects.states.iter().map(|state| column(&state.values));
    let timer_count = effects.set_timers.streams.len() + effects.cancel_timers.streams.len();
    let logs = effects.logs.iter().map(|line| line.text.len() + ROW_BYTES);
    column(&outputs.keys)
        + column(&outputs.payloads)
        + states.sum::<usize>()
        + timer_count * ROW_BYTES
        + logs.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::{ComputationKind, LogLevel, TimerDeclaration};

    fn values(values: &[&[u8]]) -> Column {
        values.iter().copied().collect()
    }

    fn limits() -> CallLimits {
        CallLimits {
            log_bytes: 10,
            ..CallLimits::default()
        }
    }

    fn state(keys: &[u32], new: &[&[u8]]) -> StateColumn {
        StateColumn {
            keys: keys.to_vec(),
            values: values(new),
        }
    }

    /// One timer, three messages and a visit on three keys, with one state.
    fn batch() -> Batch {
        Batch {
            watermarks: vec![4],
            keys: values(&[b"a", b"b", b"c"]),
            states: vec![state(&[0, 2], &[b"old", b"other"])],
            timers: TimerColumns {
                streams: vec![0],
                keys: vec![1],
                trigger_times: vec![9],
                event_times: vec![9],
            },
            messages: MessageColumns {
                streams: vec![0, 0, 1],
                keys: vec![0, 2, 0],
                event_times: vec![1, 2, 3],
                payloads: values(&[b"x", b"yy", b"z"]),
            },
            visits: vec![1],
        }
    }

    fn description(time: TimeDomain) -> Description {
        Description {
            kind: ComputationKind::Transform,
            inputs: Vec::new(),
            outputs: Vec::new(),
            states: Vec::new(),
            timers: vec![TimerDeclaration {
                name: "tick".to_owned(),
                time,
            }],
        }
    }

    /// Runs both parts of the batch, cut before item 3, with these effects.
    fn put_together(time: TimeDomain, first: Effects, second: Effects) -> Effects {
        let (batch, description) = (batch(), description(time));
        let mut cut = CutBatch::new(&batch, &description);
        for (items, effects) in [(0..3, first), (3..5, second)] {
            let part = cut.part(items);
            cut.add(&part, effects);
        }
        cut.finish(&limits())
    }

    fn output(parents: &[u32], event_times: &[Timestamp]) -> Effects {
        let names: Vec<String> = parents
            .iter()
            .map(|parent| format!("of {parent}"))
            .collect();
        Effects {
            outputs: OutputColumns {
                streams: vec![0; parents.len()],
                parents: parents.to_vec(),
                keys: names.iter().map(String::as_bytes).collect(),
                payloads: names.iter().map(String::as_bytes).collect(),
                event_times: event_times.to_vec(),
                ..OutputColumns::default()
            },
            ..Effects::default()
        }
    }

    fn states(column: StateColumn) -> Effects {
        Effects {
            states: vec![column],
            ..Effects::default()
        }
    }

    #[test]
    fn every_item_is_in_one_part() {
        let (batch, description) = (batch(), description(TimeDomain::EventTime));
        let cut = CutBatch::new(&batch, &description);
        for at in 0..=5 {
            let (first, second) = (cut.part(0..at), cut.part(at..5));
            assert_eq!(first.batch.item_count(), at);
            assert_eq!(second.batch.item_count(), 5 - at);
        }
        assert_eq!(cut.part(0..5).batch, batch);
        let (first, second) = (cut.part(0..2), cut.part(2..5));
        assert_eq!(first.batch.timers.trigger_times, [9]);
        assert_eq!(first.batch.messages.payloads, values(&[b"x"]));
        assert_eq!(second.batch.messages.payloads, values(&[b"yy", b"z"]));
        assert_eq!(second.batch.watermarks, [4]);
    }

    #[test]
    fn an_item_alone_has_its_own_key_and_state_only() {
        let (batch, description) = (batch(), description(TimeDomain::EventTime));
        let alone = CutBatch::new(&batch, &description).part(2..3).batch;
        assert_eq!(alone.keys, values(&[b"c"]));
        assert_eq!(alone.states, [state(&[0], &[b"other"])]);
        assert_eq!(alone.messages.keys, [0]);
    }

    #[test]
    fn states_are_carried_from_part_to_part_and_the_last_value_stands() {
        let (batch, description) = (batch(), description(TimeDomain::EventTime));
        let mut cut = CutBatch::new(&batch, &description);
        // Keys of the first part: a, b. It deletes a's value and gives b one.
        let first = cut.part(0..2);
        cut.add(&first, states(state(&[0, 1], &[b"", b"new"])));
        let second = cut.part(2..5);
        assert_eq!(second.batch.keys, values(&[b"a", b"b", b"c"]));
        assert_eq!(second.batch.states, [state(&[1, 2], &[b"new", b"other"])]);
        cut.add(&second, states(state(&[1], &[b"newer"])));
        assert_eq!(
            cut.finish(&limits()).states,
            [state(&[0, 1], &[b"", b"newer"])]
        );
    }

    #[test]
    fn outputs_follow_each_other_with_the_batchs_own_items_as_parents() {
        let joined = put_together(
            TimeDomain::EventTime,
            output(&[2, 0], &[]),
            output(&[0], &[]),
        );
        assert_eq!(joined.outputs.parents, [2, 0, 3]);
        assert_eq!(
            joined.outputs.payloads,
            values(&[b"of 2", b"of 0", b"of 0"])
        );
        assert!(joined.outputs.event_times.is_empty());
    }

    #[test]
    fn event_times_are_inherited_where_a_part_gives_none() {
        let check = |first: Effects, second: Effects, expected: &[Timestamp]| {
            let joined = put_together(TimeDomain::EventTime, first, second);
            assert_eq!(joined.outputs.event_times, expected);
        };
        // Items 0, 2 and 3 have the event times 9, 2 and 3.
        check(output(&[0, 2], &[]), output(&[0], &[70]), &[9, 2, 70]);
        check(output(&[0, 2], &[50, 60]), output(&[0], &[]), &[50, 60, 3]);
        check(output(&[], &[]), output(&[0], &[70]), &[70]);
    }

    #[test]
    fn b1_runs_of_parents_are_put_together_with_single_ones() {
        let several = || {
            let mut effects = output(&[0, 1], &[]);
            effects.outputs.parents = vec![0, 1, 1];
            effects.outputs.parent_ends = vec![2, 3];
            effects
        };
        let single = || output(&[0], &[]);
        let check = |first: Effects, second: Effects, parents: &[u32], ends: &[u32]| {
            let joined = put_together(TimeDomain::EventTime, first, second).outputs;
            assert_eq!(
                (&joined.parents[..], &joined.parent_ends[..]),
                (parents, ends)
            );
        };
        // The second part begins with item 3.
        check(several(), single(), &[0, 1, 1, 3], &[2, 3, 4]);
        check(single(), several(), &[0, 3, 4, 4], &[1, 3, 4]);
        check(several(), several(), &[0, 1, 1, 3, 4, 4], &[2, 3, 5, 6]);
        check(single(), single(), &[0, 3], &[]);
        // Items 0, 1 and 3 have the event times 9, 1 and 3.
        let mut dated = single();
        dated.outputs.event_times = vec![70];
        let joined = put_together(TimeDomain::EventTime, several(), dated);
        assert_eq!(joined.outputs.event_times, [1, 1, 70]);
    }

    #[test]
    fn the_last_word_on_a_timer_stands() {
        let timer = |trigger_time| TimerColumns {
            streams: vec![0],
            keys: vec![0],
            trigger_times: vec![trigger_time],
            event_times: vec![1],
        };
        let set = |trigger_time| Effects {
            set_timers: timer(trigger_time),
            ..Effects::default()
        };
        let cancel = |trigger_time| Effects {
            cancel_timers: TimerColumns {
                event_times: Vec::new(),
                ..timer(trigger_time)
            },
            ..Effects::default()
        };
        // Both parts have key a first.
        let joined = put_together(TimeDomain::EventTime, set(5), cancel(5));
        assert_eq!(joined.set_timers, TimerColumns::default());
        assert_eq!(joined.cancel_timers.trigger_times, [5]);
        let joined = put_together(TimeDomain::EventTime, cancel(5), set(5));
        assert_eq!(joined.set_timers, timer(5));
        assert_eq!(joined.cancel_timers, TimerColumns::default());
        let joined = put_together(TimeDomain::EventTime, set(5), set(6));
        assert_eq!(joined.set_timers.trigger_times, [5, 6]);
        let joined = put_together(TimeDomain::SystemTime, set(5), set(6));
        assert_eq!(joined.set_timers, timer(6));
    }

    #[test]
    fn log_lines_speak_of_the_batchs_own_items_and_are_bounded() {
        let logging = |text: &str| Effects {
            logs: vec![LogLine {
                item: Some(1),
                level: LogLevel::Info,
                text: text.to_owned(),
            }],
            ..Effects::default()
        };
        let joined = put_together(TimeDomain::EventTime, logging("early"), logging("late"));
        let items: Vec<_> = joined.logs.iter().map(|line| line.item).collect();
        assert_eq!(items, [Some(1), Some(4)]);
        let joined = put_together(TimeDomain::EventTime, logging("early"), logging("too late"));
        assert_eq!(joined.logs.len(), 2);
        assert!(joined.logs[1].text.starts_with("1 more lines"));
    }
}
