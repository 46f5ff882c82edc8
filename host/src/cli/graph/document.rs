//! The graph of a pipeline as it will run, in the form that every output format draws from and that
//! `-o json` prints as it stands. It knows names and places, not positions on paper.

use std::fmt;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::controller::graph::{JobHead, job_shapes, transforms_reading};
use crate::types::batch::ComputationKind;
use crate::types::connectors::GeneratorOptions;
use crate::types::pipeline::{Pipeline, SinkConnector, SourceConnector, SourceOptions};

/// How many files of a source are named where there is little room.
const FILES_SHOWN_MAX: usize = 3;

/// A pipeline's graph, cut into jobs.
#[derive(Debug, Serialize)]
pub(super) struct GraphDocument {
    pub(super) pipeline: String,
    /// Sources, computations, sinks; each kind in the order of its names.
    pub(super) nodes: Vec<Node>,
    /// In the order of the nodes that write them.
    pub(super) streams: Vec<Stream>,
    /// Those of sources first.
    pub(super) jobs: Vec<Job>,
    /// In the order of the jobs that write them.
    pub(super) lanes: Vec<Lane>,
}

/// A source, a computation or a sink.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) id: NodeId,
    /// The connector with its file, or the component with its file.
    pub(super) detail: String,
    /// The component's name, where it is a computation.
    pub(super) component: Option<String>,
    /// How many partitions it has: a source or a transform.
    pub(super) partitions: Option<u32>,
    /// The file of each partition of a source.
    pub(super) files: Vec<String>,
    pub(super) inputs: Vec<String>,
    /// That of late messages stands last.
    pub(super) outputs: Vec<String>,
    /// Which of the outputs gets late messages, where it is a transform that says so.
    pub(super) late_output: Option<String>,
}

/// What a node is and how it is named; no two nodes of a pipeline have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId {
    pub(super) kind: NodeKind,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeKind {
    Source,
    Map,
    Transform,
    Sink,
}

/// A stream with its writer and its readers.
#[derive(Debug, Serialize)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) writer: NodeId,
    /// Whether it has the late messages of its writer and nothing else.
    pub(super) is_late: bool,
    /// None, where its messages are dropped.
    pub(super) readers: Vec<NodeId>,
}

impl Stream {
    /// What a person should know of it beside its name: nothing of most.
    pub(super) fn notes(&self) -> Vec<&'static str> {
        let is_dropped = self.readers.is_empty();
        let notes = [(self.is_late, "late"), (is_dropped, "dropped")];
        notes
            .into_iter()
            .filter_map(|(holds, note)| holds.then_some(note))
            .collect()
    }
}

/// What runs as one: a source or transform, and the maps chained behind it.
#[derive(Debug, Serialize)]
pub(super) struct Job {
    /// The source or transform.
    pub(super) head: NodeId,
    /// How many jobs of this shape there are.
    pub(super) partitions: u32,
    /// The head, then the maps, each after those that feed it.
    pub(super) steps: Vec<NodeId>,
}

/// A stream on its way from one kind of job to another.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Lane {
    pub(super) stream: String,
    /// The head of the job that writes it.
    pub(super) from: NodeId,
    /// The transform that reads it.
    pub(super) to: NodeId,
}

impl GraphDocument {
    /// The graph of a pipeline whose file has been checked.
    pub(super) fn of(pipeline: &Pipeline) -> GraphDocument {
        let nodes = nodes(pipeline);
        let streams = streams(&nodes);
        let mut jobs = Vec::new();
        let mut lanes = Vec::new();
        for shape in job_shapes(pipeline) {
            let (kind, partitions) = match &shape.head {
                JobHead::Source(name) => {
                    let partitions = pipeline.sources[name].partitions.len();
                    let partitions = u32::try_from(partitions).expect("a source has few files");
                    (NodeKind::Source, partitions)
                }
                JobHead::Transform(name) => {
                    (NodeKind::Transform, pipeline.computations[name].partitions)
                }
            };
            let head = NodeId::new(kind, shape.head.name());
            for stream in &shape.streams {
                lanes.extend(transforms_reading(pipeline, stream).map(|reader| Lane {
                    stream: stream.clone(),
                    from: head.clone(),
                    to: NodeId::new(NodeKind::Transform, reader),
                }));
            }
            let maps = shape
                .maps
                .iter()
                .map(|name| NodeId::new(NodeKind::Map, name));
            jobs.push(Job {
                steps: std::iter::once(head.clone()).chain(maps).collect(),
                head,
                partitions,
            });
        }
        GraphDocument {
            pipeline: pipeline.name.clone(),
            nodes,
            streams,
            jobs,
            lanes,
        }
    }

    /// The node of that id, which is one of this graph's.
    pub(super) fn node(&self, id: &NodeId) -> &Node {
        let found = self.nodes.iter().find(|node| node.id == *id);
        found.expect("ids are made together with their nodes")
    }

    /// The stream of that name, which a node of this graph writes.
    pub(super) fn stream(&self, name: &str) -> &Stream {
        let found = self.streams.iter().find(|stream| stream.name == name);
        found.expect("every output of a node is a stream")
    }

    /// The sinks, in the order of their names.
    pub(super) fn sinks(&self) -> impl Iterator<Item = &Node> {
        let is_sink = |node: &&Node| node.id.kind == NodeKind::Sink;
        self.nodes.iter().filter(is_sink)
    }
}

