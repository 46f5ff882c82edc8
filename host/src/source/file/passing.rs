//! Records of a file that are not what its format demands: refused, so that the file goes no further, or passed
//! over one by one.
//!
//! One that took in line ends within quotes, that is too long to be looked at, or whose quotes are never closed, ends with
//! its first line: what it took in behind that may be good. So a quote too many costs its own line and not the rest of the
//! file.
//!
//! **Invariant:** of a record that is too long no more is kept than its first bytes, and the position stands before
//! it until its end was seen.

use memchr::memchr;

use super::format::Cut;
use super::position::FilePosition;
use super::{FileSource, Taken};
use crate::source::undecodable::{RecordFlaw, UNDECODABLE_BYTES_MAX, UndecodableRecord};
use crate::source::{SourceError, SourceRecords};

/// A record on the way to the end of its line.
#[derive(Debug)]
pub(super) struct PassedRecord {
    /// The position before it.
    pub(super) before: FilePosition,
    flaw: RecordFlaw,
    /// Its first bytes.
    bytes: Vec<u8>,
    size_bytes: u64,
    /// Whether the last byte that was passed is one that may belong to the line end.
    ends_on_return: bool,
}

impl PassedRecord {
    fn add(&mut self, bytes: &[u8]) {
        let room = UNDECODABLE_BYTES_MAX - self.bytes.len();
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.size_bytes += bytes.len() as u64;
        if let Some(last) = bytes.last() {
            self.ends_on_return = *last == b'\r';
        }
    }

    /// Its line has ended: a `\r` before the end belongs to that.
    fn end_line(&mut self) {
        if self.ends_on_return {
            self.size_bytes -= 1;
            let kept = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
            self.bytes.truncate(kept);
        }
    }
}

impl FileSource {
    /// The error that a header leads to.
    pub(super) fn refuse_header(&self, flaw: RecordFlaw) -> SourceError {
        SourceError::Header {
            path: self.options.path.clone(),
            line: self.line,
            flaw,
        }
    }

    /// The error that a record leads to where none is passed over.
    fn refuse(&self, flaw: RecordFlaw) -> SourceError {
        SourceError::Record {
            path: self.options.path.clone(),
            line: self.line,
            flaw,
        }
    }

    pub(super) fn too_long(&self) -> RecordFlaw {
        RecordFlaw::TooLong {
            limit_bytes: self.options.max_record_bytes,
        }
    }

    pub(super) fn malformed(&self, finding: String) -> RecordFlaw {
        RecordFlaw::Malformed {
            format: self.options.format.name(),
            finding,
        }
    }

    /// Passes over a record that was cut whole, unless what is kept of it is more than `room_bytes`.
    ///
    /// # Errors
    ///
    /// Where records are not passed over.
    pub(super) fn pass_whole(
        &mut self,
        (cut, is_terminated): (&Cut, bool),
        flaw: RecordFlaw,
        room_bytes: Option<usize>,
        records: &mut SourceRecords,
    ) -> Result<Taken, SourceError> {
        if !self.passes_over {
            return Err(self.refuse(flaw));
        }
        let record = &self.window.unread()[..cut.length];
        if memchr(b'\n', record).is_some() {
            // A quote too many took in the lines behind it.
            return self.pass_line(flaw, room_bytes, records);
        }
        let bytes = UndecodableRecord::first_bytes(record);
        if room_bytes.is_some_and(|room_bytes| bytes.len() > room_bytes) {
            return Ok(Taken::NoRoom);
        }
        let record = UndecodableRecord {
            place: records.payloads.len(),
            of: self.options.written_path.clone(),
            position: self.line,
            bytes: bytes.to_vec(),
            size_bytes: record.len() as u64,
            flaw,
        };
        self.pass(cut, is_terminated);
        Ok(self.passed_over(record, records))
    }

