//! A sink's file while it is open: a regular file, locked for as long as this process may write to
//! it, with its identity, so that neither another name of it nor another process goes unnoticed.
//!
//! Not its place among the sinks, nor how long it has to be: that is `sink_files.rs`.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use crate::storage::StorageError;
use crate::storage::embedded::directories;

/// Symbolic links that are followed from a sink's name to its file, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// An open sink file.
#[derive(Debug)]
pub(super) struct SinkHandle {
    file: File,
    identity: Identity,
}

/// What a file is, whatever its names: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl SinkHandle {
    /// Opens a file for writing.
    pub(super) fn open(path: &Path) -> Result<SinkHandle, StorageError> {
        SinkHandle::open_with(path, OpenOptions::new().write(true))
    }

    /// Opens a file for writing, or makes it.
    pub(super) fn make(path: &Path) -> Result<SinkHandle, StorageError> {
        SinkHandle::open_with(path, OpenOptions::new().write(true).create(true))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<SinkHandle, StorageError> {
        let failed = |source| StorageError::File {
            action: "open for writing",
            path: path.to_owned(),
            source,
        };
        // Before it is opened: opening a pipe waits for a reader.
        check_regular(path)?;
        let file = options.open(path).map_err(failed)?;
        let identity = Identity::of(&file.metadata().map_err(failed)?);
        Ok(SinkHandle { file, identity })
    }

    /// Takes the file for this process.
    pub(super) fn lock(&self, path: &Path) -> Result<(), StorageError> {
        self.file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StorageError::SinkFileInUse {
                path: path.to_owned(),
            },
            TryLockError::Error(source) => StorageError::File {
                action: "lock",
                path: path.to_owned(),
                source,
            },
        })
    }

    /// Whether both are one file.
    pub(super) fn is_same_file(&self, other: &SinkHandle) -> bool {
        self.identity == other.identity
    }

    /// Whether this is the file that was looked at.
    pub(super) fn is_file_of(&self, metadata: &Metadata) -> bool {
        self.identity == Identity::of(metadata)
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Writes at an offset.
    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Cuts the file to `len` bytes if it has more, and syncs it. Returns how many went.
    pub(super) fn cut(&self, len: u64) -> std::io::Result<u64> {
        let excess = self.len()?.saturating_sub(len);
        if excess > 0 {
            self.file.set_len(len)?;
            self.file.sync_all()?;
        }
        Ok(excess)
    }

    /// Makes what was written durable.
    pub(super) fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    /// Makes the file itself durable, but for its name.
    pub(super) fn sync_all(&self) -> std::io::Result<()> {
        self.file.sync_all()
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        // Closing is not enough: a child process on its way from fork to exec has the file open
        // too. A lock that can't be given up goes with the process.
        let _ = self.file.unlock();
    }
}

/// Refuses what is there and no regular file: rows that went into a pipe or device can't be found
/// again after a crash, so no row of theirs could be written exactly once.
pub(super) fn check_regular(path: &Path) -> Result<(), StorageError> {
    // What can't be looked at is told when it is opened.
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(());
    };
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a folder; name a file in it"
    } else if kind.is_fifo() || kind.is_socket() {
        "a pipe, whose rows could not be found again after a crash; name a regular file"
    } else {
        "a device, which keeps no rows; name a regular file, or leave the sink out"
    };
    Err(StorageError::SinkFile {
        path: path.to_owned(),
        finding: format!("it is {what}"),
    })
}

/// One name for one file: absolute, symbolic links followed, its own too, whether or not they lead
/// to a file yet. The folders above it are made.
pub(super) fn normal_form(path: &Path) -> Result<PathBuf, StorageError> {
    follow(path, |directory| {
        directories::make_durable(directory)?;
        canonical(directory)
    })
}

/// The same, without making folders.
pub(super) fn existing_form(path: &Path) -> Result<PathBuf, StorageError> {
    follow(path, |directory| {
        let mut ancestors = directory.ancestors();
        let existing = ancestors.find(|ancestor| ancestor.exists());
        let existing = existing.unwrap_or(directory);
        let missing = directory.strip_prefix(existing).unwrap_or(Path::new(""));
        match existing.is_dir() {
            true => Ok(canonical(existing)?.join(missing)),
            false => Err(StorageError::SinkFile {
                path: path.to_owned(),
                finding: format!("{} is no folder; name another path", existing.display()),
            }),
        }
    })
}

/// Follows the symbolic links of a file's own name; `resolve` gives its folder one name.
fn follow(
    path: &Path,
    resolve: impl Fn(&Path) -> Result<PathBuf, StorageError>,
) -> Result<PathBuf, StorageError> {
    let mut at = std::path::absolute(path).map_err(|source| StorageError::File {
        action: "resolve",
        path: path.to_owned(),
        source,
    })?;
    for _ in 0..LINKS_MAX {
        let (Some(directory), Some(Component::Normal(name))) =
            (at.parent(), at.components().next_back())
        else {
            return Err(StorageError::SinkFile {
                path: path.to_owned(),
                finding: "it names no file".to_owned(),
            });
        };
        let directory = resolve(directory)?;
        let named = directory.join(name);
        match fs::read_link(&named) {
            Ok(target) => at = directory.join(target),
            Err(_) => return Ok(named),
        }
    }
    Err(StorageError::SinkFile {
        path: path.to_owned(),
        finding: format!(
            "it leads through more than {LINKS_MAX} symbolic links, so likely in a circle; remove \
             the link or name another path"
        ),
    })
}

/// The path of something that is there: absolute, symbolic links followed.
pub(super) fn canonical(path: &Path) -> Result<PathBuf, StorageError> {
    path.canonicalize().map_err(|source| StorageError::File {
        action: "resolve",
        path: path.to_owned(),
        source,
    })
}
