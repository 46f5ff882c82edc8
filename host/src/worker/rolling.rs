//! The files that a job's directory sink writes, one after the other: which one an epoch's rows go to, and when
//! it is finished. Between two epochs that is kept in the store, with the epoch that it follows from.
//!
//! **Invariant:** a file is of one partition and has one number, and numbers rise; rows go to one file of a sink
//! at a time.

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::epoch::SealedParts;
use crate::engine::generator::milliseconds;
use crate::sink::directory::{DirectoryProgress, OpenFile};
use crate::storage::{PART_SUFFIX, Storage, StorageError, rows};
use crate::types::batch::Timestamp;
use crate::types::connectors::DirectorySinkOptions;
use crate::types::epoch::SinkProgress;
use crate::types::ids::{PartitionId, SinkFileId};
use crate::types::key::key_hash;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingFiles {
    sink: String,
    options: DirectorySinkOptions,
    partition: PartitionId,
    progress: DirectoryProgress,
    /// A file of earlier options, which is finished by the next epoch.
    left: Option<SinkFileId>,
}

impl RollingFiles {
    /// The files of a partition as its last epoch left them; the one that rows go to is opened.
    ///
    /// # Errors
    ///
    /// When the store fails, or the file is not as it was left.
    pub fn open(
        sink: &str,
        options: &DirectorySinkOptions,
        partition: PartitionId,
        storage: &dyn Storage,
    ) -> Result<RollingFiles, StorageError> {
        let kept = rows::read_sink_progress(storage, partition)?;
        let kept = kept.into_iter().find(|(name, _)| name == sink);
        let progress = match kept {
            None => DirectoryProgress::default(),
            Some((_, value)) => decode_progress(partition, sink, &value)?,
        };
        let mut files = RollingFiles {
            sink: sink.to_owned(),
            options: options.clone(),
            partition,
            progress,
            left: None,
        };
        storage.check_file_series(&files.part(files.progress.next))?;
        if let Some(open) = files.progress.open {
            if open.place == files.place() {
                storage.open_sink_file(&files.part(open.number))?;
            } else {
                files.left = Some(open.file);
                files.progress.open = None;
            }
        }
        Ok(files)
    }

    /// Puts an epoch's rows into it, for the file that they go to. Files that are large or old enough are finished.
    ///
    /// # Errors
    ///
    /// When a file can't be made.
    pub fn take(
        &mut self,
        lines: Option<Vec<u8>>,
        now: Timestamp,
        storage: &dyn Storage,
        parts: &mut SealedParts,
    ) -> Result<(), StorageError> {
        let before = self.progress.clone();
        let had_left = self.left.is_some();
        parts.finished_files.extend(self.left.take());
        if let Some(lines) = lines {
            let size_bytes = lines.len() as u64;
            let is_full = |open: &OpenFile| {
                open.size_bytes > 0 && open.size_bytes + size_bytes > self.options.max_bytes
            };
            if self.progress.open.as_ref().is_some_and(is_full) {
                self.finish(parts);
            }
            let mut open = match self.progress.open {
                Some(open) => open,
                None => self.begin(now, storage)?,
            };
            open.size_bytes += size_bytes;
            parts.appends.push((open.file, lines));
            self.progress.open = Some(open);
            if open.size_bytes >= self.options.max_bytes {
                self.finish(parts);
            }
        }
        if self.due_in(now) == Some(Duration::ZERO) {
            self.finish(parts);
        }
        if had_left || self.progress != before {
            self.keep(parts);
        }
        Ok(())
    }

    /// Finishes the file that is written: nothing more comes in this run.
    pub fn end(&mut self, parts: &mut SealedParts) {
        if self.has_open_file() {
            parts.finished_files.extend(self.left.take());
            self.finish(parts);
            self.keep(parts);
        }
    }

    /// Whether a file is to be finished at the end of a run.
    pub fn has_open_file(&self) -> bool {
        self.progress.open.is_some() || self.left.is_some()
    }

