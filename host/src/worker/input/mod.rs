//! Where a job's items come from: a source, or the lanes of a transform. Both have a position
//! that the job's epochs commit.
//!
//! - [`source`]: records of a source, in its own order.
//! - [`lanes`]: messages of lanes, merged.
//! - [`lane`]: one lane of them, first in, first out.

pub mod lane;
pub mod lanes;
pub mod source;

#[cfg(test)]
mod tests;

use crate::engine::stream::InputMessages;
use crate::engine::watermark::InputWatermarks;
use crate::types::batch::Timestamp;
use crate::types::ids::{MessageId, PublicId};

/// What comes next in a job's one sequence of input.
#[derive(Debug)]
pub enum InputItems {
    /// Messages, at least one; no watermark step is among them.
    Messages(InputMessages),
    /// A watermark step: the watermarks of the inputs are these from here on.
    Step(InputWatermarks),
    /// Nothing that goes on, but records that could not be decoded and are behind the position now.
    PassedOver,
    /// Nothing for now.
    Nothing,
}

/// What a message is called: shown is what it is known by outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageName {
    /// Its place.
    pub id: MessageId,
    /// What it is known by outside, if that is not its place.
    pub public_id: Option<PublicId>,
}

impl MessageName {
    /// What it is known by outside.
    pub fn public_id(&self) -> PublicId {
        self.public_id.unwrap_or_else(|| PublicId::from(self.id))
    }
}

impl std::fmt::Display for MessageName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.public_id().fmt(formatter)
    }
}

/// Where items came from, for a person to look there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemLocation {
    /// Records of a source.
    Records {
        /// The source, and which file or partition of several.
        source: String,
        /// Which of its records: "lines 3 to 7".
        records: String,
    },
    /// A due timer.
    Timer {
        /// Its timer stream.
        stream: String,
        /// Its key.
        key: Vec<u8>,
        /// The moment that it was set for.
        trigger_time: Timestamp,
    },
    /// The item of a dead letter.
    Replayed {
        /// Where it had come from.
        location: String,
    },
    /// Messages of lanes.
    Messages {
        /// The first one.
        first: Option<MessageName>,
        /// The last one.
        last: Option<MessageName>,
    },
}

impl ItemLocation {
    /// The message, if it is one.
    pub fn message_id(&self) -> Option<MessageId> {
        match self {
            ItemLocation::Messages { first, last } if first == last => first.map(|name| name.id),
            _ => None,
        }
    }
}

impl std::fmt::Display for ItemLocation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ItemLocation::Records { source, records } => {
                write!(formatter, "{records} of {source}")
            }
            ItemLocation::Replayed { location } => formatter.write_str(location),
            ItemLocation::Timer {
                stream,
                key,
                trigger_time,
            } => {
                let key = key.escape_ascii();
                write!(
                    formatter,
                    "timer {stream} of key \"{key}\" at {trigger_time} ms"
                )
            }
            ItemLocation::Messages {
                first: Some(first),
                last: Some(last),
            } if first == last => write!(formatter, "message {first}"),
            ItemLocation::Messages {
                first: Some(first),
                last: Some(last),
            } => write!(formatter, "messages {first} to {last}"),
            ItemLocation::Messages { .. } => write!(formatter, "no message"),
        }
    }
}
