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
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use crate::storage::embedded::bulk::RowBytes;
use crate::storage::{codec, keys};
use crate::types::epoch::EpochCommit;
use crate::types::ids::PartitionId;

/// A row's key and new value; `None`: the row goes.
pub(super) type RowChange = (RowBytes, Option<RowBytes>);

/// The rows of one epoch, or of several merged, sorted by key, each key once.
#[derive(Debug)]
pub(super) struct Run {
    rows: OnceLock<Vec<RowChange>>,
    /// What the rows are made from. They are made by whoever needs them first: usually the thread
    /// that submitted the epoch, while the committer waits for the disk.
    source: Mutex<Option<EpochCommit>>,
}

impl Run {
    pub(super) fn of_commit(commit: EpochCommit) -> Run {
        Run {
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

/// The rows of both, `newer` winning.
fn merge(older: &[RowChange], newer: &[RowChange]) -> Vec<RowChange> {
    let mut merged = Vec::with_capacity(older.len() + newer.len());
    let (mut left, mut right) = (older.iter().peekable(), newer.iter().peekable());
    while let (Some(old), Some(new)) = (left.peek(), right.peek()) {
        match old.0.cmp(&new.0) {
            std::cmp::Ordering::Less => merged.extend(left.next().cloned()),
            std::cmp::Ordering::Greater => merged.extend(right.next().cloned()),
            std::cmp::Ordering::Equal => {
                left.next();
                merged.extend(right.next().cloned());
            }
        }
    }
    merged.extend(left.cloned());
    merged.extend(right.cloned());
    merged
}

/// All runs of all partitions.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    partitions: RwLock<HashMap<PartitionId, Vec<Arc<Run>>>>,
}

impl Overlay {
    /// Makes an epoch's rows visible.
    pub(super) fn publish(&self, partition: PartitionId, run: Arc<Run>) {
        let mut partitions = self
            .partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        partitions.entry(partition).or_default().push(run);
    }

    /// Merges a partition's newest runs while the one before is not much larger, so that there are
    /// never more runs than the logarithm of their rows. Only the committer publishes, merges and
    /// clears, so nothing changes between looking and replacing.
    pub(super) fn compact(&self, partition: PartitionId) {
        loop {
            let (older, newer) = {
                let partitions = self.read();
                match partitions.get(&partition).map(Vec::as_slice) {
                    Some([.., older, newer]) if older.rows().len() <= 2 * newer.rows().len() => {
                        (Arc::clone(older), Arc::clone(newer))
                    }
                    _ => return,
                }
            };
            let merged = Run {
                rows: OnceLock::from(merge(older.rows(), newer.rows())),
                source: Mutex::new(None),
            };
            let mut partitions = self
                .partitions
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(runs) = partitions.get_mut(&partition) {
                runs.truncate(runs.len() - 2);
                runs.push(Arc::new(merged));
            }
        }
    }

    /// Every row that is not applied yet, each key once.
    pub(super) fn all_rows(&self) -> Vec<RowChange> {
        let mut runs_of: Vec<_> = (self.read().iter())
            .map(|(partition, runs)| (*partition, runs.clone()))
            .collect();
        runs_of.sort_by_key(|(partition, _)| *partition);
        let mut all = Vec::new();
        for (_, runs) in runs_of {
            let mut newer_first = runs.iter().rev();
            let Some(newest) = newer_first.next() else {
                continue;
            };
            let Some(next) = newer_first.next() else {
                all.extend_from_slice(newest.rows());
                continue;
            };
            let mut merged = merge(next.rows(), newest.rows());
            for older in newer_first {
                merged = merge(older.rows(), &merged);
            }
            all.append(&mut merged);
        }
        all
    }

    /// Forgets all rows, once they are applied.
    pub(super) fn clear(&self) {
        self.partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
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
