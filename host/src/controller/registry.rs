//! What the store remembers of a pipeline: the numbers of its partitions and streams, and what was
//! in force when it ran last. A run of something else needs a person's word.
//!
//! **Invariant:** partition and stream numbers are handed out once, together with the rows that
//! name them, or skipped.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::storage::leases::{Counter, allocate};
use crate::storage::{CatalogChange, CatalogOutcome, Storage, StorageError, keys};
use crate::types::batch::ComputationKind;
use crate::types::digest::Digest;
use crate::types::ids::{PartitionId, StreamId};

/// Format version of the rows written here.
const FORMAT_VERSION: u8 = 1;

/// What is about to run, as far as a change of it matters.
#[derive(Debug, Clone, Default)]
pub struct Intent {
    /// Computations by name.
    pub computations: BTreeMap<String, ComputationIntent>,
    /// What each source says of its identity.
    pub sources: BTreeMap<String, String>,
    /// All streams.
    pub streams: Vec<String>,
}

/// A computation that is about to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputationIntent {
    /// Map or transform.
    pub kind: ComputationKind,
    /// Its component.
    pub digest: Digest,
    /// Its parameters, as JSON.
    pub parameters: String,
    /// Inputs of the pipeline that it reads, sorted.
    pub inputs: Vec<String>,
    /// Versions of its states by name.
    pub states: BTreeMap<String, u32>,
    /// How many partitions it has; 0 for a map.
    pub partition_count: u32,
}

/// The numbers under which a pipeline runs.
#[derive(Debug, Clone, Default)]
pub struct Registration {
    /// Number of the deployment in force.
    pub deployment: u64,
    /// Partitions of each source.
    pub sources: BTreeMap<String, Vec<PartitionId>>,
    /// Partitions of each computation; none for a map.
    pub computations: BTreeMap<String, Vec<PartitionId>>,
    /// Numbers of the streams.
    pub streams: BTreeMap<String, StreamId>,
    /// What has changed since the last run, and was accepted.
    pub changes: Vec<Change>,
}

/// One difference between the last run and this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What has changed: "parameters of computation delays".
    pub what: String,
    /// The value of the last run.
    pub was: String,
    /// The value now.
    pub now: String,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { what, was, now } = self;
        write!(formatter, "{what}: was {was}, now {now}")
    }
}

/// A pipeline could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Something changed since the last run.
    #[error(
        "pipeline {pipeline} is not what ran last:\n{}\nrun with --accept-change to go on with it as it is now",
        lines(changes)
    )]
    Changed {
        /// The pipeline.
        pipeline: String,
        /// All differences.
        changes: Vec<Change>,
    },
    /// A state's encoding changed; there is no migration yet.
    #[error(
        "pipeline {pipeline} would misread its states:\n{}\ngo back to the component with the old version, or start afresh in another data directory",
        lines(changes)
    )]
    StateVersions {
        /// The pipeline.
        pipeline: String,
        /// All differences.
        changes: Vec<Change>,
    },
    /// Another process registered the pipeline at the same time.
    #[error("pipeline {pipeline} was registered by another process at the same time; try again")]
    Contended {
        /// The pipeline.
        pipeline: String,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn lines(changes: &[Change]) -> String {
    let lines: Vec<String> = changes.iter().map(|change| format!("  {change}")).collect();
    lines.join("\n")
}

/// The row of the pipeline itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PipelineRow {
    deployment: u64,
    /// Numbers of every stream that the pipeline ever had.
    streams: BTreeMap<String, StreamId>,
}

/// The row of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SourceRow {
    partitions: Vec<PartitionId>,
    identity: String,
}

/// The row of a computation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ComputationRow {
    partitions: Vec<PartitionId>,
    intent: ComputationIntent,
}

/// The rows of a pipeline's sources and computations, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KnownNodes {
    sources: BTreeMap<String, SourceRow>,
    computations: BTreeMap<String, ComputationRow>,
}

