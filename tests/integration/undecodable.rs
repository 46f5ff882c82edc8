//! Records that a source can't decode: what real runs make of the others, what is kept of them, and what a kill
//! costs.

use std::io::Write as _;

use harness::TestHost;
use serde_json::Value;
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::letter_rows::read_letters;
use tidelock::storage::scan::ScanLimit;
use tidelock::types::dead_letter::{DeadLetter, DeadLetterId, LetterItem, LetterOrigin};
use tidelock::types::ids::PartitionId;

use crate::alarms;
use crate::sources::{check_says, run};

/// More partitions than any of these pipelines ever has.
const PARTITIONS_MAX: u64 = 100;
/// More letters than any of these pipelines ever writes.
const LETTERS_MAX: usize = 1_000_000;

/// A pipeline that writes what its source `in` reads, with more of the source's options and more tables.
fn write_pipeline(folder: &TestHost, source: &str, tables: &str) {
    folder.write(
        "tidelock.toml",
        format!(
            "name = \"records\"\n[sources.in]\n{source}\n\
             [sinks.out]\ntype = \"file\"\npath = \"out.txt\"\ninputs = [\"in\"]\n{tables}"
        ),
    );
}

fn file(format: &str, more: &str) -> String {
    format!("type = \"file\"\npath = \"input\"\nformat = \"{format}\"\n{more}")
}

fn out(folder: &TestHost) -> Vec<u8> {
    folder.read("out.txt")
}

/// All dead letters of the folder's data directory, in the order of their partitions and epochs.
pub(crate) fn letters(folder: &TestHost) -> Vec<(DeadLetterId, DeadLetter)> {
    let data = folder.path(".tidelock");
    let storage = EmbeddedStorage::open(&data, EmbeddedOptions::default());
    let storage = storage.expect("nobody else has it");
    let of_partition = |partition| {
        let read = read_letters(
            &storage,
            PartitionId(partition),
            None,
            ScanLimit::rows(LETTERS_MAX),
        );
        read.expect("the store is sound")
    };
    let all = (1..PARTITIONS_MAX).flat_map(of_partition);
    all.map(|(id, letter)| (id, letter.expect("it decodes")))
        .collect()
}

/// Which record a letter keeps, and how it failed.
#[derive(Debug, PartialEq, Eq)]
struct KeptRecord {
    of: String,
    line: u64,
    bytes: Vec<u8>,
    size_bytes: u64,
    class: String,
    reason: String,
}

/// The records that letters of source `in` keep.
fn kept(letters: &[(DeadLetterId, DeadLetter)]) -> Vec<KeptRecord> {
    let record = |(_, letter): &(DeadLetterId, DeadLetter)| {
        let LetterOrigin::Source { name } = &letter.origin else {
            panic!("{letter:?}");
        };
        assert_eq!((name.as_str(), letter.pipeline.as_str()), ("in", "records"));
        assert_eq!((letter.attempts, &letter.root), (1, &None));
        let LetterItem::Record {
            of,
            position,
            bytes,
            size_bytes,
        } = &letter.item
        else {
            panic!("{letter:?}");
        };
        assert!(letter.location.contains("source in"), "{}", letter.location);
        assert!(
            letter.location.contains(&format!("line {position}")),
            "{}",
            letter.location
        );
        assert!(letter.written > 0 && letter.deployment > 0);
        KeptRecord {
            of: of.clone(),
            line: *position,
            bytes: bytes.clone(),
            size_bytes: *size_bytes,
            class: letter.failure.class.clone(),
            reason: letter.failure.reason.clone(),
        }
    };
    letters.iter().map(record).collect()
}

