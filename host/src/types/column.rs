//! A column of byte strings laid end to end: one allocation for many values, and the very shape
//! that crosses the guest boundary as two blocks of memory.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Byte strings laid end to end: value `i` is `bytes[ends[i - 1]..ends[i]]`, and `ends[-1]` is 0.
///
/// Columns made by this type's own methods are always well formed. One that came from outside
/// (a guest, a store) must pass [`Column::is_well_formed`] before any value is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Where each value ends in `bytes`; never falling, the last equal to the length of `bytes`.
    pub ends: Vec<u32>,
    /// The values, without separators.
    pub bytes: Vec<u8>,
}

impl Column {
    /// An empty column with room for `count` values of `size_bytes` in all.
    pub fn with_capacity(count: usize, size_bytes: usize) -> Column {
        Column {
            ends: Vec::with_capacity(count),
            bytes: Vec::with_capacity(size_bytes),
        }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// About how much memory the values take, in bytes.
    pub fn size_bytes(&self) -> usize {
        4 * self.ends.len() + self.bytes.len()
    }

    /// Appends a value.
    ///
    /// # Panics
    ///
    /// When the column would pass 4 GiB; every limit on what goes into a column is far below.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        let end = u32::try_from(self.bytes.len()).expect("columns are bounded far below 4 GiB");
        self.ends.push(end);
    }

    /// Appends values `range` of another column.
    ///
    /// # Panics
    ///
    /// When there are no such values, or the column would pass 4 GiB.
    pub fn extend_from(&mut self, other: &Column, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let start = match range.start {
            0 => 0,
            first => other.ends[first - 1],
        };
        let ends = &other.ends[range];
        let base = self.bytes.len();
        let bytes = &other.bytes[start as usize..ends[ends.len() - 1] as usize];
        self.bytes.extend_from_slice(bytes);
        u32::try_from(self.bytes.len()).expect("columns are bounded far below 4 GiB");
        let moved = ends.iter().map(|end| end - start + base as u32);
        self.ends.extend(moved);
    }

    /// Value `index`.
    ///
    /// # Panics
    ///
    /// When there is no such value.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1] as usize,
        };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// All values in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }

    /// Keeps the first `count` values.
    pub fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        let end = self.ends.last().map_or(0, |end| *end as usize);
        self.bytes.truncate(end);
    }

    /// Whether the ends never fall and the last one is the length of the bytes.
    pub fn is_well_formed(&self) -> bool {
        let last = self.ends.last().map_or(0, |end| *end as usize);
        last == self.bytes.len() && self.ends.is_sorted()
    }
}

impl<'a> FromIterator<&'a [u8]> for Column {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(values: I) -> Column {
        let mut column = Column::default();
        for value in values {
            column.push(value);
        }
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_went_in() {
        let values: [&[u8]; 4] = [b"ab", b"", b"c", b""];
        let column: Column = values.into_iter().collect();
        assert!(column.is_well_formed());
        assert_eq!(column.iter().collect::<Vec<_>>(), values);
    }

    #[test]
    fn values_of_another_column_come_behind_its_own() {
        let other: Column = [&b"ab"[..], b"", b"cde", b"f"].into_iter().collect();
        let mut column: Column = [&b"x"[..]].into_iter().collect();
        column.extend_from(&other, 1..3);
        column.extend_from(&other, 0..1);
        column.extend_from(&other, 2..2);
        assert!(column.is_well_formed());
        assert_eq!(
            column.iter().collect::<Vec<_>>(),
            [&b"x"[..], b"", b"cde", b"ab"]
        );
    }

    #[test]
    fn a_truncated_column_is_its_beginning() {
        let mut column: Column = [&b"ab"[..], b"", b"c"].into_iter().collect();
        column.truncate(5);
        assert_eq!(column.len(), 3);
        column.truncate(1);
        assert_eq!(column, [&b"ab"[..]].into_iter().collect());
        column.truncate(0);
        assert_eq!(column, Column::default());
    }

    #[test]
    fn falling_ends_and_a_wrong_last_end_are_malformed() {
        let column = |ends: &[u32], bytes: &[u8]| Column {
            ends: ends.to_vec(),
            bytes: bytes.to_vec(),
        };
        assert!(column(&[], b"").is_well_formed());
        assert!(!column(&[], b"a").is_well_formed());
        assert!(!column(&[2, 1, 3], b"abc").is_well_formed());
        assert!(!column(&[1, 2], b"abc").is_well_formed());
    }
}
