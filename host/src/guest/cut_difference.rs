//! Whether effects depend on where a batch was cut. Purity alone does not promise that they don't:
//! a guest can number the messages of a batch, or keep something from one to the next outside of
//! its state.
//!
//! Compared are the effects of a whole batch and those of its parts, put together (`cut.rs`). Not
//! compared are fuel, prints and log lines, and rows that change nothing.

use std::collections::BTreeMap;
use std::fmt;

use crate::types::batch::{Batch, Effects, StateColumn, Timestamp};

/// The first difference between a batch's effects and those of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutDifference {
    what: String,
    whole: Option<String>,
    parts: Option<String>,
}

impl fmt::Display for CutDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        write!(
            formatter,
            "{} is {} when the batch is whole and {} when it is cut",
            self.what,
            or_none(&self.whole),
            or_none(&self.parts)
        )
    }
}

impl CutDifference {
    /// Where a part did not even succeed.
    pub(super) fn failed(error: &dyn fmt::Display) -> CutDifference {
        CutDifference {
            what: "the call".to_owned(),
            whole: Some("successful".to_owned()),
            parts: Some(format!("a failure ({error})")),
        }
    }

    /// Where an item passed that failed in the whole batch.
    pub(super) fn passed(error: &dyn fmt::Display) -> CutDifference {
        CutDifference {
            what: "the call of an item".to_owned(),
            whole: Some(format!("a failure ({error})")),
            parts: Some("successful".to_owned()),
        }
    }
}

/// Compares what a batch wanted done whole and in parts.
///
/// # Errors
///
/// The first difference.
pub(super) fn compare(
    batch: &Batch,
    whole: &Effects,
    parts: &Effects,
) -> Result<(), CutDifference> {
    compare_outputs(&outputs(batch, whole), &outputs(batch, parts))?;
    for (index, state) in batch.states.iter().enumerate() {
        let whole = final_state(state, whole.states.get(index));
        let parts = final_state(state, parts.states.get(index));
        compare_maps(&format!("state {index} of key"), &whole, &parts, |value| {
            text(value)
        })?;
    }
    compare_maps(
        "timer (key, stream, trigger)",
        &timers(whole),
        &timers(parts),
        |set| match set {
            Some(event_time) => format!("set with event time {event_time}"),
            None => "cancelled".to_owned(),
        },
    )
}

fn compare_outputs(whole: &[Output<'_>], parts: &[Output<'_>]) -> Result<(), CutDifference> {
    for row in 0..whole.len().max(parts.len()) {
        let (whole, parts) = (whole.get(row), parts.get(row));
        if whole != parts {
            return Err(CutDifference {
                what: format!("output {row}"),
                whole: whole.map(Output::to_string),
                parts: parts.map(Output::to_string),
            });
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Output<'a> {
    parent: u32,
    stream: u16,
    key: &'a [u8],
    event_time: Option<Timestamp>,
    payload: &'a [u8],
}

impl fmt::Display for Output<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} on stream {} with key {}, caused by item {}",
            text(self.payload),
            self.stream,
            text(self.key),
            self.parent
        )?;
        match self.event_time {
            Some(event_time) => write!(formatter, " at {event_time}"),
            None => Ok(()),
        }
    }
}

