//! All epochs of the jobs of one kind, item by item: what the model makes of the items, and whether time
//! went by as it must.
//!
//! An answer tells which watermarks its item saw, and messages and steps of an epoch share one row of
//! indexes, so the sequence of items, steps of the input and steps of the output is known exactly, but for
//! steps of the input that no item came behind.
//!
//! - **Watermarks**: within a run they never fall, neither those that items see nor those of records and
//!   lanes. A source says what its records come to, where it must, and never more; a transform says the
//!   least of its inputs and of what pending timers hold, once its step is done. Late is what is behind the
//!   watermark, and it is counted.
//! - **Timers**: one that was set fires once, unless it is cancelled or replaced; not before its time, and in
//!   its step in the order of trigger time, stream, key; nothing that is due stays behind when a step is done.
//!   What an epoch commits is what its items did.

mod record;
mod source;
mod transform;

use std::collections::BTreeMap;

use guest_behaviours::trace::STATES;
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::PartitionId;
use tidelock::types::timer::TimerPlace;
use tidelock::types::watermark::LaneStep;

use crate::ages::Ages;
use crate::checkers::{Checker, Evidence, Finding};
use crate::graph::{Computation, Head, Shape};
use crate::history::Decided;
use crate::items::Item;
use crate::model::{Message, ShapeModel};
use crate::standing::Standing;
use crate::timer_book::{CommittedTimers, TimerBook};

/// An item, and the message that it is; `None` where nobody sent it, and for timers.
pub(crate) type TakenItem<'m> = (Item, Option<&'m Message>);

/// The jobs of one kind.
pub(crate) struct Replay<'e> {
    evidence: &'e Evidence<'e>,
    shape: &'e Shape,
    transform: Option<&'e Computation>,
    /// Whether anybody reads what the jobs write, so that their steps are known.
    has_lanes: bool,
    pub(crate) model: ShapeModel<'e>,
    standings: BTreeMap<PartitionId, Standing>,
    book: TimerBook,
    pub(crate) committed: BTreeMap<PartitionId, CommittedTimers>,
    /// How many items there were.
    items: usize,
    pub(crate) findings: Vec<Finding>,
}

/// An epoch that is replayed.
struct Course<'c> {
    one: &'c Decided,
    standing: Standing,
    /// Its steps that were not come to yet.
    steps: std::vec::IntoIter<LaneStep>,
    next_index: u32,
    outputs: u64,
    late: u64,
    future: u64,
    fired: u64,
    taken: u64,
    /// The last timer of the system's clock that fired in it.
    system_behind: Option<TimerPlace>,
}

impl Course<'_> {
    fn commit(&self) -> &EpochCommit {
        &self.one.commit
    }

    fn next_step(&mut self) -> Option<LaneStep> {
        let next = self.steps.as_slice().first()?;
        if next.index != self.next_index {
            return None;
        }
        self.next_index += 1;
        self.steps.next()
    }
}