    /// In how long the file that is written is old enough; `None` where it does not age.
    pub fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let (open, age) = (self.progress.open?, self.options.max_age?);
        let due = open.opened_at.saturating_add(milliseconds(age));
        Some(Duration::from_millis(due.saturating_sub(now)))
    }

    fn begin(&mut self, now: Timestamp, storage: &dyn Storage) -> Result<OpenFile, StorageError> {
        let number = self.progress.next;
        let file = storage.open_sink_file(&self.part(number))?;
        self.progress.next += 1;
        Ok(OpenFile {
            file,
            number,
            place: self.place(),
            size_bytes: 0,
            opened_at: now,
        })
    }

    fn finish(&mut self, parts: &mut SealedParts) {
        let open = self.progress.open.take();
        parts.finished_files.extend(open.map(|open| open.file));
    }

    /// Has the epoch keep where the files stand; once for each sink.
    fn keep(&self, parts: &mut SealedParts) {
        parts.sink_progress.retain(|of| of.sink != self.sink);
        parts.sink_progress.push(SinkProgress {
            sink: self.sink.clone(),
            value: Some(self.progress.encode()),
        });
        parts
            .sink_progress
            .sort_by(|left, right| left.sink.cmp(&right.sink));
    }

    /// The path of a file while it is written.
    fn part(&self, number: u64) -> PathBuf {
        let name = self.options.file_name(self.partition.0, number);
        self.options.path.join(name + PART_SUFFIX)
    }

    /// Tells paths of one set of options from those of another one.
    fn place(&self) -> u64 {
        key_hash(self.part(0).as_os_str().as_encoded_bytes())
    }
}