/// Compares what is about to run with what ran last, gives numbers to what is new, and writes
/// down what is in force from now on.
///
/// # Errors
///
/// [`RegistryError::Changed`] unless `accept_change`; [`RegistryError::StateVersions`] always.
pub fn register(
    storage: &dyn Storage,
    pipeline: &str,
    intent: &Intent,
    accept_change: bool,
) -> Result<Registration, RegistryError> {
    let pipeline_key = keys::pipeline(pipeline, b"pipeline");
    let pipeline_bytes = storage.read_catalog(&pipeline_key)?;
    let known = read_nodes(storage, pipeline)?;
    let mut row: PipelineRow = match &pipeline_bytes {
        Some(bytes) => decode(pipeline, bytes)?,
        None => PipelineRow::default(),
    };
    let state_changes = state_version_changes(&known, intent);
    if !state_changes.is_empty() {
        return Err(RegistryError::StateVersions {
            pipeline: pipeline.to_owned(),
            changes: state_changes,
        });
    }
    let changes = changes(&known, intent);
    if !changes.is_empty() && !accept_change {
        return Err(RegistryError::Changed {
            pipeline: pipeline.to_owned(),
            changes,
        });
    }
    for stream in &intent.streams {
        if !row.streams.contains_key(stream) {
            let id = StreamId(allocate(storage, Counter::Streams, 1)?);
            row.streams.insert(stream.clone(), id);
        }
    }
    let nodes = number_nodes(storage, &known, intent)?;
    if nodes != known || pipeline_bytes.is_none() {
        row.deployment += 1;
        let mut change = CatalogChange {
            expectations: vec![(pipeline_key.clone(), pipeline_bytes)],
            writes: vec![(pipeline_key, Some(encode(&row)))],
        };
        for (name, row) in &nodes.sources {
            let key = node_key(pipeline, SOURCE, name);
            change.writes.push((key, Some(encode(row))));
        }
        for (name, row) in &nodes.computations {
            let key = node_key(pipeline, COMPUTATION, name);
            change.writes.push((key, Some(encode(row))));
        }
        if storage.commit_catalog(&change)? == CatalogOutcome::Refused {
            return Err(RegistryError::Contended {
                pipeline: pipeline.to_owned(),
            });
        }
    }
    Ok(Registration {
        deployment: row.deployment,
        sources: nodes
            .sources
            .into_iter()
            .map(|(name, row)| (name, row.partitions))
            .collect(),
        computations: nodes
            .computations
            .into_iter()
            .map(|(name, row)| (name, row.partitions))
            .collect(),
        streams: row.streams,
        changes,
    })
}

/// Every difference that needs a person's word. What is new is none.
fn changes(known: &KnownNodes, intent: &Intent) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut compare = |what: String, was: &dyn fmt::Display, now: &dyn fmt::Display| {
        let (was, now) = (was.to_string(), now.to_string());
        if was != now {
            changes.push(Change { what, was, now });
        }
    };
    for (name, was) in &known.sources {
        let gone = "not in the pipeline".to_owned();
        let now = intent.sources.get(name).unwrap_or(&gone);
        compare(format!("source {name}"), &was.identity, now);
    }
    for (name, ComputationRow { intent: was, .. }) in &known.computations {
        let Some(now) = intent.computations.get(name) else {
            let what = format!("computation {name}");
            compare(what, &"part of the pipeline", &"not in the pipeline");
            continue;
        };
        let of = |what: &str| format!("{what} of computation {name}");
        compare(of("component"), &was.digest, &now.digest);
        compare(of("parameters"), &was.parameters, &now.parameters);
        compare(of("inputs"), &was.inputs.join(", "), &now.inputs.join(", "));
        compare(of("kind"), &kind_name(was.kind), &kind_name(now.kind));
    }
    changes
}

fn kind_name(kind: ComputationKind) -> &'static str {
    match kind {
        ComputationKind::Map => "map",
        ComputationKind::Transform => "transform",
    }
}

