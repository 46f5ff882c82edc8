//! B1 and B2: outputs of several messages. A map joins the lines of its batch in blocks, so what the blocks are depends
//! on how its input is cut; which lines are in some block, and what a block is known by, do not.

use harness::{TestHost, component, program, tidelock};
use tidelock::types::ids::{PartitionId, PublicId, StreamId};
use toml::Table;

use crate::example::add;
use crate::kill::{Rounds, kill_rounds};

/// Kills of a run.
const KILLS: usize = 18;

/// So many that no run of kills gets to their end.
const MANY_LINES: usize = 30_000;

const PIPELINE: &str = r#"
name = "blocks"

[components]

[sources.lines]
type = "file"
path = "lines.txt"
format = "lines"

[computations.join]
component = "join"
kind = "map"
inputs = ["lines"]
outputs = ["blocks"]
allow_batching_with_relaxed_guarantees = true

[sinks.blocks]
type = "file"
path = "out/blocks.jsonl"
inputs = ["blocks"]
"#;

/// The pipeline over these lines, its file changed by what `more` says in TOML.
fn pipeline(lines: &[String], more: &str) -> TestHost {
    let folder = TestHost::new();
    write_lines(&folder, lines);
    write_pipeline(&folder, more, |_| {});
    folder
}

fn write_pipeline(folder: &TestHost, more: &str, edit: impl FnOnce(&mut Table)) {
    let mut file: Table = PIPELINE.parse().expect("the pipeline is TOML");
    let guests = [("join", "joins_lines"), ("picky", "refuses_a_block")];
    let components = file["components"].as_table_mut().expect("it is a table");
    for (name, guest) in guests {
        components.insert(
            name.to_owned(),
            component(guest).display().to_string().into(),
        );
    }
    add(&mut file, more);
    edit(&mut file);
    folder.write("tidelock.toml", file.to_string());
}

fn write_lines(folder: &TestHost, lines: &[String]) {
    folder.write("lines.txt", lines.join("\n") + "\n");
}

fn numbered(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("line {number}")).collect()
}

/// The blocks that the sink has got.
fn blocks(folder: &TestHost) -> Vec<Vec<String>> {
    let rows = String::from_utf8(folder.read("out/blocks.jsonl")).expect("rows are text");
    let block = |row: &str| serde_json::from_str(row).expect("a row is a list of lines");
    rows.lines().map(block).collect()
}

#[test]
fn b1_every_message_is_in_one_output_whatever_the_batches_are() {
    let lines = numbered(2_500);
    let mut counts = Vec::new();
    for rows in [1, 7, 1_000] {
        let folder = pipeline(&lines, &format!("[epoch]\nmax_rows_per_batch = {rows}"));
        folder.run(["run", "."]).expect_code(0);
        let blocks = blocks(&folder);
        assert!(blocks.concat() == lines, "in batches of {rows}");
        assert!(blocks.iter().all(|block| block.len() <= rows));
        counts.push(blocks.len());
    }
    // So the batches did differ.
    assert_eq!(counts[0], 2_500);
    assert!(counts[0] > counts[1] && counts[1] > counts[2], "{counts:?}");
}

#[test]
fn b1_a_batch_that_fails_is_halved_to_the_one_line_and_the_others_are_joined() {
    let lines = numbered(100);
    let more = r#"
[computations.join]
on_failure = "skip"
parameters = { refused = "line 42" }
"#;
    let folder = pipeline(&lines, more);
    folder.run(["run", "."]).expect_code(0);
    let blocks = blocks(&folder);
    assert!(blocks.len() > 2, "it passed in parts: {blocks:?}");
    let expected: Vec<String> = (lines.iter())
        .filter(|line| *line != "line 42")
        .cloned()
        .collect();
    assert_eq!(blocks.concat(), expected);

    let more = r#"
[computations.join]
parameters = { refused = "line 42" }
"#;
    let failing = pipeline(&lines, more).run(["run", "."]);
    let text = failing.expect_code(1).stderr_text();
    assert!(text.contains("line 42 of source lines"), "{text}");
}

#[test]
fn b1_kills_lose_and_repeat_nothing_of_what_is_joined() {
    let (folder, rounds) = killed(&tidelock());
    assert!(
        rounds.running_epochs_hit >= KILLS / 3,
        "too few kills hit a running epoch: {rounds:?}"
    );
    let blocks = blocks(&folder);
    assert!(blocks.iter().any(|block| block.len() > 1));
    assert!(
        blocks.concat() == numbered(MANY_LINES),
        "lines are missing, repeated or out of order"
    );
}

