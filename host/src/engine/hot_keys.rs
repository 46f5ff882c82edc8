//! Which keys a partition's input consists of mostly, found in one pass and bounded memory.
//!
//! The sketch is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and
//! Top-k Elements in Data Streams, 2005), fed a batch at a time: the exact counts of a batch are
//! merged in as one summary into another (Agarwal et al.: Mergeable Summaries, 2012), which costs a
//! look-up for each distinct key of a batch and no order among the counters. No lot is drawn, so the
//! same input in the same batches gives the same answer.
//!
//! **Invariant:** of `total` messages, a key without a counter had at most `floor`, and `floor` is
//! at most `total /` [`HOT_KEYS_CAPACITY`]; a key with a counter had at most its `count` and at
//! least `count - error`.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::types::column::Column;
use crate::types::key::{BuildKeyHasher, key_hash};

/// How many keys a sketch tells apart: every key with more than one message of so many is in it.
pub const HOT_KEYS_CAPACITY: usize = 64;

/// How many bytes of a key a sketch keeps. A longer one is told from others by these and its hash.
pub const HOT_KEY_BYTES_MAX: usize = 256;

/// The least share of its partition's messages that makes a key hot.
pub const HOT_KEY_SHARE_MIN: f64 = 0.1;

/// How many times the share of a partition's average key a hot key has more than.
pub const HOT_KEY_FAIR_SHARES_MIN: f64 = 2.0;

/// How many messages a partition has to have taken before any of its keys is called hot: the shares
/// of a handful say nothing.
pub const HOT_KEY_MESSAGES_MIN: u64 = 1_000;

/// Counts the keys of one partition's input.
#[derive(Debug, Default)]
pub struct HotKeys {
    total: u64,
    /// What a key without a counter may have had at most.
    floor: u64,
    counters: HashMap<Vec<u8>, Counter, BuildKeyHasher>,
    /// Messages of each distinct key of a batch.
    occurrences: Vec<u32>,
    /// The batch's keys without a counter, with their messages in it.
    newcomers: Vec<(u32, u32)>,
    /// The counts among which the next floor is looked for.
    counts: Vec<u64>,
}

/// What is known of a key.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// Its messages, and perhaps `error` too many.
    count: u64,
    error: u64,
}

/// A key that has more of a partition's messages than is good for spreading them.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// Its first [`HOT_KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// Whether it has more bytes than those.
    pub is_cut: bool,
    /// The part of the partition's messages that it has at least, 0 to 1.
    pub share: f64,
}

impl HotKeys {
    /// Counts a batch: `key_indexes` says of each message which of `keys`, which are distinct, it has.
    pub fn add(&mut self, keys: &Column, key_indexes: &[u32]) {
        self.total += key_indexes.len() as u64;
        self.occurrences.clear();
        self.occurrences.resize(keys.len(), 0);
        for index in key_indexes {
            self.occurrences[*index as usize] += 1;
        }
        self.newcomers.clear();
        for (index, (key, occurrences)) in keys.iter().zip(&self.occurrences).enumerate() {
            match self.counters.get_mut(&*identity(key)) {
                Some(counter) => counter.count += u64::from(*occurrences),
                None => self.newcomers.push((index as u32, *occurrences)),
            }
        }
        let (before, after) = (self.floor, self.next_floor());
        if after > before {
            self.counters.retain(|_, counter| counter.count > after);
            self.floor = after;
        }
        for (index, occurrences) in &self.newcomers {
            let count = before + u64::from(*occurrences);
            if count > after {
                let error = before;
                let key = identity(keys.get(*index as usize)).into_owned();
                self.counters.insert(key, Counter { count, error });
            }
        }
    }

