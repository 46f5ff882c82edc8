//! Two transforms, one behind the other, whose numbers of partitions change between runs that are
//! killed in the middle: messages wait in lanes on both sides of what moves. Every key's rows must be
//! those of an undisturbed run, each once and in their order.

use std::collections::BTreeMap;

use harness::{Finished, Running, TestHost, component};

use crate::example::{add, limit_epochs};
use crate::keyed_sum;

const EVENTS: usize = 3_000;
const USERS: usize = 60;

/// How many partitions the first transform has, and the second.
#[derive(Debug, Clone, Copy)]
struct Partitions {
    sum: u32,
    numbers: u32,
}

/// What the first transform and the second one have after each change.
const CHANGES: [Partitions; 6] = [
    Partitions { sum: 4, numbers: 2 },
    Partitions { sum: 3, numbers: 1 },
    Partitions { sum: 1, numbers: 3 },
    Partitions { sum: 2, numbers: 2 },
    Partitions { sum: 4, numbers: 1 },
    Partitions { sum: 1, numbers: 2 },
];

const BEFORE: Partitions = Partitions { sum: 1, numbers: 1 };

/// What is said between the beginning of a change and its end, and how often it is said before the
/// kill: states of two transforms move, and both leave partitions to be swept.
const STEPS: [(&str, usize); 6] = [
    ("pipeline registered", 1),
    ("messages rerouted", 1),
    ("states and timers moved", 1),
    ("states and timers moved", 2),
    ("partition swept", 1),
    ("partition swept", 2),
];

fn folder() -> TestHost {
    let folder = TestHost::new();
    let mut events = String::new();
    for event in 0..EVENTS {
        let user = event * 7 % USERS;
        let amount = event % 101;
        events.push_str(&format!("{{\"user\":\"u{user}\",\"amount\":{amount}}}\n"));
    }
    folder.write("events.jsonl", events);
    folder
}

/// The second transform is slow, so that what the first one wrote waits for it.
fn write_pipeline(folder: &TestHost, partitions: Partitions) {
    let Partitions { sum, numbers } = partitions;
    keyed_sum::write_pipeline(folder, |file| {
        limit_epochs(file, 8);
        add(
            file,
            &format!(
                r#"
[components]
numbers = {component:?}
[computations.sum]
partitions = {sum}
[computations.numbers]
component = "numbers"
kind = "transform"
inputs = ["sums"]
outputs = ["numbered"]
partitions = {numbers}
parameters = {{ work = 200_000 }}
[sinks.sums]
path = "out/sums"
[sinks.numbered]
type = "file"
path = "out/numbered"
inputs = ["numbered"]
"#,
                component = component("numbers_sums"),
            ),
        );
    });
}

fn start(folder: &TestHost) -> Running {
    folder.start(["--log", "debug", "run", ".", "--accept-change"])
}

/// Runs and kills it while messages wait in lanes.
fn kill_in_the_middle(folder: &TestHost) -> Finished {
    let mut running = start(folder);
    running.wait_for_lines("epoch committed", 100);
    let killed = running.kill();
    assert!(killed.was_killed(), "{:?}", killed.stderr.last());
    killed
}

fn run_to_the_end(folder: &TestHost) -> Finished {
    start(folder).wait().expect_code(0)
}

/// The rows of a file by their user, in the order of the file.
fn rows_by_user(folder: &TestHost, name: &str) -> BTreeMap<String, Vec<String>> {
    let text = String::from_utf8(folder.read(&format!("out/{name}"))).expect("rows are text");
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in text.lines() {
        let document = &row[row.find('{').expect("a row holds a document")..];
        let document: serde_json::Value = serde_json::from_str(document).expect("it is JSON");
        let user = document["user"].as_str().expect("a row names its user");
        rows.entry(user.to_owned())
            .or_default()
            .push(row.to_owned());
    }
    rows
}

fn assert_same(folder: &TestHost, undisturbed: &TestHost) {
    for name in ["sums", "numbered"] {
        let (found, expected) = (rows_by_user(folder, name), rows_by_user(undisturbed, name));
        assert_eq!(found.len(), USERS);
        for (user, rows) in &expected {
            assert_eq!(&found[user], rows, "{name} of {user}");
        }
    }
}

fn undisturbed() -> TestHost {
    let undisturbed = folder();
    write_pipeline(&undisturbed, BEFORE);
    let _ = run_to_the_end(&undisturbed);
    let rows = rows_by_user(&undisturbed, "numbered");
    // The number that the second transform gives a row is the count that the first one gave it.
    for (number, row) in (1..).zip(&rows["u7"]) {
        assert!(row.starts_with(&format!("{number} ")), "{row}");
        assert!(row.contains(&format!("\"count\":{number},")), "{row}");
    }
    undisturbed
}

/// Messages that a run moved for `computation` when it started.
fn messages_moved(stderr: &[String], computation: &str) -> usize {
    let line =
        (stderr.iter()).find(|line| line.starts_with(&format!("computation {computation}: ")));
    let words: Vec<&str> = line.map_or(Vec::new(), |line| line.split(' ').collect());
    let waiting = words.iter().position(|word| *word == "waiting");
    waiting.map_or(0, |at| {
        let count = words[at - 1].replace(',', "");
        count.parse().expect("a count stands before its unit")
    })
}

#[test]
fn r4_keys_keep_their_order_when_partitions_change_under_waiting_messages() {
    let undisturbed = undisturbed();
    let folder = folder();
    write_pipeline(&folder, BEFORE);
    kill_in_the_middle(&folder);

    let (mut moved, mut retiring) = (0, 0);
    for partitions in CHANGES {
        write_pipeline(&folder, partitions);
        let killed = kill_in_the_middle(&folder);
        moved += messages_moved(&killed.stderr, "numbers");
        retiring += (killed.stderr.iter())
            .filter(|line| line.contains("job opened") && line.contains("retiring "))
            .count();
    }
    println!("{moved} messages moved, {retiring} retiring jobs");
    assert!(moved > 0, "no message waited when partitions changed");
    assert!(
        retiring >= 5,
        "{retiring} old partitions had messages to be read"
    );
    let _ = run_to_the_end(&folder);
    assert_same(&folder, &undisturbed);
    // All that was left of earlier layouts is read, removed and forgotten.
    let _ = run_to_the_end(&folder);
    let last = run_to_the_end(&folder);
    assert!(!last.stderr_text().contains("retiring "));
    assert_same(&folder, &undisturbed);
}

#[test]
fn d1_kills_while_partitions_change_lose_and_repeat_nothing() {
    let undisturbed = undisturbed();
    let folder = folder();
    write_pipeline(&folder, BEFORE);
    kill_in_the_middle(&folder);

    let mut hits = 0;
    for (partitions, (step, count)) in CHANGES.into_iter().zip(STEPS) {
        write_pipeline(&folder, partitions);
        let mut running = start(&folder);
        assert_eq!(running.wait_for_lines(step, count), count, "{step}");
        let killed = running.kill();
        assert!(killed.was_killed(), "{:?}", killed.stderr.last());
        hits += usize::from(!killed.stderr_text().contains("job opened"));
        // What was begun is finished by the next start, which is killed in its turn.
        kill_in_the_middle(&folder);
    }
    println!("{hits} kills hit a move");
    assert!(hits >= STEPS.len() - 2, "{hits}");
    let _ = run_to_the_end(&folder);
    assert_same(&folder, &undisturbed);
}
