//! Backups of stores, also of a running one, what comes out of them, and what becomes of damaged stores.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use harness::{Finished, Running, TestHost};
use serde_json::Value;
use tidelock::controller::inventory::Inventory;
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::scan::ScanLimit;
use tidelock::storage::{CommitOutcome, Storage as _, StoredRow, leases};
use tidelock::types::epoch::{EpochCommit, StateChanges};

use crate::flights::{first_lines, flights, run, run_ok, week};
use crate::keyed_sum;
use crate::partitions::partition;

fn json(finished: &Finished) -> Value {
    serde_json::from_slice(&finished.stdout).expect("a JSON document")
}

fn store(folder: &TestHost, arguments: &[&str]) -> Finished {
    folder.run(["-o", "json", "store"].iter().chain(arguments))
}

/// The flights pipeline whose statistics go to standard output.
fn with_rows_on_stdout(lines: &[u8]) -> TestHost {
    let folder = flights(lines);
    let file = String::from_utf8(folder.read("tidelock.toml")).expect("the file is text");
    let sink = "type = \"file\"\npath = \"out/statistics.jsonl\"";
    let file = file.replace(sink, "type = \"stdout\"");
    folder.write(
        "tidelock.toml",
        file + "\n[epoch]\nmax_rows_per_epoch = 100\n",
    );
    folder
}

/// A run that stands still in its middle, as nobody takes its rows from the pipe, until it is waited for.
fn run_that_stands_still(folder: &TestHost) -> Running {
    let mut command = folder.command();
    command.args(["--log", "debug", "run", "tidelock.toml"]);
    let mut running = Running::start_with_stdout_unread(&mut command);
    assert_eq!(running.wait_for_lines("epoch committed", 20), 20);
    running
}

#[test]
fn a_backup_of_a_running_store_goes_on_as_if_nothing_had_happened() {
    let expected = flights(&week());
    run_ok(&expected, &[]);

    let folder = with_rows_on_stdout(&week());
    let running = run_that_stands_still(&folder);
    let socket = folder.path(".tidelock/control.sock");
    let mode = fs::metadata(&socket)
        .expect("the run listens")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let size = json(&store(&folder, &["size"]).expect_code(0));
    assert!(size["store_bytes"].as_u64() > Some(0), "{size}");
    let taken = json(&store(&folder, &["backup", "backup"]).expect_code(0));
    assert_eq!(taken["store_id"].as_str().map(str::len), Some(32));
    assert!(
        taken["taken_at"].as_u64() > Some(1_600_000_000_000),
        "{taken}"
    );
    // What can't be done while a run has the store says so.
    for command in ["check", "compact"] {
        let refused = store(&folder, &[command]).expect_code(5);
        assert!(refused.stderr_text().contains("is in use by process"));
    }
    let refused = store(&folder, &["backup", "backup"]).expect_code(1);
    assert!(refused.stderr_text().contains("takes nobody's place"));
    let finished = running.wait().expect_code(0);
    assert!(finished.stdout.len() > 64 << 10, "a pipe holds that much");
    assert!(!socket.exists(), "it goes with the run");

    // The backup is of the middle: the run wrote on behind it.
    let again = TestHost::new();
    again.write("tidelock.toml", folder.read("tidelock.toml"));
    again.write("flights.csv", week());
    for name in ["alerts", "others"] {
        let name = format!("out/{name}.jsonl");
        again.write(&name, folder.read(&name));
    }
    let backup = folder.path("backup").display().to_string();
    let told = folder.path("told").display().to_string();
    let told = json(&store(&again, &["restore", &backup, "--data", &told]).expect_code(0));
    assert_eq!(told["catalog_rows"], taken["catalog_rows"]);
    let restored = store(&again, &["restore", &backup, "--cut-sinks"]).expect_code(0);
    let cut: u64 = (json(&restored)["sink_files"]
        .as_array()
        .expect("a list")
        .iter())
    .map(|file| file["cut_bytes"].as_u64().expect("a number"))
    .sum();
    assert!(cut > 0, "{}", restored.stdout_text());
    store(&again, &["check"]).expect_code(0);
    let finished = run(&again, &[]).expect_code(0);
    assert!(
        finished.stdout.len() > 64 << 10,
        "rows of the pipe's size were behind the backup"
    );
    for name in ["alerts", "others"] {
        let name = format!("out/{name}.jsonl");
        assert!(again.read(&name) == expected.read(&name), "{name} differs");
    }
}

