//! The sequential model: what the jobs of one kind must make of their inputs, one item at a time.
//! No batches, no epochs, no lanes of bytes, no storage: plain values in the order in which they
//! come. States belong to keys, whichever partition has them.

use std::collections::BTreeMap;

use guest_behaviours::trace::{Emitted, Fired, Taken, Tally, TimerWish, relay};
use tidelock::types::batch::Timestamp;
use tidelock::types::ids::PartitionId;

use crate::ages::Ages;
use crate::graph::{Graph, Head, Shape, Stream};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its stream.
    pub(crate) stream: Stream,
    /// Its key.
    pub(crate) key: Vec<u8>,
    /// Its event time, 0 for none.
    pub(crate) event_time: Timestamp,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
    /// Where it comes from: the source, then each output that led to it, with the key there.
    pub(crate) lineage: Vec<u8>,
}

/// Where a job's messages go: (its partition, stream, reading transform).
pub(crate) type Destination = (PartitionId, Stream, usize);

/// What one item led to.
#[derive(Debug, Default)]
pub(crate) struct Led {
    /// The event times of the messages that leave the job.
    pub(crate) leaving: Vec<Timestamp>,
    /// What becomes of a timer of its key.
    pub(crate) timer: Option<TimerWish>,
}

/// All jobs of one kind, run in the simplest way.
pub(crate) struct ShapeModel<'g> {
    graph: &'g Graph,
    shape: &'g Shape,
    /// The shape's streams, in the order in which what one input leads to goes out.
    streams: Vec<Stream>,
    /// The transform's tallies.
    pub(crate) tallies: BTreeMap<Vec<u8>, Tally>,
    /// When each key was last touched.
    pub(crate) touched: BTreeMap<Vec<u8>, Timestamp>,
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
            touched: BTreeMap::new(),
            sent: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// A partition takes a record, or a late message that goes past the transform.
    pub(crate) fn pass(&mut self, partition: PartitionId, input: &Message) -> Led {
        let (stream, input) = match self.shape.head {
            Head::Source(source) => (source, input.clone()),
            Head::Transform(at) => {
                let transform = &self.graph.computations[at];
                let late = format!("/{}.late", transform.name);
                let input = Message {
                    lineage: [&input.lineage, late.as_bytes()].concat(),
                    ..input.clone()
                };
                (transform.late.unwrap_or(self.shape.streams[0]), input)
            }
        };
        self.lead(partition, [(stream, vec![input])].into())
    }

    /// A partition's transform takes the next message.
    pub(crate) fn take(
        &mut self,
        partition: PartitionId,
        input: &Message,
        watermarks: &[Timestamp],
        ages: &Ages,
    ) -> Led {
        let Head::Transform(at) = self.shape.head else {
            return self.pass(partition, input);
        };
        let parameters = self.graph.parameters(&self.graph.computations[at]);
        let tally = self.tally(&input.key, input.event_time, ages);
        let taken = tally.take(&parameters, &input.payload, input.event_time, watermarks);
        self.answer(partition, at, input, taken)
    }

    /// A timer of a partition's transform fires.
    pub(crate) fn fire(
        &mut self,
        partition: PartitionId,
        fired: &Fired,
        watermarks: &[Timestamp],
        ages: &Ages,
    ) -> Led {
        let Head::Transform(at) = self.shape.head else {
            return Led::default();
        };
        let parameters = self.graph.parameters(&self.graph.computations[at]);
        let tally = self.tally(&fired.key, fired.event_time, ages);
        let taken = tally.fire(&parameters, fired, watermarks);
        let timer = format!(
            "timer {} of {} at {}",
            taken.messages[0].payload.escape_ascii(),
            fired.stream,
            fired.trigger_time
        );
        let cause = Message {
            stream: self.shape.streams[0],
            key: fired.key.clone(),
            event_time: fired.event_time,
            payload: Vec::new(),
            lineage: timer.into_bytes(),
        };
        self.answer(partition, at, &cause, taken)
    }

    /// The tally of a key that is touched: without what is too old.
    fn tally(&mut self, key: &[u8], event_time: Timestamp, ages: &Ages) -> &mut Tally {
        let tally = self.tallies.entry(key.to_vec()).or_default();
        let touched = self.touched.entry(key.to_vec()).or_default();
        if ages.is_expired(0, *touched) {
            (tally.count, tally.fold) = (0, 0);
        }
        if ages.is_expired(1, *touched) {
            tally.last = 0;
        }
        *touched = event_time.max(ages.latest).max(*touched);
        tally
    }

    fn answer(&mut self, partition: PartitionId, at: usize, cause: &Message, taken: Taken) -> Led {
        let transform = &self.graph.computations[at];
        let mut streams: BTreeMap<Stream, Vec<Message>> = BTreeMap::new();
        for emitted in taken.messages {
            let emitted = Emitted {
                event_time: cause.event_time,
                ..emitted
            };
            let stream = transform.outputs[usize::from(emitted.output)];
            push(
                &mut streams,
                output(cause, &transform.name, stream, emitted),
            );
        }
        Led {
            timer: taken.timer,
            ..self.lead(partition, streams)
        }
    }

    /// Runs the maps on what the transform or the source has put into streams, and sends all of it.
    fn lead(&mut self, partition: PartitionId, mut streams: BTreeMap<Stream, Vec<Message>>) -> Led {
        for map in &self.shape.maps {
            let map = &self.graph.computations[*map];
            let parameters = self.graph.parameters(map);
            for read in &map.inputs {
                for message in streams.get(read).cloned().unwrap_or_default() {
                    for emitted in relay(&parameters, &message.payload, message.event_time) {
                        let stream = map.outputs[usize::from(emitted.output)];
                        push(&mut streams, output(&message, &map.name, stream, emitted));
                    }
                }
            }
        }
        let mut led = Led::default();
        for stream in self.streams.clone() {
            for message in streams.remove(&stream).unwrap_or_default() {
                if self.graph.leaves_its_job(stream) {
                    led.leaving.push(message.event_time);
                }
                self.send(partition, stream, &message);
            }
        }
        led
    }

    fn send(&mut self, partition: PartitionId, stream: Stream, message: &Message) {
        let message = Message {
            stream,
            ..message.clone()
        };
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
fn output(parent: &Message, computation: &str, stream: Stream, emitted: Emitted) -> Message {
    let step = format!(
        "/{computation}.{}={}",
        emitted.output,
        emitted.key.escape_ascii()
    );
    Message {
        stream,
        key: emitted.key,
        event_time: emitted.event_time,
        payload: emitted.payload,
        lineage: [&parent.lineage, step.as_bytes()].concat(),
    }
}

fn push(streams: &mut BTreeMap<Stream, Vec<Message>>, message: Message) {
    streams.entry(message.stream).or_default().push(message);
}
