//! A random pipeline: an acyclic graph of sources, maps, transforms and sinks, and how it is cut
//! into jobs. The cut is written down here a second time, for the model alone, which must not share
//! the mistakes of what it judges: what runs is cut by the product.
//!
//! **Invariant:** a computation reads only streams numbered below those that it writes, so the order
//! of computations is one in which each stands behind those that feed it.

use guest_behaviours::trace::{self, Parameters};

use tidelock::types::batch::Timestamp;
use tidelock::types::pipeline::{UnreadPartitions, WatermarkOptions};

use crate::queues::QUEUE_SOURCE;
use crate::random::Random;
use crate::record_source::SourcePart;
use crate::time_options::{TransformTime, watermarks};

/// A stream, as an index: first one for each source, then [`STREAMS_EACH`] for each computation.
pub(crate) type Stream = usize;

/// A computation's outputs, and one that a transform may have for late messages.
const STREAMS_EACH: usize = trace::OUTPUTS + 1;
/// How many pipelines of a hundred are a diamond.
const DIAMONDS_PERCENT: u64 = 15;
/// In how many pipelines of a hundred messages have event times.
const TIMES_PERCENT: u64 = 65;

/// A pipeline.
#[derive(Debug)]
pub(crate) struct Graph {
    /// How many sources there are.
    pub(crate) sources: usize,
    /// Of each source, its partitions, and how many of them are read at once.
    pub(crate) source_partitions: Vec<(usize, usize)>,
    /// How the watermarks of each source are made.
    pub(crate) watermarks: Vec<WatermarkOptions>,
    /// Whether maps give event times to messages.
    pub(crate) has_times: bool,
    /// The computations.
    pub(crate) computations: Vec<Computation>,
    /// What each sink takes. The first ones are the witnesses: one for each job shape, which takes
    /// the stream that answers every input of the job, and nothing else.
    pub(crate) sinks: Vec<Vec<Stream>>,
    /// What kinds of jobs there are, each behind those that feed it.
    pub(crate) shapes: Vec<Shape>,
}

/// A map or a transform in its place.
#[derive(Debug)]
pub(crate) struct Computation {
    /// Its name, which its messages carry.
    pub(crate) name: String,
    /// Whether it is a transform.
    pub(crate) is_transform: bool,
    /// The streams that feed its inputs.
    pub(crate) inputs: Vec<Stream>,
    /// For each input, how much younger its messages are taken to be than their timestamps say.
    pub(crate) delays_ms: Vec<Timestamp>,
    /// The streams that it writes.
    pub(crate) outputs: [Stream; trace::OUTPUTS],
    /// How many partitions a transform has.
    pub(crate) partitions: usize,
    /// What a transform makes of time.
    pub(crate) time: TransformTime,
    /// The stream that a transform's late messages go to, if there is one.
    pub(crate) late: Option<Stream>,
}

/// A kind of job: a source or a transform with the maps chained behind it.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What feeds the chain.
    pub(crate) head: Head,
    /// The maps, as indexes into the computations, each behind those that feed it.
    pub(crate) maps: Vec<usize>,
    /// Every stream written inside the job; the first one answers every input.
    pub(crate) streams: Vec<Stream>,
}

/// What feeds a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// A source.
    Source(usize),
    /// A transform, as an index into the computations.
    Transform(usize),
}

impl Graph {
    /// Some pipeline.
    pub(crate) fn random(random: &mut Random) -> Graph {
        match random.chance(DIAMONDS_PERCENT) {
            true => Graph::diamond(random),
            false => Graph::any(random),
        }
    }

    fn any(random: &mut Random) -> Graph {
        let sources = random.within(1..=3);
        let count = random.within(2..=6);
        let mut computations: Vec<Computation> = Vec::with_capacity(count);
        let mut streams: Vec<Stream> = (0..sources).collect();
        for at in 0..count {
            let kind = if random.chance(55) { "t" } else { "m" };
            let inputs = some_streams(random, (sources, &streams), trace::INPUTS);
            let computation = computation(random, sources, (kind, at), inputs);
            streams.extend(computation.streams());
            computations.push(computation);
        }
        Graph::of(random, sources, computations)
    }

