//! docs/operating.md, word for word: its commands are run as they stand there.

use std::process::Command;

use harness::{Finished, Running, TestHost, tidelock, workspace};

use crate::flights::{flights, run_ok, week};

/// The shell commands of a page of docs/, in their order.
///
/// # Panics
///
/// If the page has no command with each of these texts.
pub(crate) fn commands_of_page(page: &str, with: &[&str]) -> Vec<String> {
    let document = std::fs::read_to_string(workspace().join("docs").join(page));
    let document = document.expect("the page is there");
    let blocks = document.split("```sh\n").skip(1);
    let block = |text: &str| -> Vec<String> {
        let (commands, _) = text.split_once("```").expect("a block ends");
        commands.lines().map(str::to_owned).collect()
    };
    let commands: Vec<String> = blocks.flat_map(block).collect();
    for named in with {
        let is_there = commands.iter().any(|command| command.contains(named));
        assert!(is_there, "{named} is not on {page}");
    }
    commands
}

/// Runs a command of a page in this folder, as a shell with the program in its path does.
///
/// # Panics
///
/// If the command fails.
pub(crate) fn run_as_written(folder: &TestHost, line: &str) -> Finished {
    let program = tidelock();
    let programs = program.parent().expect("a program lies in a folder");
    let path = std::env::var("PATH").expect("there is a PATH");
    let mut shell = Command::new("sh");
    shell
        .args(["-e", "-c", line])
        .current_dir(folder.folder())
        .env("PATH", format!("{}:{path}", programs.display()));
    let finished = Running::start(&mut shell).wait();
    assert!(finished.status.success(), "{line}: {finished:?}");
    finished
}

#[test]
fn the_commands_of_the_operating_manual_run_as_they_are_written() {
    let named = [
        "store backup",
        "store restore",
        "store check",
        "store compact",
        "store size",
        "state list",
        "state get",
        "state scan",
        "state export",
    ];
    let commands = commands_of_page("operating.md", &named);
    let folder = flights(&week());
    run_ok(&folder, &[]);
    let expected = folder.read("out/statistics.jsonl");
    for line in &commands {
        let finished = run_as_written(&folder, line);
        if line.starts_with("tidelock state get") {
            assert!(!finished.stdout.is_empty(), "{line} shows a value");
        }
    }
    assert!(folder.read("out/statistics.jsonl") == expected);
    let exported = folder.read("totals.jsonl");
    assert_eq!(exported.iter().filter(|byte| **byte == b'\n').count(), 32);
}
