//! The file source: reads one file to its end, record by record, and goes on behind the last
//! record when it is opened again later. What is appended to the file meanwhile is new; any other
//! change is noticed and refused, or accepted as a new file.
//!
//! A file that is followed has no end: behind its last whole record the source waits for more, and looks
//! for changes each time that it is asked as it does when it is opened.
//!
//! - `content.rs`: the decompressed bytes.
//! - `window.rs`: the bytes ahead and just behind, contiguous.
//! - `format.rs`: where a record ends and what its payload is.
//! - `position.rs`: how far the file was read, and by what it is recognised.
//! - `recognition.rs`: whether a file under another name is the one that a position is of.
//! - `passing.rs`: records that are not what the format demands.
//! - `following.rs`: what is appended to a file that is followed.
//! - `finished.rs`: a compressed file that is as it was when it was read to its end.

mod content;
mod finished;
mod following;
mod format;
mod passing;
pub(super) mod position;
mod recognition;
mod window;

use crate::source::file::following::open_window;
use crate::source::file::format::{CsvHeader, Cut, Cutter, Decoder};
use crate::source::file::passing::PassedRecord;
use crate::source::file::position::{FilePosition, Fingerprint, PackedFile};
use crate::source::file::window::{FINGERPRINT_BYTES, Window};
use crate::source::undecodable::RecordFlaw;
use crate::source::{
    OnChange, PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords,
};
use crate::types::batch::Timestamp;
use crate::types::pipeline::{FileSourceOptions, OnFailure, RecordFormat};

pub use finished::FinishedFile;
pub(super) use position::FORMAT_VERSION as POSITION_TAG;
pub use recognition::{read_position, recognize};

/// The most that one poll returns beyond its first record, in bytes, whatever its limit says: a
/// column holds less than 4 GiB.
const POLL_BYTES_MAX: usize = 1 << 30;

/// What some programs put before UTF-8 text; it belongs to no record.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file being read.
#[derive(Debug)]
pub struct FileSource {
    options: FileSourceOptions,
    window: Window,
    /// `None`: a CSV file without a whole header, and so without records.
    decoder: Option<Decoder>,
    incarnation: u32,
    /// The line that the next record begins on.
    line: u64,
    is_unterminated: bool,
    /// Whether a record was passed since the file's beginning.
    has_records: bool,
    /// Where an earlier opening was at the end of the content.
    end_seen: Option<u64>,
    /// The compressed file that the earlier opening was at the end of.
    packed_seen: Option<PackedFile>,
    /// Whether records that can't be decoded are passed over.
    passes_over: bool,
    /// Such a record whose end was not seen yet.
    passing: Option<PassedRecord>,
    /// The write time of all its records; see [`FilePosition::write_time`].
    write_time: Timestamp,
}

/// What the partitions of a file source have in common.
pub fn describe_kind(options: &FileSourceOptions) -> String {
    format!("files as {}", options.format.name())
}

impl FileSource {
    /// Opens the file at `position`, or at its beginning.
    ///
    /// # Errors
    ///
    /// When the file can't be opened, or, with [`OnChange::Refuse`], is not the file that was read
    /// up to `position`.
    pub fn open(
        options: &FileSourceOptions,
        position: Option<&[u8]>,
        on_change: OnChange,
    ) -> Result<FileSource, SourceError> {
        let Some(encoded) = position else {
            return FileSource::open_at_start(options, 0);
        };
        let position = FilePosition::decode(&options.path, encoded)?;
        match FileSource::open_at(options, &position) {
            Err(SourceError::IdentityChanged { .. }) if on_change == OnChange::StartOver => {
                FileSource::open_at_start(options, position.incarnation.saturating_add(1))
            }
            other => other,
        }
    }

    /// The same source, with a word on records that can't be decoded.
    pub fn on_failure(self, on_failure: OnFailure) -> FileSource {
        FileSource {
            passes_over: on_failure != OnFailure::Fail,
            ..self
        }
    }

    /// How often a changed file was accepted and read from its beginning.
    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn open_at_start(
        options: &FileSourceOptions,
        incarnation: u32,
    ) -> Result<FileSource, SourceError> {
        let window = open_window(options)?;
        let mut source = FileSource {
            options: options.clone(),
            write_time: window.content().write_time(),
            window,
            decoder: None,
            incarnation,
            line: 1,
            is_unterminated: false,
            has_records: false,
            end_seen: None,
            packed_seen: None,
            passes_over: false,
            passing: None,
        };
        source.read_preamble()?;
        Ok(source)
    }

