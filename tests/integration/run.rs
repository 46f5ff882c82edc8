//! `tidelock run` as a person uses it: results, second runs, files that grew, changes that need a
//! word, and what is said when something is wrong.

use harness::{Running, TestHost, component, workspace};
use tidelock::types::digest::Digest;

use crate::flights::{first_lines, flights, line_count, run, run_ok, week, write_pipeline};

#[test]
fn every_row_of_the_week_equals_the_independent_answer() {
    let folder = TestHost::new();
    let example = workspace().join("examples/flights");
    for name in ["tidelock.toml", "data/flights-2013-01-week1.csv"] {
        let bytes = std::fs::read(example.join(name)).expect("the example is whole");
        folder.write(name, bytes);
    }
    let text = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let target = workspace().join("target");
    folder.write(
        "tidelock.toml",
        text.replace("../../target", &target.display().to_string()),
    );
    run_ok(&folder, &[]);
    for name in ["statistics", "alerts", "cancelled", "rejected"] {
        let expected = example.join(format!("expected/{name}.jsonl"));
        let expected = std::fs::read(&expected).expect("the answers are kept beside the example");
        let found = folder.read(&format!("out/{name}.jsonl"));
        let lines = |bytes: &[u8]| -> Vec<String> {
            String::from_utf8_lossy(bytes)
                .lines()
                .map(str::to_owned)
                .collect()
        };
        for (row, (found, expected)) in lines(&found).iter().zip(&lines(&expected)).enumerate() {
            assert_eq!(found, expected, "row {} of {name}", row + 1);
        }
        assert!(found == expected, "{name} has another length");
    }
}

#[test]
fn the_sums_of_the_keyed_example_equal_those_of_a_plain_program() {
    let example = workspace().join("examples/keyed-sum");
    let read = |name: &str| std::fs::read(example.join(name)).expect("the example is whole");
    let folder = TestHost::new();
    folder.write("data/events.jsonl", read("data/events.jsonl"));
    let text = String::from_utf8(read("tidelock.toml")).expect("the file is text");
    let target = workspace().join("target").display().to_string();
    folder.write("tidelock.toml", text.replace("../../target", &target));
    run_ok(&folder, &[]);
    assert_eq!(line_count(&folder, "out/sums.jsonl"), 300);
    assert!(folder.read("out/sums.jsonl") == read("expected/sums.jsonl"));
}

#[test]
fn a_second_run_of_the_same_file_adds_nothing() {
    let folder = flights(&first_lines(500));
    run_ok(&folder, &[]);
    let first = folder.read("out/statistics.jsonl");
    let second = run_ok(&folder, &["-o", "json"]);
    assert_eq!(folder.read("out/statistics.jsonl"), first);
    let document: serde_json::Value = serde_json::from_slice(&second.stdout).expect("JSON");
    assert_eq!(document["source_records"], 0);
    assert_eq!(document["finished"], true);
}

#[test]
fn d3_a_file_that_grew_is_read_on_from_where_the_last_run_stopped() {
    let whole = flights(&week());
    run_ok(&whole, &[]);

    let grown = flights(&first_lines(2_000));
    run_ok(&grown, &[]);
    grown.write("flights.csv", week());
    run_ok(&grown, &[]);
    for name in ["statistics", "alerts", "others"] {
        let name = format!("out/{name}.jsonl");
        assert!(grown.read(&name) == whole.read(&name), "{name} differs");
    }
}

#[test]
fn changed_parameters_are_refused_with_both_values_until_accepted() {
    let folder = flights(&first_lines(100));
    run_ok(&folder, &[]);
    write_pipeline(&folder, 60);
    let refused = run(&folder, &[]);
    assert_eq!(refused.status.code(), Some(5));
    let said = refused.stderr.join("\n");
    for part in [
        "parameters of computation delays",
        "180",
        "60",
        "--accept-change",
    ] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    folder.write("flights.csv", first_lines(200));
    run_ok(&folder, &["--accept-change"]);
    // The states went on: the last row counts both runs.
    run_ok(&folder, &[]);
    let rows =
        line_count(&folder, "out/statistics.jsonl") + line_count(&folder, "out/others.jsonl");
    assert_eq!(rows, 199, "every line but the header became one row");
}

#[test]
fn a_replaced_source_is_refused_until_accepted_and_then_read_from_its_beginning() {
    let folder = flights(&first_lines(100));
    run_ok(&folder, &[]);
    let reversed: Vec<u8> = {
        let lines = first_lines(100);
        let mut lines: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        lines[1..].reverse();
        lines.concat()
    };
    folder.write("flights.csv", reversed);
    let refused = run(&folder, &[]);
    assert_eq!(refused.status.code(), Some(5), "{:?}", refused.stderr);
    assert!(refused.stderr.join("\n").contains("--accept-change"));
    run_ok(&folder, &["--accept-change"]);
    let rows =
        line_count(&folder, "out/statistics.jsonl") + line_count(&folder, "out/others.jsonl");
    assert_eq!(rows, 2 * 99);
}

