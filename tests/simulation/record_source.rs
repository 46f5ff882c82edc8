//! A source in memory: numbered records, a position to seek, and polls that are sometimes short, bring
//! nothing for a while, or fail. It may grow while it is read, until somebody was told its end.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidelock::clock::Clock as _;
use tidelock::source::{
    PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords,
};

use tidelock::types::batch::Timestamp;

use crate::clock::SimulatedClock;
use crate::queues::QUEUE_SOURCE;
use crate::random::Random;

/// After how many polls of a hundred nothing comes for a while.
const QUIET_PERCENT: u64 = 4;
/// For how long at most.
const QUIET_MS_MAX: usize = 60;
/// How many records are written at the same time.
pub(crate) const RECORDS_WRITTEN_TOGETHER: u64 = 3;
/// First byte of an encoded position.
const POSITION_FORMAT: u8 = 1;

/// How many records a source has, shared by all who read it.
#[derive(Debug, Clone)]
pub(crate) struct SourceLength {
    length: Arc<Mutex<Length>>,
    clock: Arc<SimulatedClock>,
}

#[derive(Debug, Default)]
struct Length {
    records: u64,
    is_told: bool,
    /// Whether polls fail now and then.
    is_disturbed: bool,
    has_failed: bool,
    /// Until when nothing comes, by how much time has passed.
    quiet_until: Duration,
    /// Whether it has brought nothing.
    has_waited: bool,
}

impl SourceLength {
    /// A source without records.
    pub(crate) fn new(clock: Arc<SimulatedClock>) -> SourceLength {
        SourceLength {
            length: Arc::default(),
            clock,
        }
    }

    /// Whether it brought nothing, for then, since this was asked last.
    pub(crate) fn take_wait(&self) -> bool {
        std::mem::take(&mut self.length().has_waited)
    }

    /// How many records there are.
    pub(crate) fn records(&self) -> u64 {
        self.length().records
    }

    /// There are `records` more; false if a reader of this run was told the end, so that nobody has to
    /// read them in it.
    pub(crate) fn grow(&self, records: u64) -> bool {
        let mut length = self.length();
        if !length.is_told {
            length.records += records;
        }
        !length.is_told
    }

    /// Whether a reader of this run was told the end.
    pub(crate) fn is_told(&self) -> bool {
        self.length().is_told
    }

    /// The readers of this run know its end.
    pub(crate) fn tell_end(&self) {
        self.length().is_told = true;
    }

    /// From here on polls fail now and then, or no longer.
    pub(crate) fn set_disturbed(&self, is_disturbed: bool) {
        self.length().is_disturbed = is_disturbed;
    }

    /// Whether a poll has failed since this was asked last.
    pub(crate) fn take_failure(&self) -> bool {
        std::mem::take(&mut self.length().has_failed)
    }

    /// Another run begins: nobody in it knows the end.
    pub(crate) fn forget_end(&self) {
        self.length().is_told = false;
    }

    /// What a poll comes to that brings nothing for now, or fails.
    pub(crate) fn disturb(&self, random: &mut Random) -> Option<Result<PollOutcome, SourceError>> {
        let mut length = self.length();
        if length.is_disturbed && random.chance(2) {
            length.has_failed = true;
            return Some(Err(SourceError::Open {
                path: PathBuf::from("simulated"),
                source: io::Error::other("the simulation has it fail"),
            }));
        }
        let elapsed = self.clock.elapsed();
        if elapsed >= length.quiet_until && random.chance(QUIET_PERCENT) {
            let quiet_for = random.within(1..=QUIET_MS_MAX) as u64;
            length.quiet_until = elapsed + Duration::from_millis(quiet_for);
        }
        if elapsed < length.quiet_until {
            length.has_waited = true;
            return Some(Ok(PollOutcome::Wait));
        }
        None
    }

    fn length(&self) -> MutexGuard<'_, Length> {
        self.length.lock().expect("nobody panics with it")
    }
}

/// Which partition of which source, as indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourcePart {
    /// The source.
    pub(crate) source: usize,
    /// The partition.
    pub(crate) partition: usize,
}

/// The records of one partition of a source, from `next` on.
pub(crate) struct RecordSource {
    part: SourcePart,
    next: u64,
    length: SourceLength,
    random: Random,
}

impl RecordSource {
    /// Opens the source at a position, or at its beginning.
    pub(crate) fn open(
        part: SourcePart,
        position: Option<&[u8]>,
        length: SourceLength,
        random: Random,
    ) -> RecordSource {
        RecordSource {
            part,
            next: position.map_or(0, decode),
            length,
            random,
        }
    }
}

/// A source's record.
pub(crate) fn record(part: SourcePart, number: u64) -> Vec<u8> {
    let SourcePart { source, partition } = part;
    format!("s{source}p{partition}.{number}").into_bytes()
}

/// Where the record was read that a message goes back to.
pub(crate) fn part_of(payload: &[u8]) -> SourcePart {
    record_of(payload).0
}

/// The number of the record that a message goes back to.
pub(crate) fn number_of(payload: &[u8]) -> u64 {
    record_of(payload).1
}

fn record_of(payload: &[u8]) -> (SourcePart, u64) {
    let record = payload.split(|byte| *byte == b'/').next();
    let text = record.and_then(|record| std::str::from_utf8(record).ok());
    let numbers = text.and_then(|text| {
        let (part, number) = text.strip_prefix('s')?.split_once('.')?;
        let (source, partition) = part.split_once('p')?;
        let part = SourcePart {
            source: source.parse().ok()?,
            partition: partition.parse().ok()?,
        };
        Some((part, number.parse().ok()?))
    });
    numbers.expect("a payload begins with its record")
}

/// When a record was written: a few at the same time, and some before those that they follow. In a queue none counts
/// as written before those that it follows.
pub(crate) fn write_time(part: SourcePart, number: u64) -> Timestamp {
    if part.source != QUEUE_SOURCE {
        return written_alone(part, number);
    }
    let firsts = (0..=number).step_by(RECORDS_WRITTEN_TOGETHER as usize);
    let times = firsts.map(|first| written_alone(part, first));
    times.max().unwrap_or_default()
}

/// The same whatever records come before it.
pub(crate) fn written_alone(part: SourcePart, number: u64) -> Timestamp {
    let written_together = number / RECORDS_WRITTEN_TOGETHER;
    let seed = written_together * 64 + part.source as u64 * 8 + part.partition as u64;
    let spread = Random::new(seed).within(0..=60) as u64;
    100 + written_together * 10 + spread
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
        if let Some(disturbed) = self.length.disturb(&mut self.random) {
            return disturbed;
        }
        let mut length = self.length.length();
        let mut size_bytes = 0;
        for taken in 0..rows {
            if self.next == length.records {
                length.is_told = true;
                return Ok(PollOutcome::End);
            }
            let record = record(self.part, self.next);
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
        write_time(self.part, self.next)
    }

    fn progress(&self) -> SourceProgress {
        SourceProgress {
            done_bytes: self.next,
            total_bytes: Some(self.length.records()),
        }
    }
}

fn decode(position: &[u8]) -> u64 {
    let number = position
        .strip_prefix(&[POSITION_FORMAT])
        .expect("it is a position of ours");
    u64::from_be_bytes(number.try_into().expect("a position holds one number"))
}
