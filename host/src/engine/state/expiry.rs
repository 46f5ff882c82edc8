//! How states with a time to live grow young by items and go by age.
//!
//! A key without a value keeps the time of its last touch for as long as the watermark is behind that
//! time: a value that it gets meanwhile counts from there, whether or not the two items came in one batch.

use super::aging::StateAging;
use super::{BatchSlots, StateCache};
use crate::types::batch::{Batch, Timestamp};
use crate::types::epoch::{EpochTime, StateAges, StoredState};
use crate::types::key::key_hash;

impl StateCache {
    /// Goes on from where the partition stood when its last job ended.
    pub fn resume(&mut self, time: &EpochTime) {
        self.aging.resume(&self.names, time);
    }

    /// The partition's latest watermark is this one from here on.
    pub fn advance(&mut self, latest_watermark: Timestamp) {
        self.aging.advance(latest_watermark);
    }

    /// What a successor goes on from.
    pub fn ages(&self) -> StateAges {
        self.aging.ages(&self.names)
    }

    /// What is too old of these keys is absent from here on. To be called before a batch of theirs; none of them may be
    /// missing any more.
    pub fn expire(&mut self, slots: &BatchSlots) {
        if !self.aging.is_any() {
            return;
        }
        for slot in &slots.0 {
            let before = self.touched[*slot as usize];
            let mut next = self.aging.next_from(0);
            while let Some(state) = next {
                if self.aging.is_expired(state, before) {
                    self.clear(*slot, state);
                }
                next = self.aging.next_from(state + 1);
            }
        }
    }

    /// Items of the batch were processed: what their keys have is as young as they are. Items that were `passed` over, by
    /// their numbers, rising, touch nothing.
    pub fn touch(&mut self, slots: &BatchSlots, batch: &Batch, passed: &[u32]) {
        if !self.aging.is_any() {
            return;
        }
        for (slot, touched) in slots.0.iter().zip(self.times_of_keys(batch, passed)) {
            if let Some(touched) = touched {
                self.touch_slot(*slot, touched);
            }
        }
    }

    /// When each key of the batch is touched by its items, if any does.
    fn times_of_keys(&self, batch: &Batch, passed: &[u32]) -> Vec<Option<Timestamp>> {
        let at_least = self.aging.latest_watermark();
        let timers = batch.timers.keys.iter().zip(&batch.timers.event_times);
        let messages = batch.messages.keys.iter().zip(&batch.messages.event_times);
        let mut times = vec![None; batch.keys.len()];
        for (item, (key, event_time)) in (0..).zip(timers.chain(messages)) {
            if passed.binary_search(&item).is_err() {
                let time = &mut times[*key as usize];
                *time = (*time).max(Some(at_least.max(*event_time)));
            }
        }
        times
    }

    fn touch_slot(&mut self, slot: u32, now: Timestamp) {
        let before = self.touched[slot as usize];
        // What was touched at the watermark or behind it is not too old either.
        if now <= before {
            return;
        }
        self.touched[slot as usize] = now;
        let mut next = self.aging.next_from(0);
        while let Some(state) = next {
            let has_value = !self.values[self.place(slot, state)].bytes.is_empty();
            if has_value || self.aging.outlasts_the_watermark(now) {
                self.mark_changed(slot, state);
            }
            next = self.aging.next_from(state + 1);
        }
    }

    /// Looks at a stored row of a state with a time to live: if it is too old, it goes with this epoch.
    /// Rows of one state come with rising keys, each at most once in an epoch.
    pub fn sweep(&mut self, state: usize, key: &[u8], stored: &StoredState) {
        let is_done = |aging: &StateAging, has_value, touched| match has_value {
            true => aging.is_expired(state, touched),
            false => !aging.outlasts_the_watermark(touched),
        };
        // What is in memory may be newer than what is stored: an epoch may not be decided yet.
        let Some(slot) = self.slot(key_hash(key), key) else {
            if is_done(&self.aging, !stored.value.is_empty(), stored.touched) {
                self.expired[state].push(key);
            }
            return;
        };
        let has_value = !self.values[self.place(slot, state)].bytes.is_empty();
        if is_done(&self.aging, has_value, self.touched[slot as usize]) {
            self.clear(slot, state);
            self.mark_changed(slot, state);
        }
    }

    /// The name of the first state from `state` on that has a time to live, and its place.
    pub fn next_aging(&self, state: usize) -> Option<(usize, &str)> {
        let state = self.aging.next_from(state)?;
        Some((state, &self.names[state]))
    }

