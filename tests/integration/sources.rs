//! Sources of several files: each is read on from its own position, the oldest first.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use harness::{Finished, Running, TestHost};
use serde_json::Value;

use crate::example::{add, limit_epochs, line_count, remove_computation};
use crate::keyed_sum;

/// Writes a pipeline that passes on the amounts of these files' events, with more lines for its
/// source.
pub(crate) fn write_pipeline(folder: &TestHost, files: &[&str], more: &str) {
    keyed_sum::write_pipeline(folder, |file| {
        limit_epochs(file, 20);
        keyed_sum::read_files(file, files);
        remove_computation(file, "sum");
        let amounts =
            "[sinks.amounts]\ntype = \"file\"\npath = \"amounts.jsonl\"\ninputs = [\"amounts\"]";
        add(file, &format!("{amounts}\n[sources.events]\n{more}"));
    });
}

/// Writes a file with one event for each amount, all of a user of the file's name.
pub(crate) fn write_events(folder: &TestHost, file: &str, amounts: std::ops::Range<u32>) {
    let user = file.rsplit('/').next().unwrap_or(file);
    let event = |amount| format!("{{\"user\":\"{user}\",\"amount\":{amount}}}\n");
    folder.write(file, amounts.map(event).collect::<String>());
}

pub(crate) fn set_write_time(folder: &TestHost, file: &str, day: u64) {
    let opened = File::options().append(true).open(folder.path(file));
    let time = UNIX_EPOCH + Duration::from_secs(day * 86_400);
    let set = opened.expect("the file is there").set_modified(time);
    set.expect("times can be set");
}

pub(crate) fn run(folder: &TestHost, more: &[&str]) -> Finished {
    folder.run(["run", "."].iter().chain(more))
}

/// The users and amounts of the rows that came out, in their order.
pub(crate) fn rows(folder: &TestHost) -> Vec<(String, u64)> {
    let text = String::from_utf8(folder.read("amounts.jsonl")).expect("rows are text");
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("a row is JSON");
        let user = row["user"].as_str().expect("a user is a name");
        let amount = row["amount"].as_u64().expect("amounts are numbers here");
        (user.to_owned(), amount)
    };
    text.lines().map(row).collect()
}

pub(crate) fn rows_of(folder: &TestHost, user: &str) -> Vec<u64> {
    let rows = rows(folder).into_iter().filter(|(of, _)| of == user);
    rows.map(|(_, amount)| amount).collect()
}

pub(crate) fn check_says(finished: &Finished, code: i32, parts: &[&str]) {
    let said = finished.stderr_text();
    assert_eq!(finished.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
}

#[test]
fn r5_older_files_come_first_whatever_the_order_of_the_list() {
    let days = ["monday", "tuesday", "wednesday", "thursday"];
    let lists = [
        ["thursday", "wednesday", "tuesday", "monday"],
        ["tuesday", "thursday", "monday", "wednesday"],
    ];
    for list in lists {
        let folder = TestHost::new();
        for (day, file) in days.iter().enumerate() {
            write_events(&folder, file, 0..100);
            set_write_time(&folder, file, 1 + day as u64);
        }
        write_pipeline(&folder, &list, "parallel_partitions = 1");
        check_says(&run(&folder, &[]), 0, &[]);
        let mut order: Vec<String> = rows(&folder).into_iter().map(|(user, _)| user).collect();
        assert_eq!(order.len(), 400);
        order.dedup();
        assert_eq!(order, days, "listed as {list:?}");
    }
}

#[test]
fn r5_a_file_keeps_its_turn_when_it_is_touched_in_the_middle() {
    let folder = TestHost::new();
    for (day, file) in [(1, "old"), (2, "new")] {
        write_events(&folder, file, 0..1_000);
        set_write_time(&folder, file, day);
    }
    write_pipeline(&folder, &["new", "old"], "parallel_partitions = 1");
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 3);
    assert!(running.kill().was_killed());
    // A copy or a touch must not let the other one overtake the rest.
    set_write_time(&folder, "old", 9);
    check_says(&run(&folder, &[]), 0, &[]);
    let mut order: Vec<String> = rows(&folder).into_iter().map(|(user, _)| user).collect();
    assert_eq!(order.len(), 2_000);
    order.dedup();
    assert_eq!(order, ["old", "new"]);
}

