//! Items that a computation fails on: pinned to the one to blame, and passed over, kept or the end of the partition,
//! as the pipeline says; whatever the batches, whatever kills the process.

use std::time::Duration;

use guest_behaviours::obey::BAD;
use harness::{Finished, TestHost, component};
use serde_json::Value;
use tidelock::cli::open_embedded_storage;
use tidelock::storage::letter_requests::add_requests;
use tidelock::types::dead_letter::{
    DeadLetter, DeadLetterId, LetterItem, LetterOrigin, LetterRequestKind,
};

use crate::kill::{Random, seed};
use crate::undecodable::letters;

/// Fuel that a thousand good messages never need and a spinning one soon has used up.
const FUEL: u64 = 400_000_000;

/// What each of [`BAD`] is called in a dead letter.
const CLASSES: [(&str, &str); 10] = [
    ("abort", "trap"),
    ("eat", "out_of_memory"),
    ("exit", "exit"),
    ("fail", "failure"),
    ("much", "oversize_output"),
    ("named", "failure"),
    ("panic", "panic"),
    ("spin", "out_of_fuel"),
    ("trap", "trap"),
    ("wrong", "malformed_effects"),
];

/// A pipeline of one transform that obeys its payloads.
struct Pipeline {
    /// More options of the computation.
    options: &'static str,
    rows_per_batch: usize,
    rows_per_epoch: usize,
}

impl Pipeline {
    fn write(&self, lines: &str) -> TestHost {
        let folder = TestHost::new();
        folder.write("lines.txt", lines);
        let component = component("behaves_as_transform");
        let Pipeline {
            options,
            rows_per_batch,
            rows_per_epoch,
        } = self;
        let text = format!(
            r#"
name = "isolation"
[epoch]
max_rows_per_batch = {rows_per_batch}
max_rows_per_epoch = {rows_per_epoch}
[components]
obeys = {component:?}
[sources.in]
type = "file"
path = "lines.txt"
format = "lines"
[computations.obey]
component = "obeys"
kind = "transform"
inputs = ["in"]
outputs = ["out"]
parameters = {{ behaviour = "obeys-payloads", payload = "" }}
{options}
[sinks.out]
type = "file"
path = "out.txt"
inputs = ["out"]
"#
        );
        folder.write("tidelock.toml", text);
        folder
    }
}

fn limits(policy: &str) -> String {
    format!(
        "on_failure = \"{policy}\"\nlimits = {{ fuel = {FUEL}, memory = \"64MiB\", output = \"1MiB\" }}\n"
    )
}

/// Lines among which every `period`-th is bad, each in another way; and what the transform makes of the good ones.
fn lines(count: usize, period: usize) -> (String, String) {
    let (mut lines, mut expected, mut good) = (String::new(), String::new(), 0);
    for number in 1..=count {
        if number % period == 0 {
            let word = BAD[number / period % BAD.len()];
            lines += &format!("{word} {number}\n");
        } else {
            good += 1;
            lines += &format!("line {number}\n");
            expected += &format!("{good} line {number}\n");
        }
    }
    (lines, expected)
}

fn run(folder: &TestHost) -> Finished {
    folder.run(["run", "tidelock.toml", "-o", "json"])
}

fn document(finished: &Finished) -> Value {
    serde_json::from_slice(&finished.stdout).expect("the run prints a document")
}

fn payload(letter: &DeadLetter) -> String {
    match &letter.item {
        LetterItem::Message { payload, .. } => String::from_utf8_lossy(payload).into_owned(),
        item => panic!("no message: {item:?}"),
    }
}

fn class_of(payload: &str) -> &'static str {
    let class = CLASSES.iter().find(|(word, _)| payload.starts_with(word));
    class.expect("it is bad").1
}

