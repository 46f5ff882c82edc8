//! The checker of merging (R3, R4): whenever a job took a message, no message that was present went
//! before it. What partitions of an older layout wrote to a stream goes before all else of it.
//!
//! What was present is known from decided epochs alone, as jobs take their steps one at a time: what
//! epochs decided earlier put into the job's lanes and their writers handed on, less what the job had
//! taken. A job may find a chunk in storage before that; nothing is held against it there.

use std::collections::{BTreeMap, VecDeque};

use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::{LaneId, PartitionId, SinkFileId, StreamId};

use crate::checkers::{Checker, Evidence, Finding};
use crate::graph::{Graph, Head};
use crate::history::{Decided, HandedOn};
use crate::items::{Item, items_of};
use crate::layouts::Layouts;

/// What a message is taken by: the least goes first.
type Priority = (Timestamp, usize, PartitionId);

/// What waits for one transform's partition.
struct Reader<'e> {
    name: String,
    layouts: &'e Layouts,
    /// Whether messages have event times: then the distance of a stream's timestamps to those has its say,
    /// and the order of two inputs can't be told by what is known here.
    has_times: bool,
    /// For each stream that it reads: the input that it comes by, and the delay of that input.
    inputs: BTreeMap<StreamId, (usize, Timestamp)>,
    lanes: BTreeMap<LaneId, VecDeque<Waiting>>,
}

/// A message in a lane.
struct Waiting {
    alignment: Timestamp,
    payload: Vec<u8>,
    /// Which of the decided epochs wrote it.
    number: usize,
    /// Whether the job can't but see it.
    is_certain: bool,
}

/// Judges the order in which messages were taken in everything that was ever decided.
pub(crate) fn judge(evidence: &Evidence<'_>, decided: &[Decided]) -> Vec<Finding> {
    let mut readers = readers(evidence);
    let mut findings = Vec::new();
    let handed_on = evidence.storage.handed_on();
    let mut handed_on = handed_on.iter().peekable();
    for (number, Decided { commit, start, .. }) in decided.iter().enumerate() {
        while let Some(event) = handed_on.next_if(|event| event.after <= number) {
            for (reader, _) in readers.values_mut() {
                reader.see(event);
            }
        }
        if let Some((reader, witness)) = readers.get_mut(&commit.partition) {
            let shape = evidence.layouts.place(commit.partition).shape;
            let items = items_of(commit, *witness, evidence.transform_name(shape));
            for payload in items.iter().filter_map(Item::payload) {
                findings.extend(reader.take(payload, *start));
            }
        }
        put(commit, number, &mut readers);
    }
    findings
}

type Readers<'e> = BTreeMap<PartitionId, (Reader<'e>, SinkFileId)>;

fn readers<'e>(evidence: &Evidence<'e>) -> Readers<'e> {
    let partitions = evidence.layouts.all();
    partitions
        .filter_map(|partition| {
            let shape = evidence.layouts.place(partition).shape;
            let Head::Transform(at) = evidence.graph.shapes[shape].head else {
                return None;
            };
            let reader = Reader {
                name: evidence.name(partition),
                layouts: evidence.layouts,
                has_times: evidence.graph.has_times,
                inputs: inputs(evidence.graph, at, evidence),
                lanes: BTreeMap::new(),
            };
            Some((partition, (reader, evidence.sink_file(shape))))
        })
        .collect()
}

fn inputs(
    graph: &Graph,
    transform: usize,
    evidence: &Evidence<'_>,
) -> BTreeMap<StreamId, (usize, Timestamp)> {
    let transform = &graph.computations[transform];
    let streams = transform.inputs.iter().zip(&transform.delays_ms);
    streams
        .enumerate()
        .map(|(input, (stream, delay_ms))| {
            let stream = evidence.deployment.stream(&graph.stream_name(*stream));
            (stream, (input, *delay_ms))
        })
        .collect()
}

