//! The alerts example, by the commands of its README, word for word.

use std::collections::BTreeMap;

use harness::{Finished, Running, TestHost, workspace};
use serde_json::Value;

#[test]
fn the_commands_of_the_readme_bring_the_alerts_of_the_week_from_queue_to_queue() {
    let example = workspace().join("examples/alerts");
    let folder = TestHost::new();
    let read = |path: &str| std::fs::read(workspace().join(path)).expect("the example is whole");
    let text = |name: &str| {
        let text = std::fs::read_to_string(example.join(name));
        text.expect("the example is whole")
    };
    let target = workspace().join("target").display().to_string();
    let pipeline = text("tidelock.toml").replace("../../target", &target);
    folder.write("alerts/tidelock.toml", pipeline);
    let week = "flights/data/flights-2013-01-week1.csv";
    folder.write(week, read(&format!("examples/{week}")));
    let readme = text("README.md");
    let commands = readme
        .lines()
        .filter_map(|line| line.strip_prefix("    tidelock "));
    let finished: Vec<(&str, Finished)> = commands
        .map(|command| {
            let mut host = folder.command();
            host.current_dir(folder.path("alerts"));
            let ended = Running::start(host.args(command.split(' '))).wait();
            (command, ended.expect_code(0))
        })
        .collect();
    let said = |command: &str| -> Vec<String> {
        let of_command = finished.iter().filter(|(one, _)| one.starts_with(command));
        of_command.map(|(_, ended)| ended.stderr_text()).collect()
    };
    let pushes = said("queue push");
    assert!(pushes[0].contains("6105 rows pushed"), "{}", pushes[0]);
    assert!(
        pushes[1].contains("0 rows pushed, 6105 were in it already"),
        "{}",
        pushes[1]
    );
    let runs = said("run");
    let counts = ["0 records", "6105 records", "0 records"];
    for (run, count) in runs.iter().zip(counts) {
        assert!(run.contains(&format!("completed: {count} in")), "{run}");
    }
    assert_eq!(runs.len(), counts.len());

    let out = |command: &str| {
        let mut found = finished.iter().filter(|(one, _)| *one == command);
        found.next().expect("the README has it").1.stdout_text()
    };
    let listed = out("queue list");
    let expected = "queue alerts, kept for 30d and up to 1GiB";
    assert!(listed.contains(expected), "{listed}");
    assert!(
        listed.contains("read by source departures of pipeline alerts, 0 rows behind"),
        "{listed}"
    );
    // All alerts of the independent answer; those of a key in its order.
    let answer = String::from_utf8(read("examples/flights/expected/alerts.jsonl"));
    let answer = by_key(&answer.expect("it is text"));
    assert_eq!(by_key(&out("queue read alerts")), answer);
    let rows = out("queue read alerts --limit 2 -o json");
    let rows: Vec<Value> = (rows.lines())
        .map(|row| serde_json::from_str(row).expect("a row is JSON"))
        .collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let payload = row["payload"].as_str().expect("it is text");
        let payload: Value = serde_json::from_str(payload).expect("an alert is JSON");
        assert_eq!(row["key"], payload["key"]);
        assert!(
            row["event_time"]
                .as_str()
                .is_some_and(|time| time.starts_with("2013-01-0"))
        );
    }
}

/// Alerts by their keys, each key's in their order.
fn by_key(alerts: &str) -> BTreeMap<String, Vec<String>> {
    let mut keyed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in alerts.lines() {
        let alert: Value = serde_json::from_str(line).expect("an alert is JSON");
        let key = alert["key"].as_str().expect("it has a key").to_owned();
        keyed.entry(key).or_default().push(line.to_owned());
    }
    keyed
}
