//! What a run shows of its jobs: keys that keep partitions from sharing the work, and readers that
//! others wait for.

use harness::{TestHost, component};
use serde_json::Value;

/// The keyed-sum pipeline over these users' events, its transform in four partitions.
fn sums_of(users: impl Iterator<Item = String>) -> TestHost {
    let folder = TestHost::new();
    let events: String = users
        .map(|user| format!("{{\"user\":\"{user}\",\"amount\":1}}\n"))
        .collect();
    folder.write("events.jsonl", events);
    folder.write(
        "tidelock.toml",
        format!(
            r#"
name = "sums"
[components]
parse = {parse:?}
sum = {sum:?}
[sources.events]
type = "file"
path = "events.jsonl"
format = "lines"
[computations.parse]
component = "parse"
kind = "map"
inputs = ["events"]
outputs = ["amounts"]
[computations.sum]
component = "sum"
kind = "transform"
inputs = ["amounts"]
outputs = ["sums"]
partitions = 4
[sinks.sums]
type = "file"
path = "sums.jsonl"
inputs = ["sums"]
"#,
            parse = component("keyed-sum-parse"),
            sum = component("keyed-sum-sum"),
        ),
    );
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
