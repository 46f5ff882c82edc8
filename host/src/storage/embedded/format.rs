//! The format of a data directory as a whole: a file says which, so that a release which does not know it leaves the
//! directory alone, its stores included. Rows have versions of their own (`codec.rs`).
//!
//! **Invariant:** nothing in a directory is made, locked or changed before its format is known.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::StorageError;
use crate::storage::embedded::directories;
use crate::storage::embedded::faults::{FaultPoints, pass};

/// The format of data directories that this release makes, and the newest that it knows. It rises when what
/// earlier releases would do with a directory is wrong: another store underneath, rows that must not be ignored.
pub(super) const DIRECTORY_FORMAT: u32 = 1;

/// The file that says so.
const FILE: &str = "format";
/// What stands in it before the number.
const INTRODUCTION: &str = "tidelock data directory, format ";
/// The longest such file that is looked at, in bytes.
const FILE_BYTES_MAX: u64 = 1_024;

/// Refuses a directory that this release does not know; nothing is changed. Whether its format is written down.
///
/// # Errors
///
/// [`StorageError::NewerDirectory`], or [`StorageError::Undecodable`] for a file that says nothing of the kind.
pub(super) fn check(dir: &Path) -> Result<bool, StorageError> {
    let path = dir.join(FILE);
    let failed = |source| StorageError::File {
        action: "read",
        path: path.clone(),
        source,
    };
    let undecodable = |finding: String| StorageError::Undecodable {
        what: format!("the format of data directory {}", dir.display()),
        finding: format!(
            "{finding}; {} should say {INTRODUCTION:?} and a number: restore the data directory from a backup, or \
             name another one with --data",
            path.display()
        ),
    };
    match fs::metadata(&path) {
        Ok(file) if !file.is_file() => return Err(undecodable("it is no file".to_owned())),
        Ok(file) if file.len() > FILE_BYTES_MAX => {
            return Err(undecodable(format!("it has {} bytes", file.len())));
        }
        Ok(_) => {}
        // What may hold the directory is looked at by whoever makes it.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(error) => return Err(failed(error)),
    }
    let bytes = fs::read(&path).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let number = (text.trim_end().strip_prefix(INTRODUCTION)).and_then(|rest| rest.parse().ok());
    match number {
        Some(DIRECTORY_FORMAT) => Ok(true),
        Some(found) if found > DIRECTORY_FORMAT => Err(StorageError::NewerDirectory {
            path: dir.to_owned(),
            found,
            known: DIRECTORY_FORMAT,
        }),
        _ => Err(undecodable(format!("it says {:?}", text.trim_end()))),
    }
}

/// The same with the directory's lock held: a directory without the file gets it, durably, before any store is
/// made in it.
pub(super) fn settle(dir: &Path, faults: &Arc<dyn FaultPoints>) -> Result<(), StorageError> {
    if check(dir)? {
        return Ok(());
    }
    let path = dir.join(FILE);
    let unfinished = unfinished(&path);
    let failed = StorageError::of_file;
    pass(faults, "open: write the format")?;
    let mut file = File::create(&unfinished).map_err(failed("create", &unfinished))?;
    file.write_all(contents(DIRECTORY_FORMAT).as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failed("write", &unfinished))?;
    pass(faults, "open: name the format")?;
    fs::rename(&unfinished, &path).map_err(failed("rename to", &path))?;
    directories::sync(dir)
}

/// The file that says which format a directory has.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// What the file holds for a format.
pub(super) fn contents(format: u32) -> String {
    format!("{INTRODUCTION}{format}\n")
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("new")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::embedded::{EmbeddedOptions, EmbeddedStorage, NoFaults};

    /// Everything in a directory: names, and what files hold.
    fn listed(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => found.extend(listed(&path)),
                false => found.push((path.clone(), fs::read(&path).unwrap())),
            }
        }
        found.sort();
        found
    }

    fn open(dir: &Path) -> Result<EmbeddedStorage, StorageError> {
        EmbeddedStorage::open(dir, EmbeddedOptions::default())
    }

    #[test]
    fn a_directory_of_a_newer_release_is_refused_by_name_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        drop(open(&data).unwrap());
        fs::write(data.join(FILE), contents(2)).unwrap();
        // Newer releases may have no lock here either.
        fs::remove_file(data.join("lock")).unwrap();
        let before = listed(&data);
        for _again in 0..2 {
            let error = open(&data).unwrap_err();
            assert!(
                matches!(
                    error,
                    StorageError::NewerDirectory {
                        found: 2,
                        known: 1,
                        ..
                    }
                ),
                "{error}"
            );
            let text = error.to_string();
            let name = data.display().to_string();
            for part in [name.as_str(), "format 2", "up to 1", "the release that"] {
                assert!(text.contains(part), "{part} is missing in: {text}");
            }
            assert_eq!(listed(&data), before, "nothing in it was touched");
        }
        // The control: with its own format it opens, and is changed by that.
        fs::write(data.join(FILE), contents(1)).unwrap();
        drop(open(&data).unwrap());
        assert_ne!(listed(&data), before);
    }

    #[test]
    fn a_file_that_says_no_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["", "my thesis", "tidelock data directory, format 0\n"] {
            fs::write(dir.path().join(FILE), wrong).unwrap();
            let error = open(dir.path()).unwrap_err().to_string();
            assert!(error.contains("the format of data directory"), "{error}");
            assert!(!dir.path().join("bulk").exists());
        }
    }

    #[test]
    fn a_directory_gets_its_format_before_its_stores() {
        let dir = tempfile::tempdir().unwrap();
        let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
        assert!(!check(dir.path()).unwrap());
        settle(dir.path(), &faults).unwrap();
        assert!(check(dir.path()).unwrap());
        let found = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert_eq!(found, "tidelock data directory, format 1\n");
        assert_eq!(listed(dir.path()).len(), 1);
    }
}
