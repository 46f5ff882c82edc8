//! A transform in several partitions: every key's rows are those of one partition, in their order,
//! and stay so when the process is killed.

use std::collections::BTreeMap;

use harness::TestHost;

use crate::example::{limit_epochs, pipeline, write_lines, write_pipeline};

/// Sets the transform's partitions, and epochs so small that kills find many.
pub(crate) fn partitioned(count: i64) -> impl Fn(&mut toml::Table) {
    move |file| {
        partition(file, "delays", count);
        limit_epochs(file, 32);
    }
}

/// Cuts a transform into partitions.
pub(crate) fn partition(file: &mut toml::Table, transform: &str, count: i64) {
    let transform = file["computations"][transform].as_table_mut();
    let transform = transform.expect("a computation is a table");
    transform.insert("partitions".to_owned(), count.into());
}

/// The rows of a sink by their key, in the order of the file.
pub(crate) fn rows_by_key(folder: &TestHost, name: &str) -> BTreeMap<String, Vec<String>> {
    let text = String::from_utf8(folder.read(&format!("out/{name}.jsonl"))).expect("rows are text");
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in text.lines() {
        let document: serde_json::Value = serde_json::from_str(row).expect("a row is JSON");
        let key = document["key"].as_str().expect("a row names its key");
        rows.entry(key.to_owned()).or_default().push(row.to_owned());
    }
    rows
}

pub(crate) fn run(folder: &TestHost) {
    let finished = folder.run(["run", "."]);
    assert!(finished.status.success(), "{:?}", finished.stderr);
}

#[test]
fn four_partitions_give_each_key_the_rows_of_one() {
    let one = pipeline(3_000, partitioned(1));
    run(&one);
    let four = pipeline(3_000, partitioned(4));
    run(&four);
    for name in ["statistics", "alerts"] {
        assert_eq!(rows_by_key(&four, name), rows_by_key(&one, name), "{name}");
    }
}

#[test]
fn f1_kills_of_four_partitions_lose_and_repeat_nothing() {
    let undisturbed = pipeline(3_000, partitioned(1));
    run(&undisturbed);
    let killed = pipeline(3_000, partitioned(4));
    let mut hits = 0;
    for epochs in [1, 3, 7, 12, 20, 5, 9] {
        let mut running = killed.start(["--log", "debug", "run", "."]);
        running.wait_for_lines("epoch committed", epochs);
        hits += usize::from(!running.kill().status.success());
    }
    assert!(hits >= 5, "only {hits} kills came before the end");
    run(&killed);
    for name in ["statistics", "alerts"] {
        assert_eq!(
            rows_by_key(&killed, name),
            rows_by_key(&undisturbed, name),
            "{name}"
        );
    }
}

#[test]
fn another_number_of_partitions_needs_a_word_and_changes_nothing_before() {
    let folder = pipeline(1_000, partitioned(2));
    run(&folder);
    let undisturbed = pipeline(2_000, partitioned(1));
    run(&undisturbed);

    write_pipeline(&folder, partitioned(3));
    write_lines(&folder, 2_000);
    let before = folder.read("out/statistics.jsonl");
    let refused = folder.run(["run", "."]);
    let said = refused.stderr.join("\n");
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(
        said.contains("partitions of computation delays: was 2, now 3"),
        "{said}"
    );
    assert_eq!(folder.read("out/statistics.jsonl"), before);

    let accepted = folder.run(["run", ".", "--accept-change"]);
    let said = accepted.stderr.join("\n");
    assert!(accepted.status.success(), "{said}");
    assert!(
        said.contains("states and 0 waiting messages moved from 2 to 3 partitions"),
        "{said}"
    );
    for name in ["statistics", "alerts"] {
        assert_eq!(rows_by_key(&folder, name), rows_by_key(&undisturbed, name));
    }
    // It is what ran last now.
    run(&folder);
}
