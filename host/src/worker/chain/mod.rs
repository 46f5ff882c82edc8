//! A job's computations, run one behind the other on one batch of its input. Nothing here is
//! stored: what the chain yields leaves it as messages of streams, in the order of the input.
//!
//! **Invariant:** the failure that a chain reports is that of the first item of the job's input that
//! leads to one, and there of the first computation, as if the input had come item by item.

mod keyed;
mod node;
mod passed;
mod replay;

use crate::engine::call::{map_batches, transform_batch};
use crate::engine::epoch::{BatchRoom, OpenEpoch};
use crate::engine::firing::before_new_timers;
use crate::engine::hot_keys::{HotKey, HotKeys};
use crate::engine::state::{BatchSlots, StateCache, StateLookups};
use crate::engine::stream::{
    CallItems, InputMessages, Origins, STREAM_BYTES_MAX, StreamMessages, distribute, merge_by_root,
};
use crate::engine::timer_window::WindowLimit;
use crate::guest::GuestError;
use crate::storage::{Storage, StorageError};
use crate::types::batch::{Batch, TimeDomain, Timestamp};
use crate::types::epoch::{EpochTime, StateAges};
use crate::types::ids::PartitionId;
use crate::types::pipeline::{EpochLimits, OnFailure};
use crate::types::timer::{TimerChanges, TimerPlace, TimerSetting, TimerStep};
use crate::worker::attempts::Attempts;
use crate::worker::plan::{NodePlan, StreamPlan, TimePlan};
use crate::worker::sweep::StateSweep;
use crate::worker::timers::{DueLimit, DueTimers, Timers, TimersError};

pub use passed::{BATCH_KEPT_BYTES_MAX, KeptItem, PassedOver};

use keyed::{KeyedCall, KeyedNode, first_timers, load_states, long_key};
use node::Node;

/// How many bytes of keys and payloads one batch of a job's input may lead to inside its chain,
/// all computations together. Each call is bounded by itself; a chain of maps that each multiply
/// what they get is bounded here.
pub const CHAIN_BYTES_MAX: usize = STREAM_BYTES_MAX;

/// The computations of a job.
pub struct ChainNodes {
    /// The transform, unless the job reads a source.
    pub transform: Option<NodePlan>,
    /// The maps behind it, each after those that feed it.
    pub maps: Vec<NodePlan>,
}

/// Whose chain it is.
pub struct ChainPartition<'a> {
    /// The job's partition.
    pub partition: PartitionId,
    /// How often its items are tried.
    pub attempts: Attempts,
    /// Where its states and timers are.
    pub storage: &'a dyn Storage,
}

