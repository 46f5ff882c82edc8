//! Sources: where records come from. One file per connector.

pub mod file;

use crate::types::column::Column;

/// A stream of records with a position that can be stored and sought.
pub trait Source: Send {
    /// Appends the next records to `records`, at most `limit`, and moves the position behind them.
    ///
    /// # Errors
    ///
    /// When the source can't be read, or a record can't be decoded; the position then stands
    /// before that record.
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError>;

    /// The position behind the last record that `poll` returned, encoded with a format version.
    fn position(&self) -> Vec<u8>;

    /// How far the source is, for those who watch.
    fn progress(&self) -> SourceProgress;
}

/// How much one poll may return. The first record is returned whatever its size.
#[derive(Debug, Clone, Copy)]
pub struct PollLimit {
    /// Records.
    pub rows: usize,
    /// Bytes of payload.
    pub bytes: usize,
}

/// Whether more is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollOutcome {
    /// There may be more.
    More,
    /// The source is finite and at its end.
    End,
}

/// Records as columns. A source record's key is empty and its event time 0 until options say more.
#[derive(Debug, Clone, Default)]
pub struct SourceRecords {
    /// The records.
    pub payloads: Column,
    /// Where each record begins: its line in the (decompressed) file, from 1.
    pub lines: Vec<u64>,
}

/// How far a source is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceProgress {
    /// Bytes read since the source's beginning, in the units of `total_bytes`.
    pub done_bytes: u64,
    /// Bytes in all, where that is known.
    pub total_bytes: Option<u64>,
}

/// A source could not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {}
