//! What is in a directory: the files that may be read, each with its size and modification time.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::source::SourceError;
use crate::types::batch::Timestamp;
use crate::types::connectors::{DirectorySourceOptions, FileOrder};
use crate::types::key::{key_hash, partition_of};

/// What the names of files end with that are still written.
const UNFINISHED: [&str; 2] = [".part", ".tmp"];

/// A file as its file system describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp {
    pub(super) size_bytes: u64,
    /// In nanoseconds since the Unix epoch.
    pub(super) modified_ns: u64,
    /// Its number in its file system, which another file may get once it is gone.
    pub(super) inode: u64,
    /// When it was made, in nanoseconds since the Unix epoch; 0 where its file system doesn't keep that.
    pub(super) created_ns: u64,
}

impl FileStamp {
    pub(super) fn of(metadata: &Metadata) -> FileStamp {
        FileStamp {
            size_bytes: metadata.len(),
            modified_ns: since_epoch_ns(metadata.modified()),
            inode: metadata.ino(),
            created_ns: since_epoch_ns(metadata.created()),
        }
    }

    /// Whether both are of one file, whatever became of its content. Another file may have its name.
    pub(super) fn is_of_same_file(&self, other: &FileStamp) -> bool {
        (self.inode, self.created_ns) == (other.inode, other.created_ns)
    }

    pub(super) fn write_time(self) -> Timestamp {
        self.modified_ns / 1_000_000
    }
}

fn since_epoch_ns(time: io::Result<SystemTime>) -> u64 {
    let since = time
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Which files of a directory belong to a source's partition.
#[derive(Debug)]
pub(super) struct FileFilter {
    pattern: GlobMatcher,
    order: FileOrder,
    partition: usize,
    partitions: usize,
}

impl FileFilter {
    /// # Errors
    ///
    /// What is wrong with the pattern.
    pub(super) fn new(options: &DirectorySourceOptions) -> Result<FileFilter, SourceError> {
        let pattern = GlobBuilder::new(&options.pattern).build();
        let pattern = pattern.map_err(|error| SourceError::Pattern {
            pattern: options.pattern.clone(),
            finding: error.kind().to_string(),
        })?;
        Ok(FileFilter {
            pattern: pattern.compile_matcher(),
            order: options.order,
            partition: options.partition as usize,
            partitions: options.partitions as usize,
        })
    }

    fn takes(&self, name: &str) -> bool {
        let is_own = partition_of(key_hash(name.as_bytes()), self.partitions) == self.partition;
        is_own && self.pattern.is_match(name)
    }

    /// Whether the pattern has that name.
    pub(super) fn matches(&self, name: &str) -> bool {
        self.pattern.is_match(name)
    }

    /// The files that are taken and that `is_done` says nothing of, in the order in which they are read.
    pub(super) fn in_order(
        &self,
        files: &BTreeMap<String, FileStamp>,
        is_done: impl Fn(&str) -> bool,
    ) -> Vec<(String, FileStamp)> {
        let taken = files.iter().filter(|(name, _)| self.takes(name));
        let mut waiting: Vec<_> = taken
            .filter(|(name, _)| !is_done(name))
            .map(|(name, stamp)| (name.clone(), *stamp))
            .collect();
        if self.order == FileOrder::Modified {
            // Those of one time stay in the order of their names.
            waiting.sort_by_key(|(_, stamp)| stamp.modified_ns);
        }
        waiting
    }
}

/// Whether a file of that name may be read: it is neither hidden nor still written.
fn may_be_read(name: &str) -> bool {
    !name.starts_with('.') && !UNFINISHED.iter().any(|end| name.ends_with(end))
}

/// The regular files in a directory by name, without hidden ones and those that are still written.
///
/// # Errors
///
/// When the directory can't be read, or a name is not UTF-8.
pub(super) fn list(directory: &Path) -> Result<BTreeMap<String, FileStamp>, SourceError> {
    let unread = |source| SourceError::OpenDirectory {
        path: directory.to_owned(),
        source,
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            return Err(SourceError::NameNotText { path: entry.path() });
        };
        if !may_be_read(&name) {
            continue;
        }
        // Links are followed.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => {
                files.insert(name, FileStamp::of(&metadata));
            }
            Ok(_) => {}
            // It has left meanwhile, or is a link to nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(SourceError::Open {
                    path: entry.path(),
                    source,
                });
            }
        }
    }
    Ok(files)
}
