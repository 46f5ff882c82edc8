//! A snapshot of a store into a file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::storage::backup::block::{self, BlockKind, HEADING_BYTES};
use crate::storage::backup::{
    BackupContents, BackupError, BackupHeader, BackupProgress, FORMAT_VERSION, MAGIC, ObserveBackup,
};
use crate::storage::embedded::directories;
use crate::storage::scan::ScanLimit;
use crate::storage::{StoreSnapshot, StoredRow};
use crate::types::epoch::Checksum;

/// Bytes of rows that are put into one block, and read at a time; a larger row has a block of its own.
const BLOCK_BYTES: usize = 1 << 20;

/// What is appended to the name of a backup that is not whole yet.
const UNFINISHED: &str = "part";

/// Where a backup is written until it is whole.
pub fn unfinished_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    PathBuf::from(name)
}

/// Writes all of `snapshot` into a new file at `path`, which has the name only once it is whole and synced.
/// What an interrupted backup left under the unfinished name is overwritten.
///
/// # Errors
///
/// [`BackupError::Exists`], [`BackupError::BeingWritten`], or when the store or the file fails; the
/// unfinished file is removed then.
pub fn write_backup(
    snapshot: &dyn StoreSnapshot,
    header: &BackupHeader,
    path: &Path,
    observe: &mut ObserveBackup<'_>,
) -> Result<BackupContents, BackupError> {
    if path.symlink_metadata().is_ok() {
        return Err(BackupError::Exists {
            path: path.to_owned(),
        });
    }
    let unfinished = unfinished_path(path);
    let file = take_file(&unfinished)?;
    let written = BackupWriter::begin(file, &unfinished)
        .and_then(|writer| writer.write(snapshot, header, observe))
        .and_then(|contents| {
            // Not over a file that has come since.
            if path.symlink_metadata().is_ok() {
                return Err(BackupError::Exists {
                    path: path.to_owned(),
                });
            }
            let rename = std::fs::rename(&unfinished, path);
            rename.map_err(failed("rename to its name", path))?;
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            directories::sync(folder)?;
            Ok(contents)
        });
    if written.is_err() {
        // It would be overwritten the next time; what went wrong is worth more than this.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Makes the unfinished file, or takes over what an interrupted backup left.
fn take_file(path: &Path) -> Result<File, BackupError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(failed("make", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(BackupError::BeingWritten {
                path: path.to_owned(),
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock", path)(source)),
    }
    file.set_len(0).map_err(failed("empty", path))?;
    Ok(file)
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> BackupError + 'a {
    move |source| BackupError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

struct BackupWriter<'a> {
    output: BufWriter<File>,
    path: &'a Path,
    /// Over all headings so far.
    headings: blake3::Hasher,
    blocks: u64,
    contents: BackupContents,
}

impl<'a> BackupWriter<'a> {
    fn begin(file: File, path: &'a Path) -> Result<BackupWriter<'a>, BackupError> {
        let mut output = BufWriter::with_capacity(BLOCK_BYTES, file);
        let start = [MAGIC.as_slice(), &[FORMAT_VERSION]].concat();
        output.write_all(&start).map_err(failed("write", path))?;
        Ok(BackupWriter {
            output,
            path,
            headings: blake3::Hasher::new(),
            blocks: 0,
            contents: BackupContents {
                file_bytes: start.len() as u64,
                ..BackupContents::default()
            },
        })
    }

    fn write(
        mut self,
        snapshot: &dyn StoreSnapshot,
        header: &BackupHeader,
        observe: &mut ObserveBackup<'_>,
    ) -> Result<BackupContents, BackupError> {
        let document = postcard::to_stdvec(&(
            &header.store_id,
            header.changes,
            header.taken_at,
            &header.release,
        ));
        let document = document.expect("texts and numbers always encode");
        self.block(BlockKind::Header, 0, &document)?;
        for rows in in_pieces(snapshot.catalog()) {
            self.rows(BlockKind::Catalog, rows)?;
        }
        let total = snapshot.approximate_rows();
        let limit = ScanLimit {
            rows: usize::MAX,
            bytes: BLOCK_BYTES,
        };
        let mut start = Vec::new();
        loop {
            let page = snapshot.scan(&start, limit)?;
            let Some((last, _)) = page.last() else {
                break;
            };
            // The least key behind another one is that key and a zero byte.
            start = [last, [0].as_slice()].concat();
            self.rows(BlockKind::Bulk, &page)?;
            let progress = BackupProgress {
                done: self.contents.bulk_rows,
                total: total.max(self.contents.bulk_rows),
                file_bytes: self.contents.file_bytes,
            };
            if observe(progress).is_break() {
                return Err(BackupError::GivenUp {
                    path: self.path.to_owned(),
                });
            }
        }
        self.end()
    }

    fn rows(&mut self, kind: BlockKind, rows: &[StoredRow]) -> Result<(), BackupError> {
        let mut bytes = Vec::with_capacity(2 * BLOCK_BYTES);
        for (key, value) in rows {
            block::put_row(&mut bytes, key, value).map_err(failed("write", self.path))?;
            self.contents.row_bytes += (key.len() + value.len()) as u64;
        }
        match kind {
            BlockKind::Catalog => self.contents.catalog_rows += rows.len() as u64,
            _ => self.contents.bulk_rows += rows.len() as u64,
        }
        let count = u32::try_from(rows.len()).expect("a block has at most 1 GiB");
        self.block(kind, count, &bytes)
    }

    fn block(&mut self, kind: BlockKind, rows: u32, bytes: &[u8]) -> Result<(), BackupError> {
        let heading = block::write(&mut self.output, kind, rows, bytes);
        let heading = heading.map_err(failed("write", self.path))?;
        self.headings.update(&heading);
        self.blocks += 1;
        let mut stored_length = [0; 4];
        stored_length.copy_from_slice(&heading[10..14]);
        self.contents.file_bytes +=
            HEADING_BYTES as u64 + u64::from(u32::from_le_bytes(stored_length));
        Ok(())
    }

    fn end(mut self) -> Result<BackupContents, BackupError> {
        let mut bytes = Vec::new();
        let contents = self.contents;
        for number in [contents.catalog_rows, contents.bulk_rows, self.blocks] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&Checksum::finish(&self.headings).0);
        self.block(BlockKind::End, 0, &bytes)?;
        let file = self.output.into_inner();
        let synced = file
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all());
        synced.map_err(failed("write", self.path))?;
        Ok(self.contents)
    }
}

/// Rows in pieces of about [`BLOCK_BYTES`].
fn in_pieces(rows: &[StoredRow]) -> impl Iterator<Item = &[StoredRow]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut size_bytes = 0;
        let fit = rest.iter().take_while(|(key, value)| {
            let fits = size_bytes < BLOCK_BYTES;
            size_bytes += key.len() + value.len();
            fits
        });
        let count = fit.count();
        let (piece, behind) = rest.split_at(count);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}
