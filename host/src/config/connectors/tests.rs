//! The tables of directories, generators and the sinks that need no file: what they read, their defaults, each
//! finding with its line.

use std::time::Duration;

use crate::config::load;
use crate::types::connectors::{
    DirectorySinkOptions, DirectorySourceOptions, FileOrder, GeneratedRecords, GeneratorOptions,
};
use crate::types::finding::Finding;
use crate::types::pipeline::{OnFailure, Pipeline, RecordFormat, SinkConnector, SourceConnector};

/// A pipeline of one source and one sink, whose fields begin on lines 3 and below the source's.
fn read(source: &str, sink: &str) -> (Option<Pipeline>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["in/below", "out"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("out/file"), "").unwrap();
    let text =
        format!("name = \"p\"\n[sources.s]\n{source}\n[sinks.t]\ninputs = [\"s\"]\n{sink}\n");
    std::fs::write(folder.path().join("tidelock.toml"), text).unwrap();
    let real = folder.path().canonicalize().unwrap();
    let shown = |finding: &Finding| {
        let text = finding
            .to_string()
            .replace(&format!("{}/", real.display()), "");
        text.replace(&format!("{}/", folder.path().display()), "")
    };
    match load(folder.path()) {
        Ok(pipeline) => (Some(pipeline), Vec::new()),
        Err(error) => (None, error.findings.iter().map(shown).collect()),
    }
}

const GENERATOR: &str = "type = \"generator\"";
const DIRECTORY: &str = "type = \"directory\"\npath = \"in\"\nformat = \"csv\"";
const NULL: &str = "type = \"null\"";

#[track_caller]
fn check(source: &str, sink: &str, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|it| format!("tidelock.toml:{it}"))
        .collect();
    assert_eq!(read(source, sink).1, expected);
}

#[track_caller]
fn sources(source: &str) -> (Vec<SourceConnector>, Option<usize>) {
    let (pipeline, findings) = read(source, NULL);
    let pipeline = pipeline.unwrap_or_else(|| panic!("{findings:?}"));
    let source = &pipeline.sources["s"];
    (source.partitions.clone(), source.parallel_partitions)
}

#[track_caller]
fn generators(more: &str) -> Vec<GeneratorOptions> {
    let (partitions, parallel) = sources(&format!("{GENERATOR}\n{more}"));
    assert_eq!(parallel, Some(partitions.len()), "all are made at once");
    let generator = |partition| match partition {
        SourceConnector::Generator(options) => options,
        other => panic!("{other:?}"),
    };
    partitions.into_iter().map(generator).collect()
}

#[test]
fn a_generator_has_the_documented_defaults() {
    let records = GeneratedRecords {
        partitions: 1,
        keys: 1_000,
        skew: 0.0,
        event_time_start: 1_704_067_200_000,
        event_time_step_ns: 1_000_000,
        jitter_ms: 0,
        payload_bytes: 0,
        seed: 0,
    };
    let options = GeneratorOptions {
        partition: 0,
        partition_name: "all".to_owned(),
        rate: None,
        count: None,
        records: records.clone(),
    };
    assert_eq!(generators(""), std::slice::from_ref(&options));
    assert!(SourceConnector::Generator(options.clone()).is_followed());
    let by_rate = GeneratedRecords {
        event_time_step_ns: 400_000,
        ..records
    };
    let options = GeneratorOptions {
        rate: Some(2_500),
        records: by_rate,
        ..options
    };
    assert_eq!(generators("rate = 2_500"), [options]);
}

