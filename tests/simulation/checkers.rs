//! The checkers: what must hold of everything that was ever decided.
//!
//! - **Inputs**: each input of a source or transform is in exactly one decided epoch, of the
//!   partition that has its key. Those of one producer come in their order: all that one partition
//!   takes, and all of one key, whichever partitions have it. A witness sink tells what jobs took, in
//!   order; what they should have taken is what the model says their producers sent.
//! - **State**: what storage holds for each key is what the model comes to over the same inputs, in
//!   the partition that has the key and nowhere else.
//! - **Lineage**: what goes back to records of one source in order, through the same computations and
//!   under the same keys, comes in that order wherever it goes (R4).
//! - **Sinks**: a file holds the rows of each job that feeds it without gap, repetition or
//!   reordering, and so does a queue, key by key.
//! - **Order**: see [`crate::order`].
//! - **Merge**: see [`crate::merge`].
//! - **Watermarks**: see [`crate::replay`] and [`crate::watermarks`].
//! - **Timers**: see [`crate::replay`].
//! - **Backpressure**: see [`crate::backpressure`].
//! - **Progress**: undisturbed, a run comes to its end, and leaves its lanes empty; no chunk is
//!   trimmed twice.
//!
//! **Invariant:** producers are judged before their readers, and a reader is compared with what the
//! model made of its producers' inputs, so that an engine that loses a message on its way in the
//! same manner everywhere is still found.

use std::collections::{BTreeMap, BTreeSet};

use tidelock::storage::rows;
use tidelock::types::ids::{PartitionId, SinkFileId};

use crate::backpressure;
use crate::deployment::Deployment;
use crate::graph::{Graph, Head, Shape};
use crate::history::Decided;
use crate::items::{Item, items_of, lines};
use crate::layouts::Layouts;
use crate::merge;
use crate::model::{Message, ShapeModel};
use crate::order;
use crate::record_source::{SourceLength, SourcePart, part_of, record};
use crate::replay::Replay;
use crate::sequence::{Sequence, Taken, Takings};
use crate::storage::SimulatedStorage;
use crate::watermarks;

/// Who found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Checker {
    /// Each input in exactly one decided epoch.
    Inputs,
    /// State equals the model's.
    State,
    /// Sinks without gap, repetition or reordering.
    Sinks,
    /// Equal lineage, equal order.
    Lineage,
    /// Messages stand in the order of their streams.
    Order,
    /// Messages of several lanes are taken in the order of their priorities.
    Merge,
    /// A reader that falls behind stops its writers at the bound.
    Backpressure,
    /// Watermarks never fall and never lie.
    Watermarks,
    /// Timers fire once, in their order, not early.
    Timers,
    /// A run comes to its end.
    Progress,
    /// Nothing panics.
    Panics,
}

impl Checker {
    /// Whether it judges what was decided, and not only that anything was.
    pub(crate) fn judges_what_was_decided(self) -> bool {
        !matches!(self, Checker::Progress | Checker::Panics)
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Who found it.
    pub(crate) checker: Checker,
    /// What it is.
    pub(crate) text: String,
}

/// What is judged.
pub(crate) struct Evidence<'e> {
    /// The pipeline.
    pub(crate) graph: &'e Graph,
    /// Its numbers.
    pub(crate) deployment: &'e Deployment,
    /// Every partition that it ever had.
    pub(crate) layouts: &'e Layouts,
    /// The store after a run.
    pub(crate) storage: &'e SimulatedStorage,
    /// How many records each source has.
    pub(crate) sources: &'e BTreeMap<SourcePart, SourceLength>,
    /// Whether the run came to its end: then nothing may be missing either.
    pub(crate) is_finished: bool,
}

/// Judges everything that was ever decided in the store.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let decided = evidence.storage.decided();
    let mut models: Vec<ShapeModel<'_>> = Vec::new();
    for (at, shape) in evidence.graph.shapes.iter().enumerate() {
        let records = evidence.records(shape);
        let sent = match shape.head {
            Head::Source(_) => (records.iter())
                .map(|(part, records)| Sequence {
                    name: format!("{part:?}"),
                    messages: records.iter().collect(),
                })
                .collect(),
            Head::Transform(transform) => evidence.sent_to(transform, &models),
        };
        let name = evidence.graph.head_name(shape.head);
        let mut takings = Takings::new(Checker::Inputs, format!("{name} took"));
        let epochs = evidence.epochs_of(at, &decided);
        let taken = taken_from_outside(&epochs);
        let messages = takings.compare(&sent, &taken, evidence.is_finished);
        findings.extend(takings.findings);
        let mut messages = messages.into_iter();
        let mut replay = Replay::new(evidence, shape);
        for (one, items) in epochs {
            let partition = one.commit.partition;
            let find = |item: Item| {
                let message = item.payload().and_then(|_| messages.next()).flatten();
                findings.extend(message.and_then(|it| evidence.check_owner(partition, it)));
                (item, message)
            };
            let items = items.into_iter().map(find).collect();
            replay.follow(one, items);
        }
        findings.append(&mut replay.findings);
        findings.extend(evidence.compare_states(at, &replay));
        findings.extend(evidence.compare_timers(at, &replay));
        models.push(replay.model);
    }
    findings.extend(evidence.compare_sinks(&models));
    findings.extend(order::judge(evidence, &decided));
    findings.extend(watermarks::judge(evidence, &decided));
    findings.extend(merge::judge(evidence, &decided));
    findings.extend(backpressure::judge(evidence, &decided));
    findings.extend(trimmed_twice(&decided));
    if evidence.is_finished {
        findings.extend(evidence.chunks_left());
    }
    findings
}