impl Job {
    /// Whether a reader takes a stream out of this job. A map does not: it runs in every job that
    /// writes one of its inputs.
    pub(super) fn feeds_outside(reader: &NodeId) -> bool {
        reader.kind != NodeKind::Map
    }
}

impl NodeId {
    fn new(kind: NodeKind, name: &str) -> NodeId {
        let name = name.to_owned();
        NodeId { kind, name }
    }
}

/// Its kind and its name: `map parse`.
impl fmt::Display for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.name)
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl NodeKind {
    /// Its word.
    pub(super) fn name(self) -> &'static str {
        match self {
            NodeKind::Source => "source",
            NodeKind::Map => "map",
            NodeKind::Transform => "transform",
            NodeKind::Sink => "sink",
        }
    }
}

fn nodes(pipeline: &Pipeline) -> Vec<Node> {
    // Paths were made absolute against this folder; as they are written they say more.
    let folder = pipeline.file.parent().map(Path::canonicalize);
    let folder = folder.and_then(Result::ok).unwrap_or_default();
    let written = |path: &Path| {
        let path = path.strip_prefix(&folder).unwrap_or(path);
        path.display().to_string()
    };
    let sources = pipeline.sources.iter().map(|(name, options)| Node {
        id: NodeId::new(NodeKind::Source, name),
        detail: source_detail(options),
        component: None,
        partitions: u32::try_from(options.partitions.len()).ok(),
        files: (options.partitions.iter())
            .filter_map(|partition| match partition {
                SourceConnector::File(options) => Some(options.written_path.clone()),
                SourceConnector::Directory(_)
                | SourceConnector::Generator(_)
                | SourceConnector::Queue(_) => None,
            })
            .collect(),
        inputs: Vec::new(),
        outputs: vec![name.clone()],
        late_output: None,
    });
    let computations = pipeline.computations.iter().map(|(name, options)| {
        let component = &options.component;
        let path = pipeline.components.get(component);
        let path = path.map_or_else(String::new, |reference| written(&reference.path));
        let (kind, partitions) = match options.kind {
            ComputationKind::Map => (NodeKind::Map, None),
            ComputationKind::Transform => (NodeKind::Transform, Some(options.partitions)),
        };
        Node {
            id: NodeId::new(kind, name),
            detail: match options.relaxed_batching {
                true => format!("component {component}, {path}, relaxed batching"),
                false => format!("component {component}, {path}"),
            },
            component: Some(component.clone()),
            partitions,
            files: Vec::new(),
            inputs: options.inputs.clone(),
            outputs: options.streams_written().cloned().collect(),
            late_output: options.late_output.clone(),
        }
    });
    let sinks = pipeline.sinks.iter().map(|(name, options)| Node {
        id: NodeId::new(NodeKind::Sink, name),
        detail: match &options.connector {
            SinkConnector::File { path } => format!("file {}", written(path)),
            SinkConnector::Directory(options) => {
                format!("files {}", written(&options.path.join(options.files())))
            }
            SinkConnector::Stdout => "stdout".to_owned(),
            SinkConnector::Null => "null".to_owned(),
            SinkConnector::Queue { queue, .. } => format!("queue {queue}"),
        },
        component: None,
        partitions: None,
        files: Vec::new(),
        inputs: options.inputs.clone(),
        outputs: Vec::new(),
        late_output: None,
    });
    sources.chain(computations).chain(sinks).collect()
}

/// What a source reads.
fn source_detail(options: &SourceOptions) -> String {
    match options.partitions.first() {
        Some(SourceConnector::Generator(options)) => generator_detail(options),
        Some(SourceConnector::Queue(options)) => {
            let end = if options.follow { ", followed" } else { "" };
            format!("queue {}{end}", options.queue)
        }
        Some(SourceConnector::Directory(options)) => format!(
            "files {} of directory {}, {}",
            options.pattern,
            options.written_path,
            options.format.name()
        ),
        _ => files_detail(options),
    }
}

fn generator_detail(options: &GeneratorOptions) -> String {
    let count = options.count.map(|count| format!("{count} records"));
    let rate = options.rate.map(|rate| format!("{rate} a second"));
    let count = count.unwrap_or_else(|| "records without end".to_owned());
    let detail = [Some(format!("generator, {count}")), rate];
    detail.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The files of a source, the first ones by name, and their format.
fn files_detail(options: &SourceOptions) -> String {
    let count = options.partitions.len();
    let noun = if count == 1 { "file" } else { "files" };
    let first = options.partitions.iter().take(FILES_SHOWN_MAX);
    let first: Vec<&str> = first.map(SourceConnector::partition_name).collect();
    let mut detail = format!("{noun} {}", first.join(", "));
    if count > FILES_SHOWN_MAX {
        let more = count - FILES_SHOWN_MAX;
        detail.push_str(&format!(" and {more} more"));
    }
    if let Some(SourceConnector::File(file)) = options.partitions.first() {
        detail.push_str(&format!(", {}", file.format.name()));
    }
    detail
}

fn streams(nodes: &[Node]) -> Vec<Stream> {
    let mut streams = Vec::new();
    for writer in nodes {
        for name in &writer.outputs {
            let readers = nodes.iter().filter(|node| node.inputs.contains(name));
            streams.push(Stream {
                name: name.clone(),
                writer: writer.id.clone(),
                is_late: writer.late_output.as_ref() == Some(name),
                readers: readers.map(|node| node.id.clone()).collect(),
            });
        }
    }
    streams
}
