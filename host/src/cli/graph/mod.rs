//! `tidelock graph PIPELINE`: the graph of a pipeline as it will run, cut into jobs. It reads the
//! pipeline file and nothing else: what the components say of themselves is for `tidelock check`.

mod document;
mod dot;
mod layers;
mod picture;
mod svg;
mod text;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::graph::document::GraphDocument;
use crate::cli::printing::{print, print_json};
use crate::cli::{Outcome, OutputFormat};
use crate::config;
use crate::telemetry::LogOutput;
use crate::types::finding::Finding;

/// Arguments of `tidelock graph`.
#[derive(Debug, Args)]
pub struct GraphArguments {
    /// A pipeline file, or the folder of its tidelock.toml.
    pub pipeline: PathBuf,
    /// How the graph is drawn [default: text]; `-o json` prints it as a document instead.
    #[arg(long, value_enum)]
    pub format: Option<GraphFormat>,
}

/// How the graph is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Lines for a terminal.
    #[default]
    Text,
    /// Graphviz's language.
    Dot,
    /// A finished picture.
    Svg,
}

/// What `-o json` prints: the graph, unless something was found that keeps it from running.
#[derive(Serialize)]
struct GraphReport<'a> {
    graph: Option<GraphDocument>,
    findings: &'a [Finding],
}

/// Prints the graph to stdout, what was found in the file to stderr.
///
/// # Errors
///
/// When nothing can be printed, or two formats are asked for.
pub fn graph(
    arguments: &GraphArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    if output == OutputFormat::Json && arguments.format.is_some() {
        anyhow::bail!("-o json prints a document and takes no --format; leave one of them out");
    }
    let (graph, findings) = match config::load(&arguments.pipeline) {
        Ok(pipeline) => (Some(GraphDocument::of(&pipeline)), pipeline.warnings),
        Err(error) => (None, error.findings),
    };
    let outcome = match graph {
        Some(_) => Outcome::Done,
        None => Outcome::Failed,
    };
    if output == OutputFormat::Json {
        let findings = &findings;
        print_json(&GraphReport { graph, findings })?;
        return Ok(outcome);
    }
    for finding in &findings {
        logs.print_line(&finding.to_string());
    }
    if let Some(graph) = graph {
        let drawn = drawn(&graph, arguments.format.unwrap_or_default());
        print(|output| Ok(output.write_all(drawn.as_bytes())?))?;
    }
    Ok(outcome)
}

fn drawn(graph: &GraphDocument, format: GraphFormat) -> String {
    match format {
        GraphFormat::Text => text::text(graph),
        GraphFormat::Dot => dot::dot(graph),
        GraphFormat::Svg => svg::svg(graph),
    }
}

#[cfg(test)]
mod tests;