#[test]
fn files_that_went_on_since_the_backup_are_told_and_stop_the_next_run() {
    let folder = flights(&first_lines(1_000));
    run_ok(&folder, &[]);
    store(&folder, &["backup", "backup"]).expect_code(0);
    folder.write("flights.csv", week());
    run_ok(&folder, &[]);
    let whole = folder.read("out/statistics.jsonl");

    fs::rename(folder.path(".tidelock"), folder.path("broken")).expect("it can be moved");
    let restored = store(&folder, &["restore", "backup"]).expect_code(0);
    let said = restored.stderr_text();
    assert!(said.contains("cut it back with truncate -s"), "{said}");
    let refused = run(&folder, &[]).expect_code(1);
    assert!(refused.stderr_text().contains("truncate -s"), "{refused:?}");
    let found = store(&folder, &["check"]).expect_code(1);
    assert!(found.stdout_text().contains("truncate -s"), "{found:?}");
    // A file that was lost is told too.
    fs::remove_file(folder.path("out/alerts.jsonl")).expect("it is there");
    let found = store(&folder, &["check"]).expect_code(1);
    assert!(found.stdout_text().contains("is not there"), "{found:?}");

    // In a new folder without any files.
    let other = TestHost::new();
    let backup = folder.path("backup").display().to_string();
    let restored = store(&other, &["restore", &backup]).expect_code(0);
    let files = json(&restored)["sink_files"].clone();
    assert_eq!(files.as_array().map(Vec::len), Some(3));
    assert!(whole.len() > 1_000);
}

#[test]
fn what_is_no_store_no_backup_or_no_empty_folder_is_refused_by_name() {
    let folder = flights(&first_lines(50));
    for command in [&["check"][..], &["size"], &["compact"], &["backup", "b"]] {
        let refused = store(&folder, command).expect_code(1);
        assert!(
            refused.stderr_text().contains("there is no store in"),
            "{refused:?}"
        );
    }
    assert!(!folder.path(".tidelock").exists(), "asking makes nothing");
    run_ok(&folder, &[]);
    let refused = store(&folder, &["restore", "flights.csv", "--data", "new"]).expect_code(1);
    assert!(
        refused.stderr_text().contains("is no backup"),
        "{refused:?}"
    );
    assert!(
        !folder.path("new").exists(),
        "what is no backup makes nothing"
    );
    store(&folder, &["backup", "backup"]).expect_code(0);
    let refused = store(&folder, &["restore", "backup"]).expect_code(1);
    assert!(
        refused.stderr_text().contains("is not empty"),
        "{refused:?}"
    );
    let mut bytes = folder.read("backup");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    folder.write("spoilt", bytes);
    let refused = store(&folder, &["restore", "spoilt", "--data", "new"]).expect_code(1);
    assert!(
        refused.stderr_text().contains("is damaged at byte"),
        "{refused:?}"
    );
    assert!(!EmbeddedStorage::exists_in(&folder.path("new")));
    // A restoring that was killed: nothing opens it.
    folder.write("new/restore.unfinished", "");
    let data = folder.path("new").display().to_string();
    let refused = run(&folder, &["--data", &data]).expect_code(1);
    assert!(
        refused.stderr_text().contains("restoring was interrupted"),
        "{refused:?}"
    );
    store(&folder, &["restore", "backup", "--data", "new"]).expect_code(0);
}

#[test]
fn the_socket_of_a_killed_run_is_replaced_and_a_path_too_long_for_one_is_told() {
    let folder = with_rows_on_stdout(&week());
    let killed = run_that_stands_still(&folder).kill();
    assert!(killed.was_killed());
    assert!(folder.path(".tidelock/control.sock").exists());
    // Nobody has it now.
    store(&folder, &["backup", "first"]).expect_code(0);
    let running = run_that_stands_still(&folder);
    store(&folder, &["backup", "second"]).expect_code(0);
    let _ = running.wait().expect_code(0);

    let long = "d".repeat(100);
    let folder = flights(&first_lines(50));
    let finished = run(&folder, &["--data", &long]).expect_code(0);
    assert!(
        finished.stderr_text().contains("a backup has to wait"),
        "{finished:?}"
    );
}

// ------------------------------------------------------------------------------------- damage

