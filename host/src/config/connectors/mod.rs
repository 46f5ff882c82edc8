//! The tables of connectors, and which of them may not meet: a file has one writer.

mod generator;
mod sinks;
mod sources;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::config::tables::Tables;
use crate::types::pipeline::{SinkConnector, SinkOptions, SourceConnector, SourceOptions};

impl Tables<'_> {
    /// A file has one writer, and it is not read by the pipeline that writes it.
    pub(in crate::config) fn check_sink_paths(
        &self,
        sources: &BTreeMap<String, SourceOptions>,
        sinks: &BTreeMap<String, SinkOptions>,
    ) {
        let mut takers: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (name, source) in sources {
            for partition in &source.partitions {
                if let SourceConnector::File(options) = partition {
                    takers.insert(one_form(&options.path), format!("source {name} reads"));
                }
            }
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
