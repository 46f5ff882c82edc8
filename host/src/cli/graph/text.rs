//! The graph as lines for a terminal: job by job, each step with its streams and who reads them.

use std::fmt::Write as _;

use crate::cli::graph::document::{GraphDocument, Job, NodeId, NodeKind};

/// What a stream's line says of its readers where there are none.
const NOBODY: &str = "nobody: its messages are dropped";

/// What the line of a stream of late messages says of them.
const LATE: &str = "; late messages";

/// The whole graph.
pub(super) fn text(graph: &GraphDocument) -> String {
    let nodes = graph.nodes.iter().map(|node| node.id.to_string().len() + 2);
    let streams = graph.streams.iter().map(|stream| stream.name.len() + 4);
    let width = nodes.chain(streams).max().unwrap_or(0) + 2;

    let mut lines = format!("pipeline {}\n", graph.pipeline);
    for job in &graph.jobs {
        write_job(&mut lines, graph, job, width);
    }
    let mut sinks = graph.sinks().peekable();
    if sinks.peek().is_some() {
        lines += "\nsinks\n";
    }
    for sink in sinks {
        let id = format!("  {}", sink.id);
        let inputs = sink.inputs.join(", ");
        // Writing to a string can't fail.
        let _ = writeln!(lines, "{id:<width$}{}; takes {inputs}", sink.detail);
    }
    lines
}

fn write_job(lines: &mut String, graph: &GraphDocument, job: &Job, width: usize) {
    let partitions = match job.partitions {
        1 => ", 1 partition".to_owned(),
        count => format!(", {count} partitions"),
    };
    let _ = writeln!(lines, "\njob of {}{partitions}", job.head);
    for step in &job.steps {
        let id = format!("  {step}");
        let node = graph.node(step);
        let _ = writeln!(lines, "{id:<width$}{}", node.detail);
        for stream in &node.outputs {
            let name = format!("    {stream}");
            let stream = graph.stream(stream);
            let readers: Vec<String> = stream.readers.iter().map(reader).collect();
            let readers = match readers.is_empty() {
                true => NOBODY.to_owned(),
                false => readers.join(", "),
            };
            let late = if stream.is_late { LATE } else { "" };
            let _ = writeln!(lines, "{name:<width$}-> {readers}{late}");
        }
    }
}

fn reader(reader: &NodeId) -> String {
    match reader.kind {
        NodeKind::Transform => format!("{reader} (lane)"),
        _ => reader.to_string(),
    }
}