/// All rows of a store.
fn rows_of(data: &Path) -> (Vec<StoredRow>, Vec<StoredRow>) {
    let storage = EmbeddedStorage::open(data, EmbeddedOptions::default()).expect("it opens");
    let snapshot = storage.snapshot().expect("it is whole");
    let bulk = snapshot.scan(b"", ScanLimit::rows(usize::MAX));
    (snapshot.catalog().to_vec(), bulk.expect("it is whole"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for file in fs::read_dir(from).expect("the folder is there") {
        let file = file.expect("the folder can be read");
        let target = to.join(file.file_name());
        match file.file_type().expect("it is there").is_dir() {
            true => copy(&file.path(), &target),
            false => drop(fs::copy(file.path(), target).expect("it can be copied")),
        }
    }
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for file in fs::read_dir(folder).expect("the folder is there") {
        let path = file.expect("the folder can be read").path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn a_flipped_byte_in_a_store_is_found_or_changes_nothing() {
    // Tables, a journal with epochs behind them, and a log of decisions.
    let folder = flights(&first_lines(3_000));
    run_ok(&folder, &[]);
    store(&folder, &["compact"]).expect_code(0);
    folder.write("flights.csv", week());
    run_ok(&folder, &[]);
    let data = folder.path(".tidelock");
    fs::remove_dir_all(data.join("compiled-components")).expect("it is there");
    let frozen = folder.path("frozen");
    copy(&data, &frozen);
    let expected = rows_of(&data);
    let mut files = Vec::new();
    files_below(&frozen, &mut files);
    files.sort();

    let spoilt = folder.path("spoilt");
    let (mut harmless, mut found): (BTreeMap<String, u32>, BTreeMap<String, u32>) =
        (BTreeMap::new(), BTreeMap::new());
    for file in &files {
        let bytes = fs::read(file).expect("it can be read");
        // Zeros are room that was never written; a few of them are tried too.
        let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let places = (0..6).filter_map(|part| written.get(part * written.len() / 6).copied());
        for at in places.chain((!bytes.is_empty()).then_some(bytes.len() / 2)) {
            let _ = fs::remove_dir_all(&spoilt);
            copy(&frozen, &spoilt);
            let name = file.strip_prefix(&frozen).expect("it lies there");
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            fs::write(spoilt.join(name), bytes).expect("it can be written");
            let checked = store(&folder, &["check", "--data", &spoilt.display().to_string()]);
            let name = name.display().to_string();
            match checked.status.code() {
                Some(0) => {
                    // Nothing of it may have changed then.
                    assert!(rows_of(&spoilt) == expected, "byte {at} of {name} is lost");
                    *harmless.entry(name).or_default() += 1;
                }
                Some(1) => {
                    let said = checked.stdout_text() + &checked.stderr_text();
                    let names = ["partition p", "spoilt"].iter().any(|it| said.contains(it));
                    assert!(names, "byte {at} of {name}: {said}");
                    *found.entry(name).or_default() += 1;
                }
                code => panic!("byte {at} of {name}: {code:?}, {checked:?}"),
            }
        }
    }
    // The positive control: tables, journal and decisions all had flips that were found.
    for part in ["/tables/", ".jnl", "decisions/db"] {
        let is_there = found.keys().any(|name| name.contains(part));
        assert!(is_there, "{part}: found {found:?}, harmless {harmless:?}");
    }
}

#[test]
fn a_check_names_the_partition_of_what_is_wrong_and_whose_it_is() {
    let folder = TestHost::new();
    let events = (0..100).map(|user| format!("{{\"user\":\"user-{user}\",\"amount\":1}}\n"));
    folder.write("events.jsonl", events.collect::<String>());
    keyed_sum::write_pipeline(&folder, |file| partition(file, "sum", 2));
    folder.run(["run", "."]).expect_code(0);
    let whole = json(&store(&folder, &["check"]).expect_code(0));
    assert_eq!(whole["ok"], true);
    assert_eq!(whole["findings"], Value::Array(Vec::new()));
    let states = (whole["kinds"].as_array().expect("a list").iter())
        .find(|kind| kind["kind"] == "states")
        .expect("there are states");
    assert_eq!(states["rows"], 100);

    // A key in the other half's partition: well-formed, and nothing that a run would write.
    let data = folder.path(".tidelock");
    let storage = EmbeddedStorage::open(&data, EmbeddedOptions::default()).expect("it opens");
    let inventory = Inventory::read(&storage).expect("it is whole");
    let sum = &inventory.pipelines["keyed-sum"].computations["sum"];
    let key = b"user-1";
    let other = (sum.partitions.iter()).find(|of| Some(**of) != sum.partition_of(key));
    let other = *other.expect("there are two");
    let lease = leases::grant(&storage, other).expect("nobody has it");
    let epoch = storage.head(other).expect("it has one").epoch.next();
    let commit = EpochCommit {
        states: vec![StateChanges {
            state: "totals".to_owned(),
            keys: [key.as_slice()].into_iter().collect(),
            values: [b"\x01\x02".as_slice()].into_iter().collect(),
            touched: Vec::new(),
        }],
        ..EpochCommit::empty(&lease, epoch)
    };
    let outcome = storage.commit_epoch(lease, commit).expect("it is storable");
    assert!(matches!(outcome, CommitOutcome::Committed(_)));
    drop(storage);
    let found = folder.run(["store", "check"]).expect_code(1).stdout_text();
    let expected = format!("partition {other} (partition");
    assert!(found.starts_with(&expected), "{found}");
    assert!(
        found.contains("of computation sum of pipeline keyed-sum"),
        "{found}"
    );
    assert!(
        found.contains("key user-1 of state totals belongs to"),
        "{found}"
    );
}

/// Lines that tell which they are.
fn numbered(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

/// The rows of the files of a directory sink, in the order of the files' names.
fn written_in(folder: &TestHost, directory: &str) -> (Vec<String>, String) {
    let entries = fs::read_dir(folder.path(directory)).expect("the directory is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it is read"))
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().into_string().expect("names are text"))
        .collect();
    names.sort();
    let text =
        |name: &String| fs::read_to_string(folder.path(directory).join(name)).expect("it is text");
    let rows = names.iter().map(text).collect();
    (names, rows)
}

/// Reads what was appended in ten epochs, and is stopped while its last file is open.
fn run_ten_epochs(folder: &TestHost) {
    let mut run = folder.start(["--log", "debug", "run", "."]);
    assert_eq!(run.wait_for_lines("epoch committed", 10), 10);
    let _ = run.interrupt().expect_code(130);
}

#[test]
fn files_of_a_directory_sink_are_brought_back_to_the_moment_of_the_backup_and_written_once_more() {
    let folder = TestHost::new();
    folder.write(
        "tidelock.toml",
        "name = \"files\"\n[epoch]\nmax_rows_per_epoch = 100\n\
         [sources.in]\ntype = \"file\"\npath = \"lines.txt\"\nformat = \"lines\"\nfollow = true\n\
         [sinks.parts]\ntype = \"directory\"\npath = \"parts\"\ninputs = [\"in\"]\nmax_bytes = \"3KiB\"\n",
    );
    folder.write("lines.txt", numbered(0..1_000));
    run_ten_epochs(&folder);
    let (at_backup, rows) = written_in(&folder, "parts");
    assert_eq!(rows, numbered(0..1_000));
    let open: Vec<&String> = at_backup
        .iter()
        .filter(|name| name.ends_with(".part"))
        .collect();
    assert_eq!(open.len(), 1, "{at_backup:?}");
    store(&folder, &["backup", "backup"]).expect_code(0);

    folder.write("lines.txt", numbered(0..2_000));
    run_ten_epochs(&folder);
    let (later, rows) = written_in(&folder, "parts");
    assert_eq!(rows, numbered(0..2_000));
    assert!(
        later.len() > at_backup.len() + 2 && !later.contains(open[0]),
        "{later:?}"
    );

    fs::rename(folder.path(".tidelock"), folder.path("broken")).expect("it can be moved");
    let restored = store(&folder, &["restore", "backup", "--cut-sinks"]).expect_code(0);
    let (back, rows) = written_in(&folder, "parts");
    assert_eq!(
        (&back, rows),
        (&at_backup, numbered(0..1_000)),
        "{restored:?}"
    );
    // Nothing is deleted.
    let (aside, rows) = written_in(&folder, "parts/after-backup");
    assert_eq!(aside.len(), later.len() - at_backup.len(), "{aside:?}");
    assert!(numbered(0..2_000).ends_with(&rows) && !rows.is_empty());
    store(&folder, &["check"]).expect_code(0);

    run_ten_epochs(&folder);
    let (again, rows) = written_in(&folder, "parts");
    assert_eq!(rows, numbered(0..2_000), "{again:?}");
    store(&folder, &["check"]).expect_code(0);
}
