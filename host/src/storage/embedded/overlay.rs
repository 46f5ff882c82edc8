//! What is decided and not yet applied, in memory, so that every read sees it (rule 4).
//!
//! For each partition a short list of sorted, immutable *runs*, the newest last: one run for each
//! epoch, merged with its neighbours as they come, so that a key changed many times is kept, and
//! later written, once. Publishing an epoch is a push; reading is a binary search in a few runs.
//!
//! **Invariant:** a run's rows never change once they are there; the newest run that holds a key
//! has its value.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::storage::embedded::bulk::RowBytes;
use crate::storage::{codec, keys};
use crate::types::epoch::EpochCommit;
use crate::types::ids::PartitionId;

/// How many runs of one rank are merged into one of the next.
const RUNS_PER_RANK: usize = 4;

/// A row's key and new value; `None`: the row goes.
pub(super) type RowChange = (RowBytes, Option<RowBytes>);

/// The rows of one epoch, or of several merged, sorted by key, each key once.
#[derive(Debug)]
pub(super) struct Run {
    /// 0 for an epoch's own; one more than those that it was merged from.
    rank: u32,
    rows: OnceLock<Vec<RowChange>>,
    /// What the rows are made from. They are made by whoever needs them first: usually the thread
    /// that submitted the epoch, while the committer waits for the disk.
    source: Mutex<Option<EpochCommit>>,
}

impl Run {
    pub(super) fn of_commit(commit: EpochCommit) -> Run {
        Run {
            rank: 0,
            rows: OnceLock::new(),
            source: Mutex::new(Some(commit)),
        }
    }

    pub(super) fn rows(&self) -> &[RowChange] {
        self.rows.get_or_init(|| {
            let source = self
                .source
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            source.map_or_else(Vec::new, |commit| sorted_rows(&commit))
        })
    }

    fn get(&self, key: &[u8]) -> Option<&Option<RowBytes>> {
        let rows = self.rows();
        let index = rows
            .binary_search_by(|(found, _)| found.as_ref().cmp(key))
            .ok()?;
        Some(&rows[index].1)
    }
}

fn sorted_rows(commit: &EpochCommit) -> Vec<RowChange> {
    let count = commit.states.len() + commit.chunks.len() + commit.trims.len();
    let mut rows = Vec::with_capacity(count + commit.frontiers.len() + 3);
    codec::for_each_row(commit, |key, value| {
        rows.push((RowBytes::from(key), value.map(RowBytes::from)));
    });
    // Stable: of two changes of one key the later one counts.
    rows.sort_by(|left, right| left.0.cmp(&right.0));
    rows.reverse();
    rows.dedup_by(|later, earlier| later.0 == earlier.0);
    rows.reverse();
    rows
}

/// The rows of all, the newest winning. `runs` are in the order of their epochs.
fn merge(runs: &[Arc<Run>]) -> Vec<RowChange> {
    if let [run] = runs {
        return run.rows().to_vec();
    }
    // Newest first, and the sort is stable and made for runs: of equal keys the newest leads.
    let mut rows: Vec<&RowChange> = runs.iter().rev().flat_map(|run| run.rows()).collect();
    rows.sort_by(|left, right| left.0.cmp(&right.0));
    rows.dedup_by(|later, leader| later.0 == leader.0);
    rows.into_iter().cloned().collect()
}

/// All runs of all partitions.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    partitions: RwLock<HashMap<PartitionId, Vec<Arc<Run>>>>,
}

impl Overlay {
    /// Makes an epoch's rows visible.
    pub(super) fn publish(&self, partition: PartitionId, run: Arc<Run>) {
        self.write().entry(partition).or_default().push(run);
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
            let merged = Arc::new(Run {
                rank: rank + 1,
                rows: OnceLock::from(merge(&newest)),
                source: Mutex::new(None),
            });
            if let Some(runs) = self.write().get_mut(&partition) {
                runs.truncate(runs.len() - RUNS_PER_RANK);
                runs.push(merged);
            }
            // `newest` is dropped here, with nobody waiting for the lock.
        }
    }

    /// Every row that is not applied yet, each key once.
    pub(super) fn all_rows(&self) -> Vec<RowChange> {
        let mut runs_of: Vec<_> = (self.read().iter())
            .map(|(partition, runs)| (*partition, runs.clone()))
            .collect();
        runs_of.sort_by_key(|(partition, _)| *partition);
        runs_of.iter().flat_map(|(_, runs)| merge(runs)).collect()
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
) -> Option<Option<RowBytes>> {
    let runs = partitions.get(&keys::owner(key)?)?;
    runs.iter().rev().find_map(|run| run.get(key)).cloned()
}

/// The first `limit` rows in `start <= key < end` of all partitions, in order, each key once, and
/// whether there are more.
pub(super) fn range(
    partitions: &HashMap<PartitionId, Vec<Arc<Run>>>,
    start: &[u8],
    end: &[u8],
    limit: usize,
) -> (Vec<RowChange>, bool) {
    let mut found: std::collections::BTreeMap<RowBytes, Option<RowBytes>> =
        std::collections::BTreeMap::new();
    for runs in partitions.values() {
        for run in runs.iter().rev() {
            let rows = run.rows();
            let from = rows.partition_point(|(key, _)| key.as_ref() < start);
            // More than `limit` of one run are never among the first `limit` of all.
            for (key, value) in rows[from..]
                .iter()
                .take_while(|row| row.0.as_ref() < end)
                .take(limit + 1)
            {
                if !found.contains_key(key) {
                    found.insert(key.clone(), value.clone());
                }
            }
        }
    }
    let has_more = found.len() > limit;
    (found.into_iter().take(limit).collect(), has_more)
}

/// Where a scan goes on behind `key`.
pub(super) fn behind(key: &RowBytes) -> Bound<Vec<u8>> {
    Bound::Excluded(key.to_vec())
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
            overlay.publish(lease.partition, Arc::new(Run::of_commit(commit)));
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
        let rows = overlay.all_rows();
        // Two states' keys, and a record for each epoch.
        assert_eq!(rows.len(), 1 + 7 + 100);
        assert!(rows.is_sorted_by(|left, right| left.0 < right.0));
        overlay.clear();
        assert!(overlay.read().is_empty());
    }
}
