//! The graph in Graphviz's language: a cluster for each job, an edge for each stream and reader.

use std::fmt::Write as _;

use crate::cli::graph::document::{GraphDocument, Job, NodeId, NodeKind, Stream};

const ATTRIBUTES: &str = r##"  rankdir=LR
  bgcolor="transparent"
  graph [fontname="sans-serif", fontsize=11, color="#8c959f", fontcolor="#6e7781", style=rounded]
  node [fontname="sans-serif", fontsize=11, shape=box, style="rounded,filled", fillcolor="#f6f8fa", color="#57606a"]
  edge [fontname="sans-serif", fontsize=10, color="#57606a", fontcolor="#6e7781"]
"##;

/// How a stream's edge is drawn that leads from one job to another.
const LANE: &str = "color=\"#0969da\", penwidth=2";

/// The whole graph.
pub(super) fn dot(graph: &GraphDocument) -> String {
    let mut lines = format!("digraph {} {{\n{ATTRIBUTES}", quoted(&graph.pipeline));
    for job in &graph.jobs {
        write_cluster(&mut lines, graph, job);
    }
    for sink in graph.sinks() {
        let label = quoted_lines(&[&sink.id.to_string(), &sink.detail]);
        let id = quoted(&sink.id.to_string());
        // Writing to a string can't fail.
        let _ = writeln!(lines, "  {id} [label={label}]");
    }
    for job in &graph.jobs {
        write_edges(&mut lines, graph, job);
    }
    lines += "}\n";
    lines
}

fn write_cluster(lines: &mut String, graph: &GraphDocument, job: &Job) {
    let partitions = match job.partitions {
        count if count > 1 => format!(" x {count}"),
        _ => String::new(),
    };
    let cluster = quoted(&format!("cluster {}", job.head));
    let label = quoted(&format!("job of {}{partitions}", job.head));
    let _ = writeln!(lines, "  subgraph {cluster} {{\n    label={label}");
    for step in &job.steps {
        let detail = &graph.node(step).detail;
        let label = quoted_lines(&[&step.to_string(), detail]);
        let _ = writeln!(lines, "    {} [label={label}]", step_id(job, step));
    }
    lines.push_str("  }\n");
}

fn write_edges(lines: &mut String, graph: &GraphDocument, job: &Job) {
    for step in &job.steps {
        let from = step_id(job, step);
        for stream in &graph.node(step).outputs {
            let Stream {
                readers, is_late, ..
            } = graph.stream(stream);
            let label = match is_late {
                true => quoted(&format!("{stream} (late)")),
                false => quoted(stream),
            };
            if readers.is_empty() {
                let nobody = quoted(&format!("nobody reads {stream} of {}", job.head));
                let _ = writeln!(lines, "  {nobody} [shape=point]");
                let _ = writeln!(lines, "  {from} -> {nobody} [label={label}, style=dashed]");
            }
            for reader in readers {
                let (to, style) = match reader.kind {
                    NodeKind::Map => (step_id(job, reader), ""),
                    NodeKind::Transform => (quoted(&format!("{reader} in {reader}")), LANE),
                    _ => (quoted(&reader.to_string()), ""),
                };
                let comma = if style.is_empty() { "" } else { ", " };
                let _ = writeln!(lines, "  {from} -> {to} [label={label}{comma}{style}]");
            }
        }
    }
}

/// A map runs in every job that feeds it, so a step is named together with its job.
fn step_id(job: &Job, step: &NodeId) -> String {
    quoted(&format!("{step} in {}", job.head))
}

fn quoted(text: &str) -> String {
    quoted_lines(&[text])
}

/// The lines as one quoted label.
fn quoted_lines(lines: &[&str]) -> String {
    let escaped = lines
        .iter()
        .map(|line| line.replace('\\', "\\\\").replace('"', "\\\""));
    format!("\"{}\"", escaped.collect::<Vec<_>>().join("\\n"))
}
