//! A transform with what it keeps for each key, and the effects of its calls on that.

use crate::engine::epoch::OpenEpoch;
use crate::engine::state::{BatchSlots, StateCache};
use crate::engine::stream::{CallItems, StreamMessages, distribute};
use crate::storage::{Storage, StorageError, rows};
use crate::types::batch::{Batch, Effects, TimerColumns};
use crate::types::column::Column;
use crate::types::ids::PartitionId;
use crate::types::key::MESSAGE_KEY_BYTES_MAX;
use crate::types::timer::TimerSetting;
use crate::worker::timers::{DueTimers, Timers};

use super::PassedOver;
use super::node::Node;

/// About what a timer that is set or cancelled adds to an epoch beside its key, in bytes.
const TIMER_BYTES: usize = 64;

/// A transform with what it keeps for each key.
pub(super) struct KeyedNode {
    pub(super) node: Node,
    pub(super) states: StateCache,
    pub(super) timers: Timers,
}

/// What a call of the transform was made with, and what it wants done.
pub(super) struct KeyedCall<'a> {
    pub(super) keys: &'a Column,
    pub(super) items: &'a CallItems,
    pub(super) slots: &'a BatchSlots,
    pub(super) effects: &'a Effects,
}

impl KeyedNode {
    /// Does what a call wants done: changes states and timers, and puts its outputs into the streams.
    pub(super) fn apply(
        &mut self,
        (batch, passed): (&Batch, &[PassedOver]),
        call: &KeyedCall<'_>,
        setting: TimerSetting,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
        streams: &mut [StreamMessages],
    ) -> Result<(), StorageError> {
        let effects = call.effects;
        let passed: Vec<u32> = passed.iter().map(|passed| passed.item).collect();
        self.states.touch(call.slots, batch, &passed);
        self.states.apply(call.slots, &effects.states);
        self.timers
            .apply(call.keys, effects, setting.now, setting.at_end, storage)?;
        let state_bytes = effects.states.iter().map(|state| state.values.bytes.len());
        let timers = [&effects.set_timers, &effects.cancel_timers];
        let timer_bytes = timers.map(|timers| timers.streams.len() * TIMER_BYTES);
        epoch.add_output_bytes(state_bytes.sum::<usize>() + timer_bytes.iter().sum::<usize>());
        distribute(
            &effects.outputs,
            call.items,
            &self.node.plan.outputs,
            streams,
        );
        Ok(())
    }
}

/// A batch of the first `count` of some due timers.
pub(super) fn first_timers(due: &DueTimers, count: usize) -> Batch {
    let DueTimers { keys, columns, .. } = due;
    Batch {
        keys: keys.iter().take(count).collect(),
        timers: TimerColumns {
            streams: columns.streams[..count].to_vec(),
            keys: columns.keys[..count].to_vec(),
            trigger_times: columns.trigger_times[..count].to_vec(),
            event_times: columns.event_times[..count].to_vec(),
        },
        ..Batch::default()
    }
}

/// The first item of a batch whose key is longer than one may be, and the bytes of that.
pub(super) fn long_key(batch: &Batch) -> Option<(usize, usize)> {
    if batch.keys.bytes.len() <= MESSAGE_KEY_BYTES_MAX {
        return None;
    }
    let keys = (batch.timers.keys.iter()).chain(&batch.messages.keys);
    let mut lengths = keys
        .map(|key| batch.keys.get(*key as usize).len())
        .enumerate();
    lengths.find(|(_, length)| *length > MESSAGE_KEY_BYTES_MAX)
}

/// Finds the states of the batch's keys, and reads those that are not in memory yet.
pub(super) fn load_states(
    states: &mut StateCache,
    batch: &Batch,
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<BatchSlots, StorageError> {
    let mut slots = states.find(&batch.keys);
    let missing: Vec<usize> = slots.missing().collect();
    states.count_lookups(batch.keys.len(), missing.len());
    if missing.is_empty() {
        return Ok(slots);
    }
    let keys: Vec<&[u8]> = missing.iter().map(|index| batch.keys.get(*index)).collect();
    let mut found = vec![Vec::with_capacity(states.names().len()); keys.len()];
    for name in states.names() {
        let values = rows::read_states(storage, partition, name, &keys)?;
        for (of_key, value) in found.iter_mut().zip(values) {
            of_key.push(value);
        }
    }
    for ((index, key), values) in missing.into_iter().zip(keys).zip(found) {
        states.insert(&mut slots, index, key, values);
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::MessageColumns;

    #[test]
    fn the_first_item_with_a_long_key_is_found_behind_timers_and_in_the_order_of_items() {
        let long = [b'k'; MESSAGE_KEY_BYTES_MAX + 1];
        let mut batch = Batch {
            keys: [&b"short"[..], &long, &long[1..]].into_iter().collect(),
            timers: TimerColumns {
                keys: vec![0, 2],
                ..TimerColumns::default()
            },
            messages: MessageColumns {
                keys: vec![2, 0, 1, 1],
                ..MessageColumns::default()
            },
            ..Batch::default()
        };
        assert_eq!(long_key(&batch), Some((4, MESSAGE_KEY_BYTES_MAX + 1)));
        batch.messages.keys.truncate(2);
        assert_eq!(long_key(&batch), None);
        batch.timers.keys[1] = 1;
        assert_eq!(long_key(&batch), Some((1, MESSAGE_KEY_BYTES_MAX + 1)));
    }
}
