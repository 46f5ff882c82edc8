//! What can be wrong with the columns of effects; `columns.rs` finds it.

use std::fmt;

use crate::types::key::MESSAGE_KEY_BYTES_MAX;

/// Effects that contradict themselves, the batch or the description: which column, which row, what
/// was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnFault {
    /// The columns of one group differ in length.
    #[error("column {column} has {found} rows where {expected} are needed")]
    Length {
        /// The column.
        column: ColumnName,
        /// Its length.
        found: usize,
        /// The length of the group's first column.
        expected: usize,
    },
    /// An end is below the one before it or beyond the bytes.
    #[error("row {row} of column {column} ends at {found}, allowed are {least} to {most}")]
    End {
        /// The column.
        column: ColumnName,
        /// The row.
        row: usize,
        /// Its end.
        found: u32,
        /// The end of the row before.
        least: u32,
        /// The number of bytes.
        most: usize,
    },
    /// There are bytes behind the last row's end.
    #[error("column {column} has {found} bytes, allowed are {allowed}, where its last row ends")]
    BytesLeft {
        /// The column.
        column: ColumnName,
        /// Its bytes.
        found: usize,
        /// The last end.
        allowed: u32,
    },
    /// An index is out of range.
    #[error(
        "row {row} of column {column} is {found}, allowed is less than {count}, the number of {what}"
    )]
    Index {
        /// The column.
        column: ColumnName,
        /// The row.
        row: usize,
        /// The index.
        found: u32,
        /// How many there are to point to.
        count: usize,
        /// What it points to.
        what: &'static str,
    },
    /// The parents of an output are not in order.
    #[error(
        "row {row} of column outputs.parents is {found} behind {before}; the parents of output {output} have to rise, so that none is there twice"
    )]
    ParentsNotRising {
        /// The output.
        output: usize,
        /// The row of the parent that does not rise.
        row: usize,
        /// That parent.
        found: u32,
        /// The one before it.
        before: u32,
    },
    /// A message's key is too long to be kept.
    #[error(
        "row {row} of column {column} is a key of {found} bytes, allowed are {MESSAGE_KEY_BYTES_MAX}; use a hash of it as the key"
    )]
    KeyTooLong {
        /// The column.
        column: ColumnName,
        /// The row.
        row: usize,
        /// Its bytes.
        found: usize,
    },
    /// A key has two rows in one state column.
    #[error(
        "row {row} of column {column} is key {key}, which an earlier row has; allowed is one row for each key"
    )]
    KeyTwice {
        /// The column.
        column: ColumnName,
        /// The second row.
        row: usize,
        /// The index of the key.
        key: u32,
    },
    /// A timer is named twice.
    #[error(
        "row {row} of {group} names the timer of key {key}, stream {stream}, trigger \
         {trigger_time}, which row {first_row} of {first_group} names; allowed is one row for each \
         timer over set-timers and cancel-timers"
    )]
    TimerTwice {
        /// Where the second row is.
        group: &'static str,
        /// The second row.
        row: usize,
        /// Where the first row is.
        first_group: &'static str,
        /// The first row.
        first_row: usize,
        /// The index of the key.
        key: u32,
        /// The index of the timer stream.
        stream: u16,
        /// The trigger time.
        trigger_time: u64,
    },
    /// Not one state column for each declared state.
    #[error("there are {found} state columns, allowed are {declared}, one for each declared state")]
    StateCount {
        /// How many there are.
        found: usize,
        /// How many states are declared.
        declared: usize,
    },
    /// A column that must be empty is not.
    #[error("column {column} has {found} rows, allowed are none: {why}")]
    NotEmpty {
        /// The column.
        column: ColumnName,
        /// Its length.
        found: usize,
        /// Why it must be empty.
        why: &'static str,
    },
    /// The results could not even be read as the contract's types.
    #[error("the results can't be read: {reason}")]
    Unreadable {
        /// What the engine says: a string that is not UTF-8, a list outside of the memory.
        reason: String,
    },
}

/// A column of the effects by its name in the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnName {
    group: &'static str,
    state: Option<usize>,
    field: &'static str,
}

impl ColumnName {
    pub(super) fn new(group: &'static str, field: &'static str) -> ColumnName {
        ColumnName {
            group,
            state: None,
            field,
        }
    }

    pub(super) fn of_state(state: usize, field: &'static str) -> ColumnName {
        ColumnName {
            group: "states",
            state: Some(state),
            field,
        }
    }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            Some(state) => write!(formatter, "{}[{state}].{}", self.group, self.field),
            None => write!(formatter, "{}.{}", self.group, self.field),
        }
    }
}
