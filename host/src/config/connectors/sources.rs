//! The tables of sources: their fields, ranges and defaults, and the files that they name.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::config::connectors::one_form;
use crate::config::fields::{Fields, Located};
use crate::config::graph::{Node, NodeKind};
use crate::config::tables::{Tables, on_failure};
use crate::types::pipeline::{
    FileSourceOptions, QueueOptions, RecordFormat, SourceConnector, SourceOptions,
};

/// The greatest number of partitions of a source: each is a job with a thread of its own.
pub(super) const SOURCE_PARTITIONS_MAX: usize = 256;

/// The longest path of a source's file as it is written, in bytes: it is kept in the key of a row.
pub(super) const SOURCE_PATH_BYTES_MAX: usize = 512;

/// The longest record that a file source may be told to accept, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// The kinds of sources.
#[derive(Debug, Clone, Copy)]
enum Kind {
    File,
    Directory,
    Generator,
    Queue,
}

impl Tables<'_> {
    pub(in crate::config) fn sources(
        &mut self,
        fields: &mut Fields<'_>,
        queues: &BTreeMap<String, QueueOptions>,
    ) -> BTreeMap<String, SourceOptions> {
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
            let later = ["table", "kafka", "service_log"];
            let kinds = [
                ("file", Kind::File),
                ("directory", Kind::Directory),
                ("queue", Kind::Queue),
                ("generator", Kind::Generator),
            ];
            let kind = fields.choice("type", &kinds, &later);
            let remedy = "write type = \"file\", \"directory\", \"queue\" or \"generator\"";
            // The fields of an unknown connector can't be judged.
            let Some(kind) = fields.require("type", kind, remedy) else {
                continue;
            };
            let options = match kind.value {
                Kind::File => self.file_source(&mut fields),
                Kind::Directory => self.directory_source(&mut fields),
                Kind::Generator => self.generator(&mut fields),
                Kind::Queue => self.queue_source(&mut fields, queues),
            };
            fields.later("event_time", "remove it, and let a map give event times");
            fields.finish();
            if let Some(options) = options {
                sources.insert(name.value, options);
            }
        }
        sources
    }

    fn file_source(&self, fields: &mut Fields<'_>) -> Option<SourceOptions> {
        let files = self.source_files(fields);
        let format = record_format(fields);
        let max_record_bytes = max_record_bytes(fields);
        let parallel = fields.number("parallel_partitions", 1..=SOURCE_PARTITIONS_MAX as u64);
        let follow = fields.switch("follow").is_some_and(|follow| follow.value);
        let watermarks = self.watermarks(fields);
        let on_failure = on_failure(fields);
        let (files, format) = (files?, format?);
        let mut parallel = parallel.map(|parallel| parallel.value as usize);
        if follow {
            // One that is followed never passes its turn on.
            let all = files.len();
            if parallel.is_some_and(|parallel| parallel < all) {
                let message = format!(
                    "{} follows {all} files and reads fewer at once: the others would never be begun",
                    fields.what
                );
                let remedy = format!("write {all} or more, or remove it");
                (self.report).error(fields.line_of("parallel_partitions"), message, remedy);
            }
            parallel = Some(all);
        }
        let partition = |(path, written_path)| {
            SourceConnector::File(FileSourceOptions {
                follow,
                path,
                written_path,
                format,
                max_record_bytes,
            })
        };
        Some(SourceOptions {
            partitions: files.into_iter().map(partition).collect(),
            parallel_partitions: parallel,
            watermarks,
            on_failure,
            line: fields.line,
        })
    }

    /// The files of a source, each with its path as it is known by: that of `path`, or all of
    /// `paths`.
    fn source_files(&self, fields: &mut Fields<'_>) -> Option<Vec<(PathBuf, String)>> {
        let has_both = fields.has("path") && fields.has("paths");
        let path = fields.text("path");
        let paths = fields.texts("paths");
        if has_both {
            let message = format!("{} has both path and paths", fields.what);
            let line = fields.line_of("paths");
            (self.report).error(line, message, "remove path and add its file to paths");
            return None;
        }
        if fields.has("paths") {
            return self.listed_files(&fields.what, paths?);
        }
        let remedy = "write path = \"...\", the file to read, or paths = [...], several of them";
        let path = fields.require("path", path, remedy)?;
        Some(vec![self.source_file(&fields.what, &path)?])
    }

    fn listed_files(
        &self,
        what: &str,
        paths: Located<Vec<Located<String>>>,
    ) -> Option<Vec<(PathBuf, String)>> {
        let Located { value: paths, line } = paths;
        if paths.is_empty() || paths.len() > SOURCE_PARTITIONS_MAX {
            let message = format!("{what} reads {} files", paths.len());
            let remedy = format!("list 1 to {SOURCE_PARTITIONS_MAX} in paths");
            self.report.error(line, message, remedy);
            return None;
        }
        let mut files = Vec::with_capacity(paths.len());
        let mut lines: BTreeMap<PathBuf, usize> = BTreeMap::new();
        let mut is_fit = true;
        for written in &paths {
            let Some((path, name)) = self.source_file(what, written) else {
                is_fit = false;
                continue;
            };
            if let Some(first) = lines.insert(one_form(&path), written.line) {
                let message = format!("{what} reads the file {} twice", written.value);
                let remedy = format!("remove it here, or on line {first}");
                self.report.error(written.line, message, remedy);
                is_fit = false;
            }
            files.push((path, name));
        }
        is_fit.then_some(files)
    }

    /// A file that a source reads.
    fn source_file(&self, what: &str, written: &Located<String>) -> Option<(PathBuf, String)> {
        let Located { value, line } = written;
        if value.len() > SOURCE_PATH_BYTES_MAX {
            let message = format!("a path of {what} has {} bytes", value.len());
            let remedy = format!("move the file, so that {SOURCE_PATH_BYTES_MAX} bytes are enough");
            self.report.error(*line, message, remedy);
            return None;
        }
        let remedy = "correct the path; it is relative to the pipeline file";
        let path = self.existing_file(what, *line, value, remedy)?;
        let named = Path::new(value).components();
        let named = named.filter(|part| !matches!(part, Component::CurDir));
        let name = named.collect::<PathBuf>().display().to_string();
        Some((path, name))
    }
}

/// How the bytes of files are cut into records.
pub(super) fn record_format(fields: &mut Fields<'_>) -> Option<RecordFormat> {
    let formats = [RecordFormat::Lines, RecordFormat::Csv, RecordFormat::Jsonl];
    let choices = formats.map(|format| (format.name(), format));
    let format = fields.choice("format", &choices, &[]);
    let remedy = "write format = \"lines\", \"csv\" or \"jsonl\"";
    Some(fields.require("format", format, remedy)?.value)
}

/// The longest record that files may have, in bytes.
pub(super) fn max_record_bytes(fields: &mut Fields<'_>) -> usize {
    let size = fields.size("max_record_bytes", 1..=RECORD_BYTES_MAX);
    size.map_or(FileSourceOptions::RECORD_BYTES_MAX_DEFAULT, |size| {
        size.value as usize
    })
}
