//! The bytes of queue rows: in staged epochs, and as they are stored.

use crate::storage::codec::{Fields, Finding, len_u32, put_column, put_u32, put_u64, put_u64s};
use crate::types::epoch::EpochCommit;
use crate::types::queue::QueueRows;

/// Appends rows: how many, the write time, then the columns.
pub(super) fn put_queue_rows(buffer: &mut Vec<u8>, rows: &QueueRows) {
    put_u32(buffer, len_u32(rows.len()));
    put_u64(buffer, rows.write_time);
    put_column(buffer, &rows.keys);
    put_u64s(buffer, &rows.event_times);
    put_column(buffer, &rows.payloads);
}

impl Fields<'_> {
    /// Rows as [`put_queue_rows`] writes them.
    pub(super) fn queue_rows(&mut self) -> Result<QueueRows, Finding> {
        let count = self.count(16)?;
        let write_time = self.u64()?;
        Ok(QueueRows {
            keys: self.column(count)?,
            event_times: self.u64s(count)?,
            payloads: self.column(count)?,
            write_time,
        })
    }
}

/// Whether queue appends can be stored; if not, why.
pub(super) fn check_queue_appends(commit: &EpochCommit) -> Result<(), Finding> {
    for (place, append) in commit.queue_appends.iter().enumerate() {
        let rows = &append.rows;
        let (queue, count) = (append.queue, rows.len());
        if rows.is_empty() || rows.keys.len() != count || rows.payloads.len() != count {
            return Err(format!(
                "the columns of rows for queue partition {queue} have {}, {count} and {} items",
                rows.keys.len(),
                rows.payloads.len()
            ));
        }
        let before = &commit.queue_appends[..place];
        if before.iter().any(|other| other.queue == queue) {
            return Err(format!("it appends to queue partition {queue} twice"));
        }
    }
    Ok(())
}
