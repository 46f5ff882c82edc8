//! What the store remembers of a pipeline: the numbers of its partitions and streams, and what was
//! in force when it ran last. A run of something else needs a person's word.
//!
//! **Invariant:** partition and stream numbers are handed out once, together with the rows that
//! name them, or skipped. What leaves a pipeline keeps its row, so that it is known when it comes
//! back.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::controller::change::{Change, changes, lines, state_version_changes};
use crate::controller::layouts::{
    EarlierLayouts, Layouts, RETIRING_PARTITIONS_MAX, layout_row, layouts_from_now_on,
};
use crate::controller::source_rows::{SourcePartitions, UnlistedPartition};
use crate::storage::leases::{Counter, allocate};
use crate::storage::{CatalogChange, CatalogOutcome, Storage, StorageError, keys};
use crate::types::batch::ComputationKind;
use crate::types::digest::Digest;
use crate::types::ids::{PartitionId, StreamId};

/// Format version of the rows written here.
const FORMAT_VERSION: u8 = 1;

/// What follows the pipeline's name in the key of the pipeline's own row.
const PIPELINE: &str = "pipeline";
/// What follows the pipeline's name in the key of a source's row.
const SOURCE: &str = "source/";
/// What follows the pipeline's name in the key of a computation's row.
const COMPUTATION: &str = "computation/";
/// What follows the pipeline's name in the key of the row of a transform's earlier layouts.
pub(super) const LAYOUTS: &str = "layouts/";
/// What follows the pipeline's name in the key of a sink's row.
const SINK: &str = "sink/";

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

/// A pipeline as it will be registered: compared with the last run, numbered, not written yet.
#[derive(Debug)]
pub struct Registration {
    pub(super) pipeline: String,
    /// What the pipeline's row held when it was read.
    found: Option<Vec<u8>>,
    row: PipelineRow,
    pub(super) known: KnownNodes,
    pub(super) nodes: KnownNodes,
    /// Earlier layouts of transforms, as they were found.
    pub(super) known_layouts: Layouts,
    /// The same from now on.
    pub(super) layouts: Layouts,
    source_partitions: SourcePartitions,
    /// Everything that has changed since the last run.
    pub changes: Vec<Change>,
}

/// A pipeline could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
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
    /// A transform was given other numbers of partitions again and again while its readers had not
    /// taken what the earlier ones wrote.
    #[error(
        "the readers of computation {computation} of pipeline {pipeline} have yet to take messages of {count} partitions that it had before, at most {RETIRING_PARTITIONS_MAX} may be left; run it to its end with the partitions that it has now, then change them"
    )]
    TooManyRetiring {
        /// The pipeline.
        pipeline: String,
        /// The transform.
        computation: String,
        /// Partitions of earlier layouts.
        count: usize,
    },
    /// A sink's file belongs to another pipeline on the same data directory.
    #[error(
        "sink {sink} of pipeline {pipeline} would append to {path}, which pipeline {owner} writes; give it a file of its own"
    )]
    SinkTaken {
        /// The pipeline.
        pipeline: String,
        /// The sink.
        sink: String,
        /// The file.
        path: String,
        /// The pipeline that writes it.
        owner: String,
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

/// The row of the pipeline itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PipelineRow {
    deployment: u64,
    /// Numbers of every stream that the pipeline ever had.
    streams: BTreeMap<String, StreamId>,
}

/// The row of a source (by its kind), a computation or a sink (by their intents).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeRow<T> {
    /// Those of a computation; a source's have rows of their own.
    pub(super) partitions: Vec<PartitionId>,
    /// As it ran last.
    pub(super) last: T,
    /// The deployment that it was no part of any more, if it is none now.
    pub(super) removed_in: Option<u64>,
}

/// The rows of a pipeline's sources and computations, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownNodes {
    pub(super) sources: BTreeMap<String, NodeRow<String>>,
    pub(super) computations: BTreeMap<String, NodeRow<ComputationIntent>>,
    pub(super) sinks: BTreeMap<String, NodeRow<SinkIntent>>,
}

