//! A message, as a handler sees it.

use serde::Deserialize;

use crate::codec::Codec;
use crate::error::{Context, Result};
use crate::timestamp::Timestamp;

/// A message that arrived. `I` is the enum of the computation's input streams.
#[derive(Debug)]
pub struct Message<'a, I> {
    pub(crate) stream: I,
    pub(crate) key: &'a [u8],
    pub(crate) event_time: Timestamp,
    pub(crate) payload: &'a [u8],
    pub(crate) watermark: Option<Timestamp>,
    pub(crate) watermarks: &'a [u64],
}

impl<'a, I> Message<'a, I> {
    /// The stream that it came by.
    pub fn stream(&self) -> &I {
        &self.stream
    }

    /// Its key; empty for a record of a source.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Its key as text.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8.
    pub fn key_text(&self) -> Result<&'a str> {
        std::str::from_utf8(self.key).context("the message's key")
    }

    /// When what it tells of happened.
    pub fn event_time(&self) -> Timestamp {
        self.event_time
    }

    /// The watermark of its stream: nothing older was expected any more, so a message whose event
    /// time is less is late. It begins at 0 in each run. Maps see none.
    pub fn watermark(&self) -> Option<Timestamp> {
        self.watermark
    }

    /// The least watermark of the computation's inputs, by which event-time timers fire: those set for
    /// this moment or before have fired, but for timers that wait for the next step. Maps see none.
    pub fn least_watermark(&self) -> Option<Timestamp> {
        self.watermarks.iter().min().copied().map(Timestamp)
    }

    /// What it carries, as bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// What it carries, as text.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8.
    pub fn text(&self) -> Result<&'a str> {
        std::str::from_utf8(self.payload).context("the message's payload")
    }

    /// What it carries, read as JSON; strings may be borrowed.
    ///
    /// # Errors
    ///
    /// When it is not JSON, or not of that type.
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T> {
        serde_json::from_slice(self.payload).context("the message's payload")
    }

    /// What it carries, read as postcard's encoding; strings and bytes may be borrowed.
    ///
    /// # Errors
    ///
    /// When it is no encoding of that type.
    pub fn postcard<T: Deserialize<'a>>(&self) -> Result<T> {
        postcard::from_bytes(self.payload).context("the message's payload")
    }

    /// What it carries, read by a codec.
    ///
    /// # Errors
    ///
    /// When the codec can't read it.
    pub fn decode<C: Codec<T>, T>(&self) -> Result<T> {
        C::decode(self.payload).context("the message's payload")
    }
}
