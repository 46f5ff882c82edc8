//! The files that synchronous sinks append to. Epochs carry the bytes; the committer gives each
//! append its offset before the decision and writes it there after it, so that writing twice is
//! writing once.
//!
//! **Invariant:** a file's bytes below its committed length are exactly the appends of decided
//! epochs, in the order of decision, without gap. Only the committer writes to it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::storage::embedded::bulk::Bulk;
use crate::storage::embedded::decisions::Decisions;
use crate::storage::embedded::directories;
use crate::storage::embedded::faults::{FaultPoints, pass};
use crate::storage::{StorageError, StoredRow, codec, keys};
use crate::types::ids::SinkFileId;

/// First byte of a stored location.
const BESIDE_DATA: u8 = b'r';
const ELSEWHERE: u8 = b'a';

/// All files that the store knows.
#[derive(Debug)]
pub(super) struct SinkFiles {
    /// The data directory's parent: files below it move along with it.
    parent: PathBuf,
    files: BTreeMap<SinkFileId, SinkFile>,
}

#[derive(Debug)]
struct SinkFile {
    path: PathBuf,
    /// Opened for writing when it is first needed.
    handle: Option<File>,
    /// Whether a sink of this process asked for it, so that epochs may append to it.
    is_open: bool,
    /// Where the next decided append begins.
    decided_len: u64,
    /// How much of it is in the file.
    written_len: u64,
    /// Whether decided bytes wait for it that could not be written when the storage was opened.
    is_blocked: bool,
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
            let length = match bulk.get(&keys::sink_length(id))? {
                None => 0,
                Some(value) => {
                    codec::decode_number(|| format!("the length of sink file {id}"), &value)?
                }
            };
            let file = SinkFile {
                path: resolve(&parent, &location, id)?,
                handle: None,
                is_open: false,
                decided_len: length,
                written_len: length,
                is_blocked: false,
            };
            files.insert(id, file);
        }
        Ok(SinkFiles { parent, files })
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
                let len = self.files.get(id).map_or(0, |file| file.written_len);
                (keys::sink_length(*id), codec::encode_number(len))
            })
            .collect()
    }

    /// Decided bytes wait for the file: nothing may take their room until the storage is opened
    /// again.
    pub(super) fn block(&mut self, id: SinkFileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_blocked = true;
        }
    }

    /// Whether the file holds everything below what is applied, so that more can be written behind
    /// it without a gap.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what to do.
    pub(super) fn check_holds_applied(&self, id: SinkFileId) -> Result<(), String> {
        let Some(file) = self.files.get(&id) else {
            return Err(format!("sink file {id} is not in the catalog"));
        };
        let found = std::fs::metadata(&file.path).map(|metadata| metadata.len());
        match found {
            Ok(len) if len >= file.written_len => Ok(()),
            Ok(len) => Err(format!(
                "its sink file {} holds {len} of {} committed bytes; put the whole file back and \
                 start again",
                file.path.display(),
                file.written_len
            )),
            Err(error) => Err(format!(
                "its sink file {} can't be read ({error}); put it back and start again",
                file.path.display()
            )),
        }
    }

    /// Writes appends at their offsets and syncs their files.
    pub(super) fn write(
        &mut self,
        appends: &[PlacedAppend],
        faults: &Arc<dyn FaultPoints>,
    ) -> Result<(), StorageError> {
        let mut touched = Vec::new();
        for append in appends {
            let Some(file) = self.files.get_mut(&append.file) else {
                continue;
            };
            pass(faults, "apply: write to a sink file")?;
            let end = append.offset + append.bytes.len() as u64;
            write_at(file, append).map_err(|source| StorageError::File {
                action: "write to",
                path: file.path.clone(),
                source,
            })?;
            file.written_len = file.written_len.max(end);
            if !touched.contains(&append.file) {
                touched.push(append.file);
            }
        }
        for id in touched {
            let Some(file) = self.files.get(&id) else {
                continue;
            };
            pass(faults, "apply: sync a sink file")?;
            let synced = file.handle.as_ref().map_or(Ok(()), File::sync_data);
            synced.map_err(|source| StorageError::File {
                action: "sync",
                path: file.path.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// A known file is checked and open from now on; for an unknown path, its normal form.
    pub(super) fn open_known(
        &mut self,
        path: &Path,
    ) -> Result<Result<SinkFileId, PathBuf>, StorageError> {
        let path = normal_form(path)?;
        let Some((id, file)) = self.files.iter_mut().find(|(_, file)| file.path == path) else {
            return Ok(Err(path));
        };
        check_known(file)?;
        file.is_open = true;
        Ok(Ok(*id))
    }

    /// What stands against opening the file at `path`; nothing is made or changed.
    pub(super) fn check(&self, path: &Path) -> Result<(), StorageError> {
        let path = existing_form(path)?;
        match self.files.values().find(|file| file.path == path) {
            Some(file) => check_known(file),
            None => check_new(&path),
        }
    }

    /// Makes an empty file for a new sink and syncs it and its directory.
    pub(super) fn create(path: &Path) -> Result<(), StorageError> {
        let failed = |action| {
            move |source| StorageError::File {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("create"))?;
        check_new(path)?;
        file.sync_all().map_err(failed("sync"))?;
        let directory = path.parent().unwrap_or(path);
        directories::sync(directory)
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

    /// Takes a new file in, empty.
    pub(super) fn insert(&mut self, id: SinkFileId, path: PathBuf) {
        let file = SinkFile {
            path,
            handle: None,
            is_open: true,
            decided_len: 0,
            written_len: 0,
            is_blocked: false,
        };
        self.files.insert(id, file);
    }
}

/// Whether a file that the store knows ends where the store committed to.
fn check_known(file: &SinkFile) -> Result<(), StorageError> {
    let wrong = |finding| {
        Err(StorageError::SinkFile {
            path: file.path.clone(),
            finding,
        })
    };
    if file.is_blocked {
        return wrong(
            "decided rows of a damaged partition wait for it; see to the partition and start again"
                .to_owned(),
        );
    }
    let committed = file.written_len;
    match std::fs::metadata(&file.path).map(|metadata| metadata.len()) {
        Ok(len) if len == committed => Ok(()),
        Ok(len) if len > committed => wrong(format!(
            "it holds {len} bytes, {committed} of them committed: somebody else wrote to it; cut it \
             back (truncate -s {committed}) or move it away together with the data directory"
        )),
        Ok(len) => wrong(format!(
            "it holds only {len} of {committed} committed bytes: somebody cut it; put the whole \
             file back, or move the data directory away to start afresh"
        )),
        Err(error) => wrong(format!(
            "its {committed} committed bytes can't be read ({error}); put the file back, or move \
             the data directory away to start afresh"
        )),
    }
}

/// Whether a file that the store does not know, at a path in its normal form, may become a sink's.
fn check_new(path: &Path) -> Result<(), StorageError> {
    let wrong = |finding| {
        Err(StorageError::SinkFile {
            path: path.to_owned(),
            finding,
        })
    };
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => wrong("it is no file; name another path".to_owned()),
        Ok(found) if found.len() > 0 => wrong(format!(
            "it holds {} bytes that this data directory knows nothing of; move the file away or \
             delete it, or name another path",
            found.len()
        )),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StorageError::File {
            action: "look at",
            path: path.to_owned(),
            source,
        }),
    }
}

/// What stands against making `path` the file of a sink under a data directory that does not exist
/// yet; nothing is made.
///
/// # Errors
///
/// [`StorageError::SinkFile`] when something is there already, or no folder can be made for it.
pub fn check_new_sink_file(path: &Path) -> Result<(), StorageError> {
    check_new(&existing_form(path)?)
}

/// The normal form of a path, without making the folders above it.
fn existing_form(path: &Path) -> Result<PathBuf, StorageError> {
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

fn write_at(file: &mut SinkFile, append: &PlacedAppend) -> io::Result<()> {
    if file.handle.is_none() {
        file.handle = Some(OpenOptions::new().write(true).open(&file.path)?);
    }
    match &file.handle {
        Some(handle) => handle.write_all_at(&append.bytes, append.offset),
        None => Ok(()),
    }
}

fn canonical(path: &Path) -> Result<PathBuf, StorageError> {
    path.canonicalize().map_err(|source| StorageError::File {
        action: "resolve",
        path: path.to_owned(),
        source,
    })
}

/// One name for one file: absolute, symbolic links followed. The file itself need not exist; the
/// folders above it are made.
fn normal_form(path: &Path) -> Result<PathBuf, StorageError> {
    if path.exists() {
        return canonical(path);
    }
    let absolute = std::path::absolute(path).map_err(|source| StorageError::File {
        action: "resolve",
        path: path.to_owned(),
        source,
    })?;
    match (absolute.parent(), absolute.components().next_back()) {
        (Some(directory), Some(Component::Normal(name))) => {
            directories::make_durable(directory)?;
            Ok(canonical(directory)?.join(name))
        }
        _ => Err(StorageError::SinkFile {
            path: path.to_owned(),
            finding: "it names no file".to_owned(),
        }),
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
