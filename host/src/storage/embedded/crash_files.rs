//! Files that are finished, in the workload of the crash tests: partition 3 writes to one after the other and
//! finishes each with its third epoch.

use std::path::PathBuf;

use super::crash_tests::Place;
use crate::storage::{Storage, StorageError, keys};

/// The partition that writes them.
pub(super) const WRITER: u64 = 3;
/// Epochs of a file.
const EPOCHS_EACH: u64 = 3;

/// Which file an epoch writes to.
pub(super) fn number_of(epoch: u64) -> u64 {
    (epoch - 1) / EPOCHS_EACH
}

/// Whether an epoch is the last one of its file.
pub(super) fn finishes(epoch: u64) -> bool {
    epoch.is_multiple_of(EPOCHS_EACH)
}

/// The name of a file while it is written.
pub(super) fn part(place: &Place, number: u64) -> PathBuf {
    place.dir.join(format!("rolling-{number:08}.part"))
}

/// What an epoch writes.
pub(super) fn line(epoch: u64) -> String {
    format!("rolling {epoch}\n")
}

/// The files by name, with what they hold, and whether the store knows of more than is still written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileContent {
    files: Vec<(String, String)>,
    knows_more: bool,
}

pub(super) fn read_files(
    storage: &dyn Storage,
    place: &Place,
) -> Result<FileContent, StorageError> {
    let entries = std::fs::read_dir(&place.dir).expect("the place is there");
    let mut files = Vec::new();
    let mut written = 0;
    for entry in entries {
        let entry = entry.expect("a directory is read");
        let name = entry.file_name().into_string().expect("names are text");
        if !name.starts_with("rolling-") {
            continue;
        }
        let content = std::fs::read_to_string(entry.path()).expect("the file is there");
        let is_written = name.ends_with(".part");
        written += usize::from(is_written);
        // One that was made for an epoch that did not come is as good as none.
        if !(is_written && content.is_empty()) {
            files.push((name, content));
        }
    }
    files.sort();
    // The two of the other sinks are known as well, once they are made.
    let known = storage.scan_catalog(&[keys::CATALOG_SINK_FILE])?.len();
    let (start, end) = (vec![keys::SINK_LENGTH], vec![keys::SINK_LENGTH + 1]);
    let lengths = storage.scan_keys(&start, &end, 1_000)?.len();
    Ok(FileContent {
        files,
        knows_more: known.max(lengths) > written + 2,
    })
}

/// What there must be when the partition stands at an epoch.
pub(super) fn model_of_files(epoch: u64) -> FileContent {
    let mut files: Vec<(String, String)> = Vec::new();
    for epoch in 1..=epoch {
        let number = number_of(epoch) as usize;
        if number == files.len() {
            files.push((format!("rolling-{number:08}.part"), String::new()));
        }
        files[number].1.push_str(&line(epoch));
        if finishes(epoch) {
            files[number].0 = format!("rolling-{number:08}");
        }
    }
    FileContent {
        files,
        knows_more: false,
    }
}
