//! Turns departures, rows of a CSV file, into flights whose key is their airport and the hour in which they
//! were to depart: what their weather is found by.

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
    /// A flight for each row, whether it departed or not.
    Flights,
}

/// The map.
#[derive(Debug)]
pub struct Departures;

/// The columns that it needs; a CSV source gives all of them as text.
#[derive(Deserialize)]
struct Row<'a> {
    time_hour: Timestamp,
    origin: &'a str,
    carrier: &'a str,
    flight: &'a str,
    dep_time: &'a str,
    dep_delay: &'a str,
}

#[derive(Serialize)]
struct Flight<'a> {
    airport: &'a str,
    flight: String,
    hour: Timestamp,
    /// None if it did not depart.
    delay_minutes: Option<i32>,
}

impl Map for Departures {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<Departures> {
        Ok(Departures)
    }

    fn on_message(&self, message: &Message<Inputs>, effects: &mut Effects<Outputs>) -> Result<()> {
        let row: Row = message.json()?;
        let delay_minutes = match row.dep_time {
            "NA" => None,
            _ => Some(row.dep_delay.parse().context("dep_delay")?),
        };
        effects
            .emit(Outputs::Flights)
            .key(&format!("{}@{}", row.origin, row.time_hour))
            .event_time(row.time_hour)
            .json(&Flight {
                airport: row.origin,
                flight: format!("{}{}", row.carrier, row.flight),
                hour: row.time_hour,
                delay_minutes,
            })
    }
}

export!(Departures);

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::TestBench;

    use super::*;

    #[test]
    fn a_flight_has_its_airport_and_hour_as_the_key() {
        let row = |dep_time: &str, dep_delay: &str| {
            format!(
                r#"{{"time_hour":"2013-08-19T10:00:00Z","origin":"EWR","carrier":"UA","flight":"1018","dep_time":"{dep_time}","dep_delay":"{dep_delay}"}}"#
            )
        };
        let bench = TestBench::<Departures>::assert_cuts_agree("{}", |bench| {
            bench.send("departures", "", Timestamp(0), row("518", "-7"));
            bench.send("departures", "", Timestamp(0), row("NA", "NA"));
            bench.run()
        });
        let flight = |delay: &str| {
            format!(
                r#"{{"airport":"EWR","flight":"UA1018","hour":"2013-08-19T10:00:00Z","delay_minutes":{delay}}}"#
            )
        };
        assert_eq!(bench.payloads("flights"), [flight("-7"), flight("null")]);
        for output in bench.outputs() {
            assert_eq!(output.key, b"EWR@2013-08-19T10:00:00Z");
            assert_eq!(output.event_time.to_string(), "2013-08-19T10:00:00Z");
        }
    }
}
