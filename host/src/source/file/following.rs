//! What is appended to a file that is followed: each look behind its end asks what an opening of the file
//! asks, and a record is one when its line has an end.

use super::FileSource;
use super::content::LookedAgain;
use super::format::Decoder;
use super::window::Window;
use crate::source::SourceError;
use crate::types::pipeline::FileSourceOptions;

/// A window at the beginning of the file, which must not be packed if it is followed.
pub(super) fn open_window(options: &FileSourceOptions) -> Result<Window, SourceError> {
    let window = Window::open(&options.path)?;
    match window.content().compression() {
        Some(compression) if options.follow => Err(SourceError::FollowsPacked {
            path: options.path.clone(),
            compression,
        }),
        _ => Ok(window),
    }
}

impl FileSource {
    /// Whether there is more of a followed file than when its end was seen. Passes what comes before its next
    /// record, where that was not there before.
    pub(super) fn has_grown(&mut self) -> Result<bool, SourceError> {
        match self.window.look_again()? {
            LookedAgain::Unchanged => return Ok(false),
            LookedAgain::Grown => {}
            // Perhaps by a copy, which is no change.
            LookedAgain::Replaced => {
                let passes_over = self.passes_over;
                *self = FileSource::open_at(&self.options, &self.file_position())?;
                self.passes_over = passes_over;
            }
        }
        self.write_time = self.write_time.max(self.window.content().write_time());
        if self.window.offset() == 0 {
            self.read_preamble()?;
        } else if self.decoder.is_none() {
            self.decoder = self.read_header()?.map(Decoder::Csv);
        }
        if self.is_unterminated {
            let (line, offset_bytes) = (self.line, self.window.offset());
            if !self.pass_late_line_end()? {
                return Err(self.last_line_has_grown(line, offset_bytes));
            }
        }
        Ok(true)
    }