    /// A stream that two transforms and a chain of maps read and a third transform joins again:
    /// where a wait of one for another could close a circle.
    fn diamond(random: &mut Random) -> Graph {
        let output = |of: usize| 1 + of * STREAMS_EACH;
        let nodes = [
            ("t", vec![0]),
            ("t", vec![0]),
            ("m", vec![0]),
            ("m", vec![output(2), output(2) + 1]),
            ("t", vec![output(0), output(1), output(3)]),
        ];
        let nodes = nodes.into_iter().enumerate();
        let computations = nodes
            .map(|(at, (kind, inputs))| computation(random, 1, (kind, at), inputs))
            .collect();
        Graph::of(random, 1, computations)
    }

    fn of(random: &mut Random, sources: usize, computations: Vec<Computation>) -> Graph {
        let shapes = shapes(sources, &computations);
        let streams: Vec<Stream> = (0..sources)
            .chain(computations.iter().flat_map(Computation::streams))
            .collect();
        let mut sinks: Vec<Vec<Stream>> = Vec::new();
        sinks.extend(shapes.iter().map(|shape| {
            let late = match shape.head {
                Head::Source(_) => None,
                Head::Transform(at) => computations[at].late,
            };
            [shape.streams[0]].into_iter().chain(late).collect()
        }));
        for _ in 0..random.within(1..=2) {
            sinks.push(some_streams(random, (sources, &streams), 3));
        }
        let source_partitions: Vec<_> = (0..sources)
            .map(|source| {
                let partitions = random.within(1..=3);
                let parallel = random.within(1..=partitions);
                // The partitions of a queue are read all at once.
                match source == QUEUE_SOURCE {
                    true => (partitions, partitions),
                    false => (partitions, parallel),
                }
            })
            .collect();
        Graph {
            source_partitions,
            watermarks: (0..sources).map(|_| watermarks(random)).collect(),
            has_times: random.chance(TIMES_PERCENT),
            sources,
            computations,
            sinks,
            shapes,
        }
    }

    /// The transforms that read a stream, as indexes into the computations.
    pub(crate) fn transforms_reading(&self, stream: Stream) -> impl Iterator<Item = usize> {
        let computations = self.computations.iter().enumerate();
        computations
            .filter(move |(_, reader)| reader.is_transform && reader.inputs.contains(&stream))
            .map(|(at, _)| at)
    }

    /// The sinks that take a stream, as indexes.
    pub(crate) fn sinks_of(&self, stream: Stream) -> impl Iterator<Item = usize> {
        let sinks = self.sinks.iter().enumerate();
        sinks
            .filter(move |(_, taken)| taken.contains(&stream))
            .map(|(at, _)| at)
    }

    /// Whether a sink writes a queue: no witness does.
    pub(crate) fn is_queue_sink(&self, sink: usize) -> bool {
        sink >= self.shapes.len() && sink % 2 == 1
    }

    /// What a computation is told.
    pub(crate) fn parameters(&self, computation: &Computation) -> Parameters {
        Parameters {
            name: computation.name.clone(),
            inputs: computation.inputs.len(),
            gives_times: self.has_times,
            sets_timers: computation.time.sets_timers,
        }
    }

