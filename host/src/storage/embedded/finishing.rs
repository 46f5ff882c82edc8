//! Files that get no more rows: each gets its final name, and everything that the store knew of it goes.
//!
//! An epoch says that a file is finished. Once its bytes are in the file and synced, the batch that applies the
//! epoch makes the file's length row say so, once the file was seen to be whole; that batch is synced, and only
//! then is the file renamed. So a file
//! whose row does not say so is under its first name, and one whose row does needs nothing but what is done
//! here, as often as it takes: somebody who takes finished files away as they come is in nobody's way.
//!
//! **Invariant:** nothing stored grows with the number of finished files.

use std::io;
use std::path::Path;

use crate::storage::embedded::Shared;
use crate::storage::embedded::bulk::{RowChange, prefix_range};
use crate::storage::embedded::directories;
use crate::storage::embedded::faults::pass;
use crate::storage::embedded::later_files::parts_of;
use crate::storage::embedded::sink_checks::{
    check_final_name, rename_to_free, unreachable, wrong_length,
};
use crate::storage::embedded::sink_files::{SinkFile, SinkFiles, describe};
use crate::storage::embedded::sink_handle::{SinkHandle, existing_form};
use crate::storage::{CatalogChange, StorageError, final_name, keys};
use crate::types::ids::SinkFileId;

impl SinkFiles {
    /// Whether an epoch may say that nothing more comes for the file: it is known, and its name says that it is
    /// still written.
    pub(super) fn may_finish(&self, id: SinkFileId) -> bool {
        let file = self.files.get(&id).filter(|file| !file.is_finished);
        file.is_some_and(|file| final_name(&file.path).is_some())
    }

    /// An epoch that says so is decided.
    pub(super) fn close(&mut self, id: SinkFileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_open = false;
        }
    }

    /// All its bytes are in the file: from here on its length row says that it is finished.
    pub(super) fn set_finished(&mut self, id: SinkFileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_finished = true;
        }
    }

    /// Makes sure that a file that is about to be finished is where its name leads, with what was written and
    /// nothing else: from then on nobody asks again.
    pub(super) fn check_finishable(&mut self, id: SinkFileId) -> Result<(), StorageError> {
        let Some(file) = self.files.get(&id).filter(|file| !file.is_finished) else {
            return Ok(());
        };
        let (path, committed) = (file.path.clone(), file.written_len);
        let is_gone = std::fs::symlink_metadata(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if let Some(name) = final_name(&path).filter(|_| is_gone) {
            return Err(file.wrong(gone(committed, &name)));
        }
        self.reach(id)?;
        let Some(file) = self.files.get(&id) else {
            return Ok(());
        };
        file.check_kept()?;
        let len = file.handle.as_ref().map_or(Ok(committed), SinkHandle::len);
        let len = len.map_err(|error| file.wrong(unreachable(committed, &error)))?;
        match wrong_length(len, committed) {
            None => Ok(()),
            Some(finding) => Err(file.wrong(finding)),
        }
    }

    /// Those that are to get their final names now.
    fn finished(&self) -> Vec<SinkFileId> {
        let finished =
            (self.files.iter()).filter(|(_, file)| file.is_finished && file.unnamed.is_none());
        finished.map(|(id, _)| *id).collect()
    }

    fn set_unnamed(&mut self, id: SinkFileId, error: &StorageError) {
        if let Some(file) = self.files.get_mut(&id) {
            file.unnamed = Some(describe(error));
            // Whoever is to put it right needs it unlocked.
            file.handle = None;
        }
    }

    /// As [`Storage::check_file_series`](crate::storage::Storage::check_file_series).
    pub(super) fn check_series(&self, path: &Path) -> Result<(), StorageError> {
        self.check_named(&existing_form(path)?)
    }

    /// Refuses a path of a series of which a finished file waits for its final name.
    pub(super) fn check_named(&self, path: &Path) -> Result<(), StorageError> {
        let mut of_series = (self.files.values()).filter(|file| is_of_series(&file.path, path));
        let unnamed = of_series.find_map(|file| Some((file, file.unnamed.as_ref()?)));
        match unnamed {
            None => Ok(()),
            Some((file, finding)) => Err(file.wrong(finding.clone())),
        }
    }

    fn forget(&mut self, id: SinkFileId) {
        self.files.remove(&id);
    }
}

impl SinkFile {
    fn wrong(&self, finding: String) -> StorageError {
        StorageError::SinkFile {
            path: self.path.clone(),
            finding,
        }
    }
}

/// Whether both are written one after the other: all but the numbers in their names is the same.
fn is_of_series(one: &Path, other: &Path) -> bool {
    let series = |path: &Path| {
        let (of, _, end) = parts_of(path.file_name()?.to_str()?)?;
        Some((path.with_file_name(of), end.to_owned()))
    };
    one == other || series(one).is_some_and(|one| series(other) == Some(one))
}

/// Renames every file whose stored length says that it is finished, and forgets it. That must be durable.
///
/// # Errors
///
/// When a file can't get its final name: it, or that name, is not as it was left.
pub(super) fn finish_files(shared: &Shared) -> Result<(), StorageError> {
    let finished = shared.sink_files().finished();
    (finished.into_iter()).try_for_each(|id| finish_file(shared, id, Found::Running))
}

