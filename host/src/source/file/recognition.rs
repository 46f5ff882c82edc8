//! Whether a file is the one that a position of another name is of: told by the content that was read.

use std::path::Path;

use super::FileSource;
use super::position::{FilePosition, Fingerprint};
use super::window::{FINGERPRINT_BYTES, Window};
use crate::source::{PartitionReading, SourceError};
use crate::types::epoch::Checksum;
use crate::types::pipeline::FileSourceOptions;

/// What a committed position says of a file, which need not be there any more.
///
/// # Errors
///
/// When it can't be decoded.
pub fn read_position(name: &str, encoded: &[u8]) -> Result<PartitionReading, SourceError> {
    let position = FilePosition::decode(Path::new(name), encoded)?;
    let fingerprints = [position.head.checksum.0, position.tail.checksum.0].concat();
    Ok(PartitionReading {
        is_at_end: position.is_at_end,
        // A header alone is that of every file of its kind.
        is_recognizable: position.has_records,
        passed_bytes: position.offset_bytes,
        content: Checksum::of(&fingerprints),
        passed: format!("read up to line {}", position.line.saturating_sub(1)),
    })
}

/// For each position whether the file holds what was read up to it.
///
/// # Errors
///
/// When the file can't be read, or a position not be decoded.
pub fn recognize(
    options: &FileSourceOptions,
    positions: &[&[u8]],
) -> Result<Vec<bool>, SourceError> {
    // Most are told by their beginnings, which are read once for all of them.
    let mut window = Window::open(&options.path)?;
    window.fetch_at_least(FINGERPRINT_BYTES)?;
    let beginning = window.unread();
    let is_held = |encoded: &&[u8]| {
        let position = FilePosition::decode(&options.path, encoded)?;
        let head = beginning.get(..position.head.length_bytes as usize);
        if head.is_none_or(|head| Fingerprint::of(head) != position.head) {
            return Ok(false);
        }
        match FileSource::open_at(options, &position) {
            Ok(_) => Ok(true),
            Err(SourceError::IdentityChanged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    };
    positions.iter().map(is_held).collect()
}