    /// Goes behind what was read before, after making sure that it is still there.
    fn open_at(
        options: &FileSourceOptions,
        position: &FilePosition,
    ) -> Result<FileSource, SourceError> {
        let changed = |was: String, now: String| SourceError::IdentityChanged {
            path: options.path.clone(),
            was,
            now,
        };
        if position.format != options.format {
            let (was, now) = (position.format.name(), options.format.name());
            return Err(changed(
                format!("the format {was}"),
                format!("the format {now}"),
            ));
        }
        // The beginning first: a header is only worth reading if it is the old one.
        let mut window = open_window(options)?;
        window.fetch_at_least(FINGERPRINT_BYTES)?;
        let head = position.head.length_bytes as usize;
        let now = Fingerprint::of(&window.unread()[..window.unread().len().min(head)]);
        compare("as its beginning", &position.head, &now)
            .map_err(|(was, now)| changed(was, now))?;
        let mut source = FileSource {
            options: options.clone(),
            window,
            decoder: None,
            incarnation: position.incarnation,
            line: 1,
            is_unterminated: false,
            has_records: position.has_records,
            end_seen: position.is_at_end.then_some(position.offset_bytes),
            packed_seen: position.packed,
            passes_over: false,
            passing: None,
            write_time: position.write_time,
        };
        source.read_preamble()?;
        if !source.window.go_to(position.offset_bytes)? {
            let was = format!("at least {} bytes", position.offset_bytes);
            return Err(changed(was, format!("{} bytes", source.window.offset())));
        }
        // Where no record was read before, there may be a header now, and the window behind it.
        let has_grown = match source.window.offset() == position.offset_bytes {
            true => {
                let tail = source.window.tail();
                let length = tail.len().min(position.tail.length_bytes as usize);
                let now = Fingerprint::of(&tail[tail.len() - length..]);
                let place = format!("before offset {}", position.offset_bytes);
                compare(&place, &position.tail, &now).map_err(|(was, now)| changed(was, now))?;
                source.line = position.line;
                source.is_unterminated = position.is_unterminated;
                source.is_unterminated && !source.pass_late_line_end()?
            }
            // Or what was a record without a line end is the first part of a byte order mark.
            false => position.is_unterminated,
        };
        if has_grown {
            return Err(source.last_line_has_grown(position.line, position.offset_bytes));
        }
        source.window.fetch_at_least(1)?;
        if position.is_at_end && !source.window.unread().is_empty() {
            // It was written since the end was seen.
            source.write_time = source.write_time.max(source.window.content().write_time());
        }
        Ok(source)
    }

    /// Passes what comes before the first record: a byte order mark, the header of a CSV file.
    fn read_preamble(&mut self) -> Result<(), SourceError> {
        self.window.fetch_at_least(BYTE_ORDER_MARK.len())?;
        if self.window.unread().starts_with(BYTE_ORDER_MARK) {
            self.window.pass(BYTE_ORDER_MARK.len());
        }
        self.decoder = match self.options.format {
            RecordFormat::Lines => Some(Decoder::Lines),
            RecordFormat::Jsonl => Some(Decoder::Jsonl),
            RecordFormat::Csv => self.read_header()?.map(Decoder::Csv),
        };
        Ok(())
    }

    /// The header of a CSV file; `None` while its line has no end, as more may be written to it.
    fn read_header(&mut self) -> Result<Option<CsvHeader>, SourceError> {
        let cut = match self.cut()? {
            Found::Record(cut, true) => cut,
            Found::Record(_, false) | Found::End => return Ok(None),
            // Without names nothing of the file can be decoded.
            Found::Flawed(flaw) => return Err(self.refuse_header(flaw)),
        };
        let header = CsvHeader::parse(&self.window.unread()[..cut.length]);
        let header = header.map_err(|finding| self.refuse_header(self.malformed(finding)))?;
        self.pass(&cut, true);
        Ok(Some(header))
    }

    /// Passes the line end that the last record's line has got since; `false` if the line has got
    /// more than that.
    fn pass_late_line_end(&mut self) -> Result<bool, SourceError> {
        self.window.fetch_at_least(2)?;
        // A record whose last byte was "\r" would not have had it, had the "\n" been there.
        let ended_on_return = self.window.tail().ends_with(b"\r");
        let count = match self.window.unread() {
            [] => return Ok(true),
            [b'\n', ..] if !ended_on_return => 1,
            [b'\r', b'\n', ..] => 2,
            // The rest of the line end may be on its way.
            [b'\r'] if self.options.follow => return Ok(true),
            _ => return Ok(false),
        };
        self.window.pass(count);
        self.line += 1;
        self.is_unterminated = false;
        Ok(true)
    }