#[test]
fn all_that_a_generator_may_be_told_is_read() {
    let written = "rate = 10\ncount = 7\npartitions = 3\nkeys = 5\nskew = 1.25\n\
                   event_time_start = 2013-01-01T06:15:00Z\nevent_time_step = \"2s\"\n\
                   jitter = \"1m\"\npayload_bytes = \"1KiB\"\nseed = 9";
    let options = generators(written);
    let names: Vec<&str> = options
        .iter()
        .map(|it| it.partition_name.as_str())
        .collect();
    assert_eq!(names, ["0 of 3", "1 of 3", "2 of 3"]);
    let counts: Vec<Option<u64>> = options
        .iter()
        .map(GeneratorOptions::partition_count)
        .collect();
    assert_eq!(counts, [Some(3), Some(2), Some(2)]);
    let records = GeneratedRecords {
        partitions: 3,
        keys: 5,
        skew: 1.25,
        event_time_start: 1_357_020_900_000,
        event_time_step_ns: 2_000_000_000,
        jitter_ms: 60_000,
        payload_bytes: 1_024,
        seed: 9,
    };
    assert!(
        options
            .iter()
            .all(|it| it.records == records && it.rate == Some(10))
    );
}

#[test]
fn every_source_that_may_fail_on_a_record_has_a_word_on_it() {
    let queue = "type = \"queue\"\nqueue = \"q\"\n[queues.q]";
    let file = "type = \"file\"\npath = \"out/file\"\nformat = \"jsonl\"";
    let on_failure = |source: &str, word: &str| {
        let (kind, rest) = source.split_once('\n').unwrap();
        let (pipeline, findings) = read(&format!("{kind}\n{word}\n{rest}"), NULL);
        let pipeline = pipeline.unwrap_or_else(|| panic!("{findings:?}"));
        pipeline.sources["s"].on_failure
    };
    for source in [file, DIRECTORY, queue] {
        assert_eq!(on_failure(source, ""), OnFailure::Fail);
        for (word, expected) in [
            ("fail", OnFailure::Fail),
            ("skip", OnFailure::Skip),
            ("dead_letter", OnFailure::DeadLetter),
        ] {
            let word = format!("on_failure = \"{word}\"");
            assert_eq!(on_failure(source, &word), expected);
        }
    }
    check(
        &format!("{DIRECTORY}\non_failure = \"ignore\""),
        NULL,
        &[
            "6: on_failure = \"ignore\" of source s is unknown; write \"fail\", \"skip\" or \"dead_letter\"",
        ],
    );
    check(
        &format!("{GENERATOR}\non_failure = \"skip\""),
        NULL,
        &[
            "4: source s makes its records, and none of them can fail to be decoded; remove on_failure, or write it with the computations that read them",
        ],
    );
}

#[test]
fn what_is_wrong_with_a_generator_is_told_by_its_line() {
    check(
        &format!(
            "{GENERATOR}\nrate = 0\nkeys = 0\nskew = 11\njitter = \"1\"\npayload_bytes = \"1GiB\"\n\
             partitions = 257\nevent_time_start = \"yesterday\"\npath = \"x\""
        ),
        NULL,
        &[
            "4: rate = 0 of source s is out of range; write 1 to 100000000",
            "5: keys = 0 of source s is out of range; write 1 to 1099511627776",
            "6: skew = 11 of source s is out of range; write 0 to 10",
            "7: jitter = \"1\" of source s is not a duration; write a whole number and a unit, \
             ms, s, m, h or d, as in \"250ms\"",
            "8: payload_bytes = 1GiB of source s is out of range; write 0B to 16MiB",
            "9: partitions = 257 of source s is out of range; write 1 to 256",
            "10: event_time_start of source s is no moment after 1970; \
             write it in UTC and without quotes, as in 2024-01-01T00:00:00Z",
            "11: unknown field \"path\" in source s; did you mean \"rate\"?",
        ],
    );
    for moment in ["1969-12-31T23:59:59Z", "2024-01-01", "7"] {
        let (pipeline, findings) = read(&format!("{GENERATOR}\nevent_time_start = {moment}"), NULL);
        assert!(
            pipeline.is_none() && findings.len() == 1,
            "{moment}: {findings:?}"
        );
    }
}

