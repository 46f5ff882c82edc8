//! The directory source: reads the files of a directory one after the other, each as the file source does, and
//! marks those that it has read to their ends. A mark goes when its file has left the directory.
//!
//! - `listing.rs`: which files there are.
//! - `stored.rs`: the position and the marks, as they are stored.
//!
//! **Invariant:** records of one poll are of one file. A file's mark and the position behind it are
//! told together, so that an epoch commits both or none. Nothing stored grows with the files that have left.

mod listing;
pub(super) mod stored;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::source::directory::listing::{FileFilter, FileStamp, list};
use crate::source::directory::stored::{DirectoryPosition, DoneMark};
use crate::source::file::{self, FileSource};
use crate::source::{
    OnChange, Opening, PartitionReading, PollLimit, PollOutcome, Source, SourceError,
    SourceProgress, SourceRecords, numbered,
};
use crate::types::batch::Timestamp;
use crate::types::connectors::DirectorySourceOptions;
use crate::types::epoch::{Checksum, SourceMark};
use crate::types::pipeline::{FileSourceOptions, OnFailure};

pub(super) use stored::POSITION_TAG;

/// How often a directory that is followed is listed at most.
const LISTING_PERIOD: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug)]
pub struct DirectorySource {
    options: DirectorySourceOptions,
    filter: FileFilter,
    /// What becomes of records that can't be decoded.
    on_failure: OnFailure,
    /// Files that were read to their ends and are there, by name.
    done: BTreeMap<String, DoneMark>,
    /// What has changed of that since the marks were taken.
    changed_marks: BTreeMap<String, Option<Vec<u8>>>,
    /// The file that is being read.
    current: Option<CurrentFile>,
    /// Those that come next.
    waiting: VecDeque<(String, FileStamp)>,
    /// The file that the last poll's records are of.
    last_name: String,
    /// How many files were finished before that one: it is the only one with that number.
    last_number: u64,
    /// How often that one was begun again.
    last_incarnation: u32,
    finished: u64,
    now: Duration,
    listed_at: Duration,
    /// Bytes of files that were finished since it was opened.
    finished_bytes: u64,
}

#[derive(Debug)]
struct CurrentFile {
    name: String,
    /// As it was before it was opened.
    stamp: FileStamp,
    source: FileSource,
}

/// What the partitions of a directory have in common.
pub fn describe_kind(options: &DirectorySourceOptions) -> String {
    let kind = format!(
        "directory {} as {}",
        options.written_path,
        options.format.name()
    );
    match options.partitions {
        1 => kind,
        partitions => format!("{kind}, in {partitions} partitions"),
    }
}

/// What a committed position says, without opening the source.
///
/// # Errors
///
/// When it can't be decoded.
pub fn read_position(
    like: &DirectorySourceOptions,
    encoded: &[u8],
) -> Result<PartitionReading, SourceError> {
    let position = DirectoryPosition::decode(&like.path, encoded)?;
    Ok(PartitionReading {
        // Whether there are more files its marks tell.
        is_at_end: false,
        is_recognizable: false,
        passed_bytes: position.finished,
        content: Checksum::default(),
        passed: format!("{} files of it read", position.finished),
    })
}

impl DirectorySource {
    /// Opens the directory, and the file that was being read.
    ///
    /// # Errors
    ///
    /// When the directory can't be read, when what is stored can't be decoded, or, with
    /// [`OnChange::Refuse`], when the file that was being read has changed or is gone.
    pub fn open(
        options: &DirectorySourceOptions,
        opening: Opening<'_>,
    ) -> Result<DirectorySource, SourceError> {
        let mut source = DirectorySource {
            filter: FileFilter::new(options)?,
            options: options.clone(),
            on_failure: opening.on_failure,
            done: BTreeMap::new(),
            changed_marks: BTreeMap::new(),
            current: None,
            waiting: VecDeque::new(),
            last_name: String::new(),
            last_number: 0,
            last_incarnation: 0,
            finished: 0,
            now: Duration::ZERO,
            listed_at: Duration::ZERO,
            finished_bytes: 0,
        };
        for mark in opening.marks {
            if let Some(value) = &mark.value {
                let done = DoneMark::decode(&source.path_of(&mark.name), value)?;
                source.done.insert(mark.name.clone(), done);
            }
        }
        if let Some(encoded) = opening.position {
            let position = DirectoryPosition::decode(&options.path, encoded)?;
            source.finished = position.finished;
            if let Some((name, position)) = position.current {
                source.current = source.reopen(name, &position, opening.on_change)?;
            }
        }
        source.list(match opening.on_change {
            // Another path may have been accepted: times and sizes of other files say nothing.
            OnChange::StartOver => Look::AtContents,
            OnChange::Refuse => Look::AtStamps,
        })?;
        Ok(source)
    }

