//! The tables of connectors, and which of them may not meet: a file has one writer.

mod directories;
mod generator;
mod sinks;
mod sources;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::config::tables::Tables;
use crate::types::pipeline::{SinkConnector, SinkOptions, SourceConnector, SourceOptions};

impl Tables<'_> {
    /// A file has one writer, and nothing that the pipeline writes is read by it as a file.
    pub(in crate::config) fn check_sink_paths(
        &self,
        sources: &BTreeMap<String, SourceOptions>,
        sinks: &BTreeMap<String, SinkOptions>,
    ) {
        let mut takers: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut read_directories: Vec<(PathBuf, &str)> = Vec::new();
        for (name, source) in sources {
            for partition in &source.partitions {
                match partition {
                    SourceConnector::File(options) => {
                        takers.insert(one_form(&options.path), format!("source {name} reads"));
                    }
                    SourceConnector::Directory(options) => {
                        read_directories.push((one_form(&options.path), name));
                    }
                    SourceConnector::Generator(_) | SourceConnector::Queue(_) => {}
                }
            }
        }
        for (name, sink) in sinks {
            let (path, noun) = match &sink.connector {
                SinkConnector::File { path } => (one_form(path), "the file"),
                SinkConnector::Directory(options) => {
                    let path = one_form(&options.path);
                    self.check_read_files(name, sink.line, &path, &takers);
                    (path.join(options.files()), "the files")
                }
                SinkConnector::Stdout | SinkConnector::Null | SinkConnector::Queue { .. } => {
                    continue;
                }
            };
            if let Some(taker) = takers.get(&path) {
                let message = format!("sink {name} writes {noun} that {taker}");
                let remedy = match &sink.connector {
                    SinkConnector::Directory(_) => {
                        "give it another path or prefix, so that it has files of its own".to_owned()
                    }
                    _ => format!("give it a file of its own instead of {}", path.display()),
                };
                self.report.error(sink.line, message, remedy);
            }
            let mut directories = read_directories.iter();
            if let Some((directory, source)) = directories.find(|(read, _)| path.starts_with(read))
            {
                let message =
                    format!("sink {name} writes into the directory that source {source} reads");
                let remedy = format!("name a path outside {}", directory.display());
                self.report.error(sink.line, message, remedy);
            }
            takers.insert(path, format!("sink {name} writes"));
        }
    }

    /// A directory that gets files holds none that the pipeline reads.
    fn check_read_files(
        &self,
        name: &str,
        line: usize,
        directory: &Path,
        takers: &BTreeMap<PathBuf, String>,
    ) {
        let mut read = takers
            .iter()
            .filter(|(_, taker)| taker.starts_with("source "));
        if let Some((path, taker)) = read.find(|(path, _)| path.parent() == Some(directory)) {
            let message = format!("sink {name} writes into the directory of a file that {taker}");
            let remedy = format!("name another path, or move {} out of it", path.display());
            self.report.error(line, message, remedy);
        }
    }
}

/// The partitions of a source that has no names of its own for them: each with what it is known by, which tells
/// how many there are, as what each has depends on that.
fn partition_names(count: u32) -> impl Iterator<Item = (u32, String)> {
    (0..count).map(move |partition| match count {
        1 => (partition, "all".to_owned()),
        _ => (partition, format!("{partition} of {count}")),
    })
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

#[cfg(test)]
mod tests;
