//! Gives numbers to what is new in a pipeline: all of its streams in one step, and the partitions of
//! all of its transforms in one.

use std::collections::BTreeMap;

use crate::controller::registry::intent::{ComputationIntent, Intent};
use crate::controller::registry::rows::{KnownComputation, KnownNodes, NodeRow};
use crate::storage::leases::{Counter, allocate};
use crate::storage::{Storage, StorageError};
use crate::types::batch::ComputationKind;
use crate::types::ids::{PartitionId, StreamId};

/// The streams that are known, and new numbers for those of the intent that are not.
pub(super) fn number_streams(
    storage: &dyn Storage,
    known: &BTreeMap<String, StreamId>,
    intent: &Intent,
) -> Result<BTreeMap<String, StreamId>, StorageError> {
    let mut streams = known.clone();
    let is_new = |stream: &&String| !known.contains_key(*stream);
    let new: Vec<&String> = intent.streams.iter().filter(is_new).collect();
    if !new.is_empty() {
        let first = allocate(storage, Counter::Streams, new.len() as u64)?;
        let numbered = new.into_iter().cloned().zip((first..).map(StreamId));
        streams.extend(numbered);
    }
    Ok(streams)
}

/// The rows that are in force from now on; what is in `known` and not in the intent is gone as of
/// `deployment`.
pub(super) fn number_nodes(
    storage: &dyn Storage,
    known: &KnownNodes,
    intent: &Intent,
    deployment: u64,
) -> Result<KnownNodes, StorageError> {
    let mut nodes = known.clone();
    for (name, source) in &intent.sources {
        let row = NodeRow::in_force(source.kind.clone());
        nodes.sources.insert(name.clone(), row);
    }
    let partitions = number_partitions(storage, known, intent)?;
    for ((name, computation), partitions) in intent.computations.iter().zip(partitions) {
        // A state that this component does not declare still has its rows, in its old version.
        let was = known.computations.get(name);
        let mut states = was.map_or_else(BTreeMap::new, |was| was.last.states.clone());
        states.extend(computation.states.clone());
        let row = NodeRow::in_force(KnownComputation {
            kind: computation.kind,
            digest: computation.digest,
            parameters: computation.parameters.clone(),
            inputs: computation.inputs.clone(),
            timers: computation.timers.clone(),
            partitions,
            states,
        });
        nodes.computations.insert(name.clone(), row);
    }
    for (name, sink) in &intent.sinks {
        let row = NodeRow::in_force(sink.clone());
        nodes.sinks.insert(name.clone(), row);
    }
    retire(&mut nodes.sources, &intent.sources, deployment);
    retire(&mut nodes.computations, &intent.computations, deployment);
    retire(&mut nodes.sinks, &intent.sinks, deployment);
    Ok(nodes)
}

/// Marks the rows of what the intent has no more, unless they are marked.
fn retire<T, I>(
    rows: &mut BTreeMap<String, NodeRow<T>>,
    intent: &BTreeMap<String, I>,
    deployment: u64,
) {
    for (name, row) in rows {
        if !intent.contains_key(name) {
            row.removed_in = row.removed_in.or(Some(deployment));
        }
    }
}

/// The partitions of each computation of the intent, in their order: those that it had, or as many new
/// ones as it is to have, which are numbered in a row. A map has none of its own, but keeps those that it
/// had as a transform.
fn number_partitions(
    storage: &dyn Storage,
    known: &KnownNodes,
    intent: &Intent,
) -> Result<Vec<Vec<PartitionId>>, StorageError> {
    let had = |name: &str| {
        let row = known.computations.get(name);
        row.map_or(&[][..], |row| &row.last.partitions)
    };
    let stays = |name: &str, computation: &ComputationIntent| {
        let is_map = computation.kind == ComputationKind::Map;
        is_map || had(name).len() == computation.partition_count as usize
    };
    let computations = intent.computations.iter();
    let missing: u64 = (computations.clone())
        .filter(|(name, computation)| !stays(name, computation))
        .map(|(_, computation)| u64::from(computation.partition_count))
        .sum();
    let mut next = match missing {
        0 => 0,
        missing => allocate(storage, Counter::Partitions, missing)?,
    };
    let layouts = computations.map(|(name, computation)| {
        if stays(name, computation) {
            return had(name).to_vec();
        }
        let first = next;
        next += u64::from(computation.partition_count);
        (first..next).map(PartitionId).collect()
    });
    Ok(layouts.collect())
}
