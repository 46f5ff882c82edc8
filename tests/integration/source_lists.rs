//! Files that come into the list of a source and leave it: what is moved is told from what is new, and what
//! is read from what is lost.

use std::fs;

use harness::TestHost;

use crate::example::line_count;
use crate::sources::{check_says, rows_of, run, set_write_time, write_events, write_pipeline};

#[test]
fn a_file_that_was_read_to_its_end_may_leave_and_come_back() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    write_events(&folder, "b", 0..50);
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &[]);
    let kept = folder.read("a");
    fs::remove_file(folder.path("a")).expect("it is there");
    write_pipeline(&folder, &["b"], "");
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
    folder.write("a", kept);
    write_pipeline(&folder, &["b", "a"], "");
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
    assert_eq!(line_count(&folder, "amounts.jsonl"), 100);
}

#[test]
fn a_file_that_leaves_before_its_end_needs_a_word() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    let broken = "{\"user\":\"b\",\"amount\":1}\nno JSON\n{\"user\":\"b\",\"amount\":2}\n";
    folder.write("b", broken);
    write_events(&folder, "never", 0..5);
    write_pipeline(&folder, &["b", "a", "never"], "parallel_partitions = 1");
    for (day, file) in [(1, "a"), (2, "b"), (3, "never")] {
        set_write_time(&folder, file, day);
    }
    check_says(
        &run(&folder, &[]),
        1,
        &["job events[0]", "/b:2", "is not jsonl"],
    );
    assert_eq!(
        rows_of(&folder, "b"),
        [1],
        "what came before it is committed"
    );

    write_pipeline(&folder, &["a"], "");
    let refused = run(&folder, &[]);
    let parts = [
        "file b of source events: was in the list, read up to line 1, now not in the list",
        "file never of source events: was in the list, not read yet, now not in the list",
        "--accept-change",
    ];
    check_says(&refused, 5, &parts);
    assert!(
        !refused.stderr_text().contains("file a of"),
        "a was read to its end"
    );
    check_says(
        &run(&folder, &["--accept-change"]),
        0,
        &["accepted: file b of source events"],
    );
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
    // Mended and listed again it goes on where it was.
    folder.write(
        "b",
        broken.replace("no JSON", "{\"user\":\"b\",\"amount\":7}"),
    );
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &[]);
    assert_eq!(rows_of(&folder, "b"), [1, 7, 2]);
}

/// Lost otherwise: that a row comes once. A file that is moved and listed under its new path would be
/// read a second time.
#[test]
fn a_file_that_was_moved_is_told_from_a_new_one() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    write_events(&folder, "b", 0..50);
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &[]);
    let moved = folder.read("a");
    folder.write("archive/a", moved);
    write_events(&folder, "c", 0..50);
    write_pipeline(&folder, &["b", "c", "archive/a"], "");
    let parts = ["name of a file of source events: was a, now archive/a, which has the content"];
    check_says(&run(&folder, &[]), 5, &parts);
    assert_eq!(
        line_count(&folder, "amounts.jsonl"),
        100,
        "nothing was read"
    );
    check_says(&run(&folder, &["--accept-change"]), 0, &["50 records"]);
    write_events(&folder, "archive/a", 0..60);
    check_says(&run(&folder, &[]), 0, &["10 records"]);
    assert_eq!(rows_of(&folder, "a"), (0..60).collect::<Vec<u64>>());
}

/// Writes a file with one event of one user for each amount: files of the same amounts are equal.
fn write_amounts(folder: &TestHost, file: &str, amounts: std::ops::Range<u32>) {
    let event = |amount| format!("{{\"user\":\"any\",\"amount\":{amount}}}\n");
    folder.write(file, amounts.map(event).collect::<String>());
}

fn remove(folder: &TestHost, file: &str) {
    fs::remove_file(folder.path(file)).expect("it is there");
}

/// Moves a file and leaves the list to the caller.
fn move_file(folder: &TestHost, from: &str, to: &str) {
    let content = folder.read(from);
    remove(folder, from);
    folder.write(to, content);
}

