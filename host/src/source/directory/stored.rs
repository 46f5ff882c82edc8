//! What is stored of a directory's reading: the position, and a mark for each file that was read to its end and
//! is still there.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::listing::FileStamp;
use crate::source::SourceError;
use crate::types::format_version::unknown_version;

/// First byte of an encoded position: no other connector's.
pub(in crate::source) const POSITION_TAG: u8 = b'd';

/// Second byte of an encoded position, first byte of a mark.
const FORMAT_VERSION: u8 = 1;

/// Where the reading of a directory stands, the marks aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectoryPosition {
    /// The file that is being read, and the position in it.
    pub(super) current: Option<(String, Vec<u8>)>,
    /// How many files were read to their ends.
    pub(super) finished: u64,
}

impl DirectoryPosition {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self, vec![POSITION_TAG, FORMAT_VERSION])
    }

    pub(super) fn decode(directory: &Path, encoded: &[u8]) -> Result<Self, SourceError> {
        let undecodable = undecodable(directory);
        match encoded {
            [POSITION_TAG, rest @ ..] => decode(rest).map_err(undecodable),
            _ => Err(undecodable("it is none of a directory".to_owned())),
        }
    }
}

/// A file that was read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DoneMark {
    /// As it was then, or when it was found to have changed since.
    pub(super) stamp: FileStamp,
    /// The position at its end, which tells its content.
    pub(super) position: Vec<u8>,
}

impl DoneMark {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self, vec![FORMAT_VERSION])
    }

    /// Of the file at `path`.
    pub(super) fn decode(path: &Path, encoded: &[u8]) -> Result<DoneMark, SourceError> {
        decode(encoded).map_err(undecodable(path))
    }
}

fn encode(value: &impl Serialize, start: Vec<u8>) -> Vec<u8> {
    let encoded = postcard::to_extend(value, start);
    encoded.expect("texts and numbers always encode")
}

fn decode<T: DeserializeOwned>(encoded: &[u8]) -> Result<T, String> {
    match encoded {
        [FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
            Err(error) => Err(error.to_string()),
        },
        [version, ..] => Err(unknown_version(*version, FORMAT_VERSION)),
        [] => Err("it is empty".to_owned()),
    }
}

/// A position and a mark as they are stored, with what they hold.
#[cfg(test)]
pub(in crate::source) fn stored_kinds() -> [(Vec<u8>, String); 2] {
    let position = DirectoryPosition {
        current: Some(("monday.csv".to_owned(), vec![1, 2, 3])),
        finished: 300,
    };
    let mark = DoneMark {
        stamp: FileStamp {
            size_bytes: 1 << 33,
            modified_ns: 1_700_000_000_000_000_001,
            inode: 1 << 40,
            created_ns: 1_600_000_000_000_000_001,
        },
        position: vec![4, 5],
    };
    let held = [format!("{position:?}"), format!("{mark:?}")];
    let [of_position, of_mark] = held;
    [(position.encode(), of_position), (mark.encode(), of_mark)]
}

/// Those of the directory or file at `path`, decoded.
#[cfg(test)]
pub(in crate::source) fn decode_shown(
    path: &Path,
    is_mark: bool,
    encoded: &[u8],
) -> Result<String, SourceError> {
    Ok(match is_mark {
        true => format!("{:?}", DoneMark::decode(path, encoded)?),
        false => format!("{:?}", DirectoryPosition::decode(path, encoded)?),
    })
}

fn undecodable(path: &Path) -> impl Fn(String) -> SourceError {
    let path = PathBuf::from(path);
    move |finding| SourceError::UndecodablePosition {
        path: path.clone(),
        finding,
    }
}