impl<'e> Replay<'e> {
    /// Jobs that have read nothing.
    pub(crate) fn new(evidence: &'e Evidence<'e>, shape: &'e Shape) -> Replay<'e> {
        let graph = evidence.graph;
        let streams = evidence.deployment.streams_in_order(graph, shape);
        let mut written = shape.streams.iter();
        Replay {
            evidence,
            shape,
            transform: match shape.head {
                Head::Source(_) => None,
                Head::Transform(at) => Some(&graph.computations[at]),
            },
            has_lanes: written.any(|stream| graph.transforms_reading(*stream).next().is_some()),
            model: ShapeModel::new(graph, shape, streams),
            standings: BTreeMap::new(),
            book: TimerBook::default(),
            committed: BTreeMap::new(),
            items: 0,
            findings: Vec::new(),
        }
    }

    /// What the age of a partition's states is judged by behind its last epoch.
    pub(crate) fn ages(&self, partition: PartitionId) -> Ages {
        let standing = self.standings.get(&partition);
        standing.map_or_else(Ages::default, |standing| self.ages_behind(standing))
    }

    fn ages_behind(&self, standing: &Standing) -> Ages {
        let ttls = self.transform.map_or([None; 2], |it| it.time.ttls_ms);
        Ages::behind(&standing.time, [STATES[0], STATES[1]], ttls)
    }

    /// Another epoch was decided, which took these items.
    pub(crate) fn follow(&mut self, one: &Decided, items: Vec<TakenItem<'_>>) {
        let partition = one.commit.partition;
        let committed = self.committed.entry(partition).or_default();
        if let Some(unknown) = committed.follow(&one.commit) {
            let text = format!("removes timer {unknown}, which does not stand");
            self.find(Checker::Timers, &one.commit, &text);
        }
        let mut standing = self.standings.remove(&partition).unwrap_or_default();
        let time = &one.commit.record.time;
        if one.is_move {
            if !standing.has_run {
                standing.inherit(time, self.transform.map_or(0, |it| it.inputs.len()));
            }
            standing.time = time.clone();
            self.standings.insert(partition, standing);
            return;
        }
        if self.evidence.layouts.is_retiring(partition, one.start) {
            // It only removes what its readers have taken.
            self.standings.insert(partition, standing);
            return;
        }
        standing.has_run = true;
        standing.clock = standing.clock.max(one.at);
        if time.run < standing.run {
            let text = format!("is of run {} after {}", time.run, standing.run);
            self.find(Checker::Watermarks, &one.commit, &text);
        }
        if time.run != standing.run {
            let inputs = self.transform.map_or(0, |it| it.inputs.len());
            standing.begin_run(time.run, inputs);
        }
        let steps = self.steps_of(&one.commit);
        let mut course = Course {
            one,
            standing,
            steps: steps.into_iter(),
            next_index: 0,
            outputs: 0,
            late: 0,
            future: 0,
            fired: 0,
            taken: 0,
            system_behind: None,
        };
        let mut items = items.into_iter().peekable();
        while let Some((item, message)) = items.next() {
            let next = items.peek().and_then(|(next, _)| match next {
                Item::Message(_, watermarks) | Item::Timer(_, watermarks) => Some(&watermarks[..]),
                Item::Passed(_) => None,
            });
            let next = next.unwrap_or(&time.input_watermarks).to_vec();
            self.items += 1;
            let led = match (&item, self.transform) {
                (Item::Passed(_), None) => self.take_record(&mut course, message),
                (Item::Passed(_), Some(_)) => self.take_late(&mut course, message, &next),
                (Item::Message(_, seen), _) => self.take_message(&mut course, message, seen),
                (Item::Timer(fired, seen), _) => self.take_timer(&mut course, fired, seen),
            };
            course.outputs += led.leaving.len() as u64;
            course.next_index += led.leaving.len() as u32;
            let steps = course.steps.as_slice();
            if steps
                .first()
                .is_some_and(|step| step.index < course.next_index)
            {
                let text = format!("has step {:?} within what one item led to", steps[0]);
                self.find(Checker::Watermarks, course.commit(), &text);
                course.steps.next();
            }
        }
        self.end(&mut course);
        self.standings.insert(partition, course.standing);
    }

    fn find(&mut self, checker: Checker, commit: &EpochCommit, text: &str) {
        let (name, epoch) = (self.evidence.name(commit.partition), commit.epoch);
        self.findings.push(Finding {
            checker,
            text: format!("epoch {epoch} of {name} {text}"),
        });
    }

    /// The steps that an epoch put into its lanes: the same into all.
    fn steps_of(&mut self, commit: &EpochCommit) -> Vec<LaneStep> {
        let chunks = commit
            .chunks
            .iter()
            .filter(|chunk| chunk.epoch == commit.epoch);
        let mut steps: Option<&Vec<LaneStep>> = None;
        for chunk in chunks {
            let of_lane = &chunk.messages.steps;
            if *steps.get_or_insert(of_lane) != of_lane {
                let text = "says different things in its lanes";
                self.find(Checker::Watermarks, commit, text);
                break;
            }
        }
        steps.cloned().unwrap_or_default()
    }

    /// Comes to the steps that stand here; `most` is what they may say.
    fn pass_steps(&mut self, course: &mut Course<'_>, most: Timestamp) {
        while let Some(step) = course.next_step() {
            let told = course.standing.out;
            let watermark = step.time.watermark;
            if watermark < told || watermark > told.max(most) {
                let text = format!("says {watermark} after {told}, where {most} holds");
                self.find(Checker::Watermarks, course.commit(), &text);
            }
            course.standing.out = watermark;
        }
    }
}
