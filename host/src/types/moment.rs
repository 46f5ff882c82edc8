//! Timestamps as people read them.

use std::fmt;

use crate::types::batch::Timestamp;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// The first day that the form has no place for, 1 January of the year 10000, in days since 1970.
const DAYS_END: u64 = 2_932_897;

/// A timestamp that is shown in the form of RFC 3339, in UTC and to the millisecond:
/// `2013-01-01T06:15:00.000Z`. What lies behind the year 9999 is shown as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0 / DAY_MS, self.0 % DAY_MS);
        if days >= DAYS_END {
            return write!(formatter, "{} ms after 1970", self.0);
        }
        let (year, month, day) = date_of(days);
        let (seconds, ms) = (ms / 1_000, ms % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

/// Year, month and day of a number of days since 1 January 1970.
fn date_of(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let mut month = 1;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    (year, month, days + 1)
}

fn days_of_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_utc_to_the_millisecond() {
        for (timestamp, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_357_020_900_007, "2013-01-01T06:15:00.007Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "253402300800000 ms after 1970"),
            (u64::MAX, "18446744073709551615 ms after 1970"),
        ] {
            assert_eq!(Moment(timestamp).to_string(), shown);
        }
    }
}
