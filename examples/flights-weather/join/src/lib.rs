//! Gives each flight the weather of its hour at its airport. Both streams have airport and hour as their
//! key, so whatever comes first waits for the other in the key's state. When the watermark says that
//! neither is expected any more, flights that still wait go on without weather, and the state goes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);

/// What it reads. The key is airport and hour, the event time the hour.
#[derive(Streams)]
pub enum Inputs {
    /// Flights, departed or not.
    Flights,
    /// Observations, one for each hour and airport that has any.
    Weather,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// Each flight with its weather, or without.
    Joined,
    /// Flights and observations that came when their hour was over.
    TooLate,
}

/// Its timers.
#[derive(Debug, Timers)]
pub enum Alarms {
    /// Neither flights nor weather of the hour are expected any more.
    HourIsOver,
}

/// What it keeps for each airport and hour, until the hour is over.
#[derive(Debug, State)]
pub struct Keyed {
    #[state(version = 1, codec = Postcard)]
    weather: Value<Weather>,
    /// Flights that came before their weather.
    #[state(version = 1, codec = Postcard)]
    waiting: Value<Vec<Flight>>,
}

/// The weather of an hour at an airport, as far as it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Weather {
    temperature_f: Option<f64>,
    wind_mph: Option<f64>,
    precipitation_inches: Option<f64>,
    visibility_miles: Option<f64>,
}

/// A flight.
#[derive(Debug, Serialize, Deserialize)]
pub struct Flight {
    airport: String,
    flight: String,
    hour: Timestamp,
    /// None if it did not depart.
    delay_minutes: Option<i32>,
}

#[derive(Serialize)]
struct Row<'a> {
    airport: &'a str,
    flight: &'a str,
    hour: Timestamp,
    delay_minutes: Option<i32>,
    weather: Option<&'a Weather>,
}

/// The transform.
#[derive(Debug)]
pub struct Join;

impl Transform for Join {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = Alarms;
    type State = Keyed;

    fn new(_: NoParameters) -> Result<Join> {
        Ok(Join)
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        let over_at = message.event_time() + HOUR;
        if message.least_watermark() >= Some(over_at) {
            effects.emit(Outputs::TooLate).bytes(message.payload());
            return Ok(());
        }
        if state.weather.get()?.is_none() && state.waiting.get()?.is_none() {
            // It carries the hour as its event time, so what it emits is not late for those who read it.
            effects.timer(Alarms::HourIsOver).set_at(over_at)?;
        }
        match message.stream() {
            Inputs::Flights => {
                let flight: Flight = message.json()?;
                match state.weather.get()? {
                    Some(weather) => emit(effects, &flight, Some(weather))?,
                    None => state.waiting.get_or_default()?.push(flight),
                }
            }
            // The first observation of an hour counts, whatever comes after it.
            Inputs::Weather if state.weather.get()?.is_some() => {}
            Inputs::Weather => {
                let weather: Weather = message.json()?;
                for flight in state.waiting.take()?.unwrap_or_default() {
                    emit(effects, &flight, Some(&weather))?;
                }
                state.weather.set(weather);
            }
        }
        Ok(())
    }

    fn on_timer(
        &self,
        _timer: &Timer<Alarms>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        for flight in state.waiting.take()?.unwrap_or_default() {
            emit(effects, &flight, None)?;
        }
        state.weather.clear();
        Ok(())
    }
}

export!(Join);

