//! What is asked to be done with dead letters, as rows of the catalog. Works over any [`Storage`].
//!
//! A row has the ids of up to 256 letters of one partition, so that a hundred thousand of them are a few hundred rows.
//!
//! **Invariant:** a request stands for nothing by itself. The letter goes, and what its replay makes comes, by an epoch of its
//! partition; a request for a letter that is gone is one whose epoch was decided, and is removed by whoever finds it.

use std::collections::{BTreeMap, BTreeSet};

use crate::storage::codec::{FORMAT_VERSION, Finding};
use crate::storage::{CatalogChange, CatalogOutcome, Storage, StorageError, StoredRow, keys};
use crate::types::dead_letter::{DeadLetterId, LetterRequest, LetterRequestKind};
use crate::types::format_version::unknown_version;
use crate::types::ids::{EpochId, PartitionId};

/// The most letters that one row has: at the most bytes that an id takes it stays below
/// [`crate::storage::CATALOG_VALUE_BYTES_MAX`].
const IDS_PER_ROW_MAX: usize = 256;

/// The most requests that are made by one change of the catalog.
const IDS_PER_CHANGE_MAX: usize = 65_536;

/// The most requests that may wait in a store.
pub const LETTER_REQUESTS_MAX: usize = 1 << 20;

/// How often a change is tried again because others changed the same row in between.
const ATTEMPTS_MAX: usize = 64;

/// Requests could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LetterRequestError {
    /// More would wait than may.
    #[error(
        "{waiting} requests for dead letters wait and {more} more are asked for, allowed are {LETTER_REQUESTS_MAX}; run the \
         pipelines that they wait for first, or ask for fewer"
    )]
    TooMany {
        /// How many wait.
        waiting: usize,
        /// How many were to come.
        more: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Requests for letters of one partition, as they are stored together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestPage {
    pub(super) kind: LetterRequestKind,
    /// Rising, of one partition, at least one.
    pub(super) ids: Vec<DeadLetterId>,
}

/// The bytes of a row's value: kind, and the letters' epochs and indexes, each epoch as what it is above the one before.
pub(super) fn encode_page(page: &RequestPage) -> Vec<u8> {
    let mut before = 0;
    let ids = page.ids.iter().map(|id| {
        let above = id.epoch.0 - before;
        before = id.epoch.0;
        (above, id.index)
    });
    let ids: Vec<(u64, u32)> = ids.collect();
    postcard::to_extend(&(page.kind, ids), vec![FORMAT_VERSION])
        .expect("writing numbers into memory can't fail")
}

/// What a row holds.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub(super) fn decode_page(key: &[u8], value: &[u8]) -> Result<RequestPage, StorageError> {
    let undecodable =
        |what: String| move |finding: Finding| StorageError::Undecodable { what, finding };
    let first = keys::parse_letter_requests(key).ok_or_else(|| {
        undecodable(format!("the row {} of the catalog", key.escape_ascii()))(
            "its key names no dead letter".to_owned(),
        )
    })?;
    let what = format!("the requests from dead letter {first} on");
    decode_value(first, value).map_err(undecodable(what))
}

fn decode_value(first: DeadLetterId, value: &[u8]) -> Result<RequestPage, Finding> {
    let (kind, written) = match value {
        [FORMAT_VERSION, rest @ ..] => {
            match postcard::take_from_bytes::<(LetterRequestKind, Vec<(u64, u32)>)>(rest) {
                Ok((page, [])) => page,
                Ok((_, rest)) => return Err(format!("{} bytes follow its end", rest.len())),
                Err(error) => return Err(format!("it can't be read: {error}")),
            }
        }
        [version, ..] => return Err(unknown_version(*version, FORMAT_VERSION)),
        [] => return Err("it is empty".to_owned()),
    };
    let mut ids = Vec::with_capacity(written.len());
    let mut epoch = 0_u64;
    for (above, index) in written {
        epoch = epoch
            .checked_add(above)
            .ok_or("an epoch is above all epochs")?;
        ids.push(DeadLetterId {
            partition: first.partition,
            epoch: EpochId(epoch),
            index,
        });
    }
    if ids.first() != Some(&first) || !ids.is_sorted_by(|left, right| left < right) {
        return Err("its letters do not rise from the one in its key".to_owned());
    }
    Ok(RequestPage { kind, ids })
}

