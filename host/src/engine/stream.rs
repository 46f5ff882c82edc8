//! Messages between the computations of one chain, as columns, and their order.
//!
//! **Invariant:** within a stream, messages stand in the order of the items that caused them
//! (`roots` never falls), then as the guest listed them. So whatever leaves a chain is ordered by
//! the job's input alone, not by how the input was cut into batches.

use std::ops::Range;

use crate::types::batch::{OutputColumns, Timestamp};
use crate::types::column::Column;
use crate::types::epoch::ChunkMessages;

/// How large one stream of a chain may get from one batch of the job's input, in bytes.
pub const STREAM_BYTES_MAX: usize = 1 << 30;

/// A run of a job's input, in order: what one guest call is made from.
#[derive(Debug, Clone, Default)]
pub struct InputMessages {
    /// For each message the input that it came by, as an index into the job's inputs.
    pub streams: Vec<u16>,
    /// Keys; empty ones for source records.
    pub keys: Column,
    /// Event times.
    pub event_times: Vec<Timestamp>,
    /// Payloads.
    pub payloads: Column,
}

impl InputMessages {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Bytes of keys and payloads.
    pub fn size_bytes(&self) -> usize {
        self.keys.bytes.len() + self.payloads.bytes.len()
    }

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.streams.clear();
        self.keys.clear();
        self.event_times.clear();
        self.payloads.clear();
    }

    /// Appends messages `range` of a chunk, which came by input `stream`.
    pub fn extend_from(&mut self, stream: u16, chunk: &ChunkMessages, range: Range<usize>) {
        self.streams
            .resize(self.streams.len() + range.len(), stream);
        self.keys.extend_from(&chunk.keys, range.clone());
        self.event_times
            .extend_from_slice(&chunk.event_times[range.clone()]);
        self.payloads.extend_from(&chunk.payloads, range);
    }

    /// Appends a message.
    pub fn push(&mut self, stream: u16, key: &[u8], event_time: Timestamp, payload: &[u8]) {
        self.streams.push(stream);
        self.keys.push(key);
        self.event_times.push(event_time);
        self.payloads.push(payload);
    }
}

/// The messages of one stream that one batch of a job's input led to.
#[derive(Debug, Clone, Default)]
pub struct StreamMessages {
    /// For each message the item of the job's input that it goes back to; never falls.
    pub roots: Vec<u32>,
    /// Keys.
    pub keys: Column,
    /// Event times.
    pub event_times: Vec<Timestamp>,
    /// Payloads.
    pub payloads: Column,
    /// All items that each message goes back to, where the stream is behind a computation whose outputs may have
    /// several parents; empty otherwise.
    pub origins: Origins,
}

impl StreamMessages {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.roots.clear();
        self.keys.clear();
        self.event_times.clear();
        self.payloads.clear();
        self.origins.keep(0);
    }

    /// Appends a message.
    pub fn push(&mut self, root: u32, key: &[u8], event_time: Timestamp, payload: &[u8]) {
        debug_assert!(self.roots.last().is_none_or(|last| *last <= root));
        self.roots.push(root);
        self.keys.push(key);
        self.event_times.push(event_time);
        self.payloads.push(payload);
    }

    /// Removes every message that does not go back to an item before `root`.
    pub fn keep_before(&mut self, root: u32) {
        let count = self.roots.partition_point(|of_message| *of_message < root);
        self.roots.truncate(count);
        self.keys.truncate(count);
        self.event_times.truncate(count);
        self.payloads.truncate(count);
        self.origins.keep(count);
    }

    /// Bytes of all keys and payloads, and of what the messages go back to.
    pub fn total_bytes(&self) -> usize {
        self.keys.bytes.len() + self.payloads.bytes.len() + self.origins.size_bytes()
    }

    /// Bytes of key and payload of message `index`.
    pub fn size_bytes(&self, index: usize) -> usize {
        self.keys.get(index).len() + self.payloads.get(index).len()
    }
}

/// For each message of a stream, or each item of a call, all items of the job's input that it goes back to. Neighbours
/// that go back to the same ones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// For each message its set.
    sets: Vec<u32>,
    /// Where each set ends in `items`.
    ends: Vec<u32>,
    /// The items of each set, rising.
    items: Vec<u32>,
}

impl Origins {
    /// Of how many messages they are: of all of a stream, or of none.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether they are of no message.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The items that a message goes back to, rising.
    pub fn get(&self, message: usize) -> &[u32] {
        self.set(self.sets[message] as usize)
    }

    fn set(&self, set: usize) -> &[u32] {
        let before = set.checked_sub(1);
        let start = before.map_or(0, |before| self.ends[before]);
        &self.items[start as usize..self.ends[set] as usize]
    }

    /// Appends those of a message, in any order.
    pub fn push(&mut self, items: impl IntoIterator<Item = u32>) {
        let mut set: Vec<u32> = items.into_iter().collect();
        set.sort_unstable();
        set.dedup();
        let is_as_before =
            (self.ends.len().checked_sub(1)).is_some_and(|last| self.set(last) == set);
        if !is_as_before {
            self.items.extend(set);
            self.ends.push(self.items.len() as u32);
        }
        self.sets.push(self.ends.len() as u32 - 1);
    }