#[test]
fn a_directory_to_read_has_the_documented_defaults_and_reads_all_that_may_be_written() {
    let (partitions, parallel) = sources(DIRECTORY);
    let [SourceConnector::Directory(options)] = &partitions[..] else {
        panic!("{partitions:?}");
    };
    let expected = DirectorySourceOptions {
        path: options.path.clone(),
        written_path: "in".to_owned(),
        pattern: "*".to_owned(),
        order: FileOrder::Name,
        partition: 0,
        partitions: 1,
        partition_name: "all".to_owned(),
        format: RecordFormat::Csv,
        max_record_bytes: 1 << 20,
        follow: false,
    };
    assert!(options.path.ends_with("in") && options.path.is_absolute());
    assert_eq!((options, parallel), (&expected, Some(1)));
    let more = "pattern = \"*.{csv,txt}\"\norder = \"modified\"\npartitions = 2\n\
                max_record_bytes = \"2KiB\"\nfollow = true";
    let (partitions, parallel) = sources(&format!("{DIRECTORY}\n{more}"));
    let [_, SourceConnector::Directory(options)] = &partitions[..] else {
        panic!("{partitions:?}");
    };
    let expected = DirectorySourceOptions {
        path: options.path.clone(),
        pattern: "*.{csv,txt}".to_owned(),
        order: FileOrder::Modified,
        partition: 1,
        partitions: 2,
        partition_name: "1 of 2".to_owned(),
        max_record_bytes: 2_048,
        follow: true,
        ..expected
    };
    assert_eq!((options, parallel), (&expected, Some(2)));
}

#[test]
fn what_is_wrong_with_a_directory_to_read_is_told_by_its_line() {
    check(
        "type = \"directory\"\npattern = \"a/*\"\norder = \"size\"",
        NULL,
        &[
            "2: source s has no path; write path = \"...\", the directory whose files are read",
            "2: source s has no format; write format = \"lines\", \"csv\" or \"jsonl\"",
            "4: pattern \"a/*\" of source s can't be used: it has a slash, and names of files in a \
             directory have none; write one such as \"*.csv\"",
            "5: order = \"size\" of source s is unknown; write \"name\" or \"modified\"",
        ],
    );
    let of = |path: &str, more: &str| {
        format!("type = \"directory\"\nformat = \"lines\"\npath = \"{path}\"\n{more}")
    };
    let remedy = "make it, or correct the path; it is relative to the pipeline file";
    check(
        &of("nowhere", "pattern = \"[\""),
        NULL,
        &[
            &format!(
                "5: the directory of source s can't be read: nowhere: \
                 No such file or directory (os error 2); {remedy}"
            ),
            "6: pattern \"[\" of source s can't be used: unclosed character class; missing ']'; \
             write one such as \"*.csv\"",
        ],
    );
    check(
        &of("out/file", ""),
        NULL,
        &[&format!(
            "5: the directory of source s can't be read: out/file: it is no directory; {remedy}"
        )],
    );
}

#[test]
fn a_directory_to_write_has_the_documented_defaults_and_reads_all_that_may_be_written() {
    let directory = |sink: &str| {
        let (pipeline, findings) = read(GENERATOR, sink);
        let pipeline = pipeline.unwrap_or_else(|| panic!("{findings:?}"));
        match &pipeline.sinks["t"].connector {
            SinkConnector::Directory(options) => options.clone(),
            other => panic!("{other:?}"),
        }
    };
    let options = directory("type = \"directory\"\npath = \"new/folder\"");
    let expected = DirectorySinkOptions {
        path: options.path.clone(),
        prefix: "t".to_owned(),
        extension: "jsonl".to_owned(),
        max_bytes: 128 << 20,
        max_age: None,
    };
    assert!(options.path.ends_with("new/folder") && options.path.is_absolute());
    assert_eq!(options, expected);
    let options = directory(
        "type = \"directory\"\npath = \"out\"\nprefix = \"Day_1\"\nextension = \"log.txt\"\n\
         max_bytes = \"1MiB\"\nmax_age = \"1h\"",
    );
    let expected = DirectorySinkOptions {
        path: options.path.clone(),
        prefix: "Day_1".to_owned(),
        extension: "log.txt".to_owned(),
        max_bytes: 1 << 20,
        max_age: Some(Duration::from_secs(3_600)),
    };
    assert_eq!(options, expected);
    assert_eq!(options.file_name(12, 3), "Day_1-12-00000003.log.txt");
    for (name, is_one) in [
        ("Day_1-12-00000003.log.txt", true),
        ("Day_1-12-00000003.log.txt.part", true),
        ("Day_1-12-3.log", false),
        ("Day_1-12.log.txt", false),
        ("Day_1-a-3.log.txt", false),
        ("Day-12-00000003.log.txt", false),
    ] {
        assert_eq!(options.is_file_name(name), is_one, "{name}");
    }
}