fn put(commit: &EpochCommit, number: usize, readers: &mut Readers<'_>) {
    for chunk in &commit.chunks {
        let Some((reader, _)) = readers.get_mut(&chunk.lane.reader) else {
            continue;
        };
        let lane = reader.lanes.entry(chunk.lane).or_default();
        let alignments = chunk.messages.alignments.iter();
        lane.extend(alignments.enumerate().map(|(index, alignment)| Waiting {
            alignment,
            payload: chunk.messages.payloads.get(index).to_vec(),
            number,
            is_certain: false,
        }));
    }
}

impl Reader<'_> {
    fn priority(&self, lane: LaneId, message: &Waiting) -> Priority {
        let (input, delay_ms) = self.inputs[&lane.stream];
        (message.alignment + delay_ms, input, lane.producer)
    }

    /// Whether anything waits that an older layout of the lane's producers wrote to its stream, and
    /// that the job can't but see.
    fn older_waits(&self, lane: LaneId) -> bool {
        let own = self.layouts.place(lane.producer);
        let mut others = self.lanes.iter();
        others.any(|(other, messages)| {
            let place = self.layouts.place(other.producer);
            let is_older = place.shape == own.shape && place.layout < own.layout;
            let waits = messages.front().is_some_and(|it| it.is_certain);
            is_older && other.stream == lane.stream && waits
        })
    }

    /// Whether the lane may have been held back by others of its stream whose partitions are retiring,
    /// when a message was taken from lane `taken`.
    fn may_be_held_back(&self, lane: LaneId, taken: LaneId, start: usize) -> bool {
        let mut others = self.lanes.iter();
        others.any(|(other, messages)| {
            *other != lane
                && other.stream == lane.stream
                && self.layouts.is_retiring(other.producer, start)
                && (!messages.is_empty() || *other == taken)
        })
    }

    /// Takes a message; tells what went before it. A message that is no lane's next one is found by
    /// the checker of inputs.
    fn take(&mut self, payload: &[u8], start: usize) -> Option<Finding> {
        let is_next =
            |lane: &VecDeque<Waiting>| lane.front().is_some_and(|it| it.payload == payload);
        let lanes = self.lanes.iter();
        let lane = lanes
            .filter(|(_, lane)| is_next(lane))
            .map(|(id, _)| *id)
            .next()?;
        let taken = self.lanes.get_mut(&lane)?.pop_front()?;
        let priority = self.priority(lane, &taken);
        if self.older_waits(lane) {
            return Some(Finding {
                checker: Checker::Merge,
                text: format!(
                    "{} took {} before what an older layout wrote to its stream",
                    self.name,
                    payload.escape_ascii()
                ),
            });
        }
        let heads = self
            .lanes
            .iter()
            .filter_map(|(id, lane)| Some((*id, lane.front()?)));
        let passed = heads
            .filter(|(id, _)| !self.has_times || self.inputs[&id.stream].0 == priority.1)
            .filter(|(id, head)| head.is_certain && !self.may_be_held_back(*id, lane, start))
            .map(|(id, head)| (self.priority(id, head), head))
            .min_by_key(|(priority, _)| *priority);
        let (before, head) = passed.filter(|(before, _)| *before < priority)?;
        Some(Finding {
            checker: Checker::Merge,
            text: format!(
                "{} took {} with {priority:?} before {} with {before:?}",
                self.name,
                payload.escape_ascii(),
                head.payload.escape_ascii()
            ),
        })
    }

    /// A writer has handed on what it wrote.
    fn see(&mut self, event: &HandedOn) {
        let lanes = self.lanes.iter_mut();
        let of_writer = lanes.filter(|(lane, _)| lane.producer == event.partition);
        let messages = of_writer.flat_map(|(_, messages)| messages);
        messages
            .filter(|message| message.number < event.up_to)
            .for_each(|message| message.is_certain = true);
    }
}
