//! Makes the watermarks of a source's partition, behind the maps that are chained to it: it sees the
//! event times of what leaves the chain.
//!
//! **Invariant:** where a watermark stands is a property of the records, so many from the start of the run
//! on, never of epochs or batches.

use std::time::Duration;

use crate::types::batch::Timestamp;
use crate::types::epoch::GeneratorTime;
use crate::types::pipeline::WatermarkOptions;

/// What the watermarks of one partition are made by.
#[derive(Debug)]
pub struct WatermarkGenerator {
    out_of_orderness_ms: Timestamp,
    records_per_watermark: u64,
    future_limit_ms: Timestamp,
    time: GeneratorTime,
}

impl WatermarkGenerator {
    /// A generator that goes on from `time`.
    pub fn new(options: &WatermarkOptions, time: GeneratorTime) -> WatermarkGenerator {
        WatermarkGenerator {
            out_of_orderness_ms: milliseconds(options.out_of_orderness_bound),
            records_per_watermark: options.records_per_watermark.max(1),
            future_limit_ms: milliseconds(options.future_limit),
            time,
        }
    }

    /// What its next watermark is made from.
    pub fn time(&self) -> GeneratorTime {
        self.time
    }

    /// How many records the next batch may have at most, so that it ends where a watermark is due.
    pub fn records_left(&self) -> usize {
        let left = (self.records_per_watermark).saturating_sub(self.time.records);
        usize::try_from(left).unwrap_or(usize::MAX).max(1)
    }

    /// Sees the event time of a message whose record was written at `write_time`. Whether it is too far in
    /// the future to be believed (row T3): the message goes on as it is, and moves no watermark.
    pub fn observe(&mut self, event_time: Timestamp, write_time: Timestamp) -> bool {
        if event_time > write_time.saturating_add(self.future_limit_ms) {
            return true;
        }
        self.time.greatest = self.time.greatest.max(event_time);
        false
    }

    /// Counts records. Where a watermark is due, what it comes to; 0 before any event time.
    pub fn count(&mut self, records: usize) -> Option<Timestamp> {
        self.time.records += records as u64;
        if self.time.records < self.records_per_watermark {
            return None;
        }
        self.time.records = 0;
        Some(self.watermark())
    }

    /// The watermark as of now; 0 before any event time.
    pub fn watermark(&self) -> Timestamp {
        self.time.greatest.saturating_sub(self.out_of_orderness_ms)
    }
}

/// A duration as event time counts it.
pub fn milliseconds(duration: Duration) -> Timestamp {
    Timestamp::try_from(duration.as_millis()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(records_per_watermark: u64) -> WatermarkGenerator {
        let options = WatermarkOptions {
            out_of_orderness_bound: Duration::from_millis(10),
            records_per_watermark,
            future_limit: Duration::from_millis(1_000),
            ..WatermarkOptions::default()
        };
        WatermarkGenerator::new(&options, GeneratorTime::default())
    }

    #[test]
    fn t1_a_watermark_stays_the_bound_behind_the_greatest_event_time() {
        let mut generator = generator(2);
        for event_time in [50, 70, 60] {
            assert!(!generator.observe(event_time, 100));
        }
        assert_eq!(generator.count(1), None);
        assert_eq!(generator.count(1), Some(60));
        assert_eq!(generator.records_left(), 2);
    }

    #[test]
    fn t1_records_between_watermarks_are_counted_across_batches_and_jobs() {
        let mut first = generator(5);
        assert_eq!(first.count(3), None);
        let mut successor = generator(5);
        successor.time = first.time();
        assert_eq!(successor.records_left(), 2);
        assert_eq!(successor.count(2), Some(0));
    }

    #[test]
    fn t3_an_event_time_far_in_the_future_moves_no_watermark() {
        let mut generator = generator(1);
        assert!(!generator.observe(500, 400));
        assert!(generator.observe(1_401, 400), "1,001 ms ahead");
        assert_eq!(generator.watermark(), 490);
        assert!(!generator.observe(1_400, 400), "1,000 ms ahead");
        assert_eq!(generator.watermark(), 1_390);
    }

    #[test]
    fn without_event_times_there_is_no_watermark() {
        let mut generator = generator(1);
        assert!(!generator.observe(0, 400));
        assert_eq!(generator.count(1), Some(0));
    }
}