    /// Removes those of all but the first messages.
    fn keep(&mut self, count: usize) {
        self.sets.truncate(count);
        // Sets stand in the order of the messages that have them.
        let sets = self.sets.last().map_or(0, |set| *set as usize + 1);
        self.ends.truncate(sets);
        let items = self.ends.last().map_or(0, |end| *end as usize);
        self.items.truncate(items);
    }

    fn size_bytes(&self) -> usize {
        size_of::<u32>() * (self.sets.len() + self.ends.len() + self.items.len())
    }
}

/// What the items of a guest call were, as far as their outputs need it.
#[derive(Debug, Default)]
pub struct CallItems {
    /// The item of the job's input that each item of the call goes back to; the last one of several.
    pub roots: Vec<u32>,
    /// The event time of each item.
    pub event_times: Vec<Timestamp>,
    /// All items of the job's input that each item of the call goes back to, where its outputs are to have
    /// [`StreamMessages::origins`]; empty otherwise.
    pub origins: Origins,
}

/// Spreads a call's outputs over the streams of the chain, in the order of the items that caused
/// them. `streams[i]` is the place in `into` of the component's output stream `i`.
///
/// An output of several parents belongs to the last one: nothing is there before all that it was made from. Without
/// an event time of its own it has the least of its parents', or none where one of them has none.
///
/// The outputs have been checked: every index is in range, and the parents of each output rise. Where outputs have
/// several, what they go back to may be much more than what the guest returned: it stops at [`STREAM_BYTES_MAX`], so
/// a stream that is larger is to be refused.
pub fn distribute(
    outputs: &OutputColumns,
    items: &CallItems,
    streams: &[usize],
    into: &mut [StreamMessages],
) {
    if outputs.parent_ends.is_empty() && items.origins.is_empty() {
        return distribute_single(outputs, items, streams, into);
    }
    let count = outputs.streams.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| outputs.parents_of(*index).last().copied());
    for index in order {
        let parents = outputs.parents_of(index).iter();
        let parents = parents.map(|parent| *parent as usize);
        let inherited = || {
            parents
                .clone()
                .map(|parent| items.event_times[parent])
                .min()
        };
        let event_time = outputs.event_times.get(index).copied().or_else(inherited);
        let Some(last) = parents.clone().next_back() else {
            continue;
        };
        let stream = &mut into[streams[outputs.streams[index] as usize]];
        stream.push(
            items.roots[last],
            outputs.keys.get(index),
            event_time.unwrap_or_default(),
            outputs.payloads.get(index),
        );
        let origins = parents.flat_map(|parent| items.origins.get(parent).iter().copied());
        stream.origins.push(origins);
        if stream.total_bytes() > STREAM_BYTES_MAX {
            return;
        }
    }
}

/// The usual case: each output has one parent, and nobody asks for more than the item that it goes back to.
fn distribute_single(
    outputs: &OutputColumns,
    items: &CallItems,
    streams: &[usize],
    into: &mut [StreamMessages],
) {
    let mut push = |index: usize| {
        let parent = outputs.parents[index] as usize;
        let event_time = outputs
            .event_times
            .get(index)
            .copied()
            .unwrap_or(items.event_times[parent]);
        into[streams[outputs.streams[index] as usize]].push(
            items.roots[parent],
            outputs.keys.get(index),
            event_time,
            outputs.payloads.get(index),
        );
    };
    if outputs.parents.is_sorted() {
        (0..outputs.parents.len()).for_each(push);
    } else {
        let mut order: Vec<usize> = (0..outputs.parents.len()).collect();
        order.sort_by_key(|index| outputs.parents[*index]);
        order.into_iter().for_each(&mut push);
    }
}

