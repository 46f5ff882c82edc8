//! Queues as a person uses them: at the command line, and declared, read and written by pipelines.

use harness::{Finished, TestHost, component};
use serde_json::Value;

fn queue(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["queue"].iter().chain(arguments))
}

fn queue_ok(folder: &TestHost, arguments: &[&str]) -> Finished {
    queue(folder, arguments).expect_code(0)
}

/// The payloads of a queue, partition by partition.
fn read(folder: &TestHost, name: &str) -> Vec<String> {
    let text = queue_ok(folder, &["read", name]).stdout_text();
    text.lines().map(str::to_owned).collect()
}

fn list(folder: &TestHost, name: &str) -> Value {
    let listed = queue_ok(folder, &["list", name, "-o", "json"]);
    let mut listed: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    listed[0].take()
}

fn run(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["run", "."].iter().chain(arguments))
}

/// Copies queue "from" into queue "to".
const COPY: &str = r#"
name = "copy"
[queues.from]
[queues.to]
partitions = 2
[sources.rows]
type = "queue"
queue = "from"
follow = false
[sinks.rows]
type = "queue"
queue = "to"
inputs = ["rows"]
"#;

fn copy() -> TestHost {
    let folder = TestHost::new();
    folder.write("tidelock.toml", COPY);
    folder
}

#[test]
fn rows_are_pushed_listed_read_and_trimmed() {
    let folder = TestHost::new();
    let refused = queue(&folder, &["list"]).expect_code(1).stderr_text();
    assert!(
        refused.contains("there is no data directory .tidelock"),
        "{refused}"
    );
    queue_ok(
        &folder,
        &[
            "create",
            "alerts",
            "--partitions",
            "3",
            "--retention-time",
            "7d",
        ],
    );
    let again = queue(&folder, &["create", "alerts"])
        .expect_code(5)
        .stderr_text();
    assert!(
        again.contains("there already, with 3 partitions"),
        "{again}"
    );
    let unknown = queue(&folder, &["read", "alert"])
        .expect_code(1)
        .stderr_text();
    assert!(
        unknown.contains("no queue alert in the data directory, which has alerts"),
        "{unknown}"
    );
    assert_eq!(queue(&folder, &["create", "Alerts"]).status.code(), Some(2));

    let rows = r#"{"payload":"a\nb","key":"UA","event_time":"2013-01-01T06:15:00Z"}
{"payload":{"n":1},"key":"AA"}

{"payload":"c","key":"UA"}
"#;
    folder.write("rows.jsonl", rows);
    let pushed = queue_ok(
        &folder,
        &[
            "push",
            "alerts",
            "rows.jsonl",
            "--format",
            "records",
            "-o",
            "json",
        ],
    );
    let pushed: Value = serde_json::from_slice(&pushed.stdout).expect("it is JSON");
    assert_eq!(
        (&pushed["pushed"], &pushed["repeated"]),
        (&3.into(), &0.into())
    );

    let found = queue_ok(&folder, &["read", "alerts", "-o", "json"]).stdout_text();
    let found: Vec<Value> = (found.lines())
        .map(|line| serde_json::from_str(line).expect("a row is JSON"))
        .collect();
    assert_eq!(found.len(), 3);
    let of_key: Vec<&Value> = found.iter().filter(|row| row["key"] == "UA").collect();
    assert_eq!(of_key[0]["payload"], "a\nb");
    assert_eq!(of_key[0]["event_time"], "2013-01-01T06:15:00.000Z");
    assert_eq!(of_key[1]["payload"], "c");
    assert_eq!(of_key[1]["event_time"], Value::Null);
    assert_eq!(of_key[0]["partition"], of_key[1]["partition"]);
    assert!(of_key[0]["offset"].as_u64() < of_key[1]["offset"].as_u64());

    let listed = list(&folder, "alerts");
    let rows: u64 = (listed["partitions"].as_array().expect("a list").iter())
        .map(|partition| partition["rows"].as_u64().expect("a number"))
        .sum();
    assert_eq!(rows, 3);
    assert_eq!(listed["retention"]["time_ms"], 7 * 86_400_000_u64);
    let text = queue_ok(&folder, &["list"]).stdout_text();
    assert!(text.contains("queue alerts, kept for 7d"), "{text}");

    let partition = of_key[0]["partition"].to_string();
    let refused = queue(&folder, &["trim", "alerts", "--before", "1"])
        .expect_code(2)
        .stderr_text();
    assert!(refused.contains("name one with --partition"), "{refused}");
    queue_ok(
        &folder,
        &["trim", "alerts", "--before", "1", "--partition", &partition],
    );
    let refused = queue(
        &folder,
        &["read", "alerts", "--from", "0", "--partition", &partition],
    );
    let refused = refused.expect_code(1).stderr_text();
    assert!(
        refused.contains("row 0 of queue partition") && refused.contains("is gone"),
        "{refused}"
    );
    let limited = queue_ok(
        &folder,
        &["read", "alerts", "--limit", "1", "--partition", &partition],
    );
    assert_eq!(limited.stdout_text().lines().count(), 1);
    let trimmed = queue_ok(&folder, &["trim", "alerts", "--all", "-o", "json"]);
    let trimmed: Value = serde_json::from_slice(&trimmed.stdout).expect("it is JSON");
    assert_eq!(trimmed["trimmed_rows"], 2);
    assert!(read(&folder, "alerts").is_empty());

    queue_ok(
        &folder,
        &["set-retention", "alerts", "--retention-bytes", "1GiB"],
    );
    let retention = list(&folder, "alerts")["retention"].take();
    assert_eq!(
        (&retention["time_ms"], &retention["bytes"]),
        (&Value::Null, &(1_u64 << 30).into())
    );
    queue_ok(&folder, &["delete", "alerts"]);
    let none = queue_ok(&folder, &["list"]);
    assert!(none.stdout.is_empty());
    assert!(none.stderr_text().contains("there is no queue"));
}

