//! All dead letters of a store, oldest first, merged over their partitions a page at a time.

use crate::storage::letter_rows::read_letters;
use crate::storage::merged_pages::{MergedPages, Pages};
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, keys};
use crate::types::batch::Timestamp;
use crate::types::dead_letter::{DeadLetter, DeadLetterId};
use crate::types::ids::PartitionId;

/// A letter, or why it can't be read.
pub type FoundLetter = (DeadLetterId, Result<DeadLetter, StorageError>);

/// The partitions that have letters, rising.
///
/// # Errors
///
/// When the store fails.
pub fn partitions_with_letters(storage: &dyn Storage) -> Result<Vec<PartitionId>, StorageError> {
    let end = keys::prefix_end(&[keys::DEAD_LETTER]);
    let mut start = vec![keys::DEAD_LETTER];
    let mut partitions = Vec::new();
    while let Some(key) = storage.scan_keys(&start, &end, 1)?.pop() {
        let Some(partition) = keys::owner(&key) else {
            break;
        };
        partitions.push(partition);
        start = keys::all_of(keys::DEAD_LETTER, partition).1;
    }
    Ok(partitions)
}

/// Reads letters: by the moment at which they were written, and in a partition in the order in which it wrote them. One
/// that can't be read comes as soon as its partition is there.
pub struct LetterWalk<'a>(MergedPages<LetterPages<'a>>);

struct LetterPages<'a> {
    storage: &'a dyn Storage,
    partition: PartitionId,
    /// The last letter read.
    read: Option<DeadLetterId>,
}

impl Pages for LetterPages<'_> {
    type Row = FoundLetter;
    type Order = Timestamp;

    fn next_page(&mut self, limit: ScanLimit) -> Result<Vec<FoundLetter>, StorageError> {
        let page = read_letters(self.storage, self.partition, self.read, limit)?;
        self.read = page.last().map(|(id, _)| *id).or(self.read);
        Ok(page)
    }

    fn order((_, letter): &FoundLetter) -> Timestamp {
        letter.as_ref().map_or(0, |letter| letter.written)
    }
}

impl<'a> LetterWalk<'a> {
    /// Those of all partitions.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn new(storage: &'a dyn Storage) -> Result<LetterWalk<'a>, StorageError> {
        LetterWalk::of(storage, partitions_with_letters(storage)?)
    }

    /// Those of some partitions.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn of(
        storage: &'a dyn Storage,
        partitions: Vec<PartitionId>,
    ) -> Result<LetterWalk<'a>, StorageError> {
        let pages = partitions.into_iter().map(|partition| LetterPages {
            storage,
            partition,
            read: None,
        });
        Ok(LetterWalk(MergedPages::new(pages)?))
    }
}

impl Iterator for LetterWalk<'_> {
    type Item = Result<FoundLetter, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let letter = self.0.take().map(|next| next.map(|(_, letter)| letter));
        letter.transpose()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::storage::leases;
    use crate::storage::memory::MemoryStorage;
    use crate::storage::{CommitOutcome, Storage};
    use crate::types::batch::Batch;
    use crate::types::dead_letter::{FailedComputation, LetterFailure, LetterItem, LetterOrigin};
    use crate::types::epoch::EpochCommit;

    pub(crate) fn letter(computation: &str, key: &[u8], written: Timestamp) -> DeadLetter {
        DeadLetter {
            pipeline: "flights".to_owned(),
            deployment: 1,
            written,
            origin: LetterOrigin::Computation(Box::new(FailedComputation {
                left_out_state_bytes: 0,
                name: computation.to_owned(),
                component: "/totals.wasm".to_owned(),
                digest: "00ff".to_owned(),
                settings: "{}".to_owned(),
                batch: Batch::default(),
            })),
            item: LetterItem::Message {
                stream: "departures".to_owned(),
                key: key.to_vec(),
                event_time: 0,
                payload: b"bad".to_vec(),
            },
            location: "line 7 of source departures".to_owned(),
            root: None,
            failure: LetterFailure {
                class: "panic".to_owned(),
                ..LetterFailure::default()
            },
            attempts: 1,
        }
    }

    pub(crate) fn source_letter(source: &str, written: Timestamp) -> DeadLetter {
        DeadLetter {
            origin: LetterOrigin::Source {
                name: source.to_owned(),
            },
            item: LetterItem::Record {
                of: "a.csv".to_owned(),
                position: 7,
                bytes: b"\xff".to_vec(),
                size_bytes: 1,
            },
            ..letter("", b"", written)
        }
    }

    /// Commits an epoch of the partition with these letters, and returns their ids.
    pub(crate) fn write_letters(
        storage: &dyn Storage,
        partition: u64,
        letters: Vec<DeadLetter>,
    ) -> Vec<DeadLetterId> {
        let partition = PartitionId(partition);
        let lease = leases::grant(storage, partition).unwrap();
        let epoch = storage.head(partition).unwrap().epoch.next();
        let count = letters.len() as u32;
        let commit = EpochCommit {
            dead_letters: letters,
            ..EpochCommit::empty(&lease, epoch)
        };
        let outcome = storage.commit_epoch(lease, commit).unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
        leases::end(storage, lease).unwrap();
        let id = |index| DeadLetterId {
            partition,
            epoch,
            index,
        };
        (0..count).map(id).collect()
    }

    #[test]
    fn letters_of_all_partitions_come_oldest_first() {
        let storage = MemoryStorage::new();
        let of = |written| letter("totals", b"k", written);
        write_letters(&storage, 9, vec![of(5), of(7), of(7)]);
        write_letters(&storage, 300, vec![of(1), of(6)]);
        write_letters(&storage, 9, vec![of(20)]);
        let partitions = partitions_with_letters(&storage).unwrap();
        assert_eq!(partitions, [PartitionId(9), PartitionId(300)]);
        let walk = LetterWalk::new(&storage).unwrap();
        let found: Vec<String> = walk.map(|found| found.unwrap().0.to_string()).collect();
        let expected = [
            "p300-e1-0",
            "p9-e1-0",
            "p300-e1-1",
            "p9-e1-1",
            "p9-e1-2",
            "p9-e2-0",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn pages_join_without_a_gap() {
        let storage = MemoryStorage::new();
        let letters = (0..2_500)
            .map(|written| letter("totals", b"k", written))
            .collect();
        let ids = write_letters(&storage, 9, letters);
        let walk = LetterWalk::new(&storage).unwrap();
        assert!(walk.map(|found| found.unwrap().0).eq(ids));
    }

    #[test]
    fn a_letter_that_can_not_be_read_keeps_no_other_from_being_read() {
        let storage = MemoryStorage::new();
        let ids = write_letters(&storage, 9, vec![letter("totals", b"k", 5); 3]);
        storage.insert_row(&keys::dead_letter(ids[1]), b"\x63");
        let walk = LetterWalk::new(&storage).unwrap();
        let found: Vec<_> = walk.map(|found| found.unwrap()).collect();
        let read: Vec<bool> = found.iter().map(|(_, letter)| letter.is_ok()).collect();
        assert_eq!(read, [true, false, true]);
    }
}
