//! A job's computations, run one behind the other on one batch of its input. Nothing here is
//! stored: what the chain yields leaves it as messages of streams, in the order of the input.
//!
//! **Invariant:** the failure that a chain reports is that of the first item of the job's input that
//! leads to one, and there of the first computation, as if the input had come item by item.

use crate::engine::call::{map_batches, transform_batch};
use crate::engine::epoch::OpenEpoch;
use crate::engine::hot_keys::{HotKey, HotKeys};
use crate::engine::state::{BatchSlots, StateCache};
use crate::engine::stream::{CallItems, InputMessages, StreamMessages, distribute, merge_by_root};
use crate::guest::{Call, Computation, GuestError};
use crate::storage::{Storage, StorageError, rows};
use crate::types::batch::{Batch, Effects, LogLevel, Timestamp};
use crate::types::epoch::{EpochTime, StateAges};
use crate::types::ids::PartitionId;
use crate::types::pipeline::EpochLimits;
use crate::worker::cut_audit::CutAudit;
use crate::worker::plan::{NodePlan, StreamPlan, TimePlan};
use crate::worker::sweep::StateSweep;

/// How many bytes of keys and payloads one batch of a job's input may lead to inside its chain,
/// all computations together. Each call is bounded by itself; a chain of maps that each multiply
/// what they get is bounded here.
pub const CHAIN_BYTES_MAX: usize = 1 << 30;

/// The transform of a job, if it has one, and its maps.
pub struct Chain {
    transform: Option<(Node, StateCache)>,
    sweep: StateSweep,
    /// The watermark of each of its inputs at the last step.
    watermarks: Vec<Timestamp>,
    /// The stream that late messages go to instead of the transform.
    late_output: Option<usize>,
    /// The keys of the transform's input.
    hot_keys: HotKeys,
    maps: Vec<Node>,
    limits: EpochLimits,
    /// The messages of each of the job's streams that the current batch led to.
    streams: Vec<StreamMessages>,
    /// Places of the streams that anything outside the chain takes.
    leaving: Vec<usize>,
}

/// A computation in the chain.
struct Node {
    plan: NodePlan,
    audit: Option<CutAudit>,
}

/// A computation failed on some item of the job's input.
#[derive(Debug)]
pub struct ChainFailure {
    /// The computation.
    pub computation: String,
    /// The items of the job's input in question, as a range of indexes into the batch: the one that
    /// the verdict is on, or all of a call where there is no verdict.
    pub items: std::ops::Range<u32>,
    /// What went wrong.
    pub error: GuestError,
}

