//! The checker of what readers make of watermarks: those of a transform's inputs are the least of what
//! their lanes have said where they are read up to, lanes at their end and idle ones left out; and a
//! frontier remembers what its lane has said.

use std::collections::BTreeMap;

use tidelock::types::epoch::{EpochCommit, FrontierAdvance, LaneChunk};
use tidelock::types::ids::{EpochId, LaneId, PartitionId};
use tidelock::types::watermark::{END_OF_TIME, LaneTime};

use crate::checkers::{Checker, Evidence, Finding};
use crate::graph::{Head, Stream};
use crate::history::Decided;

/// A place in a lane.
type Place = (EpochId, u32);

/// What a lane said somewhere.
#[derive(Debug, Clone, Copy)]
struct Said {
    at: Place,
    run: u64,
    time: LaneTime,
}

/// A lane, by all that was decided.
#[derive(Debug, Default)]
struct Lane {
    said: Vec<Said>,
    /// The last message written so far.
    written: Option<Place>,
    /// Of each write its number among all epochs, the run, and the worker's start.
    writes: Vec<(usize, u64, usize)>,
    /// How far it is read.
    frontier: Option<Place>,
}

impl Lane {
    /// What holds at a place in a run.
    fn time_at(&self, place: Option<Place>, run: u64) -> LaneTime {
        let said = self.said.iter().rev();
        let mut said = said.filter(|said| said.run == run && Some(said.at) <= place);
        said.next().map_or_else(LaneTime::default, |said| said.time)
    }

    /// Whether it may have been idle anywhere from one place to another.
    fn is_idle_between(&self, from: Option<Place>, to: Option<Place>, run: u64) -> bool {
        let mut said = self.said.iter().filter(|said| said.run == run);
        self.time_at(from, run).is_idle
            || said.any(|said| said.time.is_idle && Some(said.at) > from && Some(said.at) <= to)
    }

    /// Whether nothing may have been left in it and nothing more was written before the worker's next start.
    fn may_be_at_end(&self, number: usize, (run, start): (u64, usize)) -> bool {
        let mut later = self.writes.iter().filter(|(write, ..)| *write > number);
        let is_read = self.frontier >= self.written;
        is_read && !later.any(|(_, of_run, of_start)| (*of_run, *of_start) == (run, start))
    }
}

/// All lanes.
struct Lanes<'e> {
    evidence: &'e Evidence<'e>,
    lanes: BTreeMap<LaneId, Lane>,
    findings: Vec<Finding>,
}

/// Judges what was made of watermarks in everything that was ever decided.
pub(crate) fn judge(evidence: &Evidence<'_>, decided: &[Decided]) -> Vec<Finding> {
    let mut lanes = Lanes {
        evidence,
        lanes: BTreeMap::new(),
        findings: Vec::new(),
    };
    for (number, one) in decided.iter().enumerate() {
        // A source that starts again may say that it waits for its turn, though it was at its end.
        let brings_messages =
            |chunk: &&LaneChunk| !one.is_move && !chunk.messages.indexes.is_empty();
        for chunk in one.commit.chunks.iter().filter(brings_messages) {
            let lane = lanes.lanes.entry(chunk.lane).or_default();
            lane.writes
                .push((number, one.commit.record.time.run, one.start));
        }
    }
    let mut last: BTreeMap<PartitionId, &Decided> = BTreeMap::new();
    for (number, one) in decided.iter().enumerate() {
        lanes.follow(number, one, last.get(&one.commit.partition).copied());
        last.insert(one.commit.partition, one);
    }
    let mut findings = lanes.findings;
    if evidence.is_finished {
        findings.extend(not_at_end(evidence, &last));
    }
    findings
}

impl<'e> Lanes<'e> {
    fn follow(&mut self, number: usize, one: &Decided, before: Option<&Decided>) {
        let commit = &one.commit;
        let shape =
            &self.evidence.graph.shapes[self.evidence.layouts.place(commit.partition).shape];
        if let (Head::Transform(at), false) = (shape.head, one.is_move) {
            let inputs = self.evidence.graph.computations[at].inputs.clone();
            self.check(number, one, before, &inputs);
        }
        for frontier in &commit.frontiers {
            let lane = self.lanes.entry(frontier.lane).or_default();
            let at = (frontier.epoch, frontier.index);
            lane.frontier = Some(at);
            if one.is_move {
                // The steps before it stay behind.
                lane.said.push(Said {
                    at,
                    run: frontier.run,
                    time: frontier.time,
                });
                lane.said.sort_by_key(|said| said.at);
            }
        }
        for chunk in &commit.chunks {
            let lane = self.lanes.entry(chunk.lane).or_default();
            lane.said
                .extend(chunk.messages.steps.iter().map(|step| Said {
                    at: (chunk.epoch, step.index),
                    run: commit.record.time.run,
                    time: step.time,
                }));
            lane.said.sort_by_key(|said| said.at);
            let last = chunk.messages.indexes.last().copied();
            lane.written = lane.written.max(last.map(|last| (chunk.epoch, last)));
        }
    }