fn emit(
    effects: &mut Effects<Outputs, Alarms>,
    flight: &Flight,
    weather: Option<&Weather>,
) -> Result<()> {
    effects.emit(Outputs::Joined).json(&Row {
        airport: &flight.airport,
        flight: &flight.flight,
        hour: flight.hour,
        delay_minutes: flight.delay_minutes,
        weather,
    })
}

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::{TestBench, TestFailure};

    use super::*;

    type Bench = TestBench<Join>;

    const KEY: &str = "EWR@2013-08-19T10:00:00Z";
    const WEATHER: &str = r#"{"temperature_f":64.04,"wind_mph":null,"precipitation_inches":0.0,"visibility_miles":10.0}"#;

    fn hour() -> Timestamp {
        "2013-08-19T10:00:00Z".parse().expect("it is a time")
    }

    fn flight(bench: &mut Bench, number: u32) {
        let flight = format!(
            r#"{{"airport":"EWR","flight":"UA{number}","hour":"2013-08-19T10:00:00Z","delay_minutes":-7}}"#
        );
        bench.send("flights", KEY, hour(), flight);
    }

    fn row(number: u32, weather: &str) -> String {
        format!(
            r#"{{"airport":"EWR","flight":"UA{number}","hour":"2013-08-19T10:00:00Z","delay_minutes":-7,"weather":{weather}}}"#
        )
    }

    /// Plays a scenario under many cuts, then the end of its hour, which leaves nothing behind.
    fn play(scenario: impl Fn(&mut Bench) -> Result<(), TestFailure>) -> Bench {
        let bench = Bench::assert_cuts_agree("{}", |bench| {
            scenario(bench)?;
            bench.advance_watermark("flights", hour() + HOUR)?;
            bench.advance_watermark("weather", hour() + HOUR)
        });
        assert_eq!(bench.state_bytes("weather", KEY), None);
        assert_eq!(bench.state_bytes("waiting", KEY), None);
        assert_eq!(bench.timers().count(), 0);
        bench
    }

    #[test]
    fn weather_waits_for_its_flights() {
        let bench = play(|bench| {
            bench.send("weather", KEY, hour(), WEATHER);
            flight(bench, 1);
            flight(bench, 2);
            bench.run()
        });
        assert_eq!(bench.payloads("joined"), [row(1, WEATHER), row(2, WEATHER)]);
    }

    #[test]
    fn flights_wait_for_their_weather() {
        let bench = play(|bench| {
            flight(bench, 1);
            flight(bench, 2);
            bench.run()?;
            assert_eq!(bench.payloads("joined").len(), 0);
            // The timer holds the watermark, as what waits has the hour as its event time.
            bench.advance_watermarks(hour() + HOUR / 2)?;
            assert_eq!(bench.output_watermark(), hour());
            bench.send("weather", KEY, hour(), WEATHER);
            bench.run()?;
            assert_eq!(bench.payloads("joined").len(), 2);
            flight(bench, 3);
            bench.run()
        });
        let expected = [row(1, WEATHER), row(2, WEATHER), row(3, WEATHER)];
        assert_eq!(bench.payloads("joined"), expected);
    }

    #[test]
    fn flights_without_weather_go_on_without_it_when_their_hour_is_over() {
        let bench = play(|bench| {
            flight(bench, 1);
            flight(bench, 2);
            // One stream alone does not say that the hour is over.
            bench.advance_watermark("flights", hour() + 2 * HOUR)?;
            assert_eq!(bench.payloads("joined").len(), 0);
            Ok(())
        });
        assert_eq!(bench.payloads("joined"), [row(1, "null"), row(2, "null")]);
        assert!(bench.outputs().iter().all(|row| row.event_time == hour()));
    }

    #[test]
    fn the_first_observation_of_an_hour_counts() {
        let bench = play(|bench| {
            bench.send("weather", KEY, hour(), WEATHER);
            bench.send("weather", KEY, hour(), WEATHER.replace("64.04", "99.9"));
            flight(bench, 1);
            bench.run()
        });
        assert_eq!(bench.payloads("joined"), [row(1, WEATHER)]);
    }

    #[test]
    fn what_comes_when_its_hour_is_over_goes_its_own_way() {
        let bench = play(|bench| {
            bench.advance_watermarks(hour() + HOUR)?;
            flight(bench, 1);
            bench.send("weather", KEY, hour(), WEATHER);
            bench.run()
        });
        assert_eq!(bench.payloads("joined").len(), 0);
        assert_eq!(bench.payloads("too_late").len(), 2);
        assert_eq!(bench.payloads("too_late")[1], WEATHER);
    }
}
