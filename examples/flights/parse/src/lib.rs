//! Turns lines of the departures file into flight legs, keyed by carrier and airport of origin.
//!
//! Not every line is a leg: a flight that did not depart goes to the stream `cancelled`, a line that
//! can't be understood to `rejected`, with the reason. The rules are in the example's README.

mod departure;

use serde::Serialize;
use tidelock_guest::prelude::*;

use crate::departure::Departure;

/// The names of the file's columns. A line that says this is the header.
const HEADER: &[u8] = b"year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,\
arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour";

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Lines of the departures file.
    Departures,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// Flights that departed.
    Legs,
    /// Flights that did not.
    Cancelled,
    /// Lines that are no departure.
    Rejected,
}

/// The map.
#[derive(Debug)]
pub struct Parse;

#[derive(Serialize)]
struct Leg<'a> {
    flight: String,
    destination: &'a str,
    delay_minutes: i32,
}

#[derive(Serialize)]
struct Cancelled<'a> {
    key: &'a str,
    flight: String,
    destination: &'a str,
    event_time: Timestamp,
}

#[derive(Serialize)]
struct Rejected<'a> {
    reason: String,
    line: &'a str,
}

impl Map for Parse {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<Parse> {
        Ok(Parse)
    }

    fn on_message(&self, message: &Message<Inputs>, effects: &mut Effects<Outputs>) -> Result<()> {
        let line = message.payload();
        if line == HEADER {
            return Ok(());
        }
        let departure = match Departure::parse(line) {
            Ok(departure) => departure,
            Err(reason) => {
                return effects.emit(Outputs::Rejected).json(&Rejected {
                    reason: reason.to_string(),
                    line: &String::from_utf8_lossy(line),
                });
            }
        };
        let key = format!("{}@{}", departure.carrier, departure.origin);
        let flight = format!("{}{}", departure.carrier, departure.number);
        match departure.delay_minutes {
            Some(delay_minutes) => effects
                .emit(Outputs::Legs)
                .key(&key)
                .event_time(departure.scheduled)
                .json(&Leg {
                    flight,
                    destination: departure.destination,
                    delay_minutes,
                }),
            None => effects
                .emit(Outputs::Cancelled)
                .key(&key)
                .event_time(departure.scheduled)
                .json(&Cancelled {
                    key: &key,
                    flight,
                    destination: departure.destination,
                    event_time: departure.scheduled,
                }),
        }
    }
}

export!(Parse);

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::{Output, TestBench};

    use super::*;

    const DEPARTED: &str = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,\
                            2013-01-01T10:00:00Z";
    const NOT_DEPARTED: &str = "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,\
                                2013-01-01T21:00:00Z";

    fn outputs(lines: &[&[u8]]) -> Vec<Output> {
        let bench = TestBench::<Parse>::assert_cuts_agree("{}", |bench| {
            for line in lines {
                bench.send("departures", "", Timestamp(0), line);
            }
            bench.run()
        });
        bench.outputs().to_vec()
    }

    #[test]
    fn the_header_is_skipped_wherever_it_stands() {
        assert_eq!(outputs(&[HEADER, HEADER]), []);
    }

    #[test]
    fn a_departure_becomes_a_leg_of_its_carrier_and_airport() {
        let expected = Output {
            stream: "legs".into(),
            key: b"UA@EWR".into(),
            event_time: Timestamp(1_357_034_400_000),
            payload: br#"{"flight":"UA1545","destination":"IAH","delay_minutes":2}"#.into(),
        };
        assert_eq!(outputs(&[DEPARTED.as_bytes()]), [expected]);
    }

    #[test]
    fn a_flight_that_did_not_depart_is_cancelled() {
        let expected = Output {
            stream: "cancelled".into(),
            key: b"EV@EWR".into(),
            event_time: Timestamp(1_357_074_000_000),
            payload: br#"{"key":"EV@EWR","flight":"EV4308","destination":"RDU","event_time":"2013-01-01T21:00:00Z"}"#
                .into(),
        };
        assert_eq!(outputs(&[NOT_DEPARTED.as_bytes()]), [expected]);
    }

    #[test]
    fn a_line_that_is_no_departure_is_rejected_as_it_stands() {
        let outputs = outputs(&[b"a \"quoted\" line", b"caf\xe9,1"]);
        assert!(outputs.iter().all(|output| output.stream == "rejected"));
        assert_eq!(
            outputs[0].text(),
            r#"{"reason":"expected 19 fields, found 1","line":"a \"quoted\" line"}"#
        );
        assert_eq!(
            outputs[1].text(),
            "{\"reason\":\"the line is not UTF-8\",\"line\":\"caf\u{fffd},1\"}"
        );
    }
}
