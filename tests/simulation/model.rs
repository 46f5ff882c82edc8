//! The sequential model: what the jobs of one kind must make of their inputs, one input at a time.
//! No batches, no epochs, no lanes of bytes, no storage: plain values in the order in which they
//! come. States belong to keys, whichever partition has them.

use std::collections::BTreeMap;

use guest_behaviours::trace::{Emitted, Tally, relay};
use tidelock::types::ids::PartitionId;

use crate::graph::{Graph, Head, Shape, Stream};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its key.
    pub(crate) key: Vec<u8>,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
    /// Where it comes from: the source, then each output that led to it, with the key there.
    pub(crate) lineage: Vec<u8>,
}

/// Where a job's messages go: (its partition, stream, reading transform).
pub(crate) type Destination = (PartitionId, Stream, usize);

/// All jobs of one kind, run in the simplest way.
pub(crate) struct ShapeModel<'g> {
    graph: &'g Graph,
    shape: &'g Shape,
    /// The shape's streams, in the order in which what one input leads to goes out.
    streams: Vec<Stream>,
    /// The transform's tallies.
    pub(crate) tallies: BTreeMap<Vec<u8>, Tally>,
    /// What each partition has sent to each transform, in order.
    pub(crate) sent: BTreeMap<Destination, Vec<Message>>,
    /// What each partition has given to each sink, in order.
    pub(crate) rows: BTreeMap<(PartitionId, usize), Vec<Message>>,
}

impl<'g> ShapeModel<'g> {
    /// Jobs that have read nothing.
    pub(crate) fn new(graph: &'g Graph, shape: &'g Shape, streams: Vec<Stream>) -> ShapeModel<'g> {
        ShapeModel {
            graph,
            shape,
            streams,
            tallies: BTreeMap::new(),
            sent: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// A partition takes the next input.
    pub(crate) fn take(&mut self, partition: PartitionId, input: &Message) {
        let mut streams: BTreeMap<Stream, Vec<Message>> = BTreeMap::new();
        match self.shape.head {
            Head::Source(source) => streams.entry(source).or_default().push(input.clone()),
            Head::Transform(at) => {
                let tally = self.tallies.entry(input.key.clone()).or_default();
                let transform = &self.graph.computations[at];
                for emitted in tally.take(&transform.name, &input.payload) {
                    let stream = transform.outputs[usize::from(emitted.output)];
                    push(
                        &mut streams,
                        stream,
                        output(input, &transform.name, emitted),
                    );
                }
            }
        }
        for map in &self.shape.maps {
            let map = &self.graph.computations[*map];
            for read in &map.inputs {
                for message in streams.get(read).cloned().unwrap_or_default() {
                    for emitted in relay(&map.name, &message.payload) {
                        let stream = map.outputs[usize::from(emitted.output)];
                        push(&mut streams, stream, output(&message, &map.name, emitted));
                    }
                }
            }
        }
        for stream in self.streams.clone() {
            for message in streams.remove(&stream).unwrap_or_default() {
                self.send(partition, stream, &message);
            }
        }
    }

    fn send(&mut self, partition: PartitionId, stream: Stream, message: &Message) {
        for reader in self.graph.transforms_reading(stream) {
            let sent = self.sent.entry((partition, stream, reader)).or_default();
            sent.push(message.clone());
        }
        for sink in self.graph.sinks_of(stream) {
            let rows = self.rows.entry((partition, sink)).or_default();
            rows.push(message.clone());
        }
    }
}

/// The message that a computation made of another one.
fn output(parent: &Message, computation: &str, emitted: Emitted) -> Message {
    let step = format!(
        "/{computation}.{}={}",
        emitted.output,
        emitted.key.escape_ascii()
    );
    Message {
        key: emitted.key,
        payload: emitted.payload,
        lineage: [&parent.lineage, step.as_bytes()].concat(),
    }
}

fn push(streams: &mut BTreeMap<Stream, Vec<Message>>, stream: Stream, message: Message) {
    streams.entry(stream).or_default().push(message);
}
