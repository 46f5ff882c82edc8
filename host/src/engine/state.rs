//! The states that a job holds in memory: read from storage once, changed by its epochs, handed
//! to the commit. Which keys are in memory never changes a result.
//!
//! **Invariant:** only the job that holds the partition's lease changes its states, so what was
//! read once stays true until the job itself changes it.

use std::collections::HashMap;

use crate::types::batch::StateColumn;
use crate::types::column::Column;
use crate::types::epoch::StateChange;
use crate::types::key::BuildKeyHasher;

/// Clean entries are dropped when a job's states pass this size.
pub const STATE_CACHE_BYTES_MAX: usize = 64 << 20;

/// Why an entry is there.
const LOADED: &str = "the batch's keys were loaded before the call";

/// About what an entry costs beside its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// The states of one job.
#[derive(Debug)]
pub struct StateCache {
    /// Names of the declared states, in the order of the declarations.
    names: Vec<String>,
    entries: HashMap<Vec<u8>, KeyStates, BuildKeyHasher>,
    size_bytes: usize,
    size_bytes_max: usize,
    /// Keys with a changed value, each once, in the order of their first change.
    changed: Vec<Vec<u8>>,
    /// Rises with each epoch; entries carry the last one that read them.
    epoch_mark: u64,
}

/// One key's value in each declared state; empty where it has none.
#[derive(Debug, Default)]
struct KeyStates {
    values: Vec<Vec<u8>>,
    /// Whether the value differs from the committed one, for each state.
    changed: Vec<bool>,
    /// The epoch that read the key last, as the cache counts them.
    epoch_mark: u64,
}

impl StateCache {
    /// A cache for the declared states.
    pub fn new(names: Vec<String>, size_bytes_max: usize) -> StateCache {
        StateCache {
            names,
            entries: HashMap::default(),
            size_bytes: 0,
            size_bytes_max,
            changed: Vec::new(),
            epoch_mark: 1,
        }
    }

    /// Names of the declared states.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Those of `keys` whose states must be read from storage first, as indexes.
    pub fn missing(&self, keys: &Column) -> Vec<usize> {
        (0..keys.len())
            .filter(|index| !self.entries.contains_key(keys.get(*index)))
            .collect()
    }

    /// Takes in what storage holds for a key: one value for each declared state.
    pub fn insert(&mut self, key: &[u8], values: Vec<Option<Vec<u8>>>) {
        debug_assert_eq!(values.len(), self.names.len());
        let values: Vec<Vec<u8>> = values.into_iter().map(Option::unwrap_or_default).collect();
        self.size_bytes += key.len() + ENTRY_OVERHEAD_BYTES;
        self.size_bytes += values.iter().map(Vec::len).sum::<usize>();
        let changed = vec![false; values.len()];
        let entry = KeyStates {
            values,
            changed,
            epoch_mark: 0,
        };
        self.entries.insert(key.to_vec(), entry);
    }

    /// The state columns of a batch with these keys. Every key must have been inserted.
    /// `first_read` sees each key's values the first time that the epoch reads them.
    pub fn columns(
        &mut self,
        keys: &Column,
        mut first_read: impl FnMut(&[u8], &[Vec<u8>]),
    ) -> Vec<StateColumn> {
        let mut columns = vec![StateColumn::default(); self.names.len()];
        for (index, key) in (0..).zip(keys.iter()) {
            let entry = self.entries.get_mut(key).expect(LOADED);
            if entry.epoch_mark != self.epoch_mark {
                entry.epoch_mark = self.epoch_mark;
                first_read(key, &entry.values);
            }
            for (column, value) in columns.iter_mut().zip(&entry.values) {
                if !value.is_empty() {
                    column.keys.push(index);
                    column.values.push(value);
                }
            }
        }
        columns
    }

    /// Applies the state columns of a call's effects, which have been checked.
    pub fn apply(&mut self, keys: &Column, effects: &[StateColumn]) {
        for (state, column) in effects.iter().enumerate() {
            for (key_index, value) in column.keys.iter().zip(column.values.iter()) {
                let key = keys.get(*key_index as usize);
                let entry = self.entries.get_mut(key).expect(LOADED);
                if entry.values[state] == value {
                    continue;
                }
                if !entry.changed.contains(&true) {
                    self.changed.push(key.to_vec());
                }
                entry.changed[state] = true;
                self.size_bytes += value.len();
                self.size_bytes -= entry.values[state].len();
                entry.values[state].clear();
                entry.values[state].extend_from_slice(value);
            }
        }
    }

