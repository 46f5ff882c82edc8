//! What is about to run, as far as the registry compares it with what ran last.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::batch::{ComputationKind, TimeDomain};
use crate::types::digest::Digest;

/// What is about to run, as far as a change of it matters.
#[derive(Debug, Clone, Default)]
pub struct Intent {
    /// Computations by name.
    pub computations: BTreeMap<String, ComputationIntent>,
    /// Sources by name.
    pub sources: BTreeMap<String, SourceIntent>,
    /// Sinks by name.
    pub sinks: BTreeMap<String, SinkIntent>,
    /// All streams.
    pub streams: Vec<String>,
}

/// A source that is about to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceIntent {
    /// What its partitions have in common, for people: "files as lines".
    pub kind: String,
    /// The names of its partitions, in the order of the pipeline file.
    pub partitions: Vec<String>,
}

/// A sink that is about to be fed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkIntent {
    /// Where its rows go and which streams it takes, for people: "file out/a.jsonl of a, b".
    pub identity: String,
    /// The file that it appends to, absolute; `None` for one without a file.
    pub path: Option<String>,
    /// The queue that it appends to; `None` for one to something else.
    pub queue: Option<String>,
}

/// How a component encodes the values of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEncoding {
    /// Another one means that older values are misread.
    pub version: u32,
    /// What the values are, for those who show them: "json".
    pub format: String,
}

/// A computation that is about to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputationIntent {
    /// Map or transform.
    pub kind: ComputationKind,
    /// Its component.
    pub digest: Digest,
    /// Its parameters, as JSON.
    pub parameters: String,
    /// Inputs of the pipeline that it reads, sorted.
    pub inputs: Vec<String>,
    /// Its states by name.
    pub states: BTreeMap<String, StateEncoding>,
    /// The clocks of its timer streams by name.
    pub timers: BTreeMap<String, TimeDomain>,
    /// How many partitions it has; 0 for a map.
    pub partition_count: u32,
}
