//! The kinds of bulk rows, for those who count them.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::storage::scan::ScanLimit;
use crate::storage::{StorageError, StoreSnapshot, keys};

/// Bytes of rows that are read at a time.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// What the rows of a prefix are called, one for each that this release knows.
const NAMES: [(u8, &str); 20] = [
    (keys::STORE_ID, "store id"),
    (keys::ENTRY, "staged epochs"),
    (keys::APPLIED, "applied heads"),
    (keys::SOURCE_POSITION, "source positions"),
    (keys::FRONTIER, "frontiers"),
    (keys::STATE, "states"),
    (keys::CHUNK, "chunks of lanes"),
    (keys::EPOCH_RECORD, "epoch records"),
    (keys::SINK_LENGTH, "sink file lengths"),
    (keys::DECISIONS_MARK, "mark of the catalog"),
    (keys::SET_ASIDE, "epochs set aside"),
    (keys::TIMER, "timers"),
    (keys::TIMER_HOLD, "timers that hold the watermark"),
    (keys::SYSTEM_TIMER, "timers of the system's clock"),
    (keys::TIMER_STREAM, "streams of timers"),
    (keys::SOURCE_MARK, "marks of sources"),
    (keys::SINK_PROGRESS, "progress of sinks"),
    (keys::QUEUE_ROWS, "rows of queues"),
    (keys::QUEUE_BOUNDS, "bounds of queues"),
    (keys::DEAD_LETTER, "dead letters"),
];

/// What the rows of a prefix are called; `None` for one that this release does not know.
pub fn kind_name(prefix: u8) -> Option<&'static str> {
    let known = NAMES.iter().find(|(known, _)| *known == prefix);
    known.map(|(_, name)| *name)
}

/// How many rows of one kind there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindSize {
    /// What they are.
    pub kind: String,
    /// How many.
    pub rows: u64,
    /// Bytes of their keys and values, as they are before the store compresses them.
    pub bytes: u64,
}

/// Rows of each kind, those met so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Prefix, rows, bytes.
    counts: Vec<(u8, u64, u64)>,
    rows: u64,
}

impl KindCounts {
    /// One more row. Those of one kind come together.
    pub(super) fn add(&mut self, key: &[u8], value_len: usize) {
        let prefix = key.first().copied().unwrap_or(u8::MAX);
        if self.counts.last().is_none_or(|(last, ..)| *last != prefix) {
            self.counts.push((prefix, 0, 0));
        }
        if let Some((_, rows, bytes)) = self.counts.last_mut() {
            *rows += 1;
            *bytes += (key.len() + value_len) as u64;
        }
        self.rows += 1;
    }

    /// Rows of all kinds.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// A line for each kind.
    pub fn sizes(&self) -> Vec<KindSize> {
        let size = |&(prefix, rows, bytes): &(u8, u64, u64)| KindSize {
            kind: kind_name(prefix)
                .map_or_else(|| format!("unknown ({prefix:02x})"), str::to_owned),
            rows,
            bytes,
        };
        self.counts.iter().map(size).collect()
    }
}

/// Counts all bulk rows. `observe` is told now and then how many there are so far, and about how many in all;
/// it stops where the answer is to break.
///
/// # Errors
///
/// When the store fails.
pub fn count_rows(
    snapshot: &dyn StoreSnapshot,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<KindCounts, StorageError> {
    let total = snapshot.approximate_rows();
    let mut counts = KindCounts::default();
    let mut start = Vec::new();
    let limit = ScanLimit {
        rows: usize::MAX,
        bytes: PAGE_BYTES,
    };
    loop {
        let page = snapshot.scan(&start, limit)?;
        let Some((last, _)) = page.last() else {
            return Ok(counts);
        };
        // The least key behind another one is that key and a zero byte.
        start = [last, [0].as_slice()].concat();
        for (key, value) in &page {
            counts.add(key, value.len());
        }
        if observe(counts.rows(), total.max(counts.rows())).is_break() {
            return Ok(counts);
        }
    }
}