    /// Every changed value, for the commit. The values count as committed from here on: a job
    /// whose commit is refused ends, and its states with it.
    pub fn take_changes(&mut self) -> Vec<StateChange> {
        self.epoch_mark += 1;
        let mut changes = Vec::with_capacity(self.changed.len());
        for key in self.changed.drain(..) {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            for (state, changed) in entry.changed.iter_mut().enumerate() {
                if std::mem::take(changed) {
                    let value = &entry.values[state];
                    changes.push(StateChange {
                        state: self.names[state].clone(),
                        key: key.clone(),
                        value: (!value.is_empty()).then(|| value.clone()),
                    });
                }
            }
        }
        changes
    }

    /// Frees memory when the cache has passed its bound. Only between epochs, when nothing in it
    /// is uncommitted.
    pub fn shrink(&mut self) {
        assert!(self.changed.is_empty(), "changed states are never dropped");
        if self.size_bytes > self.size_bytes_max {
            self.entries.clear();
            self.size_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Column {
        keys.iter().map(|key| key.as_bytes()).collect()
    }

    fn effects(rows: &[(u32, &str)]) -> Vec<StateColumn> {
        vec![StateColumn {
            keys: rows.iter().map(|(key, _)| *key).collect(),
            values: rows.iter().map(|(_, value)| value.as_bytes()).collect(),
        }]
    }

    fn loaded(size_bytes_max: usize) -> StateCache {
        let mut cache = StateCache::new(vec!["count".to_owned()], size_bytes_max);
        cache.insert(b"a", vec![Some(b"1".to_vec())]);
        cache.insert(b"b", vec![None]);
        cache
    }

    #[test]
    fn only_keys_not_yet_loaded_are_missing() {
        assert_eq!(loaded(1000).missing(&keys(&["b", "c", "a"])), [1]);
    }

    #[test]
    fn a_key_without_value_is_not_listed() {
        let columns = loaded(1000).columns(&keys(&["b", "a"]), |_, _| {});
        assert_eq!(columns[0].keys, [1]);
        assert_eq!(columns[0].values.get(0), b"1");
    }

    #[test]
    fn a_change_is_seen_by_the_next_batch_and_committed_once() {
        let mut cache = loaded(1000);
        cache.apply(&keys(&["b"]), &effects(&[(0, "7")]));
        cache.apply(&keys(&["a", "b"]), &effects(&[(1, "8")]));
        assert_eq!(
            cache.columns(&keys(&["b"]), |_, _| {})[0].values.get(0),
            b"8"
        );
        let changes = cache.take_changes();
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].value.as_deref(), Some(&b"8"[..]));
        assert!(cache.take_changes().is_empty());
    }

    #[test]
    fn an_epoch_reads_a_key_for_the_first_time_once() {
        let mut cache = loaded(1000);
        let mut read = Vec::new();
        cache.columns(&keys(&["a"]), |key, _| read.push(key.to_vec()));
        cache.columns(&keys(&["a", "b"]), |key, _| read.push(key.to_vec()));
        cache.take_changes();
        cache.columns(&keys(&["a"]), |key, _| read.push(key.to_vec()));
        assert_eq!(read, [b"a", b"b", b"a"]);
    }

    #[test]
    fn an_empty_value_deletes_and_an_equal_one_changes_nothing() {
        let mut cache = loaded(1000);
        cache.apply(&keys(&["a", "b"]), &effects(&[(0, ""), (1, "")]));
        let changes = cache.take_changes();
        assert_eq!(changes.len(), 1);
        assert_eq!(
            (changes[0].key.as_slice(), &changes[0].value),
            (&b"a"[..], &None)
        );
    }

    #[test]
    fn past_its_bound_the_cache_is_emptied_between_epochs() {
        let mut cache = loaded(1);
        cache.shrink();
        assert_eq!(cache.missing(&keys(&["a", "b"])).len(), 2);
    }
}
