//! Records and their lines for every format and compression; resuming from every position; files
//! that grow, shrink and change; damage of all kinds.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::types::column::Column;
use crate::types::pipeline::SourceConnector;

/// How a test's content is laid into its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    /// Several gzip members, cut anywhere.
    GzipMembers,
    ZipStored,
    ZipDeflated,
}

pub(super) const PACKINGS: [Packing; 5] = [
    Packing::Plain,
    Packing::Gzip,
    Packing::GzipMembers,
    Packing::ZipStored,
    Packing::ZipDeflated,
];

pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zip_of(members: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, content) in members {
        match name.ends_with('/') {
            true => writer.add_directory(*name, options).unwrap(),
            false => {
                writer.start_file(*name, options).unwrap();
                writer.write_all(content).unwrap();
            }
        }
    }
    writer.finish().unwrap().into_inner()
}

pub(super) fn pack(content: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => content.to_vec(),
        Packing::Gzip => gzip(content),
        Packing::GzipMembers => {
            let chunk_bytes = content.len().div_ceil(3).max(1);
            let members = content.chunks(chunk_bytes).map(gzip);
            let packed = members.collect::<Vec<_>>().concat();
            if packed.is_empty() { gzip(b"") } else { packed }
        }
        Packing::ZipStored => zip_of(
            &[("data/", b""), ("data/x.csv", content)],
            zip::CompressionMethod::Stored,
        ),
        Packing::ZipDeflated => zip_of(&[("x.csv", content)], zip::CompressionMethod::Deflated),
    }
}

/// A file in a folder of its own.
pub(super) struct TestFile {
    folder: tempfile::TempDir,
    pub(super) options: FileSourceOptions,
}

impl TestFile {
    pub(super) fn new(format: RecordFormat, bytes: &[u8]) -> TestFile {
        let folder = tempfile::tempdir().unwrap();
        let options = FileSourceOptions {
            follow: false,
            path: folder.path().join("input"),
            written_path: "input".to_owned(),
            format,
            max_record_bytes: FileSourceOptions::RECORD_BYTES_MAX_DEFAULT,
        };
        let file = TestFile { folder, options };
        file.write(bytes);
        file
    }

    fn write(&self, bytes: &[u8]) {
        // Writing over a file makes some file systems wait for the disk.
        let _ = std::fs::remove_file(&self.options.path);
        std::fs::write(&self.options.path, bytes).unwrap();
    }

    pub(super) fn open(&self, position: Option<&[u8]>) -> Result<FileSource, SourceError> {
        FileSource::open(&self.options, position, OnChange::Refuse)
    }

    /// The message of an error about this file, without the folder's own name.
    pub(super) fn message(&self, error: &SourceError) -> String {
        let folder = format!("{}/", self.folder.path().display());
        error.to_string().replace(&folder, "")
    }
}

pub(super) const NO_LIMIT: PollLimit = PollLimit {
    rows: usize::MAX,
    bytes: usize::MAX,
};

/// All records up to the end or the first error.
fn read_on(source: &mut FileSource, limit: PollLimit) -> (SourceRecords, Option<SourceError>) {
    let mut all = SourceRecords::default();
    loop {
        let before = all.lines.len();
        match source.poll(limit, &mut all) {
            Ok(PollOutcome::End | PollOutcome::Wait) => return (all, None),
            Ok(PollOutcome::More) => {
                let taken = all.lines.len() - before;
                assert!(
                    (1..=limit.rows).contains(&taken),
                    "a poll moves on within its limit"
                );
            }
            Err(error) => {
                assert_eq!(all.lines.len(), before, "a poll that fails appends nothing");
                return (all, Some(error));
            }
        }
    }
}

fn records_of(records: &SourceRecords) -> Vec<(u64, Vec<u8>)> {
    assert!(records.payloads.is_well_formed());
    assert_eq!(records.payloads.len(), records.lines.len());
    let payloads = records.payloads.iter().map(<[u8]>::to_vec);
    records.lines.iter().copied().zip(payloads).collect()
}

