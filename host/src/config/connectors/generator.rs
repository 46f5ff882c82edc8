//! The table of a source that makes its records.

use std::ops::RangeInclusive;
use std::time::{Duration, UNIX_EPOCH};

use toml::de::DeValue;

use crate::config::connectors::partition_names;
use crate::config::connectors::sources::SOURCE_PARTITIONS_MAX;
use crate::config::fields::Fields;
use crate::config::tables::Tables;
use crate::types::batch::Timestamp;
use crate::types::connectors::{GeneratedRecords, GeneratorOptions};
use crate::types::pipeline::{OnFailure, SourceConnector, SourceOptions};

/// The most records that may be asked for in a second.
const RATE_MAX: u64 = 100_000_000;

/// The most records in all, and the greatest seed: what a TOML number holds.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// The most keys: more are not told apart where they are drawn unevenly.
const KEYS_MAX: u64 = 1 << 40;

/// The greatest exponent by which keys are drawn.
const SKEW_MAX: f64 = 10.0;

/// The largest payload that may be asked for, in bytes.
const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

/// Between the event times of two records, and by how much they may be out of order.
const EVENT_TIMES: RangeInclusive<Duration> =
    Duration::ZERO..=Duration::from_secs(365 * 24 * 3_600);

/// Event time of the first record where the pipeline file does not say: 2024-01-01T00:00:00Z.
const EVENT_TIME_START_DEFAULT: Timestamp = 1_704_067_200_000;

/// From one record to the next where nothing says how many there are in a second, in nanoseconds.
const EVENT_TIME_STEP_NS_DEFAULT: u64 = 1_000_000;

impl Tables<'_> {
    pub(super) fn generator(&self, fields: &mut Fields<'_>) -> Option<SourceOptions> {
        let rate = fields.number("rate", 1..=RATE_MAX).map(|it| it.value);
        let count = fields.number("count", 0..=NUMBER_MAX).map(|it| it.value);
        let partitions = fields.number("partitions", 1..=SOURCE_PARTITIONS_MAX as u64);
        let partitions = partitions.map_or(1, |it| it.value as u32);
        let keys = fields.number("keys", 1..=KEYS_MAX).map(|it| it.value);
        let skew = fields.decimal("skew", 0.0..=SKEW_MAX).map(|it| it.value);
        let start = self.event_time_start(fields);
        let step = fields.duration("event_time_step", EVENT_TIMES);
        let step_ns = step.map(|it| it.value.as_nanos() as u64);
        let jitter = fields.duration("jitter", EVENT_TIMES);
        let payload_bytes = fields.size("payload_bytes", 0..=PAYLOAD_BYTES_MAX);
        let seed = fields.number("seed", 0..=NUMBER_MAX).map(|it| it.value);
        let watermarks = self.watermarks(fields);
        self.no_on_failure(fields);
        let by_rate = rate.map(|rate| 1_000_000_000 / rate);
        let records = GeneratedRecords {
            partitions,
            keys: keys.unwrap_or(GeneratorOptions::KEYS_DEFAULT),
            skew: skew.unwrap_or(0.0),
            event_time_start: start.unwrap_or(EVENT_TIME_START_DEFAULT),
            event_time_step_ns: step_ns.or(by_rate).unwrap_or(EVENT_TIME_STEP_NS_DEFAULT),
            jitter_ms: jitter.map_or(0, |it| it.value.as_millis() as u64),
            payload_bytes: payload_bytes.map_or(0, |it| it.value as usize),
            seed: seed.unwrap_or(0),
        };
        let partition = |(partition, partition_name)| {
            SourceConnector::Generator(GeneratorOptions {
                partition,
                partition_name,
                rate,
                count,
                records: records.clone(),
            })
        };
        Some(SourceOptions {
            partitions: partition_names(partitions).map(partition).collect(),
            // They are made at once.
            parallel_partitions: Some(partitions as usize),
            watermarks,
            on_failure: OnFailure::Fail,
            line: fields.line,
        })
    }

    /// Every record that it makes can be decoded.
    fn no_on_failure(&self, fields: &mut Fields<'_>) {
        if let Some(written) = fields.raw("on_failure") {
            let message = format!(
                "{} makes its records, and none of them can fail to be decoded",
                fields.what
            );
            self.report.error(
                written.line,
                message,
                "remove on_failure, or write it with the computations that read them",
            );
        }
    }

    /// A moment of TOML, with its distance to UTC.
    fn event_time_start(&self, fields: &mut Fields<'_>) -> Option<Timestamp> {
        let written = fields.raw("event_time_start")?;
        let moment = match written.value {
            DeValue::Datetime(moment) => humantime::parse_rfc3339(&moment.to_string()).ok(),
            _ => None,
        };
        let since = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
        let since = since.map(|since| since.as_millis() as Timestamp);
        let since = since.filter(|since| *since > 0);
        if since.is_none() {
            let message = format!(
                "event_time_start of {} is no moment after 1970",
                fields.what
            );
            let remedy = "write it in UTC and without quotes, as in 2024-01-01T00:00:00Z";
            self.report.error(written.line, message, remedy);
        }
        since
    }
}
