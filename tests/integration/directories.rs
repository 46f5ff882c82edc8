//! Directories as sources and sinks, and generators: what real runs make of them, whatever is changed, taken away
//! or killed in between.

use std::collections::BTreeMap;
use std::fs;

use harness::{Finished, TestHost};

use crate::sources::{check_says, run};

/// Writes a pipeline without computations: what its sources give goes to its sinks.
fn write_pipeline(folder: &TestHost, tables: &str) {
    folder.write("tidelock.toml", format!("name = \"files\"\n{tables}"));
}

/// A source `in` of the directory `in`, and a file sink of it, with more lines for the source.
fn reading(more: &str) -> String {
    format!(
        "[sources.in]\ntype = \"directory\"\npath = \"in\"\nformat = \"lines\"\n{more}\n\
         [sinks.out]\ntype = \"file\"\npath = \"out.txt\"\ninputs = [\"in\"]\n"
    )
}

fn out(folder: &TestHost) -> String {
    String::from_utf8(folder.read("out.txt")).expect("rows are text")
}

/// What is in the files of a directory, by name.
fn files_in(folder: &TestHost, directory: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder.path(directory)).expect("the directory is there");
    entries
        .map(|entry| {
            let path = entry.expect("it is read").path();
            let name = path.file_name().expect("a file has a name");
            let name = name.to_str().expect("names are text").to_owned();
            (name, fs::read_to_string(path).expect("a file is text"))
        })
        .collect()
}

/// Lines of a file that tell where they stand.
fn lines(file: &str, count: usize) -> String {
    (0..count).map(|line| format!("{file} {line}\n")).collect()
}

#[test]
fn files_are_read_once_whichever_run_finds_them() {
    let folder = TestHost::new();
    folder.write("in/b", lines("b", 3));
    folder.write("in/a", lines("a", 2));
    folder.write("in/c.part", lines("c", 2));
    write_pipeline(&folder, &reading(""));
    check_says(&run(&folder, &[]), 0, &[]);
    assert_eq!(out(&folder), lines("a", 2) + &lines("b", 3));
    check_says(&run(&folder, &[]), 0, &[]);
    fs::rename(folder.path("in/c.part"), folder.path("in/aa")).expect("a file is renamed");
    fs::remove_file(folder.path("in/b")).expect("a file is removed");
    check_says(&run(&folder, &[]), 0, &[]);
    let so_far = lines("a", 2) + &lines("b", 3) + &lines("c", 2);
    assert_eq!(out(&folder), so_far);
    // Another file under a name that has left.
    folder.write("in/b", lines("new", 1));
    check_says(&run(&folder, &[]), 0, &[]);
    assert_eq!(out(&folder), so_far + &lines("new", 1));
}

#[test]
fn a_file_that_changed_behind_its_end_is_told_once_and_not_read_again() {
    let folder = TestHost::new();
    folder.write("in/a", "one\n");
    write_pipeline(&folder, &reading(""));
    check_says(&run(&folder, &[]), 0, &[]);
    folder.write("in/a", "one\ntwo\n");
    let told = "file has changed since it was read to its end";
    check_says(&run(&folder, &[]), 0, &[told, "in/a", "a name of its own"]);
    assert!(!run(&folder, &[]).stderr_text().contains(told));
    assert_eq!(out(&folder), "one\n");
}

#[test]
fn a_record_that_is_malformed_is_named_by_its_file_and_line() {
    let folder = TestHost::new();
    folder.write("in/a.jsonl", "1\n2\n");
    folder.write("in/b.jsonl", "3\nno\n");
    write_pipeline(&folder, &reading("").replace("\"lines\"", "\"jsonl\""));
    check_says(&run(&folder, &[]), 1, &["in/b.jsonl:2: ", "is not jsonl"]);
    // What came before it is processed, and it is met again until it is put right.
    assert_eq!(out(&folder), "1\n2\n3\n");
    check_says(&run(&folder, &[]), 1, &["in/b.jsonl:2: "]);
    folder.write("in/b.jsonl", "3\n4\n");
    check_says(&run(&folder, &[]), 0, &[]);
    assert_eq!(out(&folder), "1\n2\n3\n4\n");
}

