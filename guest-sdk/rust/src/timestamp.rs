//! Moments, and their text form. It is all of the calendar that most computations need, so that
//! they need no date library, which would bring the reading of clocks along.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MS_PER_DAY: u64 = 86_400_000;

/// A moment: milliseconds since the start of 1970 in UTC.
///
/// Its text form is that of RFC 3339. It is written in UTC, with milliseconds only where there are
/// any: `2013-01-01T10:00:00Z`; it is read with any offset and up to nine digits of a second, of
/// which three are kept. Serde writes the text form where the format is for people (JSON), else the
/// number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The end of time: the watermark once all input has been read. So a watermark may be this moment;
    /// adding to it stops here.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The moment that many milliseconds after the start of 1970.
    pub fn from_ms(ms: u64) -> Timestamp {
        Timestamp(ms)
    }

    /// Milliseconds since the start of 1970.
    pub fn as_ms(self) -> u64 {
        self.0
    }
}

/// Stops at the end of time.
impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(duration_ms(duration)))
    }
}

/// Stops at the start of 1970.
impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(duration_ms(duration)))
    }
}

/// A duration in whole milliseconds, at most what a timestamp can hold.
pub(crate) fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0 / MS_PER_DAY);
        let ms = self.0 % MS_PER_DAY;
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, ms) = (ms / 1000 % 60, ms % 1000);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if ms > 0 {
            write!(formatter, ".{ms:03}")?;
        }
        formatter.write_str("Z")
    }
}

/// A text is no moment that a [`Timestamp`] can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimestampError {
    text: String,
}

impl fmt::Display for TimestampError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is no time since 1970 in the form 2013-01-01T10:00:00Z",
            self.text
        )
    }
}

impl std::error::Error for TimestampError {}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Timestamp, TimestampError> {
        parse(text).ok_or_else(|| TimestampError {
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let mut rest = text.as_bytes();
    let year = number(&mut rest, 4)?;
    literal(&mut rest, b"-")?;
    let month = number(&mut rest, 2).filter(|month| (1..=12).contains(month))?;
    literal(&mut rest, b"-")?;
    let day = number(&mut rest, 2).filter(|day| (1..=month_length(year, month)).contains(day))?;
    literal(&mut rest, b"Tt ")?;
    let hour = number(&mut rest, 2).filter(|hour| *hour < 24)?;
    literal(&mut rest, b":")?;
    let minute = number(&mut rest, 2).filter(|minute| *minute < 60)?;
    literal(&mut rest, b":")?;
    let second = number(&mut rest, 2).filter(|second| *second < 60)?;
    let ms = fraction_ms(&mut rest)?;
    let offset_minutes = offset(&mut rest)?;
    if !rest.is_empty() {
        return None;
    }
    let minutes = (days_before(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    let ms = (minutes * 60 + second) * 1000 + ms;
    u64::try_from(ms).ok().map(Timestamp)
}

/// Takes exactly `digits` digits off the front.
fn number(rest: &mut &[u8], digits: usize) -> Option<i64> {
    let (head, tail) = rest.split_at_checked(digits)?;
    let mut value = 0;
    for byte in head {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    *rest = tail;
    Some(value)
}

/// Takes one byte out of `choice` off the front.
fn literal(rest: &mut &[u8], choice: &[u8]) -> Option<u8> {
    let (first, tail) = rest.split_first()?;
    if !choice.contains(first) {
        return None;
    }
    *rest = tail;
    Some(*first)
}

/// Takes an optional fraction of a second off the front, in milliseconds, cut rather than rounded.
fn fraction_ms(rest: &mut &[u8]) -> Option<i64> {
    if literal(rest, b".").is_none() {
        return Some(0);
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&digits) {
        return None;
    }
    let value = number(rest, digits)?;
    Some(value * 1000 / 10_i64.pow(digits as u32))
}

/// Takes the offset from UTC off the front, in minutes.
fn offset(rest: &mut &[u8]) -> Option<i64> {
    let sign = match literal(rest, b"Zz+-")? {
        b'+' => 1,
        b'-' => -1,
        _ => return Some(0),
    };
    let hours = number(rest, 2).filter(|hours| *hours < 24)?;
    literal(rest, b":")?;
    let minutes = number(rest, 2).filter(|minutes| *minutes < 60)?;
    Some(sign * (hours * 60 + minutes))
}

fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days between 1970-01-01 and a date of the Gregorian calendar. Years are counted from March, so
/// that a leap day is the last of its year, and in eras of 400 years, which are all equally long.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01: the inverse of [`days_before`].
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        if deserializer.is_human_readable() {
            let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
            text.parse().map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(deserializer).map(Timestamp)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, ms: u64) {
        let timestamp: Timestamp = text.parse().expect("the text is a time");
        assert_eq!(timestamp.as_ms(), ms, "{text}");
        let written = timestamp.to_string();
        assert_eq!(written.parse(), Ok(timestamp), "{written}");
    }

    #[test]
    fn known_moments_are_read() {
        check("1970-01-01T00:00:00Z", 0);
        check("2000-02-29T23:59:59.999Z", 951_868_799_999);
        check("2013-01-01T10:00:00Z", 1_357_034_400_000);
        check("2013-01-01T05:00:00-05:00", 1_357_034_400_000);
        check("2013-01-01t10:00:00.000000001z", 1_357_034_400_000);
        check("9999-12-31T23:59:59Z", 253_402_300_799_000);
    }

    #[test]
    fn every_day_of_eight_centuries_comes_back_as_it_was_written() {
        let mut expected = (1970, 1, 1);
        for day in 0..300_000 {
            assert_eq!(date_of(day), expected);
            let (year, month, day_of_month) = expected;
            assert_eq!(
                days_before(year as i64, month as i64, day_of_month as i64),
                day as i64
            );
            expected = if (day_of_month as i64) < month_length(year as i64, month as i64) {
                (year, month, day_of_month + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2013-01-01",
            "2013-01-01T10:00:00",
            "2013-01-01T10:00:00Z ",
            "2013-02-29T10:00:00Z",
            "2013-13-01T10:00:00Z",
            "2013-00-01T10:00:00Z",
            "2013-01-01T24:00:00Z",
            "2013-01-01T10:60:00Z",
            "2013-01-01T10:00:60Z",
            "2013-01-01T10:00:00.Z",
            "2013-01-01T10:00:00+05",
            "1969-12-31T23:59:59Z",
            "+013-01-01T10:00:00Z",
        ] {
            let error = text.parse::<Timestamp>().expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn arithmetic_stops_at_both_ends_of_time() {
        let minute = Duration::from_secs(60);
        assert_eq!(Timestamp(1) + minute, Timestamp(60_001));
        assert_eq!(Timestamp::MAX + minute, Timestamp::MAX);
        assert_eq!(Timestamp(1) - minute, Timestamp(0));
        assert_eq!(Timestamp::MAX.to_string(), "584556019-04-03T14:25:51.615Z");
    }
}
