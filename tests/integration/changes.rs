//! Pipelines that change between two runs on one data directory: what needs a person's word, what
//! is refused, and what becomes of messages on their way.

use harness::{Finished, TestHost};

use crate::example::{
    limit_epochs, line_count, pipeline, remove_computation, write_lines, write_pipeline,
};

fn run(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["run", "."].iter().chain(arguments))
}

fn check_refused(finished: &Finished, parts: &[&str]) {
    let said = finished.stderr.join("\n");
    assert_eq!(finished.status.code(), Some(5), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
}

fn check_ok(finished: &Finished) {
    assert!(finished.status.success(), "{:?}", finished.stderr);
}

/// It is the same run that goes on, and another one that begins when it is completed.
fn assert_goes_on_under_its_number(folder: &TestHost) {
    let number = || {
        let finished = folder.run(["run", ".", "-o", "json"]).expect_code(0);
        let document: serde_json::Value =
            serde_json::from_slice(&finished.stdout).expect("the document is JSON");
        document["run"].as_u64()
    };
    assert_eq!([number(), number()], [Some(1), Some(2)]);
}

/// How many rows the sinks have that each leg comes to one of.
fn row_count(folder: &TestHost) -> usize {
    let names = ["statistics", "cancelled", "rejected"].into_iter();
    names
        .map(|name| line_count(folder, &format!("out/{name}.jsonl")))
        .sum()
}

#[test]
fn a_removed_computation_is_accepted_once_and_named_again_when_it_comes_back() {
    let folder = pipeline(100, |_| {});
    check_ok(&run(&folder, &[]));
    write_pipeline(&folder, |file| remove_computation(file, "delays"));
    check_refused(
        &run(&folder, &[]),
        &["computation delays", "not in the pipeline"],
    );
    check_ok(&run(&folder, &["--accept-change"]));
    // What is gone stays gone without another word.
    write_lines(&folder, 200);
    check_ok(&run(&folder, &[]));

    write_pipeline(&folder, |_| {});
    check_refused(
        &run(&folder, &[]),
        &[
            "computation delays",
            "again, without what passed in between",
        ],
    );
    check_ok(&run(&folder, &["--accept-change"]));
    write_lines(&folder, 300);
    check_ok(&run(&folder, &[]));
    let rows = line_count(&folder, "out/statistics.jsonl");
    let others =
        line_count(&folder, "out/cancelled.jsonl") + line_count(&folder, "out/rejected.jsonl");
    assert_eq!(
        others + rows,
        299 - 100 + others_in(101, 200),
        "each line was seen once"
    );
}

/// How many of the lines `from` to `to`, which ran without the transform, went to other sinks.
fn others_in(from: usize, to: usize) -> usize {
    let count = |lines: usize| {
        let folder = pipeline(lines, |file| remove_computation(file, "delays"));
        check_ok(&run(&folder, &[]));
        line_count(&folder, "out/cancelled.jsonl") + line_count(&folder, "out/rejected.jsonl")
    };
    count(to) - count(from - 1)
}

#[test]
fn messages_that_wait_for_a_computation_keep_it_from_being_removed() {
    let folder = pipeline(2_000, |file| limit_epochs(file, 8));
    // Killed while the transform is behind the source: legs wait in the lane.
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 40);
    let killed = running.kill();
    assert!(!killed.status.success(), "it ended before the kill");

    write_pipeline(&folder, |file| {
        limit_epochs(file, 8);
        remove_computation(file, "delays");
    });
    let refused = run(&folder, &["--accept-change"]);
    check_refused(&refused, &["stream legs", "run it as it was to its end"]);

    write_pipeline(&folder, |file| limit_epochs(file, 8));
    assert_goes_on_under_its_number(&folder);
    assert_eq!(
        row_count(&folder),
        1_999,
        "no leg was lost, none came twice"
    );
    write_pipeline(&folder, |file| {
        limit_epochs(file, 8);
        remove_computation(file, "delays");
    });
    check_ok(&run(&folder, &["--accept-change"]));
}

#[test]
fn all_changes_are_refused_together_before_anything_is_written() {
    let folder = pipeline(100, |_| {});
    check_ok(&run(&folder, &[]));
    let statistics = folder.read("out/statistics.jsonl");
    let other_parameters = |file: &mut toml::Table| {
        file["computations"]["delays"]["parameters"]["alert_minutes"] = 1.into();
    };
    write_pipeline(&folder, other_parameters);
    let source = folder.read("flights.csv");
    folder.write("flights.csv", b"another file\n".repeat(400));
    check_refused(
        &run(&folder, &[]),
        &[
            "parameters of computation delays",
            "content of source departures",
        ],
    );
    // Put back, nothing has changed: the refused run left nothing behind.
    folder.write("flights.csv", source);
    write_pipeline(&folder, |_| {});
    check_ok(&run(&folder, &[]));
    assert_eq!(folder.read("out/statistics.jsonl"), statistics);

    folder.write("flights.csv", b"another file\n".repeat(400));
    let accepted = run(&folder, &["--accept-change"]);
    check_ok(&accepted);
    assert!(
        accepted
            .stderr
            .join("\n")
            .contains("accepted: content of source departures"),
        "{:?}",
        accepted.stderr
    );
}

