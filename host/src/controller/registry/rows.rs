//! The catalog rows of a pipeline: which there are, what they hold, their bytes. `docs/format.md` has
//! them byte by byte.
//!
//! **Invariant:** no row grows with the size of a pipeline. What there may be many of has a row each;
//! what is of any length is cut into pieces, a row each.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::controller::registry::intent::{SinkIntent, StateEncoding};
use crate::storage::{CATALOG_VALUE_BYTES_MAX, Storage, StorageError, StoredRow, keys};
use crate::types::batch::{ComputationKind, TimeDomain};
use crate::types::digest::Digest;
use crate::types::format_version::unknown_version;
use crate::types::ids::{PartitionId, StreamId};

/// Format version of the rows written here.
const FORMAT_VERSION: u8 = 1;

/// How many bytes of a document a row holds, behind the version.
const PIECE_BYTES_MAX: usize = CATALOG_VALUE_BYTES_MAX - 1;

/// What follows the pipeline's name in the key of the pipeline's own row.
pub(in crate::controller) const PIPELINE: &str = "pipeline";
/// What follows the pipeline's name in the key of a stream's row.
pub(in crate::controller) const STREAM: &str = "stream/";
/// What follows the pipeline's name in the key of a source's rows.
pub(in crate::controller) const SOURCE: &str = "source/";
/// What follows the pipeline's name in the key of a computation's rows.
pub(in crate::controller) const COMPUTATION: &str = "computation/";
/// What follows the pipeline's name in the key of a state's row, before the computation, a slash and the
/// state's name.
pub(in crate::controller) const STATE: &str = "state/";
/// What follows the pipeline's name in the key of the row of a transform's earlier layouts.
pub(in crate::controller) const LAYOUTS: &str = "layouts/";
/// What follows the pipeline's name in the key of a sink's rows.
pub(in crate::controller) const SINK: &str = "sink/";

/// A pipeline's rows by key, without those of its sources' partitions and of earlier layouts.
pub(in crate::controller) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What those rows say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::controller) struct PipelineRows {
    /// The deployment in force; 0 before the first one.
    pub(in crate::controller) deployment: u64,
    /// The numbers of every stream that the pipeline ever had.
    pub(in crate::controller) streams: BTreeMap<String, StreamId>,
    /// Everything else that it ever had.
    pub(in crate::controller) nodes: KnownNodes,
}

/// What is remembered of a pipeline's sources (their kinds), computations and sinks, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::controller) struct KnownNodes {
    pub(in crate::controller) sources: BTreeMap<String, NodeRow<String>>,
    pub(in crate::controller) computations: BTreeMap<String, NodeRow<KnownComputation>>,
    pub(in crate::controller) sinks: BTreeMap<String, NodeRow<SinkIntent>>,
}

/// A source, a computation or a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::controller) struct NodeRow<T> {
    /// The deployment that it was no part of any more, if it is none now.
    pub(in crate::controller) removed_in: Option<u64>,
    /// As it ran last.
    pub(in crate::controller) last: T,
}

/// A computation as it ran last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::controller) struct KnownComputation {
    /// Map or transform.
    pub(in crate::controller) kind: ComputationKind,
    /// Its component.
    pub(in crate::controller) digest: Digest,
    /// Its partitions, numbered in a row.
    #[serde(with = "numbered_in_a_row")]
    pub(in crate::controller) partitions: Vec<PartitionId>,
    /// Its parameters, as JSON.
    pub(in crate::controller) parameters: String,
    /// Inputs of the pipeline that it reads, sorted.
    pub(in crate::controller) inputs: Vec<String>,
    /// The clocks of its timer streams by name.
    pub(in crate::controller) timers: BTreeMap<String, TimeDomain>,
    /// Every state that it ever had, by name. They have rows of their own.
    #[serde(skip)]
    pub(in crate::controller) states: BTreeMap<String, StateEncoding>,
}