#[test]
fn each_file_is_read_on_from_its_own_position_and_totals_add_up() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    write_events(&folder, "b", 0..70);
    write_pipeline(&folder, &["a", "b"], "");
    let first = run(&folder, &["-o", "json"]).expect_code(0);
    let document: Value = serde_json::from_slice(&first.stdout).expect("JSON");
    assert_eq!(document["source_records"], 120);
    let size = |file: &str| fs::metadata(folder.path(file)).expect("it is there").len();
    assert_eq!(document["source_total_bytes"], size("a") + size("b"));
    assert_eq!(document["source_done_bytes"], size("a") + size("b"));
    let jobs = document["jobs"].as_array().expect("a list");
    let names: Vec<&str> = jobs.iter().filter_map(|job| job["job"].as_str()).collect();
    assert_eq!(names, ["events[0]", "events[1]"]);

    // One grows, one is new, the list has another order: no change.
    write_events(&folder, "a", 0..60);
    write_events(&folder, "c", 0..10);
    write_pipeline(&folder, &["c", "b", "a"], "");
    check_says(&run(&folder, &[]), 0, &["20 records"]);
    for (file, count) in [("a", 60), ("b", 70), ("c", 10)] {
        let expected: Vec<u64> = (0..count).collect();
        assert_eq!(rows_of(&folder, file), expected, "{file}");
    }
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
}

#[test]
fn a_path_and_a_list_of_one_are_the_same() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    write_pipeline(&folder, &["./a"], "");
    check_says(&run(&folder, &[]), 0, &[]);
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("it is text");
    folder.write(
        "tidelock.toml",
        file.replace("paths = [\"./a\"]", "path = \"a\""),
    );
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
}

#[test]
fn an_item_that_fails_is_named_with_its_file() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    folder.write("b", "{\"user\":\"b\",\"amount\":1}\n{\"no\":\"user\"}\n");
    write_pipeline(&folder, &["a", "b"], "");
    let failed = run(&folder, &[]);
    check_says(
        &failed,
        1,
        &["job events[1]", "line 2 of b of source events"],
    );
}

#[test]
fn f1_kills_of_many_files_lose_and_repeat_nothing() {
    let files: Vec<String> = (0..12).map(|file| format!("day-{file:02}")).collect();
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    let folder = TestHost::new();
    for file in &names {
        write_events(&folder, file, 0..300);
    }
    write_pipeline(&folder, &names, "parallel_partitions = 3");
    let mut hits = 0;
    for epochs in [1, 4, 9, 15, 7, 22, 30] {
        let mut running = folder.start(["--log", "debug", "run", "."]);
        running.wait_for_lines("epoch committed", epochs);
        hits += usize::from(running.kill().was_killed());
    }
    assert!(hits >= 5, "only {hits} kills came before the end");
    check_says(&run(&folder, &[]), 0, &[]);
    let expected: Vec<u64> = (0..300).collect();
    for file in &names {
        assert_eq!(rows_of(&folder, file), expected, "{file}");
    }
    let users: BTreeSet<String> = rows(&folder).into_iter().map(|(user, _)| user).collect();
    assert_eq!(users.len(), names.len());
}

/// A pipeline that adds up these files' amounts by user; its rows go to standard output.
fn write_sums_pipeline(folder: &TestHost, files: &[&str]) {
    keyed_sum::write_pipeline(folder, |file| {
        limit_epochs(file, 100);
        keyed_sum::read_files(file, files);
        let sink = file["sinks"]["sums"].as_table_mut();
        let sink = sink.expect("a sink is a table");
        sink.remove("path");
        sink.insert("type".to_owned(), "stdout".into());
    });
}

