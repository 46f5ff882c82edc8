//! The keys of a partition's pending timers. A timer is found as it will fire, by the moment at which it
//! holds the output watermark, and, where it goes by the system's clock, by its name.
//!
//! Names of streams hold no zero byte, so the order of keys is that of names and then of keys.

use crate::storage::keys::{
    SYSTEM_TIMER, TIMER, TIMER_HOLD, TIMER_STREAM, key, number_at, prefix_end,
};
use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::ids::PartitionId;

/// The longest key of a timer without stream name and key, in bytes.
pub const TIMER_KEY_BYTES: usize = 1 + 8 + 8 + 1 + 8 + 1;

/// A range of keys: from the first to below the second.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// A timer as its keys name it. In this order the timers of one clock fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerKey<'a> {
    /// Its clock.
    pub domain: TimeDomain,
    /// When it fires.
    pub trigger_time: Timestamp,
    /// The name of its stream.
    pub stream: &'a str,
    /// Its key.
    pub key: &'a [u8],
}

impl<'a> TimerKey<'a> {
    fn push(&self, buffer: &mut Vec<u8>) {
        buffer.push(clock_byte(self.domain));
        buffer.extend_from_slice(&self.trigger_time.to_be_bytes());
        push_name(buffer, self.stream, self.key);
    }

    fn parse(bytes: &'a [u8]) -> Option<TimerKey<'a>> {
        let (clock, rest) = bytes.split_first()?;
        let (trigger_time, name) = rest.split_first_chunk()?;
        let (stream, key) = parse_name(name)?;
        Some(TimerKey {
            domain: clock_of(*clock)?,
            trigger_time: u64::from_be_bytes(*trigger_time),
            stream,
            key,
        })
    }
}

/// Replaces `buffer` by the key of a pending timer.
pub fn write_timer(buffer: &mut Vec<u8>, partition: PartitionId, timer: &TimerKey<'_>) {
    begin(buffer, TIMER, partition);
    timer.push(buffer);
}

/// The timer of such a key.
pub fn parse_timer(key: &[u8]) -> Option<TimerKey<'_>> {
    TimerKey::parse(key.strip_prefix(&[TIMER])?.get(8..)?)
}

/// The range of keys of a partition's pending timers of one clock.
pub fn timers_of(partition: PartitionId, domain: TimeDomain) -> KeyRange {
    let mut start = key(TIMER, [partition.0]);
    start.push(clock_byte(domain));
    let end = prefix_end(&start);
    (start, end)
}

/// Replaces `buffer` by the key of the row by which a timer holds the output watermark at `moment`.
pub fn write_timer_hold(
    buffer: &mut Vec<u8>,
    partition: PartitionId,
    moment: Timestamp,
    timer: &TimerKey<'_>,
) {
    begin(buffer, TIMER_HOLD, partition);
    buffer.extend_from_slice(&moment.to_be_bytes());
    timer.push(buffer);
}

/// Moment and timer of such a key.
pub fn parse_timer_hold(key: &[u8]) -> Option<(Timestamp, TimerKey<'_>)> {
    let timer = key.strip_prefix(&[TIMER_HOLD])?.get(16..)?;
    Some((number_at(key, 9), TimerKey::parse(timer)?))
}