    /// Finds the next record among the unread bytes.
    fn cut(&mut self) -> Result<Found, SourceError> {
        let mut cutter = Cutter::new(self.options.format);
        let (cut, is_terminated) = loop {
            if let Some(cut) = cutter.find(self.window.unread()) {
                break (cut, true);
            }
            // One byte more than the limit may be the first half of a line end.
            if self.window.unread().len() > self.options.max_record_bytes.saturating_add(1) {
                return Ok(Found::Flawed(self.too_long()));
            }
            if self.window.fetch()? {
                continue;
            }
            let length = self.window.unread().len();
            if length == 0 || self.options.follow {
                return Ok(Found::End);
            }
            if cutter.is_in_quotes() {
                let finding = "a field has no closing quote before the file's end";
                return Ok(Found::Flawed(self.malformed(finding.to_owned())));
            }
            let cut = Cut {
                length,
                end: length,
                lines: cutter.lines(),
            };
            break (cut, false);
        };
        if cut.length > self.options.max_record_bytes {
            return Ok(Found::Flawed(self.too_long()));
        }
        Ok(Found::Record(cut, is_terminated))
    }

    /// Moves the position behind a record.
    fn pass(&mut self, cut: &Cut, is_terminated: bool) {
        self.window.pass(cut.end);
        self.line += cut.lines;
        self.is_unterminated = !is_terminated;
    }

    /// Appends the next record, unless it is larger than `room_bytes`.
    fn take(
        &mut self,
        room_bytes: Option<usize>,
        records: &mut SourceRecords,
    ) -> Result<Taken, SourceError> {
        if self.options.follow && self.is_unterminated {
            return Ok(Taken::End);
        }
        if let Some(passed) = self.passing.take() {
            return self.pass_on(passed, records);
        }
        loop {
            let (cut, is_terminated) = match self.cut()? {
                Found::Record(cut, is_terminated) => (cut, is_terminated),
                Found::Flawed(flaw) => return self.pass_line(flaw, room_bytes, records),
                Found::End => return Ok(Taken::End),
            };
            let Some(decoder) = &mut self.decoder else {
                return Ok(Taken::End);
            };
            let record = &self.window.unread()[..cut.length];
            if decoder.skips(record) {
                // Something may still be written to a last line that has no end.
                if !is_terminated {
                    return Ok(Taken::End);
                }
                self.pass(&cut, true);
                continue;
            }
            let payloads = &mut records.payloads;
            let before = payloads.bytes.len();
            if let Err(finding) = decoder.decode(record, &mut payloads.bytes) {
                payloads.bytes.truncate(before);
                let flaw = self.malformed(finding);
                return self.pass_whole((&cut, is_terminated), flaw, room_bytes, records);
            }
            let size_bytes = payloads.bytes.len() - before;
            if room_bytes.is_some_and(|room_bytes| size_bytes > room_bytes) {
                payloads.bytes.truncate(before);
                return Ok(Taken::NoRoom);
            }
            let end = u32::try_from(payloads.bytes.len());
            payloads
                .ends
                .push(end.expect("polls are bounded far below 4 GiB"));
            records.lines.push(self.line);
            records.write_times.push(self.write_time);
            self.has_records = true;
            self.pass(&cut, is_terminated);
            return Ok(Taken::Record { size_bytes });
        }
    }

    /// [`FileSource::take`] whatever its size, after a look behind the end of a file that is followed.
    fn take_first(&mut self, records: &mut SourceRecords) -> Result<Taken, SourceError> {
        match self.take(None, records)? {
            Taken::End if self.options.follow && self.has_grown()? => self.take(None, records),
            taken => Ok(taken),
        }
    }

    /// Whether the content was passed to the end that it has or, when nothing was read since, had.
    fn is_at_end(&self) -> bool {
        self.window.is_exhausted() || self.end_seen == Some(self.window.offset())
    }

    /// How long the content of a file is that is not packed and was read to its end.
    pub(super) fn plain_end(&self) -> Option<u64> {
        let is_plain = self.window.content().compression().is_none();
        is_plain.then(|| self.window.offset())
    }

