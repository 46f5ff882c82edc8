//! What each file must hold and must not.

use crate::check;
use crate::files::{File, numbered};
use crate::rust::{blanked, has_word};

fn files_that_do_not_open_with_a_story(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.is_rust() && !file.text.starts_with("//! "))
        .map(|file| file.at(1, "opens without a `//!` line that says what the file is"))
        .collect()
}

#[test]
fn every_rust_file_opens_by_saying_what_it_is() {
    check(
        files_that_do_not_open_with_a_story,
        &[File::new("host/src/sink/mod.rs", "use std::fs;\n")],
        "host/src/sink/mod.rs:1",
    );
}

fn unfinished_places(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (line, code) in file.code() {
            if has_word(&code, "todo!") || has_word(&code, "unimplemented!") {
                found.push(file.at(line, "is not written yet"));
            }
        }
        for (line, text) in numbered(&blanked(&file.text, true)) {
            let numbered = text.contains("TODO(#");
            if (has_word(&text, "TODO") && !numbered) || has_word(&text, "FIXME") {
                found.push(file.at(line, "a TODO without the number of an issue"));
            }
        }
    }
    found
}

#[test]
fn nothing_is_left_to_do_without_a_number() {
    let check_text = |text: &str| {
        check(
            unfinished_places,
            &[File::new("host/src/sink/mod.rs", text)],
            "host/src/sink/mod.rs:1",
        );
    };
    check_text("fn f() { todo!() }");
    check_text("// TODO: later");
    let numbered = File::new("host/src/sink/mod.rs", "// TODO(#12): later");
    assert!(unfinished_places(&[numbered]).is_empty());
}

fn sleeping_tests(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        // A guest that sleeps is what the sandbox is tested with.
        if file.path.starts_with("tests/guests/") {
            continue;
        }
        for (line, code) in file.code().into_iter().skip(file.product_code().len()) {
            if has_word(&code, "sleep") {
                found.push(file.at(line, "a test waits for a condition, never for time to pass"));
            }
        }
    }
    found
}

#[test]
fn tests_do_not_sleep() {
    check(
        sleeping_tests,
        &[File::new(
            "tests/integration/kill.rs",
            "fn f() { std::thread::sleep(SECOND) }",
        )],
        "tests/integration/kill.rs:1",
    );
    let unit_test = "fn f() {}\n#[cfg(test)]\nmod tests {\n  fn t() { sleep(1) }\n}";
    assert_eq!(
        sleeping_tests(&[File::new("host/src/a.rs", unit_test)]).len(),
        1
    );
    assert!(sleeping_tests(&[File::new("host/src/a.rs", "fn back_off() { sleep(1) }")]).is_empty());
}

fn copies_of_the_contract(files: &[File]) -> Vec<String> {
    const CONTRACT: &str = "wit/computation.wit";
    let mut found = Vec::new();
    if !files.iter().any(|file| file.path == CONTRACT) {
        found.push(format!("{CONTRACT} is missing"));
    }
    for file in files.iter().filter(|file| file.path != CONTRACT) {
        let defines = |line: &str| {
            line.trim_start()
                .starts_with("package tidelock:computation")
        };
        for (line, text) in numbered(&file.text) {
            if defines(&text) {
                found.push(file.at(line, "copies the contract instead of reading it by path"));
            }
        }
    }
    found
}

#[test]
fn the_contract_exists_once() {
    let contract = File::new(
        "wit/computation.wit",
        "package tidelock:computation@0.1.0;\n",
    );
    let copy = File::new(
        "guest-sdk/go/world.wit",
        "\npackage tidelock:computation@0.1.0;\n",
    );
    check(
        copies_of_the_contract,
        &[contract, copy],
        "guest-sdk/go/world.wit:2",
    );
    assert_eq!(
        copies_of_the_contract(&[]),
        ["wit/computation.wit is missing"]
    );
}
