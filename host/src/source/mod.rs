//! Sources: where records come from. One folder per connector.
//!
//! A source hands out records in one fixed order and knows a position behind the last one that it
//! handed out. Whoever drives it commits that position with what was made of the records; opened
//! at a committed position, a source goes on with exactly the next record, or refuses when what it
//! reads is no longer what was read before.

pub mod directory;
pub mod file;
pub mod generator;
#[cfg(test)]
mod golden_tests;
pub mod parked;
pub mod queue;
pub mod undecodable;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::source::directory::DirectorySource;
use crate::source::file::{FileSource, FinishedFile};
use crate::source::generator::GeneratorSource;
use crate::source::queue::{QueueReader, QueueSource};
use crate::source::undecodable::{RecordFlaw, UndecodableRecord};
use crate::types::batch::Timestamp;
use crate::types::column::Column;
use crate::types::epoch::{Checksum, SourceMark};
use crate::types::ids::PartitionId;
use crate::types::key::MESSAGE_KEY_BYTES_MAX;
use crate::types::pipeline::{OnFailure, SourceConnector};
use crate::types::timestamp_runs::TimestampRuns;

/// A stream of records with a position that can be stored and sought.
pub trait Source: Send {
    /// Appends the next records to `records`, at most `limit` with those that are passed over, and moves the position
    /// behind them.
    ///
    /// # Errors
    ///
    /// When the source can't be read, or, with [`OnFailure::Fail`], a record can't be decoded. Records before it
    /// are returned by earlier calls: a call that fails appends nothing, and the position stands before the
    /// record that failed. With another policy such a record is passed over and handed out among
    /// [`SourceRecords::undecodable`]; what concerns the source as a whole fails all the same.
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError>;

    /// The position behind the last record that `poll` returned, encoded with a format version.
    fn position(&self) -> Vec<u8>;

    /// Decodes a record once more that could not be decoded when it came, by the options that are in force now. The
    /// inner `None` says that it still can't be, the outer one that the source does not know how without what stood around
    /// it.
    fn decode_again(&mut self, _record: &[u8]) -> Option<Option<Vec<u8>>> {
        None
    }

    /// What became of that which the source keeps by name, since this was last asked; names rising. Whoever
    /// drives it commits that with the position, and it is there when the source is opened again.
    fn take_marks(&mut self) -> Vec<SourceMark> {
        Vec::new()
    }

    /// Tells the source, before it is polled, how long the process has run: for those that keep to a pace.
    fn tell_time(&mut self, _elapsed: Duration) {}

    /// After [`PollOutcome::Wait`], when it is worth asking again at the latest; `None`: when whoever
    /// drives it thinks best.
    fn wait_at_most(&self) -> Option<Duration> {
        None
    }

    /// The partition of a queue that it reads, if it reads one: new rows there are worth asking again.
    fn queue_partition(&self) -> Option<PartitionId> {
        None
    }

    /// Whether the position is to be committed before the first record, as where the source begins depends on the
    /// moment at which it was opened.
    fn commits_where_it_begins(&self) -> bool {
        false
    }

    /// Where records of the last poll are that have these numbers among
    /// [`SourceRecords::lines`], for people: "line 17".
    fn locate(&self, lines: &RangeInclusive<u64>) -> String {
        numbered("line", lines)
    }

    /// What tells a record of the last poll, of this number among [`SourceRecords::lines`], from every other one that the
    /// partition ever gives: the same bytes whenever it is read, also by the next run.
    fn record_name(&self, line: u64) -> Vec<u8> {
        line.to_be_bytes().to_vec()
    }

    /// When the record that comes next was written, as far as it is known: by it the partitions of a
    /// source are ordered, the oldest first (row R5).
    fn write_time(&self) -> Timestamp;

    /// How far the source is, for those who watch.
    fn progress(&self) -> SourceProgress;
}

