//! A backup back into a data directory.
//!
//! **Invariant:** a directory that holds a part of a backup says so in a file, and no storage is opened in it:
//! neither one with a part of its rows, nor a fresh one in its place. Where restoring fails the directory is
//! left as empty as it was.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::storage::backup::reader::{BackupReader, BackupRows};
use crate::storage::backup::{BackupContents, BackupError, BackupHeader, BackupProgress};
use crate::storage::embedded::bulk::Bulk;
use crate::storage::embedded::decisions::Decisions;
use crate::storage::embedded::lock::{self, DirectoryLock};
use crate::storage::embedded::mark::Mark;
use crate::storage::embedded::{EmbeddedOptions, EmbeddedStorage, directories, pair};
use crate::storage::{StorageError, StoredRow, keys};

/// The file that says that a backup is not wholly in its directory.
const UNFINISHED: &str = "restore.unfinished";

/// Rows of the catalog that are written in one transaction.
const CATALOG_ROWS: usize = 4_096;

/// A store that came out of a backup.
#[derive(Debug)]
pub struct Restored {
    /// What the backup says of itself.
    pub header: BackupHeader,
    /// What it held.
    pub contents: BackupContents,
    /// The store, open.
    pub storage: EmbeddedStorage,
}

/// A backup could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Something is in the directory.
    #[error(
        "{} is not empty: it holds {found}; restore into a new directory, or move what is there away", .path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// The name of something in it.
        found: String,
    },
    /// The backup is whole, but what it holds is not what a store holds.
    #[error("the store in backup {} is not whole; use another backup", .path.display())]
    NoStore {
        /// The backup.
        path: PathBuf,
        /// What was found.
        source: StorageError,
    },
    /// The backup can't be read.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The directory can't be made, or the store not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Whether a restoring into `dir` was interrupted.
pub(super) fn is_unfinished(dir: &Path) -> bool {
    dir.join(UNFINISHED).exists()
}

/// Nothing is opened where a restoring was interrupted.
pub(super) fn refuse_unfinished(dir: &Path) -> Result<(), StorageError> {
    match is_unfinished(dir) {
        false => Ok(()),
        true => Err(StorageError::RestoreUnfinished {
            path: dir.to_owned(),
        }),
    }
}

/// Makes a store out of a backup in `dir`, which must be empty, not there yet, or hold a part of a backup. The
/// store is opened, and so proven, before it counts.
///
/// # Errors
///
/// [`RestoreError::NotEmpty`], [`StorageError::InUse`], or what is wrong with the backup or the disk.
pub fn restore(
    backup: &Path,
    dir: &Path,
    options: EmbeddedOptions,
    observe: &mut dyn FnMut(BackupProgress),
) -> Result<Restored, RestoreError> {
    // Before anything is made: what is no backup leaves no trace.
    let mut reader = BackupReader::open(backup)?;
    directories::make_durable(dir)?;
    let lock = DirectoryLock::take(dir)?;
    refuse_foreign(dir)?;
    make_mark(dir)?;
    clear(dir)?;
    let filled = fill(dir, &mut reader, &options, observe);
    if let Err(error) = filled {
        // What is left of it, if this fails too, the mark tells of.
        let _ = clear(dir).and_then(|()| remove_mark(dir));
        return Err(error);
    }
    let (header, contents) = (reader.header().clone(), reader.contents());
    let storage =
        EmbeddedStorage::open_locked(dir, lock, options).map_err(|source| RestoreError::NoStore {
            path: backup.to_owned(),
            source,
        });
    match storage {
        Ok(storage) => {
            remove_mark(dir)?;
            Ok(Restored {
                header,
                contents,
                storage,
            })
        }
        Err(error) => {
            let _ = clear(dir).and_then(|()| remove_mark(dir));
            Err(error)
        }
    }
}

/// Refuses a directory that holds anything, unless a restoring was interrupted there.
fn refuse_foreign(dir: &Path) -> Result<(), RestoreError> {
    if is_unfinished(dir) {
        return Ok(());
    }
    for file in fs::read_dir(dir).map_err(StorageError::of_file("list", dir))? {
        let name = file
            .map_err(StorageError::of_file("list", dir))?
            .file_name();
        if name != lock::FILE_NAME {
            return Err(RestoreError::NotEmpty {
                path: dir.to_owned(),
                found: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(())
}

fn make_mark(dir: &Path) -> Result<(), StorageError> {
    let path = dir.join(UNFINISHED);
    File::create(&path).map_err(StorageError::of_file("make", &path))?;
    directories::sync(dir)
}

/// Removes what a part of a backup became.
fn clear(dir: &Path) -> Result<(), StorageError> {
    for name in [pair::BULK, pair::DECISIONS] {
        let path = dir.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(StorageError::of_file("remove", &path))?,
        }
    }
    directories::sync(dir)
}

fn remove_mark(dir: &Path) -> Result<(), StorageError> {
    let path = dir.join(UNFINISHED);
    fs::remove_file(&path).map_err(StorageError::of_file("remove", &path))?;
    directories::sync(dir)
}

/// Writes both stores. They are whole and durable when it returns.
fn fill(
    dir: &Path,
    reader: &mut BackupReader,
    options: &EmbeddedOptions,
    observe: &mut dyn FnMut(BackupProgress),
) -> Result<(), RestoreError> {
    let mut catalog: Vec<StoredRow> = Vec::new();
    let mut first_bulk_rows = None;
    while first_bulk_rows.is_none() {
        match reader.next_rows()? {
            Some(BackupRows::Catalog(rows)) => catalog.extend(rows),
            Some(BackupRows::Bulk(rows)) => first_bulk_rows = Some(rows),
            None => break,
        }
    }
    let bulk = Bulk::make(&dir.join(pair::BULK), options.bulk_cache_bytes)?;
    bulk.fill(|| {
        observe(reader.progress());
        if let Some(rows) = first_bulk_rows.take() {
            return Ok::<_, RestoreError>(Some(rows));
        }
        match reader.next_rows()? {
            Some(BackupRows::Bulk(rows) | BackupRows::Catalog(rows)) => Ok(Some(rows)),
            None => Ok(None),
        }
    })?;
    drop(bulk);
    let path = dir.join(pair::DECISIONS);
    let decisions = Decisions::open(&path)?;
    let mark = catalog
        .iter()
        .position(|(key, _)| *key == keys::catalog_mark())
        .map(|at| Mark::decode("the decisions of the backup", catalog.swap_remove(at).1))
        .transpose()?
        .unwrap_or_default();
    for rows in catalog.chunks(CATALOG_ROWS) {
        decisions.repair(rows, mark)?;
    }
    decisions.flush()?;
    decisions.sync()?;
    drop(decisions);
    directories::sync(&path)?;
    directories::sync(dir)?;
    Ok(())
}
