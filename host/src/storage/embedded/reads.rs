//! Reads: what is decided and not applied comes from the overlay, the rest from the bulk rows.
//!
//! **Invariant:** the overlay and the view of the bulk rows are taken at one moment, so neither
//! a read of many rows nor a page of a scan sees a part of an epoch.

use std::ops::Bound;

use crate::storage::embedded::{Shared, overlay};
use crate::storage::scan::{ScanLimit, ScanPage};
use crate::storage::{StorageError, StoredRow};

impl Shared {
    /// The value of a row.
    pub(super) fn read_row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let newer = overlay::find(&self.overlay.read(), key);
        match newer {
            Some(value) => Ok(value),
            None => Ok(self.bulk.get(key)?.map(|value| value.to_vec())),
        }
    }

    /// The values of many rows, in the order of `keys`.
    pub(super) fn read_rows(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        // Runs and view are of one moment, so that the answers are.
        let (newer, view) = {
            let runs = self.overlay.read();
            let newer: Vec<Option<Option<Vec<u8>>>> =
                keys.iter().map(|key| overlay::find(&runs, key)).collect();
            (newer, self.bulk.view())
        };
        (keys.iter().zip(newer))
            .map(|(key, newer)| match newer {
                Some(value) => Ok(value),
                None => Ok(view.get(key)?.map(|value| value.to_vec())),
            })
            .collect()
    }

    /// Rows in `start <= key < end`, as many as `limit` says.
    pub(super) fn scan_rows(
        &self,
        start: &[u8],
        end: &[u8],
        limit: ScanLimit,
    ) -> Result<Vec<StoredRow>, StorageError> {
        let mut page = ScanPage::new(limit);
        let mut next = Some(Bound::Included(start.to_vec()));
        while let Some(from) = next.take().filter(|_| !page.is_full()) {
            next = self.scan_on(&from, end, limit, &mut page)?;
        }
        Ok(page.into_rows())
    }

    /// One step of a scan: the overlay's next rows, merged with the bulk rows before them. Returns
    /// where the next step begins, or `None` at the end.
    fn scan_on(
        &self,
        start: &Bound<Vec<u8>>,
        end: &[u8],
        limit: ScanLimit,
        page: &mut ScanPage,
    ) -> Result<Option<Bound<Vec<u8>>>, StorageError> {
        let least = match start {
            Bound::Included(key) => key.clone(),
            // The least key behind another one is that key and a zero byte.
            Bound::Excluded(key) => [key.as_slice(), &[0]].concat(),
            Bound::Unbounded => Vec::new(),
        };
        if least.as_slice() >= end {
            return Ok(None);
        }
        let (newer, has_more, view) = {
            let runs = self.overlay.read();
            let (newer, has_more) = overlay::range(&runs, &least, end, limit);
            (newer, has_more, self.bulk.view())
        };
        // Behind its last row the overlay was not looked at, if it has more.
        let last = newer
            .last()
            .filter(|_| has_more)
            .map(|(key, _)| key.clone());
        let upper = match &last {
            Some(key) => Bound::Included(key.clone()),
            None => Bound::Excluded(end.to_vec()),
        };
        let mut newer = newer.into_iter().peekable();
        let mut older = view.range((Bound::Included(least), upper)).peekable();
        while !page.is_full() {
            let old_key = match older.peek() {
                Some(Ok((key, _))) => Some(key),
                Some(Err(_)) => None,
                None if newer.peek().is_none() => {
                    return Ok(last.map(Bound::Excluded));
                }
                None => None,
            };
            let take_newer = match (newer.peek(), old_key) {
                (Some((new, _)), Some(old)) => new.as_slice() <= old.as_ref(),
                (Some(_), None) => older.peek().is_none(),
                (None, _) => false,
            };
            if take_newer {
                if let Some((key, value)) = newer.next() {
                    // The bulk row of the same key is out of date.
                    older.next_if(|row| matches!(row, Ok((old, _)) if **old == *key));
                    if let Some(value) = value {
                        page.push(key, value);
                    }
                }
            } else if let Some(row) = older.next() {
                let (key, value) = row?;
                page.push(key.to_vec(), value.to_vec());
            }
        }
        Ok(None)
    }
}