impl KnownNodes {
    /// The transforms that are part of the pipeline, with their partitions.
    pub(super) fn transforms(&self) -> impl Iterator<Item = (&str, &[PartitionId])> {
        let in_force = (self.computations.iter()).filter(|(_, row)| {
            row.removed_in.is_none() && row.last.kind == ComputationKind::Transform
        });
        in_force.map(|(name, row)| (name.as_str(), row.last.partitions.as_slice()))
    }
}

impl<T> NodeRow<T> {
    pub(super) fn in_force(last: T) -> NodeRow<T> {
        NodeRow {
            removed_in: None,
            last,
        }
    }
}

impl PipelineRows {
    /// What the store remembers of a pipeline, and the rows that say so.
    pub(in crate::controller) fn read(
        storage: &dyn Storage,
        pipeline: &str,
    ) -> Result<(PipelineRows, Rows), StorageError> {
        let mut found = Rows::new();
        let mut scan = |what: &str| {
            let prefix = node_key(pipeline, what, "");
            let rows = storage.scan_catalog(&prefix)?;
            found.extend(rows.iter().cloned());
            Ok::<Vec<StoredRow>, StorageError>(without_prefix(rows, prefix.len()))
        };
        let own = scan(PIPELINE)?.pop();
        let mut rows = PipelineRows {
            deployment: own.map_or(Ok(0), |(_, value)| decode(pipeline, &value))?,
            streams: BTreeMap::new(),
            nodes: KnownNodes {
                sources: decode_documents(pipeline, scan(SOURCE)?)?,
                computations: decode_documents(pipeline, scan(COMPUTATION)?)?,
                sinks: decode_documents(pipeline, scan(SINK)?)?,
            },
        };
        for (name, value) in scan(STREAM)? {
            rows.streams.insert(text(&name), decode(pipeline, &value)?);
        }
        for (name, value) in scan(STATE)? {
            let name = text(&name);
            // No computation has a slash in its name.
            let (computation, state) = name.split_once('/').unwrap_or((&name, ""));
            let of = rows.nodes.computations.get_mut(computation);
            let of = of
                .ok_or_else(|| undecodable(pipeline, format!("state {name} has no computation")))?;
            let encoding = decode(pipeline, &value)?;
            of.last.states.insert(state.to_owned(), encoding);
        }
        Ok((rows, found))
    }

    /// The rows that say it.
    pub(super) fn encode(&self, pipeline: &str) -> Rows {
        let mut rows = Rows::from([(pipeline_key(pipeline), encode(&self.deployment))]);
        for (name, stream) in &self.streams {
            rows.insert(node_key(pipeline, STREAM, name), encode(stream));
        }
        for (name, row) in &self.nodes.sources {
            rows.extend(encode_document(&node_key(pipeline, SOURCE, name), row));
        }
        for (name, row) in &self.nodes.computations {
            rows.extend(encode_document(&node_key(pipeline, COMPUTATION, name), row));
            for (state, encoding) in &row.last.states {
                let key = node_key(pipeline, STATE, &format!("{name}/{state}"));
                rows.insert(key, encode(encoding));
            }
        }
        for (name, row) in &self.nodes.sinks {
            rows.extend(encode_document(&node_key(pipeline, SINK, name), row));
        }
        rows
    }
}

/// What makes `after` of `before`: the rows that are new or have another value, and those that go.
pub(super) fn difference(before: &Rows, after: &Rows) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let written = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value));
    let written = written.map(|(key, value)| (key.clone(), Some(value.clone())));
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    written.chain(gone.map(|key| (key.clone(), None))).collect()
}

/// A source or sink of some pipeline of the store.
#[derive(Debug)]
pub(in crate::controller) struct NodeOfPipeline<T> {
    /// The pipeline.
    pub(in crate::controller) pipeline: String,
    /// The source or sink.
    pub(in crate::controller) name: String,
    /// Its row.
    pub(in crate::controller) row: NodeRow<T>,
}

/// The sinks that pipelines of the store have or had.
pub(in crate::controller) fn sinks_of_all_pipelines(
    storage: &dyn Storage,
) -> Result<Vec<NodeOfPipeline<SinkIntent>>, StorageError> {
    nodes_of_all_pipelines(storage, SINK)
}