    /// Begins to pass over a record whose end is not known, unless what may be kept of it is more than
    /// `room_bytes`.
    ///
    /// # Errors
    ///
    /// Where records are not passed over; when the file can't be read.
    pub(super) fn pass_line(
        &mut self,
        flaw: RecordFlaw,
        room_bytes: Option<usize>,
        records: &mut SourceRecords,
    ) -> Result<Taken, SourceError> {
        // A file without its header has no records.
        if self.decoder.is_none() {
            return Err(self.refuse_header(flaw));
        }
        if !self.passes_over {
            return Err(self.refuse(flaw));
        }
        if room_bytes.is_some_and(|room_bytes| room_bytes < UNDECODABLE_BYTES_MAX) {
            return Ok(Taken::NoRoom);
        }
        let passed = PassedRecord {
            before: self.file_position(),
            flaw,
            bytes: Vec::new(),
            size_bytes: 0,
            ends_on_return: false,
        };
        self.pass_on(passed, records)
    }

    /// Goes on to the end of the record's line; of a file that is followed as far as it is there.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub(super) fn pass_on(
        &mut self,
        mut passed: PassedRecord,
        records: &mut SourceRecords,
    ) -> Result<Taken, SourceError> {
        let is_terminated = loop {
            let unread = self.window.unread();
            if let Some(at) = memchr(b'\n', unread) {
                passed.add(&unread[..at]);
                passed.end_line();
                self.window.pass(at + 1);
                break true;
            }
            passed.add(unread);
            self.window.pass(unread.len());
            match self.window.fetch() {
                Ok(true) => {}
                Ok(false) if self.options.follow => {
                    self.passing = Some(passed);
                    return Ok(Taken::End);
                }
                Ok(false) => break false,
                Err(error) => {
                    self.passing = Some(passed);
                    return Err(error);
                }
            }
        };
        let record = UndecodableRecord {
            place: records.payloads.len(),
            of: self.options.written_path.clone(),
            position: self.line,
            bytes: passed.bytes,
            size_bytes: passed.size_bytes,
            flaw: passed.flaw,
        };
        self.line += u64::from(is_terminated);
        self.is_unterminated = !is_terminated;
        Ok(self.passed_over(record, records))
    }

    fn passed_over(&mut self, record: UndecodableRecord, records: &mut SourceRecords) -> Taken {
        let size_bytes = record.bytes.len();
        records.undecodable.push(record);
        self.has_records = true;
        Taken::Record { size_bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::source::file::tests::{NO_LIMIT, PACKINGS, TestFile, gzip, pack};
    use crate::source::{PollLimit, PollOutcome, Source};
    use crate::types::pipeline::{OnFailure, RecordFormat};

    /// What one record came to: its line, and its payload or the class and bytes of what was passed over.
    type Outcome = (u64, Result<Vec<u8>, (&'static str, Vec<u8>)>);

    fn good(line: u64, payload: &str) -> Outcome {
        (line, Ok(payload.as_bytes().to_vec()))
    }

    fn bad(line: u64, bytes: &[u8]) -> Outcome {
        (line, Err(("undecodable", bytes.to_vec())))
    }

    fn long(line: u64, bytes: &[u8]) -> Outcome {
        (line, Err(("record_too_long", bytes.to_vec())))
    }

    fn open(file: &TestFile, position: Option<&[u8]>) -> FileSource {
        let source = file.open(position).expect("it opens");
        source.on_failure(OnFailure::DeadLetter)
    }

    /// What the records of a poll came to, in their order.
    fn outcomes(records: &SourceRecords) -> Vec<Outcome> {
        assert!(records.payloads.is_well_formed());
        let mut all: Vec<Outcome> = (records.lines.iter())
            .zip(records.payloads.iter())
            .map(|(line, payload)| (*line, Ok(payload.to_vec())))
            .collect();
        for (before, record) in records.undecodable.iter().enumerate() {
            assert_eq!(record.of, "input");
            assert!(record.size_bytes >= record.bytes.len() as u64);
            let outcome = (record.flaw.class(), record.bytes.clone());
            all.insert(before + record.place, (record.position, Err(outcome)));
        }
        all
    }

    /// Reads to the end, or where the source waits, in polls of that limit.
    fn read(source: &mut FileSource, limit: PollLimit) -> Vec<Outcome> {
        let mut all = Vec::new();
        loop {
            let mut records = SourceRecords::default();
            let polled = source.poll(limit, &mut records).expect("it can be read");
            let taken = outcomes(&records);
            assert!(taken.len() <= limit.rows);
            all.extend(taken);
            match polled {
                PollOutcome::More => {}
                PollOutcome::End | PollOutcome::Wait => return all,
            }
        }
    }

    const FORMATS: [RecordFormat; 3] =
        [RecordFormat::Lines, RecordFormat::Csv, RecordFormat::Jsonl];

    /// Content with every flaw that records of the format may have, where no more than 12 bytes are allowed, and
    /// what it comes to.
    fn flawed(format: RecordFormat) -> (Vec<u8>, Vec<Outcome>) {
        match format {
            RecordFormat::Lines => (
                b"one\n1234567890123\r\n\n\xff\r\n1234567890123\n123456789012\r\nlast-is-too-long".to_vec(),
                vec![
                    good(1, "one"),
                    long(2, b"1234567890123"),
                    good(3, ""),
                    (4, Ok(b"\xff".to_vec())),
                    long(5, b"1234567890123"),
                    good(6, "123456789012"),
                    long(7, b"last-is-too-long"),
                ],
            ),
            RecordFormat::Jsonl => (
                b"[1]\n{\"a\":\r\n\n\"\xff\"\r\n2\n[1,2,3,4,5,6,7]\n 3\n{".to_vec(),
                vec![
                    good(1, "[1]"),
                    bad(2, b"{\"a\":"),
                    bad(4, b"\"\xff\""),
                    good(5, "2"),
                    long(6, b"[1,2,3,4,5,6,7]"),
                    good(7, " 3"),
                    bad(8, b"{"),
                ],
            ),
            RecordFormat::Csv => (
                // The second quote is closed where none may be, the last one never: the lines behind them are read on
                // their own.
                b"a,b\n1,2\n1\n\n1,2,3\r\n\"x\ny\"z,2\n3,\xff\n12345678,9012\n\"a\nb\",4\n5,\"x\n6,7\n8,9"
                    .to_vec(),
                vec![
                    good(2, r#"{"a":"1","b":"2"}"#),
                    bad(3, b"1"),
                    bad(5, b"1,2,3"),
                    bad(6, b"\"x"),
                    good(7, r#"{"a":"y\"z","b":"2"}"#),
                    bad(8, b"3,\xff"),
                    long(9, b"12345678,9012"),
                    good(10, r#"{"a":"a\nb","b":"4"}"#),
                    bad(12, b"5,\"x"),
                    good(13, r#"{"a":"6","b":"7"}"#),
                    good(14, r#"{"a":"8","b":"9"}"#),
                ],
            ),
        }
    }

    #[test]
    fn each_flaw_costs_its_own_record_however_it_is_read() {
        for format in FORMATS {
            let (content, expected) = flawed(format);
            for packing in PACKINGS {
                let mut file = TestFile::new(format, &pack(&content, packing));
                file.options.max_record_bytes = 12;
                for (rows, bytes) in [
                    (usize::MAX, usize::MAX),
                    (1, 1),
                    (2, 100),
                    (usize::MAX, 1),
                    (3, 9),
                ] {
                    let found = read(&mut open(&file, None), PollLimit { rows, bytes });
                    assert_eq!(found, expected, "{format:?} {packing:?} {rows} {bytes}");
                }
                // From every position between two records.
                let mut source = open(&file, None);
                for passed in 0..=expected.len() {
                    let position = source.position();
                    let mut resumed = open(&file, Some(&position));
                    assert_eq!(resumed.position(), position, "{format:?} {packing:?}");
                    assert_eq!(
                        read(&mut resumed, NO_LIMIT),
                        expected[passed..],
                        "{format:?} {packing:?}"
                    );
                    let one = PollLimit { rows: 1, bytes: 1 };
                    source.poll(one, &mut SourceRecords::default()).unwrap();
                }
            }
        }
    }

    #[test]
    fn without_a_word_the_position_stands_before_the_first_flaw() {
        for format in FORMATS {
            let (content, expected) = flawed(format);
            let mut file = TestFile::new(format, &content);
            file.options.max_record_bytes = 12;
            let mut source = file.open(None).unwrap();
            let mut records = SourceRecords::default();
            assert_eq!(
                source.poll(NO_LIMIT, &mut records).unwrap(),
                PollOutcome::More
            );
            assert_eq!(outcomes(&records), expected[..1]);
            let position = source.position();
            let line = expected[1].0;
            for _ in 0..2 {
                let mut none = SourceRecords::default();
                let error = source.poll(NO_LIMIT, &mut none).unwrap_err();
                let message = file.message(&error);
                assert!(
                    message.starts_with(&format!("input:{line}: the record is ")),
                    "{message}"
                );
                assert!(message.contains("on_failure"), "{message}");
                assert_eq!(none, SourceRecords::default());
                assert_eq!(source.position(), position);
            }
            // Somebody has decided otherwise since.
            let mut tolerant = open(&file, Some(&position));
            assert_eq!(read(&mut tolerant, NO_LIMIT), expected[1..]);
        }
    }

    #[test]
    fn records_across_the_windows_bounds_are_passed_over_whole() {
        // Windows are of 256 KiB: flawed records of many sizes lie across their ends.
        let mut content = Vec::new();
        let mut expected = Vec::new();
        for index in 0..60_u64 {
            let word = "0".repeat(1 + (index as usize * 7_919) % 90_000);
            let record = match index % 3 {
                0 => format!("[\"{word}\"]"),
                1 => format!("[\"{word}\""),
                _ => format!("[\"{word}{word}\"]"),
            };
            expected.push(match index % 3 {
                0 => good(index + 1, &record),
                1 => bad(index + 1, record.as_bytes()),
                _ if record.len() <= 100_000 => good(index + 1, &record),
                _ => long(index + 1, record.as_bytes()),
            });
            content.extend_from_slice(record.as_bytes());
            content.extend_from_slice(b"\r\n");
        }
        for packing in PACKINGS {
            let mut file = TestFile::new(RecordFormat::Jsonl, &pack(&content, packing));
            file.options.max_record_bytes = 100_000;
            for (rows, bytes) in [(usize::MAX, usize::MAX), (1, 1), (7, 150_000)] {
                let found = read(&mut open(&file, None), PollLimit { rows, bytes });
                assert!(found == expected, "{packing:?} {rows} {bytes}");
            }
        }
    }

    #[test]
    fn of_an_endless_line_the_first_bytes_are_kept_and_the_memory_is_bounded() {
        let size_bytes = 64 << 20;
        let mut content = b"before\n".to_vec();
        content.resize(content.len() + size_bytes, b'x');
        content.extend_from_slice(b"\r\nbehind\n");
        let file = TestFile::new(RecordFormat::Lines, &gzip(&content));
        let mut source = open(&file, None);
        let mut records = SourceRecords::default();
        assert_eq!(
            source.poll(NO_LIMIT, &mut records).unwrap(),
            PollOutcome::End
        );
        assert_eq!(records.lines, [1, 3]);
        let [record] = &records.undecodable[..] else {
            panic!("{:?}", records.undecodable.len());
        };
        assert_eq!((record.place, record.position), (1, 2));
        assert_eq!(record.size_bytes, size_bytes as u64);
        assert_eq!(record.bytes, vec![b'x'; UNDECODABLE_BYTES_MAX]);
        let reason = record.flaw.to_string();
        assert_eq!(
            reason,
            "the record is longer than max_record_bytes = 1048576"
        );
        assert!(source.window.buffer_bytes() <= 4 * file.options.max_record_bytes);
    }

    #[test]
    fn what_is_kept_counts_towards_the_limit_of_a_poll() {
        let line = [b'{'; 600];
        let file = TestFile::new(RecordFormat::Jsonl, &[&line[..], b"\n"].concat().repeat(10));
        let mut source = open(&file, None);
        let limit = PollLimit {
            rows: 100,
            bytes: 2_000,
        };
        let mut counts = Vec::new();
        loop {
            let mut records = SourceRecords::default();
            let outcome = source.poll(limit, &mut records).unwrap();
            counts.push(records.undecodable.len());
            if outcome == PollOutcome::End {
                break;
            }
        }
        assert_eq!(counts, [3, 3, 3, 1]);
    }

    #[test]
    fn a_header_is_no_record_that_could_be_passed_over() {
        for header in ["a,a\n1,2\n", "a,\"b\n1,2\n", "1234567890123\n1\n"] {
            let mut file = TestFile::new(RecordFormat::Csv, header.as_bytes());
            file.options.max_record_bytes = 12;
            let error = file.open(None).unwrap_err();
            let message = file.message(&error);
            assert!(message.starts_with("input:1: in the header, "), "{message}");
            assert!(!message.contains("on_failure"), "{message}");
        }
    }

    #[test]
    fn a_file_that_is_torn_within_a_record_that_is_too_long_fails_before_it() {
        let mut random = 1_u64;
        // Bytes that do not pack well, so that the torn part is long.
        let mut noise = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            b'a' + (random >> 60) as u8
        };
        let mut content = b"before\n".to_vec();
        content.extend((0..4 << 20).map(|_| noise()));
        content.extend_from_slice(b"\nbehind\n");
        let packed = gzip(&content);
        let file = TestFile::new(RecordFormat::Lines, &packed[..packed.len() / 2]);
        let mut source = open(&file, None);
        let mut records = SourceRecords::default();
        assert_eq!(
            source.poll(NO_LIMIT, &mut records).unwrap(),
            PollOutcome::More
        );
        assert_eq!(outcomes(&records), [good(1, "before")]);
        let position = source.position();
        for _ in 0..2 {
            let polled = source.poll(NO_LIMIT, &mut records);
            assert!(
                matches!(polled, Err(SourceError::Read { .. })),
                "{polled:?}"
            );
            assert_eq!(source.position(), position);
        }
        // Once the file is whole again it goes on there.
        let whole = TestFile::new(RecordFormat::Lines, &packed);
        let found = read(&mut open(&whole, Some(&position)), NO_LIMIT);
        assert_eq!(found.len(), 2);
        assert!(matches!(&found[0], (2, Err(("record_too_long", _)))));
        assert_eq!(found[1], good(3, "behind"));
    }

    #[test]
    fn of_a_file_that_is_followed_only_whole_lines_are_judged() {
        for format in FORMATS {
            let (content, _) = flawed(format);
            for step in 1..=content.len() {
                let mut file = TestFile::new(format, b"");
                file.options.max_record_bytes = 12;
                file.options.follow = true;
                let mut source = open(&file, None);
                let (mut found, mut resumed) = (Vec::new(), Vec::new());
                let mut position = source.position();
                let mut written = Vec::new();
                for piece in content.chunks(step) {
                    let opened = std::fs::File::options()
                        .append(true)
                        .open(&file.options.path);
                    opened.unwrap().write_all(piece).unwrap();
                    written.extend_from_slice(piece);
                    found.extend(read(&mut source, NO_LIMIT));
                    // And by one that is opened again each time.
                    let mut again = open(&file, Some(&position));
                    resumed.extend(read(&mut again, NO_LIMIT));
                    position = again.position();
                }
                // What stands in whole lines, but for what quotes hold back.
                let lines =
                    &written[..written.iter().rposition(|byte| *byte == b'\n').unwrap() + 1];
                let mut whole = TestFile::new(format, lines);
                whole.options.max_record_bytes = 12;
                let expected = read(&mut open(&whole, None), NO_LIMIT);
                assert_eq!(found, resumed, "{format:?} by {step}");
                assert!(
                    expected.starts_with(&found),
                    "{format:?} by {step}: {found:?}"
                );
                let held_back = expected.len() - found.len();
                assert_eq!(
                    held_back,
                    usize::from(format == RecordFormat::Csv) * 2,
                    "{format:?} by {step}"
                );
            }
        }
    }
}
