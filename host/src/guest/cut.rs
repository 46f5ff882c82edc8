//! Whether effects depend on where a batch was cut. Purity alone does not promise that they don't:
//! a guest can number the messages of a batch, or keep something from one to the next outside of
//! its state.
//!
//! A batch is cut in two, the state of the first half carried to the second, and what both halves
//! want done is compared with what the whole wanted. Not compared are fuel, prints and log lines,
//! and rows that change nothing.

use std::collections::BTreeMap;
use std::fmt;

use crate::types::batch::{Batch, Effects, StateColumn, Timestamp};

/// The first difference between a batch's effects and those of its halves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutDifference {
    what: String,
    whole: Option<String>,
    halves: Option<String>,
}

impl fmt::Display for CutDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        write!(
            formatter,
            "{} is {} when the batch is whole and {} when it is cut",
            self.what,
            or_none(&self.whole),
            or_none(&self.halves)
        )
    }
}

impl CutDifference {
    /// Where the second run did not even succeed.
    pub(super) fn failed(error: &dyn fmt::Display) -> CutDifference {
        CutDifference {
            what: "the call".to_owned(),
            whole: Some("successful".to_owned()),
            halves: Some(format!("a failure ({error})")),
        }
    }
}

/// The items before `at`, and those from it on. Keys and states are whole in both; whoever runs the
/// second half carries the first half's states there.
pub(super) fn split(batch: &Batch, at: usize) -> (Batch, Batch) {
    let (mut first, mut second) = (batch.clone(), batch.clone());
    let mut at = at;
    let mut cut = |count: usize| {
        let here = at.min(count);
        at -= here;
        here
    };

    let timers = cut(batch.timers.streams.len());
    cut_list(
        &mut first.timers.streams,
        &mut second.timers.streams,
        timers,
    );
    cut_list(&mut first.timers.keys, &mut second.timers.keys, timers);
    cut_list(
        &mut first.timers.trigger_times,
        &mut second.timers.trigger_times,
        timers,
    );
    cut_list(
        &mut first.timers.event_times,
        &mut second.timers.event_times,
        timers,
    );

    let messages = cut(batch.messages.streams.len());
    cut_list(
        &mut first.messages.streams,
        &mut second.messages.streams,
        messages,
    );
    cut_list(
        &mut first.messages.keys,
        &mut second.messages.keys,
        messages,
    );
    cut_list(
        &mut first.messages.event_times,
        &mut second.messages.event_times,
        messages,
    );
    let payloads = &batch.messages.payloads;
    first.messages.payloads = (0..messages).map(|row| payloads.get(row)).collect();
    second.messages.payloads = (messages..payloads.len())
        .map(|row| payloads.get(row))
        .collect();

    let visits = cut(batch.visits.len());
    cut_list(&mut first.visits, &mut second.visits, visits);
    (first, second)
}

fn cut_list<T>(first: &mut Vec<T>, second: &mut Vec<T>, at: usize) {
    first.truncate(at);
    second.drain(..at);
}

/// States as they are after `effects`: what a following batch with the same keys begins with.
pub(super) fn carry(states: &[StateColumn], effects: &Effects) -> Vec<StateColumn> {
    let mut carried = Vec::with_capacity(states.len());
    for (index, state) in states.iter().enumerate() {
        let mut column = StateColumn::default();
        for (key, value) in final_state(state, effects.states.get(index)) {
            column.keys.push(key);
            column.values.push(value);
        }
        carried.push(column);
    }
    carried
}

/// Compares what a batch wanted done whole and in halves.
///
/// # Errors
///
/// The first difference.
pub(super) fn compare(
    batch: &Batch,
    whole: &Effects,
    first: (&Batch, &Effects),
    second: (&Batch, &Effects),
) -> Result<(), CutDifference> {
    compare_outputs(batch, whole, first, second)?;
    let halfway = carry(&batch.states, first.1);
    for (index, state) in batch.states.iter().enumerate() {
        let whole = final_state(state, whole.states.get(index));
        let halves = final_state(&halfway[index], second.1.states.get(index));
        compare_maps(&format!("state {index} of key"), &whole, &halves, |value| {
            text(value)
        })?;
    }
    let mut timers = net_timers(first.1);
    timers.extend(net_timers(second.1));
    compare_maps(
        "timer (key, stream, trigger)",
        &net_timers(whole),
        &timers,
        |set| match set {
            Some(event_time) => format!("set with event time {event_time}"),
            None => "cancelled".to_owned(),
        },
    )
}

