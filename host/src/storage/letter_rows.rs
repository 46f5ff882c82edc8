//! Typed reads of dead letters. Works over any [`Storage`] and writes nothing.

use crate::storage::letter_codec::decode_letter;
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, keys};
use crate::types::dead_letter::{DeadLetter, DeadLetterId};
use crate::types::ids::PartitionId;

pub use crate::storage::letter_codec::letter_size_bound;

/// A letter; `None` when there is none of that id (any more).
///
/// # Errors
///
/// When the store fails or the letter does not decode.
pub fn read_letter(
    storage: &dyn Storage,
    id: DeadLetterId,
) -> Result<Option<DeadLetter>, StorageError> {
    let row = storage.get(&keys::dead_letter(id))?;
    row.map(|value| decode_letter(id, &value)).transpose()
}

/// Letters of a partition behind one of them, or from its first one on, in the order in which they were written;
/// none at the end. A letter that does not decode stands as its error.
///
/// # Errors
///
/// When the store fails.
#[expect(clippy::type_complexity, reason = "an id, and what it stands for")]
pub fn read_letters(
    storage: &dyn Storage,
    partition: PartitionId,
    behind: Option<DeadLetterId>,
    limit: ScanLimit,
) -> Result<Vec<(DeadLetterId, Result<DeadLetter, StorageError>)>, StorageError> {
    let (first, end) = keys::all_of(keys::DEAD_LETTER, partition);
    // The least key behind another one is that key and a zero byte.
    let start = behind.map_or(first, |id| [&keys::dead_letter(id)[..], &[0]].concat());
    let rows = storage.scan(&start, &end, limit)?;
    let letters = rows.into_iter().filter_map(|(key, value)| {
        let id = keys::parse_dead_letter(&key)?;
        Some((id, decode_letter(id, &value)))
    });
    Ok(letters.collect())
}

/// Of each letter whether it is there.
///
/// # Errors
///
/// When the store fails.
pub fn are_kept(storage: &dyn Storage, ids: &[DeadLetterId]) -> Result<Vec<bool>, StorageError> {
    let mut kept = Vec::with_capacity(ids.len());
    for id in ids {
        let key = keys::dead_letter(*id);
        // The least key behind another one is that key and a zero byte.
        let end = [&key[..], &[0]].concat();
        kept.push(!storage.scan_keys(&key, &end, 1)?.is_empty());
    }
    Ok(kept)
}