impl Registration {
    /// Compares what is about to run with what ran last and gives numbers to what is new.
    ///
    /// # Errors
    ///
    /// [`RegistryError::StateVersions`], [`RegistryError::TooManyRetiring`],
    /// [`RegistryError::SinkTaken`], or when the store fails.
    pub fn draft(
        storage: &dyn Storage,
        pipeline: &str,
        intent: &Intent,
    ) -> Result<Registration, RegistryError> {
        let found = storage.read_catalog(&keys::pipeline(pipeline, PIPELINE.as_bytes()))?;
        let mut row: PipelineRow = match &found {
            Some(bytes) => decode(pipeline, bytes)?,
            None => PipelineRow::default(),
        };
        let known = KnownNodes {
            sources: read_rows(storage, pipeline, SOURCE)?,
            computations: read_rows(storage, pipeline, COMPUTATION)?,
            sinks: read_rows(storage, pipeline, SINK)?,
        };
        refuse_taken_sinks(storage, pipeline, intent)?;
        let misread = state_version_changes(&known, intent);
        if !misread.is_empty() {
            return Err(RegistryError::StateVersions {
                pipeline: pipeline.to_owned(),
                changes: misread,
            });
        }
        for stream in &intent.streams {
            if !row.streams.contains_key(stream) {
                let id = StreamId(allocate(storage, Counter::Streams, 1)?);
                row.streams.insert(stream.clone(), id);
            }
        }
        let known_layouts: Layouts = read_rows(storage, pipeline, LAYOUTS)?;
        let nodes = number_nodes(storage, &known, intent, row.deployment + 1)?;
        let source_partitions =
            SourcePartitions::draft(storage, pipeline, intent, row.deployment + 1)?;
        let layouts = layouts_from_now_on(pipeline, &known_layouts, &known, &nodes)?;
        if nodes != known || source_partitions.have_changed() || found.is_none() {
            row.deployment += 1;
        }
        Ok(Registration {
            pipeline: pipeline.to_owned(),
            changes: changes(&known, intent),
            found,
            row,
            known,
            nodes,
            known_layouts,
            layouts,
            source_partitions,
        })
    }

    /// Number of the deployment in force from now on.
    pub fn deployment(&self) -> u64 {
        self.row.deployment
    }

    /// The partitions of a source that is about to run, in the order of the intent.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub fn source(&self, name: &str) -> &[PartitionId] {
        self.source_partitions.in_force(name)
    }

    /// The partitions that ever left the list of a source, as one layout; none where none did.
    pub fn retiring_of_source(&self, source: &str) -> &[Vec<PartitionId>] {
        self.source_partitions.retiring(source)
    }

    /// The partitions that a source's list has no more and that are remembered.
    pub fn unlisted(&self, source: &str) -> Vec<UnlistedPartition> {
        self.source_partitions.unlisted(source)
    }

    /// The names in a source's list that it never had.
    pub fn newly_listed(&self, source: &str) -> Vec<String> {
        self.source_partitions.newly_listed(source)
    }

    /// Makes a partition that a source's list has no more go on under a name that is new there.
    pub fn rename_source_partition(&mut self, source: &str, was: &str, now: &str) {
        self.source_partitions.rename(source, was, now);
    }

    /// The partitions of a computation that is about to run; none for a map.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub fn computation(&self, name: &str) -> &[PartitionId] {
        &self.nodes.computations[name].partitions
    }

    /// The transforms that are about to run, with their partitions.
    pub fn transforms(&self) -> impl Iterator<Item = (&str, &[PartitionId])> {
        let computations = self.nodes.computations.iter();
        let in_force = computations.filter(|(_, row)| {
            row.removed_in.is_none() && row.last.kind == ComputationKind::Transform
        });
        in_force.map(|(name, row)| (name.as_str(), row.partitions.as_slice()))
    }

    /// Every partition that is about to run.
    pub fn partitions_in_force(&self) -> BTreeSet<PartitionId> {
        let of_transforms = self.transforms().flat_map(|(_, partitions)| partitions);
        of_transforms
            .copied()
            .chain(self.source_partitions.all_in_force())
            .collect()
    }

    /// The number of a stream.
    ///
    /// # Panics
    ///
    /// When the intent did not name it.
    pub fn stream(&self, name: &str) -> StreamId {
        self.row.streams[name]
    }

    /// The name of a stream that the pipeline has or had.
    pub fn stream_name(&self, id: StreamId) -> Option<&str> {
        let mut streams = self.row.streams.iter();
        streams.find_map(|(name, found)| (*found == id).then_some(name.as_str()))
    }

    /// Every partition that the pipeline had when it ran last and of which anything may be left.
    pub fn partitions_ever(&self) -> Vec<PartitionId> {
        let computations = self.known.computations.values().map(|row| &row.partitions);
        let sources = self.source_partitions.ever();
        let retiring = self.known_layouts.values();
        sources
            .chain(computations.flatten().copied())
            .chain(retiring.flat_map(EarlierLayouts::partitions))
            .collect()
    }

    pub(super) fn commit_catalog(
        &self,
        storage: &dyn Storage,
        change: &CatalogChange,
    ) -> Result<(), RegistryError> {
        match storage.commit_catalog(change)? {
            CatalogOutcome::Committed => Ok(()),
            CatalogOutcome::Refused => Err(RegistryError::Contended {
                pipeline: self.pipeline.clone(),
            }),
        }
    }

    /// Writes down what is in force from now on.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Contended`], or when the store fails.
    pub fn commit(&self, storage: &dyn Storage) -> Result<(), RegistryError> {
        let has_changed = self.nodes != self.known
            || self.layouts != self.known_layouts
            || self.source_partitions.have_changed();
        if !has_changed && self.found.is_some() {
            return Ok(());
        }
        let pipeline_key = keys::pipeline(&self.pipeline, PIPELINE.as_bytes());
        let mut change = CatalogChange {
            expectations: vec![(pipeline_key.clone(), self.found.clone())],
            writes: vec![(pipeline_key, Some(encode(&self.row)))],
        };
        for (name, row) in &self.nodes.sources {
            let key = node_key(&self.pipeline, SOURCE, name);
            change.writes.push((key, Some(encode(row))));
        }
        for (name, row) in &self.nodes.computations {
            let key = node_key(&self.pipeline, COMPUTATION, name);
            change.writes.push((key, Some(encode(row))));
        }
        for (name, row) in &self.nodes.sinks {
            let key = node_key(&self.pipeline, SINK, name);
            change.writes.push((key, Some(encode(row))));
        }
        change.writes.extend(self.source_partitions.writes());
        for (name, layouts) in &self.layouts {
            let key = node_key(&self.pipeline, LAYOUTS, name);
            change.writes.push((key, layout_row(layouts)));
        }
        self.commit_catalog(storage, &change)
    }
}