/// Starts a run, kills it when it has committed so many epochs, and tells whether it was still running.
fn kill_after(folder: &TestHost, epochs: usize) -> bool {
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", epochs);
    running.kill().was_killed()
}

#[test]
fn a_file_that_vanishes_in_the_middle_is_refused_until_that_is_accepted() {
    let folder = TestHost::new();
    folder.write("in/a", lines("a", 20_000));
    folder.write("in/b", lines("b", 1));
    write_pipeline(
        &folder,
        &(reading("") + "[epoch]\nmax_rows_per_epoch = 20\n"),
    );
    assert!(kill_after(&folder, 3));
    fs::remove_file(folder.path("in/a")).expect("a file is removed");
    check_says(
        &run(&folder, &[]),
        5,
        &["in/a", "read up to line", "--accept-change"],
    );
    check_says(&run(&folder, &["--accept-change"]), 0, &["accepted: "]);
    let out = out(&folder);
    assert!(out.ends_with("b 0\n"), "the other file is read");
    let read = out.strip_suffix("b 0\n").expect("it is the last one");
    let count = read.lines().count();
    assert!((60..20_000).contains(&count));
    assert_eq!(read, lines("a", count));
}

#[test]
fn another_number_of_partitions_is_a_change() {
    let folder = TestHost::new();
    folder.write("in/a", lines("a", 5));
    write_pipeline(&folder, &reading("partitions = 2"));
    check_says(&run(&folder, &[]), 0, &[]);
    write_pipeline(&folder, &reading("partitions = 3"));
    let parts = ["in 2 partitions", "in 3 partitions", "partition 0 of 2"];
    check_says(&run(&folder, &[]), 5, &parts);
    // Every file is then new.
    check_says(&run(&folder, &["--accept-change"]), 0, &[]);
    assert_eq!(out(&folder), lines("a", 5).repeat(2));
}

/// A sink of the stream `in` to a directory, with more lines for it.
fn writing(more: &str) -> String {
    format!("[sinks.parts]\ntype = \"directory\"\npath = \"parts\"\ninputs = [\"in\"]\n{more}\n")
}

#[test]
fn f1_kills_leave_files_that_hold_together_what_one_file_would() {
    let folder = TestHost::new();
    for file in 0..40 {
        let name = format!("{file:02}");
        folder.write(&format!("in/{name}"), lines(&name, 500));
    }
    let epochs = "[epoch]\nmax_rows_per_epoch = 100\n";
    let sink = writing("max_bytes = \"4KiB\"\nextension = \"txt\"");
    write_pipeline(&folder, &(reading("") + &sink + epochs));
    let mut killed = 0;
    for round in 0..16 {
        // Epochs, a file's end and a start are all hit somewhere.
        killed += usize::from(kill_after(&folder, 1 + 5 * round % 13));
    }
    assert!(killed >= 12, "only {killed} kills hit a run");
    check_says(&run(&folder, &[]), 0, &[]);
    let expected: String = (0..40)
        .map(|file| lines(&format!("{file:02}"), 500))
        .collect();
    assert!(out(&folder) == expected, "the file sink has each line once");
    let files = files_in(&folder, "parts");
    assert!(
        files.keys().all(|name| name.ends_with(".txt")),
        "{:?}",
        files.keys()
    );
    assert!(files.len() > 30, "{}", files.len());
    assert!(files.values().all(|content| content.len() <= 4 << 10));
    let joined: String = files.into_values().collect();
    assert!(
        joined == expected,
        "the files in their order have each line once"
    );
}

#[test]
fn another_pipeline_reads_what_a_directory_sink_finishes() {
    let folder = TestHost::new();
    let generator = "[sources.in]\ntype = \"generator\"\ncount = 3_000\npartitions = 2\n";
    let epochs = "[epoch]\nmax_rows_per_epoch = 200\n";
    let sink = writing("max_bytes = \"20KiB\"\nprefix = \"made\"");
    write_pipeline(&folder, &format!("{generator}{sink}{epochs}"));
    check_says(&run(&folder, &[]), 0, &["3000 rows out"]);
    let made: String = files_in(&folder, "parts").into_values().collect();
    let reader = reading("pattern = \"made-*.jsonl\"")
        .replace("path = \"in\"", "path = \"../parts\"")
        .replace("\"lines\"", "\"jsonl\"");
    folder.write(
        "reader/tidelock.toml",
        format!("name = \"reader\"\n{reader}"),
    );
    let read = folder.run(["run", "reader"]);
    check_says(&read, 0, &["3000 records"]);
    let text = String::from_utf8(folder.read("reader/out.txt")).expect("rows are text");
    assert!(text == made, "all files are read in their order");
}

