//! The checker of order: what decided chunks say of their messages' places in their streams.
//!
//! - **R1**: in a lane, messages stand by alignment timestamp, then id, and no epoch decided later
//!   puts one before another.
//! - **R2**: the alignment timestamp is the write time of the record that a source's message goes
//!   back to, or the time at which a transform's epoch was made; maps pass it on. Neither falls
//!   within a partition: then the greatest one before stands in its place.

use std::collections::BTreeMap;

use tidelock::types::batch::Timestamp;
use tidelock::types::ids::{LaneId, MessageId};

use crate::checkers::{Checker, Finding};
use crate::deployment::Deployment;
use crate::graph::{Graph, Head};
use crate::record_source::{number_of, write_time};
use crate::storage::Decided;

/// Judges the chunks of everything that was ever decided.
pub(crate) fn judge(graph: &Graph, deployment: &Deployment, decided: &[Decided]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut order = LaneOrder::default();
    for place in graph.places() {
        let partition = deployment.partition(graph, place);
        let head = graph.shapes[place.shape].head;
        let mut times = Times {
            head,
            greatest: 0,
            records: 0,
        };
        let of_partition = (decided.iter()).filter(|one| one.commit.partition == partition);
        for Decided { commit, at } in of_partition {
            if commit.record.input_count > 0 {
                times.epoch_made(*at);
            }
            for chunk in &commit.chunks {
                let messages = &chunk.messages;
                for (index, alignment) in messages.alignments.iter().enumerate() {
                    let id = MessageId {
                        partition,
                        epoch: chunk.epoch,
                        index: messages.indexes[index],
                    };
                    let expected = times.of_message(messages.payloads.get(index));
                    if alignment != expected {
                        findings.push(finding(format!(
                            "{} of {} has the alignment timestamp {alignment}, not {expected}",
                            messages.payloads.get(index).escape_ascii(),
                            graph.head_name(head),
                        )));
                    }
                    findings.extend(order.follow(chunk.lane, alignment, id));
                }
            }
        }
    }
    findings
}

/// What messages of a partition are to be stamped with.
struct Times {
    head: Head,
    /// The greatest time so far.
    greatest: Timestamp,
    /// How many records of a source it covers.
    records: u64,
}

impl Times {
    /// An epoch with input was made at this time.
    fn epoch_made(&mut self, at: Timestamp) {
        if let Head::Transform(_) = self.head {
            self.greatest = self.greatest.max(at);
        }
    }

    fn of_message(&mut self, payload: &[u8]) -> Timestamp {
        if let Head::Source(source) = self.head {
            let end = number_of(payload) + 1;
            // Records are read in order, so a message of an earlier one was stamped before.
            if end < self.records {
                return greatest_write_time(source, 0, end);
            }
            let since = greatest_write_time(source, self.records, end);
            self.greatest = self.greatest.max(since);
            self.records = end;
        }
        self.greatest
    }
}

fn greatest_write_time(source: usize, start: u64, end: u64) -> Timestamp {
    let times = (start..end).map(|number| write_time(source, number));
    times.max().unwrap_or(0)
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
