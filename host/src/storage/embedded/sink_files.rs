//! The files that synchronous sinks append to. Epochs carry the bytes; the committer gives each
//! append its offset before the decision and writes it there after it, so that writing twice is
//! writing once.
//!
//! **Invariant:** a file's bytes below its committed length are exactly the appends of decided
//! epochs, in the order of decision, without gap. Only the committer writes to it, and no entry is
//! given up before its bytes were seen in the file that its name leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::embedded::bulk::Bulk;
use crate::storage::embedded::decisions::Decisions;
use crate::storage::embedded::directories;
use crate::storage::embedded::faults::{FaultPoints, pass};
use crate::storage::embedded::sink_checks::{
    another_name_of, check_final_name, check_new_sink_file, in_data_directory, not_ours,
    unreachable, wrong_length,
};
use crate::storage::embedded::sink_handle::{
    SinkHandle, canonical, check_regular, existing_form, normal_form,
};
use crate::storage::{StorageError, StoredRow, codec, keys};
use crate::types::ids::SinkFileId;

/// First byte of a stored location.
const BESIDE_DATA: u8 = b'r';
const ELSEWHERE: u8 = b'a';

/// Size of a stored length.
const LENGTH_BYTES: usize = 9;
/// Last byte of the stored length of a file that gets no more rows.
const FINISHED: u8 = 1;

/// What is wrong with a file whose decided bytes could not be written at the last opening.
const BLOCKED: &str =
    "decided rows of a damaged partition wait for it; see to the partition and start again";

/// All files that the store knows.
#[derive(Debug)]
pub(super) struct SinkFiles {
    dir: PathBuf,
    /// The data directory's parent: files below it move along with it.
    parent: PathBuf,
    pub(super) files: BTreeMap<SinkFileId, SinkFile>,
}

#[derive(Debug)]
pub(super) struct SinkFile {
    pub(super) path: PathBuf,
    /// Open once a sink of this process asked for it or decided bytes wait for it.
    pub(super) handle: Option<SinkHandle>,
    /// Whether a sink of this process asked for it, so that epochs may append to it.
    pub(super) is_open: bool,
    /// Where the next decided append begins.
    decided_len: u64,
    /// How much of it is in the file.
    pub(super) written_len: u64,
    /// Whether decided bytes wait for it that could not be written when the storage was opened.
    is_blocked: bool,
    /// Whether an epoch has said that nothing more comes, and is applied: all is there but its name.
    pub(super) is_finished: bool,
    /// Why it did not get its final name when the storage was opened: it waits until that is put right.
    pub(super) unnamed: Option<String>,
}

/// How long a sink's file is and has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkFileLength {
    /// The file's number.
    pub file: SinkFileId,
    /// Where it lies.
    pub path: PathBuf,
    /// How many of its bytes are committed.
    pub committed_bytes: u64,
    /// How many it has; `None` when there is no such file.
    pub found_bytes: Option<u64>,
    /// Why it has not got its final name although it is finished.
    pub unnamed: Option<String>,
}

/// A decided append on its way into its file.
#[derive(Debug)]
pub(super) struct PlacedAppend {
    pub(super) file: SinkFileId,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl SinkFiles {
    /// Learns which files there are and how far each is committed and applied.
    pub(super) fn load(
        dir: &Path,
        decisions: &Decisions,
        bulk: &Bulk,
    ) -> Result<SinkFiles, StorageError> {
        let dir = canonical(dir)?;
        let parent = dir.parent().unwrap_or(&dir).to_owned();
        let mut files = BTreeMap::new();
        for (key, value) in decisions.scan(&[keys::CATALOG_SINK_FILE])? {
            let id = SinkFileId(keys::catalog_number(&key).unwrap_or_default());
            let location =
                codec::decode_plain(|| format!("the location of sink file {id}"), value)?;
            let (length, is_finished) = match bulk.get(&keys::sink_length(id))? {
                None => (0, false),
                Some(value) => decode_length(id, &value)?,
            };
            let file = SinkFile {
                path: resolve(&parent, &location, id)?,
                handle: None,
                is_open: false,
                decided_len: length,
                written_len: length,
                is_blocked: false,
                is_finished,
                unnamed: None,
            };
            files.insert(id, file);
        }
        Ok(SinkFiles { dir, parent, files })
    }

    /// Whether epochs may append to the file.
    pub(super) fn is_open(&self, id: SinkFileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.is_open)
    }

