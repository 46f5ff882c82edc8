//! Items that a computation failed on alone, and what becomes of them.

use crate::guest::error::GuestError;
use crate::types::batch::{Batch, StateColumn};

/// The most bytes of states that are kept with an item: a thousand of one batch may fail, each with states of its own.
pub const KEPT_STATE_BYTES_MAX: usize = 256 << 10;

/// What is to become of an item that failed alone, after all items before it had passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// The batch fails with it.
    Fail,
    /// It is as if it had not been in the batch; the items behind it are processed.
    PassOver,
    /// It is called once more.
    TryAgain,
}

/// An item that was passed over.
#[derive(Debug)]
pub struct PassedItem {
    /// Its number in the batch.
    pub item: u32,
    /// The call that failed: the item alone, with its key and the states that the items before left behind, as far as
    /// these have no more than [`KEPT_STATE_BYTES_MAX`].
    pub batch: Batch,
    /// Bytes of states that it is without; 0 where it has them all.
    pub left_out_state_bytes: u64,
    /// How it failed.
    pub error: GuestError,
}

impl PassedItem {
    /// An item that failed so, in a call with this batch.
    pub(super) fn new(item: u32, mut batch: Batch, error: GuestError) -> PassedItem {
        let states = batch.states.iter().map(|state| state.values.bytes.len());
        let state_bytes = states.sum::<usize>();
        let is_large = state_bytes > KEPT_STATE_BYTES_MAX;
        if is_large {
            batch.states.fill_with(StateColumn::default);
        }
        PassedItem {
            item,
            batch,
            left_out_state_bytes: if is_large { state_bytes as u64 } else { 0 },
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::error::CallReport;

    #[test]
    fn large_states_are_not_kept_and_their_bytes_are_told() {
        let passed = |bytes: usize| {
            let state = StateColumn {
                keys: vec![0],
                values: [&vec![b'x'; bytes][..]].into_iter().collect(),
            };
            let batch = Batch {
                states: vec![state, StateColumn::default()],
                ..Batch::default()
            };
            let error = GuestError::StackOverflow {
                computation: "deep".to_owned(),
                report: Box::new(CallReport::default()),
            };
            let passed = PassedItem::new(0, batch, error);
            let kept = passed
                .batch
                .states
                .iter()
                .map(|state| state.values.bytes.len());
            (
                kept.sum::<usize>(),
                passed.batch.states.len(),
                passed.left_out_state_bytes,
            )
        };
        let most = KEPT_STATE_BYTES_MAX;
        assert_eq!(passed(most), (most, 2, 0));
        assert_eq!(passed(most + 1), (0, 2, most as u64 + 1));
    }
}