#[test]
fn what_was_read_before_a_bad_record_is_committed() {
    let folder = pipeline(1, |file| {
        file["sources"]["departures"]["format"] = "jsonl".into();
    });
    let mut lines = "\"too few fields\"\n".repeat(20);
    lines.push_str("no JSON\n\"after\"\n");
    folder.write("flights.csv", &lines);
    let failed = run(&folder, &[]);
    assert_eq!(failed.status.code(), Some(1));
    let said = failed.stderr.join("\n");
    assert!(said.contains("flights.csv:21"), "{said}");
    assert_eq!(line_count(&folder, "out/rejected.jsonl"), 20);
    // Once it is mended, only the rest is read.
    folder.write("flights.csv", lines.replace("no JSON", "\"mended\""));
    check_ok(&run(&folder, &[]));
    assert_eq!(line_count(&folder, "out/rejected.jsonl"), 22);
}

#[test]
fn a_reader_of_standard_output_that_leaves_is_no_failure() {
    let folder = pipeline(2_000, |file| {
        file["sinks"]["statistics"] = toml::toml! { type = "stdout"
        inputs = ["statistics"] }
        .into();
    });
    let mut command = std::process::Command::new("bash");
    command
        .current_dir(folder.folder())
        .args(["-o", "pipefail", "-c", "\"$0\" run . | head -n 1"])
        .arg(harness::tidelock());
    let finished = harness::Running::start(&mut command).wait();
    let said = finished.stderr.join("\n");
    assert!(finished.status.success(), "{said}");
    assert!(
        said.contains("the reader of standard output has gone"),
        "{said}"
    );
    assert_eq!(
        finished
            .stdout
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        1
    );
    // The next run goes on, and the other sinks have everything once.
    write_pipeline(&folder, |_| {});
    check_ok(&run(&folder, &["--accept-change"]));
    let others =
        line_count(&folder, "out/cancelled.jsonl") + line_count(&folder, "out/rejected.jsonl");
    assert!(others > 0);
}

#[test]
fn an_accepted_empty_source_is_remembered() {
    let folder = pipeline(50, |_| {});
    check_ok(&run(&folder, &[]));
    folder.write("flights.csv", "");
    check_refused(&run(&folder, &[]), &["content of source departures"]);
    check_ok(&run(&folder, &["--accept-change"]));
    check_ok(&run(&folder, &[]));
}

#[test]
fn a_renamed_pipeline_does_not_append_everything_again() {
    let folder = pipeline(50, |_| {});
    check_ok(&run(&folder, &[]));
    let statistics = folder.read("out/statistics.jsonl");
    write_pipeline(&folder, |file| file["name"] = "renamed".into());
    let refused = run(&folder, &["--accept-change"]);
    check_refused(&refused, &["which pipeline flights writes"]);
    assert_eq!(folder.read("out/statistics.jsonl"), statistics);
}

#[test]
fn a_sink_that_moves_needs_a_word_and_gets_only_what_comes_after() {
    let folder = pipeline(50, |_| {});
    check_ok(&run(&folder, &[]));
    let moved = |file: &mut toml::Table| {
        file["sinks"]["statistics"]["path"] = "out/moved.jsonl".into();
    };
    write_pipeline(&folder, moved);
    check_refused(
        &run(&folder, &[]),
        &["sink statistics", "out/statistics.jsonl", "out/moved.jsonl"],
    );
    check_ok(&run(&folder, &["--accept-change"]));
    assert_eq!(line_count(&folder, "out/moved.jsonl"), 0);
}

#[test]
fn a_signal_ends_the_run_after_the_current_batches_and_the_next_run_goes_on() {
    let folder = pipeline(3_000, |file| limit_epochs(file, 8));
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 10);
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &running.id().to_string()])
        .status();
    assert!(sent.expect("kill is there").success());
    let stopped = running.wait();
    assert_eq!(
        stopped.status.code(),
        Some(130),
        "{:?}",
        stopped.stderr.last()
    );
    assert_goes_on_under_its_number(&folder);
    assert_eq!(row_count(&folder), 2_999);
}