/// What a source is opened with.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    /// The committed position; `None`: the source's beginning.
    pub position: Option<&'a [u8]>,
    /// What it keeps by name, committed with that; names rising.
    pub marks: &'a [SourceMark],
    /// What to do when it is no longer what was read before.
    pub on_change: OnChange,
    /// What becomes of records that can't be decoded.
    pub on_failure: OnFailure,
    /// The queues of the store; `None` where they are not at hand.
    pub queues: Option<&'a Arc<dyn QueueReader>>,
}

impl Opening<'_> {
    /// At a position, for a source that keeps nothing by name; what has changed is refused, and so are records that
    /// can't be decoded.
    pub fn at(position: Option<&[u8]>) -> Opening<'_> {
        Opening {
            position,
            marks: &[],
            on_change: OnChange::Refuse,
            on_failure: OnFailure::Fail,
            queues: None,
        }
    }
}

/// "line 17", or "lines 17 to 19".
fn numbered(noun: &str, numbers: &RangeInclusive<u64>) -> String {
    match (numbers.start(), numbers.end()) {
        (start, end) if start == end => format!("{noun} {start}"),
        (start, end) => format!("{noun}s {start} to {end}"),
    }
}

/// What the positions of each connector begin with, and what wrote them.
const POSITION_TAGS: [(u8, &str); 4] = [
    (file::POSITION_TAG, "files"),
    (directory::POSITION_TAG, "a directory"),
    (generator::POSITION_TAG, "a generator"),
    (queue::POSITION_TAG, "a queue"),
];

/// What wrote a position, if it is of another kind of source than the connector.
fn foreign_position(connector: &SourceConnector, position: &[u8]) -> Option<&'static str> {
    let own = match connector {
        SourceConnector::File(_) => file::POSITION_TAG,
        SourceConnector::Directory(_) => directory::POSITION_TAG,
        SourceConnector::Generator(_) => generator::POSITION_TAG,
        SourceConnector::Queue(_) => queue::POSITION_TAG,
    };
    let written_by = |tag: &u8| POSITION_TAGS.iter().find(|(known, _)| known == tag);
    let tag = position.first().filter(|tag| **tag != own)?;
    written_by(tag).map(|(_, kind)| *kind)
}

/// Opens a source at its committed position, or at its beginning.
///
/// # Errors
///
/// When it can't be opened or is no longer what was read before; see [`SourceError`].
pub fn open(
    connector: &SourceConnector,
    opening: Opening<'_>,
) -> Result<Box<dyn Source>, SourceError> {
    let Opening {
        mut position,
        on_change,
        on_failure,
        ..
    } = opening;
    let foreign = position.and_then(|position| foreign_position(connector, position));
    if let Some(was) = foreign {
        if on_change == OnChange::Refuse {
            return Err(SourceError::OptionsChanged {
                was: was.to_owned(),
                now: describe_kind(connector),
            });
        }
        position = None;
    }
    match connector {
        SourceConnector::Directory(options) => {
            let opening = Opening {
                position,
                ..opening
            };
            Ok(Box::new(DirectorySource::open(options, opening)?))
        }
        SourceConnector::Generator(options) => {
            let source = GeneratorSource::open(options, position, on_change)?;
            Ok(Box::new(source))
        }
        SourceConnector::File(options) => {
            // A file that is followed is never at an end.
            let finished = position.filter(|_| !options.follow);
            let finished = finished.map(|position| FinishedFile::find(options, position));
            match finished.transpose()?.flatten() {
                Some(finished) => Ok(Box::new(finished)),
                None => {
                    let source = FileSource::open(options, position, on_change)?;
                    Ok(Box::new(source.on_failure(on_failure)))
                }
            }
        }
        SourceConnector::Queue(options) => Ok(Box::new(QueueSource::open(options, opening)?)),
    }
}

/// Whether a source has a record behind a committed position. One that is not there any more, can't be
/// read, or is not what was read before has none.
pub fn has_more(connector: &SourceConnector, position: &[u8]) -> bool {
    let Ok(mut source) = open(connector, Opening::at(Some(position))) else {
        return false;
    };
    let one = PollLimit { rows: 1, bytes: 1 };
    let mut records = SourceRecords::default();
    match source.poll(one, &mut records) {
        Ok(_) => !records.payloads.is_empty(),
        // Something is there that is no record.
        Err(error) => matches!(error, SourceError::Record { .. }),
    }
}

