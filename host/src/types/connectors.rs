//! Options of connectors that are more than a path: of generators and of directories.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::batch::Timestamp;
use crate::types::pipeline::RecordFormat;

/// One partition of a source that makes its records by itself, for load tests.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratorOptions {
    /// Which partition, from 0.
    pub partition: u32,
    /// What the partition is known by.
    pub partition_name: String,
    /// Records a second, of all partitions together, at least 1; `None`: as fast as they are read.
    pub rate: Option<u64>,
    /// Records in all, of all partitions together; `None`: without end.
    pub count: Option<u64>,
    /// What the records are.
    pub records: GeneratedRecords,
}

/// What the records of a generator follow from, beside their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratedRecords {
    /// How many partitions there are, at least 1.
    pub partitions: u32,
    /// How many keys there are, at least 1.
    pub keys: u64,
    /// How unevenly keys are drawn: the exponent of a Zipf distribution, 0 for an even one.
    pub skew: f64,
    /// Event time of the first record, at least 1.
    pub event_time_start: Timestamp,
    /// From one record to the next of all partitions together, in nanoseconds.
    pub event_time_step_ns: u64,
    /// By up to how much event times stay behind that, in milliseconds.
    pub jitter_ms: u64,
    /// Least size of a payload in bytes: a shorter one is padded.
    pub payload_bytes: usize,
    /// Other seeds give other keys, numbers and jitter.
    pub seed: u64,
}

impl GeneratorOptions {
    /// How many keys there are where the pipeline file does not say.
    pub const KEYS_DEFAULT: u64 = 1_000;

    /// How many records the partition has in all.
    pub fn partition_count(&self) -> Option<u64> {
        let partitions = u64::from(self.records.partitions);
        self.count.map(|count| {
            let rest = u64::from(u64::from(self.partition) < count % partitions);
            count / partitions + rest
        })
    }
}

/// One partition of a directory of files to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectorySourceOptions {
    /// Made absolute against the pipeline file's folder.
    pub path: PathBuf,
    /// As the pipeline file writes it.
    pub written_path: String,
    /// Which files are read: a glob on their names.
    pub pattern: String,
    /// Which of the files that are there is read first.
    pub order: FileOrder,
    /// Which partition, from 0.
    pub partition: u32,
    /// How many partitions there are, at least 1: each reads the files whose names belong to it.
    pub partitions: u32,
    /// What the partition is known by.
    pub partition_name: String,
    /// How the files' bytes are cut into records.
    pub format: RecordFormat,
    /// The longest record accepted, in bytes.
    pub max_record_bytes: usize,
    /// Whether files that come later are read as they come, so that the source never ends.
    pub follow: bool,
}

/// Which of several files is read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOrder {
    /// By name.
    Name,
    /// By modification time, then by name.
    Modified,
}

impl FileOrder {
    /// Its name in pipeline files.
    pub fn name(self) -> &'static str {
        match self {
            FileOrder::Name => "name",
            FileOrder::Modified => "modified",
        }
    }
}

/// A directory that files are written to, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectorySinkOptions {
    /// Made absolute against the pipeline file's folder.
    pub path: PathBuf,
    /// What the names of files begin with.
    pub prefix: String,
    /// What they end with, behind a dot.
    pub extension: String,
    /// The size from which on a file is finished, in bytes.
    pub max_bytes: u64,
    /// How long after its first row a file is finished at the latest; `None` for never.
    pub max_age: Option<Duration>,
}

impl DirectorySinkOptions {
    /// The size at which a file is finished where the pipeline file does not say, in bytes.
    pub const BYTES_MAX_DEFAULT: u64 = 128 << 20;

    /// The name of a finished file: of one partition, by its number.
    pub fn file_name(&self, partition: u64, number: u64) -> String {
        let DirectorySinkOptions {
            prefix, extension, ..
        } = self;
        format!("{prefix}-{partition}-{number:08}.{extension}")
    }

    /// All its files, for people.
    pub fn files(&self) -> String {
        format!("{}-*.{}", self.prefix, self.extension)
    }

    /// Whether a file of that name, finished or not, may be one of this sink.
    pub fn is_file_name(&self, name: &str) -> bool {
        let name = name.strip_suffix(".part").unwrap_or(name);
        let middle = name.strip_prefix(&self.prefix);
        let middle = middle.and_then(|rest| rest.strip_prefix('-')?.strip_suffix(&self.extension));
        let numbers = middle.and_then(|rest| rest.strip_suffix('.')?.split_once('-'));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        numbers.is_some_and(|(partition, number)| is_number(partition) && is_number(number))
    }
}