/// What the epochs of jobs took that they did not make themselves.
fn taken_from_outside(epochs: &[(&Decided, Vec<Item>)]) -> Vec<Taken> {
    let taken = epochs.iter().flat_map(|(one, items)| {
        let payloads = items.iter().filter_map(Item::payload);
        payloads.map(|payload| Taken {
            payload: payload.to_vec(),
            partition: Some(one.commit.partition),
            place: format!("in epoch {} of {}", one.commit.epoch, one.commit.partition),
        })
    });
    taken.collect()
}

impl Evidence<'_> {
    /// The name of a partition, for people.
    pub(crate) fn name(&self, partition: PartitionId) -> String {
        let place = self.layouts.place(partition);
        let head = self.graph.head_name(self.graph.shapes[place.shape].head);
        format!("{head}[{} of layout {}]", place.index, place.layout)
    }

    fn records(&self, shape: &Shape) -> BTreeMap<SourcePart, Vec<Message>> {
        let is_read = |part: &SourcePart| shape.head == Head::Source(part.source);
        let parts = self.sources.iter().filter(|(part, _)| is_read(part));
        let records = parts.map(|(part, length)| {
            let record = |number| Message {
                stream: part.source,
                key: Vec::new(),
                event_time: 0,
                payload: record(*part, number),
                lineage: format!("{part:?}").into_bytes(),
            };
            (*part, (0..length.records()).map(record).collect())
        });
        records.collect()
    }

    /// What the models of its producers sent to a transform.
    fn sent_to<'m>(&self, transform: usize, models: &'m [ShapeModel<'_>]) -> Vec<Sequence<'m>> {
        let sent = models.iter().flat_map(|model| &model.sent);
        sent.filter(|((_, _, reader), _)| *reader == transform)
            .map(|((producer, stream, _), messages)| Sequence {
                name: format!(
                    "stream {} of {}",
                    self.graph.stream_name(*stream),
                    self.name(*producer)
                ),
                messages: messages.iter().collect(),
            })
            .collect()
    }

    fn check_owner(&self, partition: PartitionId, input: &Message) -> Option<Finding> {
        let place = self.layouts.place(partition);
        let owns = match self.graph.shapes[place.shape].head {
            Head::Source(_) => part_of(&input.payload).partition == place.index,
            Head::Transform(_) => place.owns(&input.key),
        };
        (!owns).then(|| Finding {
            checker: Checker::Inputs,
            text: format!(
                "{} took {}, whose key {} is not its own",
                self.name(partition),
                input.payload.escape_ascii(),
                input.key.escape_ascii()
            ),
        })
    }

    pub(crate) fn sink_file(&self, sink: usize) -> SinkFileId {
        let name = self.graph.sink_name(sink);
        let file = self.deployment.sink_file(&name, self.storage);
        file.expect("the store is sound between two runs")
    }

    /// The epochs of the jobs of a shape, each with the items that it took.
    fn epochs_of<'d>(&self, shape: usize, decided: &'d [Decided]) -> Vec<(&'d Decided, Vec<Item>)> {
        let witness = self.sink_file(shape);
        let transform = self.transform_name(shape);
        let of_shape = decided
            .iter()
            .filter(|one| self.layouts.place(one.commit.partition).shape == shape);
        of_shape
            .map(|one| (one, items_of(&one.commit, witness, transform)))
            .collect()
    }

    /// The name of the transform that heads a shape, if one does.
    pub(crate) fn transform_name(&self, shape: usize) -> Option<&str> {
        match self.graph.shapes[shape].head {
            Head::Source(_) => None,
            Head::Transform(at) => Some(&self.graph.computations[at].name),
        }
    }

    fn compare_sinks(&self, models: &[ShapeModel<'_>]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for sink in 0..self.graph.sinks.len() {
            if self.graph.is_queue_sink(sink) {
                findings.extend(self.compare_queue(sink, models));
                continue;
            }
            let rows = models.iter().flat_map(|model| &model.rows);
            let given: Vec<Sequence<'_>> = rows
                .filter(|((_, of), _)| *of == sink)
                .map(|((partition, _), rows)| Sequence {
                    name: self.name(*partition),
                    messages: rows.iter().collect(),
                })
                .collect();
            let bytes = self.storage.sink_bytes(self.sink_file(sink));
            let written: Vec<Taken> = (lines(&bytes).enumerate())
                .map(|(at, row)| Taken {
                    payload: row.to_vec(),
                    partition: None,
                    place: format!("in line {}", at + 1),
                })
                .collect();
            let name = format!("sink {} holds", self.graph.sink_name(sink));
            let mut takings = Takings::new(Checker::Sinks, name);
            takings.compare(&given, &written, self.is_finished);
            findings.extend(takings.findings);
        }
        findings
    }

    /// Chunks that a finished run left behind though everything was read.
    fn chunks_left(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for producer in self.layouts.all() {
            let left = rows::lanes_kept(self.storage, producer);
            if !left.as_ref().is_ok_and(Vec::is_empty) {
                findings.push(Finding {
                    checker: Checker::Progress,
                    text: format!("{} still keeps lanes {left:?}", self.name(producer)),
                });
            }
        }
        findings
    }
}

/// Chunks that were removed again: a producer that forgets what it has removed does ever more.
fn trimmed_twice(decided: &[Decided]) -> Vec<Finding> {
    let mut trimmed = BTreeSet::new();
    let trims = decided.iter().flat_map(|one| &one.commit.trims);
    trims
        .filter(|trim| !trimmed.insert((trim.lane, trim.epoch)))
        .map(|trim| Finding {
            checker: Checker::Progress,
            text: format!(
                "epoch {} of lane {} was trimmed again",
                trim.epoch, trim.lane
            ),
        })
        .collect()
}