/// The same for files that an earlier process left. One that can't get its final name waits, and whoever goes
/// on with its series is refused; all others are in nobody's way.
///
/// # Errors
///
/// When the store fails.
pub(super) fn finish_files_left(shared: &Shared) -> Result<(), StorageError> {
    let finished = shared.sink_files().finished();
    for id in finished {
        match finish_file(shared, id, Found::Opening) {
            Err(error @ (StorageError::SinkFile { .. } | StorageError::File { .. })) => {
                tracing::error!(
                    file = %shared.sink_files().path(id).display(), %error,
                    "a finished file has to wait for its final name"
                );
                shared.sink_files().set_unnamed(id, &error);
            }
            finished => finished?,
        }
    }
    Ok(())
}

/// When a file is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// By the process that said so: the file was there a moment ago.
    Running,
    /// By a later one: the file may have got its final name, and may have been taken away since.
    Opening,
}

fn finish_file(shared: &Shared, id: SinkFileId, found: Found) -> Result<(), StorageError> {
    rename(shared, id, found)?;
    let key = keys::sink_file(id);
    let row = shared.decisions.get(&key)?;
    shared.change_catalog(&CatalogChange {
        expectations: vec![(key.clone(), row)],
        writes: vec![(key, None)],
    })?;
    tracing::debug!(file = %shared.sink_files().path(id).display(), "file finished");
    shared.sink_files().forget(id);
    pass(&shared.faults, "finish: remove the length")?;
    let gone: RowChange = (keys::sink_length(id).into(), None);
    shared.bulk.write([gone])
}

/// Gives a finished file its final name, if it has not got it yet.
fn rename(shared: &Shared, id: SinkFileId, found: Found) -> Result<(), StorageError> {
    let files = shared.sink_files();
    let Some(file) = files.files.get(&id) else {
        return Ok(());
    };
    let Some(name) = final_name(&file.path) else {
        return Ok(());
    };
    let failed = |action, source| StorageError::File {
        action,
        path: file.path.clone(),
        source,
    };
    match std::fs::symlink_metadata(&file.path) {
        Ok(metadata) => {
            file.check_kept()?;
            if let Some(finding) = wrong_length(metadata.len(), file.written_len) {
                return Err(file.wrong(finding));
            }
            check_final_name(&file.path)?;
            pass(&shared.faults, "finish: rename the file")?;
            rename_to_free(&file.path, &name).map_err(|error| failed("rename", error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match found {
            Found::Running => return Err(file.wrong(gone(file.written_len, &name))),
            Found::Opening => check_named_before(file, &name)?,
        },
        Err(error) => return Err(failed("look at", error)),
    }
    pass(&shared.faults, "finish: sync the folder")?;
    match name.parent() {
        Some(folder) if folder.is_dir() => directories::sync(folder),
        _ => Ok(()),
    }
}

/// A finished file that is not under its first name has its final one, or had it until somebody took it away.
/// What has that name and is of another length is none of ours.
fn check_named_before(file: &SinkFile, name: &Path) -> Result<(), StorageError> {
    match std::fs::symlink_metadata(name) {
        Ok(metadata) if metadata.len() == file.written_len => Ok(()),
        Ok(metadata) => Err(file.wrong(format!(
            "it is finished and not there, and {} holds {} bytes in place of its {}; put the right file there, or \
             move that one away if its rows were taken over, and start again",
            name.display(),
            metadata.len(),
            file.written_len
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tracing::warn!(file = %name.display(), "finished file was taken away");
            Ok(())
        }
        Err(source) => Err(StorageError::File {
            action: "look at",
            path: name.to_owned(),
            source,
        }),
    }
}

/// What is wrong with a file that is to be finished and is not there. What has its final name already is not it:
/// it may be what became of it after a backup was made.
fn gone(committed: u64, name: &Path) -> String {
    let of_later = match std::fs::symlink_metadata(name) {
        Ok(found) => format!(
            "; {} is there with {} bytes: if this data directory is from a backup and that file was finished \
             after it was made, rename it back and cut it to {committed} bytes, as store restore --cut-sinks does",
            name.display(),
            found.len()
        ),
        Err(_) => String::new(),
    };
    format!(
        "it is to be finished with {committed} committed bytes, and somebody deleted it or moved it away; put it \
         back and run again, or restore the data directory from a backup{of_later}"
    )
}

/// Removes lengths of files that the catalog has forgotten: a crash came between.
pub(super) fn remove_stray_lengths(shared: &Shared) -> Result<(), StorageError> {
    let mut strays: Vec<RowChange> = Vec::new();
    for key in shared.bulk.view().keys(prefix_range(keys::SINK_LENGTH)) {
        let key = key?;
        let number = keys::owner(&key).map_or(0, |number| number.0);
        if !shared.sink_files().files.contains_key(&SinkFileId(number)) {
            strays.push((key, None));
        }
    }
    match strays.is_empty() {
        true => Ok(()),
        false => {
            pass(&shared.faults, "open: remove stray lengths")?;
            shared.bulk.write(strays)
        }
    }
}
