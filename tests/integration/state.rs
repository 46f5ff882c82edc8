//! States as `tidelock state` shows them, and memory for them that changes no result.

use std::collections::BTreeMap;

use harness::{Finished, TestHost};
use serde_json::Value;

use crate::alarms::{alarms, run as run_alarms};
use crate::example::{add, line_count, pipeline, remove_computation, write_pipeline};
use crate::keyed_sum;
use crate::partitions::partition;

/// Users of the keyed-sum example; each has one event for each of its number's digits.
const USERS: usize = 3_000;

/// The keyed-sum pipeline with its transform in four partitions, as `more` in TOML changes it.
fn sums(more: &str) -> TestHost {
    let folder = TestHost::new();
    let event = |user: usize| format!("{{\"user\":\"user-{user:04}\",\"amount\":{user}}}\n");
    let events: String = (0..3).flat_map(|_| (0..USERS).map(event)).collect();
    folder.write("events.jsonl", events);
    keyed_sum::write_pipeline(&folder, |file| {
        partition(file, "sum", 4);
        add(file, more);
    });
    folder
}

fn state(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["state"].iter().chain(arguments))
}

fn json(finished: &Finished) -> Value {
    serde_json::from_slice(&finished.stdout).expect("a JSON document")
}

/// The lines of an export, each a document.
fn lines(finished: &Finished) -> Vec<Value> {
    let text = finished.stdout_text();
    let line = |line| serde_json::from_str(line).expect("each line is JSON");
    text.lines().map(line).collect()
}

#[test]
fn every_key_of_every_partition_is_shown_once_in_order() {
    let folder = sums("");
    folder.run(["run", "."]).expect_code(0);
    let listed = state(&folder, &["list", "--count", "-o", "json"]).expect_code(0);
    let computations = json(&listed)["pipelines"][0]["computations"].clone();
    let sum = (computations.as_array().expect("a list").iter())
        .find(|computation| computation["computation"] == "sum")
        .expect("it is listed");
    assert_eq!(sum["partitions"].as_array().map(Vec::len), Some(4));
    assert_eq!(sum["states"][0]["state"], "totals");
    assert_eq!(sum["states"][0]["format"], "postcard");
    assert_eq!(sum["states"][0]["keys"], USERS);
    let text = state(&folder, &["list"]).expect_code(0).stdout_text();
    assert!(text.contains("keyed-sum  sum"), "{text}");

    let totals = ["keyed-sum", "sum", "totals"];
    let exported = lines(&state(&folder, &[&["export"], &totals[..]].concat()).expect_code(0));
    let keys: Vec<&str> = (exported.iter())
        .map(|line| line["key"].as_str().expect("keys are text"))
        .collect();
    let expected: Vec<String> = (0..USERS).map(|user| format!("user-{user:04}")).collect();
    assert_eq!(keys, expected);
    let mut by_partition: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &exported {
        *by_partition
            .entry(line["partition"].as_str().expect("a text"))
            .or_default() += 1;
    }
    assert!(by_partition.len() == 4 && by_partition.values().all(|keys| *keys > USERS / 6));

    // The same into a file, which takes nobody's place.
    let into_file = [&["export"], &totals[..], &["--to", "totals.jsonl"]].concat();
    state(&folder, &into_file).expect_code(0);
    assert_eq!(line_count(&folder, "totals.jsonl"), USERS);
    state(&folder, &into_file).expect_code(1);

    let get = |more: &[&str]| {
        state(
            &folder,
            &[&["-o", "json", "get"], &totals[..], more].concat(),
        )
    };
    // Three events of user 7: a count of 3 and a sum of 21, which the codec writes as 42.
    let found = get(&["user-0007"]).expect_code(0);
    assert_eq!(json(&found), exported[7]);
    assert_eq!(exported[7]["value"], "\u{3}*");
    let hex = get(&["757365722d30303037", "--key-format", "hex"]).expect_code(0);
    assert_eq!(hex.stdout, found.stdout);
    let missing = get(&["nobody"]).expect_code(1);
    assert!(missing.stderr_text().contains("key nobody has no value"));

    let scan = |more: &[&str]| {
        let all = [&["-o", "json", "scan"], &totals[..], more].concat();
        json(&state(&folder, &all).expect_code(0))
    };
    let found = scan(&[
        "--prefix",
        "user-001",
        "--from",
        "user-0013",
        "--limit",
        "4",
    ]);
    assert_eq!(found["more"], true);
    assert_eq!(
        found["rows"].as_array().map(Vec::as_slice),
        Some(&exported[13..17])
    );
    let found = scan(&["--prefix", "user-299"]);
    assert_eq!(found["more"], false);
    assert_eq!(
        found["rows"].as_array().map(Vec::as_slice),
        Some(&exported[2_990..])
    );
}

