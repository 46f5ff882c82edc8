//! Guest calls: how messages become a batch, and what each item of the batch goes back to.

use std::collections::HashMap;

use crate::engine::stream::{CallItems, InputMessages, Origins, StreamMessages, merge_by_root};
use crate::types::batch::Batch;
use crate::types::column::Column;
use crate::types::key::BuildKeyHasher;
use crate::types::pipeline::EpochLimits;

/// The batch of a transform: every message of the input points to one of its distinct keys, in
/// the order of their first use. `roots` are the items of the job's input that they are. States are
/// filled in by the caller.
pub fn transform_batch(input: InputMessages, roots: Vec<u32>) -> (Batch, CallItems) {
    let mut keys = Column::default();
    let mut key_indexes = Vec::with_capacity(input.len());
    let mut places: HashMap<&[u8], u32, BuildKeyHasher> =
        HashMap::with_capacity_and_hasher(input.len(), BuildKeyHasher::default());
    for key in input.keys.iter() {
        let place = *places.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() as u32 - 1
        });
        key_indexes.push(place);
    }
    let items = CallItems {
        roots,
        event_times: input.event_times.clone(),
        origins: Origins::default(),
    };
    let mut batch = Batch {
        keys,
        ..Batch::default()
    };
    batch.messages.streams = input.streams;
    batch.messages.keys = key_indexes;
    batch.messages.event_times = input.event_times;
    batch.messages.payloads = input.payloads;
    (batch, items)
}

/// The batches of a map that reads the streams `inputs`, in order, each within the limits.
/// `inputs[i]` is the place in `streams` of the component's input `i`, or `None` where nothing in
/// this chain feeds it. With `origins` it is kept which items of the job's input each item of a call goes back to.
pub fn map_batches(
    streams: &[StreamMessages],
    inputs: &[Option<usize>],
    limits: &EpochLimits,
    origins: bool,
) -> Vec<(Batch, CallItems)> {
    let mut calls: Vec<(Batch, CallItems)> = Vec::new();
    let mut size_bytes = 0;
    let fed: Vec<usize> = inputs.iter().copied().flatten().collect();
    merge_by_root(streams, &fed, |stream, index| {
        let messages = &streams[stream];
        let full = calls.last().is_none_or(|(batch, _)| {
            batch.messages.streams.len() >= limits.max_rows_per_batch
                || size_bytes >= limits.max_bytes_per_batch
        });
        if full {
            calls.push((Batch::default(), CallItems::default()));
            size_bytes = 0;
        }
        size_bytes += messages.size_bytes(index);
        let (batch, items) = calls.last_mut().expect("pushed above when there was none");
        let input = inputs
            .iter()
            .position(|input| *input == Some(stream))
            .expect("only the inputs' streams are merged");
        push_map_message(batch, input as u16, messages, index);
        items.roots.push(messages.roots[index]);
        items.event_times.push(messages.event_times[index]);
        if origins {
            match messages.origins.is_empty() {
                true => items.origins.push([messages.roots[index]]),
                false => {
                    let of_message = messages.origins.get(index).iter().copied();
                    items.origins.push(of_message);
                }
            }
        }
    });
    calls
}

/// Appends a message to a map's batch. Runs of equal keys share one; a map sees keys only message
/// by message, so nothing depends on it.
fn push_map_message(batch: &mut Batch, input: u16, messages: &StreamMessages, index: usize) {
    let key = messages.keys.get(index);
    let last = batch.keys.len().checked_sub(1);
    if last.is_none_or(|last| !are_equal(batch.keys.get(last), key)) {
        batch.keys.push(key);
    }
    batch.messages.streams.push(input);
    batch.messages.keys.push(batch.keys.len() as u32 - 1);
    batch.messages.event_times.push(messages.event_times[index]);
    batch.messages.payloads.push(messages.payloads.get(index));
}

/// The library's comparison of two empty slices is many times slower than that of others on some
/// processors, as it reads from addresses that are none; and a source's keys are all empty.
fn are_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && (left.is_empty() || left == right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transforms_keys_are_distinct_in_order_of_first_use() {
        let mut input = InputMessages::default();
        for (key, payload) in [("b", "1"), ("a", "2"), ("b", "3")] {
            input.push(0, key.as_bytes(), 9, payload.as_bytes());
        }
        let (batch, items) = transform_batch(input, vec![0, 1, 2]);
        assert_eq!(batch.keys.iter().collect::<Vec<_>>(), [b"b", b"a"]);
        assert_eq!(batch.messages.keys, [0, 1, 0]);
        assert_eq!(items.roots, [0, 1, 2]);
    }

    #[test]
    fn a_maps_input_is_cut_by_rows_and_bytes() {
        let mut streams = vec![StreamMessages::default()];
        for root in 0..5 {
            streams[0].push(root, b"", 0, b"four");
        }
        let lengths = |limits: EpochLimits| -> Vec<usize> {
            let calls = map_batches(&streams, &[Some(0)], &limits, false);
            calls.iter().map(|(batch, _)| batch.item_count()).collect()
        };
        let by_rows = EpochLimits {
            max_rows_per_batch: 2,
            ..EpochLimits::default()
        };
        let by_bytes = EpochLimits {
            max_bytes_per_batch: 9,
            ..EpochLimits::default()
        };
        assert_eq!(lengths(by_rows), [2, 2, 1]);
        assert_eq!(lengths(by_bytes), [3, 2]);
        assert_eq!(lengths(EpochLimits::default()), [5]);
    }

    #[test]
    fn two_inputs_of_a_map_are_merged_by_root() {
        let mut streams = vec![StreamMessages::default(); 2];
        streams[0].push(1, b"", 0, b"x1");
        streams[1].push(0, b"", 0, b"y0");
        streams[0].origins.push([0, 1]);
        let inputs = [Some(0), Some(1)];
        let calls = map_batches(&streams, &inputs, &EpochLimits::default(), true);
        let (batch, items) = &calls[0];
        assert_eq!(items.origins.get(0), [0], "a stream without has its roots");
        assert_eq!(items.origins.get(1), [0, 1]);
        assert_eq!(batch.messages.streams, [1, 0]);
        assert_eq!(items.roots, [0, 1]);
    }
}
