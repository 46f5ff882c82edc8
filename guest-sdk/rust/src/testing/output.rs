//! What a computation under test leaves behind for its test to look at.

use serde::de::DeserializeOwned;

use crate::effects::Level;
use crate::timestamp::Timestamp;

/// A message that the computation emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The stream that it went to.
    pub stream: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Its event time.
    pub event_time: Timestamp,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Output {
    /// The payload as text, with replacement characters where it is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    /// The payload, read as JSON.
    ///
    /// # Panics
    ///
    /// When it is not JSON of that type.
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.payload)
            .unwrap_or_else(|error| panic!("{error} in the output {:?}", self.text()))
    }
}

/// A message that was late when its turn came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateMessage {
    /// The input that it came by.
    pub stream: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Its event time.
    pub event_time: Timestamp,
    /// What it carries.
    pub payload: Vec<u8>,
    /// The watermark of its input that it was behind.
    pub watermark: Timestamp,
}

/// A line that the computation logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// How much it matters.
    pub level: Level,
    /// The line.
    pub text: String,
}
