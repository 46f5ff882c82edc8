//! The generator: a source that makes its records, for load tests. Record `i` of a partition follows from the
//! options and from `i` alone, on every machine, whatever was read before and however fast.
//!
//! It keeps to a rate by the time that it is told (`pace.rs`). Keys may be drawn unevenly (`zipf.rs`).

mod pace;
mod zipf;

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use crate::source::generator::pace::Pace;
use crate::source::generator::zipf::Zipf;
use crate::source::{
    OnChange, PartitionReading, PollLimit, PollOutcome, Source, SourceError, SourceProgress,
    SourceRecords, numbered,
};
use crate::types::batch::Timestamp;
use crate::types::connectors::{GeneratedRecords, GeneratorOptions};
use crate::types::epoch::Checksum;
use crate::types::format_version::unknown_version;

/// First byte of an encoded position: no other connector's.
pub(super) const POSITION_TAG: u8 = b'g';

/// Second byte of an encoded position.
const FORMAT_VERSION: u8 = 1;

/// The numbers in payloads are below this.
const NUMBERS: u64 = 1_000_000;

/// The most that one poll returns, in bytes, whatever its limit says: a column holds less than 4 GiB.
const POLL_BYTES_MAX: usize = 1 << 30;

/// See the module's documentation.
#[derive(Debug)]
pub struct GeneratorSource {
    options: GeneratorOptions,
    /// How many records the partition has; `None` for no end.
    count: Option<u64>,
    /// Where keys are not drawn evenly.
    zipf: Option<Zipf>,
    pace: Option<Pace>,
    /// The number of the next record.
    next: u64,
    /// Bytes of payload since it was opened.
    done_bytes: u64,
}

/// A position as it is stored.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct GeneratorPosition {
    partition: u32,
    next: u64,
    records: GeneratedRecords,
}

/// What the partitions of a generator have in common.
pub fn describe_kind(options: &GeneratorOptions) -> String {
    match options.records.partitions {
        1 => "generator".to_owned(),
        partitions => format!("generator of {partitions} partitions"),
    }
}

/// What a committed position says, without opening the source: `like` is any partition of it.
///
/// # Errors
///
/// When it can't be decoded.
pub fn read_position(
    like: &GeneratorOptions,
    name: &str,
    encoded: &[u8],
) -> Result<PartitionReading, SourceError> {
    let position = GeneratorPosition::decode(name, encoded)?;
    let of_position = GeneratorOptions {
        partition: position.partition,
        records: position.records,
        ..like.clone()
    };
    Ok(PartitionReading {
        is_at_end: (of_position.partition_count()).is_some_and(|count| position.next >= count),
        is_recognizable: false,
        passed_bytes: position.next,
        content: Checksum::default(),
        passed: format!("{} records of it read", position.next),
    })
}

impl GeneratorSource {
    /// Opens a partition behind what was read of it.
    ///
    /// # Errors
    ///
    /// When the position can't be decoded or, with [`OnChange::Refuse`], other options gave what was read.
    pub fn open(
        options: &GeneratorOptions,
        position: Option<&[u8]>,
        on_change: OnChange,
    ) -> Result<GeneratorSource, SourceError> {
        let mut next = 0;
        if let Some(encoded) = position {
            let position = GeneratorPosition::decode(&options.partition_name, encoded)?;
            let difference = difference(&position.records, &options.records);
            match difference {
                None => next = position.next,
                Some((was, now)) if on_change == OnChange::Refuse => {
                    return Err(SourceError::OptionsChanged { was, now });
                }
                Some(_) => {}
            }
        }
        let records = &options.records;
        let rate = options.rate;
        let pace = rate.map(|rate| Pace::new(rate, options.partition, records.partitions));
        Ok(GeneratorSource {
            count: options.partition_count(),
            zipf: (records.skew > 0.0).then(|| Zipf::new(records.keys, records.skew)),
            pace,
            next,
            done_bytes: 0,
            options: options.clone(),
        })
    }

    /// How many records may be taken now.
    fn available(&self) -> u64 {
        let left = self
            .count
            .map_or(u64::MAX, |count| count.saturating_sub(self.next));
        let pace = self.pace.as_ref();
        left.min(pace.map_or(u64::MAX, |pace| pace.due(self.next)))
    }

    fn is_at_end(&self) -> bool {
        self.count.is_some_and(|count| self.next >= count)
    }

    /// When a record comes about that has no jitter: what it was written at.
    fn time_of(&self, number: u64) -> Timestamp {
        let records = &self.options.records;
        let place = u128::from(number) * u128::from(records.partitions)
            + u128::from(self.options.partition);
        let passed_ms = place * u128::from(records.event_time_step_ns) / 1_000_000;
        let passed_ms = u64::try_from(passed_ms).unwrap_or(u64::MAX);
        records.event_time_start.saturating_add(passed_ms)
    }