/// What is expected of a record that is kept whole.
fn whole(of: &str, line: u64, bytes: &[u8], class: &str, reason: &str) -> KeptRecord {
    KeptRecord {
        of: of.to_owned(),
        line,
        bytes: bytes.to_vec(),
        size_bytes: bytes.len() as u64,
        class: class.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Records of a format: the good ones, and the bad ones with what is told of them.
struct Records {
    format: &'static str,
    /// What comes before the first one.
    header: &'static str,
    good: [&'static [u8]; 4],
    bad: Vec<(Vec<u8>, &'static str, &'static str)>,
}

const TOO_LONG: &str = "the record is longer than max_record_bytes = 200";

fn records() -> [Records; 3] {
    let long = |byte| (vec![byte; 201], "record_too_long", TOO_LONG);
    let undecodable = |bytes: &[u8], reason| (bytes.to_vec(), "undecodable", reason);
    [
        Records {
            format: "lines",
            header: "",
            good: [b"one", b"", b"two\xff", b"three"],
            bad: vec![long(b'x'), long(b' ')],
        },
        Records {
            format: "jsonl",
            header: "",
            good: [b"{\"a\":1}", b"2", b"[\"three\"]", b"\"four\""],
            bad: vec![
                undecodable(
                    b"{\"a\":",
                    "the record is not jsonl: EOF while parsing a value at column 5",
                ),
                undecodable(b"\"\xff\"", "the record is not jsonl: byte 2 is not UTF-8"),
                long(b'['),
                undecodable(
                    b"1 2",
                    "the record is not jsonl: trailing characters at column 3",
                ),
            ],
        },
        Records {
            format: "csv",
            header: "a,b\r\n",
            good: [b"1,2", b"\"x\ny\",3", b"4,", b"5,\"6\""],
            bad: vec![
                undecodable(
                    b"1",
                    "the record is not csv: it has 1 fields, the header has 2",
                ),
                undecodable(
                    b"1,2,3",
                    "the record is not csv: it has 3 fields, the header has 2",
                ),
                undecodable(
                    b"1,\xfe",
                    "the record is not csv: field 2: byte 1 is not UTF-8",
                ),
                undecodable(
                    b"\"x\"z,1",
                    "the record is not csv: field 1 goes on behind its closing quote",
                ),
                long(b','),
            ],
        },
    ]
}

/// The file with all records, each bad one behind a good one, and what letters are to say of it.
fn with_bad_records(records: &Records, end: &[u8]) -> (Vec<u8>, Vec<KeptRecord>) {
    let mut content = records.header.as_bytes().to_vec();
    let mut expected = Vec::new();
    let mut line = 1 + records.header.lines().count() as u64;
    let mut add = |record: &[u8], content: &mut Vec<u8>| {
        let begin = line;
        line += 1 + record.iter().filter(|byte| **byte == b'\n').count() as u64;
        content.extend_from_slice(record);
        content.extend_from_slice(end);
        begin
    };
    for index in 0..records.bad.len().max(records.good.len()) {
        if let Some(good) = records.good.get(index) {
            add(good, &mut content);
        }
        if let Some((bytes, class, reason)) = records.bad.get(index) {
            let line = add(bytes, &mut content);
            expected.push(whole("input", line, bytes, class, reason));
        }
    }
    (content, expected)
}

fn clean(records: &Records, end: &[u8]) -> Vec<u8> {
    let mut content = records.header.as_bytes().to_vec();
    for good in records.good {
        content.extend_from_slice(good);
        content.extend_from_slice(end);
    }
    content
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("memory is there");
    encoder.finish().expect("memory is there")
}

/// What a run over a file comes to.
fn out_of(content: &[u8], source: &str, tables: &str) -> (TestHost, Vec<u8>) {
    let folder = TestHost::new();
    folder.write("input", content);
    write_pipeline(&folder, source, tables);
    check_says(&run(&folder, &[]), 0, &[]);
    let rows = out(&folder);
    (folder, rows)
}

#[test]
fn p2_records_that_cannot_be_decoded_are_kept_and_the_others_lead_to_what_they_would_without_them()
{
    for records in records() {
        for end in [&b"\n"[..], b"\r\n"] {
            let format = records.format;
            let (content, expected) = with_bad_records(&records, end);
            let (_, undisturbed) = out_of(&clean(&records, end), &file(format, ""), "");
            assert!(!undisturbed.is_empty());
            let tolerant = file(
                format,
                "max_record_bytes = \"200B\"\non_failure = \"dead_letter\"",
            );
            for (packed, tables) in [
                (content.clone(), ""),
                (gzip(&content), ""),
                // However it is cut, and with a last line that has no end.
                (
                    content[..content.len() - end.len()].to_vec(),
                    "[epoch]\nmax_rows_per_batch = 1\n",
                ),
                (content.clone(), "[epoch]\nmax_rows_per_epoch = 2\n"),
            ] {
                let (folder, rows) = out_of(&packed, &tolerant, tables);
                assert_eq!(rows, undisturbed, "{format} {tables}");
                assert_eq!(kept(&letters(&folder)), expected, "{format} {tables}");
                // All of it is behind the position.
                check_says(&run(&folder, &[]), 0, &[" 0 records"]);
                assert_eq!(letters(&folder).len(), expected.len());
            }
        }
    }
}

/// A pipeline over lines of JSON, some bad, under this policy; and what letters are to say of the bad ones.
fn json_lines_under(policy: &str) -> (TestHost, Vec<KeptRecord>) {
    let (content, bad) = with_bad_records(&records()[1], b"\n");
    let folder = TestHost::new();
    folder.write("input", content);
    let source = file(
        "jsonl",
        &format!("max_record_bytes = \"200B\"\non_failure = \"{policy}\""),
    );
    write_pipeline(&folder, &source, "");
    (folder, bad)
}

#[test]
fn records_that_are_skipped_are_counted_and_leave_nothing() {
    let (folder, bad) = json_lines_under("skip");
    let finished = run(&folder, &["-o", "json"]);
    check_says(&finished, 0, &["8 records", "4 rows out, 4 skipped, "]);
    let document: Value = serde_json::from_str(&finished.stdout_text()).expect("it is JSON");
    assert_eq!(document["skipped"], bad.len());
    assert_eq!(document["dead_letters"], 0);
    assert_eq!(document["source_records"], 8);
    assert_eq!(document["jobs"][0]["skipped"], bad.len());
    assert_eq!(out(&folder), clean(&records()[1], b"\n"));
    assert_eq!(letters(&folder), []);
}

#[test]
fn dead_letters_are_counted_and_told() {
    let (folder, bad) = json_lines_under("dead_letter");
    let told = [
        "4 rows out, 4 dead letters, ",
        "job in: 4 items became dead letters",
        "tidelock dlq list",
    ];
    check_says(&run(&folder, &[]), 0, &told);
    assert_eq!(letters(&folder).len(), bad.len());
}

#[test]
fn a_run_that_fails_stops_at_the_record_and_goes_on_there_once_the_policy_allows_it() {
    let folder = TestHost::new();
    folder.write("input", "1\n2\n{\n3\n[\n");
    write_pipeline(&folder, &file("jsonl", ""), "");
    for _ in 0..2 {
        let said = [
            "input:3: the record is not jsonl: ",
            "on_failure = \"dead_letter\"",
        ];
        check_says(&run(&folder, &[]), 1, &said);
        assert_eq!(out(&folder), b"1\n2\n");
    }
    assert_eq!(letters(&folder), []);
    // That is no change of what the source reads.
    write_pipeline(&folder, &file("jsonl", "on_failure = \"dead_letter\""), "");
    check_says(&run(&folder, &[]), 0, &["3 records", "2 dead letters"]);
    assert_eq!(out(&folder), b"1\n2\n3\n");
    let lines: Vec<u64> = kept(&letters(&folder))
        .iter()
        .map(|record| record.line)
        .collect();
    assert_eq!(lines, [3, 5]);
}

#[test]
fn what_concerns_a_source_as_a_whole_fails_whatever_is_said_of_its_records() {
    let tolerant = |format: &str| file(format, "on_failure = \"dead_letter\"");
    let folder = TestHost::new();
    folder.write("input", "a,a\n1,2\n");
    write_pipeline(&folder, &tolerant("csv"), "");
    check_says(&run(&folder, &[]), 1, &["input:1: in the header, "]);
    let folder = TestHost::new();
    let packed = gzip(&b"1\n".repeat(100_000));
    folder.write("input", &packed[..packed.len() - 8]);
    write_pipeline(&folder, &tolerant("jsonl"), "");
    check_says(&run(&folder, &[]), 1, &["may be cut short or damaged"]);
    assert_eq!(letters(&folder), []);
}

/// The files and lines that the letters of a folder's store are of.
fn places_of_kept(folder: &TestHost) -> Vec<(String, u64)> {
    (kept(&letters(folder)).into_iter())
        .map(|record| (record.of, record.line))
        .collect()
}

#[test]
fn records_of_directories_are_kept_with_their_files() {
    let folder = TestHost::new();
    folder.write("in/a.jsonl", "1\n{");
    folder.write("in/b.jsonl", "{\n[\n");
    folder.write("in/c.jsonl", "[\n2\n");
    let source =
        "type = \"directory\"\npath = \"in\"\nformat = \"jsonl\"\non_failure = \"dead_letter\"";
    write_pipeline(&folder, source, "");
    check_says(
        &run(&folder, &[]),
        0,
        &["6 records", "2 rows out, 4 dead letters"],
    );
    assert_eq!(out(&folder), b"1\n2\n");
    let places = places_of_kept(&folder);
    let expected = [
        ("a.jsonl", 2),
        ("b.jsonl", 1),
        ("b.jsonl", 2),
        ("c.jsonl", 1),
    ];
    assert_eq!(places, expected.map(|(name, line)| (name.to_owned(), line)));
    // What was read to its end is not read again.
    check_says(&run(&folder, &[]), 0, &[" 0 records"]);
}

#[test]
fn files_that_wait_for_their_turn_keep_their_records_too() {
    let folder = TestHost::new();
    folder.write("a", "1\n{\n");
    folder.write("b", "[\n2\n");
    let source = "type = \"file\"\npaths = [\"a\", \"b\"]\nparallel_partitions = 1\n\
                  format = \"jsonl\"\non_failure = \"dead_letter\"";
    write_pipeline(&folder, source, "");
    check_says(&run(&folder, &[]), 0, &["2 rows out, 2 dead letters"]);
    let mut places = places_of_kept(&folder);
    places.sort();
    assert_eq!(places, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
}

#[test]
fn a_followed_file_waits_for_the_end_of_its_last_line_and_then_judges_it() {
    let folder = TestHost::new();
    folder.write("input", "1\n{");
    let source = file("jsonl", "follow = true\non_failure = \"dead_letter\"");
    write_pipeline(&folder, &source, "");
    let append = |bytes: &[u8]| {
        let file = std::fs::File::options()
            .append(true)
            .open(folder.path("input"));
        file.expect("it is there")
            .write_all(bytes)
            .expect("it is written");
    };
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", 1);
    append(b"\"a\":2}\n{");
    running.wait_for_lines("epoch committed", 2);
    // An epoch of its own, though nothing goes on of it.
    append(b"\n");
    running.wait_for_lines("epoch committed", 3);
    append(b"3\n");
    running.wait_for_lines("epoch committed", 4);
    let _ = running.interrupt();
    assert_eq!(out(&folder), b"1\n{\"a\":2}\n3\n");
    let records = kept(&letters(&folder));
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].line, records[0].bytes.as_slice()),
        (3, &b"{"[..])
    );
}

#[test]
fn watermarks_timers_and_lateness_do_not_know_of_records_that_are_passed_over() {
    let lines = [
        "b 10 ring 30",
        "a 11 ring 30",
        "a 12 chime 30",
        "a 29 say",
        "a 30 say",
        "a 5 say",
        "d 31 ring 40",
        "d 60 say",
        "d 61 say",
    ];
    let rubbish = "x".repeat(101);
    let watermarks =
        "watermark_generator = { out_of_orderness_bound = \"1ms\", records_per_watermark = 2 }";
    let more = format!(
        "[sources.lines]\nmax_record_bytes = \"100B\"\non_failure = \"dead_letter\"\n{watermarks}"
    );
    let clean = alarms::alarms(&lines, &more);
    let expected = alarms::run(&clean);
    // In any number before, between and behind them, in any cut into batches.
    for (before, tables) in [
        (1, ""),
        (3, "[epoch]\nmax_rows_per_batch = 2\n"),
        (2, "[epoch]\nmax_rows_per_epoch = 1\n"),
    ] {
        let mut disturbed = Vec::new();
        for line in lines {
            disturbed.extend(vec![rubbish.as_str(); before]);
            disturbed.push(line);
        }
        disturbed.push(&rubbish);
        let folder = alarms::alarms(&disturbed, &format!("{more}\n{tables}"));
        assert_eq!(alarms::run(&folder), expected, "{before} {tables}");
        assert_eq!(letters(&folder).len(), lines.len() * before + 1);
    }
}

#[test]
fn a_file_of_rubbish_makes_many_epochs_and_no_giant_one() {
    const LINES: usize = 4_000;
    const EPOCH_BYTES: usize = 64 << 10;
    let line = [&[b'{'; 500][..], b"\n"].concat();
    let source = file("jsonl", "on_failure = \"dead_letter\"");
    let folder = TestHost::new();
    folder.write("input", line.repeat(LINES));
    write_pipeline(
        &folder,
        &source,
        "[epoch]\nmax_bytes_per_epoch = \"64KiB\"\nmax_rows_per_batch = 20\n",
    );
    check_says(
        &run(&folder, &[]),
        0,
        &["4000 records", "4,000 dead letters"],
    );
    let letters = letters(&folder);
    assert_eq!(letters.len(), LINES);
    let mut by_epoch = std::collections::BTreeMap::<_, usize>::new();
    for (id, letter) in &letters {
        let LetterItem::Record { bytes, .. } = &letter.item else {
            panic!("{letter:?}");
        };
        *by_epoch.entry(id.epoch).or_default() += bytes.len();
    }
    let largest = by_epoch.values().max().expect("there are epochs");
    assert!(*largest <= EPOCH_BYTES + line.len(), "{largest}");
    // What a letter says beside its record counts as well: that is more than the record here.
    let of_records_alone = LINES * line.len() / EPOCH_BYTES;
    assert!(by_epoch.len() > 2 * of_records_alone, "{}", by_epoch.len());
}

#[test]
fn p2_kills_lose_and_repeat_neither_rows_nor_letters_of_a_source() {
    const LINES: u64 = 30_000;
    const ROUNDS: usize = 12;
    let mut content = Vec::new();
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for line in 1..=LINES {
        let record = match line % 7 {
            0 => format!("{{\"line\": {line}"),
            3 => format!("{{\"line\": {line}, \"text\": \"{}\"}}", "x".repeat(200)),
            _ => format!("{{\"line\": {line}}}"),
        };
        content.extend_from_slice(record.as_bytes());
        content.push(b'\n');
        match line % 7 {
            0 | 3 => bad.push((line, record.into_bytes())),
            _ => good.extend_from_slice(format!("{record}\n").as_bytes()),
        }
    }
    let folder = TestHost::new();
    folder.write("input", content);
    let source = file(
        "jsonl",
        "max_record_bytes = \"200B\"\non_failure = \"dead_letter\"",
    );
    write_pipeline(&folder, &source, "[epoch]\nmax_rows_per_epoch = 50\n");
    let mut hit = 0;
    for round in 0..ROUNDS {
        let mut running = folder.start(["--log", "debug", "run", "."]);
        running.wait_for_lines("epoch committed", 1 + round * 3);
        hit += usize::from(running.kill().was_killed());
    }
    assert!(
        hit >= ROUNDS - 2,
        "too few kills hit a running epoch: {hit}"
    );
    check_says(&run(&folder, &[]), 0, &[]);
    assert!(
        out(&folder) == good,
        "rows are not those of the good records"
    );
    let kept: Vec<(u64, Vec<u8>)> = (kept(&letters(&folder)).into_iter())
        .map(|record| (record.line, record.bytes))
        .collect();
    assert!(
        kept == bad,
        "letters are not those of the bad records: {} of {}",
        kept.len(),
        bad.len()
    );
}
