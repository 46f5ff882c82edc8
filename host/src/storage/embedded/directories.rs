//! Directories whose names survive a loss of power: a name is durable only when the directory
//! that holds it has been synced.

use std::fs::{self, File};
use std::path::Path;

use crate::storage::StorageError;

/// Makes a directory and those above it that are missing, and syncs the name of each.
///
/// # Errors
///
/// When a directory can't be made or synced.
pub fn make_durable(directory: &Path) -> Result<(), StorageError> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_durable(parent)?;
    match fs::create_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.map_err(|source| StorageError::File {
            action: "create",
            path: directory.to_owned(),
            source,
        })?,
    }
    sync(parent)
}

/// Syncs a directory, so that the names in it are durable.
///
/// # Errors
///
/// When it can't be opened or synced.
pub fn sync(directory: &Path) -> Result<(), StorageError> {
    (File::open(directory).and_then(|opened| opened.sync_all())).map_err(|source| {
        StorageError::File {
            action: "sync",
            path: directory.to_owned(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_directories_are_made_and_present_ones_left() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        make_durable(&deep).unwrap();
        make_durable(&deep).unwrap();
        assert!(deep.is_dir());
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = make_durable(&file.join("below")).unwrap_err();
        assert!(error.to_string().contains("file"), "{error}");
    }
}
