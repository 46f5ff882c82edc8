//! The whole first week of January through both computations, natively: every row must be the one
//! that the independent calculation expects.

use std::fs;
use std::path::Path;

use flights_delays::Delays;
use flights_parse::Parse;
use tidelock_guest::Timestamp;
use tidelock_guest::testing::TestBench;

#[test]
fn every_row_of_the_week_is_as_calculated() {
    let lines = read("data/flights-2013-01-week1.csv");
    let lines = lines.strip_suffix(b"\n").expect("the last line ends");
    let mut parse = TestBench::<Parse>::new("{}").expect("no parameters");
    for line in lines.split(|byte| *byte == b'\n') {
        parse.send("departures", "", Timestamp(0), line);
    }
    parse.run().expect("every line is handled");

    let mut delays = TestBench::<Delays>::new(r#"{"alert_minutes": 180}"#).expect("parameters");
    for leg in parse.outputs() {
        if leg.stream == "legs" {
            delays.send("legs", &leg.key, leg.event_time, &leg.payload);
        }
    }
    delays.run().expect("every leg is handled");

    let counts = [
        check("rejected", &parse.payloads("rejected")),
        check("cancelled", &parse.payloads("cancelled")),
        check("statistics", &delays.payloads("statistics")),
        check("alerts", &delays.payloads("alerts")),
    ];
    let [rejected, cancelled, departed, alerts] = counts;
    assert_eq!(rejected, 5);
    assert_eq!(cancelled + departed, 6099);
    assert!(alerts > 0, "the week has great delays");
}

/// Compares a stream with its expected file, row by row, and returns how many rows it has.
fn check(stream: &str, rows: &[String]) -> usize {
    let expected = read(&format!("expected/{stream}.jsonl"));
    let expected = String::from_utf8(expected).expect("expected rows are UTF-8");
    for (index, (row, expected)) in rows.iter().zip(expected.lines()).enumerate() {
        assert_eq!(row, expected, "row {} of {stream}", index + 1);
    }
    assert_eq!(rows.len(), expected.lines().count(), "rows of {stream}");
    rows.len()
}

fn read(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
