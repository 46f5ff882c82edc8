//! Dead letters at the command line, as an operator uses them: of real components, in a store that nobody has and in one that
//! a run has, and far from both.

use std::fs;
use std::path::Path;

use harness::{Finished, Running, TestHost, component};
use serde_json::Value;
use tidelock::cli::open_embedded_storage;
use tidelock::storage::letter_requests::all_requests;
use tidelock::storage::{CommitOutcome, Storage, leases};
use tidelock::types::batch::Batch;
use tidelock::types::dead_letter::{
    DeadLetter, FailedComputation, LetterFailure, LetterItem, LetterOrigin,
};
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::PartitionId;

use crate::operating::{commands_of_page, run_as_written};

/// One of each, among good lines.
const LINES: &str =
    "line 1\npanic 2\nline 3\nfail 4\nexit 5\ntrap 6\nmuch 7\nwrong 8\neat 9\nspin 10\nline 11\n";

/// The classes of what is bad in [`LINES`], in order.
const CLASSES: [&str; 8] = [
    "panic",
    "failure",
    "exit",
    "trap",
    "oversize_output",
    "malformed_effects",
    "out_of_memory",
    "out_of_fuel",
];

/// A pipeline that obeys its lines, with a component of its own that a test may take away.
fn pipeline(lines: &str, sink: &str) -> TestHost {
    let folder = TestHost::new();
    folder.write("lines.txt", lines);
    let bytes = fs::read(component("behaves_as_transform")).expect("it is built");
    folder.write("obeys.wasm", bytes);
    folder.write(
        "tidelock.toml",
        format!(
            r#"
name = "obedience"
[epoch]
max_rows_per_epoch = 20
[components]
obeys = "obeys.wasm"
[sources.in]
type = "file"
path = "lines.txt"
format = "lines"
[computations.obey]
component = "obeys"
kind = "transform"
inputs = ["in"]
outputs = ["out"]
parameters = {{ behaviour = "obeys-payloads" }}
on_failure = "dead_letter"
limits = {{ fuel = 400000000, memory = "16MiB", output = "1MiB" }}
[sinks.out]
{sink}
inputs = ["out"]
"#
        ),
    );
    folder
}

const FILE_SINK: &str = "type = \"file\"\npath = \"out.txt\"";

/// Letters of [`LINES`] in a store that nobody has.
fn completed() -> TestHost {
    let folder = pipeline(LINES, FILE_SINK);
    let _ = folder.run(["run", "tidelock.toml"]).expect_code(0);
    assert_eq!(folder.read("out.txt"), b"1 line 1\n2 line 3\n3 line 11\n");
    folder
}

fn dlq(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["dlq"].iter().chain(arguments))
}

fn json(finished: &Finished) -> Value {
    serde_json::from_slice(&finished.stdout).expect("a JSON document")
}

fn listed(folder: &TestHost, arguments: &[&str]) -> Vec<Value> {
    let list = [&["list", "-o", "json"], arguments].concat();
    let document = json(&dlq(folder, &list).expect_code(0));
    document["letters"].as_array().expect("a list").clone()
}

fn texts<'a>(letters: &'a [Value], field: &str) -> Vec<&'a str> {
    let text = |letter: &'a Value| letter[field].as_str().expect("a text");
    letters.iter().map(text).collect()
}

#[test]
fn p2_letters_are_listed_oldest_first_by_filters_and_counted_beyond_the_limit() {
    let folder = completed();
    let all = listed(&folder, &[]);
    assert_eq!(texts(&all, "class"), CLASSES);
    assert!(
        texts(&all, "computation")
            .iter()
            .all(|name| *name == "obey")
    );
    assert!(
        texts(&all, "location")
            .iter()
            .all(|at| at.starts_with("message "))
    );
    assert!(all.iter().all(|letter| letter["attempts"] == 1));
    let count = |arguments: &[&str]| listed(&folder, arguments).len();
    assert_eq!(count(&["--class", "panic"]), 1);
    assert_eq!(count(&["--class", "panic", "--computation", "obey"]), 1);
    assert_eq!(count(&["--class", "panic", "--pipeline", "other"]), 0);
    assert_eq!(count(&["--source", "in"]), 0);
    assert_eq!(count(&["--key", ""]), 8, "lines have no key");
    assert_eq!(count(&["--key", "a"]), 0);
    assert_eq!(count(&["--since", "1h"]), 8);
    assert_eq!(count(&["--until", "1h"]), 0);
    assert_eq!(count(&["--since", "2020-01-01T00:00:00Z"]), 8);

    let few = dlq(&folder, &["list", "--limit", "3"]).expect_code(0);
    assert_eq!(
        few.stdout_text().lines().count(),
        4,
        "{}",
        few.stdout_text()
    );
    assert!(
        few.stderr_text().contains("and 5 more"),
        "{}",
        few.stderr_text()
    );
    let few = json(&dlq(&folder, &["list", "--limit", "3", "-o", "json"]).expect_code(0));
    assert_eq!(
        (
            few["more"].as_u64(),
            few["letters"].as_array().map(Vec::len)
        ),
        (Some(5), Some(3))
    );
    let none = dlq(&folder, &["list", "--class", "none"]).expect_code(0);
    assert!(none.stdout.is_empty() && none.stderr_text().contains("no such dead letter"));
}

