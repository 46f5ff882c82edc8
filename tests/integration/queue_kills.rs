//! SIGKILL at any moment of pushes into a queue and of a pipeline between two queues: at the end every row is there
//! once, and rows of one key are in order. The same against a host whose rows are no part of the commit shows that
//! the test would see it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use harness::{Running, TestHost, component, program, tidelock};
use serde_json::Value;

use crate::kill::{Random, seed};

/// Rows that are pushed.
const ROWS: u64 = 12_000;
/// Keys of them.
const USERS: u64 = 40;
/// Rounds: each kills a push and a run.
const ROUNDS: usize = 25;
/// A run is killed after at most this many epochs: some while it is careful, as after each kill, and most behind that.
const EPOCHS_PER_ROUND_MAX: u64 = 50;

/// What the kills hit.
#[derive(Debug, Default)]
struct Kills {
    /// Pushes that were killed, and those of them that had committed rows by then.
    pushes: usize,
    pushes_within: usize,
    /// Runs that were killed.
    runs: usize,
}

#[test]
fn c2_kills_of_pushes_and_runs_leave_every_row_once_and_in_order() {
    let folder = folder();
    let kills = kill_rounds(&tidelock(), &folder);
    assert!(
        kills.pushes_within >= 10,
        "too few kills hit a push: {kills:?}"
    );
    assert!(kills.runs >= 15, "too few kills hit a run: {kills:?}");
    let wrong = wrong_rows(&folder);
    assert!(
        wrong.is_empty(),
        "{} rows are wrong: {:?}",
        wrong.len(),
        wrong.first()
    );
}

#[test]
fn c2_the_kill_test_of_queues_sees_a_broken_commit() {
    let folder = folder();
    let kills = kill_rounds(&program("broken-host"), &folder);
    let wrong = wrong_rows(&folder);
    println!("{} rows are wrong", wrong.len());
    assert!(
        !wrong.is_empty(),
        "rows that are no part of the commit were not seen: {kills:?}"
    );
}

/// The keyed sums between two queues, with epochs so small that kills find many.
fn folder() -> TestHost {
    let folder = TestHost::new();
    let path = |package: &str| component(package).display().to_string();
    let (parse, sum) = (path("keyed-sum-parse"), path("keyed-sum-sum"));
    let pipeline = format!(
        r#"
name = "sums"
[components]
parse = {parse:?}
sum = {sum:?}
[queues.events]
partitions = 2
[queues.sums]
partitions = 3
[sources.events]
type = "queue"
queue = "events"
follow = false
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
partitions = 2
[sinks.sums]
type = "queue"
queue = "sums"
inputs = ["sums"]
[epoch]
max_rows_per_epoch = 10
"#
    );
    folder.write("tidelock.toml", pipeline);
    folder
}

/// Writes the first rows into the file that is pushed.
fn write_events(folder: &TestHost, count: u64) {
    let row = |number| format!("{{\"user\":\"u{}\",\"amount\":{number}}}\n", number % USERS);
    folder.write("events.jsonl", (1..=count).map(row).collect::<String>());
}

fn kill_rounds(host: &Path, folder: &TestHost) -> Kills {
    let mut random = Random(seed());
    let mut kills = Kills::default();
    // The queues are made by the first run, which finds nothing in them.
    let _ = start(host, folder, &["run", "."]).wait().expect_code(0);
    for round in 0..ROUNDS {
        write_events(folder, (round as u64 + 1) * ROWS / ROUNDS as u64);
        let mut push = start(host, folder, &PUSH);
        match random.below(4) {
            0 => drop(push.wait_for_lines("queue opened", 1)),
            _ => drop(push.wait_for_lines("rows pushed", 1 + random.below(3) as usize)),
        }
        let killed = push.kill();
        kills.pushes += usize::from(killed.was_killed());
        let has_pushed = killed.stderr_text().contains("rows pushed");
        kills.pushes_within += usize::from(killed.was_killed() && has_pushed);
        let mut run = start(host, folder, &["run", "."]);
        match round % 5 {
            0 => drop(run.wait_for_lines("job opened", 1)),
            _ => {
                let epochs = 1 + random.below(EPOCHS_PER_ROUND_MAX);
                run.wait_for_lines("epoch committed", epochs as usize);
            }
        }
        kills.runs += usize::from(run.kill().was_killed());
    }
    let _ = start(host, folder, &PUSH).wait().expect_code(0);
    // A run that was killed behind the end of its input is gone on with first; what came later is the next one's.
    for _ in 0..2 {
        let _ = start(host, folder, &["run", "."]).wait().expect_code(0);
    }
    println!("{kills:?}");
    kills
}

/// The whole file each time: what is in the queue is recognized.
const PUSH: [&str; 9] = [
    "queue",
    "push",
    "events",
    "events.jsonl",
    "--format=jsonl",
    "--key-field=user",
    "--producer-id=test",
    "--seq-no-start=1",
    "--max-batch-rows=100",
];

fn start(host: &Path, folder: &TestHost, arguments: &[&str]) -> Running {
    let mut command = Command::new(host);
    command.current_dir(folder.folder());
    Running::start(command.args(["--log", "debug"]).args(arguments))
}

/// What is wrong with the rows of both queues, in words.
fn wrong_rows(folder: &TestHost) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut amounts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in rows(folder, "events") {
        let event = payload(&row);
        let user = text(&event, "user");
        amounts
            .entry(user)
            .or_default()
            .push(number(&event, "amount"));
    }
    for user in 0..USERS {
        let expected: Vec<u64> = (1..=ROWS).filter(|number| number % USERS == user).collect();
        let found = amounts.get(&format!("u{user}"));
        if found != Some(&expected) {
            wrong.push(format!("events of u{user}: {found:?}"));
        }
    }
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut total = 0;
    for row in rows(folder, "sums") {
        total += 1;
        let sum = payload(&row);
        let user = text(&sum, "user");
        let (count, before) = counts.entry(user.clone()).or_default();
        let first: u64 = user[1..].parse().expect("a user is a number");
        let amount = match first {
            0 => (*count + 1) * USERS,
            first => first + *count * USERS,
        };
        *count += 1;
        *before += amount;
        if (number(&sum, "count"), number(&sum, "sum")) != (*count, *before) {
            wrong.push(format!(
                "row {row} where count {count} and sum {before} come next"
            ));
        }
    }
    if total != ROWS {
        wrong.push(format!("{total} rows in sums"));
    }
    wrong
}

/// All rows of a queue, partition by partition, each in its order.
fn rows(folder: &TestHost, queue: &str) -> Vec<Value> {
    let read = folder.run(["queue", "read", queue, "-o", "json"]);
    let text = read.expect_code(0).stdout_text();
    let rows = text.lines().map(serde_json::from_str);
    rows.map(|row| row.expect("a row is JSON")).collect()
}

fn payload(row: &Value) -> Value {
    let payload = row["payload"].as_str().expect("a payload is text");
    serde_json::from_str(payload).expect("a payload is JSON")
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().expect("it is text").to_owned()
}

fn number(object: &Value, field: &str) -> u64 {
    object[field].as_u64().expect("it is a number")
}