    /// The position behind the last record.
    fn file_position(&self) -> FilePosition {
        if let Some(passed) = &self.passing {
            return passed.before.clone();
        }
        FilePosition {
            format: self.options.format,
            incarnation: self.incarnation,
            offset_bytes: self.window.offset(),
            line: self.line,
            is_unterminated: self.is_unterminated,
            is_at_end: self.is_at_end(),
            has_records: self.has_records,
            packed: self.packed(),
            write_time: self.write_time,
            head: Fingerprint::of(self.window.head()),
            tail: Fingerprint::of(self.window.tail()),
        }
    }

    /// The compressed file at whose end the position is.
    fn packed(&self) -> Option<PackedFile> {
        match self.window.is_exhausted() {
            true => self.window.content().packed(),
            // What is there now may have grown since then.
            false => self.packed_seen.filter(|_| self.is_at_end()),
        }
    }
}

/// What the unread bytes begin with.
enum Found {
    /// A record, and whether it has a line end.
    Record(Cut, bool),
    /// What is no record, and where it ends is not known.
    Flawed(RecordFlaw),
    /// Nothing, at the end of the file; of one that is followed, no whole record.
    End,
}

/// What became of taking one record.
enum Taken {
    /// It was taken, or passed over; so many bytes of it were.
    Record {
        size_bytes: usize,
    },
    NoRoom,
    End,
}

impl Source for FileSource {
    fn decode_again(&mut self, record: &[u8]) -> Option<Option<Vec<u8>>> {
        // Names of columns are known once the file's first row was read.
        let decoder = match self.options.format {
            RecordFormat::Lines => &mut Decoder::Lines,
            RecordFormat::Jsonl => &mut Decoder::Jsonl,
            RecordFormat::Csv => self.decoder.as_mut()?,
        };
        let mut payload = Vec::new();
        let fits = record.len() <= self.options.max_record_bytes;
        Some((fits && decoder.decode(record, &mut payload).is_ok()).then_some(payload))
    }

    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        let limit_bytes = limit.bytes.min(POLL_BYTES_MAX);
        let end = match self.options.follow {
            true => PollOutcome::Wait,
            false => PollOutcome::End,
        };
        let mut taken_bytes = 0;
        for index in 0..limit.rows {
            let is_first = index == 0;
            let room_bytes = limit_bytes.saturating_sub(taken_bytes);
            let taken = match is_first {
                true => self.take_first(records),
                false => self.take(Some(room_bytes), records),
            };
            match taken {
                Ok(Taken::Record { size_bytes }) => taken_bytes += size_bytes,
                Ok(Taken::NoRoom) => return Ok(PollOutcome::More),
                Ok(Taken::End) => return Ok(end),
                // What came before the failing record is returned; the next poll fails.
                Err(_) if !is_first => return Ok(PollOutcome::More),
                Err(error) => return Err(error),
            }
        }
        // The end is told with the last record, so that it is committed with it. A failure to look
        // ahead comes again with the next poll.
        let looked = self.window.fetch_at_least(1);
        Ok(match looked.is_ok() && self.window.is_exhausted() {
            true => end,
            false => PollOutcome::More,
        })
    }

    fn position(&self) -> Vec<u8> {
        self.file_position().encode()
    }

    fn record_name(&self, line: u64) -> Vec<u8> {
        let mut name = self.incarnation.to_be_bytes().to_vec();
        name.extend(line.to_be_bytes());
        name
    }

    fn write_time(&self) -> Timestamp {
        self.write_time
    }

    fn progress(&self) -> SourceProgress {
        let content = self.window.content();
        let total_bytes = content.total_bytes();
        let done_bytes = match content.compressed_done_bytes() {
            // Even if something lies behind the compressed content.
            Some(_) if self.window.is_exhausted() => total_bytes,
            Some(done_bytes) => done_bytes,
            None => self.window.offset(),
        };
        SourceProgress {
            done_bytes,
            // The file may have grown since it was opened; one that is followed goes on growing.
            total_bytes: (!self.options.follow).then_some(total_bytes.max(done_bytes)),
        }
    }
}

/// Both fingerprints in words, if they differ.
fn compare(place: &str, was: &Fingerprint, now: &Fingerprint) -> Result<(), (String, String)> {
    if was == now {
        return Ok(());
    }
    let words = |it: &Fingerprint| {
        format!(
            "{} bytes with checksum {:?} {place}",
            it.length_bytes, it.checksum
        )
    };
    Err((words(was), words(now)))
}

#[cfg(test)]
mod tests;