#[test]
fn p1_every_kind_of_badness_is_pinned_to_its_item_and_kept_whatever_the_batches() {
    let (text, expected) = lines(200, 7);
    let bad: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("line"))
        .collect();
    assert!(bad.len() > 2 * BAD.len());
    let mut seen: Option<Vec<_>> = None;
    for (rows_per_batch, rows_per_epoch) in [(1_000, 65_536), (7, 20), (1, 3)] {
        let options: &'static str = limits("dead_letter").leak();
        let folder = Pipeline {
            options,
            rows_per_batch,
            rows_per_epoch,
        }
        .write(&text);
        let finished = run(&folder).expect_code(0);
        assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);
        let document = document(&finished);
        assert_eq!(document["dead_letters"], bad.len());
        assert_eq!(document["skipped"], 0);
        let letters = letters(&folder);
        let payloads: Vec<String> = letters.iter().map(|(_, letter)| payload(letter)).collect();
        assert_eq!(payloads, bad, "all of them, in order, as they came");
        for (id, letter) in &letters {
            let payload = payload(letter);
            let shown = format!("{id} {payload}: {:?}", letter.failure);
            assert_eq!(letter.failure.class, class_of(&payload), "{shown}");
            assert_eq!(letter.attempts, 1, "{shown}");
            assert_eq!(letter.pipeline, "isolation");
            assert!(letter.root.is_some(), "{shown}");
            assert!(letter.location.starts_with("message "), "{shown}");
            assert!(letter.written > 0 && letter.failure.fuel > 0, "{shown}");
            assert!(
                letter
                    .failure
                    .stderr
                    .contains(&format!("it says {payload}")),
                "{shown}"
            );
            if payload.starts_with("panic") {
                let reason = &letter.failure.reason;
                assert!(
                    reason.contains(&format!("the payload says {payload}")),
                    "{shown}"
                );
                assert!(letter.failure.backtrace.contains("misbehave"), "{shown}");
            }
            let LetterOrigin::Computation(computation) = &letter.origin else {
                panic!("{shown}");
            };
            assert_eq!(computation.name, "obey");
            assert!(computation.digest.starts_with("sha256:"), "{shown}");
            // The call had the state that the good ones before it left behind.
            let number: usize = payload.split(' ').nth(1).unwrap().parse().unwrap();
            let before = number - number / 7;
            let state = computation.batch.states[0].values.iter().next();
            assert_eq!(state, Some(before.to_string().as_bytes()), "{shown}");
        }
        // But for ids, which name epochs, nothing of a letter depends on how the input was cut.
        let of_letters: Vec<_> = (letters.into_iter())
            .map(|(_, letter)| (letter.failure, letter.origin, letter.item))
            .collect();
        match &seen {
            None => seen = Some(of_letters),
            Some(seen) => assert!(*seen == of_letters, "they differ at {rows_per_batch}"),
        }
    }
}

#[test]
fn p1_what_is_skipped_is_counted_and_the_rest_is_as_without_it() {
    let (text, expected) = lines(500, 9);
    let folder = Pipeline {
        options: limits("skip").leak(),
        rows_per_batch: 1_000,
        rows_per_epoch: 65_536,
    }
    .write(&text);
    let document = document(&run(&folder).expect_code(0));
    assert_eq!(
        (&document["skipped"], &document["dead_letters"]),
        (&55.into(), &0.into())
    );
    assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);
    assert!(letters(&folder).is_empty());
}

#[test]
fn p1_with_fail_the_partition_stops_at_the_item_each_time_it_is_run_and_goes_on_once_that_is_passed_over()
 {
    let (text, expected) = lines(300, 250);
    let folder = Pipeline {
        options: limits("fail").leak(),
        rows_per_batch: 7,
        rows_per_epoch: 20,
    }
    .write(&text);
    let mut said = Vec::new();
    for _again in 0..2 {
        let finished = folder.run(["run", "tidelock.toml"]).expect_code(1);
        let text = finished.stderr_text();
        assert!(text.contains("computation obey failed"), "{text}");
        let at = text.find("at message ").expect("it is named");
        said.push(text[at..].lines().next().map(str::to_owned));
        let out = String::from_utf8_lossy(&folder.read("out.txt")).into_owned();
        assert!(
            expected.starts_with(&out) && out.len() < expected.len(),
            "{out}"
        );
        assert!(!out.contains("line 251"), "nothing behind it is processed");
    }
    assert_eq!(said[0], said[1]);
    let pipeline = String::from_utf8(folder.read("tidelock.toml")).unwrap();
    folder.write("tidelock.toml", pipeline.replace("\"fail\"", "\"skip\""));
    let _ = run(&folder).expect_code(0);
    assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);
}

