//! One line of the departures file, understood or not.

use std::fmt;

use tidelock_guest::Timestamp;

const FIELD_COUNT: usize = 19;

/// A flight as it was scheduled, and whether it departed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Departure<'a> {
    pub(crate) carrier: &'a str,
    /// The flight's number.
    pub(crate) number: &'a str,
    pub(crate) origin: &'a str,
    pub(crate) destination: &'a str,
    /// The hour in which it was to depart.
    pub(crate) scheduled: Timestamp,
    /// How late it departed, less than 0 if early; none if it did not depart.
    pub(crate) delay_minutes: Option<i32>,
}

/// Why a line is no departure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rejection<'a> {
    NotUtf8,
    FieldCount { found: usize },
    Empty { field: &'static str },
    TimeHour { found: &'a str },
    DepartureDelay { found: &'a str },
}

impl<'a> Departure<'a> {
    /// Reads a line. Fields are separated by commas; none holds a comma or a quotation mark.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Departure<'a>, Rejection<'a>> {
        let line = std::str::from_utf8(line).map_err(|_| Rejection::NotUtf8)?;
        let mut fields = [""; FIELD_COUNT];
        let mut found = 0;
        for field in line.split(',') {
            if let Some(slot) = fields.get_mut(found) {
                *slot = field;
            }
            found += 1;
        }
        if found != FIELD_COUNT {
            return Err(Rejection::FieldCount { found });
        }
        let [_, _, _, departure_time, _, departure_delay, ..] = fields;
        let [
            ..,
            carrier,
            number,
            _,
            origin,
            destination,
            _,
            _,
            _,
            _,
            time_hour,
        ] = fields;

        for (field, value) in [("carrier", carrier), ("origin", origin)] {
            if value.is_empty() {
                return Err(Rejection::Empty { field });
            }
        }
        // The file knows one way to write a time; others are signs of damage.
        let scheduled = (time_hour.parse::<Timestamp>().ok())
            .filter(|scheduled| scheduled.to_string() == time_hour)
            .ok_or(Rejection::TimeHour { found: time_hour })?;
        let delay_minutes = match departure_time {
            "NA" => None,
            _ => Some(
                (departure_delay.parse()).map_err(|_| Rejection::DepartureDelay {
                    found: departure_delay,
                })?,
            ),
        };
        Ok(Departure {
            carrier,
            number,
            origin,
            destination,
            scheduled,
            delay_minutes,
        })
    }
}

impl fmt::Display for Rejection<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::NotUtf8 => formatter.write_str("the line is not UTF-8"),
            Rejection::FieldCount { found } => {
                write!(formatter, "expected {FIELD_COUNT} fields, found {found}")
            }
            Rejection::Empty { field } => write!(formatter, "{field} is empty"),
            Rejection::TimeHour { found } => {
                write!(formatter, "time_hour is no UTC time: {found}")
            }
            Rejection::DepartureDelay { found } => {
                write!(formatter, "dep_delay is no whole number: {found}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(departure_time: &str, delay: &str, carrier: &str, time_hour: &str) -> String {
        format!(
            "2013,1,1,{departure_time},515,{delay},830,819,11,{carrier},1545,N14228,EWR,IAH,227,\
             1400,5,15,{time_hour}"
        )
    }

    fn check_rejected(line: &str, reason: &str) {
        let rejection = Departure::parse(line.as_bytes()).expect_err(line);
        assert_eq!(rejection.to_string(), reason);
    }

    #[test]
    fn a_delay_may_be_negative_and_is_not_asked_of_a_flight_that_did_not_depart() {
        let hour = "2013-01-01T10:00:00Z";
        for (departure_time, delay, expected) in [
            ("510", "-5", Some(-5)),
            ("515", "0", Some(0)),
            ("NA", "NA", None),
        ] {
            let line = line(departure_time, delay, "UA", hour);
            let departure = Departure::parse(line.as_bytes()).expect("a departure");
            assert_eq!(departure.delay_minutes, expected);
            assert_eq!((departure.origin, departure.destination), ("EWR", "IAH"));
            assert_eq!((departure.carrier, departure.number), ("UA", "1545"));
        }
    }

    #[test]
    fn each_kind_of_damage_has_a_reason_of_its_own() {
        let hour = "2013-01-01T10:00:00Z";
        check_rejected("", "expected 19 fields, found 1");
        check_rejected(
            &(line("517", "2", "UA", hour) + ","),
            "expected 19 fields, found 20",
        );
        check_rejected(&line("517", "2", "", hour), "carrier is empty");
        check_rejected(
            &line("517", "2.5", "UA", hour),
            "dep_delay is no whole number: 2.5",
        );
        check_rejected(
            &line("517", "NA", "UA", hour),
            "dep_delay is no whole number: NA",
        );
        for damaged in ["2013-01-32T10:00:00Z", "2013-01-01T10:00:00+00:00", "NA"] {
            check_rejected(
                &line("NA", "NA", "UA", damaged),
                &format!("time_hour is no UTC time: {damaged}"),
            );
        }
        assert_eq!(Departure::parse(b"\xff"), Err(Rejection::NotUtf8));
    }
}