    /// The least time to live of a state; `None` where none has one.
    pub fn least_ttl(&self) -> Option<Timestamp> {
        self.aging.least_ttl()
    }

    /// The partition's latest watermark.
    pub fn latest_watermark(&self) -> Timestamp {
        self.aging.latest_watermark()
    }

    /// The time that goes into the key's row of the state, 0 for none.
    pub(super) fn touched_to_store(&self, slot: u32, state: usize) -> Timestamp {
        let touched = self.touched[slot as usize];
        let has_value = !self.values[self.place(slot, state)].bytes.is_empty();
        match has_value || self.aging.outlasts_the_watermark(touched) {
            true => touched,
            false => 0,
        }
    }

    fn clear(&mut self, slot: u32, state: usize) {
        let place = self.place(slot, state);
        let value = &mut self.values[place];
        self.size_bytes -= value.bytes.allocated_bytes();
        value.bytes.set(b"");
    }

    fn place(&self, slot: u32, state: usize) -> usize {
        slot as usize * self.names.len() + state
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::types::batch::StateColumn;

    const TTL: Timestamp = 40;

    /// What a partition's input consists of.
    #[derive(Debug, Clone, Copy)]
    enum Item {
        /// An item of a key, at an event time, and what it makes of the state.
        Message(u8, Timestamp, Write),
        /// A watermark step.
        Step(Timestamp),
    }

    #[derive(Debug, Clone, Copy)]
    enum Write {
        Nothing,
        /// Appends a letter.
        Append(u8),
        Delete,
    }

    /// How the host goes about it.
    #[derive(Debug, Clone, Copy)]
    struct Cut {
        items_per_batch: usize,
        batches_per_epoch: usize,
        cache_bytes: usize,
        /// Rows that each epoch sweeps; 0 for no sweep at all.
        swept: usize,
        /// After so many epochs the job is replaced by a successor.
        epochs_per_job: usize,
    }

    /// What is left of a run: what each item found, and for each key its value and when it was touched.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Outcome {
        found: Vec<Vec<u8>>,
        left: BTreeMap<Vec<u8>, StoredState>,
    }

    /// The rules, item by item and with everything remembered.
    #[derive(Default)]
    struct Model {
        watermark: Timestamp,
        first_watermark: Timestamp,
        states: BTreeMap<Vec<u8>, StoredState>,
        expired: usize,
    }

    impl Model {
        fn is_expired(&self, touched: Timestamp) -> bool {
            let counted = if touched == 0 {
                self.first_watermark
            } else {
                touched
            };
            self.watermark != 0 && counted + TTL <= self.watermark
        }

        /// The outcome, and how many items found a state too old.
        fn run(mut self, items: &[Item]) -> (Outcome, usize) {
            let mut found = Vec::new();
            for item in items {
                match *item {
                    Item::Step(watermark) => {
                        if self.watermark == 0 {
                            self.first_watermark = watermark;
                        }
                        self.watermark = watermark;
                    }
                    Item::Message(key, event_time, write) => {
                        let mut state = self.states.remove(&[key][..]).unwrap_or_default();
                        if !state.value.is_empty() && self.is_expired(state.touched) {
                            state.value.clear();
                            self.expired += 1;
                        }
                        found.push(state.value.clone());
                        write.to(&mut state.value);
                        state.touched = state.touched.max(self.watermark).max(event_time);
                        self.states.insert(vec![key], state);
                    }
                }
            }
            let Model {
                watermark, states, ..
            } = &self;
            let left = (states.iter())
                .filter(|(_, state)| match state.value.is_empty() {
                    true => state.touched > *watermark,
                    false => !self.is_expired(state.touched),
                })
                .map(|(key, state)| (key.clone(), state.clone()))
                .collect();
            (Outcome { found, left }, self.expired)
        }
    }

    impl Write {
        fn to(self, value: &mut Vec<u8>) {
            match self {
                Write::Nothing => {}
                Write::Append(letter) => value.push(letter),
                Write::Delete => value.clear(),
            }
        }
    }

    /// A partition over a store: jobs, epochs, batches.
    struct Partition {
        cut: Cut,
        stored: BTreeMap<Vec<u8>, StoredState>,
        /// Rows of the epoch that is not decided yet.
        undecided: Vec<(Vec<u8>, StoredState)>,
        time: EpochTime,
        states: StateCache,
        swept_up_to: Vec<u8>,
        /// Whether the open epoch has swept.
        is_swept: bool,
        outcome: Outcome,
        removed_by_sweeps: usize,
    }

