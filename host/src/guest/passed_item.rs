//! Items that a computation failed on alone, and what becomes of them.

use crate::guest::error::GuestError;
use crate::types::batch::Batch;

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
    /// The call that failed: the item alone, with its key and the states that the items before left behind.
    pub batch: Batch,
    /// How it failed.
    pub error: GuestError,
}
