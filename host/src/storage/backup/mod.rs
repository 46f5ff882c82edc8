//! Backups: all rows of a store as of one moment, in one file that proves itself.
//!
//! ```text
//! "TIDEBAK" version │ header │ catalog rows … │ bulk rows … │ end
//!                     └─ each a block: kind, counts, lengths, checksum, bytes ─┘
//! ```
//!
//! - `block`: one block and its bytes.
//! - [`writer`]: a snapshot into a file.
//! - [`reader`]: a file back into rows, each proven.
//!
//! **Invariant:** a file under the name that was asked for is a whole backup: it is written under another name,
//! synced, then renamed. A reader believes nothing that no checksum covers, and a file that was cut,
//! changed or put together from others is found before its end is reached, or there.

mod block;
pub mod reader;
#[cfg(test)]
mod tests;
pub mod writer;

use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::storage::{StorageError, StoreSnapshot, codec, keys};
use crate::types::batch::Timestamp;
use crate::types::format_version::unknown_version;

/// The bytes that a backup begins with, before its format version.
const MAGIC: &[u8; 7] = b"TIDEBAK";

/// The format version of backups in this release.
const FORMAT_VERSION: u8 = 1;

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackupHeader {
    /// The store's id, in hexadecimal.
    pub store_id: String,
    /// How many changes the catalog had seen.
    pub changes: u64,
    /// When it was taken, by the clock of who took it: milliseconds since the Unix epoch.
    pub taken_at: Timestamp,
    /// The release that wrote it.
    pub release: String,
}

impl BackupHeader {
    /// Of a backup of this snapshot, taken now.
    ///
    /// # Errors
    ///
    /// When rows of the catalog do not decode.
    pub fn of(
        snapshot: &dyn StoreSnapshot,
        taken_at: Timestamp,
    ) -> Result<BackupHeader, StorageError> {
        let value = |of: &[u8]| {
            let row = snapshot.catalog().iter().find(|(key, _)| key == of);
            let what = || format!("the row {} of the catalog", of.escape_ascii());
            row.map_or(Ok(Vec::new()), |(_, value)| {
                codec::decode_plain(what, value.clone())
            })
        };
        let mark = value(&keys::catalog_mark())?;
        let store_id = value(&keys::catalog_store_id())?;
        Ok(BackupHeader {
            store_id: store_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            changes: (mark.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes)),
            taken_at,
            release: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

/// Told how far a backup is; it is given up where the answer is to break.
pub type ObserveBackup<'a> = dyn FnMut(BackupProgress) -> ControlFlow<()> + 'a;

/// What a whole backup holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackupContents {
    /// Rows of the catalog.
    pub catalog_rows: u64,
    /// Bulk rows.
    pub bulk_rows: u64,
    /// Bytes of keys and values.
    pub row_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// A backup could not be written, or not be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something else has the name.
    #[error("{} is there already, and a backup takes nobody's place; name another file, or move it away", .path.display())]
    Exists {
        /// The name that was asked for.
        path: PathBuf,
    },
    /// Another process is writing a backup under this name.
    #[error("{} is being written by another process; wait for it, or name another file", .path.display())]
    BeingWritten {
        /// The unfinished file.
        path: PathBuf,
    },
    /// The file could not be made, read, written or synced.
    #[error("failed to {action} {}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{} is no backup of a store: {finding}", .path.display())]
    NotABackup {
        /// The file.
        path: PathBuf,
        /// What was found.
        finding: &'static str,
    },
    /// Another release wrote it.
    #[error("backup {} can't be read: {}", .path.display(), unknown_version(*.found, FORMAT_VERSION))]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u8,
    },
    /// It is not as it was written.
    #[error("backup {} is damaged at byte {offset}: {finding}; use another backup", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the block begins in which it shows.
        offset: u64,
        /// What was found.
        finding: String,
    },
    /// Whoever asked for it has gone.
    #[error("backup {} was given up: whoever asked for it has gone", .path.display())]
    GivenUp {
        /// The file.
        path: PathBuf,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// How far the writing or reading of a backup is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackupProgress {
    /// What is done, in units of `total`.
    pub done: u64,
    /// About how much there is.
    pub total: u64,
    /// Bytes of the file so far.
    pub file_bytes: u64,
}
