//! What runs: the pipeline with the numbers that the store gave it, and the plans of its jobs. The
//! product's own code registers it, cuts it into jobs and joins them; what jobs open stands in for
//! files: sources in memory, and components compiled once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidelock::controller::change::Change;
use tidelock::controller::graph::{JobHead, JobShape};
use tidelock::controller::layout_mover::{LayoutMove, LayoutMoveError, LayoutMover};
use tidelock::controller::registry::{Registration, RegistryError};
use tidelock::controller::repartition::MoveLimits;
use tidelock::controller::retiring::{RetiringWriter, RetiringWriters};
use tidelock::controller::wiring::{NodePlaces, Wiring};
use tidelock::sink::Sink;
use tidelock::sink::file::FileSink;
use tidelock::sink::queue::QueueSink;
use tidelock::source::Source;
use tidelock::storage::{Storage, StorageError, leases, rows};
use tidelock::types::batch::Description;
use tidelock::types::ids::{PartitionId, SinkFileId, StreamId};
use tidelock::types::pipeline::{EpochLimits, OnFailure, Pipeline, SinkConnector};
use tidelock::worker::plan::{
    FailurePlan, InputPlan, JobMemory, JobPlan, NodePlan, PartitionPlace, SinkPlan, SinkTarget,
    SourcePlan, TimePlan,
};
use tidelock::worker::turns::SourceTurn;

use crate::faults::Fault;
use crate::graph::{Graph, Head, Shape, Stream};
use crate::guests::Guests;
use crate::layouts::Layouts;
use crate::mutation::Mutation;
use crate::pipeline;
use crate::queues::{self, FedSource, QUEUE_SOURCE};
use crate::random::Random;
use crate::record_source::{RecordSource, SourceLength, SourcePart};
use crate::storage::SimulatedStorage;

/// The pipeline, registered.
pub(crate) struct Deployment {
    pipeline: Pipeline,
    descriptions: BTreeMap<String, Description>,
    registration: Registration,
    retiring: RetiringWriters,
}

/// Which job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobPlace {
    /// Its kind, as an index into the graph's shapes.
    pub(crate) shape: usize,
    /// The partition.
    pub(crate) partition: PartitionId,
}

/// What the plans of jobs are made from, beside the pipeline.
pub(crate) struct Parts<'p> {
    /// The pipeline's graph.
    pub(crate) graph: &'p Graph,
    /// The components.
    pub(crate) guests: &'p Guests,
    /// How many records each source has.
    pub(crate) sources: &'p BTreeMap<SourcePart, SourceLength>,
    /// How the placement is broken, if it is.
    pub(crate) mutation: Option<Mutation>,
}

/// Why a pipeline could not be brought to its start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The store failed, or an epoch of a move was not decided: to be tried again.
    Failed(String),
    /// It must not be.
    Wrong(String),
}

impl From<RegistryError> for StartError {
    fn from(error: RegistryError) -> StartError {
        StartError::Failed(error.to_string())
    }
}

impl From<StorageError> for StartError {
    fn from(error: StorageError) -> StartError {
        StartError::Failed(error.to_string())
    }
}

impl From<LayoutMoveError> for StartError {
    fn from(error: LayoutMoveError) -> StartError {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        StartError::Failed(format!("{error}: {}", cause.unwrap_or_default()))
    }
}

