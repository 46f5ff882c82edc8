//! What the store gave the pipeline: ids for partitions, streams and sink files; and the plans of
//! jobs made from them, as the controller makes them.

use std::path::Path;

use tidelock::sink::file::FileSink;
use tidelock::storage::leases::{self, Counter};
use tidelock::storage::{Storage, StorageError, rows};
use tidelock::types::ids::{LaneId, PartitionId, SinkFileId, StreamId};
use tidelock::types::pipeline::EpochLimits;
use tidelock::worker::plan::{
    InputPlan, JobPlan, LanePlan, NodePlan, PartitionPlace, SinkPlan, StreamPlan,
};

use guest_behaviours::trace;

use crate::graph::{Graph, Head, Shape, Stream};
use crate::guests::Guests;
use crate::random::Random;
use crate::record_source::RecordSource;

/// The pipeline's ids.
#[derive(Debug)]
pub(crate) struct Registration {
    /// For each shape its partitions.
    pub(crate) partitions: Vec<Vec<PartitionId>>,
    /// The streams.
    pub(crate) streams: Vec<StreamId>,
    /// The sinks' files.
    pub(crate) files: Vec<SinkFileId>,
}

/// Which job: a shape and a partition of it, as indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobPlace {
    /// The shape.
    pub(crate) shape: usize,
    /// The partition.
    pub(crate) partition: usize,
}

impl Registration {
    /// Registers a pipeline in a fresh store.
    pub(crate) fn new(graph: &Graph, storage: &dyn Storage) -> Result<Registration, StorageError> {
        let mut partitions = Vec::with_capacity(graph.shapes.len());
        for shape in &graph.shapes {
            let count = shape.partitions as u64;
            let first = leases::allocate(storage, Counter::Partitions, count)?;
            partitions.push((first..first + count).map(PartitionId).collect());
        }
        let streams = (graph.sources + graph.computations.len() * trace::OUTPUTS) as u64;
        let first = leases::allocate(storage, Counter::Streams, streams)?;
        let mut files = Vec::with_capacity(graph.sinks.len());
        for sink in 0..graph.sinks.len() {
            files.push(storage.open_sink_file(Path::new(&format!("/sinks/{sink}")))?);
        }
        Ok(Registration {
            partitions,
            streams: (first..first + streams).map(StreamId).collect(),
            files,
        })
    }

    /// Every job of the pipeline.
    pub(crate) fn places(&self) -> Vec<JobPlace> {
        let shapes = self.partitions.iter().enumerate();
        shapes
            .flat_map(|(shape, partitions)| {
                (0..partitions.len()).map(move |partition| JobPlace { shape, partition })
            })
            .collect()
    }

    /// A job's partition.
    pub(crate) fn partition(&self, place: JobPlace) -> PartitionId {
        self.partitions[place.shape][place.partition]
    }

    /// The lanes that feed a partition of a transform, with the input that each feeds, its stream
    /// and the job that writes it; in the order of the inputs, then of the producers.
    pub(crate) fn lanes(
        &self,
        graph: &Graph,
        transform: usize,
        reader: PartitionId,
    ) -> Vec<(LanePlan, Stream, JobPlace)> {
        let mut lanes = Vec::new();
        for (input, stream) in graph.computations[transform].inputs.iter().enumerate() {
            for (shape, writer) in graph.shapes.iter().enumerate() {
                if !writer.streams.contains(stream) {
                    continue;
                }
                for (partition, producer) in self.partitions[shape].iter().enumerate() {
                    let lane = LaneId {
                        producer: *producer,
                        stream: self.streams[*stream],
                        reader,
                    };
                    let input = u16::try_from(input).expect("there are three inputs");
                    let place = JobPlace { shape, partition };
                    let plan = LanePlan {
                        lane,
                        input,
                        layout: 0,
                    };
                    lanes.push((plan, *stream, place));
                }
            }
        }
        lanes
    }

    /// Plans a job under a new lease, with limits of its own so that every opening cuts elsewhere.
    /// `ends` says how many records each source has.
    pub(crate) fn plan(
        &self,
        place: JobPlace,
        graph: &Graph,
        guests: &Guests,
        storage: &dyn Storage,
        ends: &[u64],
        random: &mut Random,
    ) -> Result<JobPlan, StorageError> {
        let shape = &graph.shapes[place.shape];
        let lease = leases::grant(storage, self.partition(place))?;
        let input = match shape.head {
            Head::Source(source) => {
                let position = rows::read_source_position(storage, lease.partition)?;
                let position = position.as_deref();
                let source = RecordSource::open(source, position, ends[source], random.fork());
                InputPlan::Source(Box::new(source))
            }
            Head::Transform(at) => {
                let lanes = self.lanes(graph, at, lease.partition);
                InputPlan::Lanes(lanes.into_iter().map(|(plan, _, _)| plan).collect())
            }
        };
        let transform = match shape.head {
            Head::Source(_) => None,
            Head::Transform(at) => Some(node(graph, shape, at, guests)),
        };
        let fed = (0..graph.sinks.len()).filter(|sink| {
            graph.sinks[*sink]
                .iter()
                .any(|taken| shape.streams.contains(taken))
        });
        let sinks: Vec<usize> = fed.collect();
        Ok(JobPlan {
            name: graph.head_name(shape.head),
            place: PartitionPlace::new(place.partition, shape.partitions),
            lease,
            deployment: 1,
            limits: limits(random),
            input,
            transform,
            maps: (shape.maps.iter())
                .map(|map| node(graph, shape, *map, guests))
                .collect(),
            streams: (shape.streams.iter())
                .map(|stream| self.stream(graph, *stream, &sinks))
                .collect(),
            sinks: (sinks.iter())
                .map(|sink| SinkPlan {
                    name: sink.to_string(),
                    sink: Box::new(FileSink::new()),
                    file: Some(self.files[*sink]),
                })
                .collect(),
        })
    }

    fn stream(&self, graph: &Graph, stream: Stream, sinks: &[usize]) -> StreamPlan {
        let readers = graph.transforms_reading(stream);
        let place = |sink: usize| sinks.iter().position(|fed| *fed == sink);
        StreamPlan {
            name: stream.to_string(),
            id: self.streams[stream],
            readers: readers
                .map(|reader| self.partitions[graph.shape_of(reader)].clone())
                .collect(),
            sinks: graph.sinks_of(stream).filter_map(place).collect(),
        }
    }
}

/// A computation in its place in a chain. Inputs that the graph leaves open, or that other jobs
/// feed, stay silent.
fn node(graph: &Graph, shape: &Shape, at: usize, guests: &Guests) -> NodePlan {
    let computation = &graph.computations[at];
    let place = |stream: &Stream| shape.streams.iter().position(|known| known == stream);
    let input = |input: usize| computation.inputs.get(input).and_then(place);
    NodePlan {
        name: computation.name.clone(),
        computation: guests
            .computation(&computation.name, computation.is_transform)
            .expect("the simulation's guests can be called"),
        inputs: match computation.is_transform {
            true => Vec::new(),
            false => (0..trace::INPUTS).map(input).collect(),
        },
        outputs: (computation.outputs.iter())
            .map(|stream| place(stream).expect("a job's streams hold its chain's outputs"))
            .collect(),
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
    }
}