    impl Partition {
        fn open(cut: Cut, time: EpochTime) -> Partition {
            Partition {
                cut,
                stored: BTreeMap::new(),
                undecided: Vec::new(),
                states: job(cut, &time),
                time,
                swept_up_to: Vec::new(),
                is_swept: false,
                outcome: Outcome::default(),
                removed_by_sweeps: 0,
            }
        }

        fn run(mut self, items: &[Item]) -> Partition {
            let mut batch: Vec<(u8, Timestamp, Write)> = Vec::new();
            let mut batches = 0;
            let mut epochs = 0;
            for item in items {
                match *item {
                    Item::Message(key, event_time, write) => batch.push((key, event_time, write)),
                    Item::Step(watermark) => {
                        self.process(&std::mem::take(&mut batch));
                        batches += 1;
                        self.time.latest_watermark = watermark;
                        self.states.advance(watermark);
                    }
                }
                if batch.len() == self.cut.items_per_batch {
                    self.process(&std::mem::take(&mut batch));
                    batches += 1;
                }
                if batches >= self.cut.batches_per_epoch {
                    batches = 0;
                    epochs += 1;
                    self.seal();
                    if epochs % self.cut.epochs_per_job == 0 {
                        self.decide();
                        self.states = job(self.cut, &self.time);
                    }
                }
            }
            self.process(&batch);
            self.seal();
            self.decide();
            self.outcome.left = std::mem::take(&mut self.stored);
            let states = &self.states;
            self.outcome
                .left
                .retain(|_, row| match row.value.is_empty() {
                    true => states.aging.outlasts_the_watermark(row.touched),
                    false => !states.aging.is_expired(0, row.touched),
                });
            self
        }

        fn process(&mut self, items: &[(u8, Timestamp, Write)]) {
            // At any moment of an epoch, not only at its end.
            if items.len() % 2 == 1 {
                self.sweep();
            }
            let mut keys: Vec<u8> = items.iter().map(|(key, _, _)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            let mut batch = Batch {
                keys: keys.chunks(1).collect(),
                ..Batch::default()
            };
            let place = |key: u8| keys.iter().position(|at| *at == key).unwrap() as u32;
            for (at, (key, event_time, _)) in items.iter().enumerate() {
                // Timers count as messages do.
                if at % 3 == 0 {
                    batch.timers.keys.push(place(*key));
                    batch.timers.event_times.push(*event_time);
                } else {
                    batch.messages.keys.push(place(*key));
                    batch.messages.event_times.push(*event_time);
                }
            }
            let mut slots = self.states.find(&batch.keys);
            let missing: Vec<usize> = slots.missing().collect();
            for index in missing {
                let key = batch.keys.get(index);
                let row = self.stored.get(key).cloned().unwrap_or_default();
                self.states.insert(&mut slots, index, key, [row]);
            }
            self.states.expire(&slots);
            self.states.touch(&slots, &batch, &[]);
            let column = self.states.columns(&slots, |_| {}).remove(0);
            let mut values = vec![Vec::new(); keys.len()];
            for (key, value) in column.keys.iter().zip(column.values.iter()) {
                values[*key as usize] = value.to_vec();
            }
            for (key, _, write) in items {
                let value = &mut values[place(*key) as usize];
                self.outcome.found.push(value.clone());
                write.to(value);
            }
            let effects = StateColumn {
                keys: (0..keys.len() as u32).collect(),
                values: values.iter().map(Vec::as_slice).collect(),
            };
            self.states.apply(&slots, &[effects]);
        }

        fn seal(&mut self) {
            self.sweep();
            self.is_swept = false;
            let mut changes = self.states.take_changes();
            self.time.ages = self.states.ages();
            self.decide();
            for row in changes.pop().into_iter().flat_map(rows_of) {
                self.undecided.push(row);
            }
            self.states.shrink(1);
        }

        fn sweep(&mut self) {
            if std::mem::replace(&mut self.is_swept, true) {
                return;
            }
            let from = self.swept_up_to.clone();
            let rows = self.stored.range(from..).take(self.cut.swept);
            let rows: Vec<_> = rows.map(|(key, row)| (key.clone(), row.clone())).collect();
            for (key, row) in &rows {
                self.states.sweep(0, key, row);
            }
            self.removed_by_sweeps += self.states.expired[0].len();
            self.swept_up_to = match rows.last() {
                Some((key, _)) => [key, &[0][..]].concat(),
                None => Vec::new(),
            };
        }

        fn decide(&mut self) {
            for (key, row) in self.undecided.drain(..) {
                match row == StoredState::default() {
                    true => self.stored.remove(&key),
                    false => self.stored.insert(key, row),
                };
            }
        }
    }

