//! How the named things of a pipeline hang together: components in use, streams with one writer
//! and at least one reader, no cycles. Knows names and lines only.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::fields::{Located, check_name};
use crate::config::report::{Report, nearest};

/// The pipeline as a graph.
#[derive(Default)]
pub(super) struct Graph {
    /// The names under `[components]`.
    pub(super) components: Vec<Located<String>>,
    /// Sources, computations and sinks.
    pub(super) nodes: Vec<Node>,
}

/// A source, computation or sink. Streams that are `None` were there and could not be read.
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// As messages name it: `source departures`.
    pub(super) what: String,
    pub(super) line: usize,
    /// The component that it runs, if it runs one whose name could be read.
    pub(super) component: Option<Located<String>>,
    /// The streams that it reads.
    pub(super) inputs: Option<Vec<Located<String>>>,
    /// The streams that it writes.
    pub(super) outputs: Option<Vec<Located<String>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    Source,
    Computation,
    Sink,
}

impl Node {
    fn inputs(&self) -> &[Located<String>] {
        self.inputs.as_deref().unwrap_or_default()
    }

    fn outputs(&self) -> &[Located<String>] {
        self.outputs.as_deref().unwrap_or_default()
    }
}

/// The most sources, computations and sinks that a pipeline may have together.
pub(super) const NODES_MAX: usize = 1_000;

impl Graph {
    pub(super) fn check(&mut self, report: &Report<'_>) {
        // Of two writers the second in the file is the wrong one.
        self.nodes.sort_by_key(|node| node.line);
        if self.nodes.len() > NODES_MAX {
            let found = self.nodes.len();
            let message = format!("the pipeline has {found} sources, computations and sinks");
            report.error(
                1,
                message,
                format!("write at most {NODES_MAX}; cut it in two"),
            );
            return;
        }
        self.check_size(report);
        self.check_components(report);
        let writers = self.writers(report);
        self.check_inputs(report, &writers);
        self.check_readers(report);
        self.check_cycles(report, &writers);
    }

    fn has(&self, kind: NodeKind) -> bool {
        self.nodes.iter().any(|node| node.kind == kind)
    }

    fn check_size(&self, report: &Report<'_>) {
        if !self.has(NodeKind::Source) {
            let remedy = "write [sources.NAME] with type, path and format";
            report.error(1, "the pipeline has no source", remedy);
        }
        if !self.has(NodeKind::Computation) && !self.has(NodeKind::Sink) {
            let remedy = "write [computations.NAME] and [sinks.NAME]";
            report.error(
                1,
                "the pipeline has neither a computation nor a sink",
                remedy,
            );
        }
    }

    fn check_components(&self, report: &Report<'_>) {
        let names = || self.components.iter().map(|name| name.value.as_str());
        let mut used = BTreeSet::new();
        for node in &self.nodes {
            let Some(component) = &node.component else {
                continue;
            };
            used.insert(component.value.as_str());
            if !names().any(|name| name == component.value) {
                let message = format!("{} runs unknown component {:?}", node.what, component.value);
                let remedy = match nearest(&component.value, names()) {
                    Some(name) => format!("did you mean {name:?}?"),
                    None => format!("add {} = \"...\" under [components]", component.value),
                };
                report.error(component.line, message, remedy);
            }
        }
        for component in &self.components {
            if !used.contains(component.value.as_str()) {
                let message = format!("no computation runs component {}", component.value);
                report.warning(
                    component.line,
                    message,
                    "remove it, or name it in a computation",
                );
            }
        }
    }