/// For each of some committed positions, of partitions of other names, whether this source holds what
/// was read up to it.
///
/// # Errors
///
/// When the source can't be read, or a position not be decoded.
pub fn recognize(
    connector: &SourceConnector,
    positions: &[&[u8]],
) -> Result<Vec<bool>, SourceError> {
    match connector {
        SourceConnector::File(options) => file::recognize(options, positions),
        SourceConnector::Directory(_)
        | SourceConnector::Generator(_)
        | SourceConnector::Queue(_) => Ok(vec![false; positions.len()]),
    }
}

/// What the partitions of a source have in common: kept with a pipeline to notice that they are now
/// read in another way.
pub fn describe_kind(connector: &SourceConnector) -> String {
    match connector {
        SourceConnector::File(options) => file::describe_kind(options),
        SourceConnector::Directory(options) => directory::describe_kind(options),
        SourceConnector::Generator(options) => generator::describe_kind(options),
        SourceConnector::Queue(options) => queue::describe_kind(&options.queue),
    }
}

/// What the committed position of a source's partition says, without opening it: `like` is any
/// partition of the source, `name` that which the position is of.
///
/// # Errors
///
/// When it can't be decoded.
pub fn read_position(
    like: &SourceConnector,
    name: &str,
    position: &[u8],
) -> Result<PartitionReading, SourceError> {
    if let Some(kind) = foreign_position(like, position) {
        return Ok(PartitionReading {
            is_at_end: false,
            is_recognizable: false,
            passed_bytes: 0,
            content: Checksum::default(),
            passed: format!("read as a partition of {kind}"),
        });
    }
    match like {
        SourceConnector::File(_) => file::read_position(name, position),
        SourceConnector::Directory(options) => directory::read_position(options, position),
        SourceConnector::Generator(options) => generator::read_position(options, name, position),
        SourceConnector::Queue(_) => Ok(queue::read_position()),
    }
}

/// How far a partition of a source was read by earlier runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReading {
    /// Whether it was read to the end that it had.
    pub is_at_end: bool,
    /// Whether it would be recognized under another name: a record of it was read.
    pub is_recognizable: bool,
    /// How many bytes of its content were read.
    pub passed_bytes: u64,
    /// Tells what was read from other content of the same length.
    pub content: Checksum,
    /// What was read, for people: "read up to line 17".
    pub passed: String,
}

/// What to do with a source that is no longer what was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    /// Answer [`SourceError::IdentityChanged`].
    Refuse,
    /// Read what is there now from its beginning, under the next incarnation. A source that did
    /// not change goes on where it stopped.
    StartOver,
}

/// How much one poll may return. The first record is returned whatever its size. Of one that is passed over what is
/// kept counts.
#[derive(Debug, Clone, Copy)]
pub struct PollLimit {
    /// Records.
    pub rows: usize,
    /// Bytes of payload.
    pub bytes: usize,
}

/// Whether more is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollOutcome {
    /// There may be more.
    More,
    /// There is no more for now; what comes later is to be asked for again.
    Wait,
    /// The source is finite and at its end.
    End,
}

/// Records as columns. A record without a key has an empty one, one without an event time 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceRecords {
    /// The records.
    pub payloads: Column,
    /// Their keys, one for each, or none at all where the source gives none.
    pub keys: Column,
    /// Their event times, one for each, or none at all where the source gives none.
    pub event_times: Vec<Timestamp>,
    /// Where each record begins: its line in the (decompressed) file, from 1, or its offset.
    pub lines: Vec<u64>,
    /// When each record was written: the time that the source's system took down for it, never one
    /// that stands in the record.
    pub write_times: TimestampRuns,
    /// Those among them that could not be decoded and were passed over, in their order.
    pub undecodable: Vec<UndecodableRecord>,
}

