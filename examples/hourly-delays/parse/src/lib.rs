//! Turns departures, rows of a CSV file, into legs: flights that departed, each with its airport as the
//! key and the hour in which it was to depart as the event time. A flight that did not depart is no leg.

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Rows of the file, as JSON objects of strings.
    Departures,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// Flights that departed.
    Legs,
}

/// The map.
#[derive(Debug)]
pub struct Parse;

/// The columns that it needs; a CSV source gives all of them as text.
#[derive(Deserialize)]
struct Departure<'a> {
    time_hour: Timestamp,
    origin: &'a str,
    carrier: &'a str,
    flight: &'a str,
    dep_time: &'a str,
    dep_delay: &'a str,
}

#[derive(Serialize)]
struct Leg<'a> {
    airport: &'a str,
    flight: String,
    hour: Timestamp,
    delay_minutes: i32,
}

impl Map for Parse {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<Parse> {
        Ok(Parse)
    }

    fn on_message(&self, message: &Message<Inputs>, effects: &mut Effects<Outputs>) -> Result<()> {
        let departure: Departure = message.json()?;
        if departure.dep_time == "NA" {
            return Ok(());
        }
        let leg = Leg {
            airport: departure.origin,
            flight: format!("{}{}", departure.carrier, departure.flight),
            hour: departure.time_hour,
            delay_minutes: departure.dep_delay.parse().context("dep_delay")?,
        };
        effects
            .emit(Outputs::Legs)
            .key(leg.airport)
            .event_time(leg.hour)
            .json(&leg)
    }
}

export!(Parse);

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::TestBench;

    use super::*;

    fn departure(dep_time: &str, dep_delay: &str) -> String {
        format!(
            r#"{{"time_hour":"2013-01-15T10:00:00Z","origin":"EWR","carrier":"UA","flight":"1018","dep_time":"{dep_time}","dep_delay":"{dep_delay}"}}"#
        )
    }

    #[test]
    fn a_leg_has_its_airport_as_the_key_and_its_hour_as_the_event_time() {
        let bench = TestBench::<Parse>::assert_cuts_agree("{}", |bench| {
            bench.send("departures", "", Timestamp(0), departure("518", "-7"));
            bench.send("departures", "", Timestamp(0), departure("NA", "NA"));
            bench.run()
        });
        assert_eq!(
            bench.payloads("legs"),
            [
                r#"{"airport":"EWR","flight":"UA1018","hour":"2013-01-15T10:00:00Z","delay_minutes":-7}"#
            ]
        );
        let leg = &bench.outputs()[0];
        assert_eq!(leg.key, b"EWR");
        assert_eq!(leg.event_time.to_string(), "2013-01-15T10:00:00Z");
    }

    #[test]
    fn a_delay_that_is_no_number_is_refused() {
        let mut bench = TestBench::<Parse>::new("{}").expect("no parameters");
        bench.send("departures", "", Timestamp(0), departure("518", "soon"));
        let failure = bench.run().expect_err("no number");
        assert_eq!(failure.reason, "dep_delay: invalid digit found in string");
    }
}