/// The rows that are in force from now on.
fn number_nodes(
    storage: &dyn Storage,
    known: &KnownNodes,
    intent: &Intent,
    deployment: u64,
) -> Result<KnownNodes, StorageError> {
    let mut nodes = known.clone();
    for (name, source) in &intent.sources {
        let row = NodeRow {
            partitions: Vec::new(),
            last: source.kind.clone(),
            removed_in: None,
        };
        nodes.sources.insert(name.clone(), row);
    }
    for (name, computation) in &intent.computations {
        let was = known.computations.get(name);
        let mut last = computation.clone();
        // A state that this component does not declare still has its rows, in its old version.
        if let Some(was) = was {
            let old = was.last.states.clone().into_iter();
            last.states = old.chain(last.states).collect();
        }
        let row = NodeRow {
            partitions: layout(storage, was.map(|row| &row.partitions), computation)?,
            last,
            removed_in: None,
        };
        nodes.computations.insert(name.clone(), row);
    }
    for (name, sink) in &intent.sinks {
        let row = NodeRow {
            partitions: Vec::new(),
            last: sink.clone(),
            removed_in: None,
        };
        nodes.sinks.insert(name.clone(), row);
    }
    let gone = |removed_in: &mut Option<u64>| *removed_in = removed_in.or(Some(deployment));
    for (name, row) in &mut nodes.sources {
        if !intent.sources.contains_key(name) {
            gone(&mut row.removed_in);
        }
    }
    for (name, row) in &mut nodes.computations {
        if !intent.computations.contains_key(name) {
            gone(&mut row.removed_in);
        }
    }
    for (name, row) in &mut nodes.sinks {
        if !intent.sinks.contains_key(name) {
            gone(&mut row.removed_in);
        }
    }
    Ok(nodes)
}

