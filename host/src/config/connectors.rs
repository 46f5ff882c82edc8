//! The tables of connectors: sources and sinks, their fields, ranges and defaults, and the files
//! that they name.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::config::fields::Fields;
use crate::config::graph::{Node, NodeKind};
use crate::config::tables::{Tables, values};
use crate::types::pipeline::{
    FileSourceOptions, RecordFormat, SinkConnector, SinkOptions, SourceConnector, SourceOptions,
};

/// The longest record that a file source may be told to accept, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;

impl Tables<'_> {
    pub(super) fn sources(&mut self, fields: &mut Fields<'_>) -> BTreeMap<String, SourceOptions> {
        let mut sources = BTreeMap::new();
        for (name, mut fields) in fields.named_tables("sources", "source") {
            let line = name.line;
            // A source writes the stream of its own name, whatever else is wrong with it.
            self.graph.nodes.push(Node {
                kind: NodeKind::Source,
                what: fields.what.clone(),
                line,
                component: None,
                inputs: Some(Vec::new()),
                outputs: Some(vec![name.clone()]),
            });
            let later = ["queue", "table", "kafka", "service_log"];
            let connector = fields.choice("type", &[("file", ())], &later);
            let connector = fields.require("type", connector, "write type = \"file\"");
            // The fields of an unknown connector can't be judged.
            let Some(_) = connector else { continue };
            let options = self.file_source(&mut fields);
            let remedy = "remove it; timers and watermarks come with it";
            fields.later("watermark_generator", remedy);
            fields.later("event_time", remedy);
            fields.finish();
            if let Some(options) = options {
                let connector = SourceConnector::File(options);
                sources.insert(name.value, SourceOptions { connector, line });
            }
        }
        sources
    }

    fn file_source(&self, fields: &mut Fields<'_>) -> Option<FileSourceOptions> {
        let path = fields.text("path");
        let written = fields.require("path", path, "write path = \"...\", the file to read");
        let path = written.as_ref().and_then(|written| {
            let remedy = "correct the path; it is relative to the pipeline file";
            self.existing_file(&fields.what, written.line, &written.value, remedy)
        });
        let formats = [RecordFormat::Lines, RecordFormat::Csv, RecordFormat::Jsonl];
        let format = fields.choice(
            "format",
            &formats.map(|format| (format.name(), format)),
            &[],
        );
        let remedy = "write format = \"lines\", \"csv\" or \"jsonl\"";
        let format = fields.require("format", format, remedy);
        let max_record_bytes = fields.size("max_record_bytes", 1..=RECORD_BYTES_MAX);
        Some(FileSourceOptions {
            path: path?,
            written_path: written?.value,
            format: format?.value,
            max_record_bytes: max_record_bytes
                .map_or(FileSourceOptions::RECORD_BYTES_MAX_DEFAULT, |size| {
                    size.value as usize
                }),
        })
    }

    pub(super) fn sinks(&mut self, fields: &mut Fields<'_>) -> BTreeMap<String, SinkOptions> {
        let mut sinks = BTreeMap::new();
        for (name, mut fields) in fields.named_tables("sinks", "sink") {
            let line = name.line;
            let inputs = self.inputs(&mut fields);
            let inputs_line = fields.line_of("inputs");
            self.graph.nodes.push(Node {
                kind: NodeKind::Sink,
                what: fields.what.clone(),
                line,
                component: None,
                inputs: inputs.clone(),
                outputs: Some(Vec::new()),
            });
            let later = ["queue", "table", "http", "kafka", "clickhouse"];
            let connector = fields.choice("type", &[("file", true), ("stdout", false)], &later);
            let remedy = "write type = \"file\" or \"stdout\"";
            let Some(is_file) = fields.require("type", connector, remedy) else {
                continue;
            };
            let connector = match is_file.value {
                true => self.file_sink(&mut fields),
                false => Some(SinkConnector::Stdout),
            };
            fields.finish();
            if let (Some(connector), Some(inputs)) = (connector, inputs) {
                let options = SinkOptions {
                    connector,
                    inputs: values(inputs),
                    line,
                    inputs_line,
                };
                sinks.insert(name.value, options);
            }
        }
        sinks
    }

    fn file_sink(&self, fields: &mut Fields<'_>) -> Option<SinkConnector> {
        let path = fields.text("path");
        let written =
            fields.require("path", path, "write path = \"...\", the file to append to")?;
        let path = self.folder.join(&written.value);
        if written.value.is_empty() || written.value.ends_with('/') || path.is_dir() {
            let message = format!("path {:?} of {} is a folder", written.value, fields.what);
            self.report
                .error(written.line, message, "name a file in it");
            return None;
        }
        Some(SinkConnector::File { path })
    }

    /// A file has one writer, and it is not read by the pipeline that writes it.
    pub(super) fn check_sink_paths(
        &self,
        sources: &BTreeMap<String, SourceOptions>,
        sinks: &BTreeMap<String, SinkOptions>,
    ) {
        let mut takers: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (name, source) in sources {
            let SourceConnector::File(options) = &source.connector;
            takers.insert(one_form(&options.path), format!("source {name} reads"));
        }
        for (name, sink) in sinks {
            let SinkConnector::File { path } = &sink.connector else {
                continue;
            };
            let path = one_form(path);
            if let Some(taker) = takers.get(&path) {
                let message = format!("sink {name} writes the file that {taker}");
                let remedy = format!("give it a file of its own instead of {}", path.display());
                self.report.error(sink.line, message, remedy);
            }
            takers.insert(path, format!("sink {name} writes"));
        }
    }
}

/// The path with its existing part resolved and without `.` and `..` in the rest: two paths of one
/// file come out equal.
fn one_form(path: &Path) -> PathBuf {
    let existing = path
        .ancestors()
        .find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let (rest, mut form) = match &existing {
        Some((ancestor, real)) => (path.strip_prefix(ancestor).unwrap_or(path), real.clone()),
        None => (path, PathBuf::new()),
    };
    for component in rest.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(form.pop()),
            other => form.push(other),
        }
    }
    form
}