impl Deployment {
    /// Registers the pipeline, or finds it as it was registered but for numbers of partitions, and
    /// moves what transforms have where those changed. `layouts` follows what is written down.
    ///
    /// # Errors
    ///
    /// When the store fails; when anything else has changed; when messages would be stranded.
    pub(crate) fn start(
        graph: &Graph,
        storage: &SimulatedStorage,
        layouts: &mut Layouts,
        random: &mut Random,
    ) -> Result<Deployment, StartError> {
        leases::end_all(storage)?;
        let pipeline = pipeline::pipeline(graph);
        let intent = pipeline::intent(graph, &pipeline);
        let registration = Registration::draft(storage, &pipeline.name, &intent)?;
        let unfinished = registration.unfinished_moves();
        if !unfinished.is_empty() {
            storage.count(Fault::MoveInterrupted);
        }
        for unfinished in unfinished {
            layouts.follow(graph.shape_named(&unfinished.computation), &unfinished.to);
        }
        let is_of_partitions = |change: &&Change| change.what.starts_with("partitions of ");
        let other = registration.changes.iter().find(|it| !is_of_partitions(it));
        if let Some(change) = other {
            return Err(StartError::Wrong(format!("it has changed: {change}")));
        }
        let mut deployment = Deployment {
            pipeline,
            descriptions: pipeline::descriptions(graph),
            registration,
            retiring: RetiringWriters::default(),
        };
        deployment.refuse_to_strand_messages(storage)?;
        let has_moves = !deployment.registration.begun_moves().is_empty();
        let mut ignore = |_: &LayoutMove| {};
        let mut mover = LayoutMover::new(storage, &deployment.registration, &mut ignore);
        mover.limits = move_limits(random);
        mover.finish_recorded()?;
        deployment.registration.commit(storage)?;
        for shape in 0..graph.shapes.len() {
            layouts.follow(shape, deployment.layout(graph, shape));
        }
        mover.carry_out()?;
        if has_moves {
            storage.count(Fault::Repartitioned);
        }
        deployment.retiring = RetiringWriters::find(&deployment.wiring(), storage)?;
        Ok(deployment)
    }

    fn refuse_to_strand_messages(&self, storage: &dyn Storage) -> Result<(), StartError> {
        let wiring = self.wiring();
        for producer in self.registration.partitions_ever() {
            let lanes = rows::lanes_kept(storage, producer)?;
            if let Some(lane) = lanes.into_iter().find(|lane| !wiring.has_lane(*lane)) {
                return Err(StartError::Wrong(format!("lane {lane} is stranded")));
            }
        }
        Ok(())
    }

    /// Every job of the pipeline.
    pub(crate) fn places(&self, graph: &Graph) -> Vec<JobPlace> {
        let shapes = 0..graph.shapes.len();
        shapes
            .flat_map(|shape| {
                let retiring = self.retiring_of(graph, shape).iter();
                let retiring = retiring.map(|writer| writer.partition);
                let in_force = self.layout(graph, shape).iter().copied();
                let partitions = retiring.chain(in_force);
                partitions.map(move |partition| JobPlace { shape, partition })
            })
            .collect()
    }

    /// The partitions of a shape that are in force.
    pub(crate) fn layout(&self, graph: &Graph, shape: usize) -> &[PartitionId] {
        let head = graph.shapes[shape].head;
        match head {
            Head::Source(_) => self.registration.source(&graph.head_name(head)),
            Head::Transform(_) => self.registration.computation(&graph.head_name(head)),
        }
    }

    /// The partitions of earlier layouts of a shape whose messages were not all taken at the start.
    fn retiring_of(&self, graph: &Graph, shape: usize) -> &[RetiringWriter] {
        let head = graph.shapes[shape].head;
        match head {
            Head::Source(_) => &[],
            Head::Transform(_) => (self.retiring).of(&JobHead::Transform(graph.head_name(head))),
        }
    }

    /// The run of the pipeline.
    pub(crate) fn run(&self) -> u64 {
        self.registration.run()
    }