/// Refuses a sink whose file another pipeline of this data directory writes: a pipeline that was
/// renamed begins anew, and would write all its rows a second time.
fn refuse_taken_sinks(
    storage: &dyn Storage,
    pipeline: &str,
    intent: &Intent,
) -> Result<(), RegistryError> {
    for (key, value) in storage.scan_catalog(&[keys::CATALOG_PIPELINE])? {
        let name_and_rest = &key[1..];
        let Some(end) = name_and_rest.iter().position(|byte| *byte == 0) else {
            continue;
        };
        let (owner, rest) = (&name_and_rest[..end], &name_and_rest[end + 1..]);
        if owner == pipeline.as_bytes() || !rest.starts_with(SINK.as_bytes()) {
            continue;
        }
        let owner = String::from_utf8_lossy(owner).into_owned();
        let theirs: NodeRow<SinkIntent> = decode(&owner, &value)?;
        let is_same = |ours: &SinkIntent| ours.path.is_some() && ours.path == theirs.last.path;
        if let Some((sink, ours)) = intent.sinks.iter().find(|(_, ours)| is_same(ours)) {
            return Err(RegistryError::SinkTaken {
                pipeline: pipeline.to_owned(),
                sink: sink.clone(),
                path: ours.path.clone().unwrap_or_default(),
                owner,
            });
        }
    }
    Ok(())
}

/// The partitions that a node had, and new ones up to `count`.
fn number(
    storage: &dyn Storage,
    had: Option<&Vec<PartitionId>>,
    count: u64,
) -> Result<Vec<PartitionId>, StorageError> {
    let mut partitions = had.cloned().unwrap_or_default();
    let missing = count.saturating_sub(partitions.len() as u64);
    if missing > 0 {
        let first = allocate(storage, Counter::Partitions, missing)?;
        partitions.extend((first..first + missing).map(PartitionId));
    }
    Ok(partitions)
}

/// The partitions of a computation: those that it had, or as many new ones as it is to have. A map has
/// none of its own, but keeps those that it had as a transform.
fn layout(
    storage: &dyn Storage,
    had: Option<&Vec<PartitionId>>,
    computation: &ComputationIntent,
) -> Result<Vec<PartitionId>, StorageError> {
    let had = had.map_or(&[][..], Vec::as_slice);
    let count = computation.partition_count;
    match computation.kind == ComputationKind::Map || had.len() == count as usize {
        true => Ok(had.to_vec()),
        false => number(storage, None, u64::from(count)),
    }
}

pub(super) fn node_key(pipeline: &str, what: &str, name: &str) -> Vec<u8> {
    keys::pipeline(pipeline, format!("{what}{name}").as_bytes())
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

pub(super) fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT_VERSION];
    bytes.extend(postcard::to_stdvec(row).expect("rows are plain data, which always encodes"));
    bytes
}

