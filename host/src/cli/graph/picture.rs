//! Where the parts of the picture stand: a frame for each job with its steps and streams inside, the
//! frames and sinks side by side, arrows between them. What they look like is not decided here.

use std::collections::BTreeMap;

use crate::cli::graph::document::{GraphDocument, Job, Node, NodeId, NodeKind, Stream};
use crate::cli::graph::layers::{ItemIndex, Layers, Line, Placement, Point, Size};

/// Free room between a job's frame and what is inside; the frame's title takes more at the top.
const FRAME_PADDING: i32 = 16;
const FRAME_TITLE_HEIGHT: i32 = 22;

/// Free room between columns and rows, inside a job and between jobs.
const STEP_GAPS: (i32, i32) = (32, 14);
const JOB_GAPS: (i32, i32) = (72, 22);

/// How large each part is with its text.
pub(super) trait Measure {
    /// A node's box.
    fn node(&self, node: &Node) -> Size;
    /// A stream's label.
    fn stream(&self, stream: &Stream) -> Size;
    /// The least width of a frame with this title.
    fn frame_width(&self, title: &str) -> i32;
}

/// The whole picture; corners are upper left ones.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) size: Size,
    pub(super) frames: Vec<Frame>,
    pub(super) boxes: Vec<NodeBox<'a>>,
    pub(super) labels: Vec<StreamLabel<'a>>,
    pub(super) arrows: Vec<Arrow>,
}

/// A job's frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) corner: Point,
    pub(super) size: Size,
    pub(super) title: String,
    /// Whether more than one job of this shape runs.
    pub(super) is_many: bool,
}

/// A source, a computation or a sink.
#[derive(Debug)]
pub(super) struct NodeBox<'a> {
    pub(super) corner: Point,
    pub(super) size: Size,
    pub(super) node: &'a Node,
}

/// A stream where it is written.
#[derive(Debug)]
pub(super) struct StreamLabel<'a> {
    pub(super) corner: Point,
    pub(super) size: Size,
    pub(super) stream: &'a Stream,
}

/// From left to right through these points, straight inside each pair and bent between pairs.
#[derive(Debug)]
pub(super) struct Arrow {
    pub(super) kind: ArrowKind,
    pub(super) points: Vec<Point>,
}

/// What an arrow stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrowKind {
    /// From a step to a stream that it writes.
    Writes,
    /// From a stream to a map in the same job or to a sink.
    Reads,
    /// From a stream to a transform, by lanes.
    Lane,
}