    /// The node that writes each stream; a second one is reported.
    fn writers(&self, report: &Report<'_>) -> BTreeMap<&str, usize> {
        let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for stream in node.outputs() {
                if node.kind == NodeKind::Computation {
                    check_name(report, "stream", stream);
                }
                let first = *writers.entry(&stream.value).or_insert(index);
                if first != index {
                    let message = format!(
                        "{} writes stream {}, which {} already writes",
                        node.what, stream.value, self.nodes[first].what
                    );
                    report.error(
                        stream.line,
                        message,
                        "a stream has one writer: rename one of them",
                    );
                }
            }
            for stream in repeated(node.outputs()) {
                let message = format!("{} writes stream {} twice", node.what, stream.value);
                report.error(stream.line, message, "name each stream once");
            }
        }
        writers
    }

    fn check_inputs(&self, report: &Report<'_>, writers: &BTreeMap<&str, usize>) {
        // A stream may be written by what could not be read.
        let all_outputs_known = self.nodes.iter().all(|node| node.outputs.is_some());
        for node in &self.nodes {
            for stream in repeated(node.inputs()) {
                let message = format!("{} reads stream {} twice", node.what, stream.value);
                report.error(stream.line, message, "name each stream once");
            }
            for stream in node.inputs() {
                let name = stream.value.as_str();
                if all_outputs_known && !writers.contains_key(name) {
                    let message =
                        format!("{} reads stream {name:?}, which nobody writes", node.what);
                    let remedy = match nearest(name, writers.keys().copied()) {
                        Some(stream) => format!("did you mean {stream:?}?"),
                        None => "name a source, or an output of a computation".to_owned(),
                    };
                    report.error(stream.line, message, remedy);
                }
            }
        }
    }

    fn check_readers(&self, report: &Report<'_>) {
        // A stream may be read by what could not be read, or under a name that was reported.
        if self.nodes.iter().any(|node| node.inputs.is_none()) {
            return;
        }
        let read: BTreeSet<&str> = self
            .nodes
            .iter()
            .flat_map(Node::inputs)
            .map(|stream| stream.value.as_str())
            .collect();
        for node in &self.nodes {
            for stream in node.outputs() {
                if read.contains(stream.value.as_str()) {
                    continue;
                }
                let name = &stream.value;
                match node.kind {
                    NodeKind::Source => report.error(
                        node.line,
                        format!("nobody reads {}", node.what),
                        format!(
                            "add {name:?} to the inputs of a computation or sink, or remove it"
                        ),
                    ),
                    _ => report.warning(
                        stream.line,
                        format!("nobody reads stream {name}, so its messages are dropped"),
                        format!("add {name:?} to the inputs of a sink if they are wanted"),
                    ),
                }
            }
        }
    }

    /// Reports each cycle once, at the first of its computations in the file.
    fn check_cycles(&self, report: &Report<'_>, writers: &BTreeMap<&str, usize>) {
        let feeders_of = |index: usize| -> BTreeSet<usize> {
            let inputs = self.nodes[index].inputs().iter();
            inputs
                .filter_map(|stream| writers.get(stream.value.as_str()).copied())
                .collect()
        };
        let mut waiting: BTreeMap<usize, BTreeSet<usize>> = (0..self.nodes.len())
            .map(|index| (index, feeders_of(index)))
            .collect();
        while !waiting.is_empty() {
            let ready =
                |feeders: &BTreeSet<usize>| feeders.iter().all(|it| !waiting.contains_key(it));
            let done: BTreeSet<usize> = waiting
                .iter()
                .filter(|(_, feeders)| ready(feeders))
                .map(|(index, _)| *index)
                .collect();
            if !done.is_empty() {
                waiting.retain(|index, _| !done.contains(index));
                continue;
            }
            let cycle = cycle_in(&waiting);
            self.report_cycle(report, &cycle);
            waiting.retain(|index, _| !cycle.contains(index));
        }
    }

    fn report_cycle(&self, report: &Report<'_>, cycle: &[usize]) {
        let Some(first) = cycle.iter().min_by_key(|index| self.nodes[**index].line) else {
            return;
        };
        let begin = cycle.iter().position(|index| index == first).unwrap_or(0);
        let around = (0..=cycle.len()).map(|step| cycle[(begin + step) % cycle.len()]);
        let names: Vec<&str> = around
            .map(|index| self.nodes[index].what.trim_start_matches("computation "))
            .collect();
        let message = format!(
            "computations feed each other in a circle: {}",
            names.join(" -> ")
        );
        let line = self.nodes[*first].line;
        report.error(
            line,
            message,
            "remove one of these streams from the inputs that it closes",
        );
    }
}

/// A cycle, in the direction of the streams, among nodes that each have a feeder among them.
fn cycle_in(waiting: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<usize> {
    // Walking upstream never ends, so it comes back to a node; from there on it is the cycle.
    let mut walk: Vec<usize> = Vec::new();
    let mut next = waiting.keys().next().copied();
    while let Some(index) = next {
        if let Some(begin) = walk.iter().position(|seen| *seen == index) {
            let mut cycle = walk.split_off(begin);
            cycle.reverse();
            return cycle;
        }
        walk.push(index);
        next = waiting[&index]
            .iter()
            .copied()
            .find(|feeder| waiting.contains_key(feeder));
    }
    walk
}

/// The streams that stand in the list before.
fn repeated(streams: &[Located<String>]) -> impl Iterator<Item = &Located<String>> {
    let mut seen = BTreeSet::new();
    streams
        .iter()
        .filter(move |stream| !seen.insert(stream.value.as_str()))
}