/// What is kept of a directory sink of a partition.
///
/// # Errors
///
/// [`StorageError::Undecodable`].
pub fn decode_progress(
    partition: PartitionId,
    sink: &str,
    value: &[u8],
) -> Result<DirectoryProgress, StorageError> {
    DirectoryProgress::decode(value).map_err(|finding| StorageError::Undecodable {
        what: format!("the progress of sink {sink} of partition {partition}"),
        finding,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory::MemoryStorage;
    use crate::storage::{CommitOutcome, leases};
    use crate::types::epoch::{EpochCommit, SinkAppend};
    use crate::types::lease::Lease;

    /// Files of one partition over storage in memory.
    struct Fixture {
        storage: MemoryStorage,
        lease: Lease,
        options: DirectorySinkOptions,
        files: RollingFiles,
    }

    const PARTITION: PartitionId = PartitionId(7);

    impl Fixture {
        fn new(max_bytes: u64, max_age_ms: Option<u64>) -> Fixture {
            let options = DirectorySinkOptions {
                path: PathBuf::from("/out"),
                prefix: "a".to_owned(),
                extension: "jsonl".to_owned(),
                max_bytes,
                max_age: max_age_ms.map(Duration::from_millis),
            };
            let storage = MemoryStorage::new();
            let lease = leases::grant(&storage, PARTITION).unwrap();
            let files = RollingFiles::open("s", &options, PARTITION, &storage).unwrap();
            Fixture {
                storage,
                lease,
                options,
                files,
            }
        }

        fn reopen(&mut self) {
            let opened = RollingFiles::open("s", &self.options, PARTITION, &self.storage);
            self.files = opened.unwrap();
        }

        fn commit(&mut self, parts: SealedParts) {
            let head = self.storage.head(PARTITION).unwrap();
            let append = |(file, bytes)| SinkAppend { file, bytes };
            let epoch = EpochCommit {
                appends: parts.appends.into_iter().map(append).collect(),
                finished_files: parts.finished_files,
                sink_progress: parts.sink_progress,
                ..EpochCommit::empty(&self.lease, head.epoch.next())
            };
            let outcome = self.storage.commit_epoch(self.lease, epoch).unwrap();
            assert!(
                matches!(outcome, CommitOutcome::Committed(_)),
                "{outcome:?}"
            );
        }

        /// An epoch with these lines.
        fn epoch(&mut self, lines: &str, now: Timestamp) {
            let mut parts = SealedParts::default();
            let lines = (!lines.is_empty()).then(|| lines.as_bytes().to_vec());
            self.files
                .take(lines, now, &self.storage, &mut parts)
                .unwrap();
            self.commit(parts);
        }

        fn end(&mut self) {
            let mut parts = SealedParts::default();
            self.files.end(&mut parts);
            self.commit(parts);
        }

        fn finished(&self, number: u64) -> Option<String> {
            let path = format!("/out/a-7-{number:08}.jsonl");
            let bytes = self.storage.finished_bytes(path.as_ref())?;
            Some(String::from_utf8(bytes).unwrap())
        }
    }

    #[test]
    fn a_file_is_finished_when_it_is_large_enough_or_would_get_too_large() {
        let mut fixture = Fixture::new(10, None);
        fixture.epoch("1234567\n", 0);
        assert_eq!(fixture.finished(0), None);
        fixture.epoch("abc\n", 0);
        assert_eq!(fixture.finished(0).as_deref(), Some("1234567\n"));
        fixture.epoch("defgh\n", 0);
        assert_eq!(fixture.finished(1).as_deref(), Some("abc\ndefgh\n"));
        // One epoch goes to one file, however large it is.
        fixture.epoch("0123456789012345\n", 0);
        assert_eq!(fixture.finished(2).as_deref(), Some("0123456789012345\n"));
        assert!(!fixture.files.has_open_file());
    }

    #[test]
    fn a_file_is_finished_when_its_first_row_is_old_enough() {
        let mut fixture = Fixture::new(1_000, Some(500));
        assert_eq!(fixture.files.due_in(0), None);
        fixture.epoch("a\n", 1_000);
        assert_eq!(
            fixture.files.due_in(1_200),
            Some(Duration::from_millis(300))
        );
        fixture.epoch("b\n", 1_400);
        fixture.epoch("", 1_499);
        assert_eq!(fixture.finished(0), None);
        fixture.epoch("", 1_500);
        assert_eq!(fixture.finished(0).as_deref(), Some("a\nb\n"));
        fixture.epoch("", 9_000);
        assert_eq!(fixture.finished(1), None);
    }

    #[test]
    fn a_successor_goes_on_in_the_file_that_was_left() {
        let mut fixture = Fixture::new(10, Some(1_000));
        fixture.epoch("a\n", 100);
        fixture.reopen();
        assert_eq!(fixture.files.due_in(100), Some(Duration::from_secs(1)));
        fixture.epoch("b\n", 200);
        fixture.reopen();
        fixture.end();
        assert_eq!(fixture.finished(0).as_deref(), Some("a\nb\n"));
        fixture.reopen();
        fixture.epoch("c\n", 300);
        fixture.end();
        assert_eq!(fixture.finished(1).as_deref(), Some("c\n"));
    }

    #[test]
    fn a_file_whose_epoch_was_not_committed_is_begun_again_under_its_number() {
        let mut fixture = Fixture::new(10, None);
        let mut lost = SealedParts::default();
        let lines = Some(b"lost\n".to_vec());
        fixture
            .files
            .take(lines, 0, &fixture.storage, &mut lost)
            .unwrap();
        fixture.reopen();
        fixture.epoch("kept\n", 0);
        fixture.end();
        assert_eq!(fixture.finished(0).as_deref(), Some("kept\n"));
    }

    #[test]
    fn other_options_finish_the_file_that_they_do_not_lead_to() {
        let mut fixture = Fixture::new(10, None);
        fixture.epoch("a\n", 0);
        fixture.options.prefix = "b".to_owned();
        fixture.reopen();
        fixture.epoch("b\n", 0);
        assert_eq!(fixture.finished(0).as_deref(), Some("a\n"));
        fixture.end();
        let other = fixture
            .storage
            .finished_bytes("/out/b-7-00000001.jsonl".as_ref());
        assert_eq!(other.as_deref(), Some(b"b\n".as_slice()));
    }
}
