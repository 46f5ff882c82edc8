//! docs/operating.md, word for word: its commands are run as they stand there.

use std::process::Command;

use harness::{Running, tidelock, workspace};

use crate::flights::{flights, run_ok, week};

/// The shell commands of a document, in their order.
fn commands(document: &str) -> Vec<String> {
    let blocks = document.split("```sh\n").skip(1);
    let block = |text: &str| -> Vec<String> {
        let (commands, _) = text.split_once("```").expect("a block ends");
        commands.lines().map(str::to_owned).collect()
    };
    blocks.flat_map(block).collect()
}

#[test]
fn the_commands_of_the_operating_manual_run_as_they_are_written() {
    let document = std::fs::read_to_string(workspace().join("docs/operating.md"));
    let commands = commands(&document.expect("the manual is there"));
    for named in [
        "store backup",
        "store restore",
        "store check",
        "store compact",
        "store size",
        "state list",
        "state get",
        "state scan",
        "state export",
    ] {
        let is_there = commands.iter().any(|command| command.contains(named));
        assert!(is_there, "{named} is not in the manual");
    }
    let folder = flights(&week());
    run_ok(&folder, &[]);
    let expected = folder.read("out/statistics.jsonl");
    let program = tidelock();
    let programs = program.parent().expect("a program lies in a folder");
    let path = std::env::var("PATH").expect("there is a PATH");
    for line in &commands {
        let mut shell = Command::new("sh");
        shell
            .args(["-e", "-c", line])
            .current_dir(folder.folder())
            .env("PATH", format!("{}:{path}", programs.display()));
        let finished = Running::start(&mut shell).wait();
        assert!(finished.status.success(), "{line}: {finished:?}");
        if line.starts_with("tidelock state get") {
            assert!(!finished.stdout.is_empty(), "{line} shows a value");
        }
    }
    assert!(folder.read("out/statistics.jsonl") == expected);
    let exported = folder.read("totals.jsonl");
    assert_eq!(exported.iter().filter(|byte| **byte == b'\n').count(), 32);
}