    /// Every job is at its end.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub(crate) fn complete_run(&self, storage: &dyn Storage) -> Result<(), RegistryError> {
        self.registration.run_in_progress().complete(storage)
    }

    /// A stream's number.
    pub(crate) fn stream(&self, name: &str) -> StreamId {
        self.registration.stream(name)
    }

    /// A shape's streams in the order in which what one input leads to goes out by them. That order
    /// is the product's to choose.
    pub(crate) fn streams_in_order(&self, graph: &Graph, shape: &Shape) -> Vec<Stream> {
        let wiring = self.wiring();
        let planned = shape_of(&wiring, &graph.head_name(shape.head));
        let mut streams = shape.streams.clone();
        let place = |stream: &Stream| planned.place_of(&graph.stream_name(*stream));
        streams.sort_by_key(|stream| place(stream).unwrap_or(usize::MAX));
        streams
    }

    /// The file of a sink.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub(crate) fn sink_file(
        &self,
        name: &str,
        storage: &dyn Storage,
    ) -> Result<SinkFileId, StorageError> {
        match &self.pipeline.sinks[name].connector {
            SinkConnector::File { path } => storage.open_sink_file(path),
            other => unreachable!("{other:?} has no file"),
        }
    }

    /// Plans a job under a new lease, with limits of its own so that every opening cuts elsewhere.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub(crate) fn plan(
        &self,
        place: JobPlace,
        parts: &Parts<'_>,
        shared: &Arc<SimulatedStorage>,
        random: &mut Random,
    ) -> Result<JobPlan, StorageError> {
        let storage: &dyn Storage = &**shared;
        let wiring = self.wiring();
        let head = parts.graph.shapes[place.shape].head;
        let shape = shape_of(&wiring, &parts.graph.head_name(head));
        let lease = leases::grant(storage, place.partition)?;
        let mut retiring = self.retiring_of(parts.graph, place.shape).iter();
        if let Some(writer) = retiring.find(|writer| writer.partition == place.partition) {
            return Ok(JobPlan::retiring(
                self.pipeline.name.clone(),
                format!("retiring {}", shape.head.name()),
                writer.place,
                lease,
                self.registration.deployment(),
                self.registration.run(),
                wiring.streams_written(shape),
            ));
        }
        let (input, transform, time) = match (&shape.head, head) {
            (JobHead::Transform(name), _) => {
                let lanes = wiring.lanes_read(name, lease.partition, &self.retiring);
                let node = node(name, wiring.transform_places(shape, name), parts);
                (
                    InputPlan::Lanes(lanes),
                    Some(node),
                    wiring.time(shape, name),
                )
            }
            (JobHead::Source(_), Head::Source(source)) => {
                let position = rows::read_source_position(storage, lease.partition)?;
                let index = plan_place(place.partition, wiring.partitions(&shape.head)).index;
                let partition = index as usize;
                let part = SourcePart { source, partition };
                let length = parts.sources[&part].clone();
                let (position, forked) = (position.as_deref(), random.fork());
                let opened: Box<dyn Source> = match source == QUEUE_SOURCE {
                    true => {
                        let storage: Arc<dyn Storage> = Arc::<SimulatedStorage>::clone(shared);
                        let graph = parts.graph;
                        let fed = FedSource::open(graph, part, position, &storage, length, forked);
                        Box::new(fed?)
                    }
                    false => Box::new(RecordSource::open(part, position, length, forked)),
                };
                let (count, parallel) = parts.graph.source_partitions[source];
                let plan = SourcePlan {
                    described: shape.head.name().to_owned(),
                    turn: (count > parallel).then(|| SourceTurn {
                        source: shape.head.name().to_owned(),
                        parallel,
                        write_time: opened.write_time(),
                        index: partition,
                    }),
                    source: opened,
                    watermarks: parts.graph.watermarks[source],
                    on_failure: OnFailure::Fail,
                    reads_on: false,
                };
                (InputPlan::Source(plan), None, TimePlan::default())
            }
            (JobHead::Source(name), Head::Transform(_)) => panic!("{name} is no source"),
        };
        let maps = shape.maps.iter();
        let mut sinks = Vec::new();
        for name in wiring.sinks_fed(shape) {
            let (sink, target): (Box<dyn Sink>, _) = match &self.pipeline.sinks[name].connector {
                SinkConnector::Queue { queue, partitions } => (
                    Box::new(QueueSink::new(*partitions)),
                    SinkTarget::Queue(queues::partitions(storage, queue)),
                ),
                _ => (
                    Box::new(FileSink::new()),
                    SinkTarget::File(self.sink_file(name, storage)?),
                ),
            };
            sinks.push(SinkPlan {
                name: name.to_owned(),
                sink,
                target,
            });
        }
        let mut plan = JobPlan {
            pipeline: self.pipeline.name.clone(),
            name: shape.head.name().to_owned(),
            place: plan_place(place.partition, wiring.partitions(&shape.head)),
            lease,
            deployment: self.registration.deployment(),
            run: self.registration.run(),
            limits: limits(random),
            memory: memory(random),
            input,
            transform,
            time,
            maps: maps
                .map(|map| node(map, wiring.map_places(shape, map), parts))
                .collect(),
            streams: wiring.streams_written(shape),
            sinks,
        };
        if let Some(mutation) = parts.mutation {
            mutation.place(&mut plan);
        }
        Ok(plan)
    }

    fn wiring(&self) -> Wiring<'_> {
        let descriptions = self.descriptions.iter();
        let descriptions = descriptions.map(|(name, description)| (name.as_str(), description));
        Wiring::new(&self.pipeline, descriptions.collect(), &self.registration)
    }
}