/// All requests for letters of a partition, in the order of the letters, each letter once.
///
/// # Errors
///
/// When the store fails or a row does not decode.
pub fn read_requests(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Vec<LetterRequest>, StorageError> {
    requests_under(storage, &keys::letter_requests_of(partition))
}

/// All requests of the store, in the order of the letters.
///
/// # Errors
///
/// As [`read_requests`].
pub fn all_requests(storage: &dyn Storage) -> Result<Vec<LetterRequest>, StorageError> {
    requests_under(storage, &[keys::CATALOG_LETTER_REQUESTS])
}

fn requests_under(
    storage: &dyn Storage,
    prefix: &[u8],
) -> Result<Vec<LetterRequest>, StorageError> {
    let mut requests: BTreeMap<DeadLetterId, LetterRequestKind> = BTreeMap::new();
    for (key, value) in storage.scan_catalog(prefix)? {
        let page = decode_page(&key, &value)?;
        for id in page.ids {
            let kind = requests.entry(id).or_insert(page.kind);
            // Two that asked at one moment did not see each other.
            *kind = page.kind.max(*kind);
        }
    }
    Ok(requests
        .into_iter()
        .map(|(id, kind)| LetterRequest { id, kind })
        .collect())
}

/// Asks for the same to be done with many letters; durable when it returns. A letter for which it is asked already
/// is passed over, one for which something else was asked is asked for anew. Returns how many are asked for that were
/// not before. Interrupted, it has asked for some of them.
///
/// # Errors
///
/// [`LetterRequestError::TooMany`] before anything is written, or when the store fails.
pub fn add_requests(
    storage: &dyn Storage,
    kind: LetterRequestKind,
    ids: &[DeadLetterId],
) -> Result<usize, LetterRequestError> {
    let ids: BTreeSet<DeadLetterId> = ids.iter().copied().collect();
    let waiting = all_requests(storage)?.len();
    if waiting + ids.len() > LETTER_REQUESTS_MAX {
        return Err(LetterRequestError::TooMany {
            waiting,
            more: ids.len(),
        });
    }
    let ids: Vec<DeadLetterId> = ids.into_iter().collect();
    let mut added = 0;
    for ids in ids.chunks(IDS_PER_CHANGE_MAX) {
        added += change_rows(storage, "ask for dead letters", |rows| rows.add(kind, ids))?;
    }
    Ok(added)
}

/// Removes requests, those for letters that are gone or that nobody is to touch any more; durable when it returns.
/// Letters for which nothing is asked are passed over. Returns how many were removed.
///
/// # Errors
///
/// When the store fails or a row does not decode.
pub fn remove_requests(storage: &dyn Storage, ids: &[DeadLetterId]) -> Result<usize, StorageError> {
    let ids: BTreeSet<DeadLetterId> = ids.iter().copied().collect();
    let ids: Vec<DeadLetterId> = ids.into_iter().collect();
    let mut removed = 0;
    for ids in ids.chunks(IDS_PER_CHANGE_MAX) {
        removed += change_rows(storage, "remove requests for dead letters", |rows| {
            rows.take_out(ids, None)
        })?;
    }
    Ok(removed)
}

/// Changes the rows that `change` loads, and tries again where others changed one of them in between.
fn change_rows(
    storage: &dyn Storage,
    action: &'static str,
    change: impl Fn(&mut RequestRows<'_>) -> Result<usize, StorageError>,
) -> Result<usize, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut rows = RequestRows {
            storage,
            found: BTreeMap::new(),
            pages: BTreeMap::new(),
        };
        let count = change(&mut rows)?;
        let change = rows.into_change();
        if change.writes.is_empty() || storage.commit_catalog(&change)? == CatalogOutcome::Committed
        {
            return Ok(count);
        }
    }
    Err(StorageError::Contended {
        action,
        attempts: ATTEMPTS_MAX,
    })
}