#[test]
fn what_a_file_put_into_lanes_is_taken_although_it_has_left() {
    const EVENTS: u32 = 5_000;
    let folder = TestHost::new();
    write_events(&folder, "a", 0..EVENTS);
    write_events(&folder, "b", 0..10);
    write_sums_pipeline(&folder, &["a", "b"]);
    // Nobody empties standard output, so the transform stands still behind the sources.
    let mut command = folder.command();
    command.args(["run", "."]);
    let mut running = Running::start_with_stdout_unread(&mut command);
    assert_eq!(running.wait_for_lines("100 %", 1), 1);
    assert!(running.kill().was_killed());

    fs::remove_file(folder.path("a")).expect("it is there");
    write_sums_pipeline(&folder, &["b"]);
    let finished = run(&folder, &[]);
    check_says(&finished, 0, &[" 0 records"]);
    let text = finished.stdout_text();
    let last = text.lines().rfind(|row| row.contains("\"a\""));
    let last: Value = serde_json::from_str(last.expect("there are rows of a")).expect("JSON");
    assert_eq!(last["count"], EVENTS, "each event of the file counts once");
    let again = run(&folder, &[]);
    check_says(&again, 0, &[" 0 records", ", 0 rows out"]);
    assert!(again.stdout.is_empty());
}

/// `check` said that it fits and `run` could not write it down: the names of all streams were one
/// small row.
#[test]
fn a_pipeline_of_many_sources_with_long_names_runs_once_check_lets_it_pass() {
    const SOURCES: usize = 90;
    let folder = TestHost::new();
    let names: Vec<String> = (0..SOURCES)
        .map(|number| format!("{number:s>45}"))
        .collect();
    let mut file = "name = \"many\"\n".to_owned();
    for name in &names {
        write_events(&folder, name, 0..1);
        file +=
            &format!("[sources.{name}]\ntype = \"file\"\npath = {name:?}\nformat = \"lines\"\n");
    }
    file += &format!("[sinks.out]\ntype = \"file\"\npath = \"out.jsonl\"\ninputs = {names:?}\n");
    folder.write("tidelock.toml", file);
    folder.run(["check", "."]).expect_code(0);
    for _ in 0..2 {
        run(&folder, &[]).expect_code(0);
        assert_eq!(line_count(&folder, "out.jsonl"), SOURCES);
    }
}

#[test]
fn a_file_that_is_followed_is_read_as_it_grows_until_the_run_is_stopped() {
    let folder = TestHost::new();
    write_events(&folder, "events", 0..3);
    write_pipeline(&folder, &["events"], "follow = true");
    let append = |text: &str| {
        let opened = File::options().append(true).open(folder.path("events"));
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.expect("the file is there");
    };
    let event = |amount: u32| format!("{{\"user\":\"events\",\"amount\":{amount}}}\n");
    let stop = |running: Running| {
        let sent = std::process::Command::new("kill")
            .args(["-INT", &running.id().to_string()])
            .status();
        assert!(sent.expect("kill is there").success());
        running.wait().expect_code(130)
    };
    let mut running = folder.start(["--log", "debug", "run", "."]);
    let committed = running.wait_for_lines("epoch committed", 1);
    // The run does not end with the file, and a line is not taken before it has its end.
    append(&event(3));
    let committed = running.wait_for_lines("epoch committed", committed + 1);
    let (first, rest) = (event(4), event(5));
    let torn = first.len() / 2;
    append(&first[..torn]);
    append(&format!("{}{rest}", &first[torn..]));
    running.wait_for_lines("epoch committed", committed + 1);
    let _ = stop(running);
    assert_eq!(rows_of(&folder, "events"), [0, 1, 2, 3, 4, 5]);
    // The next run goes on where this one was stopped.
    append(&event(6));
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 1);
    let _ = stop(running);
    assert_eq!(rows_of(&folder, "events"), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_followed_file_that_is_cut_stops_the_run_with_its_name() {
    let folder = TestHost::new();
    write_events(&folder, "events", 0..3);
    write_pipeline(&folder, &["events"], "follow = true");
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 1);
    let opened = File::options().write(true).open(folder.path("events"));
    opened
        .and_then(|file| file.set_len(5))
        .expect("the file is there");
    let said = running.wait().expect_code(1).stderr_text();
    assert!(
        said.contains("is not the file that was read before"),
        "{said}"
    );
    assert_eq!(rows_of(&folder, "events"), [0, 1, 2]);
}
