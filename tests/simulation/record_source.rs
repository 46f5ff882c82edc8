//! A source in memory: numbered records, a position to seek, and polls that are sometimes short.

use tidelock::source::{
    PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords,
};

use tidelock::types::batch::Timestamp;

use crate::random::Random;

/// First byte of an encoded position.
const POSITION_FORMAT: u8 = 1;

/// Records `next..end` of one source.
pub(crate) struct RecordSource {
    source: usize,
    next: u64,
    end: u64,
    random: Random,
}

impl RecordSource {
    /// Opens the source at a position, or at its beginning, where it has `end` records.
    pub(crate) fn open(
        source: usize,
        position: Option<&[u8]>,
        end: u64,
        random: Random,
    ) -> RecordSource {
        RecordSource {
            source,
            next: position.map_or(0, decode),
            end,
            random,
        }
    }
}

/// A source's record.
pub(crate) fn record(source: usize, number: u64) -> Vec<u8> {
    format!("s{source}.{number}").into_bytes()
}

impl Source for RecordSource {
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        let rows = match self.random.chance(20) {
            true => self.random.within(0..=limit.rows),
            false => limit.rows,
        };
        let mut size_bytes = 0;
        for taken in 0..rows {
            if self.next == self.end {
                return Ok(PollOutcome::End);
            }
            let record = record(self.source, self.next);
            size_bytes += record.len();
            if taken > 0 && size_bytes > limit.bytes {
                break;
            }
            records.payloads.push(&record);
            records.write_times.push(self.write_time());
            self.next += 1;
            records.lines.push(self.next);
        }
        Ok(PollOutcome::More)
    }

    fn position(&self) -> Vec<u8> {
        let mut position = vec![POSITION_FORMAT];
        position.extend(self.next.to_be_bytes());
        position
    }

    fn write_time(&self) -> Timestamp {
        self.next
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress {
            done_bytes: self.next,
            total_bytes: Some(self.end),
        }
    }
}

fn decode(position: &[u8]) -> u64 {
    let number = position
        .strip_prefix(&[POSITION_FORMAT])
        .expect("it is a position of ours");
    u64::from_be_bytes(number.try_into().expect("a position holds one number"))
}