#[test]
fn a_repeated_push_adds_what_is_missing_and_nothing_else() {
    let folder = TestHost::new();
    queue_ok(&folder, &["create", "lines"]);
    let push = |count: u64, producer: &str| {
        let lines: String = (1..=count)
            .map(|number| format!("line {number}\n"))
            .collect();
        folder.write("lines", lines);
        let arguments = [
            "push",
            "lines",
            "lines",
            "--producer-id",
            producer,
            "-o",
            "json",
        ];
        let pushed = queue_ok(&folder, &arguments);
        let pushed: Value = serde_json::from_slice(&pushed.stdout).expect("it is JSON");
        (pushed["pushed"].as_u64(), pushed["repeated"].as_u64())
    };
    assert_eq!(push(3, "a"), (Some(3), Some(0)));
    assert_eq!(push(3, "a"), (Some(0), Some(3)));
    assert_eq!(push(5, "a"), (Some(2), Some(3)));
    assert_eq!(
        push(1, "b"),
        (Some(1), Some(0)),
        "another producer has its own numbers"
    );
    let all: Vec<String> = (1..=5).map(|number| format!("line {number}")).collect();
    assert_eq!(read(&folder, "lines")[..5], all);
    // Without a producer nothing is recognized.
    queue_ok(&folder, &["push", "lines", "lines"]);
    assert_eq!(read(&folder, "lines").len(), 7);
}