/// The range of keys of all rows by which a partition's timers hold the output watermark.
pub fn timer_holds_of(partition: PartitionId) -> KeyRange {
    let start = key(TIMER_HOLD, [partition.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// Replaces `buffer` by the key of the timer that stands for a key by the system's clock.
pub fn write_system_timer(buffer: &mut Vec<u8>, partition: PartitionId, stream: &str, key: &[u8]) {
    begin(buffer, SYSTEM_TIMER, partition);
    push_name(buffer, stream, key);
}

/// Key of what is known of a stream that has pending timers.
pub fn timer_stream(partition: PartitionId, stream: &str) -> Vec<u8> {
    let mut key = key(TIMER_STREAM, [partition.0]);
    key.extend_from_slice(stream.as_bytes());
    key
}

/// The stream of such a key.
pub fn parse_timer_stream(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(&[TIMER_STREAM])?.get(8..)?).ok()
}

/// The range of keys of all streams of a partition that have pending timers.
pub fn timer_streams_of(partition: PartitionId) -> KeyRange {
    let start = key(TIMER_STREAM, [partition.0]);
    let end = prefix_end(&start);
    (start, end)
}

/// The byte that stands for a clock in keys and values.
pub fn clock_byte(domain: TimeDomain) -> u8 {
    match domain {
        TimeDomain::EventTime => 0,
        TimeDomain::SystemTime => 1,
    }
}

/// The clock that a byte stands for.
pub fn clock_of(byte: u8) -> Option<TimeDomain> {
    match byte {
        0 => Some(TimeDomain::EventTime),
        1 => Some(TimeDomain::SystemTime),
        _ => None,
    }
}

fn begin(buffer: &mut Vec<u8>, prefix: u8, partition: PartitionId) {
    buffer.clear();
    buffer.push(prefix);
    buffer.extend_from_slice(&partition.0.to_be_bytes());
}

fn push_name(buffer: &mut Vec<u8>, stream: &str, key: &[u8]) {
    buffer.extend_from_slice(stream.as_bytes());
    buffer.push(0);
    buffer.extend_from_slice(key);
}

fn parse_name(name: &[u8]) -> Option<(&str, &[u8])> {
    let end = name.iter().position(|byte| *byte == 0)?;
    let stream = std::str::from_utf8(&name[..end]).ok()?;
    Some((stream, &name[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::keys::owner;

    const PARTITION: PartitionId = PartitionId(5);

    fn timer<'a>(trigger_time: Timestamp, stream: &'a str, key: &'a [u8]) -> TimerKey<'a> {
        TimerKey {
            domain: TimeDomain::EventTime,
            trigger_time,
            stream,
            key,
        }
    }

    fn key_of(timer: &TimerKey<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        write_timer(&mut key, PARTITION, timer);
        key
    }

    #[test]
    fn timers_and_their_keys_order_by_trigger_time_then_stream_then_key() {
        let mut rising = [
            timer(255, "b", b""),
            timer(256, "a", b"z"),
            timer(256, "a", b"z\0"),
            timer(256, "ab", b""),
            timer(u64::MAX, "a", b""),
            timer(0, "a", b""),
        ];
        rising[5].domain = TimeDomain::SystemTime;
        assert!(rising.is_sorted_by(|left, right| left < right));
        assert!(rising.is_sorted_by(|left, right| key_of(left) < key_of(right)));
        let (start, end) = timers_of(PARTITION, TimeDomain::EventTime);
        let of_the_clock = |timer: &&TimerKey<'_>| start < key_of(timer) && key_of(timer) < end;
        assert_eq!(rising.iter().filter(of_the_clock).count(), 5);
    }

    #[test]
    fn keys_of_timers_tell_what_they_were_built_from() {
        let quiet = timer(9, "quiet", b"\0k");
        let key = key_of(&quiet);
        assert_eq!(parse_timer(&key), Some(quiet));
        assert_eq!(owner(&key), Some(PARTITION));
        for cut in 0..key.len() - 2 {
            assert_eq!(parse_timer(&key[..cut]), None);
        }
        let mut hold = Vec::new();
        write_timer_hold(&mut hold, PARTITION, 7, &quiet);
        assert_eq!(parse_timer_hold(&hold), Some((7, quiet)));
        assert_eq!(hold.len(), TIMER_KEY_BYTES + "quiet".len() + 2);
        assert_eq!(parse_timer(&hold), None);
        let (start, end) = timer_holds_of(PARTITION);
        assert!(start < hold && hold < end);
        let stream = timer_stream(PARTITION, "quiet");
        let (start, end) = timer_streams_of(PARTITION);
        assert!(start < stream && stream < end);
        assert_eq!(parse_timer_stream(&stream), Some("quiet"));
        assert_eq!(parse_timer_stream(&hold), None);
    }
}