    /// The count that is passed by fewer keys than there is room for: what is not above it goes. As
    /// every counter that counts towards the capacity falls by what the floor rises, the floor never
    /// passes its share of the total.
    fn next_floor(&mut self) -> u64 {
        if self.counters.len() + self.newcomers.len() < HOT_KEYS_CAPACITY {
            return self.floor;
        }
        let newcomers = self.newcomers.iter();
        let newcomers = newcomers.map(|(_, occurrences)| self.floor + u64::from(*occurrences));
        self.counts.clear();
        self.counts
            .extend(self.counters.values().map(|counter| counter.count));
        self.counts.extend(newcomers);
        let place = HOT_KEYS_CAPACITY - 1;
        let (_, floor, _) = (self.counts).select_nth_unstable_by(place, |a, b| b.cmp(a));
        *floor
    }

    /// The hot keys, the greatest share first.
    pub fn hottest(&self) -> Vec<HotKey> {
        if self.total < HOT_KEY_MESSAGES_MIN {
            return Vec::new();
        }
        let fair_share = 1.0 / self.key_count_min() as f64;
        self.shares(HOT_KEY_SHARE_MIN.max(HOT_KEY_FAIR_SHARES_MIN * fair_share))
    }

    /// The keys that have at least `share_min` for certain, the greatest share first.
    fn shares(&self, share_min: f64) -> Vec<HotKey> {
        let shares = self.counters.iter().map(|(key, counter)| {
            let share = (counter.count - counter.error) as f64 / self.total as f64;
            (key, share)
        });
        let mut shares: Vec<HotKey> = shares
            .filter(|(_, share)| *share >= share_min)
            .map(|(key, share)| HotKey {
                key: key[..key.len().min(HOT_KEY_BYTES_MAX)].to_vec(),
                is_cut: key.len() > HOT_KEY_BYTES_MAX,
                share,
            })
            .collect();
        shares.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.key.cmp(&b.key)));
        shares
    }

    /// How many distinct keys there were at least.
    fn key_count_min(&self) -> usize {
        match self.floor {
            0 => self.counters.len(),
            // The floor rises when there are more keys than counters.
            _ => HOT_KEYS_CAPACITY,
        }
    }
}

