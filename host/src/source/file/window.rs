//! A window onto a file's content: the bytes not read yet, contiguous, and enough of those before
//! them to tell later whether the file is still the same. Knows nothing of records.
//!
//! **Invariant:** once the end of the content was seen it stays the end, even if the file grows
//! meanwhile, until somebody asks to look again; the next opening reads on. A failed read stays failed: a decompressor asked again
//! after an error may answer "end" and pass a torn file for a whole one.

use std::io;
use std::path::{Path, PathBuf};

use crate::source::SourceError;
use crate::source::file::content::{Content, LookedAgain};

/// How much of the beginning, and of what lies before the position, tells the file's identity.
pub(super) const FINGERPRINT_BYTES: usize = 4 << 10;

/// The window's size as long as no record is longer.
const WINDOW_BYTES: usize = 256 << 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Window {
    path: PathBuf,
    content: Content,
    buffer: Vec<u8>,
    /// Offset of the buffer's first byte in the content.
    start: u64,
    /// Where the unread bytes begin in the buffer.
    cursor: usize,
    /// Where they end.
    filled: usize,
    at_end: bool,
    /// The failed read, if one failed.
    failure: Option<(io::ErrorKind, String)>,
    /// The first [`FINGERPRINT_BYTES`] of the content, as far as they were seen.
    head: Vec<u8>,
}

impl Window {
    /// A window at the beginning of the file's content.
    pub(super) fn open(path: &Path) -> Result<Window, SourceError> {
        Ok(Window {
            path: path.to_owned(),
            content: Content::open(path)?,
            buffer: vec![0; WINDOW_BYTES],
            start: 0,
            cursor: 0,
            filled: 0,
            at_end: false,
            failure: None,
            head: Vec::new(),
        })
    }

    /// The bytes that were fetched and not passed yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.cursor..self.filled]
    }

    /// Fetches more unread bytes behind those that are there. `false` at the end of the content.
    pub(super) fn fetch(&mut self) -> Result<bool, SourceError> {
        if self.at_end {
            return Ok(false);
        }
        if self.filled == self.buffer.len() {
            self.make_room();
        }
        let offset_bytes = self.start + self.filled as u64;
        if let Some((kind, text)) = &self.failure {
            return Err(self.unreadable(offset_bytes, io::Error::new(*kind, text.clone())));
        }
        let count = match self.content.read(&mut self.buffer[self.filled..]) {
            Ok(count) => count,
            Err(error) => {
                self.failure = Some((error.kind(), error.to_string()));
                return Err(self.unreadable(offset_bytes, error));
            }
        };
        if offset_bytes == self.head.len() as u64 && self.head.len() < FINGERPRINT_BYTES {
            let count = count.min(FINGERPRINT_BYTES - self.head.len());
            let fetched = &self.buffer[self.filled..self.filled + count];
            self.head.extend_from_slice(fetched);
        }
        self.filled += count;
        self.at_end = count == 0;
        Ok(!self.at_end)
    }

    /// Fetches until `count` bytes are unread, or all that there are.
    pub(super) fn fetch_at_least(&mut self, count: usize) -> Result<(), SourceError> {
        while self.unread().len() < count && self.fetch()? {}
        Ok(())
    }

    /// Passes `count` of the unread bytes.
    pub(super) fn pass(&mut self, count: usize) {
        assert!(
            count <= self.unread().len(),
            "only fetched bytes are passed"
        );
        self.cursor += count;
    }

    /// Goes forward to an offset. `false` if the content ends before it.
    pub(super) fn go_to(&mut self, offset_bytes: u64) -> Result<bool, SourceError> {
        // A seek lands before the offset, so that the bytes before it are seen here too.
        let landing = offset_bytes.saturating_sub(FINGERPRINT_BYTES as u64);
        if landing > self.start + self.filled as u64 {
            let sought = self.content.seek(landing);
            if sought.map_err(|source| self.unreadable(landing, source))? {
                (self.start, self.cursor, self.filled) = (landing, 0, 0);
                self.at_end = false;
            }
        }
        loop {
            let missing = offset_bytes.saturating_sub(self.offset());
            let fetched = self.unread().len();
            self.pass(fetched.min(usize::try_from(missing).unwrap_or(usize::MAX)));
            if self.offset() >= offset_bytes {
                return Ok(true);
            }
            if !self.fetch()? {
                return Ok(false);
            }
        }
    }

    /// Offset of the first unread byte in the content.
    pub(super) fn offset(&self) -> u64 {
        self.start + self.cursor as u64
    }

    /// Looks behind the end of a plain file that was seen: what is there now can be fetched. Content whose
    /// end was not seen has more.
    pub(super) fn look_again(&mut self) -> Result<LookedAgain, SourceError> {
        if !self.at_end {
            return Ok(LookedAgain::Grown);
        }
        let tail = &self.buffer[self.filled.saturating_sub(FINGERPRINT_BYTES)..self.filled];
        let end = self.start + self.filled as u64;
        let looked = self.content.look_again(&self.path, end, tail);
        let looked = looked.map_err(|source| SourceError::Open {
            path: self.path.clone(),
            source,
        })?;
        self.at_end = looked != LookedAgain::Grown;
        Ok(looked)
    }

    /// Whether everything was passed and the end was seen.
    pub(super) fn is_exhausted(&self) -> bool {
        self.at_end && self.unread().is_empty()
    }

    /// The first bytes of the content, up to [`FINGERPRINT_BYTES`] as far as they were passed.
    pub(super) fn head(&self) -> &[u8] {
        let passed = usize::try_from(self.offset()).unwrap_or(usize::MAX);
        &self.head[..self.head.len().min(passed)]
    }

    /// The bytes before the unread ones, up to [`FINGERPRINT_BYTES`].
    pub(super) fn tail(&self) -> &[u8] {
        &self.buffer[self.cursor.saturating_sub(FINGERPRINT_BYTES)..self.cursor]
    }

    /// The content itself, for what it says of its size.
    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// How much memory the window takes.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Drops what lies far before the unread bytes; if that frees too little, grows. Only a record
    /// that is longer than the window makes it grow, and those have a limit.
    fn make_room(&mut self) {
        let keep = self.cursor.saturating_sub(FINGERPRINT_BYTES);
        self.buffer.copy_within(keep..self.filled, 0);
        self.start += keep as u64;
        self.cursor -= keep;
        self.filled -= keep;
        if self.filled > self.buffer.len() / 2 {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    fn unreadable(&self, offset_bytes: u64, source: io::Error) -> SourceError {
        SourceError::Read {
            path: self.path.clone(),
            offset_bytes,
            compression: self.content.compression(),
            source,
        }
    }
}