#[test]
fn what_there_is_not_is_named_with_what_there_is() {
    let folder = sums("");
    let none = state(&folder, &["list"]).expect_code(1);
    assert!(
        none.stderr_text().contains("there is no store in"),
        "{none:?}"
    );
    folder.run(["run", "."]).expect_code(0);
    for (name, part) in [
        (["other", "sum", "totals"], "it has keyed-sum"),
        (["keyed-sum", "other", "totals"], "it has parse, sum"),
        (["keyed-sum", "sum", "other"], "it has totals"),
        (["keyed-sum", "parse", "totals"], "is a map"),
    ] {
        let refused = state(&folder, &[&["scan"], &name[..]].concat()).expect_code(1);
        assert!(refused.stderr_text().contains(part), "{refused:?}");
    }
    let bad = [
        "get",
        "keyed-sum",
        "sum",
        "totals",
        "xyz",
        "--key-format",
        "hex",
    ];
    let refused = state(&folder, &bad).expect_code(1);
    assert!(
        refused.stderr_text().contains("no key in hexadecimal"),
        "{refused:?}"
    );
}

#[test]
fn states_of_a_removed_computation_are_shown_as_such() {
    let folder = pipeline(500, |_| {});
    folder.run(["run", "."]).expect_code(0);
    let of_delays = ["export", "flights", "delays", "totals"];
    let before = state(&folder, &of_delays).expect_code(0);
    write_pipeline(&folder, |file| remove_computation(file, "delays"));
    folder.run(["run", ".", "--accept-change"]).expect_code(0);
    let text = state(&folder, &["list"]).expect_code(0).stdout_text();
    assert!(text.contains("delays (removed)"), "{text}");
    let after = state(&folder, &of_delays).expect_code(0);
    assert!(!before.stdout.is_empty() && after.stdout == before.stdout);
}

#[test]
fn a_value_that_is_too_old_is_left_out_unless_it_is_asked_for() {
    let ttl = "[computations.alarms]\nstates = { items = { ttl = \"1s\" } }\n";
    // Behind `b` the watermark is 2 s behind the only item of `a`. The rows that wait to be removed are still
    // there, as nothing else happens.
    let folder = alarms(&["a 1000 say", "b 3000 say"], ttl);
    run_alarms(&folder);
    let items = ["alarms", "alarms", "items"];
    let shown = |more: &[&str]| {
        let all = [&["export"], &items[..], more].concat();
        lines(&state(&folder, &all).expect_code(0))
    };
    let (seen, all) = (shown(&[]), shown(&["--absent"]));
    let keys = |lines: &[Value]| -> Vec<String> {
        let key = |line: &Value| line["key"].as_str().map(str::to_owned);
        lines.iter().filter_map(key).collect()
    };
    assert_eq!(keys(&seen), ["b"]);
    assert_eq!(seen[0]["touched"], "1970-01-01T00:00:03.000Z");
    if keys(&all).len() == 2 {
        assert_eq!(
            (&all[0]["key"], &all[0]["absent"]),
            (&"a".into(), &true.into())
        );
        let get = [&["get"], &items[..], &["a"]].concat();
        let said = state(&folder, &get).expect_code(1).stderr_text();
        assert!(said.contains("1970-01-01T00:00:01.000Z"), "{said}");
        state(&folder, &[&get[..], &["--absent"]].concat()).expect_code(0);
    }
}

#[test]
fn a_cache_too_small_for_the_keys_gives_the_same_bytes_as_a_large_one() {
    let small_epochs = "[epoch]\nmax_rows_per_epoch = 500\nmax_rows_per_batch = 100\n";
    let outcome = |cache: &str| {
        let limits = format!("{small_epochs}[limits]\nstate_cache = \"{cache}\"\n");
        let folder = sums(&limits);
        let finished = folder.run(["run", ".", "-o", "json"]).expect_code(0);
        let export = ["export", "keyed-sum", "sum", "totals"];
        let states = state(&folder, &export).expect_code(0).stdout;
        (json(&finished), folder.read("sums.jsonl"), states)
    };
    let (small, large) = (outcome("2KiB"), outcome("64MiB"));
    let by_key = |rows: &[u8]| {
        let text = String::from_utf8_lossy(rows).into_owned();
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        // Partitions share the file; each key's rows keep their order.
        rows.sort_by_key(|row| {
            let document: Value = serde_json::from_str(row).expect("a row is JSON");
            document["user"]
                .as_str()
                .expect("a row has a user")
                .to_owned()
        });
        rows
    };
    assert!(by_key(&small.1) == by_key(&large.1), "rows differ");
    assert!(small.2 == large.2, "states differ");
    let misses = |document: &Value| document["state_cache_misses"].as_u64().expect("a number");
    // Each key is read once from the store by a large cache, and each time that it comes by a small one.
    assert_eq!(misses(&large.0), USERS as u64);
    assert!(misses(&small.0) > 2 * USERS as u64, "{}", misses(&small.0));
    assert!(small.0["store_bytes"].as_u64() > Some(0));
}
