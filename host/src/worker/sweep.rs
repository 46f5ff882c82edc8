//! Frees what is stored of states that are too old: a few rows with each epoch, pass after pass over all
//! of them. Nothing depends on how far it has come, as a state that is too old is absent wherever it is
//! still stored.

use crate::engine::state::StateCache;
use crate::storage::scan::ScanLimit;
use crate::storage::{Storage, StorageError, rows};
use crate::types::batch::Timestamp;
use crate::types::ids::PartitionId;

/// How many rows an epoch looks at.
const ROWS_PER_EPOCH: usize = 256;

/// After how many bytes of them it looks at no more.
const BYTES_PER_EPOCH: usize = 256 << 10;

/// How many passes begin, at most, while the watermark moves by the least time to live: rows stay so much
/// longer than they count, and are read so often.
const PASSES_PER_TTL: u64 = 8;

/// How far the sweep of a partition has come.
#[derive(Debug, Default)]
pub(super) struct StateSweep {
    /// Where the pass goes on: at a state, and there at a key. `None` between two passes.
    next: Option<(usize, Vec<u8>)>,
    /// The latest watermark when the last pass began.
    began_at: Timestamp,
}

impl StateSweep {
    /// Looks at the next rows; those that are too old go with the open epoch.
    pub(super) fn go_on(
        &mut self,
        states: &mut StateCache,
        storage: &dyn Storage,
        partition: PartitionId,
    ) -> Result<(), StorageError> {
        self.begin_if_due(states);
        let mut left = ScanLimit {
            rows: ROWS_PER_EPOCH,
            bytes: BYTES_PER_EPOCH,
        };
        while let Some((from_state, from_key)) = self.next.take() {
            let Some((state, name)) = states.next_aging(from_state) else {
                return Ok(());
            };
            let page = rows::scan_states(storage, partition, name, &from_key, left)?;
            for (key, stored) in &page.rows {
                left.rows = left.rows.saturating_sub(1);
                left.bytes = left.bytes.saturating_sub(key.len() + stored.value.len());
                states.sweep(state, key, stored);
            }
            self.next = Some(match page.next {
                Some(key) => (state, key),
                None => (state + 1, Vec::new()),
            });
            if left.rows == 0 || left.bytes == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin_if_due(&mut self, states: &StateCache) {
        let (Some(ttl), None) = (states.least_ttl(), &self.next) else {
            return;
        };
        let watermark = states.latest_watermark();
        let due_at = self.began_at.saturating_add((ttl / PASSES_PER_TTL).max(1));
        if watermark >= due_at {
            self.began_at = watermark;
            self.next = Some((0, Vec::new()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::CommitOutcome;
    use crate::storage::leases;
    use crate::storage::memory::MemoryStorage;
    use crate::types::batch::{Batch, MessageColumns};
    use crate::types::column::Column;
    use crate::types::epoch::{EpochCommit, StateChanges};
    use crate::types::lease::Lease;

    const PARTITION: PartitionId = PartitionId(1);
    const KEYS: usize = 1_000;

    /// A partition whose keys were touched at times 0, 1, 2 and so on, but for the last states, which
    /// have no time to live.
    struct Swept {
        storage: MemoryStorage,
        lease: Lease,
        states: StateCache,
        sweep: StateSweep,
    }

    impl Swept {
        fn new() -> Swept {
            let storage = MemoryStorage::new();
            let lease = leases::grant(&storage, PARTITION).unwrap();
            let names = ["count", "worst", "kept"].map(str::to_owned).to_vec();
            let ttls = [Some(2_000), Some(1_000)];
            let swept = Swept {
                states: StateCache::new(names.clone(), &ttls, 1 << 20),
                storage,
                lease,
                sweep: StateSweep::default(),
            };
            let changes = names.into_iter().map(|state| {
                let keys: Vec<String> = (0..KEYS).map(|key| format!("{key:0>4}")).collect();
                StateChanges {
                    state,
                    keys: keys.iter().map(String::as_bytes).collect(),
                    values: (0..KEYS).map(|_| b"value".as_slice()).collect(),
                    touched: (0..KEYS as u64).map(|at| 1_000 + at).collect(),
                }
            });
            let mut changes: Vec<_> = changes.collect();
            changes.sort_by(|left, right| left.state.cmp(&right.state));
            swept.commit(changes);
            swept
        }

        fn commit(&self, states: Vec<StateChanges>) {
            let next = self.storage.head(PARTITION).unwrap().epoch.next();
            let mut commit = EpochCommit::empty(&self.lease, next);
            commit.states = states;
            let outcome = self.storage.commit_epoch(self.lease, commit).unwrap();
            assert!(matches!(outcome, CommitOutcome::Committed(_)));
        }

        /// An epoch that does nothing but sweep; how many rows go with it.
        fn epoch(&mut self) -> usize {
            let Swept {
                storage,
                states,
                sweep,
                ..
            } = self;
            sweep.go_on(states, storage, PARTITION).unwrap();
            let changes = states.take_changes();
            let count = changes.iter().map(|changes| changes.keys.len()).sum();
            self.commit(changes);
            self.states.shrink(1);
            count
        }

        fn left(&self, state: &str) -> usize {
            rows::scan_state_keys(&self.storage, PARTITION, state, b"", usize::MAX)
                .unwrap()
                .len()
        }
    }

    #[test]
    fn rows_that_are_too_old_go_a_few_with_each_epoch_and_no_others() {
        let mut swept = Swept::new();
        swept.states.advance(2_399);
        let gone: Vec<usize> = (0..10).map(|_| swept.epoch()).collect();
        // The rows of `count` are all looked at first, 1,000 of them.
        assert_eq!(gone, [0, 0, 0, 24, 256, 120, 0, 0, 0, 0]);
        let left = ["count", "worst", "kept"].map(|state| swept.left(state));
        assert_eq!(left, [KEYS, 600, KEYS]);
    }

    #[test]
    fn a_pass_begins_only_when_the_watermark_has_moved() {
        let mut swept = Swept::new();
        swept.states.advance(2_000);
        let gone = |swept: &mut Swept| (0..10).map(|_| swept.epoch()).sum::<usize>();
        assert_eq!(gone(&mut swept), 1);
        swept.states.advance(2_124);
        assert_eq!(gone(&mut swept), 0, "it is not worth a pass yet");
        swept.states.advance(2_125);
        assert_eq!(gone(&mut swept), 125);
    }

    /// An epoch that touches a key may not be decided yet: storage still has the old row then.
    #[test]
    fn a_key_that_was_touched_stays_though_storage_does_not_know_yet() {
        let mut swept = Swept::new();
        swept.states.advance(1_500);
        let keys: Column = [b"0007".as_slice()].into_iter().collect();
        let mut slots = swept.states.find(&keys);
        let mut stored = ["count", "worst", "kept"]
            .map(|state| rows::read_states(&swept.storage, PARTITION, state, &[b"0007"]).unwrap());
        let stored = stored.each_mut().map(|rows| rows.remove(0));
        swept.states.insert(&mut slots, 0, b"0007", stored);
        let messages = MessageColumns {
            streams: vec![0],
            keys: vec![0],
            event_times: vec![0],
            payloads: [b"".as_slice()].into_iter().collect(),
        };
        let batch = Batch {
            keys,
            messages,
            ..Batch::default()
        };
        swept.states.expire(&slots);
        swept.states.touch(&slots, &batch, &[]);
        let undecided = swept.states.take_changes();
        assert_eq!(undecided.len(), 2);
        swept.states.advance(2_400);
        let gone: usize = (0..10).map(|_| swept.epoch()).sum();
        assert_eq!(gone, 400);
        assert_eq!(swept.left("worst"), 600);
        let row = rows::read_states(&swept.storage, PARTITION, "worst", &[b"0007"]).unwrap();
        assert_eq!(row[0].value, b"value");
    }
}