    /// Goes on in a file; `None` where it is gone, or no longer among those that are read, and that was accepted.
    fn reopen(
        &self,
        name: String,
        position: &[u8],
        on_change: OnChange,
    ) -> Result<Option<CurrentFile>, SourceError> {
        if !self.filter.matches(&name) {
            let reading = file::read_position(&name, position)?;
            return match on_change {
                OnChange::StartOver => Ok(None),
                OnChange::Refuse => Err(SourceError::Unmatched {
                    path: self.path_of(&name),
                    pattern: self.options.pattern.clone(),
                    passed: reading.passed,
                }),
            };
        }
        let opened = stamp_of(&self.path_of(&name)).and_then(|stamp| {
            let source = FileSource::open(&self.file(&name), Some(position), on_change)?;
            Ok((stamp, source.on_failure(self.on_failure)))
        });
        match opened {
            Ok((stamp, source)) => Ok(Some(CurrentFile {
                name,
                stamp,
                source,
            })),
            Err(SourceError::Open { path, source }) if is_gone(&source) => {
                let reading = file::read_position(&name, position)?;
                match on_change {
                    OnChange::StartOver => Ok(None),
                    OnChange::Refuse => Err(SourceError::Vanished {
                        path,
                        passed: reading.passed,
                    }),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.options.path.join(name)
    }

    fn file(&self, name: &str) -> FileSourceOptions {
        FileSourceOptions {
            path: self.path_of(name),
            written_path: name.to_owned(),
            format: self.options.format,
            max_record_bytes: self.options.max_record_bytes,
            follow: false,
        }
    }

    /// Looks at what is in the directory now.
    fn list(&mut self, look: Look) -> Result<(), SourceError> {
        self.listed_at = self.now;
        let files = list(&self.options.path)?;
        let gone: Vec<String> = (self.done.keys())
            .filter(|name| !files.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            self.done.remove(&name);
            self.changed_marks.insert(name, None);
        }
        self.look_for_changes(&files, look)?;
        let current = self.current.as_ref().map(|current| current.name.as_str());
        let is_done = |name: &str| current == Some(name) || self.done.contains_key(name);
        self.waiting = self.filter.in_order(&files, is_done).into();
        Ok(())
    }

    /// What was read to its end is not read again, also if there is more or something else in it now. Somebody
    /// should know; once. Another file that has got its name is read: nobody has read anything of it.
    fn look_for_changes(
        &mut self,
        files: &BTreeMap<String, FileStamp>,
        look: Look,
    ) -> Result<(), SourceError> {
        let mut changed = Vec::new();
        for (name, done) in &self.done {
            match files.get(name) {
                Some(now) if look == Look::AtContents || *now != done.stamp => {
                    changed.push((name.clone(), *now));
                }
                _ => {}
            }
        }
        for (name, now) in changed {
            let options = self.file(&name);
            let Some(done) = self.done.get_mut(&name) else {
                continue;
            };
            let is_recognized = is_recognized(&options, &done.position)?;
            let is_same = is_recognized && done.stamp.size_bytes == now.size_bytes;
            // Every file holds what was read of an empty one.
            let holds_what_was_read = is_recognized && done.stamp.size_bytes > 0;
            // After another path was accepted, what looks like the same file need not be it.
            let may_be_another = look == Look::AtContents || !done.stamp.is_of_same_file(&now);
            if !is_same && !holds_what_was_read && may_be_another {
                tracing::info!(
                    file = %options.path.display(),
                    "another file has the name of one that was read, and is read as well"
                );
                self.done.remove(&name);
                self.changed_marks.insert(name, None);
                continue;
            }
            if !is_same {
                tracing::warn!(
                    file = %options.path.display(),
                    was_bytes = done.stamp.size_bytes,
                    now_bytes = now.size_bytes,
                    remedy = "put what is new into a file with a name of its own",
                    "file has changed since it was read to its end, and is not read again"
                );
            }
            if done.stamp != now {
                done.stamp = now;
                self.changed_marks.insert(name, Some(done.encode()));
            }
        }
        Ok(())
    }

    /// Opens the file that comes next. `false` if there is none for now.
    fn begin_next(&mut self) -> Result<bool, SourceError> {
        if self.options.follow && self.now >= self.listed_at + LISTING_PERIOD {
            self.list(Look::AtStamps)?;
        }
        while let Some((name, _)) = self.waiting.pop_front() {
            let opened = stamp_of(&self.path_of(&name)).and_then(|stamp| {
                let source = FileSource::open(&self.file(&name), None, OnChange::Refuse)?;
                Ok((stamp, source.on_failure(self.on_failure)))
            });
            match opened {
                Ok((stamp, source)) => {
                    self.current = Some(CurrentFile {
                        name,
                        stamp,
                        source,
                    });
                    return Ok(true);
                }
                // It left before it was begun.
                Err(SourceError::Open { source, .. }) if is_gone(&source) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The current file was read to its end.
    fn finish(&mut self, current: CurrentFile) -> Result<(), SourceError> {
        let CurrentFile {
            name,
            stamp: opened,
            source,
        } = current;
        let mut stamp = match stamp_of(&self.path_of(&name)) {
            Ok(stamp) => stamp,
            // All of it was read. The next listing finds that it has left.
            Err(SourceError::Open { source, .. }) if is_gone(&source) => opened,
            Err(error) => return Err(error),
        };
        // What was read is what was opened, whatever has its name by now.
        (stamp.inode, stamp.created_ns) = (opened.inode, opened.created_ns);
        // What has come since the end was seen is a change.
        if let Some(end) = source.plain_end() {
            stamp.size_bytes = end;
        }
        self.finished += 1;
        self.finished_bytes += source.progress().done_bytes;
        let mark = DoneMark {
            stamp,
            position: source.position(),
        };
        self.changed_marks.insert(name.clone(), Some(mark.encode()));
        self.done.insert(name, mark);
        Ok(())
    }
}

impl Source for DirectorySource {
    fn decode_again(&mut self, record: &[u8]) -> Option<Option<Vec<u8>>> {
        // Each file has a header of its own, and which one the record is of may be long gone.
        let has_header = self.options.format == crate::types::pipeline::RecordFormat::Csv;
        let current = self.current.as_mut().filter(|_| !has_header)?;
        current.source.decode_again(record)
    }

    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        if self.current.is_none() && !self.begin_next()? {
            return Ok(match self.options.follow {
                true => PollOutcome::Wait,
                false => PollOutcome::End,
            });
        }
        if let Some(mut current) = self.current.take() {
            self.last_name.clone_from(&current.name);
            self.last_number = self.finished;
            self.last_incarnation = current.source.incarnation();
            match current.source.poll(limit, records) {
                Ok(PollOutcome::End) => self.finish(current)?,
                polled => {
                    self.current = Some(current);
                    polled?;
                }
            }
        }
        Ok(PollOutcome::More)
    }

    fn position(&self) -> Vec<u8> {
        let current = self.current.as_ref();
        let position = DirectoryPosition {
            current: current.map(|current| (current.name.clone(), current.source.position())),
            finished: self.finished,
        };
        position.encode()
    }

    fn take_marks(&mut self) -> Vec<SourceMark> {
        let changed = std::mem::take(&mut self.changed_marks);
        let mark = |(name, value)| SourceMark { name, value };
        changed.into_iter().map(mark).collect()
    }

    fn tell_time(&mut self, elapsed: Duration) {
        self.now = elapsed;
    }

    fn wait_at_most(&self) -> Option<Duration> {
        Some((self.listed_at + LISTING_PERIOD).saturating_sub(self.now))
    }

    fn locate(&self, lines: &RangeInclusive<u64>) -> String {
        format!("{} of {}", numbered("line", lines), self.last_name)
    }

    fn record_name(&self, line: u64) -> Vec<u8> {
        let mut name = self.last_number.to_be_bytes().to_vec();
        name.extend(self.last_incarnation.to_be_bytes());
        name.extend(line.to_be_bytes());
        name.extend(self.last_name.as_bytes());
        name
    }

    fn write_time(&self) -> Timestamp {
        match (&self.current, self.waiting.front()) {
            (Some(current), _) => current.source.write_time(),
            (None, Some((_, stamp))) => stamp.write_time(),
            (None, None) => 0,
        }
    }

    fn progress(&self) -> SourceProgress {
        let current = self.current.as_ref();
        let current = current.map_or_else(SourceProgress::default, |it| it.source.progress());
        let waiting: u64 = self.waiting.iter().map(|(_, stamp)| stamp.size_bytes).sum();
        let total = self.finished_bytes + current.total_bytes.unwrap_or(0) + waiting;
        SourceProgress {
            done_bytes: self.finished_bytes + current.done_bytes,
            total_bytes: (!self.options.follow).then_some(total),
        }
    }
}

/// What shows whether a file that was read is the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Its size and times, and where they differ its content.
    AtStamps,
    /// Its content in any case.
    AtContents,
}

fn stamp_of(path: &Path) -> Result<FileStamp, SourceError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(FileStamp::of(&metadata)),
        Err(source) => Err(SourceError::Open {
            path: path.to_owned(),
            source,
        }),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Whether a file still has the content that was read. One that can't be read has not.
fn is_recognized(options: &FileSourceOptions, position: &[u8]) -> Result<bool, SourceError> {
    match file::recognize(options, &[position]) {
        Ok(held) => Ok(held == [true]),
        Err(error @ SourceError::UndecodablePosition { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests;