fn state_version_changes(known: &KnownNodes, intent: &Intent) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, now) in &intent.computations {
        let Some(ComputationRow { intent: was, .. }) = known.computations.get(name) else {
            continue;
        };
        for (state, version) in &now.states {
            if let Some(before) = was.states.get(state).filter(|before| *before != version) {
                changes.push(Change {
                    what: format!("version of state {state} of computation {name}"),
                    was: before.to_string(),
                    now: version.to_string(),
                });
            }
        }
    }
    changes
}

/// The rows that are in force from now on: what is gone keeps its row and its numbers.
fn number_nodes(
    storage: &dyn Storage,
    known: &KnownNodes,
    intent: &Intent,
) -> Result<KnownNodes, StorageError> {
    let number = |has: Option<&Vec<PartitionId>>, count: u64| -> Result<_, StorageError> {
        let mut partitions = has.cloned().unwrap_or_default();
        let missing = count.saturating_sub(partitions.len() as u64);
        if missing > 0 {
            let first = allocate(storage, Counter::Partitions, missing)?;
            partitions.extend((first..first + missing).map(PartitionId));
        }
        Ok(partitions)
    };
    let mut nodes = known.clone();
    for (name, identity) in &intent.sources {
        let was = known.sources.get(name);
        let row = SourceRow {
            partitions: number(was.map(|row| &row.partitions), 1)?,
            identity: identity.clone(),
        };
        nodes.sources.insert(name.clone(), row);
    }
    for (name, computation) in &intent.computations {
        let was = known.computations.get(name);
        let mut intent = computation.clone();
        // A state that this component does not declare still has its rows, in its old version.
        if let Some(ComputationRow { intent: was, .. }) = was {
            let old = was.states.clone().into_iter();
            intent.states = old.chain(intent.states).collect();
        }
        let count = u64::from(computation.partition_count);
        let row = ComputationRow {
            partitions: number(was.map(|row| &row.partitions), count)?,
            intent,
        };
        nodes.computations.insert(name.clone(), row);
    }
    Ok(nodes)
}

/// What follows the pipeline's name in the key of a source's row.
const SOURCE: &str = "source/";
/// What follows the pipeline's name in the key of a computation's row.
const COMPUTATION: &str = "computation/";

fn node_key(pipeline: &str, what: &str, name: &str) -> Vec<u8> {
    keys::pipeline(pipeline, format!("{what}{name}").as_bytes())
}

fn read_nodes(storage: &dyn Storage, pipeline: &str) -> Result<KnownNodes, StorageError> {
    Ok(KnownNodes {
        sources: read_rows(storage, pipeline, SOURCE)?,
        computations: read_rows(storage, pipeline, COMPUTATION)?,
    })
}

fn read_rows<T: DeserializeOwned>(
    storage: &dyn Storage,
    pipeline: &str,
    what: &str,
) -> Result<BTreeMap<String, T>, StorageError> {
    let prefix = node_key(pipeline, what, "");
    let mut rows = BTreeMap::new();
    for (key, value) in storage.scan_catalog(&prefix)? {
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        rows.insert(name, decode(pipeline, &value)?);
    }
    Ok(rows)
}

fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT_VERSION];
    bytes.extend(postcard::to_stdvec(row).expect("rows are plain data, which always encodes"));
    bytes
}