#[test]
fn b1_the_kill_test_of_joined_lines_sees_a_broken_commit() {
    let (folder, rounds) = killed(&program("broken-host"));
    assert!(rounds.running_epochs_hit >= KILLS / 3, "{rounds:?}");
    let found = blocks(&folder).concat();
    assert!(
        found.len() > MANY_LINES,
        "a host that writes its sinks before the commit repeated no line: {rounds:?}"
    );
}

/// The pipeline over many lines, killed many times and run to its end.
fn killed(host: &std::path::Path) -> (TestHost, Rounds) {
    let more = "[epoch]\nmax_rows_per_batch = 7\nmax_rows_per_epoch = 40";
    let folder = pipeline(&numbered(MANY_LINES), more);
    let rounds = kill_rounds(host, &folder, KILLS);
    (folder, rounds)
}

/// A transform behind the map that refuses the block of the lines d, e and f, so that an error names the block.
const PICKY: &str = r#"
[computations.join]
parameters = { lines_max = 3 }

[computations.picky]
component = "picky"
kind = "transform"
inputs = ["blocks"]
outputs = []
parameters = { refused = '["d","e","f"]' }
"#;

/// The id that the run's error calls the message by.
fn id_in_error(folder: &TestHost) -> String {
    let failed = folder.run(["run", "."]);
    let text = failed.expect_code(1).stderr_text();
    let (_, id) = text.split_once("at message ").expect("it names a message");
    id.chars().take_while(char::is_ascii_hexdigit).collect()
}

#[test]
fn b1_what_an_output_is_known_by_follows_from_its_parents() {
    let lines: Vec<String> = "abcdefgh".chars().map(String::from).collect();
    let in_batches_of = |rows: usize| {
        let more = format!("{PICKY}\n[epoch]\nmax_rows_per_batch = {rows}");
        id_in_error(&pipeline(&lines, &more))
    };
    let whole = in_batches_of(8);
    assert_eq!(whole, in_batches_of(3), "in smaller batches");

    // In two runs: the second goes on behind the third line.
    let more = format!("{PICKY}\n[epoch]\nmax_rows_per_batch = 3");
    let folder = pipeline(&lines[..3], &more);
    folder.run(["run", "."]).expect_code(0);
    write_lines(&folder, &lines);
    assert_eq!(whole, id_in_error(&folder), "in two runs");

    // And it is the hash that docs/format.md tells of, over lines 4 to 6 of the file as it was opened first.
    let expected = |partition: u64, stream: u64| {
        let record = |line: u64| {
            let name = [&0_u32.to_be_bytes()[..], &line.to_be_bytes()].concat();
            PublicId::of_record(PartitionId(partition), &name)
        };
        let mut parents = [record(4), record(5), record(6)];
        parents.sort_unstable();
        PublicId::of_parents(StreamId(stream), &parents, 0).to_string()
    };
    let mut numbers = (0..10).flat_map(|partition| (0..10).map(move |stream| (partition, stream)));
    assert!(
        numbers.any(|(partition, stream)| expected(partition, stream) == whole),
        "{whole} is of no partition and stream of the pipeline"
    );
}

#[test]
fn b2_a_map_that_joins_without_permission_is_refused_with_line_and_remedy() {
    let folder = pipeline(&numbered(5), "");
    write_pipeline(&folder, "", |file| {
        let join = file["computations"]["join"].as_table_mut();
        let join = join.expect("it is a table");
        join.remove("allow_batching_with_relaxed_guarantees");
    });
    let failed = folder.run(["run", "."]);
    let text = failed.expect_code(1).stderr_text();
    for part in [
        "computation join",
        "line 1 of source lines",
        "outputs.parent-ends",
        "exactly one parent",
        "allow_batching_with_relaxed_guarantees is true",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert!(blocks(&folder).is_empty());
}

#[test]
fn relaxed_batching_is_shown_and_is_for_maps_alone() {
    let folder = pipeline(&numbered(5), "");
    let checked = folder.run(["check", "."]);
    let text = checked.expect_code(0).stdout_text();
    let line = 1
        + (std::str::from_utf8(&folder.read("tidelock.toml")).expect("it is text"))
            .lines()
            .position(|line| line.starts_with("allow_batching"))
            .expect("the option is there");
    let warning = format!("tidelock.toml:{line}: warning: computation join may batch with relaxed");
    assert!(text.contains(&warning), "{warning:?} is not in: {text}");
    let graph = folder.run(["graph", "."]);
    let graph = graph.expect_code(0).stdout_text();
    assert!(graph.contains("relaxed batching"), "{graph}");

    write_pipeline(&folder, "", |file| {
        file["computations"]["join"]["kind"] = "transform".into();
    });
    let checked = folder.run(["check", "."]);
    let text = checked.expect_code(1).stdout_text();
    assert!(
        text.contains("only a map may have outputs of several parents"),
        "{text}"
    );
}
