//! What goes into one guest call and what comes out, as columns. The same shape as
//! `wit/computation.wit`, whose comments say what each column means.

use serde::{Deserialize, Serialize};

use crate::types::column::Column;

/// Milliseconds since the Unix epoch.
pub type Timestamp = u64;

/// One call's input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Event watermark of each input stream at the last watermark step; empty for a map.
    pub watermarks: Vec<Timestamp>,
    /// The distinct keys that the other columns point into.
    pub keys: Column,
    /// One for each declared state, in the order of the declarations.
    pub states: Vec<StateColumn>,
    /// Due timers, at most one for each key.
    pub timers: TimerColumns,
    /// The messages, in order.
    pub messages: MessageColumns,
    /// Keys that a key visitor reached.
    pub visits: Vec<u32>,
}

impl Batch {
    /// How many items the batch has: its timers, then its messages, then its visits.
    pub fn item_count(&self) -> usize {
        self.timers.streams.len() + self.messages.streams.len() + self.visits.len()
    }
}

/// Values of one named state: `keys[i]` is an index into the batch's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateColumn {
    /// Indexes into the batch's keys, each at most once.
    pub keys: Vec<u32>,
    /// The values; in effects an empty one deletes the row.
    pub values: Column,
}

/// Messages as columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageColumns {
    /// Indexes into the description's inputs.
    pub streams: Vec<u16>,
    /// Indexes into the batch's keys.
    pub keys: Vec<u32>,
    /// Event times.
    pub event_times: Vec<Timestamp>,
    /// Payloads.
    pub payloads: Column,
}

/// Timers as columns of equal length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerColumns {
    /// Indexes into the description's timers.
    pub streams: Vec<u16>,
    /// Indexes into the batch's keys.
    pub keys: Vec<u32>,
    /// When they fire.
    pub trigger_times: Vec<Timestamp>,
    /// The event times that they carry; left empty where timers are cancelled.
    pub event_times: Vec<Timestamp>,
}

/// What a call wants done. Checked against its batch and description before anybody sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// The messages that it emits.
    pub outputs: OutputColumns,
    /// New state values, one column for each declared state.
    pub states: Vec<StateColumn>,
    /// Timers to set.
    pub set_timers: TimerColumns,
    /// Timers to cancel.
    pub cancel_timers: TimerColumns,
    /// Lines for the pipeline's log.
    pub logs: Vec<LogLine>,
}

/// Outputs as columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputColumns {
    /// Indexes into the description's outputs.
    pub streams: Vec<u16>,
    /// The item that caused each output, or several runs bounded by `parent_ends`.
    pub parents: Vec<u32>,
    /// Empty: exactly one parent each.
    pub parent_ends: Vec<u32>,
    /// The outputs' keys.
    pub keys: Column,
    /// Empty: the least of the parents' event times.
    pub event_times: Vec<Timestamp>,
    /// The outputs' payloads.
    pub payloads: Column,
}

impl OutputColumns {
    /// The items that caused an output: one, or a run of rising ones.
    pub fn parents_of(&self, output: usize) -> &[u32] {
        if self.parent_ends.is_empty() {
            return &self.parents[output..=output];
        }
        let before = output.checked_sub(1);
        let start = before.map_or(0, |before| self.parent_ends[before]);
        &self.parents[start as usize..self.parent_ends[output] as usize]
    }
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the author.
    Debug,
    /// For the record.
    Info,
    /// Unexpected and handled.
    Warn,
    /// Somebody must act.
    Error,
}

/// A line that a guest wants in the pipeline's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The item that it speaks of.
    pub item: Option<u32>,
    /// How much it matters.
    pub level: LogLevel,
    /// The line.
    pub text: String,
}

/// Whether a computation keeps state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputationKind {
    /// No state, no timers; runs chained inside the job that feeds it.
    Map,
    /// Keyed state and timers; partitions of its own.
    Transform,
}

impl ComputationKind {
    /// The kind's name in pipeline files.
    pub fn name(self) -> &'static str {
        match self {
            ComputationKind::Map => "map",
            ComputationKind::Transform => "transform",
        }
    }
}

/// Which clock a timer goes by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum TimeDomain {
    /// Fires when the event watermark reaches its trigger time.
    EventTime,
    /// Fires after a delay from the moment at which the call was made that set it.
    SystemTime,
}

impl TimeDomain {
    /// The domain's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            TimeDomain::EventTime => "event time",
            TimeDomain::SystemTime => "system time",
        }
    }
}

/// A state that a component declares.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StateDeclaration {
    /// Its name within the computation.
    pub name: String,
    /// Version of the value's encoding.
    pub version: u32,
    /// How a tool may show it: "json", "postcard", "bytes".
    pub format: String,
}

/// A timer stream that a component declares.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TimerDeclaration {
    /// Its name within the computation.
    pub name: String,
    /// The clock that it goes by.
    pub time: TimeDomain,
}

/// What a component says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Description {
    /// Map or transform.
    pub kind: ComputationKind,
    /// Names of the input streams, in the order that `streams` columns count.
    pub inputs: Vec<String>,
    /// Names of the output streams.
    pub outputs: Vec<String>,
    /// Its states.
    pub states: Vec<StateDeclaration>,
    /// Its timer streams.
    pub timers: Vec<TimerDeclaration>,
}
