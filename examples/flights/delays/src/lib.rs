//! Keeps the departure delays of each carrier at each airport: how many, their mean, the worst. Each
//! leg brings the statistics so far; a great delay also brings an alert.

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;

/// Parameters in the pipeline file.
#[derive(Debug, Deserialize)]
pub struct Parameters {
    /// A delay above this many minutes is alerted to.
    alert_minutes: i32,
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
    /// One row for each leg.
    Statistics,
    /// Delays above the parameter.
    Alerts,
}

/// What it keeps for each key.
#[derive(Debug, State)]
pub struct Keyed {
    #[state(version = 1, codec = Postcard)]
    totals: Value<Totals>,
}

/// The delays so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    count: u32,
    sum_minutes: i64,
    worst_minutes: i32,
}

/// The transform.
#[derive(Debug)]
pub struct Delays {
    parameters: Parameters,
}

#[derive(Deserialize)]
struct Leg<'a> {
    flight: &'a str,
    destination: &'a str,
    delay_minutes: i32,
}

#[derive(Serialize)]
struct Statistics<'a> {
    key: &'a str,
    count: u32,
    mean_minutes: f64,
    worst_minutes: i32,
    event_time: Timestamp,
}

#[derive(Serialize)]
struct Alert<'a> {
    key: &'a str,
    flight: &'a str,
    destination: &'a str,
    delay_minutes: i32,
    event_time: Timestamp,
}

impl Transform for Delays {
    type Parameters = Parameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = NoTimers;
    type State = Keyed;

    fn new(parameters: Parameters) -> Result<Delays> {
        Ok(Delays { parameters })
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs>,
    ) -> Result<()> {
        let key = message.key_text()?;
        let event_time = message.event_time();
        let leg: Leg = message.json()?;

        let before = state.totals.get()?.copied();
        let totals = Totals::with(before, leg.delay_minutes);
        state.totals.set(totals);
        effects.emit(Outputs::Statistics).json(&Statistics {
            key,
            count: totals.count,
            mean_minutes: totals.mean_minutes(),
            worst_minutes: totals.worst_minutes,
            event_time,
        })?;
        if leg.delay_minutes > self.parameters.alert_minutes {
            effects.emit(Outputs::Alerts).json(&Alert {
                key,
                flight: leg.flight,
                destination: leg.destination,
                delay_minutes: leg.delay_minutes,
                event_time,
            })?;
        }
        Ok(())
    }
}

export!(Delays);

impl Totals {
    /// The totals with one more delay.
    fn with(before: Option<Totals>, delay_minutes: i32) -> Totals {
        let Some(before) = before else {
            return Totals {
                count: 1,
                sum_minutes: delay_minutes.into(),
                worst_minutes: delay_minutes,
            };
        };
        Totals {
            count: before.count + 1,
            sum_minutes: before.sum_minutes + i64::from(delay_minutes),
            worst_minutes: before.worst_minutes.max(delay_minutes),
        }
    }

    /// The mean in hundredths of a minute, rounded, halves away from 0. The rounding is done in
    /// whole numbers, so that any other calculation can arrive at the same digits.
    fn mean_minutes(self) -> f64 {
        let count = i64::from(self.count);
        let hundredths = (2 * 100 * self.sum_minutes.abs() + count) / (2 * count);
        (self.sum_minutes.signum() * hundredths) as f64 / 100.0
    }
}

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::TestBench;

    use super::*;

    const PARAMETERS: &str = r#"{"alert_minutes": 180}"#;

    fn leg(delay_minutes: i32) -> String {
        format!(r#"{{"flight":"UA1545","destination":"IAH","delay_minutes":{delay_minutes}}}"#)
    }

    #[test]
    fn statistics_run_along_for_each_key() {
        let bench = TestBench::<Delays>::assert_cuts_agree(PARAMETERS, |bench| {
            for (key, delay) in [
                ("UA@EWR", -4),
                ("AA@JFK", 7),
                ("UA@EWR", 12),
                ("UA@EWR", -6),
            ] {
                bench.send("legs", key, Timestamp(0), leg(delay));
            }
            bench.run()
        });
        let row = |key: &str, numbers: &str| {
            format!(r#"{{"key":"{key}",{numbers},"event_time":"1970-01-01T00:00:00Z"}}"#)
        };
        assert_eq!(
            bench.payloads("statistics"),
            [
                row(
                    "UA@EWR",
                    r#""count":1,"mean_minutes":-4.0,"worst_minutes":-4"#
                ),
                row(
                    "AA@JFK",
                    r#""count":1,"mean_minutes":7.0,"worst_minutes":7"#
                ),
                row(
                    "UA@EWR",
                    r#""count":2,"mean_minutes":4.0,"worst_minutes":12"#
                ),
                row(
                    "UA@EWR",
                    r#""count":3,"mean_minutes":0.67,"worst_minutes":12"#
                ),
            ]
        );
        let expected = Totals {
            count: 3,
            sum_minutes: 2,
            worst_minutes: 12,
        };
        let stored = bench.state::<Postcard, Totals>("totals", "UA@EWR");
        assert_eq!(stored, Some(expected));
    }

    #[test]
    fn a_delay_above_the_parameter_is_alerted_to_and_one_at_it_is_not() {
        let bench = TestBench::<Delays>::assert_cuts_agree(PARAMETERS, |bench| {
            bench.send("legs", "UA@EWR", Timestamp(0), leg(180));
            bench.send("legs", "UA@EWR", Timestamp(60_000), leg(181));
            bench.run()
        });
        assert_eq!(
            bench.payloads("alerts"),
            [
                r#"{"key":"UA@EWR","flight":"UA1545","destination":"IAH","delay_minutes":181,"event_time":"1970-01-01T00:01:00Z"}"#
            ]
        );
    }

    #[test]
    fn means_are_rounded_to_hundredths_halves_away_from_zero() {
        for (sum_minutes, count, expected) in [
            (1, 3, 0.33),
            (2, 3, 0.67),
            (-2, 3, -0.67),
            (1, 200, 0.01),
            (-1, 200, -0.01),
            (1, 201, 0.0),
            (-1, 201, 0.0),
            (0, 5, 0.0),
        ] {
            let totals = Totals {
                count,
                sum_minutes,
                worst_minutes: 0,
            };
            assert_eq!(totals.mean_minutes().to_bits(), f64::to_bits(expected));
        }
    }

    #[test]
    fn a_misspelt_parameter_is_refused() {
        let failure = TestBench::<Delays>::new(r#"{"alert_minuts": 180}"#).expect_err("misspelt");
        assert_eq!(
            failure.reason,
            "parameters: unknown parameter \"alert_minuts\": there are alert_minutes"
        );
    }
}
