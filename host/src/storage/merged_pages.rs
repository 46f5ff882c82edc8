//! Rows of several partitions as one, in an order that goes through all of them, read a page of each at a time.
//!
//! **Invariant:** a page of each partition is in memory, never all its rows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::storage::StorageError;
use crate::storage::scan::ScanLimit;

/// Rows of a partition that are read at a time.
const PAGE_ROWS: usize = 1_000;

/// Bytes of pages, those of all partitions together; of each partition one row is read whatever its size.
const PAGES_BYTES: usize = 32 << 20;

/// The rows of one partition, in order.
pub trait Pages {
    /// A row.
    type Row;

    /// What says which of the next rows of all partitions comes first; of those alike the one of the partition that was
    /// named first.
    type Order: Ord;

    /// The rows behind those that it has returned; none at the end, and none ever after.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn next_page(&mut self, limit: ScanLimit) -> Result<Vec<Self::Row>, StorageError>;

    /// Where a row stands.
    fn order(row: &Self::Row) -> Self::Order;
}

/// Reads them: each row with the partition that it is of.
pub struct MergedPages<P: Pages> {
    limit: ScanLimit,
    cursors: Vec<Cursor<P>>,
    /// The next row of each partition that has one.
    next: BinaryHeap<Reverse<(P::Order, usize)>>,
}

struct Cursor<P: Pages> {
    pages: P,
    page: VecDeque<P::Row>,
}

impl<P: Pages> MergedPages<P> {
    /// Those of some partitions.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn new(partitions: impl IntoIterator<Item = P>) -> Result<MergedPages<P>, StorageError> {
        let cursors = partitions.into_iter().map(|pages| Cursor {
            pages,
            page: VecDeque::new(),
        });
        let cursors: Vec<Cursor<P>> = cursors.collect();
        let mut merged = MergedPages {
            limit: ScanLimit {
                rows: PAGE_ROWS,
                bytes: PAGES_BYTES / cursors.len().max(1),
            },
            next: BinaryHeap::with_capacity(cursors.len()),
            cursors,
        };
        for index in 0..merged.cursors.len() {
            merged.advance(index)?;
        }
        Ok(merged)
    }

    /// The next row.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn take(&mut self) -> Result<Option<(&P, P::Row)>, StorageError> {
        let Some(Reverse((_, index))) = self.next.pop() else {
            return Ok(None);
        };
        let row = self.cursors[index].page.pop_front();
        self.advance(index)?;
        Ok(row.map(|row| (&self.cursors[index].pages, row)))
    }

    /// Puts the next row of a partition in its place.
    fn advance(&mut self, index: usize) -> Result<(), StorageError> {
        let cursor = &mut self.cursors[index];
        if cursor.page.is_empty() {
            cursor.page.extend(cursor.pages.next_page(self.limit)?);
        }
        if let Some(row) = cursor.page.front() {
            self.next.push(Reverse((P::order(row), index)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, so many to a page.
    struct Numbers {
        numbers: Vec<u64>,
        page_rows: usize,
    }

    impl Pages for Numbers {
        type Row = u64;
        type Order = u64;

        fn next_page(&mut self, limit: ScanLimit) -> Result<Vec<u64>, StorageError> {
            let count = self.page_rows.min(limit.rows).min(self.numbers.len());
            Ok(self.numbers.drain(..count).collect())
        }

        fn order(row: &u64) -> u64 {
            *row / 10
        }
    }

    #[test]
    fn rows_of_all_come_in_order_however_their_pages_are_cut() {
        for page_rows in 1..5 {
            let of = |numbers: &[u64]| Numbers {
                numbers: numbers.to_vec(),
                page_rows,
            };
            let partitions = [of(&[11, 10, 31, 50]), of(&[]), of(&[1, 12, 32, 33, 34, 70])];
            let mut merged = MergedPages::new(partitions).unwrap();
            let mut found = Vec::new();
            while let Some((_, number)) = merged.take().unwrap() {
                found.push(number);
            }
            assert_eq!(found, [1, 11, 10, 12, 31, 32, 33, 34, 50, 70]);
        }
    }
}