fn read_all(file: &TestFile) -> (Vec<(u64, Vec<u8>)>, Option<SourceError>) {
    let mut source = match file.open(None) {
        Ok(source) => source,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (records, error) = read_on(&mut source, NO_LIMIT);
    (records_of(&records), error)
}

/// Compares lines and payloads of `content` under every packing.
#[track_caller]
fn check(format: RecordFormat, content: &str, expected: &[(u64, &str)]) {
    for packing in PACKINGS {
        let file = TestFile::new(format, &pack(content.as_bytes(), packing));
        let (records, error) = read_all(&file);
        assert!(error.is_none(), "{packing:?}: {error:?}");
        let expected = expected
            .iter()
            .map(|(line, payload)| (*line, payload.as_bytes().to_vec()));
        assert_eq!(records, expected.collect::<Vec<_>>(), "{packing:?}");
    }
}

/// Compares the error that ends reading `content`, and how many records come before it.
#[track_caller]
fn check_error(format: RecordFormat, content: &[u8], count: usize, expected: &str) {
    for packing in PACKINGS {
        let file = TestFile::new(format, &pack(content, packing));
        let (records, error) = read_all(&file);
        let error = error.expect("reading ends with an error");
        assert_eq!(file.message(&error), expected, "{packing:?}");
        assert_eq!(records.len(), count, "{packing:?}");
    }
}

#[test]
fn lines_are_payloads_without_their_ends() {
    let lines = RecordFormat::Lines;
    check(lines, "", &[]);
    check(lines, "a\nb\n", &[(1, "a"), (2, "b")]);
    check(lines, "a\nb", &[(1, "a"), (2, "b")]);
    check(lines, "a\r\nb\r\n", &[(1, "a"), (2, "b")]);
    check(lines, "\n\na\n", &[(1, ""), (2, ""), (3, "a")]);
    check(lines, "a\rb\r\r\nc\r", &[(1, "a\rb\r"), (2, "c\r")]);
    check(
        lines,
        "\u{feff}a\n\u{feff}b\n",
        &[(1, "a"), (2, "\u{feff}b")],
    );
    check(lines, "\u{feff}", &[]);
}

#[test]
fn lines_carry_any_bytes() {
    let file = TestFile::new(RecordFormat::Lines, b"\xff\x00\xfe\n\x1f\n");
    let (records, error) = read_all(&file);
    assert!(error.is_none());
    assert_eq!(
        records,
        [(1, b"\xff\x00\xfe".to_vec()), (2, b"\x1f".to_vec())]
    );
}

#[test]
fn csv_rows_become_objects_in_the_order_of_the_header() {
    let csv = RecordFormat::Csv;
    check(csv, "", &[]);
    check(csv, "z,a\n", &[]);
    check(csv, "z,a", &[]);
    check(csv, "z,a\n1,2\n", &[(2, r#"{"z":"1","a":"2"}"#)]);
    check(
        csv,
        "\u{feff}z,a\r\n1,\r\n\r\n,2",
        &[(2, r#"{"z":"1","a":""}"#), (4, r#"{"z":"","a":"2"}"#)],
    );
    check(
        csv,
        "\"a \"\"b\"\"\",c\n\"x\ny,\"\"\r\nz\",\"\"\n1,2\n",
        &[
            (2, r#"{"a \"b\"":"x\ny,\"\r\nz","c":""}"#),
            (5, r#"{"a \"b\"":"1","c":"2"}"#),
        ],
    );
    check(
        csv,
        "a,b\n5\" pipe,\"c\"\n",
        &[(2, r#"{"a":"5\" pipe","b":"c"}"#)],
    );
    check(csv, "a\n\n1\n\n", &[(3, r#"{"a":"1"}"#)]);
    check(csv, "a\n\"\"\n", &[(2, r#"{"a":""}"#)]);
}

#[test]
fn malformed_csv_is_an_error_with_its_line() {
    let csv = RecordFormat::Csv;
    let after = "; correct the file, or read it as lines, or pass over such records with on_failure = \"dead_letter\"";
    let check = |content: &[u8], count: usize, line: usize, finding: &str| {
        let expected = format!("input:{line}: the record is not csv: {finding}{after}");
        check_error(csv, content, count, &expected);
    };
    check(
        b"a,b\n1,2\n1\n3,4\n",
        1,
        3,
        "it has 1 fields, the header has 2",
    );
    check(b"a,b\n1,2,3\n", 0, 2, "it has 3 fields, the header has 2");
    check(
        b"a,b\n1,2\n\"x\ny\"z,2\n",
        1,
        3,
        "field 1 goes on behind its closing quote",
    );
    check(
        b"a,b\n1,\"2\n3,4\n",
        0,
        2,
        "a field has no closing quote before the file's end",
    );
    check(b"a,b\n1,x\xff\n", 0, 2, "field 2: byte 2 is not UTF-8");
    let check_header = |content: &[u8], finding: &str| {
        let expected = format!(
            "input:1: in the header, the record is not csv: {finding}; correct the file, or read it as lines"
        );
        check_error(csv, content, 0, &expected);
    };
    check_header(b"a,\xff\n", "byte 1 is not UTF-8");
    check_header(b"a,b,a\n", "two columns have the name \"a\"");
}

#[test]
fn json_lines_pass_as_they_stand() {
    let jsonl = RecordFormat::Jsonl;
    check(jsonl, "", &[]);
    check(
        jsonl,
        "{\"b\": 1,  \"a\":[] }\r\n \t\n 7\n\"x\"",
        &[(1, "{\"b\": 1,  \"a\":[] }"), (3, " 7"), (4, "\"x\"")],
    );
    let after = "; correct the file, or read it as lines, or pass over such records with on_failure = \"dead_letter\"";
    let check = |content: &[u8], count: usize, line: usize, finding: &str| {
        let expected = format!("input:{line}: the record is not jsonl: {finding}{after}");
        check_error(jsonl, content, count, &expected);
    };
    check(b"1\n{\"a\":}\n", 1, 2, "expected value at column 6");
    check(b"{} {}\n", 0, 1, "trailing characters at column 4");
    check(b"\"\xff\"\n", 0, 1, "byte 2 is not UTF-8");
}

#[test]
fn a_record_may_be_as_long_as_the_limit_and_no_longer() {
    for (content, count, too_long_line) in [
        (&b"1234\n1234\r\n1234"[..], 3, None),
        (b"12345\n", 0, Some(1)),
        (b"1\n12345\r\n", 1, Some(2)),
        (b"1\n\n12345", 2, Some(3)),
        (b"1\n123456789", 1, Some(2)),
    ] {
        for packing in PACKINGS {
            let mut file = TestFile::new(RecordFormat::Lines, &pack(content, packing));
            file.options.max_record_bytes = 4;
            let (records, error) = read_all(&file);
            assert_eq!(records.len(), count);
            assert_eq!(
                error.map(|error| file.message(&error)),
                too_long_line.map(|line| format!(
                    "input:{line}: the record is longer than max_record_bytes = 4; raise it, or \
                     look for a missing line end or closing quote, or pass over such records with \
                     on_failure = \"dead_letter\""
                ))
            );
        }
    }
}

#[test]
fn memory_is_bounded_by_the_longest_record_accepted() {
    // 64 MiB without a line end, 64 kB compressed.
    let content = vec![b'x'; 64 << 20];
    let file = TestFile::new(RecordFormat::Lines, &gzip(&content));
    let mut source = file.open(None).unwrap();
    let (_, error) = read_on(&mut source, NO_LIMIT);
    assert!(matches!(
        error,
        Some(SourceError::Record {
            line: 1,
            flaw: RecordFlaw::TooLong { .. },
            ..
        })
    ));
    assert!(source.window.buffer_bytes() <= 4 * file.options.max_record_bytes);
}

/// Content with every peculiarity of the format in it.
fn rich_content(format: RecordFormat) -> Vec<u8> {
    match format {
        RecordFormat::Lines => b"\xef\xbb\xbfone\r\n\n\rtwo\r\r\n\xff\nthree\n\n".to_vec(),
        RecordFormat::Csv => {
            b"\xef\xbb\xbfa,\"b\n\"\r\n1,2\r\n\n\"x\"\"\n,\",\"\"\n,\n\"\r\n\",3".to_vec()
        }
        RecordFormat::Jsonl => b"{\"a\":1}\r\n\n 2 \n\"x\"\n\t\n[]\r\n3".to_vec(),
    }
}

/// Content that is longer than the window, with some records longer than most.
fn long_content(format: RecordFormat) -> Vec<u8> {
    let mut content = match format {
        RecordFormat::Csv => b"a,b\n".to_vec(),
        _ => Vec::new(),
    };
    for index in 0..40_u32 {
        let word = "0".repeat(1 + (index as usize * 7_919) % 40_000);
        let record = match format {
            RecordFormat::Lines => format!("{index}{word}\n"),
            RecordFormat::Csv => format!("{index},\"{word}\n\"\n"),
            RecordFormat::Jsonl => format!("\"{index}{word}\"\n"),
        };
        content.extend_from_slice(record.as_bytes());
    }
    content
}

const FORMATS: [RecordFormat; 3] = [RecordFormat::Lines, RecordFormat::Csv, RecordFormat::Jsonl];

#[test]
fn any_cut_into_polls_and_any_resumption_give_the_same_records() {
    for format in FORMATS {
        for content in [rich_content(format), long_content(format)] {
            for packing in PACKINGS {
                let file = TestFile::new(format, &pack(&content, packing));
                let (expected, error) = read_all(&file);
                assert!(error.is_none() && expected.len() > 3, "{error:?}");

                for (rows, bytes) in [
                    (1, 1),
                    (2, usize::MAX),
                    (usize::MAX, 1),
                    (3, 9),
                    (7, 50_000),
                ] {
                    let limit = PollLimit { rows, bytes };
                    let (records, error) = read_on(&mut file.open(None).unwrap(), limit);
                    assert!(error.is_none());
                    assert_eq!(
                        records_of(&records),
                        expected,
                        "{format:?} {packing:?} {limit:?}"
                    );
                }

                let mut source = file.open(None).unwrap();
                for passed in 0..=expected.len() {
                    let position = source.position();
                    let mut resumed = file.open(Some(&position)).unwrap();
                    assert_eq!(resumed.position(), position, "{format:?} {packing:?}");
                    let (records, error) = read_on(&mut resumed, NO_LIMIT);
                    assert!(error.is_none(), "{error:?}");
                    assert_eq!(
                        records_of(&records),
                        expected[passed..],
                        "{format:?} {packing:?}"
                    );
                    let one = PollLimit { rows: 1, bytes: 1 };
                    source.poll(one, &mut SourceRecords::default()).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_poll_keeps_to_its_bytes_but_for_the_first_record() {
    for packing in PACKINGS {
        let file = TestFile::new(RecordFormat::Lines, &pack(b"12345\n12\n34\n5\n", packing));
        let mut source = file.open(None).unwrap();
        let mut sizes = Vec::new();
        let mut outcome = PollOutcome::More;
        while outcome == PollOutcome::More {
            let mut records = SourceRecords::default();
            let limit = PollLimit { rows: 9, bytes: 4 };
            outcome = source.poll(limit, &mut records).unwrap();
            sizes.push(records.payloads.bytes.len());
        }
        assert_eq!(sizes, [5, 4, 1], "{packing:?}");
    }
}

#[test]
fn polls_append_to_what_is_there() {
    let file = TestFile::new(RecordFormat::Lines, b"b\n");
    let mut records = SourceRecords {
        payloads: [&b"a"[..]].into_iter().collect::<Column>(),
        lines: vec![9],
        ..SourceRecords::default()
    };
    file.open(None)
        .unwrap()
        .poll(NO_LIMIT, &mut records)
        .unwrap();
    assert_eq!(
        records_of(&records),
        [(9, b"a".to_vec()), (1, b"b".to_vec())]
    );
}

#[test]
fn r2_records_keep_the_write_time_that_the_file_had_when_it_was_opened_first() {
    let file = TestFile::new(RecordFormat::Lines, b"a\nb\n");
    let written = |at: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at);
        let opened = std::fs::File::options()
            .append(true)
            .open(&file.options.path);
        opened.unwrap().set_modified(time).unwrap();
    };
    let write_times = |source: &mut FileSource| -> Vec<u64> {
        let one = PollLimit { rows: 1, bytes: 9 };
        let mut records = SourceRecords::default();
        source.poll(one, &mut records).unwrap();
        records.write_times.iter().collect()
    };
    written(1_234_567);
    let mut source = file.open(None).unwrap();
    assert_eq!(source.write_time(), 1_234_567);
    assert_eq!(write_times(&mut source), [1_234_567]);
    written(9_999_999);
    let mut next = file.open(Some(&source.position())).unwrap();
    assert_eq!(write_times(&mut next), [1_234_567]);
    // What is behind an end that was seen was written later.
    let mut appended = std::fs::File::options();
    let mut appended = appended.append(true).open(&file.options.path).unwrap();
    appended.write_all(b"c\nd\n").unwrap();
    written(5_555_555);
    let mut grown = file.open(Some(&next.position())).unwrap();
    assert_eq!(grown.write_time(), 5_555_555);
    assert_eq!(write_times(&mut grown), [5_555_555]);
    written(7_777_777);
    let mut last = file.open(Some(&grown.position())).unwrap();
    assert_eq!(write_times(&mut last), [5_555_555]);
    assert_eq!(
        file.open(Some(&last.position())).unwrap().write_time(),
        5_555_555
    );
}

#[test]
fn after_the_end_a_source_stays_at_its_end_although_the_file_grows() {
    let file = TestFile::new(RecordFormat::Lines, b"a\n");
    let mut source = file.open(None).unwrap();
    assert_eq!(read_on(&mut source, NO_LIMIT).0.lines, [1]);
    file.write(b"a\nb\n");
    assert_eq!(read_on(&mut source, NO_LIMIT).0.lines, [0_u64; 0]);
    let mut next = file.open(Some(&source.position())).unwrap();
    assert_eq!(read_on(&mut next, NO_LIMIT).0.lines, [2]);
}

#[test]
fn a_file_that_grew_from_any_length_gives_the_new_part_only() {
    for format in FORMATS {
        let content = rich_content(format);
        for packing in PACKINGS {
            let (expected, _) = read_all(&TestFile::new(format, &pack(&content, packing)));
            let mut refused = 0;
            for length in 0..=content.len() {
                let file = TestFile::new(format, &pack(&content[..length], packing));
                // A torn record at the end may be an error; the position stands before it.
                let Ok(mut source) = file.open(None) else {
                    continue;
                };
                let (first, _) = read_on(&mut source, NO_LIMIT);
                file.write(&pack(&content, packing));
                match file.open(Some(&source.position())) {
                    Ok(mut resumed) => {
                        let mut all = records_of(&first);
                        all.extend(records_of(&read_on(&mut resumed, NO_LIMIT).0));
                        assert_eq!(all, expected, "{format:?} {packing:?} {length}");
                    }
                    Err(SourceError::IdentityChanged { .. }) => {
                        // Only a last line that was taken without its end and has grown since.
                        assert_ne!(content.get(length - 1), Some(&b'\n'));
                        assert!(!first.lines.is_empty());
                        refused += 1;
                    }
                    Err(error) => panic!("{format:?} {packing:?} {length}: {error}"),
                }
            }
            assert!(refused > 0, "{format:?} {packing:?}");
        }
    }
}

/// Reads `before` to its end, writes `after`, and compares what opening at the position says.
#[track_caller]
fn check_change(before: &[u8], after: &[u8], expected: Option<&str>) {
    let file = TestFile::new(RecordFormat::Lines, before);
    let mut source = file.open(None).unwrap();
    let (first, _) = read_on(&mut source, NO_LIMIT);
    assert!(!first.lines.is_empty());
    let position = source.position();
    file.write(after);
    let refused = file.open(Some(&position)).map(drop);
    let expected_message = expected.map(|values| {
        format!(
            "input is not the file that was read before: it had {values}; put the old file back, \
             or read this one from its beginning with --accept-change"
        )
    });
    assert_eq!(
        refused.err().map(|error| file.message(&error)),
        expected_message
    );

    // Accepted, a changed file starts over as the next incarnation and an unchanged one goes on.
    let mut accepted =
        FileSource::open(&file.options, Some(&position), OnChange::StartOver).unwrap();
    let (records, _) = read_on(&mut accepted, NO_LIMIT);
    let (all, _) = read_all(&TestFile::new(RecordFormat::Lines, after));
    match expected {
        Some(_) => assert_eq!((accepted.incarnation(), records_of(&records)), (1, all)),
        None => assert_eq!(
            (accepted.incarnation(), records_of(&records)),
            (0, all[first.lines.len()..].to_vec())
        ),
    }
    let resumed = FileSource::open(&file.options, Some(&accepted.position()), OnChange::Refuse);
    assert_eq!(resumed.unwrap().incarnation(), accepted.incarnation());
}

#[test]
fn a_changed_file_is_refused_with_both_values_until_accepted() {
    check_change(b"a\nb\n", b"a\nb\n", None);
    check_change(b"a\nb\n", b"a\nb\nc\n", None);
    check_change(b"a\nb", b"a\nb\n", None);
    check_change(b"a\nb", b"a\nb\r\nc", None);
    let end = "more of that line behind offset 3";
    let was = "line 2 as its last, without a line end, it has";
    check_change(b"a\nb", b"a\nbc\n", Some(&format!("{was} {end}")));
    check_change(b"a\nb", b"a\nb\r", Some(&format!("{was} {end}")));
    check_change(
        b"\xef",
        b"\xef\xbb\xbfa\n",
        Some("line 1 as its last, without a line end, it has more of that line behind offset 1"),
    );
    // A longer file that was cut keeps its beginning.
    let long = b"0123456789abcde\n".repeat(1_000);
    let shorter = Some("at least 16000 bytes, it has 15984 bytes");
    check_change(&long, &long[..15_984], shorter);
    // Only the bytes just before the position differ.
    let mut edited = long.clone();
    edited[15_990] = b'!';
    let sum = |bytes: &[u8]| format!("{:?}", Fingerprint::of(bytes).checksum);
    let (was, now) = (sum(&long[16_000 - 4_096..]), sum(&edited[16_000 - 4_096..]));
    let place = "before offset 16000";
    let values = format!(
        "4096 bytes with checksum {was} {place}, it has 4096 bytes with checksum {now} {place}"
    );
    check_change(&long, &edited, Some(&values));
    // Only the beginning differs.
    let mut edited = long.clone();
    edited[0] = b'!';
    let (was, now) = (sum(&long[..4_096]), sum(&edited[..4_096]));
    let place = "as its beginning";
    let values = format!(
        "4096 bytes with checksum {was} {place}, it has 4096 bytes with checksum {now} {place}"
    );
    check_change(&long, &edited, Some(&values));
    // An empty file is a changed one.
    let (was, now) = (sum(b"a\n"), sum(b""));
    let values =
        format!("2 bytes with checksum {was} {place}, it has 0 bytes with checksum {now} {place}");
    check_change(b"a\n", b"", Some(&values));
}

#[test]
fn the_same_content_packed_otherwise_is_the_same_file() {
    let content = rich_content(RecordFormat::Lines);
    let file = TestFile::new(RecordFormat::Lines, &content);
    let mut source = file.open(None).unwrap();
    let _ = read_on(&mut source, NO_LIMIT);
    for packing in PACKINGS {
        file.write(&pack(&[&content[..], b"new\n"].concat(), packing));
        let mut resumed = file.open(Some(&source.position())).unwrap();
        assert_eq!(read_on(&mut resumed, NO_LIMIT).0.payloads.bytes, b"new");
    }
}

#[test]
fn another_format_is_another_file() {
    let mut file = TestFile::new(RecordFormat::Lines, b"1\n");
    let mut source = file.open(None).unwrap();
    let _ = read_on(&mut source, NO_LIMIT);
    file.options.format = RecordFormat::Jsonl;
    let error = file.open(Some(&source.position())).unwrap_err();
    assert!(
        file.message(&error)
            .contains("it had the format lines, it has the format jsonl")
    );
}

/// Another content under the same name, length and modification time: whoever decompresses it sees that.
#[test]
fn a_finished_packed_file_is_looked_into_only_when_it_was_touched() {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890_123_456_789);
    for packing in PACKINGS.into_iter().filter(|it| *it != Packing::Plain) {
        let file = TestFile::new(RecordFormat::Lines, b"");
        let write = |content: &[u8], time| {
            file.write(&pack(content, packing));
            let opened = std::fs::File::options()
                .append(true)
                .open(&file.options.path);
            opened.unwrap().set_modified(time).unwrap();
        };
        let connector = SourceConnector::File(file.options.clone());
        let open =
            |position| crate::source::open(&connector, crate::source::Opening::at(Some(position)));
        write(b"one\ntwo\n", time);
        let mut source = file.open(None).unwrap();
        let one = PollLimit { rows: 1, bytes: 9 };
        source.poll(one, &mut SourceRecords::default()).unwrap();
        let middle = source.position();
        let _ = read_on(&mut source, NO_LIMIT);
        let end = source.position();
        // Opened again and not read on, it says the same of its end.
        assert_eq!(file.open(Some(&end)).unwrap().position(), end);

        write(b"two\none\n", time);
        let mut finished = open(&end).unwrap();
        let mut records = SourceRecords::default();
        let polled = finished.poll(NO_LIMIT, &mut records).unwrap();
        assert!(polled == PollOutcome::End && records.payloads.is_empty());
        assert_eq!(finished.position(), end);
        assert_eq!(finished.write_time(), source.write_time());
        assert_eq!(finished.progress(), source.progress());
        let is_refused =
            |position| matches!(open(position), Err(SourceError::IdentityChanged { .. }));
        assert!(is_refused(&middle), "{packing:?}: it was not finished");
        write(b"two\none\n", time + std::time::Duration::from_nanos(1));
        assert!(is_refused(&end), "{packing:?}: it was touched");
        write(b"one\ntwo\nthree\n", time);
        let mut grown = open(&end).unwrap();
        grown.poll(NO_LIMIT, &mut records).unwrap();
        assert_eq!(records.payloads.bytes, b"three", "{packing:?}");
    }
}

#[test]
fn a_file_is_recognized_by_records_that_it_holds() {
    let file = TestFile::new(RecordFormat::Csv, b"n\n");
    let positions = |content: &[u8]| {
        file.write(content);
        let mut source = file.open(None).unwrap();
        let _ = read_on(&mut source, NO_LIMIT);
        source.position()
    };
    let [header, short, long] = [&b"n\n"[..], b"n\n1\n", b"n\n1\n2\n"].map(positions);
    let is_recognizable = |position: &[u8]| read_position("f", position).unwrap().is_recognizable;
    assert!(!is_recognizable(&header));
    assert!(is_recognizable(&short) && is_recognizable(&long));
    let resumed = file.open(Some(&short)).unwrap().position();
    assert!(is_recognizable(&resumed), "it was read by an earlier run");
    let held = |content: &[u8]| {
        file.write(content);
        recognize(&file.options, &[&short, &long]).unwrap()
    };
    assert_eq!(held(b"n\n1\n2\n3\n"), [true, true]);
    assert_eq!(held(b"n\n1\n"), [true, false]);
    assert_eq!(held(b"n\n2\n"), [false, false]);
    assert_eq!(held(b""), [false, false]);
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(11);
    let magics: [&[u8]; 5] = [
        b"",
        b"\x1f\x8b\x08",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"\xef\xbb\xbf",
    ];
    for _ in 0..150 {
        let mut bytes = magics[random.below(magics.len())].to_vec();
        let alphabet = b"ab\"\",,\n\r{}[]:1\xff\x00";
        for _ in 0..random.below(400) {
            bytes.push(alphabet[random.below(alphabet.len())]);
        }
        read_through(&bytes);
    }
}

#[test]
fn damaged_archives_never_panic_and_never_pass_for_whole() {
    let mut random = Random(12);
    let content: Vec<u8> = (0..400_u32)
        .flat_map(|index| format!("{index}\n").into_bytes())
        .collect();
    for packing in [
        Packing::Gzip,
        Packing::GzipMembers,
        Packing::ZipStored,
        Packing::ZipDeflated,
    ] {
        let packed = pack(&content, packing);
        for _ in 0..60 {
            let mut bytes = packed.clone();
            let at = random.below(bytes.len());
            match random.below(2) {
                0 => bytes[at] ^= 1 << random.below(8),
                _ => bytes.truncate(at),
            }
            read_through(&bytes);
            let file = TestFile::new(RecordFormat::Lines, &bytes);
            let (records, error) = read_all(&file);
            let is_packed = bytes.starts_with(&packed[..4]);
            if error.is_none() && is_packed && records.len() != 400 {
                // Only whole members of a gzip file may be missing: that is a shorter file.
                assert_eq!(packing, Packing::GzipMembers);
            }
            if error.is_none() && is_packed {
                let read: Vec<u8> = records
                    .iter()
                    .flat_map(|(_, it)| [it, &b"\n"[..]].concat())
                    .collect();
                assert!(content.starts_with(&read) || packing == Packing::GzipMembers);
            }
        }
    }
}

/// Reads a file in every format, in small polls, resuming now and then.
fn read_through(bytes: &[u8]) {
    for format in FORMATS {
        let mut file = TestFile::new(format, bytes);
        file.options.max_record_bytes = 100;
        let Ok(mut source) = file.open(None) else {
            continue;
        };
        let limit = PollLimit { rows: 3, bytes: 50 };
        let mut records = SourceRecords::default();
        while let Ok(PollOutcome::More) = source.poll(limit, &mut records) {
            match file.open(Some(&source.position())) {
                Ok(resumed) => source = resumed,
                // The damage may lie within what is looked at to recognise the file.
                Err(error) => {
                    assert!(matches!(error, SourceError::Read { .. }), "{error}");
                    break;
                }
            }
        }
        assert!(records.payloads.is_well_formed());
    }
}

/// A small generator with a fixed seed (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn csv_agrees_with_another_reader() {
    let mut random = Random(13);
    let alphabet = ["a", "b", "\"", ",", "\n", "\r\n", " ", "é"];
    for _ in 0..200 {
        let columns = 1 + random.below(4);
        let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
        let names: Vec<String> = (0..columns).map(|index| format!("n{index}")).collect();
        writer.write_record(&names).unwrap();
        for _ in 0..random.below(6) {
            let mut field = || {
                let pieces = random.below(5);
                (0..pieces)
                    .map(|_| alphabet[random.below(alphabet.len())])
                    .collect::<String>()
            };
            let row: Vec<String> = (0..columns).map(|_| field()).collect();
            writer.write_record(&row).unwrap();
        }
        let content = writer.into_inner().unwrap();
        let mut reader = csv::Reader::from_reader(content.as_slice());
        let expected: Vec<serde_json::Value> = reader
            .deserialize::<std::collections::BTreeMap<String, String>>()
            .map(|row| serde_json::to_value(row.unwrap()).unwrap())
            .collect();
        let (records, error) = read_all(&TestFile::new(RecordFormat::Csv, &content));
        assert!(error.is_none(), "{error:?}");
        let records: Vec<serde_json::Value> = records
            .iter()
            .map(|(_, payload)| serde_json::from_slice(payload).unwrap())
            .collect();
        assert_eq!(records, expected, "{:?}", String::from_utf8_lossy(&content));
    }
}

#[test]
fn a_torn_file_is_an_error_however_often_it_is_asked() {
    let packed = gzip(&b"line\n".repeat(10_000));
    let file = TestFile::new(RecordFormat::Lines, &packed[..packed.len() - 8]);
    let mut source = file.open(None).unwrap();
    let (records, error) = read_on(
        &mut source,
        PollLimit {
            rows: 3,
            bytes: 100,
        },
    );
    assert_eq!(records.lines.len(), 10_000);
    assert!(matches!(error, Some(SourceError::Read { .. })));
    for _ in 0..3 {
        let again = source.poll(NO_LIMIT, &mut SourceRecords::default());
        assert!(matches!(
            again,
            Err(SourceError::Read {
                offset_bytes: 50_000,
                ..
            })
        ));
    }
}

#[test]
fn archives_hold_exactly_one_file() {
    let deflate = zip::CompressionMethod::Deflated;
    let check = |members: &[(&str, &[u8])], expected: &str| {
        let file = TestFile::new(RecordFormat::Lines, &zip_of(members, deflate));
        let error = file.open(None).unwrap_err();
        assert_eq!(
            file.message(&error),
            format!("can't read the archive input: {expected}")
        );
    };
    check(&[], "there is no file in it");
    check(&[("a/", b"")], "there is no file in it");
    check(
        &[("a.csv", b"1"), ("b.csv", b"2")],
        "it holds 2 files (a.csv, b.csv); pack one, or unpack it",
    );
    let many: Vec<String> = (0..12).map(|index| format!("m{index}")).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
    check(
        &many,
        "it holds 12 files (m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, ...); pack one, or unpack it",
    );
}

#[test]
fn an_archive_member_with_a_wrong_checksum_is_an_error_at_its_end() {
    let mut bytes = pack(b"one\ntwo\n", Packing::ZipStored);
    let at = bytes
        .windows(3)
        .position(|window| window == b"one")
        .unwrap();
    bytes[at] = b'O';
    let file = TestFile::new(RecordFormat::Lines, &bytes);
    let (records, error) = read_all(&file);
    assert_eq!(records.len(), 2);
    let message = file.message(&error.unwrap());
    assert_eq!(
        message,
        "failed to read input at offset 8 of its decompressed content; it may be cut short or damaged"
    );
}

#[test]
fn what_is_no_file_is_refused_and_never_waited_for() {
    let mut file = TestFile::new(RecordFormat::Lines, b"");
    let mut refusal = |path: &Path| {
        file.options.path = path.to_owned();
        let error = file.open(None).unwrap_err();
        file.message(&error)
    };
    assert_eq!(
        refusal(Path::new("/dev/null")),
        "/dev/null is not a regular file; name a file"
    );
    assert_eq!(
        refusal(Path::new("/")),
        "/ is not a regular file; name a file"
    );
    assert_eq!(
        refusal(Path::new("/nowhere/x")),
        "failed to open /nowhere/x; see that it is there and may be read, or name another file"
    );
}

#[test]
fn progress_never_falls_and_ends_at_its_total() {
    for packing in PACKINGS {
        let content = long_content(RecordFormat::Lines);
        let file = TestFile::new(RecordFormat::Lines, &pack(&content, packing));
        let mut source = file.open(None).unwrap();
        let mut last = source.progress();
        // Compressed bytes are counted when they are read ahead.
        assert!(last.done_bytes == 0 || packing != Packing::Plain);
        let limit = PollLimit { rows: 1, bytes: 1 };
        while source.poll(limit, &mut SourceRecords::default()).unwrap() == PollOutcome::More {
            let progress = source.progress();
            assert!(progress.done_bytes >= last.done_bytes);
            last = progress;
        }
        let end = source.progress();
        assert_eq!(Some(end.done_bytes), end.total_bytes, "{packing:?}");
        let size_bytes = std::fs::metadata(&file.options.path).unwrap().len();
        assert!(end.done_bytes <= size_bytes && end.done_bytes > size_bytes / 2);
    }
}

#[test]
fn what_files_of_a_source_have_in_common_is_the_format() {
    let mut file = TestFile::new(RecordFormat::Csv, b"");
    file.options.path = PathBuf::from("/elsewhere/input");
    assert_eq!(describe_kind(&file.options), "files as csv");
}