/// A map behind another one fails on some of what the first one makes of an item: the rest of that item stays.
#[test]
fn p1_a_map_in_a_chain_loses_its_own_messages_and_no_others() {
    let folder = TestHost::new();
    let (text, _) = lines(100, 10);
    folder.write("lines.txt", &text);
    let map = component("behaves_as_map");
    let next = component("behaves_as_next_map");
    folder.write(
        "tidelock.toml",
        format!(
            r#"
name = "chain"
[components]
first = {map:?}
second = {next:?}
[sources.in]
type = "file"
path = "lines.txt"
format = "lines"
[computations.first]
component = "first"
kind = "map"
inputs = ["in"]
outputs = ["out"]
parameters = {{ behaviour = "echoes" }}
[computations.second]
component = "second"
kind = "map"
inputs = ["out"]
outputs = ["next-out"]
parameters = {{ behaviour = "panics-on-a-payload", payload = "line 33" }}
on_failure = "dead_letter"
[sinks.all]
type = "file"
path = "all.txt"
inputs = ["out"]
[sinks.out]
type = "file"
path = "out.txt"
inputs = ["next-out"]
"#
        ),
    );
    let _ = run(&folder).expect_code(0);
    assert_eq!(folder.read("all.txt"), text.as_bytes());
    let without = text.replace("line 33\n", "");
    assert_eq!(folder.read("out.txt"), without.as_bytes());
    let letters = letters(&folder);
    let [(_, letter)] = &letters[..] else {
        panic!("{letters:?}");
    };
    assert_eq!(
        (payload(letter).as_str(), letter.origin.name()),
        ("line 33", "second")
    );
    assert_eq!(letter.location, "line 33 of source in");
}

/// A deadline depends on the load: the item is tried as often as it may be, and then nothing is decided by it.
#[test]
fn p1_an_item_past_its_deadline_has_its_attempts_and_fails_the_job_visibly() {
    let (text, _) = lines(20, 30);
    let folder = Pipeline {
        options: "on_failure = \"dead_letter\"\nattempts = 2\nlimits = { fuel = 1000000000000000, deadline = \"200ms\" }\n",
        rows_per_batch: 1_000,
        rows_per_epoch: 65_536,
    }
    .write(&(text + "spin now\n"));
    let finished = folder
        .run(["--log", "debug", "run", "tidelock.toml"])
        .expect_code(1);
    let failed = |line: &&String| line.contains("attempt failed");
    assert_eq!(finished.stderr.iter().filter(failed).count(), 2);
    let said = finished.stderr_text();
    assert!(said.contains("ran longer than 200ms"), "{said}");
    assert!(letters(&folder).is_empty());
}

/// An item that the process always ends with: after some starts it stands alone, and after its attempts it is kept
/// without having been called again.
#[test]
fn p1_an_item_that_the_process_ends_with_is_found_and_passed_over() {
    let (text, _) = lines(400, 1_000);
    let text = text.replace("line 301\n", "spin 301\n");
    let folder = Pipeline {
        options: "on_failure = \"dead_letter\"\nlimits = { fuel = 1000000000000000, deadline = \"1h\" }\n",
        rows_per_batch: 1_000,
        rows_per_epoch: 65_536,
    }
    .write(&text);
    let mut starts = 0;
    loop {
        starts += 1;
        assert!(starts < 20, "the item is never given up");
        let mut host = folder.start(["--log", "debug", "run", "tidelock.toml"]);
        if !host.wait_until_absorbed(Duration::from_millis(1_500)) {
            let _ = host.wait().expect_code(0);
            break;
        }
        assert!(host.kill().was_killed());
    }
    assert!(starts > 4, "it was killed {starts} times");
    let out = String::from_utf8_lossy(&folder.read("out.txt")).into_owned();
    assert_eq!(out.lines().count(), 399);
    assert!(out.ends_with("399 line 400\n"), "{out}");
    let letters = letters(&folder);
    let [(_, letter)] = &letters[..] else {
        panic!("{letters:?}");
    };
    assert_eq!(payload(letter), "spin 301");
    assert_eq!(
        (letter.failure.class.as_str(), letter.attempts),
        ("unclean_stop", 3)
    );
}