    /// The file's path.
    pub(super) fn path(&self, id: SinkFileId) -> PathBuf {
        (self.files.get(&id))
            .map_or_else(|| PathBuf::from(id.to_string()), |file| file.path.clone())
    }

    /// Where the next decided append to the file begins.
    pub(super) fn decided_len(&self, id: SinkFileId) -> u64 {
        self.files.get(&id).map_or(0, |file| file.decided_len)
    }

    /// Moves that on.
    pub(super) fn set_decided_len(&mut self, id: SinkFileId, len: u64) {
        if let Some(file) = self.files.get_mut(&id) {
            file.decided_len = len;
        }
    }

    /// Rows that say how much of each file is applied, for the batch that moves the applied heads.
    pub(super) fn length_rows<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a SinkFileId>,
    ) -> Vec<StoredRow> {
        (ids.into_iter())
            .map(|id| {
                let file = self.files.get(id);
                let (len, is_finished) =
                    file.map_or((0, false), |file| (file.written_len, file.is_finished));
                (keys::sink_length(*id), encode_length(len, is_finished))
            })
            .collect()
    }

    /// Decided bytes wait for the file: nothing may take their room until the storage is opened
    /// again.
    pub(super) fn block(&mut self, id: SinkFileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_blocked = true;
            file.handle = None;
        }
    }

    /// Whether the file holds everything below what is applied, so that more can be written behind
    /// it without a gap; if not, what is wrong with it, and what to do.
    ///
    /// # Errors
    ///
    /// [`StorageError::SinkFileInUse`] when another process has it.
    pub(super) fn check_holds_applied(
        &mut self,
        id: SinkFileId,
    ) -> Result<Result<(), String>, StorageError> {
        if let Err(error) = self.reach(id) {
            return match error {
                StorageError::SinkFileInUse { .. } => Err(error),
                error => Ok(Err(format!(
                    "its sink file {} can't be written to ({}); put it back and start again",
                    self.path(id).display(),
                    describe(&error)
                ))),
            };
        }
        let Some(file) = self.files.get(&id) else {
            return Ok(Err(format!("sink file {id} is not in the catalog")));
        };
        Ok(file.check_intact().map_err(|finding| {
            format!(
                "its sink file {}: {finding}; put the whole file back and start again",
                file.path.display()
            )
        }))
    }

    /// Opens a known file and takes it for this process.
    pub(super) fn reach(&mut self, id: SinkFileId) -> Result<(), StorageError> {
        let Some(file) = self.files.get(&id).filter(|file| file.handle.is_none()) else {
            return Ok(());
        };
        let handle = SinkHandle::open(&file.path)?;
        self.take(&file.path, &handle)?;
        if let Some(file) = self.files.get_mut(&id) {
            file.handle = Some(handle);
        }
        Ok(())
    }

    /// Takes a file for this process and this one sink.
    fn take(&self, path: &Path, handle: &SinkHandle) -> Result<(), StorageError> {
        let is_same = |file: &&SinkFile| {
            (file.handle.as_ref()).is_some_and(|other| other.is_same_file(handle))
        };
        if let Some(other) = self.files.values().find(is_same) {
            return Err(StorageError::SinkFile {
                path: path.to_owned(),
                finding: another_name_of(&other.path),
            });
        }
        handle.lock(path)
    }

    /// Makes sure that every file that epochs may append to is still there with all that was
    /// written.
    ///
    /// # Errors
    ///
    /// [`StorageError::SinkFile`] with the first that is not.
    pub(super) fn check_intact(&self) -> Result<(), StorageError> {
        self.files
            .values()
            .filter(|file| file.is_open)
            .try_for_each(SinkFile::check_kept)
    }

    /// Writes appends at their offsets and syncs their files. When it returns, all that was ever
    /// written is where the files' names lead.
    pub(super) fn write(
        &mut self,
        appends: &[PlacedAppend],
        faults: &Arc<dyn FaultPoints>,
    ) -> Result<(), StorageError> {
        let touched: BTreeSet<SinkFileId> = appends.iter().map(|append| append.file).collect();
        for id in &touched {
            self.reach(*id)?;
            // Before, too: bytes written behind the end of a file that was cut would hide the cut.
            self.files.get(id).map_or(Ok(()), SinkFile::check_kept)?;
        }
        for append in appends {
            let Some(file) = self.files.get_mut(&append.file) else {
                continue;
            };
            pass(faults, "apply: write to a sink file")?;
            let written = (file.handle.as_ref()).map_or(Ok(()), |handle| {
                handle.write_at(&append.bytes, append.offset)
            });
            written.map_err(|source| StorageError::File {
                action: "write to",
                path: file.path.clone(),
                source,
            })?;
            let end = append.offset + append.bytes.len() as u64;
            file.written_len = file.written_len.max(end);
        }
        for id in &touched {
            let Some(file) = self.files.get(id) else {
                continue;
            };
            pass(faults, "apply: sync a sink file")?;
            let synced = file.handle.as_ref().map_or(Ok(()), SinkHandle::sync_data);
            synced.map_err(|source| StorageError::File {
                action: "sync",
                path: file.path.clone(),
                source,
            })?;
            file.check_kept()?;
        }
        Ok(())
    }

    /// A known file is checked and open from now on; for an unknown path, its normal form.
    pub(super) fn open_known(
        &mut self,
        path: &Path,
    ) -> Result<Result<SinkFileId, PathBuf>, StorageError> {
        check_regular(path)?;
        let path = normal_form(path)?;
        let wrong = |finding| StorageError::SinkFile {
            path: path.clone(),
            finding,
        };
        if path.starts_with(&self.dir) {
            return Err(wrong(in_data_directory(&self.dir)));
        }
        self.check_named(&path)?;
        let Some((id, file)) = self.files.iter().find(|(_, file)| file.path == path) else {
            check_final_name(&path)?;
            return Ok(Err(path));
        };
        if file.is_blocked {
            return Err(wrong(BLOCKED.to_owned()));
        }
        let (id, committed) = (*id, file.written_len);
        let unreachable = |error: &dyn std::fmt::Display| wrong(unreachable(committed, error));
        match self.reach(id) {
            Err(StorageError::File { source, .. }) => return Err(unreachable(&source)),
            reached => reached?,
        }
        let Some(file) = self.files.get_mut(&id) else {
            return Ok(Err(path));
        };
        let len = file.handle.as_ref().map_or(Ok(0), SinkHandle::len);
        let len = len.map_err(|error| unreachable(&error))?;
        if len != committed && !file.is_open {
            // Whoever is to put it right needs it unlocked.
            file.handle = None;
        }
        if let Some(finding) = wrong_length(len, committed) {
            return Err(wrong(finding));
        }
        file.check_kept()?;
        file.is_open = true;
        Ok(Ok(id))
    }

    /// What stands against opening the file at `path`; nothing is made or changed.
    pub(super) fn check(&self, path: &Path) -> Result<(), StorageError> {
        check_regular(path)?;
        let normal = existing_form(path)?;
        self.check_named(&normal)?;
        let finding = match self.files.values().find(|file| file.path == normal) {
            _ if normal.starts_with(&self.dir) => Some(in_data_directory(&self.dir)),
            Some(file) if file.is_blocked => Some(BLOCKED.to_owned()),
            Some(file) => match std::fs::metadata(&normal) {
                Ok(found) => wrong_length(found.len(), file.written_len),
                Err(error) => Some(unreachable(file.written_len, &error)),
            },
            None => {
                let found = std::fs::metadata(&normal).ok();
                let is_other_name = |file: &&SinkFile| match (&file.handle, &found) {
                    (Some(handle), Some(found)) => handle.is_file_of(found),
                    _ => false,
                };
                match self.files.values().find(is_other_name) {
                    Some(other) => Some(another_name_of(&other.path)),
                    None => return check_new_sink_file(path),
                }
            }
        };
        match finding {
            None => Ok(()),
            Some(finding) => Err(StorageError::SinkFile {
                path: normal,
                finding,
            }),
        }
    }

    /// Makes an empty file for a new sink, takes it for this process, and syncs it and its
    /// directory.
    pub(super) fn create(&self, path: &Path) -> Result<SinkHandle, StorageError> {
        let failed = |action| StorageError::of_file(action, path);
        let handle = SinkHandle::make(path)?;
        self.take(path, &handle)?;
        let len = handle.len().map_err(failed("look at"))?;
        if len > 0 {
            return Err(StorageError::SinkFile {
                path: path.to_owned(),
                finding: not_ours(len),
            });
        }
        handle.sync_all().map_err(failed("sync"))?;
        let directory = path.parent().unwrap_or(path);
        directories::sync(directory)?;
        Ok(handle)
    }

    /// The row of a new file, for the catalog.
    pub(super) fn location_row(
        &self,
        id: SinkFileId,
        path: &Path,
    ) -> Result<StoredRow, StorageError> {
        let (kind, path_kept) = match path.strip_prefix(&self.parent) {
            Ok(below) => (BESIDE_DATA, below),
            Err(_) => (ELSEWHERE, path),
        };
        let Some(text) = path_kept.to_str() else {
            return Err(StorageError::SinkFile {
                path: path.to_owned(),
                finding: "its path is not UTF-8; name another one".to_owned(),
            });
        };
        let location = [[kind].as_slice(), text.as_bytes()].concat();
        Ok((keys::sink_file(id), codec::encode_plain(&location)))
    }

    /// All files, with what is on the disk of each.
    pub(super) fn lengths(&self) -> Vec<SinkFileLength> {
        let length = |(id, file): (&SinkFileId, &SinkFile)| SinkFileLength {
            file: *id,
            path: file.path.clone(),
            committed_bytes: file.written_len,
            found_bytes: (std::fs::metadata(&file.path).ok())
                .filter(std::fs::Metadata::is_file)
                .map(|found| found.len()),
            unnamed: file.unnamed.clone(),
        };
        self.files.iter().map(length).collect()
    }

    /// Cuts a file back to what is committed of it. Returns by how many bytes.
    pub(super) fn cut(&mut self, id: SinkFileId) -> Result<u64, StorageError> {
        self.reach(id)?;
        let Some(file) = self.files.get(&id) else {
            return Ok(0);
        };
        let cut = (file.handle.as_ref()).map_or(Ok(0), |handle| handle.cut(file.written_len));
        cut.map_err(|source| StorageError::File {
            action: "cut",
            path: file.path.clone(),
            source,
        })
    }

    /// Takes a new file in, empty.
    pub(super) fn insert(&mut self, id: SinkFileId, path: PathBuf, handle: SinkHandle) {
        let file = SinkFile {
            path,
            handle: Some(handle),
            is_open: true,
            decided_len: 0,
            written_len: 0,
            is_blocked: false,
            is_finished: false,
            unnamed: None,
        };
        self.files.insert(id, file);
    }
}

