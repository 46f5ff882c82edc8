//! A position in a queue's partition as it is stored.

use serde::{Deserialize, Serialize};

use crate::types::batch::Timestamp;
use crate::types::format_version::unknown_version;
use crate::types::ids::PartitionId;

/// First byte of an encoded position: none of another connector begins with it.
pub(in crate::source) const POSITION_TAG: u8 = b'Q';
/// Second byte of an encoded position.
const FORMAT_VERSION: u8 = 1;

/// Before a row of a queue's partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePosition {
    /// The partition, by the number that it has in the store.
    pub partition: PartitionId,
    /// Offset of the row that comes next.
    pub next: u64,
    /// The greatest write time of the rows before it.
    pub write_time: Timestamp,
    /// Bytes of all rows that were ever written before it.
    pub passed_bytes: u64,
}

impl QueuePosition {
    /// The position with its versions.
    ///
    /// # Panics
    ///
    /// Never: numbers always encode.
    pub fn encode(&self) -> Vec<u8> {
        let encoded = postcard::to_extend(self, vec![POSITION_TAG, FORMAT_VERSION]);
        encoded.expect("a position is numbers only, which always encode")
    }

    /// The position that [`QueuePosition::encode`] wrote.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(encoded: &[u8]) -> Result<QueuePosition, String> {
        match encoded {
            [POSITION_TAG, FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
                Ok((position, [])) => Ok(position),
                Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
                Err(error) => Err(error.to_string()),
            },
            [POSITION_TAG, version, ..] => Err(unknown_version(*version, FORMAT_VERSION)),
            _ => Err("it is not one in a queue".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back_as_they_went_and_nothing_else_does() {
        let position = QueuePosition {
            partition: PartitionId(9),
            next: 1 << 40,
            write_time: 1_700_000_000_000,
            passed_bytes: 1 << 33,
        };
        let encoded = position.encode();
        assert_eq!(QueuePosition::decode(&encoded), Ok(position));
        let refused = |bytes: &[u8]| QueuePosition::decode(bytes).unwrap_err();
        let mut next = encoded.clone();
        next[1] = 2;
        assert!(refused(&next).contains("format version 2"));
        assert!(refused(&[&encoded[..], &[0]].concat()).contains("too many"));
        refused(&encoded[..encoded.len() - 1]);
        assert!(refused(&[1, 2, 3]).contains("not one in a queue"));
    }
}
