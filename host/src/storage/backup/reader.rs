//! The rows of a backup, each proven before it is handed on.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::storage::StoredRow;
use crate::storage::backup::block::{self, Block, BlockError, BlockKind, HEADING_BYTES};
use crate::storage::backup::{
    BackupContents, BackupError, BackupHeader, BackupProgress, FORMAT_VERSION, MAGIC,
};
use crate::types::epoch::Checksum;

/// Bytes that are read from the file at a time.
const READ_BYTES: usize = 1 << 20;

/// Rows of one block.
#[derive(Debug)]
pub enum BackupRows {
    /// Rows of the catalog. They come first.
    Catalog(Vec<StoredRow>),
    /// Bulk rows.
    Bulk(Vec<StoredRow>),
}

/// Reads a backup from its beginning to its end.
#[derive(Debug)]
pub struct BackupReader {
    path: PathBuf,
    input: BufReader<File>,
    header: BackupHeader,
    /// Where the next block begins.
    offset: u64,
    headings: blake3::Hasher,
    blocks: u64,
    contents: BackupContents,
    /// Which kind of rows came last, and the last key of them.
    last: (BlockKind, Option<Vec<u8>>),
    has_ended: bool,
}

impl BackupReader {
    /// Opens a backup and reads what it says of itself.
    ///
    /// # Errors
    ///
    /// [`BackupError::NotABackup`], [`BackupError::OtherFormat`], [`BackupError::Damaged`], or when the file
    /// can't be read.
    pub fn open(path: &Path) -> Result<BackupReader, BackupError> {
        let failed = |action| {
            move |source| BackupError::File {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let file = File::open(path).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("look at"))?;
        let no_backup = |finding| BackupError::NotABackup {
            path: path.to_owned(),
            finding,
        };
        if !metadata.is_file() {
            return Err(no_backup("it is no regular file"));
        }
        let mut input = BufReader::with_capacity(READ_BYTES, file);
        let mut start = [0; MAGIC.len() + 1];
        if metadata.len() < start.len() as u64 {
            return Err(no_backup("it is too short"));
        }
        input.read_exact(&mut start).map_err(failed("read"))?;
        let Some(&[version]) = start.strip_prefix(MAGIC) else {
            return Err(no_backup("it begins with other bytes"));
        };
        if version != FORMAT_VERSION {
            return Err(BackupError::OtherFormat {
                path: path.to_owned(),
                found: version,
            });
        }
        let mut reader = BackupReader {
            path: path.to_owned(),
            input,
            header: BackupHeader {
                store_id: String::new(),
                changes: 0,
                taken_at: 0,
                release: String::new(),
            },
            offset: start.len() as u64,
            headings: blake3::Hasher::new(),
            blocks: 0,
            contents: BackupContents {
                file_bytes: metadata.len(),
                ..BackupContents::default()
            },
            last: (BlockKind::Header, None),
            has_ended: false,
        };
        let at = reader.offset;
        let first = reader.block()?;
        let header = match first.kind {
            BlockKind::Header => postcard::from_bytes(&first.bytes).ok(),
            _ => None,
        };
        let Some((store_id, changes, taken_at, release)) = header else {
            return Err(reader.damaged(at, "it has no header".to_owned()));
        };
        reader.header = BackupHeader {
            store_id,
            changes,
            taken_at,
            release,
        };
        Ok(reader)
    }

    /// What the backup says of itself.
    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// What was read so far; once there are no more rows, of the whole backup.
    pub fn contents(&self) -> BackupContents {
        self.contents
    }

    /// How much of the file is read, in bytes.
    pub fn progress(&self) -> BackupProgress {
        BackupProgress {
            done: self.offset,
            total: self.contents.file_bytes,
            file_bytes: self.contents.file_bytes,
        }
    }

    /// The next rows, keys rising; `None` behind the last ones of a backup that is whole.
    ///
    /// # Errors
    ///
    /// [`BackupError::Damaged`], or when the file can't be read.
    pub fn next_rows(&mut self) -> Result<Option<BackupRows>, BackupError> {
        if self.has_ended {
            return Ok(None);
        }
        let at = self.offset;
        let expected_end = self.end_block();
        let block = self.block()?;
        let (last_kind, last_key) = std::mem::replace(&mut self.last, (block.kind, None));
        let follows = matches!(
            (last_kind, block.kind),
            (
                BlockKind::Header | BlockKind::Catalog,
                BlockKind::Catalog | BlockKind::Bulk
            ) | (BlockKind::Bulk, BlockKind::Bulk)
                | (_, BlockKind::End)
        );
        if !follows {
            return Err(self.damaged(at, "its blocks are not in their order".to_owned()));
        }
        if block.kind == BlockKind::End {
            return self.end(at, &block, &expected_end).map(|()| None);
        }
        let Some(rows) = block::rows_of(&block) else {
            return Err(self.damaged(at, "a block's rows do not fill it".to_owned()));
        };
        let mut last_key = last_key.as_deref().filter(|_| last_kind == block.kind);
        for (key, value) in &rows {
            if last_key.is_some_and(|last| last >= key.as_slice()) {
                return Err(self.damaged(at, "its rows are not in their order".to_owned()));
            }
            last_key = Some(key);
            self.contents.row_bytes += (key.len() + value.len()) as u64;
        }
        self.last.1 = last_key.map(<[u8]>::to_vec);
        let count = rows.len() as u64;
        Ok(Some(match block.kind {
            BlockKind::Catalog => {
                self.contents.catalog_rows += count;
                BackupRows::Catalog(rows)
            }
            _ => {
                self.contents.bulk_rows += count;
                BackupRows::Bulk(rows)
            }
        }))
    }

    /// What an end here would have to say.
    fn end_block(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let contents = self.contents;
        for number in [contents.catalog_rows, contents.bulk_rows, self.blocks] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&Checksum::finish(&self.headings).0);
        bytes
    }

    fn end(&mut self, at: u64, block: &Block, expected: &[u8]) -> Result<(), BackupError> {
        if block.bytes != expected {
            return Err(self.damaged(at, "its end is another backup's".to_owned()));
        }
        if self.offset != self.contents.file_bytes {
            return Err(self.damaged(self.offset, "bytes follow its end".to_owned()));
        }
        self.has_ended = true;
        Ok(())
    }

    fn block(&mut self) -> Result<Block, BackupError> {
        let left = self.contents.file_bytes.saturating_sub(self.offset);
        let block = block::read(&mut self.input, left).map_err(|error| match error {
            BlockError::Io(source) => BackupError::File {
                action: "read",
                path: self.path.clone(),
                source,
            },
            BlockError::Damaged(finding) => self.damaged(self.offset, finding),
        })?;
        let mut stored_length = [0; 4];
        stored_length.copy_from_slice(&block.heading[10..14]);
        self.offset += HEADING_BYTES as u64 + u64::from(u32::from_le_bytes(stored_length));
        self.headings.update(&block.heading);
        self.blocks += 1;
        Ok(block)
    }

    fn damaged(&self, offset: u64, finding: String) -> BackupError {
        BackupError::Damaged {
            path: self.path.clone(),
            offset,
            finding,
        }
    }
}
