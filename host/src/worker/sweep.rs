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