fn shape_of<'w>(wiring: &'w Wiring<'_>, head: &str) -> &'w JobShape {
    let mut shapes = wiring.shapes().iter();
    let shape = shapes.find(|shape| shape.head.name() == head);
    shape.unwrap_or_else(|| panic!("no kind of job is headed by {head}"))
}

/// The place of a partition in its layout.
fn plan_place(partition: PartitionId, layout: &[PartitionId]) -> PartitionPlace {
    let index = layout.iter().position(|other| *other == partition);
    PartitionPlace::new(index.unwrap_or_default(), layout.len())
}

fn node(name: &str, places: NodePlaces, parts: &Parts<'_>) -> NodePlan {
    let mut computations = parts.graph.computations.iter();
    let computation = computations.find(|computation| computation.name == name);
    let computation = computation.expect("the graph has every computation that is planned");
    NodePlan {
        name: name.to_owned(),
        computation: (parts.guests)
            .computation(
                &parts.graph.parameters(computation),
                computation.is_transform,
            )
            .expect("the simulation's guests can be called"),
        inputs: places.inputs,
        outputs: places.outputs,
        failure: FailurePlan::default(),
    }
}

/// All states stay in memory, or few, or none longer than an epoch; much is read ahead, or a chunk.
fn memory(random: &mut Random) -> JobMemory {
    let bytes = |random: &mut Random, whole| match random.chance(50) {
        true => whole,
        false => random.within(0..=2_000),
    };
    let whole = JobMemory::default();
    JobMemory {
        state_cache_bytes: bytes(random, whole.state_cache_bytes),
        read_ahead_bytes: bytes(random, whole.read_ahead_bytes),
    }
}

/// Moves of a few rows at a time, so that there are many moments at which they can stop.
fn move_limits(random: &mut Random) -> MoveLimits {
    let commit_bytes = random.within(1..=2_000);
    MoveLimits {
        commit_bytes,
        commit_rows: random.within(1..=40),
        page_rows: random.within(1..=5),
        page_bytes: commit_bytes,
    }
}

fn limits(random: &mut Random) -> EpochLimits {
    let bytes = |random: &mut Random| match random.chance(25) {
        true => random.within(1..=200),
        false => 1 << 20,
    };
    EpochLimits {
        max_rows_per_batch: random.within(1..=12),
        max_bytes_per_batch: bytes(random),
        max_rows_per_epoch: random.within(1..=30),
        max_bytes_per_epoch: bytes(random),
        max_duration: Duration::from_millis(random.within(1..=200) as u64),
    }
}