    /// Every stream.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Stream> {
        let computations = self.computations.iter();
        (0..self.sources).chain(computations.flat_map(Computation::streams))
    }

    /// Whether the stream is read by anything but maps.
    pub(crate) fn leaves_its_job(&self, stream: Stream) -> bool {
        self.transforms_reading(stream).next().is_some() || self.sinks_of(stream).next().is_some()
    }

    /// Whether any source may fall idle.
    pub(crate) fn may_be_idle(&self) -> bool {
        self.watermarks.iter().any(|options| {
            options.idle_partitions.is_some()
                || options.unread_partitions == UnreadPartitions::LeaveOut
        })
    }

    /// Some transforms get other numbers of partitions.
    pub(crate) fn repartition(&mut self, random: &mut Random) {
        for computation in self.computations.iter_mut().filter(|it| it.is_transform) {
            if random.chance(50) {
                computation.partitions = random.within(1..=4);
            }
        }
    }

    /// The shape whose head has this name.
    pub(crate) fn shape_named(&self, head: &str) -> usize {
        let is_named = |shape: &Shape| self.head_name(shape.head) == head;
        (self.shapes.iter().position(is_named)).expect("it heads a shape")
    }

    /// The name of a source.
    pub(crate) fn source_name(&self, source: usize) -> String {
        format!("s{source}")
    }

    /// Every partition of every source.
    pub(crate) fn source_parts(&self) -> impl Iterator<Item = SourcePart> {
        let sources = self.source_partitions.iter().enumerate();
        sources.flat_map(|(source, (partitions, _))| {
            (0..*partitions).map(move |partition| SourcePart { source, partition })
        })
    }

    /// The name of a shape's head.
    pub(crate) fn head_name(&self, head: Head) -> String {
        match head {
            Head::Source(source) => self.source_name(source),
            Head::Transform(at) => self.computations[at].name.clone(),
        }
    }

    /// The name of a stream.
    pub(crate) fn stream_name(&self, stream: Stream) -> String {
        match stream.checked_sub(self.sources) {
            None => self.source_name(stream),
            Some(output) => {
                let writer = &self.computations[output / STREAMS_EACH];
                format!("{}_{}", writer.name, output % STREAMS_EACH)
            }
        }
    }

    /// The names of streams, in their order.
    pub(crate) fn stream_names(&self, streams: &[Stream]) -> Vec<String> {
        let streams = streams.iter();
        streams.map(|stream| self.stream_name(*stream)).collect()
    }

    /// The name of a sink. A job's witness comes before its other sinks.
    pub(crate) fn sink_name(&self, sink: usize) -> String {
        match self.shapes.get(sink) {
            Some(shape) => format!("inputs_of_{}", self.head_name(shape.head)),
            None => format!("rows_{sink}"),
        }
    }
}

impl Computation {
    /// The streams that it writes.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        self.outputs.into_iter().chain(self.late)
    }
}

/// A computation of this kind and number, whose streams follow those of the ones before it.
fn computation(
    random: &mut Random,
    sources: usize,
    (kind, number): (&str, usize),
    inputs: Vec<Stream>,
) -> Computation {
    let is_transform = kind == "t";
    let next_stream = sources + number * STREAMS_EACH;
    let late = is_transform && random.chance(40);
    Computation {
        name: format!("{kind}{number}"),
        is_transform,
        time: TransformTime::random(random, inputs.len()),
        late: late.then_some(next_stream + trace::OUTPUTS),
        delays_ms: inputs.iter().map(|_| delay_ms(random)).collect(),
        inputs,
        outputs: [next_stream, next_stream + 1],
        partitions: if is_transform {
            random.within(1..=3)
        } else {
            1
        },
    }
}

fn delay_ms(random: &mut Random) -> Timestamp {
    match random.chance(20) {
        true => random.within(1..=100) as Timestamp,
        false => 0,
    }
}

/// At least one and at most `most` of the streams, each once, the newest preferred: so that chains
/// grow long. One of late messages, which are the same as those that were not late, is alone.
fn some_streams(
    random: &mut Random,
    (sources, streams): (usize, &[Stream]),
    most: usize,
) -> Vec<Stream> {
    let mut chosen = Vec::new();
    for _ in 0..random.within(1..=most) {
        let newest = streams.len().saturating_sub(4);
        let from = if random.chance(60) { newest } else { 0 };
        let stream = streams[random.within(from..=streams.len() - 1)];
        if !chosen.contains(&stream) {
            chosen.push(stream);
        }
    }
    let is_late = |stream: &Stream| {
        stream
            .checked_sub(sources)
            .is_some_and(|of| of % STREAMS_EACH == trace::OUTPUTS)
    };
    match chosen.iter().copied().find(is_late) {
        Some(late) => vec![late],
        None => chosen,
    }
}

fn shapes(sources: usize, computations: &[Computation]) -> Vec<Shape> {
    let of_sources = (0..sources).map(|source| (Head::Source(source), vec![source]));
    let transforms = computations.iter().enumerate();
    let of_transforms = transforms
        .filter(|(_, computation)| computation.is_transform)
        .map(|(at, computation)| (Head::Transform(at), computation.streams().collect()));
    of_sources
        .chain(of_transforms)
        .map(|(head, mut streams): (Head, Vec<Stream>)| {
            let mut maps = Vec::new();
            for (at, computation) in computations.iter().enumerate() {
                let is_fed = computation
                    .inputs
                    .iter()
                    .any(|input| streams.contains(input));
                if !computation.is_transform && is_fed {
                    maps.push(at);
                    streams.extend(computation.outputs);
                }
            }
            Shape {
                head,
                maps,
                streams,
            }
        })
        .collect()
}
