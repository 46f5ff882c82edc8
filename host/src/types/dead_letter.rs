//! Items that nothing could be made of, kept for a person: who failed on them, how, and all that is needed to
//! try again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::types::batch::{Batch, Timestamp};
use crate::types::ids::{EpochId, MessageId, PartitionId};

/// The most bytes of one part of what a letter tells of a failed call (reason, backtrace, stdout, stderr) that
/// are kept.
pub const LETTER_TEXT_BYTES_MAX: usize = 64 << 10;

/// The name of a dead letter for ever: the partition and the epoch that moved past the item, and its place
/// among that epoch's letters. Its text form is `p3-e42-0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeadLetterId {
    /// The partition whose job wrote it.
    pub partition: PartitionId,
    /// The epoch that it was committed with.
    pub epoch: EpochId,
    /// Its place among the epoch's letters, from 0.
    pub index: u32,
}

impl fmt::Display for DeadLetterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}-{}-{}",
            self.partition, self.epoch, self.index
        )
    }
}

/// A text is no id of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no id of a dead letter; `tidelock dlq list` shows ids, such as p3-e42-0")]
pub struct NoDeadLetterId {
    text: String,
}

impl FromStr for DeadLetterId {
    type Err = NoDeadLetterId;

    fn from_str(text: &str) -> Result<DeadLetterId, NoDeadLetterId> {
        let parse = || {
            let mut parts = text.split('-');
            let id = DeadLetterId {
                partition: PartitionId(number(parts.next()?.strip_prefix('p')?)?),
                epoch: EpochId(number(parts.next()?.strip_prefix('e')?)?),
                index: u32::try_from(number(parts.next()?)?).ok()?,
            };
            parts.next().is_none().then_some(id)
        };
        parse().ok_or_else(|| NoDeadLetterId {
            text: text.to_owned(),
        })
    }
}

/// A number as ids are written: digits alone.
fn number(text: &str) -> Option<u64> {
    (text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// What is asked to be done with a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LetterRequestKind {
    /// Try its item again, and let the letter go with the epoch that does.
    Replay,
    /// Let it go. Where both are asked for, this is done.
    Discard,
}

impl fmt::Display for LetterRequestKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            LetterRequestKind::Replay => "replay",
            LetterRequestKind::Discard => "discard",
        })
    }
}

/// A letter, and what is asked to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetterRequest {
    /// The letter.
    pub id: DeadLetterId,
    /// What to do.
    pub kind: LetterRequestKind,
}

/// An item that a computation failed on, or a record that a source could not decode, and that the partition has
/// moved past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The pipeline.
    pub pipeline: String,
    /// Number of the deployment in force.
    pub deployment: u64,
    /// When it was written, by the host's clock.
    pub written: Timestamp,
    /// Who failed.
    pub origin: LetterOrigin,
    /// The item as it came.
    pub item: LetterItem,
    /// Where the item of the job's input is that it goes back to, for a person: "line 17 of source flights".
    pub location: String,
    /// The message of the job's input that it is or goes back to; `None` for timers and records of a source.
    pub root: Option<MessageId>,
    /// How it failed.
    pub failure: LetterFailure,
    /// How often it was tried, replays included; at least 1.
    pub attempts: u32,
}

/// Who failed on an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetterOrigin {
    /// A computation.
    Computation(Box<FailedComputation>),
    /// A source that could not decode the record.
    Source {
        /// Its name.
        name: String,
    },
}

impl LetterOrigin {
    /// The name of the computation or source.
    pub fn name(&self) -> &str {
        match self {
            LetterOrigin::Computation(computation) => &computation.name,
            LetterOrigin::Source { name } => name,
        }
    }
}

/// A computation, and the call that it failed in: enough to make the same call again on any machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedComputation {
    /// Its name.
    pub name: String,
    /// The file of its component, as the pipeline names it, made absolute.
    pub component: String,
    /// The digest of the component's bytes, in hexadecimal.
    pub digest: String,
    /// Its settings (parameters, grants, limits), as JSON text of an object: `guest::RecordedSettings` writes and reads it.
    pub settings: String,
    /// The one-item batch with the states of its key, as they were; without them where they were too large.
    pub batch: Batch,
    /// Bytes of states that the batch is without; 0 where it has them all.
    pub left_out_state_bytes: u64,
}

/// An item as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetterItem {
    /// A message of a stream.
    Message {
        /// The stream.
        stream: String,
        /// Its key.
        key: Vec<u8>,
        /// Its event time; 0 where it has none.
        event_time: Timestamp,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// A due timer.
    Timer {
        /// Its timer stream.
        stream: String,
        /// Its key.
        key: Vec<u8>,
        /// The moment that it was set for.
        trigger_time: Timestamp,
        /// Its event time.
        event_time: Timestamp,
    },
    /// A record of a source, undecoded.
    Record {
        /// What distinguishes it among several files or partitions of the source: which one.
        of: String,
        /// Its number or offset there, as the source counts.
        position: u64,
        /// Its bytes, or the first of them.
        bytes: Vec<u8>,
        /// How many it has in all.
        size_bytes: u64,
    },
}

impl LetterItem {
    /// Its key; `None` for a record, which has none yet.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            LetterItem::Message { key, .. } | LetterItem::Timer { key, .. } => Some(key),
            LetterItem::Record { .. } => None,
        }
    }
}

/// How an item failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterFailure {
    /// The kind of failure, one of a fixed set of names: "panic", "out_of_fuel", "undecodable" ...
    pub class: String,
    /// What went wrong, in words: the text of a panic, the component's own reason.
    pub reason: String,
    /// Fuel used until the failure.
    pub fuel: u64,
    /// Where the guest was, innermost first; empty when it had returned.
    pub backtrace: String,
    /// What it printed, bounded.
    pub stdout: String,
    /// What it printed as errors, bounded.
    pub stderr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_anything_else_is_refused_by_name() {
        let id = DeadLetterId {
            partition: PartitionId(3),
            epoch: EpochId(42),
            index: 7,
        };
        assert_eq!(id.to_string(), "p3-e42-7");
        assert_eq!("p3-e42-7".parse(), Ok(id));
        for wrong in [
            "",
            "p3",
            "p3-e42",
            "p3-e42-7-1",
            "3-42-7",
            "p+3-e42-7",
            "p3-e42-4294967296",
            "p3-e-0",
        ] {
            let error = wrong.parse::<DeadLetterId>().unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("{wrong:?} is no id"))
            );
        }
    }
}
