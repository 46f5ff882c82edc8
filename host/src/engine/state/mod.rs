//! The states that a job holds in memory: read from storage once, changed by its epochs, handed
//! to the commit. Which keys are in memory never changes a result.
//!
//! A key is looked up once for each batch that has it, which gives its *slot*; the rest of the batch
//! goes by slots.
//!
//! **Invariant:** only the job that holds the partition's lease changes its states, so what was
//! read once stays true until the job itself changes it.

mod aging;
mod expiry;

use std::collections::BTreeMap;

use hashbrown::HashTable;

use crate::engine::state::aging::StateAging;
use crate::types::batch::{StateColumn, Timestamp};
use crate::types::column::Column;
use crate::types::epoch::{StateChanges, StoredState};
use crate::types::key::key_hash;
use crate::types::small_bytes::SmallBytes;

/// About what a key costs beside bytes that do not lie in place: itself, its place in the table.
const KEY_OVERHEAD_BYTES: usize = size_of::<CachedKey>() + 8;

/// Stands for the slot of a key whose states are not in memory.
const MISSING: u32 = u32::MAX;

/// The states of one job.
#[derive(Debug)]
pub struct StateCache {
    /// Names of the declared states, in the order of the declarations.
    names: Vec<String>,
    /// The slot of each key, found by the key's hash.
    slots: HashTable<u32>,
    /// By slot.
    keys: Vec<CachedKey>,
    /// By slot, then by state.
    values: Vec<CachedValue>,
    /// For each state the slots whose row differs from the committed one, each once.
    changed: Vec<Vec<u32>>,
    /// Which states are absent because of their age.
    aging: StateAging,
    /// By slot, when the key was last touched; empty where no state has a time to live.
    touched: Vec<Timestamp>,
    /// For each state rows that go because of their age, of keys that are not in memory; rising.
    expired: Vec<Column>,
    size_bytes: usize,
    size_bytes_max: usize,
    /// Rises with each epoch.
    epoch_mark: u64,
    lookups: StateLookups,
}

/// How often the keys of batches were looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateLookups {
    /// Keys that were in memory.
    pub hits: u64,
    /// Keys that had to be read from storage.
    pub misses: u64,
}

#[derive(Debug)]
struct CachedKey {
    hash: u64,
    bytes: SmallBytes,
    /// The epoch that read the key last, as the cache counts them.
    epoch_mark: u64,
}

#[derive(Debug, Default)]
struct CachedValue {
    /// Empty where the key has none.
    bytes: SmallBytes,
    /// Whether its row differs from the committed one.
    is_changed: bool,
}

/// Where the keys of one batch are in the cache. Good until the cache shrinks.
#[derive(Debug, Default)]
pub struct BatchSlots(Vec<u32>);

impl BatchSlots {
    /// The keys whose states must be read from storage first, as indexes into the batch's.
    pub fn missing(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(|index| self.0[*index] == MISSING)
    }
}

impl StateCache {
    /// A cache for the declared states, of which those with a place in `ttls` have this time to live, in
    /// milliseconds. It keeps about so many bytes between epochs; what was read least recently goes first.
    pub fn new(
        names: Vec<String>,
        ttls: &[Option<Timestamp>],
        size_bytes_max: usize,
    ) -> StateCache {
        StateCache {
            changed: vec![Vec::new(); names.len()],
            expired: vec![Column::default(); names.len()],
            aging: StateAging::new(names.len(), ttls),
            touched: Vec::new(),
            names,
            slots: HashTable::new(),
            keys: Vec::new(),
            values: Vec::new(),
            size_bytes: 0,
            size_bytes_max,
            epoch_mark: 1,
            lookups: StateLookups::default(),
        }
    }

    /// Counts a batch: so many distinct keys, so many of them missing.
    pub fn count_lookups(&mut self, keys: usize, missing: usize) {
        self.lookups.hits += (keys - missing) as u64;
        self.lookups.misses += missing as u64;
    }

    /// What was counted so far.
    pub fn lookups(&self) -> StateLookups {
        self.lookups
    }

    /// Names of the declared states.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Looks the distinct keys of a batch up.
    pub fn find(&self, keys: &Column) -> BatchSlots {
        let slot = |key| self.slot(key_hash(key), key).unwrap_or(MISSING);
        BatchSlots(keys.iter().map(slot).collect())
    }

