//! The tables of sources and sinks that are directories.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use globset::Glob;

use crate::config::connectors::partition_names;
use crate::config::connectors::sources::{
    SOURCE_PARTITIONS_MAX, SOURCE_PATH_BYTES_MAX, max_record_bytes, record_format,
};
use crate::config::fields::{Fields, Located};
use crate::config::tables::{Tables, on_failure};
use crate::types::connectors::{DirectorySinkOptions, DirectorySourceOptions, FileOrder};
use crate::types::pipeline::{SinkConnector, SourceConnector, SourceOptions};

/// Which files are read where the pipeline file does not say.
const PATTERN_DEFAULT: &str = "*";

/// The sizes at which files may be told to be finished.
const FILE_BYTES: RangeInclusive<u64> = 1..=1 << 40;

/// The ages at which files may be told to be finished.
const FILE_AGES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 3_600);

/// What the names of a sink's files end with where the pipeline file does not say.
const EXTENSION_DEFAULT: &str = "jsonl";

/// The longest beginning and the longest end of a name that may be written, in characters.
const NAME_PART_LENGTH_MAX: usize = 64;

impl Tables<'_> {
    pub(super) fn directory_source(&self, fields: &mut Fields<'_>) -> Option<SourceOptions> {
        let written = fields.text("path");
        let remedy = "write path = \"...\", the directory whose files are read";
        let written = fields.require("path", written, remedy);
        let path = written
            .as_ref()
            .map(|written| self.existing_directory(&fields.what, written));
        let pattern = self.pattern(fields);
        let orders = [FileOrder::Name, FileOrder::Modified].map(|order| (order.name(), order));
        let order = fields.choice("order", &orders, &[]);
        let partitions = fields.number("partitions", 1..=SOURCE_PARTITIONS_MAX as u64);
        let partitions = partitions.map_or(1, |partitions| partitions.value as u32);
        let format = record_format(fields);
        let max_record_bytes = max_record_bytes(fields);
        let follow = fields.switch("follow").is_some_and(|follow| follow.value);
        let watermarks = self.watermarks(fields);
        let on_failure = on_failure(fields);
        let (written, path, format) = (written?.value, path??, format?);
        let partition = |(partition, partition_name)| {
            SourceConnector::Directory(DirectorySourceOptions {
                path: path.clone(),
                written_path: written.clone(),
                pattern: pattern.clone(),
                order: order.as_ref().map_or(FileOrder::Name, |order| order.value),
                partition,
                partitions,
                partition_name,
                format,
                max_record_bytes,
                follow,
            })
        };
        Some(SourceOptions {
            partitions: partition_names(partitions).map(partition).collect(),
            // Each reads its own files.
            parallel_partitions: Some(partitions as usize),
            watermarks,
            on_failure,
            line: fields.line,
        })
    }

    fn pattern(&self, fields: &mut Fields<'_>) -> String {
        let Some(Located { value, line }) = fields.text("pattern") else {
            return PATTERN_DEFAULT.to_owned();
        };
        let finding = match Glob::new(&value) {
            Err(error) => error.kind().to_string(),
            Ok(_) if value.contains('/') => {
                "it has a slash, and names of files in a directory have none".to_owned()
            }
            Ok(_) => return value,
        };
        let message = format!(
            "pattern {value:?} of {} can't be used: {finding}",
            fields.what
        );
        self.report
            .error(line, message, "write one such as \"*.csv\"");
        PATTERN_DEFAULT.to_owned()
    }

    fn existing_directory(&self, what: &str, written: &Located<String>) -> Option<PathBuf> {
        let Located { value, line } = written;
        let path = self.folder.join(value);
        let finding = match std::fs::metadata(&path) {
            _ if value.len() > SOURCE_PATH_BYTES_MAX => {
                format!("its path has more than {SOURCE_PATH_BYTES_MAX} bytes")
            }
            Ok(metadata) if metadata.is_dir() => return Some(path),
            Ok(_) => "it is no directory".to_owned(),
            Err(error) => error.to_string(),
        };
        let shown = path.display();
        let message = format!("the directory of {what} can't be read: {shown}: {finding}");
        let remedy = "make it, or correct the path; it is relative to the pipeline file";
        self.report.error(*line, message, remedy);
        None
    }

    pub(super) fn directory_sink(
        &self,
        fields: &mut Fields<'_>,
        name: &str,
    ) -> Option<SinkConnector> {
        let path = fields.text("path");
        let remedy = "write path = \"...\", the directory to write files to";
        let written = fields.require("path", path, remedy);
        let max_bytes = fields.size("max_bytes", FILE_BYTES);
        let max_age = fields.duration("max_age", FILE_AGES);
        let prefix = self.name_part(fields, "prefix", name);
        let extension = self.name_part(fields, "extension", EXTENSION_DEFAULT);
        let written = written?;
        let path = self.folder.join(&written.value);
        if written.value.is_empty() || (path.exists() && !path.is_dir()) {
            let message = format!(
                "path {:?} of {} is no directory",
                written.value, fields.what
            );
            let remedy = "name a directory, which is made if it is not there";
            self.report.error(written.line, message, remedy);
            return None;
        }
        Some(SinkConnector::Directory(DirectorySinkOptions {
            path,
            prefix: prefix?,
            extension: extension?,
            max_bytes: max_bytes.map_or(DirectorySinkOptions::BYTES_MAX_DEFAULT, |it| it.value),
            max_age: max_age.map(|age| age.value),
        }))
    }

    /// What names of files begin or end with.
    fn name_part(
        &self,
        fields: &mut Fields<'_>,
        key: &'static str,
        default: &str,
    ) -> Option<String> {
        let Some(Located { value, line }) = fields.text(key) else {
            return Some(default.to_owned());
        };
        let is_fit = |it: u8| it.is_ascii_alphanumeric() || b"_-.".contains(&it);
        let is_unfinished = ["part", "tmp"].iter().any(|end| {
            let rest = value.strip_suffix(end);
            key == "extension" && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        let is_long = value.len() > NAME_PART_LENGTH_MAX;
        if value.is_empty() || is_long || value.starts_with('.') || !value.bytes().all(is_fit) {
            let message = format!(
                "{key} = {value:?} of {} can't be part of a name",
                fields.what
            );
            let remedy = format!(
                "write 1 to {NAME_PART_LENGTH_MAX} of letters, digits, \"_\", \"-\" and \".\", the first one no \".\""
            );
            self.report.error(line, message, remedy);
            return None;
        }
        if is_unfinished {
            let message = format!(
                "{key} = {value:?} of {} is that of unfinished files",
                fields.what
            );
            self.report.error(line, message, "write another one");
            return None;
        }
        Some(value)
    }
}