#[test]
fn p2_a_letter_is_shown_whole_as_text_as_json_and_as_the_bytes_of_its_item() {
    let folder = completed();
    let letters = listed(&folder, &["--class", "panic"]);
    let id = letters[0]["id"].as_str().expect("an id");
    let text = dlq(&folder, &["show", id]).expect_code(0).stdout_text();
    for part in [
        id,
        "panic 2",
        "count  = 1",
        "the payload says panic 2",
        "it says panic 2",
        "misbehave",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let shown = json(&dlq(&folder, &["show", id, "-o", "json"]).expect_code(0));
    assert_eq!(shown["item"]["payload"], "panic 2");
    assert_eq!(shown["states"][0]["value"], "1");
    assert_eq!(shown["states"][0]["state"], "count");
    let digest = shown["computation"]["digest"].as_str().expect("a digest");
    assert!(digest.starts_with("sha256:"), "{digest}");
    assert!(shown["failure"]["fuel"].as_u64() > Some(0));
    let payload = dlq(&folder, &["show", id, "--payload"]).expect_code(0);
    assert_eq!(payload.stdout, b"panic 2");

    let unknown = dlq(&folder, &["show", "p1-e999-0"]).expect_code(1);
    assert!(
        unknown
            .stderr_text()
            .contains("there is no dead letter p1-e999-0")
    );
    dlq(&folder, &["show", "first"]).expect_code(2);
}

/// Everything that failed is made again, to the byte, by a folder alone.
#[test]
fn p2_every_failing_call_is_made_again_to_the_byte_without_store_and_component() {
    let folder = completed();
    let letters = listed(&folder, &[]);
    for id in texts(&letters, "id") {
        let to = folder.path(&format!("repro/{id}"));
        fs::create_dir_all(to.parent().expect("it has one")).expect("it can be made");
        dlq(&folder, &["repro", id, "--to", &to.display().to_string()]).expect_code(0);
    }
    let elsewhere = TestHost::new();
    fs::rename(folder.path("repro"), elsewhere.path("taken")).expect("it can be moved");
    for gone in [".tidelock", "obeys.wasm", "tidelock.toml", "lines.txt"] {
        let path = folder.path(gone);
        match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        }
        .expect("it can be removed");
    }
    drop(folder);
    for (id, class) in texts(&letters, "id").into_iter().zip(CLASSES) {
        let taken = format!("taken/{id}");
        let replayed = elsewhere
            .run(["replay", &taken, "-o", "json"])
            .expect_code(0);
        let document = json(&replayed);
        assert_eq!(document["reproduced"], true, "{document}");
        assert_eq!(document["failure"], document["expected"], "{document}");
        assert_eq!(document["failure"]["class"], class);
        let text = elsewhere
            .run(["replay", &taken])
            .expect_code(0)
            .stdout_text();
        assert!(
            text.starts_with("reproduced: computation obey fails with"),
            "{text}"
        );
    }
}

/// The folder of the letter of a class.
fn repro(folder: &TestHost, class: &str) -> std::path::PathBuf {
    let letters = listed(folder, &["--class", class]);
    let to = folder.path("taken");
    let id = letters[0]["id"].as_str().expect("an id");
    dlq(folder, &["repro", id, "--to", &to.display().to_string()]).expect_code(0);
    to
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("it is text");
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(path, text.replace(from, to)).expect("it can be written");
}