/// Calls `visit(stream, index)` for each message of the chosen streams, in the order of their
/// roots; among messages of one root, stream by stream in the order of `chosen`.
pub fn merge_by_root(
    streams: &[StreamMessages],
    chosen: &[usize],
    mut visit: impl FnMut(usize, usize),
) {
    let mut next = vec![0; chosen.len()];
    loop {
        let first = chosen
            .iter()
            .zip(&next)
            .enumerate()
            .filter_map(|(place, (stream, index))| {
                let root = streams[*stream].roots.get(*index)?;
                Some((*root, place))
            })
            .min();
        let Some((root, place)) = first else { return };
        let stream = chosen[place];
        while streams[stream].roots.get(next[place]) == Some(&root) {
            visit(stream, next[place]);
            next[place] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(rows: &[(u16, u32, &str)]) -> OutputColumns {
        let mut columns = OutputColumns::default();
        for (stream, parent, payload) in rows {
            columns.streams.push(*stream);
            columns.parents.push(*parent);
            columns.keys.push(b"k");
            columns.payloads.push(payload.as_bytes());
        }
        columns
    }

    fn items(roots: &[u32]) -> CallItems {
        CallItems {
            roots: roots.to_vec(),
            event_times: roots.iter().map(|root| u64::from(*root) * 10).collect(),
            origins: Origins::default(),
        }
    }

    /// The same, each with itself as its only origin.
    fn items_with_origins(roots: &[u32]) -> CallItems {
        let mut items = items(roots);
        roots.iter().for_each(|root| items.origins.push([*root]));
        items
    }

    #[test]
    fn b1_an_output_belongs_to_its_last_parent_and_has_the_least_event_time() {
        let mut joined = outputs(&[(0, 0, "all"), (0, 0, "first two"), (0, 0, "last")]);
        joined.parents = vec![0, 1, 2, 0, 1, 2];
        joined.parent_ends = vec![3, 5, 6];
        let mut streams = vec![StreamMessages::default()];
        distribute(&joined, &items_with_origins(&[5, 6, 7]), &[0], &mut streams);
        let stream = &streams[0];
        assert_eq!(payloads(stream), ["first two", "all", "last"]);
        assert_eq!(stream.roots, [6, 7, 7]);
        assert_eq!(stream.event_times, [50, 50, 70]);
        let origins: Vec<&[u32]> = (0..3).map(|message| stream.origins.get(message)).collect();
        assert_eq!(origins, [&[5, 6][..], &[5, 6, 7], &[7]]);
    }

    #[test]
    fn b1_what_follows_from_a_joined_message_goes_back_to_all_that_it_was_made_from() {
        let mut items = items(&[6, 9]);
        items.origins.push([5, 6]);
        items.origins.push([9, 6, 9, 8]);
        let mut streams = vec![StreamMessages::default()];
        distribute(
            &outputs(&[(0, 1, "b"), (0, 0, "a")]),
            &items,
            &[0],
            &mut streams,
        );
        assert_eq!(payloads(&streams[0]), ["a", "b"]);
        assert_eq!(streams[0].origins.get(0), [5, 6]);
        assert_eq!(streams[0].origins.get(1), [6, 8, 9]);
        streams[0].keep_before(9);
        assert_eq!(streams[0].origins.len(), 1);
        assert_eq!(streams[0].origins.get(0), [5, 6]);
    }

    #[test]
    fn messages_that_go_back_to_the_same_items_share_them() {
        let mut origins = Origins::default();
        let many: Vec<u32> = (0..1_000).collect();
        for _ in 0..1_000 {
            origins.push(many.iter().rev().copied());
        }
        origins.push([7]);
        assert_eq!(origins.size_bytes(), 4 * (1_001 + 2 + 1_001));
        origins.keep(999);
        assert_eq!(origins.get(998), many);
        assert_eq!(origins.size_bytes(), 4 * (999 + 1 + 1_000));
    }

    fn payloads(stream: &StreamMessages) -> Vec<&str> {
        let text = |payload| std::str::from_utf8(payload).unwrap();
        stream.payloads.iter().map(text).collect()
    }

    #[test]
    fn outputs_are_ordered_by_parent_then_as_listed() {
        let mut streams = vec![StreamMessages::default(); 2];
        let listed = outputs(&[(0, 2, "c"), (0, 0, "a1"), (1, 1, "b"), (0, 0, "a2")]);
        distribute(&listed, &items(&[5, 6, 7]), &[1, 0], &mut streams);
        assert_eq!(payloads(&streams[1]), ["a1", "a2", "c"]);
        assert_eq!(streams[1].roots, [5, 5, 7]);
        assert_eq!(payloads(&streams[0]), ["b"]);
    }

    #[test]
    fn an_output_without_event_time_has_that_of_its_parent() {
        let mut streams = vec![StreamMessages::default()];
        distribute(
            &outputs(&[(0, 1, "b")]),
            &items(&[3, 4]),
            &[0],
            &mut streams,
        );
        assert_eq!(streams[0].event_times, [40]);
    }

    #[test]
    fn messages_of_later_roots_can_be_removed() {
        let mut stream = StreamMessages::default();
        for (root, payload) in [(0, "a"), (2, "b1"), (2, "b2"), (3, "c")] {
            stream.push(root, b"k", 0, payload.as_bytes());
        }
        stream.keep_before(3);
        assert_eq!(payloads(&stream), ["a", "b1", "b2"]);
        stream.keep_before(2);
        assert_eq!((payloads(&stream), stream.keys.len()), (vec!["a"], 1));
        stream.keep_before(0);
        assert!(stream.is_empty() && stream.payloads.bytes.is_empty());
    }

    #[test]
    fn streams_merge_by_root_then_in_the_order_chosen() {
        let mut streams = vec![StreamMessages::default(); 3];
        streams[0].push(0, b"", 0, b"x0");
        streams[0].push(2, b"", 0, b"x2");
        streams[2].push(0, b"", 0, b"y0");
        streams[2].push(1, b"", 0, b"y1");
        let mut seen = Vec::new();
        merge_by_root(&streams, &[2, 0], |stream, index| {
            seen.push(payloads(&streams[stream])[index].to_owned());
        });
        assert_eq!(seen, ["y0", "x0", "y1", "x2"]);
    }
}