/// Asks for a replay of every letter.
fn request_replays(folder: &TestHost) {
    let ids: Vec<DeadLetterId> = letters(folder).iter().map(|(id, _)| *id).collect();
    let storage = open_embedded_storage(&folder.path(".tidelock")).expect("it opens");
    add_requests(&*storage, LetterRequestKind::Replay, &ids).expect("they can be asked for");
    storage.settle().expect("it settles");
}

/// From now on the transform fails on nothing.
fn forgive(folder: &TestHost) {
    let pipeline = String::from_utf8(folder.read("tidelock.toml")).expect("it is text");
    folder.write(
        "tidelock.toml",
        pipeline.replace("payload = \"\"", "payload = \"forgive\""),
    );
}

const ACCEPTING: [&str; 5] = ["run", "tidelock.toml", "--accept-change", "-o", "json"];

#[test]
fn p2_a_letter_is_replayed_through_the_same_computation_once_also_when_the_pipeline_is_completed() {
    let (text, expected) = lines(100, 7);
    let bad: Vec<&str> = (text.lines())
        .filter(|line| !line.starts_with("line"))
        .collect();
    let folder = Pipeline {
        options: limits("dead_letter").leak(),
        rows_per_batch: 1_000,
        rows_per_epoch: 65_536,
    }
    .write(&text);
    let _ = run(&folder).expect_code(0);
    let before = letters(&folder);

    // As long as nothing has changed they fail again: new letters take the places of the old ones.
    request_replays(&folder);
    let again = document(&run(&folder).expect_code(0));
    assert_eq!(again["dead_letters"], bad.len());
    let after = letters(&folder);
    assert_eq!(after.len(), before.len());
    for ((old_id, old), (new_id, new)) in before.iter().zip(&after) {
        assert!(new_id > old_id);
        assert_eq!(new.attempts, 2);
        assert_eq!((&new.item, &new.location), (&old.item, &old.location));
        assert_eq!(
            (new.root, &new.failure.class),
            (old.root, &old.failure.class)
        );
    }
    assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);

    forgive(&folder);
    request_replays(&folder);
    let _ = folder.run(ACCEPTING).expect_code(0);
    let good = text.lines().count() - bad.len();
    let replayed = (1..)
        .zip(&bad)
        .map(|(number, line)| format!("{} {line}\n", good + number));
    let expected = expected + &replayed.collect::<String>();
    assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);
    assert!(letters(&folder).is_empty());
    // Nothing is left to be served.
    let _ = folder.run(ACCEPTING).expect_code(0);
    assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);
}

/// Runs and kills it after some epochs, or lines that hold `said`, again and again; returns how many kills hit a run. The last run comes to its
/// end.
fn kill_rounds(folder: &TestHost, arguments: &[&str], said: &str) -> usize {
    const ROUNDS: usize = 50;
    let mut random = Random(seed());
    let mut hits = 0;
    for _ in 0..ROUNDS {
        let mut host = folder.start(["--log", "debug"].iter().chain(arguments));
        match random.below(3) {
            0 => drop(host.wait_for_lines(said, 1 + random.below(3) as usize)),
            1 => drop(host.wait_for_lines("lease granted", 1)),
            _ => drop(host.wait_for_lines("epoch committed", 1 + random.below(8) as usize)),
        }
        hits += usize::from(host.kill().was_killed());
    }
    let _ = folder.run(arguments).expect_code(0);
    hits
}