#[test]
fn a_run_that_is_stopped_goes_on_in_its_file_and_one_that_ends_finishes_it() {
    let folder = TestHost::new();
    let generator = "[sources.in]\ntype = \"generator\"\nrate = 500\nevent_time_step = \"1ms\"\n";
    write_pipeline(&folder, &format!("{generator}{}", writing("")));
    let names = |folder: &TestHost| files_in(folder, "parts").into_keys().collect::<Vec<_>>();
    let stop = |folder: &TestHost| -> Finished {
        let mut running = folder.start(["--log", "debug", "run", "."]);
        running.wait_for_lines("epoch committed", 3);
        running.interrupt().expect_code(130)
    };
    stop(&folder);
    let [part] = &names(&folder)[..] else {
        panic!("one file is begun");
    };
    assert!(part.ends_with("-00000000.jsonl.part"), "{part}");
    stop(&folder);
    assert_eq!(names(&folder), [part.as_str()]);
    // More than were made so far, whatever that is.
    let finite = "[sources.in]\ntype = \"generator\"\ncount = 5_000\nevent_time_step = \"1ms\"\n";
    write_pipeline(&folder, &format!("{finite}{}", writing("")));
    check_says(&run(&folder, &[]), 0, &[]);
    let files = files_in(&folder, "parts");
    let finished = part.trim_end_matches(".part");
    assert_eq!(files.keys().collect::<Vec<_>>(), [finished]);
    for (at, line) in files[finished].lines().enumerate() {
        assert!(
            line.contains(&format!("\"sequence\":{at},")),
            "{at}: {line}"
        );
    }
    assert_eq!(files[finished].lines().count(), 5_000);
}

#[test]
fn files_of_partitions_and_sinks_that_are_gone_are_finished_at_the_next_start() {
    let folder = TestHost::new();
    let endless = "[sources.in]\ntype = \"generator\"\nrate = 500\n";
    let others = writing("").replace("parts", "others");
    write_pipeline(&folder, &format!("{endless}{}{others}", writing("")));
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 3);
    running.interrupt().expect_code(130);
    assert!(
        files_in(&folder, "others")
            .keys()
            .all(|name| name.ends_with(".part"))
    );
    let begun = files_in(&folder, "parts");
    // The source has another number of partitions, and one sink has left.
    let finite = "[sources.in]\ntype = \"generator\"\ncount = 10\npartitions = 2\n";
    write_pipeline(&folder, &format!("{finite}{}", writing("")));
    check_says(&run(&folder, &["--accept-change"]), 0, &[]);
    for directory in ["parts", "others"] {
        let files = files_in(&folder, directory);
        assert!(
            files.keys().all(|name| name.ends_with(".jsonl")),
            "{:?}",
            files.keys()
        );
    }
    let files = files_in(&folder, "parts");
    assert_eq!(files.len(), 3, "{:?}", files.keys());
    for (name, content) in begun {
        assert_eq!(files[name.trim_end_matches(".part")], content);
    }
}

#[test]
fn a_file_is_finished_when_it_is_old_enough_though_no_more_rows_come() {
    let folder = TestHost::new();
    folder.write("in/a", lines("a", 5));
    write_pipeline(
        &folder,
        &(reading("follow = true") + &writing("max_age = \"1s\"")),
    );
    let mut running = folder.start(["--log", "debug", "run", "."]);
    assert_eq!(running.wait_for_lines("file finished", 1), 1);
    // What comes later is found by the run that goes on, and goes to the next file.
    folder.write("in/b", lines("b", 5));
    assert_eq!(running.wait_for_lines("file finished", 2), 2);
    running.interrupt().expect_code(130);
    let files = files_in(&folder, "parts");
    let contents: Vec<&String> = files.values().collect();
    assert_eq!(contents, [&lines("a", 5), &lines("b", 5)]);
}

