//! Files that get no more rows: each gets its final name, and everything that the store knew of it goes.
//!
//! An epoch says that a file is finished. Once its bytes are in the file and synced, the batch that applies the
//! epoch makes the file's length row say so; that batch is synced, and only then is the file renamed. So a file
//! whose row does not say so is under its first name, and one whose row does needs nothing but what is done
//! here, as often as it takes: somebody who takes finished files away as they come is in nobody's way.
//!
//! **Invariant:** nothing stored grows with the number of finished files.

use std::io;

use crate::storage::embedded::Shared;
use crate::storage::embedded::bulk::{RowChange, prefix_range};
use crate::storage::embedded::directories;
use crate::storage::embedded::faults::pass;
use crate::storage::embedded::sink_checks::{check_final_name, wrong_length};
use crate::storage::embedded::sink_files::SinkFiles;
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

    fn finished(&self) -> Vec<SinkFileId> {
        let finished = self.files.iter().filter(|(_, file)| file.is_finished);
        finished.map(|(id, _)| *id).collect()
    }

    fn forget(&mut self, id: SinkFileId) {
        self.files.remove(&id);
    }
}

/// Renames every file whose stored length says that it is finished, and forgets it. That must be durable.
pub(super) fn finish_files(shared: &Shared) -> Result<(), StorageError> {
    let finished = shared.sink_files().finished();
    for id in finished {
        rename(shared, id)?;
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
        shared.bulk.write([gone])?;
    }
    Ok(())
}

/// Gives a finished file its final name, if it has not got it yet.
fn rename(shared: &Shared, id: SinkFileId) -> Result<(), StorageError> {
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
        Ok(found) => {
            if let Some(finding) = wrong_length(found.len(), file.written_len) {
                return Err(StorageError::SinkFile {
                    path: file.path.clone(),
                    finding,
                });
            }
            check_final_name(&file.path)?;
            pass(&shared.faults, "finish: rename the file")?;
            std::fs::rename(&file.path, &name).map_err(|error| failed("rename", error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if std::fs::symlink_metadata(&name).is_err() {
                tracing::warn!(file = %name.display(), "finished file was taken away");
            }
        }
        Err(error) => return Err(failed("look at", error)),
    }
    pass(&shared.faults, "finish: sync the folder")?;
    match name.parent() {
        Some(folder) if folder.is_dir() => directories::sync(folder),
        _ => Ok(()),
    }
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
