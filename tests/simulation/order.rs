//! The checker of order: what decided chunks say of their messages' places in their streams.
//!
//! - **R1**: in a lane, messages stand by alignment timestamp, then id, and no epoch decided later
//!   puts one before another.
//! - **R2**: the alignment timestamp is the write time of the record that a source's message goes
//!   back to, or the time at which a transform's epoch was made; maps pass it on. Neither falls
//!   within a partition: then the greatest one before stands in its place.

use std::collections::BTreeMap;

use tidelock::types::batch::Timestamp;
use tidelock::types::ids::{EpochId, LaneId, MessageId, PartitionId};

use crate::checkers::{Checker, Evidence, Finding};
use crate::graph::Head;
use crate::history::Decided;
use crate::layouts::Layouts;
use crate::record_source::{SourcePart, number_of, part_of, write_time};

/// Judges the chunks of everything that was ever decided.
pub(crate) fn judge(evidence: &Evidence<'_>, decided: &[Decided]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut order = LaneOrder::default();
    let mut times = Times::default();
    for Decided { commit, at, .. } in decided {
        let partition = commit.partition;
        let head = evidence.graph.shapes[evidence.layouts.place(partition).shape].head;
        if commit.record.output_count > 0 && matches!(head, Head::Transform(_)) {
            times.epoch_made(evidence.layouts, partition, commit.epoch, *at);
        }
        for chunk in &commit.chunks {
            let messages = &chunk.messages;
            for (index, alignment) in messages.alignments.iter().enumerate() {
                let id = MessageId {
                    partition,
                    epoch: chunk.epoch,
                    index: messages.indexes[index],
                };
                let payload = messages.payloads.get(index);
                let expected = match head {
                    Head::Source(_) => times.of_record(part_of(payload), number_of(payload)),
                    Head::Transform(_) => times.of_epoch.get(&(partition, chunk.epoch)).copied(),
                };
                if Some(alignment) != expected {
                    findings.push(finding(format!(
                        "{} of {} has the alignment timestamp {alignment}, not {expected:?}",
                        payload.escape_ascii(),
                        evidence.name(partition),
                    )));
                }
                findings.extend(order.follow(chunk.lane, alignment, id));
            }
        }
    }
    findings
}

/// What messages are to be stamped with.
#[derive(Default)]
struct Times {
    /// Of each transform's partition, the greatest time that it has given.
    greatest: BTreeMap<PartitionId, Timestamp>,
    /// What each epoch of a transform gave.
    of_epoch: BTreeMap<(PartitionId, EpochId), Timestamp>,
    /// Of each source's partition, the greatest write time up to each record.
    of_records: BTreeMap<SourcePart, Vec<Timestamp>>,
}

impl Times {
    /// An epoch of a transform was made at this time. A partition never gives less than those of
    /// the layouts before its own.
    fn epoch_made(
        &mut self,
        layouts: &Layouts,
        partition: PartitionId,
        epoch: EpochId,
        at: Timestamp,
    ) {
        let own = layouts.place(partition);
        let is_before = |other: PartitionId| {
            let other = layouts.place(other);
            other.shape == own.shape && other.layout < own.layout
        };
        let before = self.greatest.iter();
        let before = before.filter(|(other, _)| **other == partition || is_before(**other));
        let before = before.map(|(_, greatest)| *greatest).max();
        let time = before.unwrap_or(0).max(at);
        self.greatest.insert(partition, time);
        self.of_epoch.insert((partition, epoch), time);
    }

    fn of_record(&mut self, part: SourcePart, number: u64) -> Option<Timestamp> {
        let of_records = self.of_records.entry(part).or_default();
        for number in of_records.len() as u64..=number {
            let before = of_records.last().copied().unwrap_or(0);
            of_records.push(before.max(write_time(part, number)));
        }
        of_records.get(usize::try_from(number).ok()?).copied()
    }
}

/// The last message of each lane.
#[derive(Default)]
struct LaneOrder(BTreeMap<LaneId, (Timestamp, MessageId)>);

impl LaneOrder {
    fn follow(&mut self, lane: LaneId, alignment: Timestamp, id: MessageId) -> Option<Finding> {
        let before = self.0.insert(lane, (alignment, id))?;
        (before >= (alignment, id)).then(|| {
            finding(format!(
                "lane {lane} has message {id} of {alignment} behind {} of {}",
                before.1, before.0
            ))
        })
    }
}

fn finding(text: String) -> Finding {
    Finding {
        checker: Checker::Order,
        text,
    }
}
