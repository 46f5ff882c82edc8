//! The content of a file, decompressed: plain, gzip of any number of members, or a zip archive
//! with one file in it. Which one is told by the first bytes, never by the name.
//!
//! Nothing is unpacked to disk or kept in memory beyond read buffers.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::UNIX_EPOCH;

use flate2::Crc;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder};
use zip::{CompressionMethod, ZipArchive};

use crate::source::SourceError;
use crate::source::file::position::PackedFile;
use crate::types::batch::Timestamp;

/// Compressed bytes read at once.
const COMPRESSED_READ_BYTES: usize = 64 << 10;

/// How many members of an archive an error lists.
const LISTED_MEMBERS_MAX: usize = 10;

/// The decompressed bytes of a file, from the first on.
#[derive(Debug)]
pub(super) struct Content {
    reader: Reader,
    /// Size of the plain file, the gzip file or the compressed archive member.
    total_bytes: u64,
    write_time: Timestamp,
    /// None for a plain file, or where the file system keeps no modification times.
    packed: Option<PackedFile>,
}

#[derive(Debug)]
enum Reader {
    Plain(File),
    Gzip(MultiGzDecoder<BufReader<Counted>>),
    ZipStored(Checked<BufReader<Counted>>),
    ZipDeflated(Checked<DeflateDecoder<BufReader<Counted>>>),
}

/// What became of a file whose end was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookedAgain {
    /// It has the end that it had.
    Unchanged,
    /// There is more behind what was read.
    Grown,
    /// Under its name is another file, or what was read is not there any more.
    Replaced,
}

impl Content {
    /// Opens a file and finds out how it is compressed.
    pub(super) fn open(path: &Path) -> Result<Content, SourceError> {
        let unopened = |source| SourceError::Open {
            path: path.to_owned(),
            source,
        };
        // Looked at first: opening a pipe would wait for its writer.
        if !std::fs::metadata(path).map_err(unopened)?.is_file() {
            return Err(SourceError::NotAFile {
                path: path.to_owned(),
            });
        }
        let mut file = File::open(path).map_err(unopened)?;
        let metadata = file.metadata().map_err(unopened)?;
        let (total_bytes, write_time) = (metadata.len(), write_time(&metadata));
        let mut magic = Vec::new();
        (&file).take(4).read_to_end(&mut magic).map_err(unopened)?;
        file.rewind().map_err(unopened)?;
        match magic.as_slice() {
            [0x1f, 0x8b, 8, ..] => Ok(Content {
                reader: Reader::Gzip(MultiGzDecoder::new(compressed(file, total_bytes))),
                total_bytes,
                write_time,
                packed: packed_file(&metadata, total_bytes),
            }),
            b"PK\x03\x04" | b"PK\x05\x06" => open_archive(path, file, &metadata),
            _ => Ok(Content {
                reader: Reader::Plain(file),
                total_bytes,
                write_time,
                packed: None,
            }),
        }
    }

    /// Reads what comes next; 0 bytes mean the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &mut self.reader {
                Reader::Plain(file) => file.read(buffer),
                Reader::Gzip(decoder) => decoder.read(buffer),
                Reader::ZipStored(member) => member.read(buffer),
                Reader::ZipDeflated(member) => member.read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Goes to an offset without reading what lies before it. Answers whether it did: compressed
    /// content must be read through, and a plain file may end before the offset.
    pub(super) fn seek(&mut self, offset_bytes: u64) -> io::Result<bool> {
        match &mut self.reader {
            Reader::Plain(file) if offset_bytes <= file.metadata()?.len() => {
                file.seek(SeekFrom::Start(offset_bytes))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Looks at a plain file again of which everything up to `end` was read, `tail` last: whether more is
    /// there now, or another file.
    pub(super) fn look_again(
        &mut self,
        path: &Path,
        end: u64,
        tail: &[u8],
    ) -> io::Result<LookedAgain> {
        let Reader::Plain(file) = &self.reader else {
            return Ok(LookedAgain::Unchanged);
        };
        let (named, opened) = (std::fs::metadata(path)?, file.metadata()?);
        let is_same = (named.dev(), named.ino()) == (opened.dev(), opened.ino());
        if !is_same || opened.len() < end {
            return Ok(LookedAgain::Replaced);
        }
        if opened.len() == end {
            return Ok(LookedAgain::Unchanged);
        }
        // It may have been cut and have grown since.
        let mut now = vec![0; tail.len()];
        match file.read_exact_at(&mut now, end - tail.len() as u64) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            Ok(()) if now == tail => {}
            _ => return Ok(LookedAgain::Replaced),
        }
        self.write_time = self.write_time.max(write_time(&opened));
        Ok(LookedAgain::Grown)
    }

    /// The name of the compression, if there is one.
    pub(super) fn compression(&self) -> Option<&'static str> {
        match &self.reader {
            Reader::Plain(_) => None,
            Reader::Gzip(_) => Some("gzip"),
            Reader::ZipStored(_) | Reader::ZipDeflated(_) => Some("zip"),
        }
    }

    /// When the file was written last before it was opened or looked at again, in milliseconds since the Unix
    /// epoch.
    pub(super) fn write_time(&self) -> Timestamp {
        self.write_time
    }

    /// The compressed file as it was when it was opened.
    pub(super) fn packed(&self) -> Option<PackedFile> {
        self.packed
    }

    /// The size in all of what is read, compressed if it is.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Compressed bytes read so far; none for a plain file, whose offset says it.
    pub(super) fn compressed_done_bytes(&self) -> Option<u64> {
        match &self.reader {
            Reader::Plain(_) => None,
            Reader::Gzip(decoder) => Some(decoder.get_ref().get_ref().done_bytes),
            Reader::ZipStored(member) => Some(member.reader.get_ref().done_bytes),
            Reader::ZipDeflated(member) => Some(member.reader.get_ref().get_ref().done_bytes),
        }
    }
}

/// A compressed file of which `content_bytes` are decompressed; none where its file system keeps no
/// modification times.
fn packed_file(metadata: &Metadata, content_bytes: u64) -> Option<PackedFile> {
    let modified = metadata.modified().ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    Some(PackedFile {
        size_bytes: metadata.len(),
        modified_ns: u64::try_from(since.as_nanos()).ok()?,
        content_bytes,
    })
}

impl PackedFile {
    /// Whether the file at `path` is as this one was.
    pub(super) fn is_still_at(&self, path: &Path) -> bool {
        let metadata = std::fs::metadata(path).ok();
        let metadata = metadata.filter(Metadata::is_file);
        let now = metadata.and_then(|metadata| packed_file(&metadata, self.content_bytes));
        now.as_ref() == Some(self)
    }
}

/// A file's modification time; 0 where the file system keeps none, or one before 1970.
fn write_time(metadata: &Metadata) -> Timestamp {
    let since = metadata.modified().ok();
    let since = since.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_millis() as Timestamp)
}