impl SinkFile {
    /// Whether the file's name still leads to what was opened, with all that was written; if not,
    /// what became of it.
    fn check_intact(&self) -> Result<(), String> {
        let Some(handle) = &self.handle else {
            return Ok(());
        };
        match std::fs::metadata(&self.path) {
            Ok(found) if !handle.is_file_of(&found) => {
                Err("another file was put in its place".to_owned())
            }
            Ok(found) if found.len() < self.written_len => Err(format!(
                "it holds {} of {} committed bytes: somebody cut it",
                found.len(),
                self.written_len
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("somebody deleted it or moved it away ({error})")),
        }
    }

    /// The same for a file that this process writes to.
    pub(super) fn check_kept(&self) -> Result<(), StorageError> {
        self.check_intact().map_err(|finding| StorageError::SinkFile {
            path: self.path.clone(),
            finding: format!(
                "{finding} while it was written to; put the whole file back and run again, or move \
                 the data directory away to start afresh"
            ),
        })
    }
}

/// The row that says how much of a file is applied: a number, and a byte behind it where nothing more comes.
fn encode_length(len: u64, is_finished: bool) -> Vec<u8> {
    let mut value = codec::encode_number(len);
    value.extend(is_finished.then_some(FINISHED));
    value
}

fn decode_length(id: SinkFileId, value: &[u8]) -> Result<(u64, bool), StorageError> {
    let (number, is_finished) = match value {
        [number @ .., FINISHED] if value.len() == LENGTH_BYTES + 1 => (number, true),
        number => (number, false),
    };
    let len = codec::decode_number(|| format!("the length of sink file {id}"), number)?;
    Ok((len, is_finished))
}

/// An error with its cause, for a finding.
pub(super) fn describe(error: &StorageError) -> String {
    match error {
        StorageError::File { source, .. } => source.to_string(),
        StorageError::SinkFile { finding, .. } => finding.clone(),
        error => error.to_string(),
    }
}

fn resolve(parent: &Path, location: &[u8], id: SinkFileId) -> Result<PathBuf, StorageError> {
    let text = location
        .get(1..)
        .and_then(|text| std::str::from_utf8(text).ok());
    match (location.first(), text) {
        (Some(&BESIDE_DATA), Some(text)) => Ok(parent.join(text)),
        (Some(&ELSEWHERE), Some(text)) => Ok(PathBuf::from(text)),
        _ => Err(StorageError::Undecodable {
            what: format!("the location of sink file {id}"),
            finding: format!("it is {}", location.escape_ascii()),
        }),
    }
}
