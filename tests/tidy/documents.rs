//! Documents speak of what exists.

use std::collections::BTreeSet;

use crate::check;
use crate::files::{File, numbered};
use crate::rust::first_word;

/// What a row of docs/guarantees.md may say of itself.
const STATUSES: [&str; 3] = ["done", "begun", "open"];

fn guarantees_without_their_test(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    let functions = functions(files);
    let Some(table) = files.iter().find(|file| file.path == "docs/guarantees.md") else {
        return vec!["docs/guarantees.md is missing".to_owned()];
    };
    for (line, row) in numbered(&table.text) {
        // | id | promise | status | test | manual |
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, id, _, status, test, _, _] = cells[..] else {
            continue;
        };
        if id == "id" || id.starts_with("--") {
            continue;
        }
        if !STATUSES.contains(&status) {
            found.push(table.at(line, &format!("{id} has the unknown status `{status}`")));
        }
        let prefix = format!("{}_", id.to_lowercase());
        if status == "done" && !functions.iter().any(|name| name.starts_with(&prefix)) {
            found.push(table.at(
                line,
                &format!("{id} is done, but no test is named {prefix}..."),
            ));
        }
        for name in test.split(',').map(|name| name.trim().trim_matches('`')) {
            if !name.is_empty() && !functions.contains(name) {
                found.push(table.at(
                    line,
                    &format!("{id} names the test `{name}`, which does not exist"),
                ));
            }
        }
    }
    found
}

/// The names of all functions that the project's Rust files define.
fn functions(files: &[File]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (_, code) in file.code() {
            if let Some((_, rest)) = code.split_once("fn ") {
                names.insert(first_word(rest));
            }
        }
    }
    names
}

#[test]
fn every_guarantee_that_is_done_has_a_test_of_its_name() {
    let table = |row: &str| File::new("docs/guarantees.md", row);
    let offender = [
        table("| L3 | a commit names its lease | done | | |"),
        File::new("tests/a.rs", "fn l30_is_another() {}"),
    ];
    check(
        guarantees_without_their_test,
        &offender,
        "docs/guarantees.md:1: L3 is done",
    );

    let finds = |row: &str| {
        let test = File::new(
            "tests/a.rs",
            "#[test]\nfn l3_commit_without_lease_writes_nothing() {}",
        );
        guarantees_without_their_test(&[table(row), test]).len()
    };
    assert_eq!(
        finds("| L3 | x | done | `l3_commit_without_lease_writes_nothing` | |"),
        0
    );
    assert_eq!(finds("| L3 | x | begun | `l3_renamed` | |"), 1);
    assert_eq!(finds("| L4 | x | open | | |"), 0);
    assert_eq!(finds("| L4 | x | surely | | |"), 1);
}

/// The heading of the part of ARCHITECTURE.md that lists files.
const CODE_MAP: &str = "## Code map";

fn code_map_entries_that_do_not_exist(files: &[File]) -> Vec<String> {
    let Some(document) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md is missing".to_owned()];
    };
    let exists = |entry: &str| {
        files.iter().any(|file| match entry.strip_suffix('/') {
            Some(_) => file.path.starts_with(entry),
            None => file.path == entry,
        })
    };
    let mut found = Vec::new();
    let lines = numbered(&document.text).into_iter();
    let map = lines
        .skip_while(|(_, line)| line != CODE_MAP)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "));
    let mut entries = 0;
    for (line, text) in map {
        // Entries are the odd pieces between backticks that look like paths.
        for entry in text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|entry| entry.contains('/'))
        {
            entries += 1;
            if !exists(entry) {
                found.push(document.at(line, &format!("`{entry}` does not exist")));
            }
        }
    }
    if entries == 0 {
        found.push(document.at(1, &format!("has no entries under `{CODE_MAP}`")));
    }
    found
}

#[test]
fn the_code_map_names_only_what_exists() {
    let map = "# A\n## Code map\n`host/src/main.rs` and `host/src/gone.rs`; `host/src/`, `host/lost/`.\n## Next\n`a/b.rs`\n";
    let files = [
        File::new("ARCHITECTURE.md", map),
        File::new("host/src/main.rs", ""),
    ];
    check(
        code_map_entries_that_do_not_exist,
        &files,
        "ARCHITECTURE.md:3: `host/src/gone.rs`",
    );
    assert_eq!(code_map_entries_that_do_not_exist(&files).len(), 2);
    let empty = [File::new("ARCHITECTURE.md", "## Code map\n")];
    assert_eq!(code_map_entries_that_do_not_exist(&empty).len(), 1);
}