#[test]
fn a_sink_file_that_others_wrote_to_stops_the_run_before_it_begins() {
    let folder = flights(&first_lines(100));
    folder.write("out/alerts.jsonl", "somebody else's\n");
    let refused = run(&folder, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.join("\n").contains("alerts.jsonl"),
        "{:?}",
        refused.stderr
    );
    assert_eq!(folder.read("out/alerts.jsonl"), b"somebody else's\n");
}

#[test]
fn a_data_directory_in_use_is_a_conflict_that_names_its_holder() {
    let folder = flights(&week());
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let sink = "type = \"file\"\npath = \"out/statistics.jsonl\"";
    folder.write("tidelock.toml", file.replace(sink, "type = \"stdout\""));
    // Far more than a pipe holds goes to stdout: until somebody reads it, the run stands still.
    let mut command = folder.command();
    command.args(["--log", "debug", "run", "tidelock.toml"]);
    let mut first = Running::start_with_stdout_unread(&mut command);
    assert_eq!(first.wait_for_lines("storage opened", 1), 1);
    let holder = first.id().to_string();

    let second = run(&folder, &[]).expect_code(5);
    assert!(second.stderr_text().contains(&holder), "{second:?}");
    // A check has nothing against the pipeline, and says what it could not look at.
    let checked = folder.run(["check", "."]).expect_code(0);
    assert!(checked.stdout_text().contains(&holder), "{checked:?}");

    let first = first.wait().expect_code(0);
    assert!(first.stdout.len() > 64 << 10, "a pipe holds that much");
}

/// The component with a section that means nothing: the same computation, other bytes.
fn with_custom_section(component: &[u8]) -> Vec<u8> {
    let name = b"note";
    let content = b"built again";
    let mut section = vec![name.len() as u8];
    section.extend(name);
    section.extend(content);
    let mut bytes = component.to_vec();
    bytes.push(0);
    bytes.push(section.len() as u8);
    bytes.extend(section);
    bytes
}

#[test]
fn a_changed_component_is_refused_with_both_digests_until_accepted() {
    let folder = flights(&first_lines(100));
    let built = component("flights-delays");
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let file = file.replace(&format!("delays = {built:?}"), "delays = \"delays.wasm\"");
    folder.write("tidelock.toml", file);
    let first = std::fs::read(&built).expect("the component is built");
    let second = with_custom_section(&first);
    let digest = |bytes: &[u8]| Digest::of(bytes).to_string();

    folder.write("delays.wasm", &first);
    run_ok(&folder, &[]);
    folder.write("delays.wasm", &second);
    folder.write("flights.csv", first_lines(200));
    let before = folder.read("out/statistics.jsonl");
    let said = run(&folder, &[]).expect_code(5).stderr_text();
    for part in [
        "component of computation delays",
        &digest(&first),
        &digest(&second),
        "--accept-change",
    ] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    assert_eq!(folder.read("out/statistics.jsonl"), before);

    run_ok(&folder, &["--accept-change"]);
    // The states went on under the new component, and what was accepted once is asked no more.
    run_ok(&folder, &[]);
    let undisturbed = flights(&first_lines(200));
    run_ok(&undisturbed, &[]);
    let name = "out/statistics.jsonl";
    assert!(folder.read(name) == undisturbed.read(name));
}

#[test]
fn check_reports_everything_at_once_and_a_run_refuses_the_same() {
    let folder = flights(&first_lines(10));
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let wrong = file
        .replace("kind = \"map\"", "kind = \"mapp\"")
        .replace("inputs = [\"alerts\"]", "inputs = [\"alertz\"]")
        .replace("format = \"lines\"", "fromat = \"lines\"");
    folder.write("tidelock.toml", wrong);
    let checked = folder.run(["check", "."]);
    assert_eq!(checked.status.code(), Some(1));
    let found = String::from_utf8_lossy(&checked.stdout).into_owned();
    for part in ["mapp", "alertz", "fromat", "format", "tidelock.toml:"] {
        assert!(found.contains(part), "{part} is missing in: {found}");
    }
    assert_eq!(run(&folder, &[]).status.code(), Some(1));
}

#[test]
fn a_stdout_sink_prints_every_row_and_says_that_it_may_repeat() {
    let folder = flights(&first_lines(50));
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let sink = "type = \"file\"\npath = \"out/statistics.jsonl\"";
    folder.write("tidelock.toml", file.replace(sink, "type = \"stdout\""));
    let finished = run_ok(&folder, &[]);
    let rows = finished.stdout.split(|byte| *byte == b'\n').count() - 1;
    assert_eq!(rows + line_count(&folder, "out/others.jsonl"), 49);
    assert!(finished.stderr.join("\n").contains("at least once"));
}