    /// Takes in what storage holds for a missing key, which is `index` in its batch: one item for
    /// each declared state.
    pub fn insert(
        &mut self,
        batch: &mut BatchSlots,
        index: usize,
        key: &[u8],
        stored: impl IntoIterator<Item = StoredState>,
    ) {
        debug_assert_eq!(batch.0[index], MISSING, "a key has one slot");
        batch.0[index] = self.insert_hashed(key_hash(key), key, stored);
    }

    /// The state columns of the batch. None of its keys may be missing any more, and where a state has a
    /// time to live they have been touched (see [`StateCache::touch`]). `first_read` is
    /// called for each key that the epoch reads for the first time: with the key, then with its
    /// value in each state.
    pub fn columns(
        &mut self,
        batch: &BatchSlots,
        mut first_read: impl FnMut(&[u8]),
    ) -> Vec<StateColumn> {
        let count = self.names.len();
        let mut columns = vec![StateColumn::default(); count];
        for (index, slot) in (0..).zip(&batch.0) {
            let slot = *slot as usize;
            let key = &mut self.keys[slot];
            let values = &self.values[slot * count..][..count];
            if key.epoch_mark != self.epoch_mark {
                key.epoch_mark = self.epoch_mark;
                first_read(&key.bytes);
                values.iter().for_each(|value| first_read(&value.bytes));
            }
            for (column, value) in columns.iter_mut().zip(values) {
                if !value.bytes.is_empty() {
                    column.keys.push(index);
                    column.values.push(&value.bytes);
                }
            }
        }
        columns
    }

    /// Applies the state columns of a call's effects, which have been checked.
    pub fn apply(&mut self, batch: &BatchSlots, effects: &[StateColumn]) {
        for (state, column) in effects.iter().enumerate() {
            for (key_index, new) in column.keys.iter().zip(column.values.iter()) {
                let slot = batch.0[*key_index as usize];
                let value = &mut self.values[slot as usize * self.names.len() + state];
                if *value.bytes == *new {
                    continue;
                }
                self.size_bytes -= value.bytes.allocated_bytes();
                value.bytes.set(new);
                self.size_bytes += value.bytes.allocated_bytes();
                self.mark_changed(slot, state);
            }
        }
    }

    /// Every changed row, for the commit. The values count as committed from here on: a job
    /// whose commit is refused ends, and its states with it.
    pub fn take_changes(&mut self) -> Vec<StateChanges> {
        self.epoch_mark += 1;
        let mut changes = Vec::with_capacity(self.names.len());
        for state in 0..self.names.len() {
            let slots = std::mem::take(&mut self.changed[state]);
            let expired = std::mem::take(&mut self.expired[state]);
            if !slots.is_empty() || !expired.is_empty() {
                changes.push(self.take_changes_of(state, &slots, &expired));
            }
        }
        changes.sort_by(|left, right| left.state.cmp(&right.state));
        changes
    }

    fn take_changes_of(&mut self, state: usize, slots: &[u32], expired: &Column) -> StateChanges {
        let count = self.names.len();
        let place = |slot: u32| slot as usize * count + state;
        let mut size_bytes = [expired.bytes.len(), 0];
        for slot in slots {
            size_bytes[0] += self.keys[*slot as usize].bytes.len();
            size_bytes[1] += self.values[place(*slot)].bytes.len();
        }
        let [mut keys, mut values] =
            size_bytes.map(|size| Column::with_capacity(slots.len() + expired.len(), size));
        let mut touched = Vec::new();
        let mut expired = expired.iter().peekable();
        for slot in self.in_order_of_keys(slots) {
            let key = &self.keys[slot as usize].bytes;
            while let Some(before) = expired.next_if(|expired| *expired < &**key) {
                keys.push(before);
                values.push(b"");
            }
            // What became of the key since counts.
            let _ = expired.next_if(|expired| *expired == &**key);
            keys.push(key);
            if self.aging.ages_state(state) {
                touched.resize(values.len(), 0);
                touched.push(self.touched_to_store(slot, state));
            }
            let value = &mut self.values[place(slot)];
            value.is_changed = false;
            values.push(&value.bytes);
        }
        for behind in expired {
            keys.push(behind);
            values.push(b"");
        }
        if !touched.is_empty() {
            touched.resize(values.len(), 0);
        }
        StateChanges {
            state: self.names[state].clone(),
            keys,
            values,
            touched,
        }
    }

