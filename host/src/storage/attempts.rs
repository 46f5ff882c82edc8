//! How often the items of a partition were tried, as rows of the catalog: durable before the next attempt, though no
//! epoch is committed between the two. Works over any [`Storage`].

use serde::{Deserialize, Serialize};

use crate::storage::codec::FORMAT_VERSION;
use crate::storage::{CatalogChange, Storage, StorageError, keys};
use crate::types::dead_letter::DeadLetterId;
use crate::types::epoch::Checksum;
use crate::types::format_version::unknown_version;
use crate::types::ids::PartitionId;

/// What is known of a partition's attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionAttempts {
    /// Whether the process has ended with a job of the partition, and none since is past what that may have ended with.
    pub is_unclean: bool,
    /// The item that failed last.
    pub failed: Option<FailedAttempts>,
    /// What was about to be tried after an unclean stop.
    pub begun: Option<BegunAttempt>,
    /// The dead letter whose replay was about to be tried.
    pub replay: Option<BegunReplay>,
}

/// A replay that is written down before it is made, as the process may end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunReplay {
    /// The first letter that was to be replayed.
    pub letter: DeadLetterId,
    /// How often it was begun alone; 0 where others were to follow in the same epoch.
    pub alone: u32,
}

/// An item that failed, and may pass another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempts {
    /// Of its computation, its epoch and its call.
    pub item: Checksum,
    /// How often it failed.
    pub count: u32,
}

/// An attempt that is written down before it is made, as the process may end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunAttempt {
    /// How many items it takes at most.
    pub rows: u32,
    /// How many items are left, these included, among which must be the one that the process ended with.
    pub left: u64,
    /// The item, where it is one.
    pub item: Option<Checksum>,
    /// How often an attempt with this one alone was begun.
    pub count: u32,
}

pub(super) fn encode_attempts(attempts: &PartitionAttempts) -> Vec<u8> {
    postcard::to_extend(attempts, vec![FORMAT_VERSION])
        .expect("writing numbers into memory can't fail")
}

/// What the row of a partition holds.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub(super) fn decode_attempts(
    partition: PartitionId,
    value: &[u8],
) -> Result<PartitionAttempts, StorageError> {
    let decoded = match value {
        [FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
            Ok((attempts, [])) => Ok(attempts),
            Ok((_, rest)) => Err(format!("{} bytes follow its end", rest.len())),
            Err(error) => Err(format!("it can't be read: {error}")),
        },
        [version, ..] => Err(unknown_version(*version, FORMAT_VERSION)),
        [] => Err("it is empty".to_owned()),
    };
    decoded.map_err(|finding| StorageError::Undecodable {
        what: format!("the attempts of partition {partition}"),
        finding,
    })
}

/// What is known of a partition's attempts.
///
/// # Errors
///
/// When the store fails or the row does not decode.
pub fn read_attempts(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<PartitionAttempts, StorageError> {
    let row = storage.read_catalog(&keys::attempts(partition))?;
    decode_optional(partition, row.as_deref())
}

/// What a row holds that may not be there.
pub(super) fn decode_optional(
    partition: PartitionId,
    row: Option<&[u8]>,
) -> Result<PartitionAttempts, StorageError> {
    row.map_or(Ok(PartitionAttempts::default()), |value| {
        decode_attempts(partition, value)
    })
}

/// Writes that down, or removes what is written where nothing is known any more; durable when it returns. For the
/// partition's job alone.
///
/// # Errors
///
/// When the store fails.
pub fn write_attempts(
    storage: &dyn Storage,
    partition: PartitionId,
    attempts: &PartitionAttempts,
) -> Result<(), StorageError> {
    let is_empty = *attempts == PartitionAttempts::default();
    let value = (!is_empty).then(|| encode_attempts(attempts));
    storage.commit_catalog(&CatalogChange {
        expectations: Vec::new(),
        writes: vec![(keys::attempts(partition), value)],
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory::MemoryStorage;
    use crate::types::ids::EpochId;

    #[test]
    fn attempts_read_back_and_nothing_leaves_no_row() {
        let storage = MemoryStorage::new();
        let partition = PartitionId(4);
        let read = || read_attempts(&storage, partition).unwrap();
        assert_eq!(read(), PartitionAttempts::default());
        let attempts = PartitionAttempts {
            is_unclean: true,
            failed: Some(FailedAttempts {
                item: Checksum::of(b"item"),
                count: 2,
            }),
            begun: Some(BegunAttempt {
                rows: 15,
                left: 125,
                item: None,
                count: 0,
            }),
            replay: Some(BegunReplay {
                letter: DeadLetterId {
                    partition,
                    epoch: EpochId(3),
                    index: 1,
                },
                alone: 2,
            }),
        };
        write_attempts(&storage, partition, &attempts).unwrap();
        assert_eq!(read(), attempts);
        write_attempts(&storage, partition, &PartitionAttempts::default()).unwrap();
        let row = storage.read_catalog(&keys::attempts(partition)).unwrap();
        assert_eq!(row, None);
    }
}