/// One job, placed in a frame of its own.
struct JobPicture<'a> {
    title: String,
    placement: Placement,
    size: Size,
    steps: Vec<(ItemIndex, &'a Node)>,
    streams: Vec<(ItemIndex, &'a Stream)>,
    arrows: Vec<(ArrowKind, Line, ItemIndex)>,
    /// The streams that leave the job, each with its line up to the frame.
    exits: Vec<(&'a str, Line)>,
}

impl<'a> Picture<'a> {
    /// Lays the graph out.
    pub(super) fn of(graph: &'a GraphDocument, measure: &impl Measure) -> Picture<'a> {
        let jobs: Vec<JobPicture<'a>> = graph
            .jobs
            .iter()
            .map(|job| JobPicture::of(graph, job, measure))
            .collect();
        let layers_of_jobs = layers_of_jobs(graph);
        let mut layers = Layers::default();
        let mut items: BTreeMap<&NodeId, ItemIndex> = BTreeMap::new();
        for ((job, picture), layer) in graph.jobs.iter().zip(&jobs).zip(&layers_of_jobs) {
            let entry = picture
                .inside(picture.placement.entry(picture.steps[0].0))
                .y;
            items.insert(&job.head, layers.add(*layer, picture.size, entry));
        }
        let mut sinks = Vec::new();
        for sink in graph.sinks() {
            let feeds = |picture: &JobPicture<'_>| {
                let takes = |(stream, _): &(&str, Line)| sink.inputs.iter().any(|it| it == stream);
                picture.exits.iter().any(takes)
            };
            let feeding = jobs.iter().zip(&layers_of_jobs);
            let feeding = feeding.filter(|(picture, _)| feeds(picture));
            let layer = feeding.map(|(_, layer)| layer + 1).max().unwrap_or(0);
            let size = measure.node(sink);
            let item = layers.add(layer, size, size.height / 2);
            items.insert(&sink.id, item);
            sinks.push((item, sink, size));
        }

        let mut lines = Vec::new();
        for (from, picture) in graph.jobs.iter().zip(&jobs) {
            for (stream, inner) in &picture.exits {
                let inner = picture.placement.points(inner);
                let inner = inner.into_iter().map(|point| picture.inside(point));
                let inner: Vec<Point> = inner.collect();
                let exit = inner.last().map_or(0, |point| point.y);
                let readers = &graph.stream(stream).readers;
                for reader in readers.iter().filter(|reader| Job::feeds_outside(reader)) {
                    let line = layers.connect(items[&from.head], exit, items[reader]);
                    lines.push((items[&from.head], inner.clone(), line, reader));
                }
            }
        }

        let placement = layers.place(JOB_GAPS.0, JOB_GAPS.1);
        let mut picture = Picture {
            size: placement.size,
            frames: Vec::new(),
            boxes: Vec::new(),
            labels: Vec::new(),
            arrows: Vec::new(),
        };
        for (job, inner) in graph.jobs.iter().zip(&jobs) {
            let is_many = job.partitions > 1;
            picture.add_job(inner, placement.corner(items[&job.head]), is_many);
        }
        for (item, node, size) in sinks {
            let corner = placement.corner(item);
            picture.boxes.push(NodeBox { corner, size, node });
        }
        for (from, inner, line, reader) in lines {
            let corner = placement.corner(from);
            let mut points: Vec<Point> = inner.iter().map(|it| it.moved_by(corner)).collect();
            points.extend(placement.points(&line));
            let entry = placement.entry(items[reader]);
            points.push(entry);
            let is_lane = reader.kind == NodeKind::Transform;
            let beyond = if is_lane { FRAME_PADDING } else { 0 };
            points.push(Point {
                x: entry.x + beyond,
                ..entry
            });
            let kind = if is_lane {
                ArrowKind::Lane
            } else {
                ArrowKind::Reads
            };
            picture.arrows.push(Arrow { kind, points });
        }
        picture
    }

    fn add_job(&mut self, job: &JobPicture<'a>, frame: Point, is_many: bool) {
        self.frames.push(Frame {
            corner: frame,
            size: job.size,
            title: job.title.clone(),
            is_many,
        });
        let place = |point: Point| job.inside(point).moved_by(frame);
        for (item, node) in &job.steps {
            self.boxes.push(NodeBox {
                corner: place(job.placement.corner(*item)),
                size: job.placement.size_of(*item),
                node,
            });
        }
        for (item, stream) in &job.streams {
            self.labels.push(StreamLabel {
                corner: place(job.placement.corner(*item)),
                size: job.placement.size_of(*item),
                stream,
            });
        }
        for (kind, line, to) in &job.arrows {
            let entry = job.placement.entry(*to);
            let points = job.placement.points(line).into_iter();
            let points = points.chain([entry, entry]).map(place).collect();
            self.arrows.push(Arrow {
                kind: *kind,
                points,
            });
        }
    }
}

impl<'a> JobPicture<'a> {
    fn of(graph: &'a GraphDocument, job: &'a Job, measure: &impl Measure) -> JobPicture<'a> {
        let mut layers = Layers::default();
        let mut steps = Vec::new();
        let mut streams: Vec<(ItemIndex, &Stream)> = Vec::new();
        let mut arrows = Vec::new();
        // Steps stand in even columns, the streams that they write in the odd ones behind them.
        let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
        for step in &job.steps {
            let node = graph.node(step);
            let chained = step.kind == NodeKind::Map;
            let inputs = node.inputs.iter().filter(|_| chained);
            let inputs = inputs.filter_map(|input| columns.get(input.as_str()));
            let column = inputs.max().map_or(0, |column| column + 1);
            let size = measure.node(node);
            let item = layers.add(column, size, size.height / 2);
            for (label, stream) in streams.iter().filter(|_| chained) {
                if node.inputs.contains(&stream.name) {
                    let exit = layers.size_of(*label).height / 2;
                    let line = layers.connect(*label, exit, item);
                    arrows.push((ArrowKind::Reads, line, item));
                }
            }
            for name in &node.outputs {
                let stream = graph.stream(name);
                let label_size = measure.stream(stream);
                let label = layers.add(column + 1, label_size, label_size.height / 2);
                let line = layers.connect(item, size.height / 2, label);
                arrows.push((ArrowKind::Writes, line, label));
                streams.push((label, stream));
                columns.insert(name, column + 1);
            }
            steps.push((item, node));
        }
        let border = columns.values().max().map_or(1, |column| column + 1);
        let mut exits = Vec::new();
        for (label, stream) in &streams {
            if stream.readers.iter().any(Job::feeds_outside) {
                let exit = layers.size_of(*label).height / 2;
                exits.push((stream.name.as_str(), layers.lead(*label, exit, border)));
            }
        }
        let title = match job.partitions {
            count if count > 1 => format!("{count} jobs of {}", job.head),
            _ => format!("job of {}", job.head),
        };
        let placement = layers.place(STEP_GAPS.0, STEP_GAPS.1);
        let width = placement.size.width + 2 * FRAME_PADDING;
        JobPicture {
            size: Size {
                width: width.max(measure.frame_width(&title)),
                height: placement.size.height + 2 * FRAME_PADDING + FRAME_TITLE_HEIGHT,
            },
            title,
            placement,
            steps,
            streams,
            arrows,
            exits,
        }
    }

    /// A point of the job's placement, from its frame's corner.
    fn inside(&self, point: Point) -> Point {
        point.moved_by(Point {
            x: FRAME_PADDING,
            y: FRAME_PADDING + FRAME_TITLE_HEIGHT,
        })
    }
}

/// The column of each job: behind all that it reads from.
fn layers_of_jobs(graph: &GraphDocument) -> Vec<usize> {
    let place = |head: &NodeId| graph.jobs.iter().position(|job| job.head == *head);
    let mut layers = vec![0; graph.jobs.len()];
    // A chain of lanes is at most as long as there are jobs; graphs have no cycles.
    for _ in &graph.jobs {
        for lane in &graph.lanes {
            if let (Some(from), Some(to)) = (place(&lane.from), place(&lane.to)) {
                layers[to] = layers[to].max(layers[from] + 1);
            }
        }
    }
    layers
}
