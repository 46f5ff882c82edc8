//! A position in a file as it is stored, with what it takes to notice that the file there now is
//! not the one that was read.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::source::SourceError;
use crate::types::batch::Timestamp;
use crate::types::epoch::Checksum;
use crate::types::format_version::unknown_version;
use crate::types::pipeline::RecordFormat;

/// First byte of an encoded position; no other connector's positions begin with it.
pub(in crate::source) const FORMAT_VERSION: u8 = 1;

/// Behind a record of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::source) struct FilePosition {
    /// How the file was cut into records.
    pub(super) format: RecordFormat,
    /// Rises when a changed file was accepted and read from its beginning.
    pub(super) incarnation: u32,
    /// Bytes of the decompressed content that lie behind.
    pub(super) offset_bytes: u64,
    /// The line, from 1, that the next record begins on.
    pub(super) line: u64,
    /// The last record ended with the file and not with a line end.
    pub(super) is_unterminated: bool,
    /// Whether the content was passed to the end that it had.
    pub(super) is_at_end: bool,
    /// Whether a record was passed: a header alone does not tell one file from another.
    pub(super) has_records: bool,
    /// The file that was decompressed to its end, if it was one.
    pub(super) packed: Option<PackedFile>,
    /// When the file was written last, as it was found when it was opened first, or when more was found behind
    /// an end that was seen: milliseconds since the Unix epoch. Kept, so that a record has one write time whatever happens later.
    pub(super) write_time: Timestamp,
    /// The content's first bytes, those behind the position only.
    pub(super) head: Fingerprint,
    /// The bytes just before the position.
    pub(super) tail: Fingerprint,
}

/// A compressed file as its file system describes it. One that is as it was when its end was seen need
/// not be decompressed again to see that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::source) struct PackedFile {
    /// Size of the file.
    pub(super) size_bytes: u64,
    /// Its modification time, in nanoseconds since the Unix epoch.
    pub(super) modified_ns: u64,
    /// Size of what is decompressed: the whole file, or the member of an archive.
    pub(super) content_bytes: u64,
}

/// Some bytes, remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::source) struct Fingerprint {
    pub(super) length_bytes: u32,
    pub(super) checksum: Checksum,
}

impl Fingerprint {
    /// The fingerprint of at most 4 GiB.
    pub(super) fn of(bytes: &[u8]) -> Fingerprint {
        Fingerprint {
            length_bytes: u32::try_from(bytes.len()).expect("fingerprints are taken of a few KiB"),
            checksum: Checksum::of(bytes),
        }
    }
}

impl FilePosition {
    pub(in crate::source) fn encode(&self) -> Vec<u8> {
        let encoded = postcard::to_extend(self, vec![FORMAT_VERSION]);
        encoded.expect("a position is numbers only, which always encode")
    }

    pub(in crate::source) fn decode(
        path: &Path,
        encoded: &[u8],
    ) -> Result<FilePosition, SourceError> {
        let undecodable = |finding: String| SourceError::UndecodablePosition {
            path: path.to_owned(),
            finding,
        };
        match encoded {
            [FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
                Ok((position, [])) => Ok(position),
                Ok((_, rest)) => Err(undecodable(format!("{} bytes too many", rest.len()))),
                Err(error) => Err(undecodable(error.to_string())),
            },
            [version, ..] => Err(undecodable(unknown_version(*version, FORMAT_VERSION))),
            [] => Err(undecodable("it is empty".to_owned())),
        }
    }
}

#[cfg(test)]
pub(in crate::source) mod tests {
    use super::*;

    pub(in crate::source) fn position() -> FilePosition {
        FilePosition {
            format: RecordFormat::Csv,
            incarnation: 2,
            offset_bytes: 1 << 40,
            line: 1_000_000,
            is_unterminated: true,
            is_at_end: false,
            has_records: true,
            packed: Some(PackedFile {
                size_bytes: 1 << 33,
                modified_ns: 1_700_000_000_000_000_001,
                content_bytes: 1 << 32,
            }),
            write_time: 1_700_000_000_000,
            head: Fingerprint::of(b"head"),
            tail: Fingerprint::of(b""),
        }
    }

    #[test]
    fn positions_come_back_as_they_went() {
        let encoded = position().encode();
        assert_eq!(
            FilePosition::decode(Path::new("f"), &encoded).unwrap(),
            position()
        );
    }

    #[test]
    fn what_was_not_encoded_here_is_refused() {
        let path = Path::new("f");
        let good = position().encode();
        let mut next = good.clone();
        next[0] = 2;
        let mut longer = good.clone();
        longer.push(0);
        let cases = [
            Vec::new(),
            next,
            longer,
            good[..good.len() - 1].to_vec(),
            vec![255; 40],
        ];
        for encoded in cases {
            let refused = FilePosition::decode(path, &encoded);
            assert!(
                matches!(refused, Err(SourceError::UndecodablePosition { .. })),
                "{encoded:?}"
            );
        }
    }
}
