//! The order in which a job takes the messages of its lanes (rows R1, R3).
//!
//! Within a stream the messages that are present are taken by (alignment timestamp, message id).
//! Across streams the alignment timestamp is corrected by the stream's *lead*, the mean distance
//! from alignment timestamps to event times, and by the configured delay: so streams whose records
//! were written at different times for the same moment come together.
//!
//! It is a priority among what is present, never a wait for an empty lane: a stream that is read
//! twice and joined again would wait for itself. Inside a lane the order is exact.

use std::time::Duration;

use crate::types::batch::Timestamp;
use crate::types::epoch::ChunkMessages;
use crate::types::ids::PartitionId;

/// What a message is taken by: the least goes first. Messages of one lane follow each other by
/// their ids, so the lane's producer stands for them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    /// The alignment timestamp with its stream's lead and delay, in milliseconds.
    pub time: i128,
    /// The input that it comes by: the tie rule, in the order of the component's inputs.
    pub input: u16,
    /// The partition that made it, the first part of its id.
    pub producer: PartitionId,
}

/// How far event times are from alignment timestamps in the messages of one input that are at hand.
#[derive(Debug, Clone, Default)]
pub struct InputLead {
    /// Event time minus alignment timestamp, summed up over messages that have an event time.
    sum: i128,
    count: u64,
    /// The mean when it was looked at last; kept while nothing is at hand.
    mean: i128,
    delay: Duration,
}

impl InputLead {
    /// The lead of an input whose messages are to be taken as if they were `delay` younger.
    pub fn with_delay(delay: Duration) -> InputLead {
        InputLead {
            delay,
            ..InputLead::default()
        }
    }

    /// Messages `range` of a chunk are at hand.
    pub fn add(&mut self, chunk: &ChunkMessages, range: std::ops::Range<usize>) {
        let (sum, count) = leads(chunk, range);
        self.sum += sum;
        self.count += count;
    }

    /// Messages `range` of a chunk were taken.
    pub fn remove(&mut self, chunk: &ChunkMessages, range: std::ops::Range<usize>) {
        let (sum, count) = leads(chunk, range);
        self.sum -= sum;
        self.count -= count;
    }

    /// Takes the mean of what is at hand; [`InputLead::priority`] uses it until the next time.
    pub fn take_mean(&mut self) {
        if self.count > 0 {
            self.mean = self.sum / i128::from(self.count);
        }
    }

    /// The priority of a message of this input.
    pub fn priority(&self, input: u16, alignment: Timestamp, producer: PartitionId) -> Priority {
        let delay = i128::try_from(self.delay.as_millis()).unwrap_or(i128::MAX / 4);
        Priority {
            time: i128::from(alignment) + self.mean + delay,
            input,
            producer,
        }
    }
}

/// Sum and count of the leads of some messages. An event time of 0 is none.
fn leads(chunk: &ChunkMessages, range: std::ops::Range<usize>) -> (i128, u64) {
    let (mut sum, mut count) = (0, 0);
    let mut at = range.start;
    while at < range.end {
        let run = chunk.alignments.run_of(at);
        let end = range.end.min(chunk.alignments.ends[run] as usize);
        let alignment = i128::from(chunk.alignments.values[run]);
        for time in chunk.event_times[at..end].iter().filter(|time| **time != 0) {
            sum += i128::from(*time) - alignment;
            count += 1;
        }
        at = end;
    }
    (sum, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(messages: &[(Timestamp, Timestamp)]) -> ChunkMessages {
        ChunkMessages {
            alignments: messages.iter().map(|(alignment, _)| *alignment).collect(),
            event_times: messages.iter().map(|(_, time)| *time).collect(),
            ..ChunkMessages::default()
        }
    }

    fn time_of(lead: &InputLead, alignment: Timestamp) -> i128 {
        lead.priority(0, alignment, PartitionId(1)).time
    }

    #[test]
    fn r3_a_streams_lead_is_the_mean_over_what_is_at_hand() {
        let mut lead = InputLead::default();
        let messages = chunk(&[(1_000, 400), (1_000, 200), (2_000, 2_000)]);
        lead.add(&messages, 0..3);
        lead.take_mean();
        assert_eq!(time_of(&lead, 1_000), 1_000 - (600 + 800) / 3);
        lead.remove(&messages, 0..2);
        assert_eq!(
            time_of(&lead, 1_000),
            1_000 - (600 + 800) / 3,
            "until asked for again"
        );
        lead.take_mean();
        assert_eq!(time_of(&lead, 1_000), 1_000);
    }

    #[test]
    fn r3_an_empty_stream_keeps_its_lead_and_messages_without_event_time_give_none() {
        let mut lead = InputLead::default();
        let messages = chunk(&[(1_000, 0), (1_000, 900)]);
        lead.add(&messages, 0..2);
        lead.take_mean();
        lead.remove(&messages, 0..2);
        lead.take_mean();
        assert_eq!(time_of(&lead, 5_000), 4_900);
    }

    #[test]
    fn r3_a_delay_makes_a_stream_younger() {
        let lead = InputLead::with_delay(Duration::from_secs(5));
        assert_eq!(time_of(&lead, 1_000), 6_000);
    }

    #[test]
    fn r1_ties_go_by_input_then_by_producer() {
        let priority = |input, alignment, producer| {
            InputLead::default().priority(input, alignment, PartitionId(producer))
        };
        let mut order = [
            priority(1, 5, 1),
            priority(0, 5, 9),
            priority(0, 5, 2),
            priority(2, 4, 7),
        ];
        order.sort();
        let names: Vec<(u16, u64)> = order.iter().map(|it| (it.input, it.producer.0)).collect();
        assert_eq!(names, [(2, 7), (0, 2), (0, 9), (1, 1)]);
    }
}