/// Opens the only file in a zip archive.
fn open_archive(path: &Path, file: File, metadata: &Metadata) -> Result<Content, SourceError> {
    let refused = |finding: String| SourceError::Archive {
        path: path.to_owned(),
        finding,
    };
    let damaged = |error: zip::result::ZipError| refused(error.to_string());
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(damaged)?;
    let index = only_member(&mut archive).map_err(refused)?;
    let member = archive.by_index_raw(index).map_err(damaged)?;
    if member.encrypted() {
        return Err(refused("its file is encrypted; unpack it".to_owned()));
    }
    let Some(start) = member.data_start() else {
        return Err(refused(
            "its file can't be found in it; pack it again".to_owned(),
        ));
    };
    let method = member.compression();
    let total_bytes = member.compressed_size();
    let (size_bytes, crc) = (member.size(), member.crc32());
    drop(member);
    let mut file = archive.into_inner().into_inner();
    file.seek(SeekFrom::Start(start))
        .map_err(|source| SourceError::Open {
            path: path.to_owned(),
            source,
        })?;
    let bytes = compressed(file, total_bytes);
    let reader = match method {
        CompressionMethod::Stored => Reader::ZipStored(Checked::new(bytes, size_bytes, crc)),
        CompressionMethod::Deflated => {
            Reader::ZipDeflated(Checked::new(DeflateDecoder::new(bytes), size_bytes, crc))
        }
        other => {
            let finding =
                format!("its file is packed by {other}; pack it by deflate, or unpack it");
            return Err(refused(finding));
        }
    };
    Ok(Content {
        reader,
        total_bytes,
        write_time: write_time(metadata),
        packed: packed_file(metadata, total_bytes),
    })
}

/// The index of the archive's only file, or what to say about it.
fn only_member(archive: &mut ZipArchive<BufReader<File>>) -> Result<usize, String> {
    let mut only = None;
    let mut count = 0_usize;
    let mut names = Vec::new();
    for index in 0..archive.len() {
        let member = archive
            .by_index_raw(index)
            .map_err(|error| error.to_string())?;
        if member.is_dir() {
            continue;
        }
        only = Some(index);
        count += 1;
        if names.len() < LISTED_MEMBERS_MAX {
            names.push(
                member
                    .name()
                    .map_err(|error| error.to_string())?
                    .into_owned(),
            );
        }
    }
    match only {
        Some(index) if count == 1 => Ok(index),
        None => Err("there is no file in it".to_owned()),
        Some(_) => {
            let rest = match count > names.len() {
                true => ", ...",
                false => "",
            };
            let names = names.join(", ");
            Err(format!(
                "it holds {count} files ({names}{rest}); pack one, or unpack it"
            ))
        }
    }
}

fn compressed(file: File, size_bytes: u64) -> BufReader<Counted> {
    let counted = Counted {
        file: file.take(size_bytes),
        done_bytes: 0,
    };
    BufReader::with_capacity(COMPRESSED_READ_BYTES, counted)
}

/// Counts the bytes that are read.
#[derive(Debug)]
struct Counted {
    file: Take<File>,
    done_bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.done_bytes += count as u64;
        Ok(count)
    }
}

/// Compares size and checksum with what the archive's directory says, at the end.
#[derive(Debug)]
struct Checked<R> {
    reader: R,
    size_bytes: u64,
    expected: u32,
    crc: Crc,
    /// Bytes seen; [`Crc::amount`] counts modulo 4 GiB.
    seen_bytes: u64,
}

impl<R> Checked<R> {
    fn new(reader: R, size_bytes: u64, expected: u32) -> Checked<R> {
        Checked {
            reader,
            size_bytes,
            expected,
            crc: Crc::new(),
            seen_bytes: 0,
        }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.crc.update(&buffer[..count]);
        self.seen_bytes += count as u64;
        if count == 0 && (self.seen_bytes != self.size_bytes || self.crc.sum() != self.expected) {
            let finding = format!(
                "{} bytes with checksum {:08x}, the archive promises {} with {:08x}",
                self.seen_bytes,
                self.crc.sum(),
                self.size_bytes,
                self.expected
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, finding));
        }
        Ok(count)
    }
}
