//! Records of a source as the input of a job.

use std::time::Duration;

use crate::engine::epoch::BatchRoom;
use crate::engine::stream::InputMessages;
use crate::source::undecodable::UndecodableRecord;
use crate::source::{PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords};
use crate::types::epoch::SourceMark;
use crate::types::ids::{PartitionId, PublicId};
use crate::types::timestamp_runs::TimestampRuns;
use crate::worker::input::ItemLocation;

/// Records of a source.
pub struct SourceInput {
    name: String,
    source: Box<dyn Source>,
    records: SourceRecords,
    ended: bool,
    /// Whether it had nothing when it was asked last, and may get more.
    waits: bool,
    progress: SourceProgress,
    /// The position that the last epoch commits, of this or an earlier run.
    sealed: Option<Vec<u8>>,
}

impl SourceInput {
    /// Reads on from where the source stands; `name` is what it is in errors, `committed` the position
    /// in storage.
    pub fn new(name: String, source: Box<dyn Source>, committed: Option<Vec<u8>>) -> SourceInput {
        SourceInput {
            sealed: committed,
            progress: source.progress(),
            name,
            source,
            records: SourceRecords::default(),
            ended: false,
            waits: false,
        }
    }

    /// The next records, `elapsed` since the process began; none at the source's end, or while it has none for now, or
    /// where all that it has can't be decoded: see [`SourceInput::take_undecodable`].
    ///
    /// # Errors
    ///
    /// When the source can't be read on.
    pub fn next(
        &mut self,
        room: BatchRoom,
        elapsed: Duration,
    ) -> Result<InputMessages, SourceError> {
        let limit = PollLimit {
            rows: room.rows,
            bytes: room.bytes,
        };
        self.records.clear();
        self.waits = false;
        self.source.tell_time(elapsed);
        while !self.ended && !self.waits && self.has_none() {
            match self.source.poll(limit, &mut self.records)? {
                PollOutcome::More => {}
                PollOutcome::Wait => self.waits = true,
                PollOutcome::End => self.ended = true,
            }
        }
        let payloads = std::mem::take(&mut self.records.payloads);
        let mut keys = std::mem::take(&mut self.records.keys);
        let mut event_times = std::mem::take(&mut self.records.event_times);
        if keys.is_empty() {
            keys.ends.resize(payloads.len(), 0);
        }
        event_times.resize(payloads.len(), 0);
        Ok(InputMessages {
            streams: vec![0; payloads.len()],
            keys,
            event_times,
            payloads,
        })
    }

    /// Whether the last polls gave neither records nor any that are passed over.
    fn has_none(&self) -> bool {
        self.records.payloads.is_empty() && self.records.undecodable.is_empty()
    }

    /// Those among the last records that could not be decoded.
    pub fn take_undecodable(&mut self) -> Vec<UndecodableRecord> {
        std::mem::take(&mut self.records.undecodable)
    }

    /// Where a record is that was read last, by its line or offset.
    pub fn locate_record(&self, position: u64) -> ItemLocation {
        ItemLocation::Records {
            source: self.name.clone(),
            records: self.source.locate(&(position..=position)),
        }
    }

    /// A record that could not be decoded when it came, if it can be now; see [`Source::decode_again`].
    pub fn decode_again(&mut self, record: &[u8]) -> Option<Option<InputMessages>> {
        let decoded = self.source.decode_again(record)?;
        Some(decoded.map(|payload| {
            let mut input = InputMessages::default();
            input.push(0, b"", 0, &payload);
            input
        }))
    }

    /// What is to be committed with the position, for an epoch.
    pub fn seal_marks(&mut self) -> Vec<SourceMark> {
        self.source.take_marks()
    }

    /// While it waits, when to ask it again at the latest.
    pub fn wait_at_most(&self) -> Option<Duration> {
        self.source.wait_at_most()
    }

    /// What it is in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When the records of the last batch were written.
    pub fn write_times(&self) -> &TimestampRuns {
        &self.records.write_times
    }

    /// Whether it had no records when it was asked last, and may get more.
    pub fn waits(&self) -> bool {
        self.waits && self.records.lines.is_empty()
    }

    /// Whether the source is finite and at the end that it had when it was read last.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The position behind the last record, encoded.
    fn position(&self) -> Vec<u8> {
        self.source.position()
    }

    /// The position, for an epoch to commit.
    pub fn seal(&mut self) -> Vec<u8> {
        let position = self.position();
        self.sealed = Some(position.clone());
        position
    }

    /// Whether the position differs from the one that was sealed last: also that of a source without records
    /// which was never read before, or was started over.
    pub fn has_moved(&self) -> bool {
        self.sealed.as_ref() != Some(&self.position())
    }

    /// Whether where it begins is to be committed, though there was no record yet.
    pub fn owes_beginning(&self) -> bool {
        self.sealed.is_none() && self.source.commits_where_it_begins()
    }

    /// How many bytes the source has moved on by since this was last asked.
    pub fn bytes_advanced(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.progress, self.source.progress());
        self.progress.done_bytes.saturating_sub(before.done_bytes)
    }

    /// How far the source is.
    pub fn progress(&self) -> SourceProgress {
        self.progress
    }

    /// What the records of the last batch are known by; `partition` is the source's.
    pub fn public_ids(&self, partition: PartitionId) -> Vec<PublicId> {
        let lines = self.records.lines.iter();
        let name = |line: &u64| self.source.record_name(*line);
        lines
            .map(|line| PublicId::of_record(partition, &name(line)))
            .collect()
    }

    /// Where the given items of the last batch came from.
    pub fn locate(&self, items: &std::ops::Range<u32>) -> ItemLocation {
        let line = |item: u32| self.records.lines.get(item as usize).copied().unwrap_or(0);
        ItemLocation::Records {
            source: self.name.clone(),
            records: (self.source).locate(&(line(items.start)..=line(items.end.saturating_sub(1)))),
        }
    }
}