pub(super) fn decode<T: DeserializeOwned>(pipeline: &str, bytes: &[u8]) -> Result<T, StorageError> {
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
pub(super) mod tests {
    use super::*;
    use crate::storage::memory::MemoryStorage;

    pub(in crate::controller) fn intent(
        parameters: &str,
        source: &str,
        state_version: u32,
    ) -> Intent {
        let computation = ComputationIntent {
            kind: ComputationKind::Transform,
            digest: Digest::of(b"component"),
            parameters: parameters.to_owned(),
            inputs: vec!["departures".to_owned()],
            states: BTreeMap::from([("totals".to_owned(), state_version)]),
            partition_count: 1,
        };
        let source = SourceIntent {
            kind: source.to_owned(),
            partitions: vec!["flights.csv".to_owned()],
        };
        Intent {
            computations: BTreeMap::from([("delays".to_owned(), computation)]),
            sources: BTreeMap::from([("departures".to_owned(), source)]),
            sinks: BTreeMap::new(),
            streams: vec!["departures".to_owned(), "statistics".to_owned()],
        }
    }

    /// Registers what is about to run; the changes that it found.
    pub(in crate::controller) fn register(
        storage: &MemoryStorage,
        pipeline: &str,
        intent: &Intent,
    ) -> Vec<String> {
        let registration = Registration::draft(storage, pipeline, intent).unwrap();
        registration.commit(storage).unwrap();
        let changes = registration.changes.iter();
        changes.map(Change::to_string).collect()
    }

    pub(in crate::controller) fn without_computations() -> Intent {
        Intent {
            computations: BTreeMap::new(),
            ..intent("{}", "file x", 1)
        }
    }

    #[test]
    fn numbers_stay_and_an_unchanged_pipeline_stays_one_deployment() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1));
        let first = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
        register(&storage, "a", &intent("{}", "file x", 1));
        let second = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
        assert_eq!(first.nodes, second.nodes);
        assert_eq!(first.stream("statistics"), second.stream("statistics"));
        assert_eq!((first.deployment(), second.deployment()), (1, 1));
    }

    #[test]
    fn two_pipelines_share_no_number() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1));
        register(&storage, "b", &intent("{}", "file x", 1));
        let a = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
        let b = Registration::draft(&storage, "b", &intent("{}", "file x", 1)).unwrap();
        let of_b = b.partitions_ever();
        assert!(a.partitions_ever().iter().all(|id| !of_b.contains(id)));
        assert_ne!(a.stream("departures"), b.stream("departures"));
    }

    #[test]
    fn every_change_is_named_with_both_values_and_once_committed_is_none() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1));
        let now = intent("{\"limit\":1}", "file y", 1);
        let expected = [
            "source departures: was file x, now file y",
            "parameters of computation delays: was {}, now {\"limit\":1}",
        ];
        // A draft that is not committed changes nothing.
        let draft = Registration::draft(&storage, "a", &now).unwrap();
        assert_eq!(draft.changes.len(), 2);
        assert_eq!(register(&storage, "a", &now), expected);
        assert!(register(&storage, "a", &now).is_empty());
    }

    #[test]
    fn what_leaves_the_pipeline_is_a_change_once_and_again_when_it_comes_back() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1));
        let partitions = |intent: &Intent| {
            let draft = Registration::draft(&storage, "a", intent).unwrap();
            draft.partitions_ever()
        };
        let before = partitions(&without_computations());
        assert_eq!(
            register(&storage, "a", &without_computations()),
            ["computation delays: was part of the pipeline, now not in the pipeline"]
        );
        assert!(register(&storage, "a", &without_computations()).is_empty());
        assert_eq!(
            register(&storage, "a", &intent("{}", "file x", 1)),
            ["computation delays: was removed in deployment 2, \
              now part of the pipeline again, without what passed in between"]
        );
        assert!(register(&storage, "a", &intent("{}", "file x", 1)).is_empty());
        assert_eq!(partitions(&without_computations()), before);
    }

    fn with_sink(path: &str) -> Intent {
        let sink = SinkIntent {
            identity: format!("file {path} of statistics"),
            path: Some(path.to_owned()),
        };
        Intent {
            sinks: BTreeMap::from([("out".to_owned(), sink)]),
            ..intent("{}", "file x", 1)
        }
    }

    #[test]
    fn a_sink_that_moves_is_a_change() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &with_sink("/out/1"));
        assert_eq!(
            register(&storage, "a", &with_sink("/out/2")),
            ["sink out: was file /out/1 of statistics, now file /out/2 of statistics"]
        );
    }

    #[test]
    fn a_file_that_another_pipeline_writes_is_refused() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &with_sink("/out/1"));
        let refused = Registration::draft(&storage, "b", &with_sink("/out/1"));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("/out/1, which pipeline a writes"), "{text}");
        assert!(Registration::draft(&storage, "b", &with_sink("/out/2")).is_ok());
    }

    #[test]
    fn another_state_version_is_refused() {
        let storage = MemoryStorage::default();
        register(&storage, "a", &intent("{}", "file x", 1));
        let refused = Registration::draft(&storage, "a", &intent("{}", "file x", 2));
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("state totals of computation delays: was 1, now 2"),
            "{text}"
        );
    }

    #[test]
    fn a_registration_that_another_one_overtook_is_refused() {
        let storage = MemoryStorage::default();
        let late = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
        register(&storage, "a", &intent("{}", "file y", 1));
        assert!(matches!(
            late.commit(&storage),
            Err(RegistryError::Contended { .. })
        ));
    }

    #[test]
    fn a_row_of_a_newer_release_is_refused_by_its_version() {
        let storage = MemoryStorage::default();
        let change = CatalogChange {
            expectations: Vec::new(),
            writes: vec![(keys::pipeline("a", PIPELINE.as_bytes()), Some(vec![9]))],
        };
        storage.commit_catalog(&change).unwrap();
        let refused = Registration::draft(&storage, "a", &intent("{}", "file x", 1));
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("a row of pipeline a"), "{text}");
    }
}
