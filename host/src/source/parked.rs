//! A source that waits for its turn: it was opened and found to be what was read before, holds
//! nothing while it waits, and is opened again, with the same checks, when its first record is asked for.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::source::{
    Opening, PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords, numbered,
    open,
};
use crate::types::batch::Timestamp;
use crate::types::epoch::SourceMark;
use crate::types::ids::PartitionId;
use crate::types::pipeline::{OnFailure, SourceConnector};

/// See the module's documentation.
pub struct ParkedSource {
    connector: SourceConnector,
    on_failure: OnFailure,
    position: Vec<u8>,
    write_time: Timestamp,
    progress: SourceProgress,
    queue_partition: Option<PartitionId>,
    opened: Option<Box<dyn Source>>,
}

impl ParkedSource {
    /// Parks a source of this connector where it stands; it is opened again with that word on records that can't be
    /// decoded.
    pub fn new(
        connector: &SourceConnector,
        source: &dyn Source,
        on_failure: OnFailure,
    ) -> ParkedSource {
        ParkedSource {
            connector: connector.clone(),
            on_failure,
            position: source.position(),
            write_time: source.write_time(),
            progress: source.progress(),
            queue_partition: source.queue_partition(),
            opened: None,
        }
    }

    fn opened(&mut self) -> Result<&mut dyn Source, SourceError> {
        let source = match self.opened.take() {
            Some(source) => source,
            None => {
                let opening = Opening {
                    on_failure: self.on_failure,
                    ..Opening::at(Some(&self.position))
                };
                open(&self.connector, opening)?
            }
        };
        Ok(&mut **self.opened.insert(source))
    }
}

impl Source for ParkedSource {
    fn decode_again(&mut self, record: &[u8]) -> Option<Option<Vec<u8>>> {
        self.opened().ok()?.decode_again(record)
    }

    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        self.opened()?.poll(limit, records)
    }

    fn position(&self) -> Vec<u8> {
        let opened = self.opened.as_ref();
        opened.map_or_else(|| self.position.clone(), |source| source.position())
    }

    fn take_marks(&mut self) -> Vec<SourceMark> {
        let opened = self.opened.as_mut();
        opened.map_or_else(Vec::new, |source| source.take_marks())
    }

    fn tell_time(&mut self, elapsed: Duration) {
        if let Some(source) = &mut self.opened {
            source.tell_time(elapsed);
        }
    }

    fn wait_at_most(&self) -> Option<Duration> {
        self.opened.as_ref()?.wait_at_most()
    }

    fn queue_partition(&self) -> Option<PartitionId> {
        self.queue_partition
    }

    fn locate(&self, lines: &RangeInclusive<u64>) -> String {
        let opened = self.opened.as_ref();
        opened.map_or_else(|| numbered("line", lines), |source| source.locate(lines))
    }

    fn record_name(&self, line: u64) -> Vec<u8> {
        let opened = self.opened.as_ref();
        opened.map_or_else(Vec::new, |source| source.record_name(line))
    }

    fn write_time(&self) -> Timestamp {
        self.write_time
    }

    fn progress(&self) -> SourceProgress {
        let opened = self.opened.as_ref();
        opened.map_or(self.progress, |source| source.progress())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::pipeline::{FileSourceOptions, RecordFormat};

    const ALL: PollLimit = PollLimit {
        rows: 100,
        bytes: 1 << 20,
    };

    /// A file of three lines, and a source of it behind the first one.
    fn behind_the_first_line() -> (tempfile::TempDir, SourceConnector, Box<dyn Source>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, "a\nb\nc\n").unwrap();
        let connector = SourceConnector::File(FileSourceOptions {
            follow: false,
            path,
            written_path: "lines".to_owned(),
            format: RecordFormat::Lines,
            max_record_bytes: 100,
        });
        let mut source = open(&connector, Opening::at(None)).unwrap();
        let one = PollLimit { rows: 1, ..ALL };
        source.poll(one, &mut SourceRecords::default()).unwrap();
        (folder, connector, source)
    }

    #[test]
    fn a_parked_source_goes_on_where_it_stood() {
        let (_folder, connector, mut source) = behind_the_first_line();
        let mut parked = ParkedSource::new(&connector, &*source, OnFailure::Fail);
        assert_eq!(parked.position(), source.position());
        assert_eq!(parked.progress(), source.progress());
        assert_eq!(parked.write_time(), source.write_time());
        let (mut expected, mut found) = (SourceRecords::default(), SourceRecords::default());
        let outcome = source.poll(ALL, &mut expected).unwrap();
        assert_eq!(parked.poll(ALL, &mut found).unwrap(), outcome);
        assert_eq!(found, expected);
        assert_eq!(found.payloads.len(), 2);
        assert_eq!(parked.position(), source.position());
        assert_eq!(parked.progress(), source.progress());
    }

    #[test]
    fn what_is_replaced_while_it_is_parked_is_refused() {
        let (folder, connector, source) = behind_the_first_line();
        let mut parked = ParkedSource::new(&connector, &*source, OnFailure::Fail);
        drop(source);
        std::fs::write(folder.path().join("lines"), "x\ny\nz\n").unwrap();
        let mut records = SourceRecords::default();
        for _ in 0..2 {
            let refused = parked.poll(ALL, &mut records);
            let is_changed = matches!(refused, Err(SourceError::IdentityChanged { .. }));
            assert!(is_changed, "{refused:?}");
        }
        assert!(records.payloads.is_empty());
    }
}
