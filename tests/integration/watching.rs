//! What a run shows of its jobs: keys that keep partitions from sharing the work, and readers that
//! others wait for.

use harness::{Running, TestHost, component};
use serde_json::Value;

use crate::example::line_count;
use crate::keyed_sum;
use crate::partitions::partition;

/// The keyed-sum pipeline over these users' events, its transform in four partitions.
fn sums_of(users: impl Iterator<Item = String>) -> TestHost {
    let folder = TestHost::new();
    let events: String = users
        .map(|user| format!("{{\"user\":\"{user}\",\"amount\":1}}\n"))
        .collect();
    folder.write("events.jsonl", events);
    keyed_sum::write_pipeline(&folder, |file| partition(file, "sum", 4));
    folder
}

/// Every fourth of 20,000 events is of one user, the others are of 3,000.
fn users_with_a_hot_one() -> impl Iterator<Item = String> {
    (0..20_000).map(|event| match event % 4 {
        0 => "the-hot-one".to_owned(),
        _ => format!("user-{}", event % 3_001),
    })
}

fn jobs_of(document: &Value) -> &Vec<Value> {
    document["jobs"].as_array().expect("jobs are a list")
}

#[test]
fn a_hot_key_is_told_with_its_share_of_its_partition() {
    let folder = sums_of(users_with_a_hot_one());
    let finished = folder.run(["run", ".", "-o", "json"]).expect_code(0);
    let document: Value = serde_json::from_slice(&finished.stdout).expect("JSON");
    let sums: Vec<&Value> = (jobs_of(&document).iter())
        .filter(|job| job["name"] == "sum")
        .collect();
    let names: Vec<&str> = (sums.iter())
        .map(|job| job["job"].as_str().expect("a job has a name"))
        .collect();
    assert_eq!(names, ["sum[0]", "sum[1]", "sum[2]", "sum[3]"]);
    let taken = |job: &Value| job["input_messages"].as_u64().expect("a number");
    assert_eq!(sums.iter().map(|job| taken(job)).sum::<u64>(), 20_000);
    let hot: Vec<&&Value> = (sums.iter())
        .filter(|job| job["hot_keys"] != Value::Array(Vec::new()))
        .collect();
    let [job] = hot[..] else {
        panic!("one partition has a hot key: {document:#}");
    };
    let hot = job["hot_keys"].as_array().expect("a list");
    assert_eq!(hot.len(), 1, "{hot:?}");
    assert_eq!(hot[0]["key"], "the-hot-one");
    let share = hot[0]["share"].as_f64().expect("a number");
    let true_share = 5_000.0 / taken(job) as f64;
    assert!(
        share <= true_share && share > true_share - 0.02,
        "{share} of {true_share}"
    );

    let folder = sums_of(users_with_a_hot_one());
    let said = folder.run(["run", "."]).expect_code(0).stderr_text();
    let name = job["job"].as_str().expect("a job has a name");
    let percent = (share * 100.0).floor();
    let expected = format!("job {name}: key the-hot-one has {percent} % of its messages");
    assert!(said.contains(&expected), "{expected} is missing in: {said}");
    assert!(said.contains("more partitions do not help"), "{said}");
}

#[test]
fn keys_that_share_evenly_are_no_news() {
    let folder = sums_of((0..20_000).map(|event| format!("user-{}", event % 3_001)));
    let said = folder.run(["run", "."]).expect_code(0).stderr_text();
    assert!(!said.contains("key user-"), "{said}");
}

/// Lines of the source that two transforms read.
const LINES: usize = 4_000;
/// What each of them has, without its end.
const LINE_BYTES: usize = 200;
/// The bound of a lane, in lines of the source, and what one epoch may put above it.
const LANE_LINES: usize = 300;
const EPOCH_LINES: usize = 50;

/// A stream that is read by `slow`, whose rows go to standard output, and by `fast`.
fn two_readers() -> TestHost {
    let folder = TestHost::new();
    let lines = (0..LINES).map(|line| format!("{line:0>LINE_BYTES$}\n"));
    folder.write("lines.txt", lines.collect::<String>());
    folder.write(
        "tidelock.toml",
        format!(
            r#"
name = "readers"
[epoch]
max_rows_per_epoch = {EPOCH_LINES}
[lanes]
max_bytes = "{max_bytes}B"
[components]
slow = {slow:?}
fast = {fast:?}
[sources.in]
type = "file"
path = "lines.txt"
format = "lines"
[computations.slow]
component = "slow"
kind = "transform"
inputs = ["in"]
outputs = ["out"]
parameters = {{ behaviour = "echoes" }}
[computations.fast]
component = "fast"
kind = "transform"
inputs = ["in"]
outputs = ["apart"]
[sinks.out]
type = "stdout"
inputs = ["out"]
[sinks.apart]
type = "file"
path = "apart.txt"
inputs = ["apart"]
"#,
            max_bytes = LANE_LINES * LINE_BYTES,
            slow = component("behaves_as_transform"),
            fast = component("echoes_apart"),
        ),
    );
    folder
}

#[test]
fn a_slow_reader_stops_a_fast_one_only_at_the_bound_and_is_named() {
    let folder = two_readers();
    let mut command = folder.command();
    command.args(["--log", "debug", "run", "."]);
    // Nobody empties standard output: the slow reader stands still when the pipe is full.
    let mut running = Running::start_with_stdout_unread(&mut command);
    assert_eq!(running.wait_for_lines("lane full", 1), 1);
    // The fast one takes all that the bound lets through, and meanwhile a person is told.
    let (mut taken, mut told) = (0, 0);
    while taken < LANE_LINES {
        told += 1;
        assert!(running.wait_for_lines("in waits for slow", told) >= told);
        taken = line_count(&folder, "apart.txt");
    }
    const PIPE_LINES: usize = (64 << 10) / LINE_BYTES;
    assert!(
        taken <= PIPE_LINES + LANE_LINES + 3 * EPOCH_LINES,
        "the source went on although the slow reader stood still: {taken} lines"
    );
    // Now that somebody reads, all come to their end.
    let finished = running.wait().expect_code(0);
    assert_eq!(finished.stdout.len(), LINES * (LINE_BYTES + 1));
    assert_eq!(line_count(&folder, "apart.txt"), LINES);
    let said = finished.stderr_text();
    let told = (said.lines()).find(|line| line.starts_with("job in waited "));
    let told = told.unwrap_or_else(|| panic!("nobody was waited for: {said}"));
    assert!(told.ends_with(" for slow (stream in)"), "{told}");
}