/// The sources that pipelines of the store have or had: their kinds.
pub(in crate::controller) fn sources_of_all_pipelines(
    storage: &dyn Storage,
) -> Result<Vec<NodeOfPipeline<String>>, StorageError> {
    nodes_of_all_pipelines(storage, SOURCE)
}

fn nodes_of_all_pipelines<T: DeserializeOwned>(
    storage: &dyn Storage,
    what: &str,
) -> Result<Vec<NodeOfPipeline<T>>, StorageError> {
    let mut rows_of: BTreeMap<String, Vec<StoredRow>> = BTreeMap::new();
    for (key, value) in storage.scan_catalog(&[keys::CATALOG_PIPELINE])? {
        let name_and_rest = &key[1..];
        let Some(end) = name_and_rest.iter().position(|byte| *byte == 0) else {
            continue;
        };
        let (owner, rest) = (&name_and_rest[..end], &name_and_rest[end + 1..]);
        if let Some(name) = rest.strip_prefix(what.as_bytes()) {
            let rows = rows_of.entry(text(owner)).or_default();
            rows.push((name.to_vec(), value));
        }
    }
    let mut nodes = Vec::new();
    for (pipeline, rows) in rows_of {
        let of_pipeline: BTreeMap<String, NodeRow<T>> = decode_documents(&pipeline, rows)?;
        let of_pipeline = of_pipeline.into_iter();
        nodes.extend(of_pipeline.map(|(name, row)| NodeOfPipeline {
            pipeline: pipeline.clone(),
            name,
            row,
        }));
    }
    Ok(nodes)
}

/// The rows of earlier layouts, by transform.
pub(in crate::controller) fn read_layouts<T: DeserializeOwned>(
    storage: &dyn Storage,
    pipeline: &str,
) -> Result<BTreeMap<String, T>, StorageError> {
    let prefix = node_key(pipeline, LAYOUTS, "");
    let rows = without_prefix(storage.scan_catalog(&prefix)?, prefix.len());
    (rows.into_iter())
        .map(|(name, value)| Ok((text(&name), decode(pipeline, &value)?)))
        .collect()
}

/// The key of a pipeline's own row.
pub(super) fn pipeline_key(pipeline: &str) -> Vec<u8> {
    node_key(pipeline, PIPELINE, "")
}

/// The key of the row of a stream, a source and so on, or of the first one.
pub(in crate::controller) fn node_key(pipeline: &str, what: &str, name: &str) -> Vec<u8> {
    keys::pipeline(pipeline, format!("{what}{name}").as_bytes())
}

/// The value of a row, whole.
pub(in crate::controller) fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT_VERSION];
    bytes.extend(to_bytes(row));
    bytes
}

/// What a whole row holds.
pub(in crate::controller) fn decode<T: DeserializeOwned>(
    pipeline: &str,
    bytes: &[u8],
) -> Result<T, StorageError> {
    from_bytes(pipeline, body(pipeline, bytes)?)
}

/// A document cut into rows: the first one has the key `key`, those behind it that key, a zero byte
/// and their number.
fn encode_document<T: Serialize>(key: &[u8], document: &T) -> Vec<StoredRow> {
    let bytes = to_bytes(document);
    let pieces = (0_u32..).zip(bytes.chunks(PIECE_BYTES_MAX));
    let rows = pieces.map(|(number, piece)| {
        let mut key = key.to_vec();
        if number > 0 {
            key.push(0);
            key.extend(number.to_be_bytes());
        }
        (key, [&[FORMAT_VERSION], piece].concat())
    });
    rows.collect()
}

/// The documents whose pieces are in `rows`, in the order of their keys: what follows a prefix.
fn decode_documents<T: DeserializeOwned>(
    pipeline: &str,
    rows: Vec<StoredRow>,
) -> Result<BTreeMap<String, T>, StorageError> {
    let mut pieces_of: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
    for (key, value) in rows {
        let end = key.iter().position(|byte| *byte == 0);
        let (name, number) = key.split_at(end.unwrap_or(key.len()));
        let (count, bytes) = pieces_of.entry(text(name)).or_default();
        let expected = match *count {
            0 => Vec::new(),
            count => [&[0], count.to_be_bytes().as_slice()].concat(),
        };
        if number != expected {
            let finding = format!("piece {count} of {} is missing", text(name));
            return Err(undecodable(pipeline, finding));
        }
        *count += 1;
        bytes.extend_from_slice(body(pipeline, &value)?);
    }
    (pieces_of.into_iter())
        .map(|(name, (_, bytes))| Ok((name, from_bytes(pipeline, &bytes)?)))
        .collect()
}

