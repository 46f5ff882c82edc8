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

/// The documents whose paths are checked. CHANGELOG.md is not among them: it speaks of what was.
const DOCUMENTS: [&str; 8] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/benchmarks.md",
    "docs/format.md",
    "docs/guarantees.md",
    "docs/pipeline.md",
    "docs/queues.md",
];

/// Paths between backticks that begin with a folder of the project and lead nowhere.
fn paths_that_lead_nowhere(files: &[File]) -> Vec<String> {
    let folders: BTreeSet<_> = files
        .iter()
        .filter_map(|file| file.path.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    let exists = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches('/'));
        files
            .iter()
            .any(|file| file.path == path || file.path.starts_with(&folder))
    };
    let mut found = Vec::new();
    for name in DOCUMENTS {
        let Some(document) = files.iter().find(|file| file.path == name) else {
            found.push(format!("{name} is missing"));
            continue;
        };
        for (line, text) in numbered(&document.text) {
            // What stands between backticks is every second piece.
            for path in text.split('`').skip(1).step_by(2) {
                let in_folder = path
                    .split_once('/')
                    .is_some_and(|(folder, _)| folders.contains(folder));
                if in_folder && !exists(path) {
                    found.push(document.at(line, &format!("`{path}` does not exist")));
                }
            }
        }
    }
    found
}

#[test]
fn documents_name_only_files_that_exist() {
    let finds = |text: &str| {
        let mut files = vec![File::new("host/src/main.rs", "")];
        files.extend(DOCUMENTS.map(|name| File::new(name, "")));
        files[1] = File::new("ARCHITECTURE.md", text);
        paths_that_lead_nowhere(&files).len()
    };
    assert_eq!(
        finds("`host/src/main.rs`, `host/`, `host/src`, `a:b/c`, `target/x`"),
        0
    );
    assert_eq!(finds("`host/src/main.rs` or `host/sr`; `host/lost/`"), 2);
    check(
        paths_that_lead_nowhere,
        &[
            File::new("README.md", "\n`host/src/gone.rs`\n"),
            File::new("host/src/main.rs", ""),
        ],
        "README.md:2: `host/src/gone.rs`",
    );
    assert_eq!(paths_that_lead_nowhere(&[]).len(), DOCUMENTS.len());
}