impl SourceRecords {
    /// Removes all records and keeps the memory.
    pub fn clear(&mut self) {
        self.payloads.clear();
        self.keys.clear();
        self.event_times.clear();
        self.lines.clear();
        self.write_times.clear();
        self.undecodable.clear();
    }
}

/// How far a source is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceProgress {
    /// Bytes read since the source's beginning, in the units of `total_bytes`.
    pub done_bytes: u64,
    /// Bytes in all, where that is known. For a compressed file both count compressed bytes.
    pub total_bytes: Option<u64>,
}

/// A source could not be opened or read. None is retried: each needs somebody to act.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file could not be opened.
    #[error(
        "failed to open {}; see that it is there and may be read, or name another file", .path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A directory could not be read.
    #[error("failed to read the directory {}; see that it is there and may be read, or name another one", .path.display())]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file that was being read in a directory has left it.
    #[error("{} was {passed} when it left its directory; put it back to read the rest, or go on without it by --accept-change", .path.display())]
    Vanished {
        /// The file.
        path: PathBuf,
        /// How far it was read.
        passed: String,
    },
    /// The file that was being read in a directory is not among those that are read any more.
    #[error("{} was {passed} when pattern = {pattern:?} left it out; have the pattern take it again to read the rest, or go on without it by --accept-change", .path.display())]
    Unmatched {
        /// The file.
        path: PathBuf,
        /// The pattern.
        pattern: String,
        /// How far the file was read.
        passed: String,
    },
    /// A pattern for the names of files is none.
    #[error("the pattern {pattern:?} can't be used: {finding}; write one such as \"*.csv\"")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        finding: String,
    },
    /// A file in a directory has a name that is not UTF-8.
    #[error("the name of the file {} is not UTF-8; give it another one", .path.display())]
    NameNotText {
        /// The file, as far as its name can be shown.
        path: PathBuf,
    },
    /// The path names something that is no file, and reading it might never end.
    #[error("{} is not a regular file; name a file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file's bytes could not be read or decompressed.
    #[error("failed to read {} at offset {offset_bytes}{}", .path.display(), .compression.map_or("", |_| " of its decompressed content; it may be cut short or damaged"))]
    Read {
        /// The file.
        path: PathBuf,
        /// Where, in the decompressed content.
        offset_bytes: u64,
        /// How it is compressed, if it is.
        compression: Option<&'static str>,
        /// Why.
        source: std::io::Error,
    },
    /// The file is an archive from which no single file can be read.
    #[error("can't read the archive {}: {finding}", .path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What was found and what to do.
        finding: String,
    },
    /// A packed file is to be followed.
    #[error(
        "{} is packed by {compression}, and what is packed has an end; unpack it, or read it without follow", .path.display()
    )]
    FollowsPacked {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        compression: &'static str,
    },
    /// A record is not what the source's format and options demand.
    #[error("{}:{line}: {flaw}; {}, or pass over such records with on_failure = \"dead_letter\"", .path.display(), .flaw.remedy())]
    Record {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        line: u64,
        /// What is wrong with it.
        flaw: RecordFlaw,
    },
    /// A file's header is not what its format demands, so that no record of it can be decoded.
    #[error("{}:{line}: in the header, {flaw}; {}", .path.display(), .flaw.remedy())]
    Header {
        /// The file.
        path: PathBuf,
        /// Where it begins.
        line: u64,
        /// What is wrong with it.
        flaw: RecordFlaw,
    },
    /// The file is not the one that was read before.
    #[error("{} is not the file that was read before: it had {was}, it has {now}; put the old file back, or read this one from its beginning with --accept-change", .path.display())]
    IdentityChanged {
        /// The file.
        path: PathBuf,
        /// What the position remembers.
        was: String,
        /// What is there now.
        now: String,
    },
    /// Other options lead to other records than those that were read before.
    #[error(
        "it would not give the records that were read before: it had {was}, it has {now}; put the old options back, or read it from its beginning with --accept-change"
    )]
    OptionsChanged {
        /// What the position remembers.
        was: String,
        /// What the options are now.
        now: String,
    },
    /// A stored position can't be decoded: it was written by another release, or is damaged.
    #[error(
        "the stored position in {} can't be decoded: {finding}; run the release that wrote it, restore the data directory from a backup, or start afresh in another one", .path.display()
    )]
    UndecodablePosition {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        finding: String,
    },
    /// Rows of a queue were trimmed before the source had read them.
    #[error(
        "offsets {next} to {} of queue {partition} were trimmed before they were read, {} rows are gone; go on behind them with --accept-change, and keep rows for longer, or read them sooner, where none may be lost", .start - 1, .start - next
    )]
    RowsTrimmed {
        /// The queue, with the partition's index.
        partition: String,
        /// The offset that came next.
        next: u64,
        /// The first offset that the partition still has.
        start: u64,
    },
    /// A queue was deleted and made again under its name.
    #[error(
        "queue {partition} is not the one that was read before: it was partition {was}, it is partition {now}; read this one from its beginning with --accept-change, or name another queue"
    )]
    QueueRemade {
        /// The queue, with the partition's index.
        partition: String,
        /// The partition's number by the position.
        was: PartitionId,
        /// The partition's number now.
        now: PartitionId,
    },
    /// There is no such queue, or queues can't be read here.
    #[error("queue {partition} is not there; declare it under [queues]")]
    NoQueue {
        /// The queue, with the partition's index.
        partition: String,
    },
    /// The key of a queue's row is too long for a message.
    #[error(
        "offset {offset} of queue {partition} has a key of {size_bytes} bytes, allowed are {MESSAGE_KEY_BYTES_MAX}; write it with a hash as its key, and let it go with `tidelock queue trim`, or pass over such rows with on_failure = \"dead_letter\""
    )]
    KeyTooLong {
        /// The queue, with the partition's index.
        partition: String,
        /// The row.
        offset: u64,
        /// Bytes of its key.
        size_bytes: usize,
    },
    /// Rows of a queue can't be read.
    #[error("failed to read queue {partition} at offset {offset}")]
    Queue {
        /// The queue, with the partition's index.
        partition: String,
        /// The offset.
        offset: u64,
        /// Why.
        source: Box<queue::QueueFailure>,
    },
}

