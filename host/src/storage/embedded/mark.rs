//! How far the decisions are, and what they hold then: a row of theirs that every transaction
//! changes. The bulk rows carry a copy of an earlier one, so that decisions that lost rows since,
//! or came out of a damaged log with holes, are known for what they are.
//!
//! **Invariant:** a mark among the bulk rows is one that was durable among the decisions before.

use xxhash_rust::xxh3::Xxh3;

use crate::storage::{StorageError, codec};

/// The decisions after one of their transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// How many transactions there were.
    pub(super) transactions: u64,
    /// Digest of all rows but this one, whatever their order.
    pub(super) digest: u64,
}

impl Mark {
    /// Takes a row into the digest, or out of it again.
    pub(super) fn toggle(&mut self, key: &[u8], value: &[u8]) {
        let mut hasher = Xxh3::new();
        hasher.update(&(key.len() as u64).to_le_bytes());
        hasher.update(key);
        hasher.update(value);
        self.digest ^= hasher.digest();
    }

    /// The digest of rows.
    pub(super) fn digest_of<'a>(rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> u64 {
        let mut mark = Mark::default();
        for (key, value) in rows {
            mark.toggle(key, value);
        }
        mark.digest
    }

    /// As a row has it.
    pub(super) fn encode(self) -> Vec<u8> {
        let numbers = [self.transactions, self.digest];
        codec::encode_plain(numbers.map(u64::to_be_bytes).as_flattened())
    }

    /// From a row of `whose`.
    pub(super) fn decode(whose: &str, value: Vec<u8>) -> Result<Mark, StorageError> {
        let what = || format!("the mark among {whose}");
        let bytes = codec::decode_plain(what, value)?;
        let number = |index: usize| {
            let bytes = bytes.get(8 * index..8 * (index + 1))?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        match (number(0), number(1)) {
            (Some(transactions), Some(digest)) if bytes.len() == 16 => Ok(Mark {
                transactions,
                digest,
            }),
            _ => Err(StorageError::Undecodable {
                what: what(),
                finding: format!("it is {} bytes long, not 16", bytes.len()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_rows_apart_but_not_their_order() {
        let rows: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", b"1"), (b"ab", b"")];
        let digest = Mark::digest_of(rows);
        assert_eq!(digest, Mark::digest_of([rows[2], rows[0], rows[1]]));
        for index in 0..3 {
            let mut fewer = rows.to_vec();
            fewer.remove(index);
            assert_ne!(digest, Mark::digest_of(fewer.iter().copied()));
            let mut mark = Mark {
                transactions: 1,
                digest,
            };
            mark.toggle(rows[index].0, rows[index].1);
            assert_eq!(mark.digest, Mark::digest_of(fewer));
        }
        assert_ne!(
            Mark::digest_of([rows[0]]),
            Mark::digest_of([(b"a1".as_slice(), b"".as_slice())])
        );
    }

    #[test]
    fn a_mark_comes_back_as_it_was_written() {
        let mark = Mark {
            transactions: 7,
            digest: u64::MAX - 3,
        };
        assert_eq!(Mark::decode("rows", mark.encode()).unwrap(), mark);
        let mut short = mark.encode();
        short.pop();
        assert!(Mark::decode("rows", short).is_err());
    }
}