/// Outputs in the order of the items that caused them, with the event times that they get.
fn outputs<'a>(batch: &Batch, effects: &'a Effects) -> Vec<Output<'a>> {
    let columns = &effects.outputs;
    let mut rows: Vec<usize> = (0..columns.streams.len()).collect();
    rows.sort_by_key(|row| columns.parents[*row]);
    let output = |row: usize| Output {
        parent: columns.parents[row],
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

/// The event time that an output has from the item that caused it; visits have none.
pub(super) fn item_event_time(batch: &Batch, item: usize) -> Option<Timestamp> {
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
fn timers(effects: &Effects) -> BTreeMap<(u32, u16, Timestamp), Option<Timestamp>> {
    let (set, cancel) = (&effects.set_timers, &effects.cancel_timers);
    let mut timers = BTreeMap::new();
    for (row, key) in set.keys.iter().enumerate() {
        let timer = (*key, set.streams[row], set.trigger_times[row]);
        timers.insert(timer, Some(set.event_times[row]));
    }
    for (row, key) in cancel.keys.iter().enumerate() {
        timers.insert((*key, cancel.streams[row], cancel.trigger_times[row]), None);
    }
    timers
}

fn compare_maps<K, V>(
    what: &str,
    whole: &BTreeMap<K, V>,
    parts: &BTreeMap<K, V>,
    show: impl Fn(&V) -> String,
) -> Result<(), CutDifference>
where
    K: Ord + fmt::Debug,
    V: PartialEq,
{
    for key in whole.keys().chain(parts.keys()) {
        if whole.get(key) != parts.get(key) {
            return Err(CutDifference {
                what: format!("{what} {key:?}"),
                whole: whole.get(key).map(&show),
                parts: parts.get(key).map(&show),
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

    fn differs(whole: &Effects, parts: &Effects) -> Option<String> {
        let difference = compare(&batch(), whole, parts).err();
        difference.map(|difference| difference.to_string())
    }

    #[test]
    fn outputs_are_compared_in_the_order_of_their_parents() {
        let whole = output(&[3, 0], &[b"late", b"early"]);
        let parts = output(&[0, 3], &[b"early", b"late"]);
        assert_eq!(differs(&whole, &parts), None);
        let difference = differs(&whole, &output(&[0, 3], &[b"early", b"other"]));
        let difference = difference.expect("they differ");
        assert!(
            difference.starts_with("output 1 is \"late\""),
            "{difference}"
        );
        let difference = differs(&whole, &output(&[0], &[b"early"])).expect("they differ");
        assert!(difference.ends_with("none when it is cut"), "{difference}");
    }

    #[test]
    fn an_output_of_another_item_or_time_differs() {
        let whole = output(&[0], &[b"x"]);
        let difference = differs(&whole, &output(&[1], &[b"x"])).expect("they differ");
        assert!(difference.contains("caused by item 1"), "{difference}");
        let mut timed = whole.clone();
        timed.outputs.event_times = vec![9];
        assert_eq!(differs(&whole, &timed), None, "it has item 0's time anyway");
        timed.outputs.event_times = vec![8];
        assert!(differs(&whole, &timed).is_some());
    }

    #[test]
    fn states_are_compared_by_what_they_end_as() {
        let mut whole = output(&[], &[]);
        whole.states[0] = state(&[0, 1], &[b"2", b"1"]);
        let mut parts = output(&[], &[]);
        parts.states[0] = state(&[1, 0], &[b"1", b"2"]);
        assert_eq!(differs(&whole, &parts), None);
        parts.states[0] = state(&[1, 0], &[b"1", b"3"]);
        let difference = differs(&whole, &parts).expect("they differ");
        assert!(
            difference.starts_with("state 0 of key 0 is \"2\""),
            "{difference}"
        );
        let mut unchanged = output(&[], &[]);
        unchanged.states[0] = state(&[0], &[b"old"]);
        assert_eq!(differs(&unchanged, &output(&[], &[])), None);
    }

    #[test]
    fn a_timer_set_and_one_cancelled_differ() {
        let set = TimerColumns {
            streams: vec![0],
            keys: vec![0],
            trigger_times: vec![5],
            event_times: vec![1],
        };
        let (mut whole, mut parts) = (output(&[], &[]), output(&[], &[]));
        whole.set_timers = set.clone();
        assert!(differs(&whole, &parts).is_some());
        parts.cancel_timers = TimerColumns {
            event_times: Vec::new(),
            ..set.clone()
        };
        assert!(differs(&whole, &parts).is_some());
        parts = output(&[], &[]);
        parts.set_timers = set;
        assert_eq!(differs(&whole, &parts), None);
    }
}
