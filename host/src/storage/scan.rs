//! How much a scan returns: so many rows, and so many bytes.

use crate::storage::StoredRow;

/// How much one scan returns at most. It ends with the row with which it has so many rows or so many
/// bytes: it goes past `bytes` by less than one row, and finds a row whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimit {
    /// Rows.
    pub rows: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

impl ScanLimit {
    /// So many rows, whatever their size.
    pub fn rows(rows: usize) -> ScanLimit {
        ScanLimit {
            rows,
            bytes: usize::MAX,
        }
    }
}

/// What a scan has found so far.
#[derive(Debug)]
pub(crate) struct ScanPage {
    limit: ScanLimit,
    rows: Vec<StoredRow>,
    size_bytes: usize,
}

impl ScanPage {
    /// A page without rows.
    pub(crate) fn new(limit: ScanLimit) -> ScanPage {
        ScanPage {
            limit,
            rows: Vec::new(),
            size_bytes: 0,
        }
    }

    /// Whether the scan has ended.
    pub(crate) fn is_full(&self) -> bool {
        let has_bytes = !self.rows.is_empty() && self.size_bytes >= self.limit.bytes;
        has_bytes || self.rows.len() >= self.limit.rows
    }

    /// Whether it has no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.size_bytes += key.len() + value.len();
        self.rows.push((key, value));
    }

    /// The rows.
    pub(crate) fn into_rows(self) -> Vec<StoredRow> {
        self.rows
    }
}
