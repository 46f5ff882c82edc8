//! What the jobs of one run are asked to do with dead letters: what the catalog had when they began, and what is asked
//! for while they run. Ids alone, as many as may wait in a store.
//!
//! A copy: requests are rows of the catalog ([`crate::storage::letter_requests`]) before they come here, and stay there until
//! the epochs that do what they ask for are durable.
//!
//! **Invariant:** a request is handed out once until its job has said that it is done or has begun anew. So no two epochs
//! of a job replay one letter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use crate::storage::letter_requests::{read_requests, remove_requests};
use crate::storage::{Storage, StorageError};
use crate::types::dead_letter::{DeadLetterId, LetterRequest, LetterRequestKind};
use crate::types::ids::PartitionId;

/// Why the lock can be taken.
const UNPOISONED: &str = "no job panics while it holds the requests for letters";

/// The requests for letters of those partitions that have a job.
#[derive(Debug, Default)]
pub struct LetterRequests {
    by_partition: Mutex<BTreeMap<PartitionId, PartitionRequests>>,
}

#[derive(Debug, Default)]
struct PartitionRequests {
    waiting: BTreeMap<DeadLetterId, LetterRequestKind>,
    /// Handed out and not done.
    taken: BTreeSet<DeadLetterId>,
    /// Replays that can't be done.
    aside: BTreeSet<DeadLetterId>,
}

impl LetterRequests {
    /// A partition's job begins or begins anew: whatever the catalog asks for waits, what was handed out before
    /// included. Until [`LetterRequests::leave`] it gets what is asked for later too.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn open(&self, partition: PartitionId, storage: &dyn Storage) -> Result<(), StorageError> {
        // From now on nothing is missed that is written meanwhile.
        (self.partitions().entry(partition).or_default())
            .taken
            .clear();
        let stored = read_requests(storage, partition)?;
        self.add(&stored);
        Ok(())
    }

    /// Whether anything waits for the partition's job.
    pub fn is_any(&self, partition: PartitionId) -> bool {
        let partitions = self.partitions();
        let requests = partitions.get(&partition);
        requests.is_some_and(|requests| !requests.waiting.is_empty())
    }

    /// Hands the request for the partition's oldest letter out. The letter may be gone: then there is nothing to do but to
    /// say that it is done.
    pub fn next(&self, partition: PartitionId) -> Option<LetterRequest> {
        let mut partitions = self.partitions();
        let requests = partitions.get_mut(&partition)?;
        let (id, kind) = requests.waiting.pop_first()?;
        requests.taken.insert(id);
        Some(LetterRequest { id, kind })
    }

    /// What was asked for these letters is done, and durable: the requests are removed from the catalog. A crash before
    /// that leaves requests for letters that are gone.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn done(&self, ids: &[DeadLetterId], storage: &dyn Storage) -> Result<(), StorageError> {
        if ids.is_empty() {
            return Ok(());
        }
        remove_requests(storage, ids)?;
        let mut partitions = self.partitions();
        for id in ids {
            if let Some(requests) = partitions.get_mut(&id.partition) {
                requests.taken.remove(id);
            }
        }
        Ok(())
    }

    /// Takes in what is asked for; it must be durable in the catalog. Returns how many of the requests a job of this run
    /// looks after; the others wait for another run.
    pub(super) fn add(&self, requests: &[LetterRequest]) -> usize {
        let mut partitions = self.partitions();
        let mut count = 0;
        for LetterRequest { id, kind } in requests {
            let Some(requests) = partitions.get_mut(&id.partition) else {
                continue;
            };
            count += 1;
            let is_aside = *kind == LetterRequestKind::Replay && requests.aside.contains(id);
            if !is_aside && !requests.taken.contains(id) {
                requests.waiting.insert(*id, *kind);
            }
        }
        count
    }

    /// What was asked for this letter can't be done in this run: it waits for another one, unless something else is asked.
    pub fn set_aside(&self, id: DeadLetterId) {
        let mut partitions = self.partitions();
        if let Some(requests) = partitions.get_mut(&id.partition) {
            requests.taken.remove(&id);
            requests.aside.insert(id);
        }
    }

    /// The partition's job serves no more in this run: what waits, and what is asked for later, is left to the next one.
    pub fn leave(&self, partition: PartitionId) {
        self.partitions().remove(&partition);
    }

    fn partitions(&self) -> MutexGuard<'_, BTreeMap<PartitionId, PartitionRequests>> {
        self.by_partition.lock().expect(UNPOISONED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::letter_requests::add_requests;
    use crate::storage::memory::MemoryStorage;
    use crate::types::ids::EpochId;
    use LetterRequestKind::{Discard, Replay};

    const PARTITION: PartitionId = PartitionId(3);

    fn letter(epoch: u64) -> DeadLetterId {
        DeadLetterId {
            partition: PARTITION,
            epoch: EpochId(epoch),
            index: 0,
        }
    }

    fn request(epoch: u64, kind: LetterRequestKind) -> LetterRequest {
        LetterRequest {
            id: letter(epoch),
            kind,
        }
    }

    fn opened(stored: &[u64]) -> (LetterRequests, MemoryStorage) {
        let storage = MemoryStorage::new();
        let ids: Vec<_> = stored.iter().copied().map(letter).collect();
        add_requests(&storage, Replay, &ids).unwrap();
        let requests = LetterRequests::default();
        requests.open(PARTITION, &storage).unwrap();
        (requests, storage)
    }

    #[test]
    fn requests_are_handed_out_once_in_the_order_of_their_letters() {
        let (requests, storage) = opened(&[9, 4]);
        assert!(requests.is_any(PARTITION));
        assert_eq!(requests.next(PARTITION), Some(request(4, Replay)));
        // Asked for again while an epoch is on its way that replays it.
        assert_eq!(requests.add(&[request(4, Replay), request(5, Discard)]), 2);
        assert_eq!(requests.next(PARTITION), Some(request(5, Discard)));
        assert_eq!(requests.next(PARTITION), Some(request(9, Replay)));
        assert_eq!(requests.next(PARTITION), None);
        requests.done(&[letter(4), letter(5)], &storage).unwrap();
        let stored = read_requests(&storage, PARTITION).unwrap();
        assert_eq!(stored, [request(9, Replay)]);
    }

    #[test]
    fn a_job_that_begins_anew_finds_what_its_predecessor_had_taken() {
        let (requests, storage) = opened(&[4, 9]);
        requests.next(PARTITION);
        requests.add(&[request(7, Replay)]);
        requests.open(PARTITION, &storage).unwrap();
        let found = std::iter::from_fn(|| requests.next(PARTITION));
        let found: Vec<u64> = found.map(|request| request.id.epoch.0).collect();
        assert_eq!(found, [4, 7, 9]);
    }

    #[test]
    fn what_can_not_be_done_waits_for_another_run_unless_something_else_is_asked() {
        let (requests, _) = opened(&[4]);
        requests.next(PARTITION);
        requests.set_aside(letter(4));
        requests.add(&[request(4, Replay)]);
        assert!(!requests.is_any(PARTITION));
        requests.add(&[request(4, Discard)]);
        assert_eq!(requests.next(PARTITION), Some(request(4, Discard)));
    }

    #[test]
    fn a_job_that_has_ended_gets_nothing() {
        let (requests, _) = opened(&[4]);
        requests.leave(PARTITION);
        assert_eq!(requests.add(&[request(5, Replay)]), 0);
        assert!(!requests.is_any(PARTITION));
        assert_eq!(requests.next(PARTITION), None);
    }
}
