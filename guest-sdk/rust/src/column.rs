//! Byte strings laid end to end, as the contract has them: reading a value and appending one.
//!
//! **Invariant:** a column made here is well formed: its ends never fall, and the last one is the
//! length of its bytes.

use crate::bindings::Column;

/// An empty column with room for `count` values.
pub(crate) fn with_capacity(count: usize) -> Column {
    Column {
        ends: Vec::with_capacity(count),
        bytes: Vec::new(),
    }
}

/// Value `index`.
///
/// # Panics
///
/// When there is none: the host has checked every index that it hands over.
pub(crate) fn value(column: &Column, index: usize) -> &[u8] {
    &column.bytes[range(&column.ends, index)]
}

/// Where value `index` lies among the bytes.
pub(crate) fn range(ends: &[u32], index: usize) -> std::ops::Range<usize> {
    let start = match index {
        0 => 0,
        _ => ends[index - 1] as usize,
    };
    start..ends[index] as usize
}

/// Appends a value.
pub(crate) fn push(column: &mut Column, value: &[u8]) {
    column.bytes.extend_from_slice(value);
    end_value(column);
}

/// Makes one value of all bytes appended since the last value ended.
///
/// # Panics
///
/// When the column passes 4 GiB, more than a component's memory can hold.
pub(crate) fn end_value(column: &mut Column) {
    let end = u32::try_from(column.bytes.len()).expect("a column holds less than 4 GiB");
    column.ends.push(end);
}

/// Forgets all bytes appended since the last value ended.
pub(crate) fn abandon_value(column: &mut Column) {
    let end = column.ends.last().map_or(0, |end| *end as usize);
    column.bytes.truncate(end);
}