#[test]
fn malformed_input_is_told_with_its_place_and_what_stands_before_it_is_pushed() {
    let folder = TestHost::new();
    queue_ok(&folder, &["create", "rows"]);
    folder.write(
        "rows",
        "{\"payload\":1,\"producer_id\":\"p\",\"seq_no\":1}\n{\"payload\":2,\"seq_no\":2}\n",
    );
    let arguments = ["push", "rows", "rows", "--format", "records"];
    let refused = queue(&folder, &arguments).expect_code(1).stderr_text();
    assert!(
        refused.contains("rows:2: seq_no 2 without a producer"),
        "{refused}"
    );
    assert!(
        refused.contains("1 rows before it were pushed"),
        "{refused}"
    );
    assert_eq!(read(&folder, "rows"), ["1"]);
    folder.write("rows", "{\"payload\":1}\nno json\n");
    let refused = queue(&folder, &arguments).expect_code(1).stderr_text();
    assert!(refused.contains("rows:2: it is not a record"), "{refused}");
    let refused = queue(&folder, &["push", "rows", "missing"])
        .expect_code(1)
        .stderr_text();
    assert!(refused.contains("failed to open missing"), "{refused}");
    let refused = queue(&folder, &["push", "rows", "rows", "--key-field", "a"]).expect_code(2);
    assert!(refused.stderr_text().contains("--format jsonl"));
    let refused = queue(&folder, &["push", "rows", "rows", "--producer-id", ""]).expect_code(2);
    assert!(refused.stderr_text().contains("--producer-id"));

    let long = "k".repeat(32_769);
    folder.write(
        "rows",
        format!("\u{feff}{{\"payload\":3}}\n{{\"payload\":4,\"key\":\"{long}\"}}\n"),
    );
    let refused = queue(&folder, &arguments).expect_code(1).stderr_text();
    assert!(
        refused.contains("rows:2: a key of 32769 bytes"),
        "{refused}"
    );
    assert_eq!(read(&folder, "rows"), ["1", "1", "3"]);
    let refused = queue(&folder, &["read", "rows", "--from", "9"])
        .expect_code(1)
        .stderr_text();
    assert!(
        refused.contains("failed to read queue rows[0] at offset 9"),
        "{refused}"
    );
}

#[cfg(unix)]
#[test]
fn whole_lines_of_a_pipe_are_pushed_while_the_rest_of_one_is_still_to_come() {
    use std::io::Write as _;

    let folder = TestHost::new();
    queue_ok(&folder, &["create", "rows"]);
    let pipe = folder.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("there is mkfifo").success());
    let mut pushing = folder.start(["--log", "debug", "queue", "push", "rows", "pipe"]);
    let mut writer = std::fs::File::create(&pipe).expect("the push opens the other end");
    writer.write_all(b"a\nb\nc").expect("there is room");
    pushing.wait_for_lines("rows=2", 1);
    writer.write_all(b"d\n").expect("there is room");
    drop(writer);
    let _ = pushing.wait().expect_code(0);
    assert_eq!(read(&folder, "rows"), ["a", "b", "cd"]);
}