    /// The slots, sorted by their keys. Keys of one computation tend to begin alike, so the first
    /// bytes behind that stand beside each slot and decide most comparisons.
    fn in_order_of_keys(&self, slots: &[u32]) -> impl Iterator<Item = u32> + use<> {
        let key = |slot: u32| &self.keys[slot as usize].bytes[..];
        let first = slots.first().map_or(&[][..], |slot| key(*slot));
        let common = (slots.iter()).fold(first.len(), |common, slot| {
            let same = first[..common].iter().zip(key(*slot));
            same.take_while(|(left, right)| left == right).count()
        });
        let mut order: Vec<(u64, u32)> = (slots.iter())
            .map(|slot| (beginning(&key(*slot)[common..]), *slot))
            .collect();
        order.sort_unstable_by(|left, right| {
            let rest = || key(left.1)[common..].cmp(&key(right.1)[common..]);
            left.0.cmp(&right.0).then_with(rest)
        });
        order.into_iter().map(|(_, slot)| slot)
    }

    /// Frees memory when the cache has passed its bound: keeps the keys that the latest epochs have
    /// read, as many as fit in half of it, and those of the last `undecided` epochs whatever their
    /// size: storage does not have their values yet. Only between epochs.
    pub fn shrink(&mut self, undecided: u64) {
        let is_clean =
            self.changed.iter().all(Vec::is_empty) && self.expired.iter().all(Column::is_empty);
        assert!(is_clean, "changed states are never dropped");
        if self.size_bytes <= self.size_bytes_max {
            return;
        }
        let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
        for (slot, key) in self.keys.iter().enumerate() {
            *sizes.entry(key.epoch_mark).or_default() += self.slot_bytes(slot);
        }
        let (mut oldest, mut kept_bytes) = (self.epoch_mark + 1, 0);
        for (epoch_mark, size_bytes) in sizes.into_iter().rev() {
            kept_bytes += size_bytes;
            if kept_bytes > self.size_bytes_max / 2 {
                break;
            }
            oldest = epoch_mark;
        }
        let oldest_undecided = match undecided {
            0 => oldest,
            count => self.epoch_mark - count,
        };
        self.keep_read_since(oldest.min(oldest_undecided));
    }

    fn keep_read_since(&mut self, oldest: u64) {
        let count = self.names.len();
        let keys = std::mem::take(&mut self.keys);
        let mut values = std::mem::take(&mut self.values).into_iter();
        let touched = std::mem::take(&mut self.touched);
        self.slots.clear();
        self.size_bytes = 0;
        for (slot, key) in keys.into_iter().enumerate() {
            let of_key = values.by_ref().take(count);
            if key.epoch_mark < oldest {
                of_key.for_each(drop);
                continue;
            }
            self.values.extend(of_key);
            self.touched.extend(touched.get(slot));
            self.push_key(key);
        }
    }

    // ------------------------------------------------------------------------------- slots

    fn slot(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let is_key = |slot: &u32| {
            let found = &self.keys[*slot as usize];
            found.hash == hash && *found.bytes == *key
        };
        self.slots.find(spread(hash), is_key).copied()
    }

    fn insert_hashed(
        &mut self,
        hash: u64,
        key: &[u8],
        stored: impl IntoIterator<Item = StoredState>,
    ) -> u32 {
        let mut touched = 0;
        let mut changed = Vec::new();
        for (state, stored) in stored.into_iter().enumerate() {
            let is_expired = self.aging.is_expired(state, stored.touched);
            if self.aging.ages_state(state) {
                touched = touched.max(stored.touched);
            }
            // A row that only holds a time is for the next touch to keep or to remove.
            if is_expired || stored.value.is_empty() && stored.touched != 0 {
                changed.push(state);
            }
            let value = if is_expired { &[] } else { &stored.value[..] };
            self.values.push(CachedValue {
                bytes: SmallBytes::new(value),
                is_changed: false,
            });
        }
        if self.aging.is_any() {
            self.touched.push(touched);
        }
        let slot = self.push_key(CachedKey {
            hash,
            bytes: SmallBytes::new(key),
            epoch_mark: 0,
        });
        for state in changed {
            self.mark_changed(slot, state);
        }
        slot
    }

    /// The key's row of the state goes with this epoch.
    fn mark_changed(&mut self, slot: u32, state: usize) {
        let value = &mut self.values[slot as usize * self.names.len() + state];
        if !value.is_changed {
            value.is_changed = true;
            self.changed[state].push(slot);
        }
    }

