//! Records that a source can't decode and passes over, with what is known of them.

use crate::types::key::MESSAGE_KEY_BYTES_MAX;

/// The most bytes of an undecodable record that are handed out: enough for the longest record that a file
/// source accepts where the pipeline file does not say.
pub const UNDECODABLE_BYTES_MAX: usize = 1 << 20;

/// How much of a key that is too long is shown.
const SHOWN_KEY_BYTES: usize = 64;

/// A record that is not what its source demands; the source's position is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndecodableRecord {
    /// How many of the records that it was handed out with come before it.
    pub place: usize,
    /// Which of several it is a record of: the file or partition, as its source calls it.
    pub of: String,
    /// Where it begins: its line in the (decompressed) file, from 1, or its offset.
    pub position: u64,
    /// Its bytes, the first [`UNDECODABLE_BYTES_MAX`] at most.
    pub bytes: Vec<u8>,
    /// How many bytes it has in all.
    pub size_bytes: u64,
    /// What is wrong with it.
    pub flaw: RecordFlaw,
}

impl UndecodableRecord {
    /// The bytes of a record that are handed out.
    pub(super) fn first_bytes(record: &[u8]) -> &[u8] {
        &record[..record.len().min(UNDECODABLE_BYTES_MAX)]
    }
}

/// What is wrong with one record, as far as nothing is wrong with its source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordFlaw {
    /// It is not what the source's format demands.
    #[error("the record is not {format}: {finding}")]
    Malformed {
        /// The format.
        format: &'static str,
        /// What is wrong with it.
        finding: String,
    },
    /// It is longer than the source's options allow.
    #[error("the record is longer than max_record_bytes = {limit_bytes}")]
    TooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// Its key is too long for a message.
    #[error("the row has a key of {size_bytes} bytes, allowed are {MESSAGE_KEY_BYTES_MAX}; it begins with \"{}\"", .begin.escape_ascii())]
    KeyTooLong {
        /// Bytes of the key.
        size_bytes: usize,
        /// The first of them.
        begin: Vec<u8>,
    },
}

impl RecordFlaw {
    /// That of a key that is too long.
    pub(super) fn key_too_long(key: &[u8]) -> RecordFlaw {
        RecordFlaw::KeyTooLong {
            size_bytes: key.len(),
            begin: key[..key.len().min(SHOWN_KEY_BYTES)].to_vec(),
        }
    }

    /// What to do about it.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            RecordFlaw::Malformed { .. } => "correct the file, or read it as lines",
            RecordFlaw::TooLong { .. } => {
                "raise it, or look for a missing line end or closing quote"
            }
            RecordFlaw::KeyTooLong { .. } => "write it with a hash as its key",
        }
    }

    /// Its name among the classes of failures.
    pub fn class(&self) -> &'static str {
        match self {
            RecordFlaw::Malformed { .. } => "undecodable",
            RecordFlaw::TooLong { .. } => "record_too_long",
            RecordFlaw::KeyTooLong { .. } => "key_too_long",
        }
    }
}