/// Lost otherwise: that a row comes once. The shorter file is the beginning of the longer one, and taken for
/// it the longer one's rest would be read a second time.
#[test]
fn the_file_of_which_most_was_read_is_told_first() {
    let folder = TestHost::new();
    write_amounts(&folder, "a", 1..2);
    write_amounts(&folder, "b", 1..3);
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &["3 records"]);
    remove(&folder, "a");
    move_file(&folder, "b", "archive/moved");
    write_pipeline(&folder, &["archive/moved"], "");
    let refused = run(&folder, &[]);
    check_says(&refused, 5, &["was b, now archive/moved"]);
    assert!(!refused.stderr_text().contains("was a"));
    check_says(&run(&folder, &["--accept-change"]), 0, &[" 0 records"]);
    assert_eq!(line_count(&folder, "amounts.jsonl"), 3);
}

#[test]
fn which_of_equal_files_was_moved_where_is_told_by_their_names_or_refused() {
    let folder = TestHost::new();
    for file in ["a", "b"] {
        write_amounts(&folder, file, 0..20);
    }
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &["40 records"]);
    move_file(&folder, "a", "x");
    move_file(&folder, "b", "y");
    write_pipeline(&folder, &["x", "y"], "");
    let parts = [
        "(a, b)",
        "(x, y)",
        "which one was moved where can't be told",
    ];
    check_says(&run(&folder, &["--accept-change"]), 1, &parts);
    assert_eq!(line_count(&folder, "amounts.jsonl"), 40, "nothing was read");
    move_file(&folder, "x", "archive/a");
    move_file(&folder, "y", "archive/b");
    write_pipeline(&folder, &["archive/b", "archive/a"], "");
    let parts = ["was a, now archive/a", "was b, now archive/b"];
    check_says(&run(&folder, &[]), 5, &parts);
    check_says(&run(&folder, &["--accept-change"]), 0, &[" 0 records"]);
    assert_eq!(line_count(&folder, "amounts.jsonl"), 40);
}

#[test]
fn a_header_alone_is_no_content_that_tells_a_file() {
    let folder = TestHost::new();
    let as_csv = |files: &[&str]| {
        write_pipeline(&folder, files, "");
        let file = String::from_utf8(folder.read("tidelock.toml")).expect("it is text");
        folder.write("tidelock.toml", file.replace("\"jsonl\"", "\"csv\""));
    };
    folder.write("a.csv", "user,amount\n");
    as_csv(&["a.csv"]);
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
    remove(&folder, "a.csv");
    folder.write("c.csv", "user,amount\n");
    as_csv(&["c.csv"]);
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
}

#[test]
fn a_file_that_is_moved_in_two_steps_is_told_too() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    write_events(&folder, "b", 0..50);
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &[]);
    write_pipeline(&folder, &["b"], "");
    for _ in 0..2 {
        check_says(&run(&folder, &[]), 0, &[" 0 records"]);
    }
    move_file(&folder, "a", "old/a");
    write_pipeline(&folder, &["b", "old/a"], "");
    check_says(&run(&folder, &[]), 5, &["was a, now old/a"]);
    check_says(&run(&folder, &["--accept-change"]), 0, &[" 0 records"]);
    assert_eq!(line_count(&folder, "amounts.jsonl"), 100);
}

#[test]
fn a_file_that_has_grown_since_it_was_read_does_not_leave_without_a_word() {
    let folder = TestHost::new();
    write_events(&folder, "a", 0..50);
    write_events(&folder, "b", 0..50);
    write_pipeline(&folder, &["a", "b"], "");
    check_says(&run(&folder, &[]), 0, &[]);
    write_events(&folder, "a", 0..60);
    write_pipeline(&folder, &["b"], "");
    let parts = [
        "file a of source events: was in the list, read up to line 50, its end then",
        "now not in the list, but longer; what came will not be read",
    ];
    check_says(&run(&folder, &[]), 5, &parts);
    check_says(&run(&folder, &["--accept-change"]), 0, &[" 0 records"]);
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
    // What came is read when it is listed again.
    write_pipeline(&folder, &["b", "a"], "");
    check_says(&run(&folder, &[]), 0, &["10 records"]);
    assert_eq!(rows_of(&folder, "a"), (0..60).collect::<Vec<u64>>());
}
