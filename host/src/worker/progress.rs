//! Counters that jobs raise and others look at: how much was read, emitted and committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::SourceProgress;

/// Counters of one run, shared by its jobs and whoever shows them.
#[derive(Debug, Clone, Default)]
pub struct RunProgress {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    source_records: AtomicU64,
    source_done_bytes: AtomicU64,
    source_total_bytes: AtomicU64,
    epochs: AtomicU64,
    messages: AtomicU64,
    sink_rows: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct ProgressReading {
    /// Records read from sources and committed.
    pub source_records: u64,
    /// Bytes of the sources read so far, in the units of `source_total_bytes`.
    pub source_done_bytes: u64,
    /// Bytes of the sources in all.
    pub source_total_bytes: u64,
    /// Epochs committed by all jobs.
    pub epochs: u64,
    /// Messages that epochs put into lanes and sinks.
    pub messages: u64,
    /// Rows given to sinks.
    pub sink_rows: u64,
}

impl RunProgress {
    /// A source is about to be read from where it stands.
    pub fn source_opened(&self, progress: SourceProgress) {
        let total = progress.total_bytes.unwrap_or(0);
        self.counters
            .source_total_bytes
            .fetch_add(total, Ordering::Relaxed);
        self.counters
            .source_done_bytes
            .fetch_add(progress.done_bytes, Ordering::Relaxed);
    }

    /// An epoch that read from a source was committed.
    pub fn source_advanced(&self, records: u64, done_bytes: u64) {
        self.counters
            .source_records
            .fetch_add(records, Ordering::Relaxed);
        self.counters
            .source_done_bytes
            .fetch_add(done_bytes, Ordering::Relaxed);
    }

    /// An epoch was committed.
    pub fn epoch_committed(&self, messages: u64, sink_rows: u64) {
        self.counters.epochs.fetch_add(1, Ordering::Relaxed);
        self.counters
            .messages
            .fetch_add(messages, Ordering::Relaxed);
        self.counters
            .sink_rows
            .fetch_add(sink_rows, Ordering::Relaxed);
    }

    /// The counters now.
    pub fn read(&self) -> ProgressReading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProgressReading {
            source_records: load(&self.counters.source_records),
            source_done_bytes: load(&self.counters.source_done_bytes),
            source_total_bytes: load(&self.counters.source_total_bytes),
            epochs: load(&self.counters.epochs),
            messages: load(&self.counters.messages),
            sink_rows: load(&self.counters.sink_rows),
        }
    }
}