#[test]
fn what_is_wrong_with_a_directory_to_write_is_told_by_its_line() {
    let form = "write 1 to 64 of letters, digits, \"_\", \"-\" and \".\", the first one no \".\"";
    check(
        GENERATOR,
        "type = \"directory\"\nmax_bytes = \"0B\"\nmax_age = \"1ms\"\nprefix = \"a/b\"\nextension = \".x\"",
        &[
            "4: sink t has no path; write path = \"...\", the directory to write files to",
            "7: max_bytes = 0B of sink t is out of range; write 1B to 1024GiB",
            "8: max_age = 1ms of sink t is out of range; write 1s to 365d",
            &format!("9: prefix = \"a/b\" of sink t can't be part of a name; {form}"),
            &format!("10: extension = \".x\" of sink t can't be part of a name; {form}"),
        ],
    );
    check(
        GENERATOR,
        "type = \"directory\"\npath = \"out/file\"\nextension = \"csv.part\"",
        &[
            "7: path \"out/file\" of sink t is no directory; \
             name a directory, which is made if it is not there",
            "8: extension = \"csv.part\" of sink t is that of unfinished files; write another one",
        ],
    );
    check(
        GENERATOR,
        "type = \"null\"\npath = \"x\"",
        &["7: unknown field \"path\" in sink t; remove it; known here: inputs, type"],
    );
}

#[test]
fn what_the_pipeline_writes_it_does_not_read() {
    let into = "sink t writes into the directory that source s reads; name a path outside";
    for path in ["in", "in/below", "out/../in/below/deeper"] {
        let sink = format!("type = \"directory\"\npath = \"{path}\"");
        let (pipeline, findings) = read(DIRECTORY, &sink);
        assert!(pipeline.is_none());
        assert!(
            findings.len() == 1 && findings[0].contains(into),
            "{findings:?}"
        );
    }
    let (_, findings) = read(DIRECTORY, "type = \"file\"\npath = \"in/x.jsonl\"");
    assert!(
        findings.len() == 1 && findings[0].contains(into),
        "{findings:?}"
    );
    let file = "type = \"file\"\npath = \"out/file\"\nformat = \"lines\"";
    let (_, findings) = read(file, "type = \"directory\"\npath = \"out\"");
    let message =
        "sink t writes into the directory of a file that source s reads; name another path";
    assert!(
        findings.len() == 1 && findings[0].contains(message),
        "{findings:?}"
    );
    let two = "type = \"directory\"\npath = \"new\"\nprefix = \"x\"\n[sinks.u]\ninputs = [\"s\"]\n\
               type = \"directory\"\npath = \"out/../new\"\nprefix = \"x\"";
    check(
        GENERATOR,
        two,
        &["9: sink u writes the files that sink t writes; \
           give it another path or prefix, so that it has files of its own"],
    );
    let apart = two.replace("prefix = \"x\"\n[", "prefix = \"y\"\n[");
    assert_eq!(read(GENERATOR, &apart).1, [""; 0]);
}
