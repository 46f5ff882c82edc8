//! The tables of sinks: their fields, ranges and defaults, and the files that they name.

use std::collections::BTreeMap;

use crate::config::fields::Fields;
use crate::config::graph::{Node, NodeKind};
use crate::config::tables::{Tables, values};
use crate::types::pipeline::{QueueOptions, SinkConnector, SinkOptions};

/// The kinds of sinks.
#[derive(Debug, Clone, Copy)]
enum Kind {
    File,
    Directory,
    Stdout,
    Null,
    Queue,
}

impl Tables<'_> {
    pub(in crate::config) fn sinks(
        &mut self,
        fields: &mut Fields<'_>,
        queues: &BTreeMap<String, QueueOptions>,
    ) -> BTreeMap<String, SinkOptions> {
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
            let later = ["table", "http", "kafka", "clickhouse"];
            let kinds = [
                ("file", Kind::File),
                ("directory", Kind::Directory),
                ("queue", Kind::Queue),
                ("stdout", Kind::Stdout),
                ("null", Kind::Null),
            ];
            let kind = fields.choice("type", &kinds, &later);
            let remedy = "write type = \"file\", \"directory\", \"queue\", \"stdout\" or \"null\"";
            let Some(kind) = fields.require("type", kind, remedy) else {
                continue;
            };
            let connector = match kind.value {
                Kind::File => self.file_sink(&mut fields),
                Kind::Directory => self.directory_sink(&mut fields, &name.value),
                Kind::Stdout => Some(SinkConnector::Stdout),
                Kind::Null => Some(SinkConnector::Null),
                Kind::Queue => self.queue_sink(&mut fields, queues),
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
}
