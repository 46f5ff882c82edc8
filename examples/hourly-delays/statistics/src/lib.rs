//! The departure delays of each hour at each airport: how many, their mean, the worst. A row for each
//! hour, once the watermark says that it is over; corrected rows where lateness is allowed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;
use tidelock_guest::window::{Aggregate, Pane, Placement, Timing, Tumbling, Windowing, Windows};

const HOUR: Duration = Duration::from_secs(3600);

/// Parameters in the pipeline file.
#[derive(Debug, Deserialize)]
pub struct Parameters {
    /// For so long (of event time) a leg that comes when its hour is over still corrects it.
    #[serde(default)]
    allowed_lateness_minutes: u32,
}

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Flights that departed.
    Legs,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// One row for each hour and airport.
    Hours,
    /// Legs that came too late for their hour.
    TooLate,
}

/// Its timers.
#[derive(Debug, Timers)]
pub enum Alarms {
    /// That of the windows.
    Hours,
}

/// What it keeps for each airport.
#[derive(Debug, State)]
pub struct Keyed {
    #[state(version = 1, codec = Postcard)]
    hours: Windows<Delays>,
}

/// The delays of an hour.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Delays {
    count: u32,
    sum_minutes: i64,
    worst_minutes: i32,
}

#[derive(Deserialize)]
struct Leg {
    delay_minutes: i32,
}

#[derive(Serialize)]
struct Row<'a> {
    airport: &'a str,
    hour: Timestamp,
    count: u32,
    mean_minutes: f64,
    worst_minutes: i32,
    timing: Timing,
}

/// The transform.
#[derive(Debug)]
pub struct Statistics {
    hours: Windowing<DelaysOfAnHour>,
}

struct DelaysOfAnHour;

impl Transform for Statistics {
    type Parameters = Parameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = Alarms;
    type State = Keyed;

    fn new(parameters: Parameters) -> Result<Statistics> {
        let lateness = Duration::from_secs(60 * u64::from(parameters.allowed_lateness_minutes));
        let hours = Windowing::new(Tumbling::new(HOUR)?, Alarms::Hours, DelaysOfAnHour)?
            .allowed_lateness(lateness);
        Ok(Statistics { hours })
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        let leg: Leg = message.json()?;
        match self.hours.add(&leg, message, &mut state.hours, effects)? {
            Placement::Placed => {}
            Placement::TooLate => effects.emit(Outputs::TooLate).bytes(message.payload()),
        }
        Ok(())
    }

    fn on_timer(
        &self,
        timer: &Timer<Alarms>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        self.hours.on_timer(timer, &mut state.hours, effects)
    }
}

export!(Statistics);

impl Aggregate for DelaysOfAnHour {
    type Value = Leg;
    type Accumulator = Delays;
    type Outputs = Outputs;
    type Timers = Alarms;

    fn add(&self, delays: &mut Delays, leg: &Leg) -> Result<()> {
        delays.worst_minutes = match delays.count {
            0 => leg.delay_minutes,
            _ => delays.worst_minutes.max(leg.delay_minutes),
        };
        delays.count += 1;
        delays.sum_minutes += i64::from(leg.delay_minutes);
        Ok(())
    }

    fn emit(&self, pane: &Pane<Delays>, effects: &mut Effects<Outputs, Alarms>) -> Result<()> {
        let delays = pane.accumulator();
        effects.emit(Outputs::Hours).json(&Row {
            airport: pane.key_text()?,
            hour: pane.window().start(),
            count: delays.count,
            mean_minutes: delays.mean_minutes(),
            worst_minutes: delays.worst_minutes,
            timing: pane.timing(),
        })
    }
}

impl Delays {
    /// The mean in hundredths of a minute, rounded, halves away from 0, in whole numbers, so that any
    /// other calculation can arrive at the same digits.
    fn mean_minutes(&self) -> f64 {
        let count = i64::from(self.count);
        let hundredths = (2 * 100 * self.sum_minutes.abs() + count) / (2 * count);
        (self.sum_minutes.signum() * hundredths) as f64 / 100.0
    }
}

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::{TestBench, TestFailure};

    use super::*;

    type Bench = TestBench<Statistics>;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("it is a time")
    }

    fn send(bench: &mut Bench, airport: &str, hour: &str, minutes: i32) {
        let leg = format!(r#"{{"delay_minutes":{minutes}}}"#);
        bench.send("legs", airport, at(hour), leg);
    }

    fn two_hours(bench: &mut Bench) -> Result<(), TestFailure> {
        send(bench, "JFK", "2013-01-15T11:00:00Z", 90);
        for minutes in [-4, 12, -6] {
            send(bench, "EWR", "2013-01-15T10:00:00Z", minutes);
        }
        send(bench, "EWR", "2013-01-15T11:00:00Z", 5);
        bench.advance_watermark("legs", at("2013-01-15T11:00:00Z"))
    }

    fn row(airport: &str, hour: u32, numbers: &str, timing: &str) -> String {
        format!(
            r#"{{"airport":"{airport}","hour":"2013-01-15T{hour}:00:00Z",{numbers},"timing":"{timing}"}}"#
        )
    }

    #[test]
    fn an_hour_is_told_of_when_it_is_over() {
        let bench = Bench::assert_cuts_agree("{}", |bench| {
            two_hours(bench)?;
            assert_eq!(bench.payloads("hours").len(), 1);
            bench.end_of_input()
        });
        assert_eq!(
            bench.payloads("hours"),
            [
                row(
                    "EWR",
                    10,
                    r#""count":3,"mean_minutes":0.67,"worst_minutes":12"#,
                    "on_time"
                ),
                row(
                    "EWR",
                    11,
                    r#""count":1,"mean_minutes":5.0,"worst_minutes":5"#,
                    "on_time"
                ),
                row(
                    "JFK",
                    11,
                    r#""count":1,"mean_minutes":90.0,"worst_minutes":90"#,
                    "on_time"
                ),
            ]
        );
        assert_eq!(bench.state_keys("hours").count(), 0);
    }

    #[test]
    fn a_leg_that_comes_when_its_hour_is_over_goes_its_own_way() {
        let bench = Bench::assert_cuts_agree("{}", |bench| {
            two_hours(bench)?;
            send(bench, "EWR", "2013-01-15T10:00:00Z", 300);
            bench.run()
        });
        assert_eq!(bench.payloads("hours").len(), 1);
        assert_eq!(bench.payloads("too_late"), [r#"{"delay_minutes":300}"#]);
    }

    #[test]
    fn where_lateness_is_allowed_it_corrects_its_hour() {
        let parameters = r#"{"allowed_lateness_minutes": 60}"#;
        let bench = Bench::assert_cuts_agree(parameters, |bench| {
            two_hours(bench)?;
            send(bench, "EWR", "2013-01-15T10:00:00Z", 300);
            bench.run()
        });
        assert_eq!(
            bench.payloads("hours")[1],
            row(
                "EWR",
                10,
                r#""count":4,"mean_minutes":75.5,"worst_minutes":300"#,
                "late"
            )
        );
        assert_eq!(bench.payloads("too_late").len(), 0);
    }
}