fn to_bytes<T: Serialize>(row: &T) -> Vec<u8> {
    postcard::to_stdvec(row).expect("rows are plain data, which always encodes")
}

fn from_bytes<T: DeserializeOwned>(pipeline: &str, bytes: &[u8]) -> Result<T, StorageError> {
    match postcard::take_from_bytes(bytes) {
        Ok((row, [])) => Ok(row),
        Ok((_, rest)) => {
            let finding = format!("it has {} bytes too many", rest.len());
            Err(undecodable(pipeline, finding))
        }
        Err(error) => Err(undecodable(pipeline, error.to_string())),
    }
}

/// What follows the version.
fn body<'a>(pipeline: &str, bytes: &'a [u8]) -> Result<&'a [u8], StorageError> {
    let finding = match bytes.split_first() {
        Some((&FORMAT_VERSION, body)) => return Ok(body),
        Some((version, _)) => unknown_version(*version, FORMAT_VERSION),
        None => "it is empty".to_owned(),
    };
    Err(undecodable(pipeline, finding))
}

fn undecodable(pipeline: &str, finding: String) -> StorageError {
    StorageError::Undecodable {
        what: format!("a row of pipeline {pipeline}"),
        finding,
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn without_prefix(rows: Vec<StoredRow>, len: usize) -> Vec<StoredRow> {
    let rest = |(mut key, value): StoredRow| {
        key.drain(..len);
        (key, value)
    };
    rows.into_iter().map(rest).collect()
}

/// Partitions as the first one and how many there are.
mod numbered_in_a_row {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    use crate::types::ids::PartitionId;

    pub(super) fn serialize<S: Serializer>(
        partitions: &[PartitionId],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let first = partitions.first().map_or(0, |first| first.0);
        let is_next = |(number, partition): (u64, &PartitionId)| partition.0 == number;
        if !(first..).zip(partitions).all(is_next) {
            return Err(ser::Error::custom("partitions of a layout have a gap"));
        }
        let count = u16::try_from(partitions.len()).map_err(ser::Error::custom)?;
        (first, count).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PartitionId>, D::Error> {
        let (first, count) = <(u64, u16)>::deserialize(deserializer)?;
        let end = first.checked_add(u64::from(count));
        let end = end.ok_or_else(|| de::Error::custom("partition numbers end at 2^64"))?;
        Ok((first..end).map(PartitionId).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory::MemoryStorage;
    use crate::storage::{CatalogChange, CatalogOutcome};

    fn rows() -> PipelineRows {
        let computation = KnownComputation {
            kind: ComputationKind::Transform,
            digest: Digest([0xd1; 32]),
            partitions: (300..556).map(PartitionId).collect(),
            parameters: "{}".to_owned(),
            inputs: vec!["in".to_owned()],
            timers: BTreeMap::from([("quiet".to_owned(), TimeDomain::EventTime)]),
            states: BTreeMap::from([(
                "totals".to_owned(),
                StateEncoding {
                    version: 2,
                    format: "json".to_owned(),
                },
            )]),
        };
        let sink = SinkIntent {
            identity: "x".repeat(5_000),
            path: None,
            queue: None,
        };
        let source = NodeRow {
            removed_in: Some(3),
            last: "files".to_owned(),
        };
        PipelineRows {
            deployment: 4,
            streams: BTreeMap::from([("in".to_owned(), StreamId(200))]),
            nodes: KnownNodes {
                sources: BTreeMap::from([("in".to_owned(), source)]),
                computations: BTreeMap::from([("c".to_owned(), NodeRow::in_force(computation))]),
                sinks: BTreeMap::from([("out".to_owned(), NodeRow::in_force(sink))]),
            },
        }
    }

    fn stored(rows: &Rows) -> MemoryStorage {
        let storage = MemoryStorage::default();
        let change = CatalogChange {
            expectations: Vec::new(),
            writes: difference(&Rows::new(), rows),
        };
        let outcome = storage.commit_catalog(&change).unwrap();
        assert_eq!(outcome, CatalogOutcome::Committed);
        storage
    }

    /// These bytes are in docs/format.md.
    #[test]
    fn rows_have_the_bytes_that_are_written_down() {
        let digest = [0xd1; 32];
        let mut long = b"\x01\x00\x88\x27".to_vec();
        long.extend([b'x'; PIECE_BYTES_MAX - 3]);
        let mut rest = vec![1];
        rest.extend(vec![b'x'; 5_000 - (PIECE_BYTES_MAX - 3)]);
        rest.extend([0, 0]);
        let expected: Vec<(&[u8], Vec<u8>)> = vec![
            (
                b"pa\0computation/c",
                [
                    b"\x01\x00\x01",
                    &digest[..],
                    b"\xac\x02\x80\x02\x02{}\x01\x02in\x01\x05quiet\x00",
                ]
                .concat(),
            ),
            (b"pa\0pipeline", b"\x01\x04".to_vec()),
            (b"pa\0sink/out", long),
            (b"pa\0sink/out\0\0\0\0\x01", rest),
            (b"pa\0source/in", b"\x01\x01\x03\x05files".to_vec()),
            (b"pa\0state/c/totals", b"\x01\x02\x04json".to_vec()),
            (b"pa\0stream/in", b"\x01\xc8\x01".to_vec()),
        ];
        let expected = expected.into_iter();
        let expected: Rows = expected.map(|(key, value)| (key.to_vec(), value)).collect();
        assert_eq!(rows().encode("a"), expected);
    }

    #[test]
    fn what_is_written_is_read_back_and_other_pipelines_are_not() {
        let mut written = rows().encode("a");
        written.extend(PipelineRows::default().encode("a-b"));
        let (read, found) = PipelineRows::read(&stored(&written), "a").unwrap();
        assert_eq!(read, rows());
        assert_eq!(found, rows().encode("a"));
    }

    #[test]
    fn a_document_that_became_shorter_leaves_no_piece() {
        let mut shorter = rows();
        let sink = shorter.nodes.sinks.get_mut("out").unwrap();
        sink.last.identity.truncate(10);
        let (before, after) = (rows().encode("a"), shorter.encode("a"));
        let changed = difference(&before, &after);
        assert_eq!(changed.len(), 2, "{changed:?}");
        assert_eq!(changed[1], (b"pa\0sink/out\0\0\0\0\x01".to_vec(), None));
    }

    #[test]
    fn a_row_that_is_missing_cut_or_too_long_is_refused() {
        fn check(spoil: impl FnOnce(&mut Rows), expected: &str) {
            let mut spoilt = rows().encode("a");
            spoil(&mut spoilt);
            let refused = PipelineRows::read(&stored(&spoilt), "a");
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("a row of pipeline a"), "{text}");
            assert!(text.contains(expected), "{text}");
        }
        let first = || node_key("a", SINK, "out");
        let second = || [first(), vec![0, 0, 0, 0, 1]].concat();
        check(|rows| drop(rows.remove(&first())), "piece 0 of out");
        check(
            |rows| {
                let piece = rows.remove(&second()).unwrap();
                rows.insert([first(), vec![0, 0, 0, 0, 2]].concat(), piece);
            },
            "piece 1 of out",
        );
        check(|rows| drop(rows.remove(&second())), "end");
        check(
            |rows| rows.get_mut(&second()).unwrap().push(0),
            "1 bytes too many",
        );
        check(
            |rows| drop(rows.insert(pipeline_key("a"), vec![9])),
            "format version 9",
        );
        check(
            |rows| drop(rows.remove(&node_key("a", COMPUTATION, "c"))),
            "state c/totals has no computation",
        );
    }
}