#[test]
fn p1_fifty_kills_while_bad_items_are_looked_for_lose_and_repeat_nothing() {
    let (text, expected) = lines(6_000, 10);
    let bad: Vec<&str> = (text.lines())
        .filter(|line| !line.starts_with("line"))
        .collect();
    let folder = Pipeline {
        options: limits("dead_letter").leak(),
        rows_per_batch: 40,
        rows_per_epoch: 40,
    }
    .write(&text);
    let hits = kill_rounds(&folder, &["run", "tidelock.toml"], "repeated in parts");
    assert!(hits >= 30, "too few kills hit a run: {hits}");
    assert_eq!(String::from_utf8_lossy(&folder.read("out.txt")), expected);
    let kept: Vec<String> = letters(&folder)
        .iter()
        .map(|(_, letter)| payload(letter))
        .collect();
    assert!(kept == bad, "{} of {} letters", kept.len(), bad.len());
}

#[test]
fn p2_fifty_kills_while_letters_are_replayed_lose_and_repeat_nothing() {
    let (text, expected) = lines(4_000, 2);
    let bad: Vec<&str> = (text.lines())
        .filter(|line| !line.starts_with("line"))
        .collect();
    let folder = Pipeline {
        options: limits("dead_letter").leak(),
        rows_per_batch: 10,
        rows_per_epoch: 10,
    }
    .write(&text);
    let _ = run(&folder).expect_code(0);
    request_replays(&folder);
    forgive(&folder);
    let hits = kill_rounds(&folder, &ACCEPTING[..3], "dead letter served");
    assert!(hits >= 30, "too few kills hit a run: {hits}");
    assert!(letters(&folder).is_empty());
    let out = String::from_utf8_lossy(&folder.read("out.txt")).into_owned();
    let replayed = out
        .strip_prefix(&expected)
        .expect("the good ones came first");
    let good = text.lines().count() - bad.len();
    let (mut numbers, mut found) = (Vec::new(), Vec::new());
    for line in replayed.lines() {
        let (number, line) = line.split_once(' ').expect("a number and a line");
        numbers.push(number.parse::<usize>().expect("it is one"));
        found.push(line);
    }
    let counted: Vec<usize> = (good + 1..=good + bad.len()).collect();
    assert_eq!(numbers, counted, "each was counted once");
    assert!(
        found == bad,
        "{} of {} were replayed",
        found.len(),
        bad.len()
    );
}

/// A record that could not be decoded is decoded again by the options that are in force when it is replayed.
#[test]
fn p2_a_record_is_replayed_by_the_options_of_now() {
    let folder = TestHost::new();
    folder.write("lines.txt", "one\nmuch longer than the others\ntwo\n");
    let write = |max_record_bytes: &str| {
        folder.write(
            "tidelock.toml",
            format!(
                "name = \"records\"\n[sources.in]\ntype = \"file\"\npath = \"lines.txt\"\nformat = \"lines\"\n\
                 max_record_bytes = \"{max_record_bytes}\"\non_failure = \"dead_letter\"\n\
                 [sinks.out]\ntype = \"file\"\npath = \"out.txt\"\ninputs = [\"in\"]\n"
            ),
        );
    };
    let out = || String::from_utf8(folder.read("out.txt")).expect("it is text");
    write("10B");
    let _ = run(&folder).expect_code(0);
    assert_eq!(out(), "one\ntwo\n");
    let before = letters(&folder);
    assert_eq!(before.len(), 1);

    request_replays(&folder);
    let _ = run(&folder).expect_code(0);
    let again = letters(&folder);
    let [(id, letter)] = &again[..] else {
        panic!("{again:?}");
    };
    assert!(*id > before[0].0);
    assert_eq!((letter.attempts, &letter.item), (2, &before[0].1.item));
    assert_eq!(out(), "one\ntwo\n");

    write("100B");
    request_replays(&folder);
    let _ = folder.run(ACCEPTING).expect_code(0);
    assert!(letters(&folder).is_empty());
    assert!(
        out().ends_with("much longer than the others\n"),
        "{}",
        out()
    );
}