    fn job(cut: Cut, time: &EpochTime) -> StateCache {
        let names = vec!["state".to_owned()];
        let mut states = StateCache::new(names, &[Some(TTL)], cut.cache_bytes);
        states.resume(time);
        states
    }

    fn rows_of(changes: crate::types::epoch::StateChanges) -> Vec<(Vec<u8>, StoredState)> {
        assert!(changes.keys.iter().is_sorted_by(|left, right| left < right));
        let mut touched = changes.touched;
        touched.resize(changes.keys.len(), 0);
        let rows = changes.keys.iter().zip(changes.values.iter()).zip(touched);
        rows.map(|((key, value), touched)| {
            let value = value.to_vec();
            (key.to_vec(), StoredState { value, touched })
        })
        .collect()
    }

    /// Items of a few keys, out of order, early and late, between steps.
    fn sequence(seed: u64, count: usize) -> Vec<Item> {
        let mut state = seed;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut watermark = 0;
        let mut items = Vec::new();
        for at in 0..count {
            if at > count / 10 && below(12) == 0 {
                watermark += [1, 5, 12, 30, 90][below(5) as usize];
                items.push(Item::Step(watermark));
                continue;
            }
            // Rare keys are the ones that grow old.
            let key = below(6).min(below(20)) as u8 + b'a' + (below(8) * below(3)) as u8;
            let event_time = match below(4) {
                0 => 0,
                1 => watermark.saturating_sub(below(60)),
                _ => watermark + below(50),
            };
            let write = match below(5) {
                0 | 1 => Write::Append(b'0' + (at % 10) as u8),
                2 => Write::Delete,
                _ => Write::Nothing,
            };
            items.push(Item::Message(key, event_time, write));
        }
        items
    }

    #[test]
    fn n3_what_grows_old_does_not_depend_on_batches_epochs_memory_sweeps_or_restarts() {
        let mut expiries_seen = 0;
        let mut swept = 0;
        for seed in 0..40 {
            let items = sequence(seed, 400);
            let (expected, expired) = Model::default().run(&items);
            expiries_seen += expired;
            for items_per_batch in [1, 2, 7, 64, usize::MAX] {
                for (batches_per_epoch, cache_bytes, rows_swept, epochs_per_job) in [
                    (1, 0, 0, usize::MAX),
                    (1, 0, 2, 3),
                    (3, 1_000, 5, 7),
                    (2, usize::MAX, 100, usize::MAX),
                    (usize::MAX, usize::MAX, 3, usize::MAX),
                ] {
                    let cut = Cut {
                        items_per_batch,
                        batches_per_epoch,
                        cache_bytes,
                        swept: rows_swept,
                        epochs_per_job,
                    };
                    let partition = Partition::open(cut, EpochTime::default()).run(&items);
                    assert_eq!(partition.outcome, expected, "seed {seed}, {cut:?}");
                    swept += partition.removed_by_sweeps;
                }
            }
        }
        assert!(
            expiries_seen > 400 && swept > 1_000,
            "{expiries_seen} {swept}"
        );
    }

    /// A state that had no time to live for a while has rows with older times than another one: what
    /// becomes of it is not to depend on whether a row of the other is swept.
    #[test]
    fn a_row_that_is_too_old_says_nothing_of_other_states_of_its_key() {
        let names = vec!["short".to_owned(), "long".to_owned()];
        let found = |short: StoredState| {
            let mut states = StateCache::new(names.clone(), &[Some(10), Some(100)], 1_000);
            states.advance(160);
            let keys = [b"k".as_slice()].into_iter().collect();
            let mut slots = states.find(&keys);
            let long = StoredState {
                value: b"long".to_vec(),
                touched: 50,
            };
            states.insert(&mut slots, 0, b"k", [short, long]);
            let batch = Batch {
                keys,
                ..Batch::default()
            };
            states.expire(&slots);
            states.touch(&slots, &batch, &[]);
            states.columns(&slots, |_| {}).remove(1).values.len()
        };
        let too_old = StoredState {
            value: b"short".to_vec(),
            touched: 140,
        };
        assert_eq!(found(StoredState::default()), 0);
        assert_eq!(found(too_old), 0);
    }
}
