//! The four days through all three computations, natively, in both orders of the streams: every flight must
//! have the weather that the independent calculation expects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use flights_weather_departures::Departures;
use flights_weather_join::Join;
use flights_weather_weather::Weather;
use tidelock_guest::Timestamp;
use tidelock_guest::testing::{Output, TestBench};

#[test]
fn flights_that_come_after_all_weather_find_theirs() {
    check(&["weather", "flights"]);
}

#[test]
fn flights_that_come_before_all_weather_wait_for_theirs() {
    check(&["flights", "weather"]);
}

fn check(order: &[&str]) {
    let departures = TestBench::<Departures>::new("{}").expect("no parameters");
    let flights = parsed(departures, "departures", "data/departures.csv");
    let observations = TestBench::<Weather>::new("{}").expect("no parameters");
    let weather = parsed(observations, "observations", "data/weather.csv");
    let mut join = TestBench::<Join>::new("{}").expect("no parameters");
    for stream in order {
        let messages = match *stream {
            "flights" => &flights,
            _ => &weather,
        };
        for message in messages {
            join.send(stream, &message.key, message.event_time, &message.payload);
        }
        join.run().expect("every message is handled");
    }
    join.end_of_input().expect("every timer is handled");

    let mut rows = join.payloads("joined");
    rows.sort();
    let expected = read("expected/joined.jsonl");
    for (row, expected) in rows.iter().zip(expected.lines()) {
        assert_eq!(row, expected);
    }
    assert_eq!(rows.len(), expected.lines().count());
    assert!(rows.iter().any(|row| row.ends_with(r#""weather":null}"#)));
    assert_eq!(join.payloads("too_late").len(), 0);
    for state in ["weather", "waiting"] {
        assert_eq!(join.state_keys(state).count(), 0, "{state} is left");
    }
    assert_eq!(join.timers().count(), 0);
}

/// What a map makes of the rows of a CSV file.
fn parsed<C>(mut bench: TestBench<C>, input: &str, file: &str) -> Vec<Output> {
    let text = read(file);
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    for line in lines {
        let row: BTreeMap<&str, &str> = header.iter().copied().zip(line.split(',')).collect();
        bench.send_json(input, "", Timestamp(0), &row);
    }
    bench.run().expect("every row is handled");
    bench.outputs().to_vec()
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
