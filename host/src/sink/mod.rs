//! Sinks: where streams leave the pipeline. One file per connector.
//!
//! A sink is fed by one job and lives in its epochs: it takes the messages of the open epoch, and
//! at the epoch's end either seals them, answering what the epoch must commit for it, or aborts
//! and forgets them. What a sink does to the outside before the commit can happen twice, what it
//! hands to the commit happens once: that is the whole difference between at least once
//! and exactly once.
//!
//! A sink that sends after the commit will answer [`Sealed`] with rows for its outbox, and take
//! from there; the worker's loop stays the same.

pub mod directory;
pub mod file;
pub mod null;
pub mod queue;
pub mod stdout;

use crate::sink::file::FileSink;
use crate::sink::null::NullSink;
use crate::sink::queue::QueueSink;
use crate::sink::stdout::StdoutSink;
use crate::types::batch::Timestamp;
use crate::types::ids::PublicId;
use crate::types::pipeline::SinkConnector;
use crate::types::queue::QueueRows;

/// A sink for the connector that a pipeline names.
pub fn open(connector: &SinkConnector) -> Box<dyn Sink> {
    match connector {
        SinkConnector::File { .. } | SinkConnector::Directory(_) => Box::new(FileSink::new()),
        SinkConnector::Null => Box::new(NullSink),
        SinkConnector::Stdout => Box::new(StdoutSink::new()),
        SinkConnector::Queue { partitions, .. } => Box::new(QueueSink::new(*partitions)),
    }
}

/// Takes messages epoch by epoch. The order of calls is: any number of `add`, then one `seal` or
/// `abort`, then the next epoch.
pub trait Sink: Send {
    /// Takes a message of the open epoch.
    ///
    /// # Errors
    ///
    /// When the sink can't carry the message. The epoch must not be committed, and the sink goes with its
    /// job.
    fn add(&mut self, message: SinkMessage<'_>) -> Result<(), SinkError>;

    /// Ends the epoch at `now`, by the host's clock: answers what must be committed with it. Nothing of the epoch is left behind
    /// in the sink, whatever the answer.
    ///
    /// # Errors
    ///
    /// When the sink acts before the commit and could not. The epoch must not be committed.
    fn seal(&mut self, now: Timestamp) -> Result<Sealed, SinkError>;
}

/// A message on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkMessage<'a> {
    /// The stream that it is on.
    pub stream: &'a str,
    /// Its place among the epoch's outputs, from 0.
    pub index: u32,
    /// What it is known by outside, where that follows from several items; otherwise that is its place, once the
    /// epoch is committed.
    pub public_id: Option<PublicId>,
    /// Its key; empty where it has none.
    pub key: &'a [u8],
    /// Its event time; 0 where it has none.
    pub event_time: Timestamp,
    /// What it carries.
    pub payload: &'a [u8],
}

/// What an epoch must commit for a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sealed {
    /// Nothing.
    Nothing,
    /// Whole rows to append to the sink's file; see [`crate::types::epoch::SinkAppend`].
    Append(Vec<u8>),
    /// Rows to append to partitions of the sink's queue, at least one to each, by the places of the partitions.
    Rows(Vec<(usize, QueueRows)>),
}

/// A sink could not carry a message, or could not act.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The payload has a line end in it, and its reader could not tell it from two.
    #[error(
        "message {index} of stream {stream}{} has a line end at byte {at} of its payload, and the sink writes one message a line; encode the payload without line ends, as JSON does",
        .public_id.map_or_else(String::new, |id| format!(", known as {id},"))
    )]
    LineEndInPayload {
        /// The message's stream.
        stream: String,
        /// Its place among the epoch's outputs, from 0.
        index: u32,
        /// What it is known by outside, where that is not its place.
        public_id: Option<PublicId>,
        /// Where the line end is in the payload, from 0.
        at: usize,
    },
    /// Whoever read the output has gone. Not a failure: nobody wants more.
    #[error("the reader of {output} has gone")]
    ReaderGone {
        /// What it was reading.
        output: &'static str,
    },
    /// The output could not be written.
    #[error("failed to write to {output}")]
    Write {
        /// Where to.
        output: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
