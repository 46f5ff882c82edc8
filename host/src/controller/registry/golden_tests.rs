//! The rows of pipelines in the catalog, as golden files in `golden/`.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::controller::registry::intent::{SinkIntent, StateEncoding};
use crate::controller::registry::rows::{
    KnownComputation, KnownNodes, NodeRow, PipelineRows, decode, encode, node_key,
};
use crate::controller::registry::run::RunRow;
use crate::golden::{self, Kind};
use crate::types::batch::{ComputationKind, TimeDomain};
use crate::types::digest::Digest;
use crate::types::ids::{PartitionId, StreamId};

const FOLDER: &str = "src/controller/registry/golden";
const PIPELINE: &str = "flights";

#[test]
fn rows_of_pipelines_that_were_stored_once_decode() {
    golden::check(FOLDER, &kinds());
}

#[test]
fn rows_of_pipelines_of_a_newer_release_are_refused_by_name() {
    golden::check_newer_is_refused(&kinds());
}

/// A row that holds `held`, whole: one that is cut into pieces has no more than the first.
fn kind<T>(name: &'static str, key: Vec<u8>, held: &T) -> Kind<'static>
where
    T: Serialize + DeserializeOwned + Debug + 'static,
{
    Kind {
        name,
        called: "a row of pipeline flights",
        version: 1,
        version_at: 0,
        written: (key, encode(held)),
        held: format!("{held:?}"),
        decode: Box::new(|_, value| {
            let row = decode::<T>(PIPELINE, value);
            row.map(|row| format!("{row:?}"))
                .map_err(|error| error.to_string())
        }),
    }
}

fn computation() -> KnownComputation {
    KnownComputation {
        kind: ComputationKind::Transform,
        digest: Digest([0xd1; 32]),
        partitions: (300..304).map(PartitionId).collect(),
        parameters: "{\"limit\":3}".to_owned(),
        inputs: vec!["in".to_owned()],
        timers: BTreeMap::from([("quiet".to_owned(), TimeDomain::SystemTime)]),
        states: BTreeMap::new(),
    }
}

fn sink() -> SinkIntent {
    SinkIntent {
        identity: "file out/a.jsonl of late".to_owned(),
        path: Some("out/a.jsonl".into()),
        queue: None,
    }
}

fn kinds() -> Vec<Kind<'static>> {
    let key = |what, name: &str| node_key(PIPELINE, what, name);
    let row_of_run = RunRow {
        number: 5,
        is_completed: true,
    };
    let of_state = StateEncoding {
        version: 2,
        format: "json".to_owned(),
    };
    let source = NodeRow {
        removed_in: Some(3),
        last: "files as lines".to_owned(),
    };
    vec![
        kind("pipeline", key("pipeline", ""), &4_u64),
        kind("run", RunRow::key(PIPELINE), &row_of_run),
        kind("stream", key("stream/", "late"), &StreamId(200)),
        kind("source", key("source/", "in"), &source),
        kind(
            "computation",
            key("computation/", "totals"),
            &NodeRow::in_force(computation()),
        ),
        kind("state", key("state/", "totals/sum"), &of_state),
        kind("sink", key("sink/", "out"), &NodeRow::in_force(sink())),
    ]
}

/// The golden files have what a pipeline is registered with.
#[test]
fn a_pipeline_is_registered_with_these_rows() {
    let mut computation = computation();
    let state = StateEncoding {
        version: 2,
        format: "json".to_owned(),
    };
    computation.states.insert("sum".to_owned(), state);
    let source = NodeRow {
        removed_in: Some(3),
        last: "files as lines".to_owned(),
    };
    let rows = PipelineRows {
        deployment: 4,
        streams: BTreeMap::from([("late".to_owned(), StreamId(200))]),
        nodes: KnownNodes {
            sources: BTreeMap::from([("in".to_owned(), source)]),
            computations: BTreeMap::from([("totals".to_owned(), NodeRow::in_force(computation))]),
            sinks: BTreeMap::from([("out".to_owned(), NodeRow::in_force(sink()))]),
        },
    };
    let kinds = kinds().into_iter().filter(|kind| kind.name != "run");
    let written: BTreeMap<Vec<u8>, Vec<u8>> = kinds.map(|kind| kind.written).collect();
    assert_eq!(rows.encode(PIPELINE), written);
}