    fn find(&mut self, commit: &EpochCommit, text: &str) {
        let (name, epoch) = (self.evidence.name(commit.partition), commit.epoch);
        self.findings.push(Finding {
            checker: Checker::Watermarks,
            text: format!("epoch {epoch} of {name} {text}"),
        });
    }

    /// An epoch of a transform with these inputs.
    fn check(&mut self, number: usize, one: &Decided, before: Option<&Decided>, inputs: &[Stream]) {
        let commit = &one.commit;
        let time = &commit.record.time;
        let frontiers: BTreeMap<LaneId, &FrontierAdvance> = (commit.frontiers.iter())
            .map(|frontier| (frontier.lane, frontier))
            .collect();
        for frontier in &commit.frontiers {
            let lane = self.lanes.entry(frontier.lane).or_default();
            let said = lane.time_at(Some((frontier.epoch, frontier.index)), time.run);
            if (frontier.run, frontier.time) != (time.run, said) {
                let text = format!("remembers {frontier:?} of what said {said:?}");
                self.find(commit, &text);
            }
        }
        let before = before.filter(|before| before.commit.record.time.run == time.run);
        let before = before.map_or_else(Vec::new, |it| {
            it.commit.record.time.input_watermarks.clone()
        });
        let mut bounds = Vec::new();
        for stream in inputs {
            let (mut least, mut most, mut is_free) = (END_OF_TIME, END_OF_TIME, false);
            for lane in self.lanes_of(*stream, commit.partition) {
                let lane_id = lane;
                let lane = self.lanes.entry(lane_id).or_default();
                let from = lane.frontier;
                let advance = frontiers.get(&lane_id);
                let to = advance.map(|it| (it.epoch, it.index)).or(from);
                lane.frontier = to;
                let is_at_end = lane.may_be_at_end(number, (time.run, one.start));
                lane.frontier = from;
                least = least.min(lane.time_at(from, time.run).watermark);
                match lane.is_idle_between(from, to, time.run) {
                    true => is_free = true,
                    false if is_at_end => {}
                    false => most = most.min(lane.time_at(to, time.run).watermark),
                }
            }
            bounds.push((least, most, is_free));
        }
        for (input, watermark) in time.input_watermarks.iter().enumerate() {
            let (least, most, is_free) = bounds[input];
            let before = before.get(input).copied().unwrap_or(0);
            let has_taken = commit.record.input_count > 0;
            if *watermark > before.max(most) {
                let text = format!("has input {input} at {watermark}, where {most} holds");
                self.find(commit, &text);
            }
            if has_taken && !is_free && least != END_OF_TIME && *watermark < least {
                let text = format!("has input {input} at {watermark}, behind {least}");
                self.find(commit, &text);
            }
        }
    }

    /// The lanes that bring a stream to a partition.
    fn lanes_of(&self, stream: Stream, reader: PartitionId) -> Vec<LaneId> {
        let evidence = self.evidence;
        let name = evidence.graph.stream_name(stream);
        let id = evidence.deployment.stream(&name);
        // A map that is fed by several jobs runs in each of them.
        let shapes = evidence.graph.shapes.iter().enumerate();
        let writers = shapes.filter(|(_, shape)| shape.streams.contains(&stream));
        let producers = writers.flat_map(|(shape, _)| evidence.layouts.partitions(shape));
        producers
            .map(|producer| LaneId {
                producer,
                stream: id,
                reader,
            })
            .collect()
    }
}

/// Transforms that are not at the end of time though the run is over.
fn not_at_end(evidence: &Evidence<'_>, last: &BTreeMap<PartitionId, &Decided>) -> Vec<Finding> {
    let run = evidence.deployment.run();
    let mut findings = Vec::new();
    for (at, shape) in evidence.graph.shapes.iter().enumerate() {
        if matches!(shape.head, Head::Source(_)) {
            continue;
        }
        for partition in evidence.layouts.in_force(at) {
            let time = last.get(partition).map(|one| &one.commit.record.time);
            let is_at_end = time.is_some_and(|time| {
                let mut watermarks = time.input_watermarks.iter();
                time.run == run
                    && watermarks.all(|it| *it == END_OF_TIME)
                    && time.fired_up_to.is_none()
            });
            if !is_at_end {
                let name = evidence.name(*partition);
                findings.push(Finding {
                    checker: Checker::Watermarks,
                    text: format!("{name} is not at the end of run {run}: {time:?}"),
                });
            }
        }
    }
    findings
}
