//! A job's computations, run one behind the other on one batch of its input. Nothing here is
//! stored: what the chain yields leaves it as messages of streams, in the order of the input.

use crate::engine::call::{map_batches, transform_batch};
use crate::engine::epoch::OpenEpoch;
use crate::engine::state::StateCache;
use crate::engine::stream::{CallItems, InputMessages, StreamMessages, distribute, merge_by_root};
use crate::guest::{Call, GuestError};
use crate::storage::{Storage, StorageError, rows};
use crate::types::batch::{Batch, LogLevel};
use crate::types::ids::PartitionId;
use crate::types::pipeline::EpochLimits;
use crate::worker::plan::{NodePlan, StreamPlan};

/// The transform of a job, if it has one, and its maps.
pub struct Chain {
    transform: Option<(NodePlan, StateCache)>,
    maps: Vec<NodePlan>,
    limits: EpochLimits,
    /// The messages of each of the job's streams that the current batch led to.
    streams: Vec<StreamMessages>,
    /// Places of the streams that anything outside the chain takes.
    leaving: Vec<usize>,
}

/// A computation failed on some item of the job's input.
#[derive(Debug)]
pub struct ChainFailure {
    /// The computation.
    pub computation: String,
    /// The items of the job's input in question, as a range of indexes into the batch; one item
    /// where the guest named it.
    pub items: std::ops::Range<u32>,
    /// What went wrong.
    pub error: GuestError,
}

/// Why a batch could not be run.
#[derive(Debug)]
pub enum ChainError {
    /// A guest failed.
    Guest(Box<ChainFailure>),
    /// States could not be read.
    Storage(StorageError),
}

impl From<StorageError> for ChainError {
    fn from(error: StorageError) -> ChainError {
        ChainError::Storage(error)
    }
}

impl Chain {
    /// A chain of the given computations.
    pub fn new(
        transform: Option<NodePlan>,
        maps: Vec<NodePlan>,
        streams: &[StreamPlan],
        limits: EpochLimits,
        state_cache_bytes_max: usize,
    ) -> Chain {
        let with_states = |node: NodePlan| {
            let declared = &node.computation.description().states;
            let names = declared.iter().map(|state| state.name.clone()).collect();
            (node, StateCache::new(names, state_cache_bytes_max))
        };
        Chain {
            transform: transform.map(with_states),
            maps,
            limits,
            streams: vec![StreamMessages::default(); streams.len()],
            leaving: (0..streams.len())
                .filter(|place| streams[*place].leaves_the_chain())
                .collect(),
        }
    }

    /// Runs one batch of input through all computations.
    pub fn run(
        &mut self,
        input: InputMessages,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
        partition: PartitionId,
    ) -> Result<(), ChainError> {
        self.streams.iter_mut().for_each(StreamMessages::clear);
        match &self.transform {
            Some(_) => self.run_transform(input, epoch, storage, partition)?,
            None => self.take_records(input),
        }
        for map in &mut self.maps {
            for (batch, items) in map_batches(&self.streams, &map.inputs, &self.limits) {
                let (_, call) = call_guest(map, batch, &items, epoch)?;
                distribute(
                    &call.effects.outputs,
                    &items,
                    &map.outputs,
                    &mut self.streams,
                );
            }
        }
        Ok(())
    }

    /// Calls `visit` for each message that leaves the chain, in order, with the place of its
    /// stream and its index in it.
    pub fn visit_leaving(&self, visit: impl FnMut(usize, usize)) {
        merge_by_root(&self.streams, &self.leaving, visit);
    }

    /// The messages of one of the job's streams.
    pub fn stream(&self, place: usize) -> &StreamMessages {
        &self.streams[place]
    }

    /// The states of the transform, if there is one.
    pub fn states(&mut self) -> Option<&mut StateCache> {
        self.transform.as_mut().map(|(_, states)| states)
    }

    /// A source's records are the messages of the job's first stream.
    fn take_records(&mut self, input: InputMessages) {
        self.streams[0] = StreamMessages {
            roots: (0..input.len() as u32).collect(),
            keys: input.keys,
            event_times: input.event_times,
            payloads: input.payloads,
        };
    }

    fn run_transform(
        &mut self,
        input: InputMessages,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
        partition: PartitionId,
    ) -> Result<(), ChainError> {
        let Some((node, states)) = &mut self.transform else {
            return Ok(());
        };
        let (mut batch, items) = transform_batch(input);
        load_states(states, &batch, storage, partition)?;
        batch.states = states.columns(&batch.keys, |key, values| {
            epoch.add_state_read(key, values);
        });
        // Watermark steps come with event time; until then every input stands at the beginning.
        batch.watermarks = vec![0; node.computation.description().inputs.len()];
        let (batch, call) = call_guest(node, batch, &items, epoch)?;
        states.apply(&batch.keys, &call.effects.states);
        distribute(
            &call.effects.outputs,
            &items,
            &node.outputs,
            &mut self.streams,
        );
        Ok(())
    }
}

/// Reads the states of the batch's keys that are not in memory yet.
fn load_states(
    states: &mut StateCache,
    batch: &Batch,
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<(), StorageError> {
    let missing = states.missing(&batch.keys);
    if missing.is_empty() {
        return Ok(());
    }
    let keys: Vec<&[u8]> = missing.iter().map(|index| batch.keys.get(*index)).collect();
    let mut found = vec![Vec::with_capacity(states.names().len()); keys.len()];
    for name in states.names() {
        let values = rows::read_states(storage, partition, name, &keys)?;
        for (of_key, value) in found.iter_mut().zip(values) {
            of_key.push(value);
        }
    }
    for (key, values) in keys.into_iter().zip(found) {
        states.insert(key, values);
    }
    Ok(())
}

/// Calls a guest, counts what it used, hands its log lines on.
fn call_guest(
    node: &mut NodePlan,
    batch: Batch,
    items: &CallItems,
    epoch: &mut OpenEpoch,
) -> Result<(Batch, Call), ChainError> {
    match node.computation.process(&batch) {
        Ok(call) => {
            epoch.add_call(call.fuel);
            log_call(&node.name, &call);
            Ok((batch, call))
        }
        Err(error) => Err(ChainError::Guest(Box::new(ChainFailure {
            computation: node.name.clone(),
            items: failed_items(&error, items),
            error,
        }))),
    }
}

/// Which items of the job's input a failed call speaks of: the one that the guest named, or all.
fn failed_items(error: &GuestError, items: &CallItems) -> std::ops::Range<u32> {
    let first = items.roots.first().copied().unwrap_or(0);
    let last = items.roots.last().copied().unwrap_or(0);
    error
        .item()
        .and_then(|item| items.roots.get(item as usize).copied())
        .map_or(first..last + 1, |root| root..root + 1)
}

fn log_call(computation: &str, call: &Call) {
    for line in &call.effects.logs {
        let text = line.text.as_str();
        match line.level {
            LogLevel::Debug => tracing::debug!(target: "guest", computation, text, "guest logged"),
            LogLevel::Info => tracing::info!(target: "guest", computation, text, "guest logged"),
            LogLevel::Warn => tracing::warn!(target: "guest", computation, text, "guest logged"),
            LogLevel::Error => tracing::error!(target: "guest", computation, text, "guest logged"),
        }
    }
    for (stream, text) in [("stdout", &call.stdout), ("stderr", &call.stderr)] {
        if !text.is_empty() {
            tracing::info!(target: "guest", computation, stream, text, "guest printed");
        }
    }
}
