//! `tidelock check`: whatever would keep a run from beginning is found without one, all at once, each
//! with its line, and nothing is made on the way.

use std::io::Write as _;

use harness::{Finished, TestHost, component};

use crate::flights::{first_lines, flights, run, run_ok};

fn check(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["check", "tidelock.toml"].iter().chain(arguments))
}

/// Replaces a part of the pipeline file, which must be there.
fn edit(folder: &TestHost, old: &str, new: &str) {
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    assert!(file.contains(old), "{old} is not in the pipeline file");
    folder.write("tidelock.toml", file.replace(old, new));
}

/// The line of the pipeline file that holds `text`.
fn line_of(folder: &TestHost, text: &str) -> usize {
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let mut lines = file.lines();
    1 + lines
        .position(|line| line.contains(text))
        .unwrap_or_else(|| panic!("no line holds {text}"))
}

fn zip_of(names: &[&str]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for name in names {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(*name, options).expect("a member");
        writer.write_all(&first_lines(10)).expect("its content");
    }
    writer.finish().expect("the archive").into_inner()
}

/// The finding at a line of the pipeline file, which must hold `parts`.
fn assert_found(found: &str, line: usize, parts: &[&str]) {
    let place = format!("tidelock.toml:{line}: ");
    let finding = found.lines().find(|finding| finding.starts_with(&place));
    let finding = finding.unwrap_or_else(|| panic!("nothing is found at {place} in:\n{found}"));
    for part in parts {
        assert!(finding.contains(part), "{part} is missing in: {finding}");
    }
}

#[test]
fn source_sink_and_parameters_that_a_run_would_refuse_are_found_at_once() {
    let folder = flights(&zip_of(&["january.csv", "february.csv"]));
    folder.write("out/alerts.jsonl", "somebody else's\n");
    edit(&folder, "alert_minutes = 180", "alert = 1");
    let checked = check(&folder, &[]).expect_code(1);
    let found = checked.stdout_text();
    let source = line_of(&folder, "[sources.departures]");
    assert_found(&found, source, &["source departures", "flights.csv", "2"]);
    let sink = line_of(&folder, "[sinks.alerts]");
    assert_found(&found, sink, &["sink alerts", "alerts.jsonl", "16 bytes"]);
    let parameters = line_of(&folder, "parameters = ");
    let parts = ["computation delays", "\"alert\"", "alert_minutes"];
    assert_found(&found, parameters, &parts);
    assert_eq!(found.matches("computation delays").count(), 1, "{found}");
    assert_eq!(found.lines().count(), 3, "{found}");
    assert!(!folder.path(".tidelock").exists(), "a check makes nothing");
    assert_eq!(folder.read("out/alerts.jsonl"), b"somebody else's\n");
}

#[test]
fn parameters_that_the_component_refuses_are_told_by_check_and_by_run_before_anything_is_read() {
    let folder = flights(&first_lines(10));
    edit(&folder, "alert_minutes = 180", "alert = 1");
    let line = line_of(&folder, "parameters = ");
    let parts = ["delays", "\"alert\"", "alert_minutes"];
    assert_found(
        &check(&folder, &[]).expect_code(1).stdout_text(),
        line,
        &parts,
    );
    let refused = run(&folder, &["--log", "debug"]).expect_code(1);
    assert_found(&refused.stderr_text(), line, &parts);
    assert!(!refused.stderr_text().contains("storage opened"));
    assert!(!folder.path("out").exists());
}

#[test]
fn a_check_makes_nothing_and_knows_the_files_of_the_last_run() {
    let folder = flights(&first_lines(100));
    check(&folder, &[]).expect_code(0);
    assert!(!folder.path(".tidelock").exists() && !folder.path("out").exists());

    run_ok(&folder, &[]);
    let rows = folder.read("out/statistics.jsonl");
    check(&folder, &[]).expect_code(0);
    // Another data directory knows nothing of these files.
    let found = check(&folder, &["--data", "elsewhere"]).expect_code(1);
    assert!(found.stdout_text().contains("statistics.jsonl"));
    assert!(!folder.path("elsewhere").exists());

    folder.write(
        "out/statistics.jsonl",
        [rows.as_slice(), b"foreign\n"].concat(),
    );
    let found = check(&folder, &[]).expect_code(1).stdout_text();
    let line = line_of(&folder, "[sinks.statistics]");
    assert_found(
        &found,
        line,
        &["statistics.jsonl", "somebody else wrote to it"],
    );
    run(&folder, &[]).expect_code(1);
}

#[test]
fn a_state_that_grows_old_is_one_that_the_component_has() {
    let folder = TestHost::new();
    // It declares a timer and no state.
    let guest = component("declares_timer");
    folder.write("input.txt", "one\n");
    let pipeline = format!(
        r#"
name = "timers"
components = {{ echo = {guest:?} }}
sources.in = {{ type = "file", path = "input.txt", format = "lines" }}
sinks.out = {{ type = "file", path = "out.txt", inputs = ["out"] }}
[computations.echo]
component = "echo"
kind = "transform"
inputs = ["in"]
outputs = ["out"]
"#
    );
    folder.write("tidelock.toml", &pipeline);
    check(&folder, &[]).expect_code(0);
    let states = "[computations.echo.states]\ntotals = { ttl = \"7d\" }\n";
    folder.write("tidelock.toml", pipeline + states);
    let line = line_of(&folder, "totals = ");
    let parts = ["computation echo", "no state totals", "remove it"];
    let found = check(&folder, &[]).expect_code(1).stdout_text();
    assert_found(&found, line, &parts);
    let found = run(&folder, &[]).expect_code(1).stderr_text();
    assert_found(&found, line, &parts);
    assert!(!folder.path("out.txt").exists());
}

#[test]
fn a_component_is_read_up_to_one_limit_whoever_reads_it() {
    let folder = flights(&first_lines(10));
    let huge = std::fs::File::create(folder.path("huge.wasm")).expect("a file can be made");
    // It takes no room on the disk, and none in memory.
    huge.set_len(1 << 40).expect("the file can be long");
    let parse = format!("parse = {:?}", component("flights-parse"));
    edit(&folder, &parse, "parse = \"huge.wasm\"");
    let limit = format!("more than {} bytes", 64 << 20);
    let line = line_of(&folder, "huge.wasm");
    let found = check(&folder, &[]).expect_code(1).stdout_text();
    assert_found(&found, line, &["huge.wasm", &limit]);
    let inspected = folder.run(["inspect", "huge.wasm"]).expect_code(1);
    assert!(inspected.stderr_text().contains(&limit));
    // A pipe would be waited for.
    assert!(
        folder
            .run(["inspect", "."])
            .expect_code(1)
            .stderr_text()
            .contains("regular file")
    );
}
