//! Whether a path may become the file of a sink, for those who want to know before anything is
//! made or changed.

use std::io;
use std::path::{Path, PathBuf};

use crate::storage::StorageError;
use crate::storage::embedded::sink_handle::{canonical, check_regular};

/// What stands against making `path` the file of a sink under a data directory that does not exist
/// yet; nothing is made.
///
/// # Errors
///
/// [`StorageError::SinkFile`] when something is there already, or no folder can be made for it.
pub fn check_new_sink_file(path: &Path) -> Result<(), StorageError> {
    check_regular(path)?;
    let path = existing_form(path)?;
    match std::fs::metadata(&path) {
        Ok(found) if found.len() > 0 => Err(StorageError::SinkFile {
            finding: not_ours(found.len()),
            path,
        }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StorageError::File {
            action: "look at",
            path,
            source,
        }),
    }
}

/// What is wrong with a file of `len` bytes that no sink wrote.
pub(super) fn not_ours(len: u64) -> String {
    format!(
        "it holds {len} bytes that this data directory knows nothing of; move the file away or \
         delete it, or name another path"
    )
}

/// What is wrong with a file of `len` bytes of which `committed` are a sink's.
pub(super) fn wrong_length(len: u64, committed: u64) -> Option<String> {
    match len.cmp(&committed) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(format!(
            "it holds {len} bytes, {committed} of them committed: somebody else wrote to it; cut \
             it back (truncate -s {committed}) or move it away together with the data directory"
        )),
        std::cmp::Ordering::Less => Some(format!(
            "it holds only {len} of {committed} committed bytes: somebody cut it; put the whole \
             file back, or move the data directory away to start afresh"
        )),
    }
}

/// The normal form of a path, without making the folders above it.
pub(super) fn existing_form(path: &Path) -> Result<PathBuf, StorageError> {
    let absolute = std::path::absolute(path).map_err(|source| StorageError::File {
        action: "resolve",
        path: path.to_owned(),
        source,
    })?;
    let mut ancestors = absolute.ancestors();
    let existing = ancestors.find(|ancestor| ancestor.exists());
    let existing = existing.unwrap_or(&absolute);
    let missing = absolute.strip_prefix(existing).unwrap_or(Path::new(""));
    match missing.as_os_str().is_empty() {
        true => canonical(existing),
        false if existing.is_dir() => Ok(canonical(existing)?.join(missing)),
        false => Err(StorageError::SinkFile {
            path: absolute.clone(),
            finding: format!("{} is no folder; name another path", existing.display()),
        }),
    }
}