fn decode<T: DeserializeOwned>(pipeline: &str, bytes: &[u8]) -> Result<T, StorageError> {
    let undecodable = |finding: String| StorageError::Undecodable {
        what: format!("a row of pipeline {pipeline}"),
        finding,
    };
    match bytes.split_first() {
        Some((&FORMAT_VERSION, body)) => {
            postcard::from_bytes(body).map_err(|error| undecodable(error.to_string()))
        }
        Some((version, _)) => Err(undecodable(format!(
            "it has format version {version}, this release knows {FORMAT_VERSION}"
        ))),
        None => Err(undecodable("it is empty".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory::MemoryStorage;

    fn intent(parameters: &str, source: &str, state_version: u32) -> Intent {
        let computation = ComputationIntent {
            kind: ComputationKind::Transform,
            digest: Digest::of(b"component"),
            parameters: parameters.to_owned(),
            inputs: vec!["departures".to_owned()],
            states: BTreeMap::from([("totals".to_owned(), state_version)]),
            partition_count: 1,
        };
        Intent {
            computations: BTreeMap::from([("delays".to_owned(), computation)]),
            sources: BTreeMap::from([("departures".to_owned(), source.to_owned())]),
            streams: vec!["departures".to_owned(), "statistics".to_owned()],
        }
    }

    fn changed(result: Result<Registration, RegistryError>) -> Vec<String> {
        match result {
            Err(RegistryError::Changed { changes, .. }) => {
                changes.iter().map(Change::to_string).collect()
            }
            other => panic!("expected changes, found {other:?}"),
        }
    }

    #[test]
    fn numbers_stay_and_an_unchanged_pipeline_stays_one_deployment() {
        let storage = MemoryStorage::default();
        let first = register(&storage, "a", &intent("{}", "file x", 1), false).unwrap();
        let second = register(&storage, "a", &intent("{}", "file x", 1), false).unwrap();
        assert_eq!(first.sources, second.sources);
        assert_eq!(first.computations, second.computations);
        assert_eq!(first.streams, second.streams);
        assert_eq!((first.deployment, second.deployment), (1, 1));
    }

    #[test]
    fn two_pipelines_share_no_number() {
        let storage = MemoryStorage::default();
        let a = register(&storage, "a", &intent("{}", "file x", 1), false).unwrap();
        let b = register(&storage, "b", &intent("{}", "file x", 1), false).unwrap();
        let numbers = |registration: &Registration| -> Vec<PartitionId> {
            let of_nodes = registration
                .sources
                .values()
                .chain(registration.computations.values());
            of_nodes.flatten().copied().collect()
        };
        assert!(
            numbers(&a)
                .iter()
                .all(|number| !numbers(&b).contains(number))
        );
        assert_ne!(a.streams["departures"], b.streams["departures"]);
    }

    #[test]
    fn every_change_is_named_with_both_values_until_it_is_accepted() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1), false).unwrap();
        let now = intent("{\"limit\":1}", "file y", 1);
        assert_eq!(
            changed(register(&storage, "a", &now, false)),
            [
                "source departures: was file x, now file y",
                "parameters of computation delays: was {}, now {\"limit\":1}",
            ]
        );
        let accepted = register(&storage, "a", &now, true).unwrap();
        assert_eq!((accepted.changes.len(), accepted.deployment), (2, 2));
        assert!(
            register(&storage, "a", &now, false)
                .unwrap()
                .changes
                .is_empty()
        );
    }

    #[test]
    fn a_source_or_computation_that_is_gone_is_a_change() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1), false).unwrap();
        let changes = changed(register(&storage, "a", &Intent::default(), false));
        assert_eq!(changes.len(), 2);
        assert!(changes[1].contains("not in the pipeline"));
    }

    #[test]
    fn another_state_version_is_refused_even_where_changes_are_accepted() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1), false).unwrap();
        let refused = register(&storage, "a", &intent("{}", "file x", 2), true);
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("state totals of computation delays: was 1, now 2"),
            "{text}"
        );
    }

    #[test]
    fn a_row_of_a_newer_release_is_refused_by_its_version() {
        let storage = MemoryStorage::default();
        let change = CatalogChange {
            expectations: Vec::new(),
            writes: vec![(keys::pipeline("a", b"pipeline"), Some(vec![9]))],
        };
        storage.commit_catalog(&change).unwrap();
        let refused = register(&storage, "a", &intent("{}", "file x", 1), true);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("a row of pipeline a")
        );
    }
}
