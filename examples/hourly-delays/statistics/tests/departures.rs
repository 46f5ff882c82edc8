//! Both files of departures through both computations, natively, with watermarks as a source makes them:
//! every row must be the one that the independent calculation expects, and so must every late leg.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use hourly_delays_parse::Parse;
use hourly_delays_statistics::Statistics;
use tidelock_guest::Timestamp;
use tidelock_guest::testing::TestBench;

const RECORDS_PER_WATERMARK: usize = 1000;
const OUT_OF_ORDERNESS_BOUND: Duration = Duration::from_secs(60);

#[test]
fn sorted_by_the_hour_no_departure_is_late() {
    assert_eq!(check("departures-sorted.csv", "sorted"), 0);
}

#[test]
fn in_the_order_of_the_file_most_departures_are_late() {
    let late = check("departures.csv", "file-order");
    assert!(late > 3000, "{late}");
}

/// Compares rows and late legs with what is expected and returns how many legs were late.
fn check(data: &str, expected: &str) -> usize {
    let text = read(&format!("data/{data}"));
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let mut statistics = TestBench::<Statistics>::new("{}").expect("parameters");
    statistics.divert_late_messages();
    let mut greatest = Timestamp(0);
    for (index, line) in lines.enumerate() {
        let row: BTreeMap<&str, &str> = header.iter().copied().zip(line.split(',')).collect();
        let mut parse = TestBench::<Parse>::new("{}").expect("no parameters");
        parse.send_json("departures", "", Timestamp(0), &row);
        parse.run().expect("every row is handled");
        for leg in parse.outputs() {
            greatest = greatest.max(leg.event_time);
            statistics.send("legs", &leg.key, leg.event_time, &leg.payload);
        }
        if (index + 1) % RECORDS_PER_WATERMARK == 0 {
            statistics
                .advance_watermark("legs", greatest - OUT_OF_ORDERNESS_BOUND)
                .expect("every leg and timer is handled");
        }
    }
    statistics.end_of_input().expect("every timer is handled");

    let rows = statistics.payloads("hours");
    assert_rows(&rows, &read(&format!("expected/{expected}/hours.jsonl")));
    let late: Vec<String> = (statistics.late_messages().iter())
        .map(|late| String::from_utf8_lossy(&late.payload).into_owned())
        .collect();
    assert_rows(&late, &read(&format!("expected/{expected}/late.jsonl")));
    assert_eq!(statistics.payloads("too_late").len(), 0);
    assert_eq!(statistics.state_keys("hours").count(), 0);
    late.len()
}

fn assert_rows(rows: &[String], expected: &str) {
    for (index, (row, expected)) in rows.iter().zip(expected.lines()).enumerate() {
        assert_eq!(row, expected, "row {}", index + 1);
    }
    assert_eq!(rows.len(), expected.lines().count());
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
