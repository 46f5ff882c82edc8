//! When what a record tells of happened: mostly in order, some late, some far in the future, some at no
//! known time.

use super::hash;

/// How far ahead of its record's write time an event time may be to be believed, in milliseconds. What is
/// in the future is further ahead than that.
pub const FUTURE_LIMIT_MS: u64 = 100_000;
/// When the first record happened.
const START_MS: u64 = 1_000;
/// How much later than the one before it a record happened.
const STEP_MS: u64 = 10;

/// The event time of a record, 0 for none. Partitions of sources are apart by up to 450 ms.
pub fn of_record(record: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(record);
    let Some((part, number)) = text.split_once('.') else {
        return 0;
    };
    let number: u64 = number.parse().unwrap_or(0);
    let apart = hash(b"apart", part.as_bytes()) % 4 * 150;
    let time = START_MS + number * STEP_MS + apart;
    let lot = hash(b"time", record);
    match lot % 16 {
        0 => 0,
        1 => time + 10 * FUTURE_LIMIT_MS,
        2 | 3 => time - 300,
        _ => time + (lot >> 8) % 50,
    }
}