    /// Gives a key, whose values are the last ones, the next slot.
    fn push_key(&mut self, key: CachedKey) -> u32 {
        let slot = u32::try_from(self.keys.len())
            .ok()
            .filter(|slot| *slot != MISSING)
            .expect("2^32 keys do not fit in memory");
        let hash = spread(key.hash);
        self.keys.push(key);
        debug_assert_eq!(self.values.len(), self.keys.len() * self.names.len());
        self.size_bytes += self.slot_bytes(slot as usize);
        let keys = &self.keys;
        let hash_of = |slot: &u32| spread(keys[*slot as usize].hash);
        self.slots.insert_unique(hash, slot, hash_of);
        slot
    }

    fn slot_bytes(&self, slot: usize) -> usize {
        let count = self.names.len();
        let values = self.values[slot * count..][..count].iter();
        let values = values.map(|value| size_of::<CachedValue>() + value.bytes.allocated_bytes());
        let touched = size_of_val(self.touched.get(slot..=slot).unwrap_or_default());
        KEY_OVERHEAD_BYTES
            + touched
            + self.keys[slot].bytes.allocated_bytes()
            + values.sum::<usize>()
    }
}

/// The hash as the table wants it. All keys of a partition agree in the leading bits of their
/// hashes, and those are what the table tells neighbours apart by.
fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