/// Why a batch could not be run.
#[derive(Debug)]
pub enum ChainError {
    /// A guest failed.
    Guest(Box<ChainFailure>),
    /// One batch of the job's input led to more than [`CHAIN_BYTES_MAX`] inside the chain.
    TooMuch {
        /// The computation that went past it.
        computation: String,
        /// Bytes of keys and payloads then.
        size_bytes: usize,
    },
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
        time: &TimePlan,
        limits: EpochLimits,
        state_cache_bytes: usize,
    ) -> Chain {
        let with_states = |plan: NodePlan| {
            let declared = &plan.computation.description().states;
            let names = declared.iter().map(|state| state.name.clone()).collect();
            let states = StateCache::new(names, &time.state_ttls, state_cache_bytes);
            (Node::new(plan), states)
        };
        Chain {
            transform: transform.map(with_states),
            sweep: StateSweep::default(),
            watermarks: Vec::new(),
            late_output: time.late_output,
            hot_keys: HotKeys::default(),
            maps: maps.into_iter().map(Node::new).collect(),
            limits,
            streams: vec![StreamMessages::default(); streams.len()],
            leaving: (0..streams.len())
                .filter(|place| streams[*place].leaves_the_chain())
                .collect(),
        }
    }

    /// How many items the next batch of input should have at most; see
    /// [`Computation::suggested_rows`]. The batches of maps are cut here.
    pub fn suggested_rows(&self) -> usize {
        let transform = self.transform.as_ref();
        transform.map_or(usize::MAX, |(node, _)| {
            node.plan.computation.suggested_rows()
        })
    }

    /// Goes on from where the partition stood when its last job ended. To be called once, before the first
    /// batch.
    pub fn resume(&mut self, time: &EpochTime) {
        if let Some((_, states)) = &mut self.transform {
            states.resume(time);
        }
        self.set_time(time);
    }

    /// The partition stands here in time, from the next batch on.
    pub fn set_time(&mut self, time: &EpochTime) {
        self.watermarks.clone_from(&time.input_watermarks);
        if let Some((_, states)) = &mut self.transform {
            states.advance(time.latest_watermark);
        }
    }

    /// What the epoch's record is to say of the age of states.
    pub fn state_ages(&self) -> StateAges {
        let transform = self.transform.as_ref();
        transform.map_or_else(StateAges::default, |(_, states)| states.ages())
    }

    /// Looks at some stored states with a time to live; those that are too old go with the epoch. To be
    /// called once for each epoch, before its states are taken.
    ///
    /// # Errors
    ///
    /// When they can't be read.
    pub fn sweep(
        &mut self,
        storage: &dyn Storage,
        partition: PartitionId,
    ) -> Result<(), StorageError> {
        match &mut self.transform {
            Some((_, states)) => self.sweep.go_on(states, storage, partition),
            None => Ok(()),
        }
    }

    /// Runs one batch of input through all computations. The messages `late`, indexes into it, rising, go to
    /// the late output instead of the transform, where there is one.
    ///
    /// # Errors
    ///
    /// The first failure in the order of the input.
    pub fn run(
        &mut self,
        input: InputMessages,
        late: &[u32],
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
        partition: PartitionId,
    ) -> Result<(), ChainError> {
        self.streams.iter_mut().for_each(StreamMessages::clear);
        // After a failure the computations behind it still see what the items before it led to:
        // one of those may fail there, and comes first.
        let mut first_failure = match &self.transform {
            Some(_) => {
                let (input, roots) = self.divert_late(input, late);
                self.run_transform(input, roots, epoch, storage, partition)?
            }
            None => {
                self.take_records(input);
                None
            }
        };
        for place in 0..self.maps.len() {
            if let Some(failure) = self.run_map(place, epoch)? {
                first_failure = Some(failure);
            }
        }
        match first_failure {
            Some(failure) => Err(ChainError::Guest(failure)),
            None => Ok(()),
        }
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

    /// The hot keys of the transform's input, if there is one.
    pub fn hot_keys(&self) -> Option<Vec<HotKey>> {
        self.transform.as_ref().map(|_| self.hot_keys.hottest())
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

    /// Puts late messages into the late output. Returns the others, and which items of the batch they
    /// are.
    fn divert_late(&mut self, input: InputMessages, late: &[u32]) -> (InputMessages, Vec<u32>) {
        let count = input.len() as u32;
        let Some(place) = self.late_output.filter(|_| !late.is_empty()) else {
            return (input, (0..count).collect());
        };
        let mut on_time = InputMessages::default();
        let mut roots = Vec::with_capacity(input.len());
        for item in 0..count {
            let at = item as usize;
            let (key, payload) = (input.keys.get(at), input.payloads.get(at));
            if late.binary_search(&item).is_ok() {
                self.streams[place].push(item, key, input.event_times[at], payload);
            } else {
                on_time.push(input.streams[at], key, input.event_times[at], payload);
                roots.push(item);
            }
        }
        (on_time, roots)
    }

    fn run_transform(
        &mut self,
        input: InputMessages,
        roots: Vec<u32>,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
        partition: PartitionId,
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let Some((node, states)) = &mut self.transform else {
            return Ok(None);
        };
        if roots.is_empty() {
            return Ok(None);
        }
        let (mut batch, items) = transform_batch(input, roots);
        self.hot_keys.add(&batch.keys, &batch.messages.keys);
        let slots = load_states(states, &batch, storage, partition)?;
        states.touch(&slots, &batch);
        batch.states = states.columns(&slots, |bytes| epoch.add_state_read(bytes));
        batch.watermarks.clone_from(&self.watermarks);
        batch
            .watermarks
            .resize(node.plan.computation.description().inputs.len(), 0);
        let effects = match node.call(&batch, &items, epoch) {
            Ok(effects) => effects,
            Err(failure) => {
                let followed = !self.maps.is_empty();
                return node.fail(failure, &batch, &items, followed, &mut self.streams);
            }
        };
        states.apply(&slots, &effects.states);
        let state_bytes = effects.states.iter().map(|state| state.values.bytes.len());
        epoch.add_output_bytes(state_bytes.sum());
        distribute(
            &effects.outputs,
            &items,
            &node.plan.outputs,
            &mut self.streams,
        );
        Ok(None)
    }

    fn run_map(
        &mut self,
        place: usize,
        epoch: &mut OpenEpoch,
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let followed = place + 1 < self.maps.len();
        let node = &mut self.maps[place];
        let suggested_rows = node.plan.computation.suggested_rows();
        let limits = EpochLimits {
            max_rows_per_batch: self.limits.max_rows_per_batch.min(suggested_rows),
            ..self.limits
        };
        for (batch, items) in map_batches(&self.streams, &node.plan.inputs, &limits) {
            let effects = match node.call(&batch, &items, epoch) {
                Ok(effects) => effects,
                Err(failure) => {
                    return node.fail(failure, &batch, &items, followed, &mut self.streams);
                }
            };
            distribute(
                &effects.outputs,
                &items,
                &node.plan.outputs,
                &mut self.streams,
            );
            let size_bytes = self.streams.iter().map(StreamMessages::total_bytes).sum();
            if size_bytes > CHAIN_BYTES_MAX {
                return Err(ChainError::TooMuch {
                    computation: node.plan.name.clone(),
                    size_bytes,
                });
            }
        }
        Ok(None)
    }
}

impl Node {
    fn new(plan: NodePlan) -> Node {
        Node {
            audit: CutAudit::of(&plan.computation),
            plan,
        }
    }

    /// Calls the guest, audits what it returned, counts what it used, hands its log lines on.
    fn call(
        &mut self,
        batch: &Batch,
        items: &CallItems,
        epoch: &mut OpenEpoch,
    ) -> Result<Effects, Box<ChainFailure>> {
        let answer = self.plan.computation.process(batch).and_then(|call| {
            let cut = self
                .audit
                .as_mut()
                .and_then(|audit| audit.next_cut(batch.item_count()));
            match cut {
                Some(at) => audit_cut(&self.plan.computation, batch, &call, at).map(|()| call),
                None => Ok(call),
            }
        });
        match answer {
            Ok(call) => {
                epoch.add_call(call.fuel);
                log_call(&self.plan.name, &call);
                Ok(call.effects)
            }
            Err(error) => Err(Box::new(ChainFailure {
                computation: self.plan.name.clone(),
                items: failed_items(&error, items),
                error,
            })),
        }
    }

    /// After a failed call: where it is the verdict on an item, leaves in the streams what the items
    /// before that one led to, if computations follow.
    ///
    /// # Errors
    ///
    /// A failure that is not on one item, so that nothing can come before it.
    fn fail(
        &mut self,
        failure: Box<ChainFailure>,
        batch: &Batch,
        items: &CallItems,
        followed: bool,
        streams: &mut [StreamMessages],
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let Some(item) = failure.error.item() else {
            return Err(ChainError::Guest(failure));
        };
        if followed && item > 0 {
            let computation = &mut self.plan.computation;
            let before = computation.items_before(batch, item);
            // They have passed before, so another failure would tell of the machine.
            if let Ok(call) = computation.process(&before) {
                distribute(&call.effects.outputs, items, &self.plan.outputs, streams);
            }
        }
        for stream in streams {
            stream.keep_before(failure.items.start);
        }
        Ok(Some(failure))
    }
}

/// Runs a batch again under another cut. An audit that proves nothing fails nothing.
fn audit_cut(
    computation: &Computation,
    batch: &Batch,
    call: &Call,
    at: usize,
) -> Result<(), GuestError> {
    match computation.verify_cut(batch, &call.effects, at) {
        Err(error) if !matches!(error, GuestError::DependsOnCut { .. }) => {
            tracing::warn!(%error, "cut audit given up");
            Ok(())
        }
        proof => proof,
    }
}

/// Finds the states of the batch's keys, and reads those that are not in memory yet.
fn load_states(
    states: &mut StateCache,
    batch: &Batch,
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<BatchSlots, StorageError> {
    let mut slots = states.find(&batch.keys);
    let missing: Vec<usize> = slots.missing().collect();
    if missing.is_empty() {
        return Ok(slots);
    }
    let keys: Vec<&[u8]> = missing.iter().map(|index| batch.keys.get(*index)).collect();
    let mut found = vec![Vec::with_capacity(states.names().len()); keys.len()];
    for name in states.names() {
        let values = rows::read_states(storage, partition, name, &keys)?;
        for (of_key, value) in found.iter_mut().zip(values) {
            of_key.push(value);
        }
    }
    for ((index, key), values) in missing.into_iter().zip(keys).zip(found) {
        states.insert(&mut slots, index, key, values);
    }
    Ok(slots)
}

/// Which items of the job's input a failed call speaks of: the one that the verdict is on, or
/// all.
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
