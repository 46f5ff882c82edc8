//! Two sources that meet in one transform, end to end: the flights-weather example. Each flight has the
//! weather that an independent calculation found for it, whichever of the two streams is taken first and
//! however the run is cut.

use harness::{TestHost, workspace};
use toml::Table;

use crate::example::{add, line_count, write_example};

const COMPONENTS: [(&str, &str); 3] = [
    ("departures", "flights-weather-departures"),
    ("weather", "flights-weather-weather"),
    ("join", "flights-weather-join"),
];

/// The example's pipeline in a folder of its own, its file changed by `edit`.
fn pipeline(edit: impl FnOnce(&mut Table)) -> TestHost {
    let folder = TestHost::new();
    for name in ["data/departures.csv", "data/weather.csv"] {
        folder.write(name, example_file(name));
    }
    write_example(&folder, "flights-weather", &COMPONENTS, edit);
    folder
}

fn example_file(name: &str) -> Vec<u8> {
    let path = workspace().join("examples/flights-weather").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs to the end of both sources.
fn run(folder: &TestHost) {
    let finished = folder.run(["run", "tidelock.toml"]);
    assert!(finished.status.success(), "{:?}", finished.stderr);
}

/// The joined rows, sorted as the answers are.
fn joined(folder: &TestHost) -> Vec<String> {
    let text = String::from_utf8(folder.read("out/joined.jsonl")).expect("rows are UTF-8");
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

fn assert_as_expected(folder: &TestHost) {
    let expected = String::from_utf8(example_file("expected/joined.jsonl")).expect("UTF-8");
    let rows = joined(folder);
    for (row, expected) in rows.iter().zip(expected.lines()) {
        assert_eq!(row, expected);
    }
    assert_eq!(rows.len(), expected.lines().count());
    assert_eq!(line_count(folder, "out/too_late.jsonl"), 0);
}

#[test]
fn t2_flights_without_weather_go_on_when_the_watermarks_of_both_streams_are_past_their_hour() {
    let folder = pipeline(|_| {});
    run(&folder);
    assert_as_expected(&folder);
    let without = joined(&folder);
    let without = without
        .iter()
        .filter(|row| row.ends_with(r#""weather":null}"#));
    assert_eq!(without.count(), 204);
}

#[test]
fn r3_whichever_stream_is_taken_first_each_flight_has_its_weather() {
    for delays in [r#"{ flights = "30d" }"#, r#"{ weather = "30d" }"#, "{}"] {
        let folder = pipeline(|file| {
            let join = file["computations"]["join"].as_table_mut();
            join.expect("a table").remove("input_ordering");
            let ordering =
                format!("computations.join.input_ordering = {{ stream_delays = {delays} }}");
            add(file, &ordering);
        });
        run(&folder);
        assert_as_expected(&folder);
    }
}

#[test]
fn n3_the_join_does_not_depend_on_batches_epochs_and_partitions() {
    for (rows_per_epoch, rows_per_batch, partitions) in
        [(7, 2, 1), (64, 7, 3), (1000, 64, 1), (65_536, 65_536, 2)]
    {
        let folder = pipeline(|file| {
            let text = format!(
                "epoch = {{ max_rows_per_epoch = {rows_per_epoch}, max_rows_per_batch = {rows_per_batch} }}\n\
                 computations.join.partitions = {partitions}"
            );
            add(file, &text);
        });
        run(&folder);
        assert_as_expected(&folder);
    }
}

#[test]
fn without_a_bound_for_their_disorder_flights_are_joined_rightly_or_told_to_be_too_late() {
    let folder = pipeline(|file| {
        let text = r#"sources.departures.watermark_generator = { out_of_orderness_bound = "1m", records_per_watermark = 100 }"#;
        add(file, text);
    });
    run(&folder);
    let rows = joined(&folder);
    let too_late = line_count(&folder, "out/too_late.jsonl");
    // How many are too late depends on how far the weather has got: it is the lesser watermark that counts.
    assert_eq!(rows.len() + too_late, 3962);
    let expected = String::from_utf8(example_file("expected/joined.jsonl")).expect("UTF-8");
    let expected: Vec<&str> = expected.lines().collect();
    assert!(
        rows.iter()
            .all(|row| expected.binary_search(&row.as_str()).is_ok()),
        "what is joined is joined rightly"
    );
}

#[test]
fn what_is_appended_to_a_file_beside_one_that_is_followed_is_read_by_the_next_start() {
    let folder = pipeline(|file| add(file, "sources.departures.follow = true"));
    let weather = String::from_utf8(example_file("data/weather.csv")).expect("UTF-8");
    let lines: Vec<&str> = weather.split_inclusive('\n').collect();
    let (first, rest) = lines.split_at(lines.len() - 40);
    folder.write("data/weather.csv", first.concat());
    let mut running = folder.start(["--log", "debug", "run", "tidelock.toml"]);
    running.wait_for_lines("job ended", 1);
    let _ = running.interrupt().expect_code(130);
    folder.write("data/weather.csv", [first, rest].concat().concat());
    let mut running = folder.start(["--log", "debug", "run", "tidelock.toml", "-o", "json"]);
    running.wait_for_lines("job ended", 1);
    let report = running.interrupt().expect_code(130).stdout_text();
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let jobs = report["jobs"].as_array().expect("jobs are listed").iter();
    let read: Vec<_> = jobs
        .filter(|job| job["name"] == "observations")
        .map(|job| job["input_messages"].as_u64())
        .collect();
    assert_eq!(read, [Some(40)], "{report}");
}
