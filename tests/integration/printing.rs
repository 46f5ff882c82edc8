//! Standard output that nobody reads any more, or that takes no more.

use std::fs::OpenOptions;
use std::process::Output;

use harness::TestHost;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A data directory with a queue and the file of a sink.
fn with_a_store() -> TestHost {
    let folder = TestHost::new();
    let tables = "[sources.in]\ntype = \"generator\"\ncount = 10\n\
                  [sinks.out]\ntype = \"file\"\npath = \"out.jsonl\"\ninputs = [\"in\"]\n";
    folder.write("tidelock.toml", format!("name = \"printing\"\n{tables}"));
    folder.run(["run", "."]).expect_code(0);
    folder.run(["queue", "create", "waiting"]).expect_code(0);
    folder
}

const COMMANDS: [&[&str]; 10] = [
    &["store", "size"],
    &["store", "compact"],
    &["store", "check"],
    &["-o", "json", "store", "check"],
    &["queue", "list"],
    &["-o", "json", "queue", "list"],
    &["state", "list"],
    &["check", "."],
    &["-o", "json", "check", "."],
    &["graph", "."],
];

fn with_closed_stdout(folder: &TestHost, arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let mut command = folder.command();
    let command = command.args(arguments).stdout(writer);
    command.output().expect("the program starts")
}

#[test]
fn a_reader_that_has_gone_changes_no_exit_code() {
    let folder = with_a_store();
    for arguments in COMMANDS {
        let ended = with_closed_stdout(&folder, arguments);
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {ended:?}");
        assert!(!text(&ended.stderr).contains("panicked"), "{ended:?}");
    }
    let backup = with_closed_stdout(&folder, &["store", "backup", "saved"]);
    assert_eq!(backup.status.code(), Some(0), "{backup:?}");
    // What is wrong stays wrong, whoever looks.
    std::fs::remove_file(folder.path("out.jsonl")).expect("the sink wrote it");
    for arguments in [
        &["store", "check"][..],
        &["-o", "json", "store", "check"],
        &["check", "."],
        &["-o", "json", "check", "."],
    ] {
        let ended = with_closed_stdout(&folder, arguments);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_full_stdout_is_a_failure_that_is_told() {
    let folder = with_a_store();
    for arguments in COMMANDS {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let mut command = folder.command();
        let command = command.args(arguments).stdout(full.expect("Linux has it"));
        let ended = command.output().expect("the program starts");
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {ended:?}");
        let told = text(&ended.stderr).contains("error: failed to write to standard output: ");
        assert!(told, "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_store_that_panics_while_it_is_opened_is_an_error_without_the_text_of_the_panic() {
    let folder = with_a_store();
    std::fs::remove_file(folder.path(".tidelock/decisions/db")).expect("the catalog is there");
    let refused = folder.run(["store", "check"]).expect_code(1);
    let told = refused.stderr_text();
    assert!(told.contains("it panicked: "), "{told}");
    assert!(!told.contains("thread 'main'"), "{told}");
}

#[test]
fn a_backup_into_the_data_directory_is_refused() {
    let folder = with_a_store();
    for inside in [".tidelock/saved", ".tidelock/bulk/../saved"] {
        let refused = folder.run(["store", "backup", inside]).expect_code(1);
        let told = refused.stderr_text();
        assert!(told.contains("lies in the data directory"), "{told}");
    }
    assert!(!folder.path(".tidelock/saved").exists());
}
