//! What is decided and not yet applied, in memory, so that every read sees it (rule 4).
//!
//! For each partition a short list of sorted, immutable *runs*, the newest last: one run for each
//! epoch, merged with its neighbours as they come, so that a key changed many times is kept, and
//! later written, once. Publishing an epoch is a push; reading is a binary search in a few runs.
//!
//! **Invariant:** the newest run that holds a key has its value.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::storage::embedded::run::{Rows, Run};
use crate::storage::keys;
use crate::storage::scan::ScanLimit;
use crate::types::ids::PartitionId;

/// How many runs of one rank are merged into one of the next.
const RUNS_PER_RANK: usize = 4;

/// A run of the rows of one partition.
pub(super) type NewRun = (PartitionId, Arc<Run>);

/// All runs of all partitions.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    partitions: RwLock<HashMap<PartitionId, Vec<Arc<Run>>>>,
}

impl Overlay {
    /// Makes rows visible, all at one moment. Where several are of one partition, the later ones are newer.
    pub(super) fn publish(&self, runs: impl IntoIterator<Item = NewRun>) {
        let mut partitions = self.write();
        for (partition, run) in runs {
            partitions.entry(partition).or_default().push(run);
        }
    }

    /// Merges a partition's newest runs, as soon as there are [`RUNS_PER_RANK`] of one rank, into
    /// one of the next: so there are only about so many times the logarithm of the epochs. Only the
    /// committer publishes, merges and clears, so nothing changes between looking and replacing.
    pub(super) fn compact(&self, partition: PartitionId) {
        loop {
            let newest: Vec<Arc<Run>> = match self.read().get(&partition) {
                Some(runs) if runs.len() >= RUNS_PER_RANK => {
                    runs[runs.len() - RUNS_PER_RANK..].to_vec()
                }
                _ => return,
            };
            let rank = newest[0].rank;
            if newest.iter().any(|run| run.rank != rank) {
                return;
            }
            let merged = Arc::new(Run::merged(rank + 1, &newest));
            if let Some(runs) = self.write().get_mut(&partition) {
                runs.truncate(runs.len() - RUNS_PER_RANK);
                runs.push(merged);
            }
            // `newest` is dropped here, with nobody waiting for the lock.
        }
    }

    /// Every row that is not applied yet: one run for each partition.
    pub(super) fn all_rows(&self) -> Vec<Arc<Run>> {
        let mut runs_of: Vec<_> = (self.read().iter())
            .map(|(partition, runs)| (*partition, runs.clone()))
            .collect();
        runs_of.sort_by_key(|(partition, _)| *partition);
        let merged = |(_, runs): (_, Vec<Arc<Run>>)| match &runs[..] {
            [run] => Arc::clone(run),
            runs => Arc::new(Run::merged(0, runs)),
        };
        runs_of.into_iter().map(merged).collect()
    }

    /// Forgets all rows, once they are applied.
    pub(super) fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.write());
        drop(forgotten);
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<PartitionId, Vec<Arc<Run>>>> {
        self.partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands still while held: what is read from it and a view of the bulk rows opened meanwhile
    /// belong to one moment.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, HashMap<PartitionId, Vec<Arc<Run>>>> {
        self.partitions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value that the runs have for `key`: `None` when they do not hold it, `Some(None)` when they
/// hold its removal.
pub(super) fn find(
    partitions: &HashMap<PartitionId, Vec<Arc<Run>>>,
    key: &[u8],
) -> Option<Option<Vec<u8>>> {
    let runs = partitions.get(&keys::owner(key)?)?;
    runs.iter().rev().find_map(|run| {
        let rows = run.rows();
        rows.find(key).map(|index| rows.value(index))
    })
}

/// A row's key and new value; `None`: the row goes.
pub(super) type NewRow = (Vec<u8>, Option<Vec<u8>>);

/// The first rows in `start <= key < end` of all partitions, in order, each key once, as many as `limit`
/// says, and whether there are more.
pub(super) fn range(
    partitions: &HashMap<PartitionId, Vec<Arc<Run>>>,
    start: &[u8],
    end: &[u8],
    limit: ScanLimit,
) -> (Vec<NewRow>, bool) {
    let mut found: BTreeMap<&[u8], (&Rows, usize)> = BTreeMap::new();
    for run in partitions.values().flat_map(|runs| runs.iter().rev()) {
        let rows = run.rows();
        let from = rows.first_from(start);
        // More than so many of one run are never among the first so many of all.
        for index in (from..rows.len()).take(limit.rows.saturating_add(1)) {
            let key = rows.key(index);
            if key >= end {
                break;
            }
            found.entry(key).or_insert((rows, index));
        }
    }
    let count = found.len();
    let mut taken = Vec::new();
    let mut size_bytes = 0;
    for (key, (rows, index)) in found {
        if taken.len() == limit.rows || (!taken.is_empty() && size_bytes >= limit.bytes) {
            break;
        }
        let value = rows.value(index);
        size_bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        taken.push((key.to_vec(), value));
    }
    let has_more = taken.len() < count;
    (taken, has_more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::contract::{commit_of, states};
    use crate::types::ids::{Generation, LeaseId};
    use crate::types::lease::Lease;

    #[test]
    fn runs_stay_few_and_the_newest_value_wins() {
        let lease = Lease {
            id: LeaseId(1),
            partition: PartitionId(1),
            generation: Generation(1),
        };
        let overlay = Overlay::default();
        for epoch in 1..=100_u64 {
            let mut commit = commit_of(lease, epoch);
            commit.states = states([
                ("always".to_owned(), Some(epoch.to_string())),
                (format!("seventh {}", epoch % 7), Some(epoch.to_string())),
            ]);
            overlay.publish([(lease.partition, Arc::new(Run::of_commit(commit)))]);
            overlay.compact(lease.partition);
            let runs = overlay.read();
            assert!(
                runs[&lease.partition].len() <= 3 * 4,
                "3 of each rank at most"
            );
            let value_of = |key: &str| {
                let key = keys::state(lease.partition, "count", key.as_bytes());
                let value = find(&runs, &key).flatten().expect("it was written");
                String::from_utf8(value[1..].to_vec()).expect("the test writes text")
            };
            assert_eq!(value_of("always"), epoch.to_string());
            assert_eq!(
                value_of(&format!("seventh {}", epoch % 7)),
                epoch.to_string()
            );
        }
        let [run] = &overlay.all_rows()[..] else {
            panic!("one partition has one run");
        };
        let rows = run.rows();
        // Two states' keys, and a record for each epoch.
        assert_eq!(rows.len(), 1 + 7 + 100);
        assert!((1..rows.len()).all(|index| rows.key(index - 1) < rows.key(index)));
        overlay.clear();
        assert!(overlay.read().is_empty());
    }
}
