//! The flights pipeline in a folder of its own, over as many of its departures as a test wants. What
//! is expected of it is for the tests to say.

use harness::{Finished, TestHost, component, workspace};

const WEEK: &str = "examples/flights/data/flights-2013-01-week1.csv";

/// The flights pipeline over the given lines of departures, in a folder of its own.
pub(crate) fn flights(lines: &[u8]) -> TestHost {
    let folder = TestHost::new();
    folder.write("flights.csv", lines);
    write_pipeline(&folder, 180);
    folder
}

/// Writes the pipeline file; delays above `alert_minutes` are alerts.
pub(crate) fn write_pipeline(folder: &TestHost, alert_minutes: u32) {
    let parse = component("flights-parse");
    let delays = component("flights-delays");
    folder.write(
        "tidelock.toml",
        format!(
            r#"
name = "flights"
[components]
parse = {parse:?}
delays = {delays:?}
[sources.departures]
type = "file"
path = "flights.csv"
format = "lines"
[computations.parse]
component = "parse"
kind = "map"
inputs = ["departures"]
outputs = ["legs", "rejected", "cancelled"]
[computations.delays]
component = "delays"
kind = "transform"
inputs = ["legs"]
outputs = ["statistics", "alerts"]
parameters = {{ alert_minutes = {alert_minutes} }}
[sinks.statistics]
type = "file"
path = "out/statistics.jsonl"
inputs = ["statistics"]
[sinks.alerts]
type = "file"
path = "out/alerts.jsonl"
inputs = ["alerts"]
[sinks.others]
type = "file"
path = "out/others.jsonl"
inputs = ["rejected", "cancelled"]
"#
        ),
    );
}

/// The week of departures that the example carries.
pub(crate) fn week() -> Vec<u8> {
    std::fs::read(workspace().join(WEEK)).expect("the example carries its week")
}

/// The first `count` lines of the week.
pub(crate) fn first_lines(count: usize) -> Vec<u8> {
    week()
        .split_inclusive(|byte| *byte == b'\n')
        .take(count)
        .flatten()
        .copied()
        .collect()
}

/// `tidelock run` with further arguments.
pub(crate) fn run(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["run", "tidelock.toml"].iter().chain(arguments))
}

/// The same, which must end well.
pub(crate) fn run_ok(folder: &TestHost, arguments: &[&str]) -> Finished {
    let finished = run(folder, arguments);
    assert!(finished.status.success(), "{:?}", finished.stderr);
    finished
}

/// How many lines an output has.
pub(crate) fn line_count(folder: &TestHost, name: &str) -> usize {
    folder
        .read(name)
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}