#[test]
fn names_that_others_have_taken_are_refused() {
    let folder = TestHost::new();
    let generator = "[sources.in]\ntype = \"generator\"\ncount = 10\n";
    write_pipeline(&folder, &format!("{generator}{}", writing("")));
    check_says(&run(&folder, &[]), 0, &[]);
    let before = files_in(&folder, "parts");
    // A store that knows nothing of them.
    fs::remove_dir_all(folder.path(".tidelock")).expect("the data directory is there");
    let checked = folder.run(["check", "."]).expect_code(1).stdout_text();
    assert!(checked.contains("sink parts: "), "{checked}");
    assert!(
        checked.contains(before.keys().next().expect("a file")),
        "{checked}"
    );
    check_says(&run(&folder, &[]), 1, &["which is there already"]);
    assert_eq!(
        files_in(&folder, "parts").get(before.keys().next().expect("a file")),
        before.values().next()
    );
}

#[test]
fn f1_a_generator_that_is_killed_gives_each_record_once() {
    let folder = TestHost::new();
    let source = "[sources.in]\ntype = \"generator\"\ncount = 40_000\nkeys = 50\nskew = 1.0\njitter = \"1s\"\n";
    let sink = "[sinks.out]\ntype = \"file\"\npath = \"out.txt\"\ninputs = [\"in\"]\n";
    let epochs = "[epoch]\nmax_rows_per_epoch = 200\n";
    write_pipeline(&folder, &format!("{source}{sink}{epochs}"));
    let undisturbed = TestHost::new();
    write_pipeline(&undisturbed, &format!("{source}{sink}"));
    check_says(&run(&undisturbed, &[]), 0, &[]);
    let killed = (1..6)
        .filter(|round| kill_after(&folder, 7 * round))
        .count();
    assert!(killed >= 3, "only {killed} kills hit a run");
    check_says(&run(&folder, &[]), 0, &[]);
    assert!(out(&folder) == out(&undisturbed));
}

#[test]
fn a_generator_keeps_to_its_options_and_its_rate() {
    let folder = TestHost::new();
    let with = |folder: &TestHost, lines: &str| {
        let sink = "[sinks.nowhere]\ntype = \"null\"\ninputs = [\"in\"]\n";
        write_pipeline(
            folder,
            &format!("[sources.in]\ntype = \"generator\"\n{lines}\n{sink}"),
        );
    };
    with(&folder, "count = 100\nkeys = 7");
    check_says(&run(&folder, &[]), 0, &["100 records", "100 rows out"]);
    with(&folder, "count = 150\nkeys = 8");
    check_says(&run(&folder, &[]), 5, &["was keys 7, now keys 8"]);
    // More of the same are no change.
    with(&folder, "count = 150\nkeys = 7");
    check_says(&run(&folder, &[]), 0, &["50 records"]);
    // Another kind of source under the same name is one, and nothing worse.
    folder.write("in/a", lines("a", 3));
    write_pipeline(&folder, &reading(""));
    check_says(
        &run(&folder, &[]),
        5,
        &["was generator, now directory in as lines"],
    );
    check_says(&run(&folder, &["--accept-change"]), 0, &["3 records"]);
}

#[test]
fn a_graph_shows_directories_and_generators() {
    let folder = TestHost::new();
    folder.write("in/a", "");
    let generator = "[sources.made]\ntype = \"generator\"\ncount = 5\nrate = 10\n";
    let sink = writing("").replace("[\"in\"]", "[\"in\", \"made\"]");
    write_pipeline(
        &folder,
        &format!("{}{generator}{sink}", reading("pattern = \"*.csv\"")),
    );
    let graph = folder.run(["graph", "."]).expect_code(0).stdout_text();
    for part in [
        "files *.csv of directory in, lines",
        "generator, 5 records, 10 a second",
        "files parts/parts-*.jsonl",
    ] {
        assert!(graph.contains(part), "{part} is missing in: {graph}");
    }
}
