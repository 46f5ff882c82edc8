//! Whether a path may become the file of a sink, for those who want to know before anything is
//! made or changed.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::storage::embedded::sink_handle::{check_regular, existing_form};
use crate::storage::{StorageError, final_name};

/// What stands against making `path` the file of a sink under a data directory that does not exist
/// yet; nothing is made.
///
/// # Errors
///
/// [`StorageError::SinkFile`] when something is there already, or no folder can be made for it.
pub fn check_new_sink_file(path: &Path) -> Result<(), StorageError> {
    check_regular(path)?;
    let path = existing_form(path)?;
    check_final_name(&path)?;
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

/// Whether the name is free that a file gets once it is finished, if it is one that is to be finished.
pub(super) fn check_final_name(path: &Path) -> Result<(), StorageError> {
    let Some(name) = final_name(path) else {
        return Ok(());
    };
    match std::fs::symlink_metadata(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StorageError::File {
            action: "look at",
            path: name,
            source,
        }),
        Ok(_) => Err(StorageError::SinkFile {
            path: path.to_owned(),
            finding: format!(
                "it is to be renamed to {} when it is finished, which is there already and is none of \
                 this data directory's; move that one away, or name another folder or prefix",
                name.display()
            ),
        }),
    }
}

/// Renames a file to a name that is free: whatever came there meanwhile is not replaced.
pub(super) fn rename_to_free(path: &Path, name: &Path) -> io::Result<()> {
    match renameat_with(CWD, path, CWD, name, RenameFlags::NOREPLACE) {
        // A file system that can't look and rename at once.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => std::fs::rename(path, name),
        renamed => Ok(renamed?),
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

/// What is wrong with a file of `committed` bytes that can't be reached.
pub(super) fn unreachable(committed: u64, error: &dyn std::fmt::Display) -> String {
    format!(
        "its {committed} committed bytes can't be written on ({error}); put the file back and make \
         it writable, or move the data directory away to start afresh"
    )
}

/// What is wrong with a second name of a sink's file.
pub(super) fn another_name_of(other: &Path) -> String {
    format!(
        "it is another name (a hard link) of sink file {}, so rows of one would overwrite the \
         other's; give each sink a file of its own",
        other.display()
    )
}

/// What is wrong with a file in the data directory `directory`.
pub(super) fn in_data_directory(directory: &Path) -> String {
    format!(
        "it lies in the data directory {}, which is the host's own; name a path outside it",
        directory.display()
    )
}
