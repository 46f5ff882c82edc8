//! Turns observations of the weather, rows of a CSV file, into messages whose key is the airport and the hour:
//! what the flights of that hour are found by.

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Rows of the file, as JSON objects of strings.
    Observations,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// The weather of an hour at an airport.
    Weather,
}

/// The map.
#[derive(Debug)]
pub struct Weather;

/// The columns that it needs; a CSV source gives all of them as text.
#[derive(Deserialize)]
struct Row<'a> {
    time_hour: Timestamp,
    origin: &'a str,
    temp: &'a str,
    wind_speed: &'a str,
    precip: &'a str,
    visib: &'a str,
}

#[derive(Serialize)]
struct Observation {
    temperature_f: Option<f64>,
    wind_mph: Option<f64>,
    precipitation_inches: Option<f64>,
    visibility_miles: Option<f64>,
}

impl Map for Weather {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<Weather> {
        Ok(Weather)
    }

    fn on_message(&self, message: &Message<Inputs>, effects: &mut Effects<Outputs>) -> Result<()> {
        let row: Row = message.json()?;
        let observation = Observation {
            temperature_f: measured("temp", row.temp)?,
            wind_mph: measured("wind_speed", row.wind_speed)?,
            precipitation_inches: measured("precip", row.precip)?,
            visibility_miles: measured("visib", row.visib)?,
        };
        effects
            .emit(Outputs::Weather)
            .key(&format!("{}@{}", row.origin, row.time_hour))
            .event_time(row.time_hour)
            .json(&observation)
    }
}

export!(Weather);

/// What was measured, if anything was. A text like `inf` is no measurement.
fn measured(column: &str, text: &str) -> Result<Option<f64>> {
    if text == "NA" {
        return Ok(None);
    }
    let number: f64 = text.parse().context(column)?;
    if !number.is_finite() {
        bail!("{column}: {text:?} is no measurement");
    }
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::TestBench;

    use super::*;

    fn row(temp: &str) -> String {
        format!(
            r#"{{"time_hour":"2013-08-19T10:00:00Z","origin":"EWR","temp":"{temp}","wind_speed":"4.60312","precip":"0","visib":"NA"}}"#
        )
    }

    #[test]
    fn an_observation_has_its_airport_and_hour_as_the_key() {
        let bench = TestBench::<Weather>::assert_cuts_agree("{}", |bench| {
            bench.send("observations", "", Timestamp(0), row("64.04"));
            bench.run()
        });
        assert_eq!(
            bench.payloads("weather"),
            [
                r#"{"temperature_f":64.04,"wind_mph":4.60312,"precipitation_inches":0.0,"visibility_miles":null}"#
            ]
        );
        let weather = &bench.outputs()[0];
        assert_eq!(weather.key, b"EWR@2013-08-19T10:00:00Z");
        assert_eq!(weather.event_time.to_string(), "2013-08-19T10:00:00Z");
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        for text in ["warm", "inf", ""] {
            let mut bench = TestBench::<Weather>::new("{}").expect("no parameters");
            bench.send("observations", "", Timestamp(0), row(text));
            let failure = bench.run().expect_err("no measurement");
            assert!(failure.reason.starts_with("temp: "), "{failure}");
        }
    }
}