/// The rows of some partitions, and what is to become of them.
struct RequestRows<'a> {
    storage: &'a dyn Storage,
    found: BTreeMap<Vec<u8>, Vec<u8>>,
    /// By the key of their least letter.
    pages: BTreeMap<Vec<u8>, RequestPage>,
}

impl RequestRows<'_> {
    fn load(&mut self, ids: &[DeadLetterId]) -> Result<(), StorageError> {
        let partitions: BTreeSet<PartitionId> = ids.iter().map(|id| id.partition).collect();
        for partition in partitions {
            for (key, value) in self
                .storage
                .scan_catalog(&keys::letter_requests_of(partition))?
            {
                self.pages.insert(key.clone(), decode_page(&key, &value)?);
                self.found.insert(key, value);
            }
        }
        Ok(())
    }

    /// Takes letters, which rise, out of all rows but those of `spared`; how many it found.
    fn take_out(
        &mut self,
        ids: &[DeadLetterId],
        spared: Option<LetterRequestKind>,
    ) -> Result<usize, StorageError> {
        self.load(ids)?;
        let mut count = 0;
        for page in std::mem::take(&mut self.pages).into_values() {
            let RequestPage {
                kind,
                ids: mut left,
            } = page;
            if spared != Some(kind) {
                let before = left.len();
                left.retain(|id| ids.binary_search(id).is_err());
                count += before - left.len();
            }
            self.put(kind, left);
        }
        Ok(count)
    }

    /// Adds letters, which rise, that are not asked for yet; how many.
    fn add(
        &mut self,
        kind: LetterRequestKind,
        ids: &[DeadLetterId],
    ) -> Result<usize, StorageError> {
        self.take_out(ids, Some(kind))?;
        let known: BTreeSet<DeadLetterId> = (self.pages.values())
            .flat_map(|page| page.ids.iter().copied())
            .collect();
        let new: Vec<DeadLetterId> = (ids.iter().copied())
            .filter(|id| !known.contains(id))
            .collect();
        for of_partition in new.chunk_by(|left, right| left.partition == right.partition) {
            for ids in of_partition.chunks(IDS_PER_ROW_MAX) {
                self.put(kind, ids.to_vec());
            }
        }
        Ok(new.len())
    }

    fn put(&mut self, kind: LetterRequestKind, ids: Vec<DeadLetterId>) {
        if let Some(first) = ids.first() {
            self.pages
                .insert(keys::letter_requests(*first), RequestPage { kind, ids });
        }
    }

    fn into_change(self) -> CatalogChange {
        let mut change = CatalogChange::default();
        let mut write = |key: Vec<u8>, found: Option<Vec<u8>>, now: Option<Vec<u8>>| {
            if found != now {
                change.expectations.push((key.clone(), found));
                change.writes.push((key, now));
            }
        };
        let mut found = self.found;
        for (key, page) in self.pages {
            let was: Option<StoredRow> = found.remove_entry(&key);
            write(key, was.map(|(_, value)| value), Some(encode_page(&page)));
        }
        for (key, value) in found {
            write(key, Some(value), None);
        }
        change
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::storage::CATALOG_VALUE_BYTES_MAX;
    use crate::storage::memory::MemoryStorage;
    use LetterRequestKind::{Discard, Replay};

    pub(in crate::storage) fn letter(partition: u64, epoch: u64, index: u32) -> DeadLetterId {
        DeadLetterId {
            partition: PartitionId(partition),
            epoch: EpochId(epoch),
            index,
        }
    }

    fn rows(storage: &MemoryStorage) -> usize {
        let rows = storage.scan_catalog(&[keys::CATALOG_LETTER_REQUESTS]);
        rows.unwrap().len()
    }

    fn shown(storage: &MemoryStorage, partition: u64) -> Vec<String> {
        let requests = read_requests(storage, PartitionId(partition)).unwrap();
        let shown = |request: LetterRequest| format!("{} {}", request.kind, request.id);
        requests.into_iter().map(shown).collect()
    }

    #[test]
    fn requests_are_read_in_the_order_of_their_letters_each_once() {
        let storage = MemoryStorage::new();
        let add = |kind, ids: &[DeadLetterId]| add_requests(&storage, kind, ids).unwrap();
        let (a, b, c) = (letter(1, 5, 0), letter(1, 5, 1), letter(1, 900, 0));
        assert_eq!(add(Replay, &[c, a, c]), 2);
        assert_eq!(add(Replay, &[a, b]), 1, "one was asked for already");
        assert_eq!(add(Replay, &[letter(2, 1, 7)]), 1);
        let of_first = ["replay p1-e5-0", "replay p1-e5-1", "replay p1-e900-0"];
        assert_eq!(shown(&storage, 1), of_first);
        assert_eq!(shown(&storage, 2), ["replay p2-e1-7"]);
        assert_eq!(all_requests(&storage).unwrap().len(), 4);
        assert!(shown(&storage, 3).is_empty());
    }

    #[test]
    fn what_is_asked_last_counts() {
        let storage = MemoryStorage::new();
        let (a, b) = (letter(1, 5, 0), letter(1, 6, 0));
        add_requests(&storage, Replay, &[a, b]).unwrap();
        assert_eq!(add_requests(&storage, Discard, &[a]).unwrap(), 1);
        assert_eq!(shown(&storage, 1), ["discard p1-e5-0", "replay p1-e6-0"]);
        add_requests(&storage, Replay, &[a]).unwrap();
        assert_eq!(shown(&storage, 1), ["replay p1-e5-0", "replay p1-e6-0"]);
    }

    #[test]
    fn many_letters_are_few_rows_and_go_row_by_row() {
        let storage = MemoryStorage::new();
        let ids: Vec<_> = (0..100_000)
            .map(|n| letter(1, n / 3, (n % 3) as u32))
            .collect();
        assert_eq!(add_requests(&storage, Replay, &ids).unwrap(), ids.len());
        assert_eq!(rows(&storage), ids.len().div_ceil(IDS_PER_ROW_MAX));
        assert_eq!(remove_requests(&storage, &ids[..1_000]).unwrap(), 1_000);
        assert_eq!(remove_requests(&storage, &ids[..1_000]).unwrap(), 0);
        let left = read_requests(&storage, PartitionId(1)).unwrap();
        assert!(
            left.iter()
                .map(|request| request.id)
                .eq(ids[1_000..].iter().copied())
        );
        assert_eq!(remove_requests(&storage, &ids).unwrap(), 99_000);
        assert_eq!(rows(&storage), 0);
    }

    #[test]
    fn the_longest_ids_fit_into_a_row() {
        let ids = (0..IDS_PER_ROW_MAX as u64).map(|n| letter(1, u64::MAX - 1_000 + n, u32::MAX));
        let page = RequestPage {
            kind: Discard,
            ids: ids.collect(),
        };
        let value = encode_page(&page);
        assert!(value.len() <= CATALOG_VALUE_BYTES_MAX, "{}", value.len());
        let key = keys::letter_requests(page.ids[0]);
        assert_eq!(decode_page(&key, &value).unwrap(), page);
    }

    #[test]
    fn more_than_may_wait_are_refused_before_anything_is_written() {
        let storage = MemoryStorage::new();
        let ids: Vec<_> = (0..=LETTER_REQUESTS_MAX as u64)
            .map(|n| letter(1, n, 0))
            .collect();
        let refused = add_requests(&storage, Replay, &ids);
        assert!(matches!(refused, Err(LetterRequestError::TooMany { .. })));
        assert_eq!(rows(&storage), 0);
    }

    #[test]
    fn a_row_that_is_not_whole_is_refused_by_name() {
        let ids = vec![letter(7, 9, 0), letter(7, 9, 1)];
        let key = keys::letter_requests(ids[0]);
        let value = encode_page(&RequestPage { kind: Replay, ids });
        let check = |key: &[u8], value: &[u8], expected: &str| {
            let error = decode_page(key, value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        for cut in 0..value.len() {
            check(&key, &value[..cut], "from dead letter p7-e9-0 on");
        }
        check(&key, &[&value[..], &[0]].concat(), "1 bytes follow");
        let other = keys::letter_requests(letter(7, 8, 0));
        check(&other, &value, "do not rise from");
        check(&key[1..], &value, "names no dead letter");
    }
}