/// That a source is no longer what was read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceChange {
    /// Which part of it has changed, as it stands before "of source NAME": "content".
    pub what: &'static str,
    /// Its path or partition.
    pub place: String,
    /// What was read.
    pub was: String,
    /// What is there.
    pub now: String,
}

impl SourceError {
    /// The change that the error tells of, where that may be accepted with [`OnChange::StartOver`].
    pub fn change(&self) -> Option<SourceChange> {
        let (what, place, was, now) = match self {
            SourceError::IdentityChanged { path, was, now } => (
                "content",
                path.display().to_string(),
                was.clone(),
                now.clone(),
            ),
            SourceError::RowsTrimmed {
                partition,
                next,
                start,
            } => (
                "rows",
                partition.clone(),
                format!("read up to offset {next}"),
                format!(
                    "trimmed up to offset {start}, {} rows are gone unread",
                    start - next
                ),
            ),
            SourceError::QueueRemade {
                partition,
                was,
                now,
            } => (
                "queue",
                partition.clone(),
                format!("partition {was}"),
                format!("partition {now}, made again; it is read from its beginning"),
            ),
            SourceError::Vanished { path, passed } => (
                "content",
                path.display().to_string(),
                passed.clone(),
                "gone; the rest of it will not be read".to_owned(),
            ),
            SourceError::Unmatched {
                path,
                pattern,
                passed,
            } => (
                "content",
                path.display().to_string(),
                passed.clone(),
                format!("left out by pattern = {pattern:?}; the rest of it will not be read"),
            ),
            SourceError::OptionsChanged { was, now } => {
                ("records", String::new(), was.clone(), now.clone())
            }
            _ => return None,
        };
        Some(SourceChange {
            what,
            place,
            was,
            now,
        })
    }
}