    /// Appends record `number`; its size in bytes.
    fn make(&self, number: u64, records: &mut SourceRecords) -> usize {
        let options = &self.options.records;
        let mut name = [0; 20];
        name[..8].copy_from_slice(&options.seed.to_le_bytes());
        name[8..12].copy_from_slice(&self.options.partition.to_le_bytes());
        name[12..].copy_from_slice(&number.to_le_bytes());
        let drawn = xxh3_128(&name);
        let (for_key, for_rest) = (drawn as u64, (drawn >> 64) as u64);
        let key = match &self.zipf {
            None => below(for_key, options.keys),
            Some(zipf) => {
                zipf.draw(|attempt| match attempt {
                    0 => fraction(for_key),
                    attempt => fraction(xxh3_64_with_seed(&name, attempt)),
                }) - 1
            }
        };
        let value = below(for_rest << 32, NUMBERS);
        let jitter = below(for_rest & !0xffff_ffff, options.jitter_ms.saturating_add(1));
        let write_time = self.time_of(number);
        let event_time = write_time.saturating_sub(jitter).max(1);

        written(write!(records.keys.bytes, "key-{key}"));
        records.keys.ends.push(end_of(&records.keys.bytes));
        let payload = &mut records.payloads.bytes;
        let start = payload.len();
        let partition = self.options.partition;
        written(write!(
            payload,
            "{{\"partition\":{partition},\"sequence\":{number},\"key\":\"key-{key}\",\
             \"amount\":{value},\"event_time\":{event_time}"
        ));
        // Behind the closing brace nothing follows.
        let size_bytes = payload.len() - start + 1;
        const PADDING: &[u8] = b",\"padding\":\"";
        if size_bytes < options.payload_bytes {
            payload.extend_from_slice(PADDING);
            let padding = options
                .payload_bytes
                .saturating_sub(size_bytes + PADDING.len() + 1);
            payload.resize(payload.len() + padding, b'x');
            payload.push(b'"');
        }
        payload.push(b'}');
        let size_bytes = payload.len() - start;
        records.payloads.ends.push(end_of(&records.payloads.bytes));
        records.event_times.push(event_time);
        records.lines.push(number);
        records.write_times.push(write_time);
        size_bytes
    }
}

impl Source for GeneratorSource {
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        let available = self.available().min(limit.rows as u64);
        let limit_bytes = limit.bytes.min(POLL_BYTES_MAX);
        let mut taken_bytes = 0;
        for _ in 0..available {
            if taken_bytes >= limit_bytes {
                break;
            }
            taken_bytes += self.make(self.next, records);
            self.next += 1;
        }
        self.done_bytes += taken_bytes as u64;
        Ok(match self.is_at_end() {
            true => PollOutcome::End,
            false if self.available() == 0 => PollOutcome::Wait,
            false => PollOutcome::More,
        })
    }

    fn position(&self) -> Vec<u8> {
        let position = GeneratorPosition {
            partition: self.options.partition,
            next: self.next,
            records: self.options.records.clone(),
        };
        let encoded = postcard::to_extend(&position, vec![POSITION_TAG, FORMAT_VERSION]);
        encoded.expect("a position is numbers only, which always encode")
    }

    fn tell_time(&mut self, elapsed: Duration) {
        if let Some(pace) = &mut self.pace {
            pace.tell(elapsed, self.next);
        }
    }

    fn wait_at_most(&self) -> Option<Duration> {
        self.pace.as_ref().map(|pace| pace.wait(self.next))
    }

    fn locate(&self, lines: &RangeInclusive<u64>) -> String {
        numbered("record", lines)
    }

    fn write_time(&self) -> Timestamp {
        self.time_of(self.next)
    }

    fn progress(&self) -> SourceProgress {
        let average = self.done_bytes.checked_div(self.next).unwrap_or(0);
        SourceProgress {
            done_bytes: self.done_bytes,
            // About: payloads differ in length.
            total_bytes: (self.count.filter(|_| self.next > 0))
                .map(|count| average.saturating_mul(count).max(self.done_bytes)),
        }
    }
}

impl GeneratorPosition {
    fn decode(name: &str, encoded: &[u8]) -> Result<GeneratorPosition, SourceError> {
        let undecodable = |finding: String| SourceError::UndecodablePosition {
            path: PathBuf::from(name),
            finding,
        };
        match encoded {
            [POSITION_TAG, FORMAT_VERSION, rest @ ..] => match postcard::take_from_bytes(rest) {
                Ok((position, [])) => Ok(position),
                Ok((_, rest)) => Err(undecodable(format!("{} bytes too many", rest.len()))),
                Err(error) => Err(undecodable(error.to_string())),
            },
            [POSITION_TAG, version, ..] => {
                Err(undecodable(unknown_version(*version, FORMAT_VERSION)))
            }
            _ => Err(undecodable("it is none of a generator".to_owned())),
        }
    }
}

/// What differs between two ways to make records, in words.
fn difference(was: &GeneratedRecords, now: &GeneratedRecords) -> Option<(String, String)> {
    let named = |records: &GeneratedRecords| {
        [
            ("partitions", records.partitions.to_string()),
            ("keys", records.keys.to_string()),
            ("skew", records.skew.to_string()),
            ("event_time_start", records.event_time_start.to_string()),
            (
                "event_time_step",
                format!("{} ns", records.event_time_step_ns),
            ),
            ("jitter", format!("{} ms", records.jitter_ms)),
            ("payload_bytes", records.payload_bytes.to_string()),
            ("seed", records.seed.to_string()),
        ]
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for ((name, was), (_, now)) in named(was).into_iter().zip(named(now)) {
        if was != now {
            before.push(format!("{name} {was}"));
            after.push(format!("{name} {now}"));
        }
    }
    (was != now).then(|| (before.join(", "), after.join(", ")))
}

/// One of `count` numbers from 0 on.
fn below(drawn: u64, count: u64) -> u64 {
    ((u128::from(drawn) * u128::from(count)) >> 64) as u64
}

/// From 0 to below 1, in steps that a fraction can hold.
fn fraction(drawn: u64) -> f64 {
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

fn written(result: std::io::Result<()>) {
    result.expect("memory takes all that is written to it");
}

fn end_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("polls are bounded far below 4 GiB")
}

#[cfg(test)]
pub(super) mod tests;