/// The key, or what stands for one that is too long to be kept.
fn identity(key: &[u8]) -> Cow<'_, [u8]> {
    match key.get(..HOT_KEY_BYTES_MAX) {
        Some(beginning) if key.len() > HOT_KEY_BYTES_MAX => {
            Cow::Owned([beginning, &key_hash(key).to_be_bytes()].concat())
        }
        _ => Cow::Borrowed(key),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A small generator of numbers (SplitMix64).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }

        /// One of `keys`, the smaller ones much more often.
        fn skewed(&mut self, keys: u64, skew: u32) -> u64 {
            let least = (0..skew).map(|_| self.below(keys)).min();
            least.expect("a skew is at least 1")
        }
    }

    /// The batch of a transform: its distinct keys, and which of them each message has.
    fn add(sketch: &mut HotKeys, messages: &[Vec<u8>]) {
        let mut keys = Column::default();
        let mut places = BTreeMap::new();
        let mut indexes = Vec::new();
        for key in messages {
            let place = *places.entry(key).or_insert_with(|| {
                keys.push(key);
                keys.len() as u32 - 1
            });
            indexes.push(place);
        }
        sketch.add(&keys, &indexes);
    }

    fn sketch_of(messages: &[Vec<u8>], batch: usize) -> HotKeys {
        let mut sketch = HotKeys::default();
        for batch in messages.chunks(batch) {
            add(&mut sketch, batch);
        }
        sketch
    }

    fn exact_counts(messages: &[Vec<u8>]) -> BTreeMap<&[u8], u64> {
        let mut counts = BTreeMap::new();
        for key in messages {
            *counts.entry(key.as_slice()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn shares_are_never_above_the_true_ones_and_no_frequent_key_is_missing() {
        let mut random = Random(7);
        let mut inexact = 0;
        for seed in 0..300 {
            let (keys, skew) = (1 + random.below(3_000), 1 + (seed % 12) as u32);
            let messages: Vec<Vec<u8>> = (0..1 + random.below(6_000))
                .map(|_| random.skewed(keys, skew).to_string().into_bytes())
                .collect();
            let sketch = sketch_of(&messages, 1 + random.below(1_500) as usize);
            let exact = exact_counts(&messages);
            let total = messages.len() as u64;
            assert_eq!(sketch.total, total);
            assert!(
                sketch.floor <= total / HOT_KEYS_CAPACITY as u64,
                "seed {seed}"
            );
            assert!(sketch.counters.len() < HOT_KEYS_CAPACITY);
            let listed: BTreeMap<Vec<u8>, f64> = (sketch
                .shares(0.0)
                .into_iter()
                .map(|hot| (hot.key, hot.share)))
            .collect();
            for (key, count) in &exact {
                let share = *count as f64 / total as f64;
                match listed.get(*key) {
                    Some(guaranteed) => {
                        assert!(*guaranteed <= share, "seed {seed}: {guaranteed} of {share}");
                        assert!(*guaranteed >= share - 1.0 / HOT_KEYS_CAPACITY as f64);
                        inexact += usize::from(*guaranteed < share);
                    }
                    None => assert!(*count <= sketch.floor, "seed {seed}: {count} are missing"),
                }
            }
        }
        assert!(inexact > 100, "the errors were never put to use: {inexact}");
    }

    #[test]
    fn the_answer_is_the_same_for_the_same_batches() {
        let mut random = Random(8);
        let messages: Vec<Vec<u8>> = (0..20_000)
            .map(|_| random.skewed(5_000, 8).to_string().into_bytes())
            .collect();
        let (one, two) = (sketch_of(&messages, 100), sketch_of(&messages, 100));
        assert_eq!(one.shares(0.0), two.shares(0.0));
    }

    /// `hot` of 10,000 messages with one key, the others spread over `others` keys.
    fn with_one_hot_key(hot: usize, others: u64) -> Vec<HotKey> {
        let mut random = Random(9);
        let messages: Vec<Vec<u8>> = (0..10_000)
            .map(|_| match random.below(10_000) < hot as u64 {
                true => b"hot".to_vec(),
                false => random.below(others).to_string().into_bytes(),
            })
            .collect();
        sketch_of(&messages, 1_000).hottest()
    }

    #[test]
    fn a_key_is_hot_from_a_tenth_of_the_messages_on() {
        let hot = with_one_hot_key(4_300, 5_000);
        assert_eq!(hot.len(), 1);
        assert_eq!(hot[0].key, b"hot");
        assert!((hot[0].share - 0.43).abs() < 0.02, "{}", hot[0].share);
        assert!(with_one_hot_key(600, 5_000).is_empty());
    }

    #[test]
    fn where_there_are_few_keys_a_large_share_is_fair() {
        // Four keys with a quarter each: not hot, though it is more than a tenth.
        assert!(with_one_hot_key(0, 4).is_empty());
        assert_eq!(with_one_hot_key(7_000, 4).len(), 1);
    }

    #[test]
    fn a_handful_of_messages_has_no_hot_key() {
        let count = HOT_KEY_MESSAGES_MIN as usize;
        let mut messages = vec![b"hot".to_vec(); count - 2];
        messages.extend((0..1).map(|other: u8| vec![other]));
        assert!(sketch_of(&messages, 10).hottest().is_empty());
    }

    #[test]
    fn long_keys_are_cut_and_still_told_apart() {
        let long = |last: u8| [&[b'k'; 2 * HOT_KEY_BYTES_MAX][..], &[last]].concat();
        let exactly = vec![b'k'; HOT_KEY_BYTES_MAX];
        let mut messages = vec![long(1); 3_000];
        messages.extend(vec![long(2); 1_000]);
        messages.extend(vec![exactly.clone(); 2_000]);
        let shares = sketch_of(&messages, 500).shares(0.0);
        let found: Vec<(bool, u32)> = (shares.iter())
            .map(|hot| (hot.is_cut, (hot.share * 6.0).round() as u32))
            .collect();
        assert_eq!(found, [(true, 3), (false, 2), (true, 1)]);
        assert!(shares.iter().all(|hot| hot.key == exactly));
    }
}
