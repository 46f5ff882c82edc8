//! Items that a computation failed on alone, and what becomes of them.

use crate::guest::error::{CallReport, GuestError};
use crate::types::batch::{Batch, StateColumn};

/// The most bytes of states that are kept with an item: a thousand of one batch may fail, each with states of its own.
pub const KEPT_STATE_BYTES_MAX: usize = 256 << 10;

/// The most bytes of states and of what is told of failures (backtraces, prints) that are kept with the items of one
/// batch, together; what comes later is kept without them.
pub const CALL_KEPT_BYTES_MAX: usize = 64 << 20;

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
    /// `kept_bytes` is what is kept with those of the same batch so far.
    pub(super) fn new(
        item: u32,
        mut batch: Batch,
        mut error: GuestError,
        kept_bytes: &mut usize,
    ) -> PassedItem {
        let states = batch.states.iter().map(|state| state.values.bytes.len());
        let state_bytes = states.sum::<usize>();
        let told_bytes = error.report().map_or(0, CallReport::size_bytes);
        if *kept_bytes + told_bytes > CALL_KEPT_BYTES_MAX {
            error.forget_report();
        } else {
            *kept_bytes += told_bytes;
        }
        let is_large =
            state_bytes > KEPT_STATE_BYTES_MAX || *kept_bytes + state_bytes > CALL_KEPT_BYTES_MAX;
        if !is_large {
            *kept_bytes += state_bytes;
        } else {
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
            let passed = PassedItem::new(0, batch, error, &mut 0);
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

    #[test]
    fn what_is_kept_with_the_items_of_a_batch_is_bounded() {
        let mut kept_bytes = 0;
        let (mut told, mut with_states) = (0, 0);
        for item in 0..2_000 {
            let state = StateColumn {
                keys: vec![0],
                values: [&[b'x'; 40_000][..]].into_iter().collect(),
            };
            let batch = Batch {
                states: vec![state],
                ..Batch::default()
            };
            let report = CallReport {
                item: Some(item),
                stderr: "y".repeat(10_000),
                ..CallReport::default()
            };
            let error = GuestError::StackOverflow {
                computation: "deep".to_owned(),
                report: Box::new(report),
            };
            let passed = PassedItem::new(item, batch, error, &mut kept_bytes);
            assert_eq!(passed.error.item(), Some(item));
            told += passed
                .error
                .report()
                .map_or(0, |report| report.stderr.len());
            with_states += usize::from(passed.left_out_state_bytes == 0);
        }
        assert!(told + 40_000 * with_states <= CALL_KEPT_BYTES_MAX);
        assert!(with_states > 1_000, "{with_states}");
    }
}