fn compare_outputs(
    batch: &Batch,
    whole: &Effects,
    first: (&Batch, &Effects),
    second: (&Batch, &Effects),
) -> Result<(), CutDifference> {
    let whole = outputs(batch, whole);
    let mut halves = outputs(first.0, first.1);
    halves.extend(outputs(second.0, second.1));
    // The parents of the second half count from its own beginning; outputs are compared in order,
    // and an order by parent is the same in both.
    for row in 0..whole.len().max(halves.len()) {
        let (whole, halves) = (whole.get(row), halves.get(row));
        if whole != halves {
            return Err(CutDifference {
                what: format!("output {row}"),
                whole: whole.map(Output::to_string),
                halves: halves.map(Output::to_string),
            });
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Output<'a> {
    stream: u16,
    key: &'a [u8],
    event_time: Option<Timestamp>,
    payload: &'a [u8],
}

impl fmt::Display for Output<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} on stream {} with key {}",
            text(self.payload),
            self.stream,
            text(self.key)
        )
    }
}

/// Outputs in the order of the items that caused them, with the event times that they get.
fn outputs<'a>(batch: &Batch, effects: &'a Effects) -> Vec<Output<'a>> {
    let columns = &effects.outputs;
    let mut rows: Vec<usize> = (0..columns.streams.len()).collect();
    rows.sort_by_key(|row| columns.parents[*row]);
    let output = |row: usize| Output {
        stream: columns.streams[row],
        key: columns.keys.get(row),
        event_time: match columns.event_times.get(row) {
            Some(event_time) => Some(*event_time),
            None => item_event_time(batch, columns.parents[row] as usize),
        },
        payload: columns.payloads.get(row),
    };
    rows.into_iter().map(output).collect()
}

fn item_event_time(batch: &Batch, item: usize) -> Option<Timestamp> {
    let timers = &batch.timers.event_times;
    let from_timer = timers.get(item).copied();
    from_timer.or_else(|| {
        let message = item.checked_sub(timers.len())?;
        batch.messages.event_times.get(message).copied()
    })
}

/// The values after the effects, by key; an empty value in effects deletes.
fn final_state<'a>(
    before: &'a StateColumn,
    effects: Option<&'a StateColumn>,
) -> BTreeMap<u32, &'a [u8]> {
    let mut values: BTreeMap<u32, &[u8]> = rows(before).collect();
    for (key, value) in effects.into_iter().flat_map(rows) {
        match value.is_empty() {
            true => values.remove(&key),
            false => values.insert(key, value),
        };
    }
    values
}

fn rows(state: &StateColumn) -> impl Iterator<Item = (u32, &[u8])> {
    state.keys.iter().copied().zip(state.values.iter())
}

/// What is wanted of each timer: its event time when it is set, `None` when it is cancelled.
fn net_timers(effects: &Effects) -> BTreeMap<(u32, u16, Timestamp), Option<Timestamp>> {
    let (set, cancel) = (&effects.set_timers, &effects.cancel_timers);
    let mut net = BTreeMap::new();
    for (row, key) in set.keys.iter().enumerate() {
        let timer = (*key, set.streams[row], set.trigger_times[row]);
        net.insert(timer, Some(set.event_times[row]));
    }
    for (row, key) in cancel.keys.iter().enumerate() {
        net.insert((*key, cancel.streams[row], cancel.trigger_times[row]), None);
    }
    net
}

fn compare_maps<K, V>(
    what: &str,
    whole: &BTreeMap<K, V>,
    halves: &BTreeMap<K, V>,
    show: impl Fn(&V) -> String,
) -> Result<(), CutDifference>
where
    K: Ord + fmt::Debug,
    V: PartialEq,
{
    for key in whole.keys().chain(halves.keys()) {
        if whole.get(key) != halves.get(key) {
            return Err(CutDifference {
                what: format!("{what} {key:?}"),
                whole: whole.get(key).map(&show),
                halves: halves.get(key).map(&show),
            });
        }
    }
    Ok(())
}

/// How many bytes of a value a difference shows.
const SHOWN_BYTES_MAX: usize = 80;

fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let more = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}{more}\"", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::{MessageColumns, OutputColumns, TimerColumns};
    use crate::types::column::Column;

    fn values(values: &[&[u8]]) -> Column {
        values.iter().copied().collect()
    }

    /// One timer and three messages on two keys, with one state.
    fn batch() -> Batch {
        Batch {
            keys: values(&[b"a", b"b"]),
            states: vec![StateColumn {
                keys: vec![0],
                values: values(&[b"old"]),
            }],
            timers: TimerColumns {
                streams: vec![0],
                keys: vec![1],
                trigger_times: vec![9],
                event_times: vec![9],
            },
            messages: MessageColumns {
                streams: vec![0, 0, 1],
                keys: vec![0, 1, 0],
                event_times: vec![1, 2, 3],
                payloads: values(&[b"x", b"yy", b"z"]),
            },
            visits: vec![1],
            ..Batch::default()
        }
    }

    fn state(keys: &[u32], new: &[&[u8]]) -> StateColumn {
        StateColumn {
            keys: keys.to_vec(),
            values: values(new),
        }
    }

    fn output(parents: &[u32], payloads: &[&[u8]]) -> Effects {
        Effects {
            outputs: OutputColumns {
                streams: vec![0; parents.len()],
                parents: parents.to_vec(),
                keys: payloads.iter().map(|_| b"k".as_slice()).collect(),
                payloads: values(payloads),
                ..OutputColumns::default()
            },
            states: vec![StateColumn::default()],
            ..Effects::default()
        }
    }

    fn differs(whole: &Effects, first: &Effects, second: &Effects) -> Option<String> {
        let batch = batch();
        let (before, after) = split(&batch, 2);
        let difference = compare(&batch, whole, (&before, first), (&after, second)).err();
        difference.map(|difference| difference.to_string())
    }

    #[test]
    fn every_item_is_in_one_half() {
        let batch = batch();
        for at in 0..=batch.item_count() {
            let (first, second) = split(&batch, at);
            assert_eq!((first.item_count(), second.item_count()), (at, 5 - at));
        }
        let (first, second) = split(&batch, 2);
        assert_eq!(first.timers.keys, [1]);
        assert_eq!(first.messages.payloads, values(&[b"x"]));
        assert_eq!(second.messages.payloads, values(&[b"yy", b"z"]));
        assert_eq!(second.visits, [1]);
    }

    #[test]
    fn states_are_carried_and_deleted() {
        let mut effects = output(&[], &[]);
        effects.states[0] = state(&[1, 0], &[b"new", b""]);
        assert_eq!(carry(&batch().states, &effects), [state(&[1], &[b"new"])]);
    }

    #[test]
    fn outputs_are_compared_in_the_order_of_their_parents() {
        let whole = output(&[3, 0], &[b"late", b"early"]);
        let halves = (output(&[0], &[b"early"]), output(&[1], &[b"late"]));
        assert_eq!(differs(&whole, &halves.0, &halves.1), None);
        let other = output(&[1], &[b"other"]);
        let difference = differs(&whole, &halves.0, &other).expect("they differ");
        assert!(
            difference.starts_with("output 1 is \"late\""),
            "{difference}"
        );
        let difference = differs(&whole, &halves.0, &output(&[], &[])).expect("they differ");
        assert!(difference.ends_with("none when it is cut"), "{difference}");
    }

    #[test]
    fn states_are_compared_by_what_they_end_as() {
        let mut whole = output(&[], &[]);
        whole.states[0] = state(&[0, 1], &[b"2", b"1"]);
        let (mut first, mut second) = (output(&[], &[]), output(&[], &[]));
        first.states[0] = state(&[0, 1], &[b"1", b"1"]);
        second.states[0] = state(&[0], &[b"2"]);
        assert_eq!(differs(&whole, &first, &second), None);
        second.states[0] = state(&[0], &[b"3"]);
        let difference = differs(&whole, &first, &second).expect("they differ");
        assert!(
            difference.starts_with("state 0 of key 0 is \"2\""),
            "{difference}"
        );
    }

    #[test]
    fn the_last_word_on_a_timer_counts() {
        let set = TimerColumns {
            streams: vec![0],
            keys: vec![0],
            trigger_times: vec![5],
            event_times: vec![1],
        };
        let (mut first, mut second, mut whole) =
            (output(&[], &[]), output(&[], &[]), output(&[], &[]));
        first.set_timers = set.clone();
        second.cancel_timers = TimerColumns {
            event_times: Vec::new(),
            ..set
        };
        whole.cancel_timers = second.cancel_timers.clone();
        assert_eq!(differs(&whole, &first, &second), None);
        assert!(differs(&first, &second, &output(&[], &[])).is_some());
    }
}