#[test]
fn p2_a_folder_that_was_changed_reproduces_nothing_and_says_what_differs() {
    let folder = completed();
    let taken = repro(&folder, "panic");
    let replay = |code| folder.run(["replay", "taken"]).expect_code(code);
    let _ = replay(0);
    // Another item fails in another way, or not at all.
    replace(&taken.join("call.json"), "panic 2", "fail 2");
    let text = replay(3).stdout_text();
    for part in [
        "not reproduced",
        "class: expected \"panic\"",
        "found \"failure\"",
        "fuel: expected",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    replace(&taken.join("call.json"), "fail 2", "line 2");
    let passed = json(&folder.run(["replay", "taken", "-o", "json"]).expect_code(3));
    assert_eq!(passed["reproduced"], false);
    assert_eq!(
        passed["effects"]["outputs"][0]["payload"], "2 line 2",
        "{passed}"
    );
    replace(&taken.join("call.json"), "line 2", "panic 2");
    // Another state is another call, though it fails alike.
    replace(
        &taken.join("expected.json"),
        "it says panic 2",
        "it says panic 3",
    );
    let text = replay(3).stdout_text();
    assert!(
        text.contains("stderr: expected \"it says panic 3"),
        "{text}"
    );
    replace(
        &taken.join("expected.json"),
        "it says panic 3",
        "it says panic 2",
    );
    let _ = replay(0);

    replace(&taken.join("call.json"), "\"stream\": 0", "\"stream\": 7");
    let error = replay(1).stderr_text();
    assert!(
        error.contains("input 7 is named, and there are 1"),
        "{error}"
    );
    replace(&taken.join("call.json"), "\"stream\": 7", "\"streams\": 0");
    let error = replay(1).stderr_text();
    assert!(
        error.contains("call.json is not as it was written"),
        "{error}"
    );
    replace(&taken.join("call.json"), "\"streams\": 0", "\"stream\": 0");

    let component = taken.join("component.wasm");
    let mut bytes = fs::read(&component).expect("it is there");
    // A custom section changes nothing but the digest.
    bytes.extend([0, 2, 1, b'x']);
    fs::write(&component, &bytes).expect("it can be written");
    let error = replay(1).stderr_text();
    assert!(error.matches("sha256:").count() == 2, "{error}");
    let again = folder.path("again").display().to_string();
    let letters = listed(&folder, &["--class", "panic"]);
    let id = letters[0]["id"].as_str().expect("an id");
    let other = component.display().to_string();
    let refused = dlq(
        &folder,
        &["repro", id, "--to", &again, "--component", &other],
    );
    let error = refused.expect_code(1).stderr_text();
    assert!(error.matches("sha256:").count() == 2, "{error}");
    assert!(!Path::new(&again).exists(), "nothing was begun");
}

#[test]
fn p2_a_repaired_component_is_tried_on_the_call_and_its_effects_are_shown() {
    let folder = completed();
    let taken = repro(&folder, "panic");
    let with = |code| {
        folder
            .run(["replay", "taken", "--component", "obeys.wasm", "-o", "json"])
            .expect_code(code)
    };
    let failed = json(&with(1));
    assert_eq!(failed["failure"]["class"], "panic", "it is not repaired");
    assert_eq!(failed["reproduced"], false);
    // What stands for a repair: the same component told otherwise.
    replace(&taken.join("call.json"), "panic 2", "line 2");
    let passed = json(&with(0));
    assert_eq!(
        passed["effects"]["outputs"][0]["payload"], "2 line 2",
        "{passed}"
    );
    assert_eq!(passed["effects"]["outputs"][0]["stream"], "out");
    assert_eq!(passed["effects"]["states"][0]["value"], "2", "{passed}");
    folder.write("other.wasm", "no component");
    let error = folder
        .run(["replay", "taken", "--component", "other.wasm"])
        .expect_code(1);
    assert!(
        error.stderr_text().contains("not a component"),
        "{}",
        error.stderr_text()
    );
}

#[test]
fn p2_discarded_letters_are_gone_and_nothing_else_is() {
    let folder = completed();
    let letters = listed(&folder, &[]);
    let ids = texts(&letters, "id");
    for usage in [
        &["discard"][..],
        &["discard", ids[0], "--all"],
        &["discard", ids[0], "--class", "exit"],
    ] {
        dlq(&folder, usage).expect_code(2);
    }
    let unknown = dlq(&folder, &["discard", ids[0], "p1-e999-0"]).expect_code(1);
    assert!(
        unknown
            .stderr_text()
            .contains("there is no dead letter p1-e999-0")
    );
    assert_eq!(listed(&folder, &[]).len(), 8, "nothing was done");
    let done = dlq(&folder, &["discard", ids[0], ids[1]]).expect_code(0);
    assert!(done.stderr_text().contains("2 dead letters discarded"));
    let left = listed(&folder, &[]);
    assert_eq!(texts(&left, "id"), ids[2..]);
    let done = json(&dlq(&folder, &["discard", "--class", "exit", "-o", "json"]).expect_code(0));
    assert_eq!(
        (done["letters"].as_u64(), done["done"].as_u64()),
        (Some(1), Some(1))
    );
    let _ = folder.run(["store", "check"]).expect_code(0);
    let _ = dlq(&folder, &["discard", "--all"]).expect_code(0);
    assert_eq!(listed(&folder, &[]), [] as [Value; 0]);
    // The pipeline goes on behind the epochs that let go of them.
    folder.write("lines.txt", format!("{LINES}line 12\nfail 13\n"));
    let _ = folder.run(["run", "tidelock.toml"]).expect_code(0);
    assert!(folder.read("out.txt").ends_with(b"4 line 12\n"));
    assert_eq!(texts(&listed(&folder, &[]), "class"), ["failure"]);
    let _ = folder.run(["store", "check"]).expect_code(0);
}

/// docs/dead-letters.md, word for word: its commands are run as they stand there.
#[test]
fn the_commands_of_the_page_on_dead_letters_run_as_they_are_written() {
    let named = [
        "dlq list",
        "dlq show",
        "dlq replay",
        "dlq discard",
        "dlq repro",
        "replay ",
    ];
    let commands = commands_of_page("dead-letters.md", &named);
    let folder = completed();
    for line in &commands {
        let _ = run_as_written(&folder, line);
    }
    assert_eq!(folder.read("item.bin"), b"panic 2");
    let letters: Value = serde_json::from_slice(&folder.read("letters.json")).expect("JSON");
    assert_eq!(letters["letters"].as_array().map(Vec::len), Some(8));
    assert_eq!(listed(&folder, &[]), [] as [Value; 0]);
}

/// A run that stands still in its middle, as nobody takes its rows, until it is waited for.
fn run_that_stands_still(folder: &TestHost) -> Running {
    let mut command = folder.command();
    command.args(["--log", "debug", "run", "tidelock.toml"]);
    let mut running = Running::start_with_stdout_unread(&mut command);
    assert_eq!(running.wait_for_lines("item dead-lettered", 8), 8);
    // They can be read once the epoch is durable, which it is before its readers wait for a terminal.
    let are_there = (0..100).any(|_| listed(folder, &[]).len() == 8);
    assert!(are_there, "the epoch with the letters is committed");
    running
}

#[test]
fn p2_a_run_that_has_the_store_answers_for_its_letters() {
    let long = "x".repeat(1_000);
    let good: String = (0..500)
        .map(|number| format!("line {long} {number}\n"))
        .collect();
    let folder = pipeline(&format!("{LINES}{good}"), "type = \"stdout\"");
    let running = run_that_stands_still(&folder);
    let letters = listed(&folder, &[]);
    assert_eq!(texts(&letters, "class"), CLASSES);
    let ids = texts(&letters, "id");
    let shown = dlq(&folder, &["show", ids[0]]).expect_code(0).stdout_text();
    assert!(shown.contains("the payload says panic 2"), "{shown}");
    let taken = folder.path("taken").display().to_string();
    dlq(&folder, &["repro", ids[1], "--to", &taken]).expect_code(0);
    let _ = folder.run(["replay", "taken"]).expect_code(0);
    let unknown = dlq(&folder, &["discard", "p1-e999-0"]).expect_code(1);
    assert!(
        unknown
            .stderr_text()
            .contains("there is no dead letter p1-e999-0")
    );
    let asked = json(&dlq(&folder, &["discard", ids[0], ids[1], "-o", "json"]).expect_code(0));
    assert_eq!(
        (asked["how"].as_str(), asked["letters"].as_u64()),
        (Some("handedon"), Some(2))
    );
    assert_eq!(
        asked["running"].as_u64(),
        Some(2),
        "their job is of this run"
    );
    let letters = listed(&folder, &["--limit", "3"]);
    let asked = letters.iter().filter(|letter| letter["asked"] == "discard");
    assert!(
        asked.count() <= 2,
        "they are there until the job comes to them"
    );
    let _ = running.wait().expect_code(0);
}

/// What is asked for is durable, and is told of while nobody can do it.
#[test]
fn p2_replays_that_no_job_can_do_are_told_at_each_start_and_kept() {
    let folder = completed();
    let asked = dlq(&folder, &["replay", "--class", "exit"])
        .expect_code(0)
        .stderr_text();
    assert!(
        asked.contains("1 dead letter will be replayed by the next run"),
        "{asked}"
    );
    let letters = listed(&folder, &["--class", "exit"]);
    assert_eq!(letters[0]["asked"], "replay");
    // The pipeline goes on without the computation: a map takes its place under another name.
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("it is text");
    let start = file.find("[computations.obey]").expect("it is there");
    let end = file.find("[sinks.out]").expect("it is there");
    let without = format!(
        "{}[sinks.out]\n{FILE_SINK}\ninputs = [\"in\"]\n",
        &file[..start]
    );
    assert!(end > start);
    let map = fs::read(component("behaves_as_map")).expect("it is built");
    folder.write("obeys.wasm", map);
    folder.write("tidelock.toml", without.replace("out.txt", "other.txt"));
    for _again in 0..2 {
        let run = folder
            .run(["run", "tidelock.toml", "--accept-change", "-o", "json"])
            .expect_code(0);
        let said = run.stderr_text();
        assert!(said.contains("not replayed: its partition"), "{said}");
        let told = json(&run);
        assert_eq!(told["unserved_replays"][0]["letters"], 1, "{told}");
    }
    assert_eq!(listed(&folder, &["--class", "exit"])[0]["asked"], "replay");
    let _ = dlq(&folder, &["discard", "--all"]).expect_code(0);
    let run = folder.run(["run", "tidelock.toml"]).expect_code(0);
    assert!(
        !run.stderr_text().contains("not replayed"),
        "{}",
        run.stderr_text()
    );
    let storage = open_embedded_storage(&folder.path(".tidelock")).expect("it opens");
    assert_eq!(all_requests(&*storage).expect("they decode"), []);
}

/// Commits `count` letters of a partition.
fn write_letters(storage: &dyn Storage, partition: u64, count: u32) {
    let partition = PartitionId(partition);
    let lease = leases::grant(storage, partition).expect("it is granted");
    let letter = |index: u32| DeadLetter {
        pipeline: "many".to_owned(),
        deployment: 1,
        written: 1_700_000_000_000 + u64::from(index),
        origin: LetterOrigin::Computation(Box::new(FailedComputation {
            name: "totals".to_owned(),
            component: "/totals.wasm".to_owned(),
            digest: "sha256:00".to_owned(),
            settings: "{}".to_owned(),
            batch: Batch::default(),
            left_out_state_bytes: 0,
        })),
        item: LetterItem::Message {
            stream: "in".to_owned(),
            key: format!("key {}", index % 10).into_bytes(),
            event_time: 0,
            payload: vec![0xff; 200],
        },
        location: format!("line {index} of source in"),
        root: None,
        failure: LetterFailure {
            class: "panic".to_owned(),
            reason: "no such carrier".to_owned(),
            stderr: "x".repeat(500),
            ..LetterFailure::default()
        },
        attempts: 1,
    };
    let epoch = storage.head(partition).expect("it has one").epoch.next();
    let commit = EpochCommit {
        dead_letters: (0..count).map(letter).collect(),
        ..EpochCommit::empty(&lease, epoch)
    };
    let outcome = storage.commit_epoch(lease, commit).expect("it is stored");
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
}

#[test]
fn p2_a_hundred_thousand_letters_are_listed_asked_for_and_discarded() {
    let folder = TestHost::new();
    {
        let storage = open_embedded_storage(&folder.path(".tidelock")).expect("it opens");
        for partition in 1..=10 {
            write_letters(&*storage, partition, 10_000);
        }
        storage.settle().expect("they are brought to their place");
    }
    let counted = dlq(&folder, &["list", "--limit", "1"])
        .expect_code(0)
        .stderr_text();
    assert!(counted.contains("and 99999 more"), "{counted}");
    let all = listed(&folder, &["--limit", "1000000"]);
    assert_eq!(all.len(), 100_000);
    assert!(texts(&all, "written").is_sorted());
    let asked = dlq(&folder, &["replay", "--all"])
        .expect_code(0)
        .stderr_text();
    assert!(
        asked.contains("100000 dead letters will be replayed"),
        "{asked}"
    );
    let again = json(&dlq(&folder, &["replay", "--key", "key 7", "-o", "json"]).expect_code(0));
    assert_eq!(
        (again["letters"].as_u64(), again["already"].as_u64()),
        (Some(10_000), Some(10_000))
    );
    {
        let storage = open_embedded_storage(&folder.path(".tidelock")).expect("it opens");
        assert_eq!(all_requests(&*storage).expect("they decode").len(), 100_000);
    }
    let done = dlq(&folder, &["discard", "--all"])
        .expect_code(0)
        .stderr_text();
    assert!(done.contains("100000 dead letters discarded"), "{done}");
    let storage = open_embedded_storage(&folder.path(".tidelock")).expect("it opens");
    assert_eq!(all_requests(&*storage).expect("they decode"), []);
}
