//! Typed reads of pending timers, over any [`Storage`].

use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::{self, KeyRange, TimerKey};
use crate::storage::{Storage, StorageError, StoredRow, timer_codec};
use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::ids::PartitionId;
use crate::types::timer::TimerTimes;

/// Streams that have pending timers, read at a time. As many as a component may declare and some.
const STREAMS_PER_SCAN: usize = 1_024;

/// A stream that has pending timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingStream {
    /// Its name.
    pub stream: String,
    /// The clock that it goes by.
    pub domain: TimeDomain,
    /// How many timers are pending, at least 1.
    pub pending: u64,
}

/// Visits a partition's pending timers of one clock in the order in which they fire, from `from` on if
/// given, as many as `limit` says. Whether there may be more.
///
/// # Errors
///
/// When the store fails or a row does not decode.
pub fn scan_timers(
    storage: &dyn Storage,
    partition: PartitionId,
    domain: TimeDomain,
    from: Option<&TimerKey<'_>>,
    limit: ScanLimit,
    mut visit: impl FnMut(TimerKey<'_>, TimerTimes),
) -> Result<bool, StorageError> {
    let mut range = timer_keys::timers_of(partition, domain);
    if let Some(from) = from {
        timer_keys::write_timer(&mut range.0, partition, from);
    }
    scan(storage, &range, limit, |key, value| {
        let timer = timer_keys::parse_timer(key).ok_or_else(|| unknown_key(partition, key))?;
        visit(timer, timer_codec::decode_timer(partition, &timer, value)?);
        Ok(())
    })
}

/// Visits the rows by which a partition's timers hold its output watermark (see [`TimerTimes::hold`]), the
/// earliest moment first, from `from` on if given, as many as `limit` says. Whether there may be more.
///
/// # Errors
///
/// When the store fails or a row does not decode.
pub fn scan_timer_holds(
    storage: &dyn Storage,
    partition: PartitionId,
    from: Option<(Timestamp, &TimerKey<'_>)>,
    limit: ScanLimit,
    mut visit: impl FnMut(Timestamp, TimerKey<'_>),
) -> Result<bool, StorageError> {
    let mut range = timer_keys::timer_holds_of(partition);
    if let Some((moment, timer)) = from {
        timer_keys::write_timer_hold(&mut range.0, partition, moment, timer);
    }
    scan(storage, &range, limit, |key, value| {
        let parsed = timer_keys::parse_timer_hold(key);
        let (moment, timer) = parsed.ok_or_else(|| unknown_key(partition, key))?;
        timer_codec::check_timer_hold(partition, value)?;
        visit(moment, timer);
        Ok(())
    })
}

fn scan(
    storage: &dyn Storage,
    (start, end): &KeyRange,
    limit: ScanLimit,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), StorageError>,
) -> Result<bool, StorageError> {
    let rows = storage.scan(start, end, limit)?;
    let size = |(key, value): &StoredRow| key.len() + value.len();
    let size_bytes: usize = rows.iter().map(size).sum();
    for (key, value) in &rows {
        visit(key, value)?;
    }
    let is_full = rows.len() >= limit.rows || size_bytes >= limit.bytes;
    Ok(is_full && !rows.is_empty())
}

/// The times of timers, in the order of `timers`; `None` for one that is not pending. Of a timer that goes by
/// the system's clock stream and key are enough.
///
/// # Errors
///
/// When the store fails or a row does not decode.
pub fn read_timers(
    storage: &dyn Storage,
    partition: PartitionId,
    timers: &[TimerKey<'_>],
) -> Result<Vec<Option<TimerTimes>>, StorageError> {
    let key = |timer: &TimerKey<'_>| {
        let mut key = Vec::new();
        match timer.domain {
            TimeDomain::EventTime => timer_keys::write_timer(&mut key, partition, timer),
            TimeDomain::SystemTime => {
                timer_keys::write_system_timer(&mut key, partition, timer.stream, timer.key);
            }
        }
        key
    };
    let keys: Vec<Vec<u8>> = timers.iter().map(key).collect();
    let values = storage.get_many(&keys)?;
    let decode = |(timer, value): (&TimerKey<'_>, Option<Vec<u8>>)| {
        let decode = |value: Vec<u8>| match timer.domain {
            TimeDomain::EventTime => timer_codec::decode_timer(partition, timer, &value),
            TimeDomain::SystemTime => {
                timer_codec::decode_system_timer(partition, timer.stream, &value)
            }
        };
        value.map(decode).transpose()
    };
    timers.iter().zip(values).map(decode).collect()
}

/// The streams of which the partition has pending timers, names rising.
///
/// # Errors
///
/// When the store fails or a row does not decode.
pub fn pending_streams(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<Vec<PendingStream>, StorageError> {
    let mut range = timer_keys::timer_streams_of(partition);
    let mut streams: Vec<PendingStream> = Vec::new();
    loop {
        let has_more = scan(
            storage,
            &range,
            ScanLimit::rows(STREAMS_PER_SCAN),
            |key, value| {
                let stream = timer_keys::parse_timer_stream(key);
                let stream = stream.ok_or_else(|| unknown_key(partition, key))?;
                let (domain, pending) = timer_codec::decode_stream(partition, stream, value)?;
                streams.push(PendingStream {
                    stream: stream.to_owned(),
                    domain,
                    pending,
                });
                Ok(())
            },
        )?;
        match streams.last() {
            Some(last) if has_more => {
                // The least key behind the last one.
                range.0 = timer_keys::timer_stream(partition, &last.stream);
                range.0.push(0);
            }
            _ => return Ok(streams),
        }
    }
}

fn unknown_key(partition: PartitionId, key: &[u8]) -> StorageError {
    StorageError::Undecodable {
        what: format!("the key of a timer of partition {partition}"),
        finding: format!("it is {}", key.escape_ascii()),
    }
}