#[test]
fn bytes_that_are_no_text_are_shown_in_base64() {
    let folder = TestHost::new();
    queue_ok(&folder, &["create", "rows"]);
    folder.write("rows", b"\xff\x00\n");
    queue_ok(&folder, &["push", "rows", "rows"]);
    let shown = queue_ok(&folder, &["read", "rows", "-o", "json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("it is JSON");
    assert_eq!(shown["payload"]["base64"], "/wA=");
}

#[test]
fn a_pipeline_makes_its_queues_and_two_pipelines_may_share_one() {
    let folder = copy();
    let _ = run(&folder, &[]).expect_code(0);
    folder.write("lines", "a\nb\nc\n");
    queue_ok(&folder, &["push", "from", "lines"]);
    let _ = run(&folder, &[]).expect_code(0);
    assert_eq!(read(&folder, "to"), ["a", "b", "c"]);
    let _ = run(&folder, &[]).expect_code(0);
    assert_eq!(read(&folder, "to").len(), 3, "nothing is read twice");
    // Another pipeline of the same data directory reads what the first one wrote.
    let other = r#"
name = "other"
[queues.to]
partitions = 2
[sources.rows]
type = "queue"
queue = "to"
follow = false
[sinks.rows]
type = "file"
path = "out/rows"
inputs = ["rows"]
"#;
    folder.write("other.toml", other);
    let arguments = ["run", "other.toml", "--data", ".tidelock"];
    let _ = folder.run(arguments).expect_code(0);
    assert_eq!(folder.read("out/rows"), b"a\nb\nc\n");
    let listed = list(&folder, "to");
    assert_eq!(listed["writers"][0], "sink rows of pipeline copy");
    assert_eq!(listed["readers"][0]["pipeline"], "other");
    assert_eq!(listed["readers"][0]["lag"], 0);
    queue_ok(&folder, &["push", "to", "lines"]);
    assert_eq!(list(&folder, "to")["readers"][0]["lag"], 3);
}

#[test]
fn another_number_of_partitions_is_a_conflict_that_check_finds_too() {
    let folder = copy();
    let _ = run(&folder, &[]).expect_code(0);
    folder.write(
        "tidelock.toml",
        COPY.replace("partitions = 2", "partitions = 4"),
    );
    let refused = run(&folder, &["--accept-change"])
        .expect_code(5)
        .stderr_text();
    let expected = "queue to has 2 partitions, and the pipeline declares 4";
    assert!(refused.contains(expected), "{refused}");
    let checked = folder.run(["check", "."]).expect_code(1).stdout_text();
    assert!(
        checked.contains("tidelock.toml:4: queue to has 2 partitions"),
        "{checked}"
    );
    // A retention that the file does not write stays as it is; one that it writes is put in force.
    folder.write("tidelock.toml", COPY);
    queue_ok(&folder, &["set-retention", "to", "--retention-time", "1h"]);
    let _ = run(&folder, &[]).expect_code(0);
    assert_eq!(list(&folder, "to")["retention"]["time_ms"], 3_600_000);
    folder.write(
        "tidelock.toml",
        COPY.replace("partitions = 2", "partitions = 2\nretention = \"2h\""),
    );
    let _ = run(&folder, &[]).expect_code(0);
    assert_eq!(list(&folder, "to")["retention"]["time_ms"], 7_200_000);
}

#[test]
fn rows_that_were_trimmed_unread_stop_the_run_until_that_is_accepted() {
    let folder = copy();
    let _ = run(&folder, &[]).expect_code(0);
    folder.write("lines", "a\nb\nc\n");
    queue_ok(&folder, &["push", "from", "lines"]);
    queue_ok(&folder, &["trim", "from", "--before", "2"]);
    let refused = run(&folder, &[]).expect_code(5).stderr_text();
    let expected = "rows of source rows (from[0]): was read up to offset 0, now trimmed up to offset 2, 2 rows are gone unread";
    assert!(refused.contains(expected), "{refused}");
    let _ = run(&folder, &["--accept-change"]).expect_code(0);
    assert_eq!(read(&folder, "to"), ["c"]);
}

#[test]
fn a_queue_in_use_is_deleted_only_when_told_so_and_comes_back_as_another_one() {
    let folder = copy();
    folder.write("lines", "a\nb\nc\n");
    let _ = run(&folder, &[]).expect_code(0);
    queue_ok(&folder, &["push", "from", "lines", "--producer-id", "p"]);
    let _ = run(&folder, &[]).expect_code(0);
    let refused = queue(&folder, &["delete", "from"])
        .expect_code(5)
        .stderr_text();
    assert!(
        refused.contains("used by source rows of pipeline copy"),
        "{refused}"
    );
    queue_ok(&folder, &["delete", "from", "--even-if-used"]);
    let refused = run(&folder, &[]).expect_code(5).stderr_text();
    assert!(
        refused.contains("queue of source rows (from[0]): was partition"),
        "{refused}"
    );
    let _ = run(&folder, &["--accept-change"]).expect_code(0);
    // The producer is new to it as well.
    queue_ok(&folder, &["push", "from", "lines", "--producer-id", "p"]);
    let _ = run(&folder, &[]).expect_code(0);
    assert_eq!(read(&folder, "to"), ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn rows_beyond_the_retention_go_while_a_run_goes_on() {
    let folder = copy();
    let _ = run(&folder, &[]).expect_code(0);
    folder.write("lines", "0123456789\n".repeat(1_000));
    // A row counts for 26 bytes; chunks of a hundred rows.
    queue_ok(
        &folder,
        &["push", "from", "lines", "--max-batch-rows", "100"],
    );
    let _ = run(&folder, &[]).expect_code(0);
    queue_ok(
        &folder,
        &["set-retention", "from", "--retention-bytes", "8000B"],
    );
    let mut running = folder.start(["--log", "info", "run", "."]);
    running.wait_for_lines("queue trimmed", 1);
    let _ = running.wait().expect_code(0);
    let kept = list(&folder, "from")["partitions"][0].take();
    assert_eq!(
        (&kept["start"], &kept["rows"]),
        (&600.into(), &400.into()),
        "{kept}"
    );
    assert_eq!(read(&folder, "to").len(), 1_000);
}

#[test]
fn a_source_that_has_never_read_begins_with_what_retention_has_left() {
    let folder = copy();
    queue_ok(&folder, &["create", "from"]);
    folder.write("lines", "0123456789\n".repeat(1_000));
    queue_ok(
        &folder,
        &["push", "from", "lines", "--max-batch-rows", "100"],
    );
    queue_ok(
        &folder,
        &["set-retention", "from", "--retention-bytes", "8000B"],
    );
    let _ = run(&folder, &[]).expect_code(0);
    assert_eq!(list(&folder, "from")["partitions"][0]["start"], 600);
    assert_eq!(read(&folder, "to").len(), 400);
}

#[test]
fn a_row_that_a_sink_refuses_is_named_and_never_passed_over_in_silence() {
    let folder = TestHost::new();
    let pipeline = r#"
name = "out"
[queues.rows]
[sources.rows]
type = "queue"
queue = "rows"
follow = false
[sinks.out]
type = "file"
path = "out"
inputs = ["rows"]
"#;
    folder.write("tidelock.toml", pipeline);
    queue_ok(&folder, &["create", "rows"]);
    folder.write("rows", "{\"payload\":\"a\\nb\"}\n{\"payload\":\"c\"}\n");
    queue_ok(&folder, &["push", "rows", "rows", "--format", "records"]);
    let failed = run(&folder, &[]).expect_code(1).stderr_text();
    let expected = "sink out failed, at what follows from offset 0 of queue rows[0] (source rows)";
    assert!(failed.contains(expected), "{failed}");
    // The first epoch failed, and still it is known where the source began.
    queue_ok(&folder, &["trim", "rows", "--before", "1"]);
    let refused = run(&folder, &[]).expect_code(5).stderr_text();
    assert!(refused.contains("1 rows are gone unread"), "{refused}");
    let _ = run(&folder, &["--accept-change"]).expect_code(0);
    assert_eq!(folder.read("out"), b"c\n");
}

#[test]
fn a_row_is_read_as_soon_as_it_is_committed() {
    let folder = TestHost::new();
    let pipeline = r#"
name = "there-and-back"
[queues.rows]
partitions = 2
[sources.lines]
type = "file"
path = "lines"
format = "lines"
follow = true
[sinks.rows]
type = "queue"
queue = "rows"
inputs = ["lines"]
[sources.rows]
type = "queue"
queue = "rows"
[sinks.out]
type = "stdout"
inputs = ["rows"]
"#;
    folder.write("tidelock.toml", pipeline);
    folder.write("lines", "a\nb\n");
    let mut running = folder.start(["--log", "debug", "run", "."]);
    // The source of the file commits its two lines, then that of the queue commits them as its own.
    running.wait_for_lines("input_messages=2", 2);
    let stopped = running.interrupt().expect_code(130);
    assert_eq!(stopped.stdout_text(), "a\nb\n");
    let text = stopped.stderr_text();
    assert!(
        text.contains("source rows reads queue rows, which sink rows writes"),
        "{text}"
    );
}

#[test]
fn what_a_pipeline_file_says_of_queues_is_checked_line_by_line() {
    let folder = TestHost::new();
    let pipeline = r#"
name = "wrong"
[queues.alerts]
partitions = 0
retention = "soon"
[queues.kept]
retention = { }
[sources.rows]
type = "queue"
queue = "alert"
from = "middle"
[sources.others]
type = "queue"
[sinks.first]
type = "queue"
queue = "kept"
inputs = ["rows"]
[sinks.second]
type = "queue"
queue = "kept"
inputs = ["others"]
"#;
    folder.write("tidelock.toml", pipeline);
    let found = folder.run(["check", "."]).expect_code(1).stdout_text();
    for expected in [
        "tidelock.toml:4: partitions = 0 of queue alerts",
        "tidelock.toml:5: retention = \"soon\" of queue alerts",
        "tidelock.toml:7: retention of queue kept has neither time nor bytes",
        "tidelock.toml:10: source rows names unknown queue \"alert\"; did you mean \"alerts\"?",
        "tidelock.toml:11: from = \"middle\" of source rows is unknown",
        "tidelock.toml:12: source others has no queue",
        "tidelock.toml:18: sinks first and second both write queue kept",
    ] {
        assert!(found.contains(expected), "{expected:?} is not in:\n{found}");
    }
}

#[test]
fn a_held_store_is_a_conflict() {
    let folder = copy();
    let pipeline = COPY.replace("follow = false", "follow = true");
    folder.write("tidelock.toml", pipeline);
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("job opened", 1);
    let refused = queue(&folder, &["list"]).expect_code(5).stderr_text();
    assert!(refused.contains("is in use by"), "{refused}");
    let _ = running.interrupt().expect_code(130);
}

#[test]
fn a_message_that_fails_is_named_by_queue_partition_and_offset() {
    let folder = TestHost::new();
    let parse = component("keyed-sum-parse").display().to_string();
    let pipeline = format!(
        r#"
name = "parsed"
[components]
parse = {parse:?}
[queues.events]
[sources.events]
type = "queue"
queue = "events"
follow = false
[computations.parse]
component = "parse"
kind = "map"
inputs = ["events"]
outputs = ["amounts"]
[sinks.amounts]
type = "file"
path = "out/amounts"
inputs = ["amounts"]
"#
    );
    folder.write("tidelock.toml", pipeline);
    let _ = run(&folder, &[]).expect_code(0);
    folder.write("events", "{\"user\":\"a\",\"amount\":1}\nno event\n");
    queue_ok(&folder, &["push", "events", "events"]);
    let failed = run(&folder, &[]).expect_code(1).stderr_text();
    let expected = "at offset 1 of queue events[0] (source events)";
    assert!(failed.contains(expected), "{failed}");
}

#[test]
fn a_source_that_becomes_a_queue_and_a_file_again_needs_a_word_each_time() {
    let folder = copy();
    folder.write("lines", "a\nb\n");
    let file = COPY.replace(
        "type = \"queue\"\nqueue = \"from\"\nfollow = false",
        "type = \"file\"\npath = \"lines\"\nformat = \"lines\"",
    );
    assert_ne!(file, COPY);
    folder.write("tidelock.toml", &file);
    let _ = run(&folder, &[]).expect_code(0);
    for pipeline in [COPY, file.as_str()] {
        folder.write("tidelock.toml", pipeline);
        let refused = run(&folder, &[]).expect_code(5).stderr_text();
        assert!(refused.contains("source rows: was "), "{refused}");
        let _ = run(&folder, &["--accept-change"]).expect_code(0);
    }
    assert_eq!(
        read(&folder, "to"),
        ["a", "b"],
        "the file goes on where it was"
    );
}