    /// What was taken as a line without an end was the beginning of one.
    pub(super) fn last_line_has_grown(&self, line: u64, offset_bytes: u64) -> SourceError {
        SourceError::IdentityChanged {
            path: self.options.path.clone(),
            was: format!("line {line} as its last, without a line end"),
            now: format!("more of that line behind offset {offset_bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::source::{self, OnChange, PollLimit, PollOutcome, Source, SourceRecords};
    use crate::types::batch::Timestamp;
    use crate::types::pipeline::{RecordFormat, SourceConnector};

    const NO_LIMIT: PollLimit = PollLimit {
        rows: usize::MAX,
        bytes: usize::MAX,
    };

    /// A file that is followed, in a folder of its own.
    struct Followed {
        _folder: tempfile::TempDir,
        options: FileSourceOptions,
    }

    type Records = Vec<(u64, Vec<u8>)>;

    impl Followed {
        fn new(format: RecordFormat) -> Followed {
            let folder = tempfile::tempdir().unwrap();
            let options = FileSourceOptions {
                path: folder.path().join("input"),
                written_path: "input".to_owned(),
                format,
                max_record_bytes: 100,
                follow: true,
            };
            File::create_new(&options.path).unwrap();
            Followed {
                _folder: folder,
                options,
            }
        }

        fn append(&self, bytes: &[u8]) {
            let file = File::options().append(true).open(&self.options.path);
            file.unwrap().write_all(bytes).unwrap();
        }

        fn written_at(&self, time: Timestamp) {
            let file = File::options().append(true).open(&self.options.path);
            let time = UNIX_EPOCH + Duration::from_millis(time);
            file.unwrap().set_modified(time).unwrap();
        }

        /// Puts another file under the name.
        fn replace(&self, bytes: &[u8]) {
            let other = self.options.path.with_extension("other");
            fs::write(&other, bytes).unwrap();
            fs::rename(&other, &self.options.path).unwrap();
        }

        fn open(&self, position: Option<&[u8]>) -> Result<FileSource, SourceError> {
            FileSource::open(&self.options, position, OnChange::Refuse)
        }

        /// The records of the content as a run without following reads it.
        fn of_finite(&self, content: &[u8]) -> Records {
            let finite = Followed::new(self.options.format);
            finite.append(content);
            let options = FileSourceOptions {
                follow: false,
                ..finite.options.clone()
            };
            let mut source = FileSource::open(&options, None, OnChange::Refuse).unwrap();
            let mut records = SourceRecords::default();
            assert_eq!(
                source.poll(NO_LIMIT, &mut records).unwrap(),
                PollOutcome::End
            );
            listed(&records)
        }
    }

    fn listed(records: &SourceRecords) -> Records {
        let payloads = records.payloads.iter().map(<[u8]>::to_vec);
        records.lines.iter().copied().zip(payloads).collect()
    }

    /// What is there now; the source waits behind it.
    fn poll(source: &mut FileSource) -> Result<Records, SourceError> {
        let mut records = SourceRecords::default();
        while source.poll(NO_LIMIT, &mut records)? == PollOutcome::More {}
        let before = records.lines.len();
        assert_eq!(source.poll(NO_LIMIT, &mut records)?, PollOutcome::Wait);
        assert_eq!(records.lines.len(), before);
        Ok(listed(&records))
    }

    fn is_changed(polled: &Result<Records, SourceError>) -> bool {
        matches!(polled, Err(SourceError::IdentityChanged { .. }))
    }

    const CONTENTS: [(RecordFormat, &str); 3] = [
        (RecordFormat::Lines, "\u{feff}one\r\n\n\rtwo\nthree\r\n"),
        (RecordFormat::Jsonl, "\u{feff}{\"a\":1}\n \n[2]\r\n"),
        (
            RecordFormat::Csv,
            "\u{feff}a,\"b\nc\"\r\n1,\"2\n\"\"\r\n\"\n\n3,4\r\n",
        ),
    ];

    #[test]
    fn records_come_when_their_lines_are_whole_however_the_file_is_written() {
        for (format, content) in CONTENTS {
            for step in 1..=content.len() {
                let file = Followed::new(format);
                let mut source = file.open(None).unwrap();
                let mut read = Vec::new();
                let mut written = Vec::new();
                for piece in content.as_bytes().chunks(step) {
                    file.append(piece);
                    written.extend_from_slice(piece);
                    read.extend(poll(&mut source).unwrap());
                }
                assert_eq!(read, file.of_finite(&written), "{format:?} by {step} bytes");
            }
        }
    }

    #[test]
    fn a_source_that_is_opened_again_goes_on_wherever_the_file_was_cut() {
        for (format, content) in CONTENTS {
            for length in 0..=content.len() {
                let file = Followed::new(format);
                file.append(&content.as_bytes()[..length]);
                let mut first = file.open(None).unwrap();
                let mut read = poll(&mut first).unwrap();
                file.append(&content.as_bytes()[length..]);
                let mut second = file.open(Some(&first.position())).unwrap();
                read.extend(poll(&mut second).unwrap());
                assert_eq!(
                    read,
                    file.of_finite(content.as_bytes()),
                    "{format:?} at {length}"
                );
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_or_replaced_is_refused_as_between_two_runs() {
        let begun = || {
            let file = Followed::new(RecordFormat::Lines);
            file.append(b"one\ntwo\nthr");
            let mut source = file.open(None).unwrap();
            assert_eq!(poll(&mut source).unwrap().len(), 2);
            (file, source)
        };
        let cut = |file: &Followed, length| {
            let opened = File::options().write(true).open(&file.options.path);
            opened.unwrap().set_len(length).unwrap();
        };
        let (file, mut source) = begun();
        cut(&file, 4);
        assert!(is_changed(&poll(&mut source)));
        let (file, mut source) = begun();
        cut(&file, 0);
        file.append(b"other\nlines\nand more\n");
        assert!(is_changed(&poll(&mut source)));
        let (file, mut source) = begun();
        file.replace(b"other\nlines\nand more\n");
        assert!(is_changed(&poll(&mut source)));
        let (file, mut source) = begun();
        fs::remove_file(&file.options.path).unwrap();
        assert!(matches!(poll(&mut source), Err(SourceError::Open { .. })));
    }

    #[test]
    fn a_copy_under_the_files_name_is_no_change() {
        let file = Followed::new(RecordFormat::Lines);
        file.append(b"one\ntw");
        let mut source = file.open(None).unwrap();
        assert_eq!(poll(&mut source).unwrap(), [(1, b"one".to_vec())]);
        file.replace(b"one\ntwo\n");
        assert_eq!(poll(&mut source).unwrap(), [(2, b"two".to_vec())]);
        file.append(b"three\n");
        assert_eq!(poll(&mut source).unwrap(), [(3, b"three".to_vec())]);
    }

    #[test]
    fn what_an_earlier_run_took_as_a_line_may_get_its_end_and_nothing_else() {
        let behind_a_torn_line = |content: &[u8]| {
            let file = Followed::new(RecordFormat::Lines);
            file.append(content);
            let finite = FileSourceOptions {
                follow: false,
                ..file.options.clone()
            };
            let mut source = FileSource::open(&finite, None, OnChange::Refuse).unwrap();
            source
                .poll(NO_LIMIT, &mut SourceRecords::default())
                .unwrap();
            let position = source.position();
            let followed = file.open(Some(&position)).unwrap();
            (file, followed)
        };
        let (file, mut source) = behind_a_torn_line(b"one");
        for piece in [b"\r".as_slice(), b"\n", b"tw"] {
            file.append(piece);
            assert_eq!(poll(&mut source).unwrap(), []);
        }
        file.append(b"o\n");
        assert_eq!(poll(&mut source).unwrap(), [(2, b"two".to_vec())]);
        let (file, mut source) = behind_a_torn_line(b"one");
        assert_eq!(poll(&mut source).unwrap(), []);
        file.append(b" more\n");
        assert!(is_changed(&poll(&mut source)));
    }

    #[test]
    fn a_record_that_gets_too_long_is_no_reason_to_wait() {
        let file = Followed::new(RecordFormat::Lines);
        let mut source = file.open(None).unwrap();
        file.append(&[b'x'; 100]);
        assert_eq!(poll(&mut source).unwrap(), []);
        file.append(b"xx");
        let polled = poll(&mut source);
        assert!(matches!(polled, Err(SourceError::Record { .. })));
    }

    #[test]
    fn what_is_appended_was_written_when_the_file_was() {
        let file = Followed::new(RecordFormat::Lines);
        file.append(b"one\n");
        file.written_at(1_000);
        let mut source = file.open(None).unwrap();
        let written_at = |source: &mut FileSource| {
            let mut records = SourceRecords::default();
            source.poll(NO_LIMIT, &mut records).unwrap();
            records.write_times.iter().collect::<Vec<Timestamp>>()
        };
        assert_eq!(written_at(&mut source), [1_000]);
        file.append(b"two\n");
        file.written_at(5_000);
        assert_eq!(written_at(&mut source), [5_000]);
        // A clock that was set back gives no earlier one.
        file.append(b"three\n");
        file.written_at(2_000);
        assert_eq!(written_at(&mut source), [5_000]);
    }

    #[test]
    fn a_packed_file_is_not_followed() {
        let file = Followed::new(RecordFormat::Lines);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"one\n").unwrap();
        file.append(&encoder.finish().unwrap());
        let refused = file.open(None).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("is packed by gzip"), "{text}");
        // One that was read to its end without being followed neither.
        let options = |follow| {
            SourceConnector::File(FileSourceOptions {
                follow,
                ..file.options.clone()
            })
        };
        let mut read = source::open(&options(false), source::Opening::at(None)).unwrap();
        read.poll(NO_LIMIT, &mut SourceRecords::default()).unwrap();
        let position = read.position();
        let reopened = source::open(&options(true), source::Opening::at(Some(&position)));
        assert!(matches!(
            reopened.err(),
            Some(SourceError::FollowsPacked { .. })
        ));
    }
}
