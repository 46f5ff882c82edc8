//! The items that wait on a bench, and the batch that a call makes of them.

use std::collections::BTreeMap;

use super::timers::StandingTimer;
use crate::bindings::{Batch, Messages, StateColumn, Timers};
use crate::column;

/// A message or a due timer.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) stream: u16,
    pub(super) key: Vec<u8>,
    pub(super) event_time: u64,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Message { payload: Vec<u8> },
    Timer { trigger_time: u64 },
}

impl From<&StandingTimer> for Item {
    fn from(timer: &StandingTimer) -> Item {
        Item {
            stream: timer.stream,
            key: timer.key.clone(),
            event_time: timer.event_time.0,
            content: Content::Timer {
                trigger_time: timer.trigger_time.0,
            },
        }
    }
}

/// A batch of these items, their keys in rising order with their states, `states` having the values by
/// key for each declared one.
pub(super) fn batch(
    watermarks: &[u64],
    states: &[BTreeMap<Vec<u8>, Vec<u8>>],
    keys: &[&[u8]],
    items: &[Item],
) -> Batch {
    let mut batch = Batch {
        watermarks: watermarks.to_vec(),
        keys: column::with_capacity(keys.len()),
        states: states.iter().map(|rows| state_column(rows, keys)).collect(),
        timers: Timers {
            streams: Vec::new(),
            keys: Vec::new(),
            trigger_times: Vec::new(),
            event_times: Vec::new(),
        },
        messages: Messages {
            streams: Vec::new(),
            keys: Vec::new(),
            event_times: Vec::new(),
            payloads: column::with_capacity(items.len()),
        },
        visits: Vec::new(),
    };
    for key in keys {
        column::push(&mut batch.keys, key);
    }
    for item in items {
        let key = keys.partition_point(|key| *key < item.key.as_slice()) as u32;
        match &item.content {
            Content::Message { payload } => {
                batch.messages.streams.push(item.stream);
                batch.messages.keys.push(key);
                batch.messages.event_times.push(item.event_time);
                column::push(&mut batch.messages.payloads, payload);
            }
            Content::Timer { trigger_time } => {
                batch.timers.streams.push(item.stream);
                batch.timers.keys.push(key);
                batch.timers.trigger_times.push(*trigger_time);
                batch.timers.event_times.push(item.event_time);
            }
        }
    }
    batch
}

fn state_column(rows: &BTreeMap<Vec<u8>, Vec<u8>>, keys: &[&[u8]]) -> StateColumn {
    let mut state = StateColumn {
        keys: Vec::new(),
        values: column::with_capacity(0),
    };
    for (index, key) in (0..).zip(keys) {
        if let Some(value) = rows.get(*key) {
            state.keys.push(index);
            column::push(&mut state.values, value);
        }
    }
    state
}