/// The transform of a job, if it has one, and its maps.
pub struct Chain {
    transform: Option<KeyedNode>,
    partition: PartitionId,
    /// The watermark of each of its inputs at the last step.
    watermarks: Vec<Timestamp>,
    /// The stream that late messages go to instead of the transform.
    late_output: Option<usize>,
    /// How many timers are tried in one call: few where handlers set timers that come in between, as such a
    /// call is made again without those behind them.
    fire_at_most: usize,
    sweep: StateSweep,
    /// The keys of the transform's input.
    hot_keys: HotKeys,
    maps: Vec<Node>,
    limits: EpochLimits,
    /// The messages of each of the job's streams that the current batch led to.
    streams: Vec<StreamMessages>,
    /// Places of the streams that anything outside the chain takes.
    leaving: Vec<usize>,
    /// Whether messages of any stream may go back to several items of the job's input.
    keeps_origins: bool,
    /// Items of the current batch that computations were passed over for.
    passed: Vec<PassedOver>,
    /// How many bytes may still be kept of items of the current batch.
    letter_room: usize,
    attempts: Attempts,
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
    /// The key of a message or timer is too long for the transform to keep anything under it.
    KeyTooLong {
        /// The transform.
        computation: String,
        /// The item of the job's input.
        item: u32,
        /// Bytes of its key.
        size_bytes: usize,
    },
    /// The process has ended with this item too often, and the computation does not pass over items.
    GivenUp {
        /// The computation.
        computation: String,
        /// How often.
        attempts: u32,
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
    ///
    /// # Errors
    ///
    /// When pending timers can't be read, or belong to a stream that the transform no longer declares.
    pub fn open(
        nodes: ChainNodes,
        streams: &[StreamPlan],
        time: &TimePlan,
        limits: EpochLimits,
        state_cache_bytes: usize,
        stands_at: &EpochTime,
        of: ChainPartition<'_>,
    ) -> Result<Chain, TimersError> {
        let ChainPartition {
            partition,
            attempts,
            storage,
        } = of;
        let ChainNodes { transform, maps } = nodes;
        let keyed = |plan: NodePlan| {
            let declared = plan.computation.description();
            let names = declared.states.iter().map(|state| state.name.clone());
            let mut states = StateCache::new(names.collect(), &time.state_ttls, state_cache_bytes);
            states.resume(stands_at);
            let timers = Timers::open(
                &declared.timers,
                partition,
                stands_at.run,
                WindowLimit::default(),
                storage,
            )?;
            Ok::<_, TimersError>(KeyedNode {
                node: Node::new(plan),
                states,
                timers,
            })
        };
        let mut streams_with_origins = vec![false; streams.len()];
        let mut chain = Chain {
            transform: transform.map(keyed).transpose()?,
            partition,
            sweep: StateSweep::default(),
            watermarks: Vec::new(),
            late_output: time.late_output,
            fire_at_most: usize::MAX,
            hot_keys: HotKeys::default(),
            maps: with_origins(maps, &mut streams_with_origins),
            limits,
            streams: vec![StreamMessages::default(); streams.len()],
            leaving: (0..streams.len())
                .filter(|place| streams[*place].leaves_the_chain())
                .collect(),
            keeps_origins: streams_with_origins.contains(&true),
            passed: Vec::new(),
            letter_room: BATCH_KEPT_BYTES_MAX,
            attempts,
        };
        chain.set_time(stands_at);
        Ok(chain)
    }

    /// How many items the next batch of input should have at most; see
    /// [`crate::guest::Computation::suggested_rows`]. The batches of maps are cut here.
    pub fn suggested_rows(&self) -> usize {
        let transform = self.transform.as_ref();
        transform.map_or(usize::MAX, |keyed| {
            keyed.node.plan.computation.suggested_rows()
        })
    }

    /// The partition stands here in time, from the next batch on.
    pub fn set_time(&mut self, time: &EpochTime) {
        self.watermarks.clone_from(&time.input_watermarks);
        if let Some(keyed) = &mut self.transform {
            keyed.states.advance(time.latest_watermark);
        }
    }

    /// What the epoch's record is to say of the age of states.
    pub fn state_ages(&self) -> StateAges {
        let transform = self.transform.as_ref();
        transform.map_or_else(StateAges::default, |keyed| keyed.states.ages())
    }

    /// Looks at some stored states with a time to live; those that are too old go with the epoch. To be
    /// called once for each epoch, before its states are taken.
    ///
    /// # Errors
    ///
    /// When they can't be read.
    pub fn sweep(&mut self, storage: &dyn Storage) -> Result<(), StorageError> {
        match &mut self.transform {
            Some(keyed) => (self.sweep).go_on(&mut keyed.states, storage, self.partition),
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
        setting: TimerSetting,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<(), ChainError> {
        self.begin_batch();
        let first_failure = match &self.transform {
            Some(_) => {
                let (input, roots) = self.divert_late(input, late);
                match roots.is_empty() {
                    true => None,
                    false => {
                        let (batch, items) = transform_batch(input, roots);
                        self.hot_keys.add(&batch.keys, &batch.messages.keys);
                        self.run_transform(batch, &items, setting, epoch, storage)?
                    }
                }
            }
            None => {
                self.take_records(input);
                None
            }
        };
        self.run_maps(first_failure, epoch)
    }

    /// Passes over a message that the process has ended with `attempts` times, the only one of `input`, without calling
    /// any computation.
    ///
    /// # Errors
    ///
    /// [`ChainError::GivenUp`], where the first computation does not pass over items; or when its state can't be read.
    pub fn give_up(
        &mut self,
        input: InputMessages,
        attempts: u32,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<(), ChainError> {
        self.begin_batch();
        if self.transform.is_some() {
            let roots = (0..input.len() as u32).collect();
            let (mut batch, items) = transform_batch(input, roots);
            self.fill_in(&mut batch, &items, epoch, storage)?;
            return self.pass_over_of_transform(batch, attempts);
        }
        // What takes it without a computation gets it; which of those that read it has ended the process is not known.
        self.take_records(input);
        for Node { plan, .. } in &self.maps {
            let calls = map_batches(&self.streams, &plan.inputs, &self.limits, false);
            if let Some((batch, _)) = calls.into_iter().next() {
                self.passed.push(pass_over(plan, batch, attempts)?);
            }
        }
        Ok(())
    }

    /// The same of the first of some due timers: it has fired.
    ///
    /// # Errors
    ///
    /// As [`Chain::give_up`].
    pub fn give_up_timer(
        &mut self,
        due: &DueTimers,
        attempts: u32,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<(), ChainError> {
        self.begin_batch();
        let mut batch = first_timers(due, 1);
        let items = CallItems {
            roots: vec![0],
            event_times: batch.timers.event_times.clone(),
            ..CallItems::default()
        };
        self.fill_in(&mut batch, &items, epoch, storage)?;
        epoch.add_timers(&batch);
        if let Some(keyed) = &mut self.transform {
            keyed.timers.fire(due, 1);
        }
        self.pass_over_of_transform(batch, attempts)
    }

    /// Passes over the only item of a batch of the transform.
    fn pass_over_of_transform(&mut self, batch: Batch, attempts: u32) -> Result<(), ChainError> {
        if let Some(keyed) = &self.transform {
            let passed = pass_over(&keyed.node.plan, batch, attempts)?;
            self.passed.push(passed);
        }
        Ok(())
    }

    /// How often an item may be begun with which the process ends; `None` where there is no computation.
    pub fn attempts_max(&self) -> Option<u32> {
        let transform = self.transform.as_ref().map(|keyed| &keyed.node);
        let nodes = transform.into_iter().chain(&self.maps);
        nodes.map(|node| node.plan.failure.policy.attempts).max()
    }

    /// The first timers that are due in a step and have not fired in it.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn due_timers(
        &mut self,
        step: &TimerStep,
        room: BatchRoom,
        storage: &dyn Storage,
    ) -> Result<Option<DueTimers>, StorageError> {
        let Some(keyed) = &mut self.transform else {
            return Ok(None);
        };
        let limit = DueLimit {
            rows: room.rows.min(self.fire_at_most),
            bytes: room.bytes,
        };
        let due =
            (keyed.timers).due(step.domain, step.until, Some(&step.behind), limit, storage)?;
        Ok((!due.is_empty()).then_some(due))
    }

    /// The place of one of some due timers.
    pub fn place_of_timer(&self, due: &DueTimers, index: usize) -> TimerPlace {
        let keyed = self.transform.as_ref();
        keyed.map_or_else(TimerPlace::default, |keyed| keyed.timers.place(due, index))
    }

    /// Fires due timers: runs the transform on them, then the maps on what follows. Returns how many of them
    /// have fired, at least one: a handler may set a timer that comes before the last of them.
    ///
    /// # Errors
    ///
    /// The first failure in the order of the timers.
    pub fn fire(
        &mut self,
        due: &DueTimers,
        step: &TimerStep,
        setting: TimerSetting,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<usize, ChainError> {
        self.begin_batch();
        let mut count = due.len();
        loop {
            let mut batch = first_timers(due, count);
            let items = CallItems {
                roots: (0..count as u32).collect(),
                event_times: batch.timers.event_times.clone(),
                ..CallItems::default()
            };
            let slots = self.fill_in(&mut batch, &items, epoch, storage)?;
            let Some(keyed) = &mut self.transform else {
                return Ok(count);
            };
            let called = (keyed.node).call(
                &batch,
                &items,
                epoch,
                &mut self.attempts,
                &mut self.letter_room,
            );
            let (effects, passed) = match called {
                Ok(called) => called,
                Err(failure) => {
                    let failure = self.fail_transform(failure, &batch, &items)?;
                    return self.run_maps(failure, epoch).map(|()| count);
                }
            };
            // By the host's clock what is set now is due later, and at the end of a run it waits for the next.
            let may_come_between = step.domain == TimeDomain::EventTime && !setting.at_end;
            let fire = match may_come_between {
                true => before_new_timers(
                    &due.columns,
                    &due.keys,
                    count,
                    &effects.set_timers,
                    step.until,
                    &keyed.node.plan.computation.description().timers,
                ),
                false => count,
            };
            if fire < count {
                count = fire;
                self.fire_at_most = 2 * count;
                continue;
            }
            if count == due.len() {
                self.fire_at_most = self.fire_at_most.saturating_mul(2);
            }
            epoch.add_timers(&batch);
            keyed.timers.fire(due, count);
            let call = KeyedCall {
                keys: &batch.keys,
                items: &items,
                slots: &slots,
                effects: &effects,
            };
            let of = (&batch, &passed[..]);
            keyed.apply(of, &call, setting, epoch, storage, &mut self.streams)?;
            self.passed.extend(passed);
            return self.run_maps(None, epoch).map(|()| count);
        }
    }

    /// When the first system-time timer fires.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn next_system_timer(
        &mut self,
        storage: &dyn Storage,
    ) -> Result<Option<Timestamp>, StorageError> {
        match &mut self.transform {
            Some(keyed) => keyed.timers.next_system_trigger(storage),
            None => Ok(None),
        }
    }

    /// The event time that pending timers hold the job's watermark at.
    ///
    /// # Errors
    ///
    /// When storage fails.
    pub fn timers_hold_at(
        &mut self,
        storage: &dyn Storage,
    ) -> Result<Option<Timestamp>, StorageError> {
        match &mut self.transform {
            Some(keyed) => keyed.timers.holds_at(storage),
            None => Ok(None),
        }
    }

    /// What the epoch does to timers, and how many are pending then.
    pub fn take_timer_changes(&mut self) -> (Vec<TimerChanges>, u64) {
        match &mut self.transform {
            Some(keyed) => {
                let changes = keyed.timers.take_changes();
                (changes, keyed.timers.pending())
            }
            None => (Vec::new(), 0),
        }
    }

    /// Frees memory: what is known of decided epochs, which are all but the last `undecided`.
    pub fn shrink(&mut self, undecided: u32) {
        if let Some(keyed) = &mut self.transform {
            keyed.states.shrink(undecided.into());
            keyed.timers.shrink(undecided as usize);
        }
    }

    /// Runs the maps on what the transform or the source has put into the streams.
    fn run_maps(
        &mut self,
        first_failure: Option<Box<ChainFailure>>,
        epoch: &mut OpenEpoch,
    ) -> Result<(), ChainError> {
        self.run_maps_from(0, first_failure, epoch)
    }

    /// The same from one of the maps on.
    fn run_maps_from(
        &mut self,
        first: usize,
        mut first_failure: Option<Box<ChainFailure>>,
        epoch: &mut OpenEpoch,
    ) -> Result<(), ChainError> {
        // After a failure the computations behind it still see what the items before it led to:
        // one of those may fail there, and comes first.
        for place in first..self.maps.len() {
            if let Some(failure) = self.run_map(place, epoch)? {
                first_failure = Some(failure);
            }
        }
        match first_failure {
            Some(failure) => Err(ChainError::Guest(failure)),
            None => Ok(()),
        }
    }

    /// Forgets the batch before.
    fn begin_batch(&mut self) {
        self.streams.iter_mut().for_each(StreamMessages::clear);
        self.passed.clear();
        self.letter_room = BATCH_KEPT_BYTES_MAX;
    }

    /// Items of the last batch that computations were passed over for.
    pub fn passed(&self) -> &[PassedOver] {
        &self.passed
    }

    /// The same, once.
    pub fn take_passed(&mut self) -> Vec<PassedOver> {
        std::mem::take(&mut self.passed)
    }

    /// How often items are tried.
    pub fn attempts(&mut self) -> &mut Attempts {
        &mut self.attempts
    }

    /// Calls `visit` for each message that leaves the chain, in order, with the place of its
    /// stream and its index in it.
    pub fn visit_leaving(&self, visit: impl FnMut(usize, usize)) {
        merge_by_root(&self.streams, &self.leaving, visit);
    }

    /// Whether messages of any stream may go back to several items of the job's input, so that the ids of those
    /// items are needed.
    pub fn keeps_origins(&self) -> bool {
        self.keeps_origins
    }

    /// The messages of one of the job's streams.
    pub fn stream(&self, place: usize) -> &StreamMessages {
        &self.streams[place]
    }

    /// The states of the transform, if there is one.
    pub fn states(&mut self) -> Option<&mut StateCache> {
        self.transform.as_mut().map(|keyed| &mut keyed.states)
    }

    /// How often states of the transform were in memory, if there is one.
    pub fn state_lookups(&self) -> Option<StateLookups> {
        self.transform.as_ref().map(|keyed| keyed.states.lookups())
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
            origins: Origins::default(),
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

    /// Runs the transform on messages.
    fn run_transform(
        &mut self,
        mut batch: Batch,
        items: &CallItems,
        setting: TimerSetting,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let slots = self.fill_in(&mut batch, items, epoch, storage)?;
        let Some(keyed) = &mut self.transform else {
            return Ok(None);
        };
        match (keyed.node).call(
            &batch,
            items,
            epoch,
            &mut self.attempts,
            &mut self.letter_room,
        ) {
            Ok((effects, passed)) => {
                let call = KeyedCall {
                    keys: &batch.keys,
                    items,
                    slots: &slots,
                    effects: &effects,
                };
                let of = (&batch, &passed[..]);
                keyed.apply(of, &call, setting, epoch, storage, &mut self.streams)?;
                self.passed.extend(passed);
                Ok(None)
            }
            Err(failure) => self.fail_transform(failure, &batch, items),
        }
    }

    fn fail_transform(
        &mut self,
        failure: Box<ChainFailure>,
        batch: &Batch,
        items: &CallItems,
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let followed = !self.maps.is_empty();
        match &mut self.transform {
            Some(keyed) => (keyed.node).fail(failure, batch, items, followed, &mut self.streams),
            None => Ok(Some(failure)),
        }
    }

    /// Fills in what a batch of the transform needs beside its items: the states of its keys and the
    /// watermarks.
    fn fill_in(
        &mut self,
        batch: &mut Batch,
        items: &CallItems,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<BatchSlots, ChainError> {
        let Some(KeyedNode { node, states, .. }) = &mut self.transform else {
            return Ok(BatchSlots::default());
        };
        // Messages of now are held to that where they are made: this one was written by an earlier release.
        if let Some((item, size_bytes)) = long_key(batch) {
            return Err(ChainError::KeyTooLong {
                computation: node.plan.name.clone(),
                item: items.roots.get(item).copied().unwrap_or_default(),
                size_bytes,
            });
        }
        let slots = load_states(states, batch, storage, self.partition)?;
        states.expire(&slots);
        batch.states = states.columns(&slots, |bytes| epoch.add_state_read(bytes));
        let inputs = node.plan.computation.description().inputs.len();
        batch.watermarks.clone_from(&self.watermarks);
        batch.watermarks.resize(inputs, 0);
        Ok(slots)
    }

    fn run_map(
        &mut self,
        place: usize,
        epoch: &mut OpenEpoch,
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let node = &self.maps[place];
        let suggested_rows = node.plan.computation.suggested_rows();
        let limits = EpochLimits {
            max_rows_per_batch: self.limits.max_rows_per_batch.min(suggested_rows),
            ..self.limits
        };
        for (batch, items) in map_batches(
            &self.streams,
            &node.plan.inputs,
            &limits,
            node.keeps_origins,
        ) {
            let failure = self.call_map(place, &batch, &items, epoch)?;
            if failure.is_some() {
                return Ok(failure);
            }
        }
        Ok(None)
    }

    /// Runs one batch of a map and puts its outputs into the streams.
    fn call_map(
        &mut self,
        place: usize,
        batch: &Batch,
        items: &CallItems,
        epoch: &mut OpenEpoch,
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let followed = place + 1 < self.maps.len();
        let node = &mut self.maps[place];
        let called = node.call(
            batch,
            items,
            epoch,
            &mut self.attempts,
            &mut self.letter_room,
        );
        let effects = match called {
            Ok((effects, passed)) => {
                self.passed.extend(passed);
                effects
            }
            Err(failure) => {
                return node.fail(failure, batch, items, followed, &mut self.streams);
            }
        };
        distribute(
            &effects.outputs,
            items,
            &node.plan.outputs,
            &mut self.streams,
        );
        let size_bytes = self.streams.iter().map(StreamMessages::total_bytes).sum();
        match size_bytes > CHAIN_BYTES_MAX {
            true => Err(ChainError::TooMuch {
                computation: node.plan.name.clone(),
                size_bytes,
            }),
            false => Ok(None),
        }
    }
}

/// Passes over the only item of a batch, with which the process has ended, without calling the computation.
fn pass_over(plan: &NodePlan, batch: Batch, attempts: u32) -> Result<PassedOver, ChainError> {
    match plan.failure.policy.on_failure {
        OnFailure::Fail => Err(ChainError::GivenUp {
            computation: plan.name.clone(),
            attempts,
        }),
        OnFailure::Skip | OnFailure::DeadLetter => {
            tracing::warn!(
                computation = plan.name,
                attempts,
                "item given up with which the process has ended"
            );
            Ok(PassedOver::given_up(plan, batch, attempts))
        }
    }
}

/// The maps of a chain, each after those that feed it. What a computation with relaxed batching writes may go back to
/// several items, and so may all that follows from it; those streams are marked.
fn with_origins(maps: Vec<NodePlan>, streams: &mut [bool]) -> Vec<Node> {
    let node = |plan: NodePlan| {
        let mut node = Node::new(plan);
        let plan = &node.plan;
        let is_fed = (plan.inputs.iter().flatten()).any(|stream| streams[*stream]);
        node.keeps_origins = is_fed || plan.computation.has_relaxed_batching();
        if node.keeps_origins {
            (plan.outputs.iter()).for_each(|stream| streams[*stream] = true);
        }
        node
    };
    maps.into_iter().map(node).collect()
}
