//! Timestamps as people read them.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use crate::types::batch::Timestamp;

/// The last moment that the form has a place for, at the end of the year 9999.
const LAST: Timestamp = 253_402_300_799_999;

/// A timestamp that is shown in the form of RFC 3339, in UTC and to the millisecond:
/// `2013-01-01T06:15:00.000Z`. What lies behind the year 9999 is shown as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > LAST {
            return write!(formatter, "{} ms after 1970", self.0);
        }
        let moment = UNIX_EPOCH + Duration::from_millis(self.0);
        humantime::format_rfc3339_millis(moment).fmt(formatter)
    }
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