/// The first eight bytes as a number that sorts as they do; what is missing counts as zeros.
fn beginning(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let count = bytes.len().min(8);
    first[..count].copy_from_slice(&bytes[..count]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Column {
        keys.iter().map(|key| key.as_bytes()).collect()
    }

    fn stored(value: &str) -> StoredState {
        StoredState {
            value: value.as_bytes().to_vec(),
            touched: 0,
        }
    }

    fn effects(rows: &[(u32, &str)]) -> Vec<StateColumn> {
        vec![StateColumn {
            keys: rows.iter().map(|(key, _)| *key).collect(),
            values: rows.iter().map(|(_, value)| value.as_bytes()).collect(),
        }]
    }

    /// A cache of one state that holds "a" with a value and "b" without one.
    fn loaded(size_bytes_max: usize) -> StateCache {
        let mut cache = StateCache::new(vec!["count".to_owned()], &[], size_bytes_max);
        load(&mut cache, &[("a", "1"), ("b", "")]);
        cache
    }

    fn load(cache: &mut StateCache, rows: &[(&str, &str)]) {
        for (key, value) in rows {
            let mut batch = cache.find(&keys(&[key]));
            cache.insert(&mut batch, 0, key.as_bytes(), [stored(value)]);
        }
    }

    fn missing(cache: &StateCache, of: &[&str]) -> Vec<usize> {
        cache.find(&keys(of)).missing().collect()
    }

    fn read(cache: &mut StateCache, of: &[&str]) -> (Vec<u32>, Vec<String>) {
        let batch = cache.find(&keys(of));
        let columns = cache.columns(&batch, |_| {});
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        (
            columns[0].keys.clone(),
            columns[0].values.iter().map(text).collect(),
        )
    }

    fn change(cache: &mut StateCache, of: &[&str], rows: &[(u32, &str)]) {
        let batch = cache.find(&keys(of));
        cache.apply(&batch, &effects(rows));
    }

    fn changes(cache: &mut StateCache) -> Vec<(String, String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut rows = Vec::new();
        for changes in cache.take_changes() {
            for (key, value) in changes.keys.iter().zip(changes.values.iter()) {
                rows.push((changes.state.clone(), text(key), text(value)));
            }
        }
        rows
    }

    fn row(state: &str, key: &str, value: &str) -> (String, String, String) {
        (state.to_owned(), key.to_owned(), value.to_owned())
    }

    #[test]
    fn only_keys_not_yet_loaded_are_missing() {
        assert_eq!(missing(&loaded(1000), &["b", "c", "a"]), [1]);
    }

    #[test]
    fn a_key_without_value_is_not_listed() {
        let (keys, values) = read(&mut loaded(1000), &["b", "a"]);
        assert_eq!((keys, values), (vec![1], vec!["1".to_owned()]));
    }

    #[test]
    fn keys_with_one_hash_are_told_apart() {
        let mut cache = StateCache::new(vec!["count".to_owned()], &[], 1000);
        let same = 7;
        for (key, value) in [("one", "1"), ("two", "2")] {
            cache.insert_hashed(same, key.as_bytes(), [stored(value)]);
        }
        assert_eq!(cache.slot(same, b"one"), Some(0));
        assert_eq!(cache.slot(same, b"two"), Some(1));
        assert_eq!(cache.slot(same, b"three"), None);
    }

    #[test]
    fn a_change_is_seen_by_the_next_batch_and_committed_once() {
        let mut cache = loaded(1000);
        change(&mut cache, &["b"], &[(0, "7")]);
        change(&mut cache, &["a", "b"], &[(1, "8")]);
        assert_eq!(read(&mut cache, &["b"]).1, ["8"]);
        assert_eq!(changes(&mut cache), [row("count", "b", "8")]);
        assert!(changes(&mut cache).is_empty());
        change(&mut cache, &["b"], &[(0, "9")]);
        assert_eq!(changes(&mut cache), [row("count", "b", "9")]);
    }

    #[test]
    fn changes_come_by_state_and_key_whatever_was_changed_first() {
        let mut cache = StateCache::new(vec!["sum".to_owned(), "count".to_owned()], &[], 1000);
        // Equal beginnings, one key inside another, and a byte that padding could be taken for.
        let order = [
            "user-",
            "user-1",
            "user-1\0",
            "user-12345678",
            "user-12345679",
        ];
        let mut batch = cache.find(&keys(&order));
        for (index, key) in order.iter().enumerate() {
            cache.insert(&mut batch, index, key.as_bytes(), [stored(""), stored("")]);
        }
        let mut columns = vec![StateColumn::default(); 2];
        for index in [4, 2, 0, 3, 1] {
            columns[0].keys.push(index);
            columns[0].values.push(b"s");
        }
        columns[1].keys.push(3);
        columns[1].values.push(b"c");
        cache.apply(&batch, &columns);
        let mut expected = vec![row("count", order[3], "c")];
        expected.extend(order.iter().map(|key| row("sum", key, "s")));
        assert_eq!(changes(&mut cache), expected);
    }

    #[test]
    fn an_epoch_reads_a_key_for_the_first_time_once() {
        let mut cache = loaded(1000);
        let mut seen = Vec::new();
        let mut read = |cache: &mut StateCache, of: &[&str]| {
            let batch = cache.find(&keys(of));
            cache.columns(&batch, |bytes| seen.push(bytes.to_vec()));
        };
        read(&mut cache, &["a"]);
        read(&mut cache, &["a", "b"]);
        cache.take_changes();
        read(&mut cache, &["a"]);
        assert_eq!(seen, [&b"a"[..], b"1", b"b", b"", b"a", b"1"]);
    }

    #[test]
    fn an_empty_value_deletes_and_an_equal_one_changes_nothing() {
        let mut cache = loaded(1000);
        change(&mut cache, &["a", "b"], &[(0, ""), (1, "")]);
        assert_eq!(changes(&mut cache), [row("count", "a", "")]);
    }

    #[test]
    fn past_its_bound_the_cache_keeps_what_the_latest_epochs_read() {
        let mut cache = loaded(1000);
        load(&mut cache, &[("c", "3"), ("d", "4")]);
        change(&mut cache, &["c"], &[(0, &"3".repeat(90))]);
        for of in ["a", "b", "c", "d"] {
            read(&mut cache, &[of]);
            cache.take_changes();
        }
        let all_bytes = cache.size_bytes;
        cache.size_bytes_max = all_bytes;
        cache.shrink(0);
        assert!(missing(&cache, &["a", "b", "c", "d"]).is_empty());
        cache.size_bytes_max = all_bytes - 1;
        load(&mut cache, &[("e", "5")]);
        cache.shrink(0);
        assert!(cache.size_bytes <= cache.size_bytes_max / 2);
        // Loaded and not read by an epoch since: the first to go.
        assert_eq!(missing(&cache, &["a", "b", "c", "d", "e"]), [0, 1, 2, 4]);
        assert_eq!(read(&mut cache, &["d"]), (vec![0], vec!["4".to_owned()]));
        cache.size_bytes_max = 1;
        cache.shrink(0);
        assert_eq!((missing(&cache, &["d"]).len(), cache.size_bytes), (1, 0));
    }
    #[test]
    fn what_an_undecided_epoch_has_read_or_changed_stays_whatever_its_size() {
        let mut cache = loaded(1);
        read(&mut cache, &["b"]);
        change(&mut cache, &["b"], &[(0, "7")]);
        cache.take_changes();
        read(&mut cache, &["a"]);
        cache.take_changes();
        cache.shrink(2);
        assert!(missing(&cache, &["a", "b"]).is_empty());
        cache.shrink(1);
        assert_eq!(missing(&cache, &["a", "b"]), [1]);
    }
}
