//! The sequential model: what one job must make of its inputs, one input at a time. No batches, no
//! epochs, no lanes of bytes, no storage: plain values in the order in which they come.

use std::collections::BTreeMap;

use guest_behaviours::trace::{Tally, relay};
use tidelock::types::key::{key_hash, partition_of};

use crate::graph::{Graph, Head, Shape, Stream};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its key.
    pub(crate) key: Vec<u8>,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
}

/// Where a job's messages go, apart from the job: (stream, reading transform, its partition).
pub(crate) type Destination = (Stream, usize, usize);

/// One job, run in the simplest way.
pub(crate) struct JobModel<'g> {
    graph: &'g Graph,
    shape: &'g Shape,
    /// The shape's streams, in the order in which what one input leads to goes out.
    streams: Vec<Stream>,
    /// The transform's tallies.
    pub(crate) tallies: BTreeMap<Vec<u8>, Tally>,
    /// What it has sent to each partition that reads from it, in order.
    pub(crate) lanes: BTreeMap<Destination, Vec<Message>>,
    /// What it has given to each sink, in order.
    pub(crate) rows: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl<'g> JobModel<'g> {
    /// A job that has read nothing.
    pub(crate) fn new(graph: &'g Graph, shape: &'g Shape, streams: Vec<Stream>) -> JobModel<'g> {
        JobModel {
            graph,
            shape,
            streams,
            tallies: BTreeMap::new(),
            lanes: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Takes the next input.
    pub(crate) fn take(&mut self, input: &Message) {
        let mut streams: BTreeMap<Stream, Vec<Message>> = BTreeMap::new();
        match self.shape.head {
            Head::Source(source) => streams.entry(source).or_default().push(input.clone()),
            Head::Transform(at) => {
                let tally = self.tallies.entry(input.key.clone()).or_default();
                let transform = &self.graph.computations[at];
                for emitted in tally.take(&transform.name, &input.payload) {
                    let stream = transform.outputs[usize::from(emitted.output)];
                    push(&mut streams, stream, emitted.key, emitted.payload);
                }
            }
        }
        for map in &self.shape.maps {
            let map = &self.graph.computations[*map];
            for read in &map.inputs {
                for message in streams.get(read).cloned().unwrap_or_default() {
                    for emitted in relay(&map.name, &message.payload) {
                        let stream = map.outputs[usize::from(emitted.output)];
                        push(&mut streams, stream, emitted.key, emitted.payload);
                    }
                }
            }
        }
        for stream in self.streams.clone() {
            for message in streams.remove(&stream).unwrap_or_default() {
                self.send(stream, &message);
            }
        }
    }

    fn send(&mut self, stream: Stream, message: &Message) {
        for reader in self.graph.transforms_reading(stream) {
            let partitions = self.graph.computations[reader].partitions;
            let partition = partition_of(key_hash(&message.key), partitions);
            let lane = self.lanes.entry((stream, reader, partition)).or_default();
            lane.push(message.clone());
        }
        for sink in self.graph.sinks_of(stream) {
            let rows = self.rows.entry(sink).or_default();
            rows.push(message.payload.clone());
        }
    }
}

fn push(
    streams: &mut BTreeMap<Stream, Vec<Message>>,
    stream: Stream,
    key: Vec<u8>,
    payload: Vec<u8>,
) {
    streams
        .entry(stream)
        .or_default()
        .push(Message { key, payload });
}
