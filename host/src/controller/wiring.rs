//! How the jobs of a pipeline are joined: which lanes each one reads and writes, which sinks it
//! feeds, and where each computation stands in its chain.
//!
//! **Invariant:** nothing here opens, reads or writes anything. It follows from the graph, from what
//! the components declare and from the numbers of the registration alone.

use std::collections::BTreeMap;

use crate::controller::graph::{JobHead, JobShape, job_shapes, transforms_reading};
use crate::controller::registry::Registration;
use crate::controller::retiring::RetiringWriters;
use crate::engine::generator::milliseconds;
use crate::types::batch::Description;
use crate::types::ids::{LaneId, PartitionId};
use crate::types::pipeline::Pipeline;
use crate::worker::plan::{LanePlan, StreamPlan, TimePlan};

/// What each computation of a pipeline declares, by its name.
pub type Descriptions<'a> = BTreeMap<&'a str, &'a Description>;

/// The jobs of a pipeline and what joins them.
pub struct Wiring<'a> {
    pipeline: &'a Pipeline,
    descriptions: Descriptions<'a>,
    registration: &'a Registration,
    shapes: Vec<JobShape>,
}

/// Where a computation stands in a chain, as places in the streams of its job's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlaces {
    /// For each declared input the stream that feeds it, or `None` where only other jobs do; empty
    /// for a transform, whose input comes by lanes.
    pub inputs: Vec<Option<usize>>,
    /// For each declared output the stream that it writes.
    pub outputs: Vec<usize>,
}

impl<'a> Wiring<'a> {
    /// Cuts a pipeline whose graph has been checked into jobs.
    pub fn new(
        pipeline: &'a Pipeline,
        descriptions: Descriptions<'a>,
        registration: &'a Registration,
    ) -> Wiring<'a> {
        Wiring {
            pipeline,
            descriptions,
            registration,
            shapes: job_shapes(pipeline),
        }
    }

    /// What kinds of jobs there are, sources first.
    pub fn shapes(&self) -> &[JobShape] {
        &self.shapes
    }

    /// The partitions of a source or transform: a job each.
    pub fn partitions(&self, head: &JobHead) -> &'a [PartitionId] {
        match head {
            JobHead::Source(name) => self.registration.source(name),
            JobHead::Transform(name) => self.registration.computation(name),
        }
    }

    /// The partitions of earlier layouts of a transform, oldest layout first, or those that left the list
    /// of a source.
    pub fn retiring(&self, head: &JobHead) -> &'a [Vec<PartitionId>] {
        match head {
            JobHead::Source(name) => self.registration.retiring_of_source(name),
            JobHead::Transform(name) => self.registration.retiring(name),
        }
    }

    /// Whether messages in a lane are read: by the partition that the lane names, or, where that one
    /// belongs to an earlier layout, by those to which the messages move. It may have been written
    /// under an earlier layout too.
    pub fn has_lane(&self, lane: LaneId) -> bool {
        let shape_of = |partition: PartitionId| {
            let is_of = |shape: &&JobShape| {
                let retiring = self.retiring(&shape.head).iter().flatten();
                (self.partitions(&shape.head).iter().chain(retiring)).any(|of| *of == partition)
            };
            self.shapes.iter().find(is_of)
        };
        let Some(stream) = self.registration.stream_name(lane.stream) else {
            return false;
        };
        let is_written =
            shape_of(lane.producer).is_some_and(|writer| writer.place_of(stream).is_some());
        let is_read = shape_of(lane.reader).is_some_and(|reader| {
            transforms_reading(self.pipeline, stream).any(|name| name == reader.head.name())
        });
        is_written && is_read
    }

    /// The lanes that feed a partition of a transform: one from each partition that writes one of
    /// its inputs, in the order of the component's inputs, then of the producers. Those of `retiring` must
    /// be read to their end first.
    pub fn lanes_read(
        &self,
        transform: &str,
        reader: PartitionId,
        retiring: &RetiringWriters,
    ) -> Vec<LanePlan> {
        let delays = &self.pipeline.computations[transform].stream_delays;
        let mut lanes = Vec::new();
        for (input, stream) in self.descriptions[transform].inputs.iter().enumerate() {
            let writers = || (self.shapes.iter()).filter(|shape| shape.place_of(stream).is_some());
            let earlier = writers()
                .flat_map(|shape| retiring.of(&shape.head))
                .map(|writer| (writer.partition, writer.rank));
            let in_force = writers()
                .flat_map(|shape| self.partitions(&shape.head))
                .map(|partition| (*partition, None));
            for (producer, retiring) in earlier.chain(in_force) {
                lanes.push(LanePlan {
                    lane: LaneId {
                        producer,
                        stream: self.registration.stream(stream),
                        reader,
                    },
                    input: u16::try_from(input).expect("a component has few inputs"),
                    delay: delays.get(stream).copied().unwrap_or_default(),
                    retiring,
                });
            }
        }
        lanes
    }

    /// The sinks that the jobs of a shape feed, by name.
    pub fn sinks_fed(&self, shape: &JobShape) -> Vec<&'a str> {
        let is_fed = |inputs: &[String]| inputs.iter().any(|name| shape.place_of(name).is_some());
        let sinks = self.pipeline.sinks.iter();
        sinks
            .filter(|(_, options)| is_fed(&options.inputs))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Every stream that the jobs of a shape write, and who takes it out of the chain: sinks as
    /// places in [`Wiring::sinks_fed`].
    pub fn streams_written(&self, shape: &JobShape) -> Vec<StreamPlan> {
        let fed = self.sinks_fed(shape);
        let takers = |stream: &String| {
            let takes = |sink: &str| self.pipeline.sinks[sink].inputs.contains(stream);
            (0..fed.len()).filter(|place| takes(fed[*place])).collect()
        };
        let stream = |stream: &String| StreamPlan {
            name: stream.clone(),
            id: self.registration.stream(stream),
            readers: transforms_reading(self.pipeline, stream)
                .map(|name| self.registration.computation(name).to_vec())
                .collect(),
            sinks: takers(stream),
        };
        shape.streams.iter().map(stream).collect()
    }

    /// The place of a shape's transform.
    pub fn transform_places(&self, shape: &JobShape, name: &str) -> NodePlaces {
        NodePlaces {
            inputs: Vec::new(),
            outputs: self.output_places(shape, name),
        }
    }

    /// What a transform makes of time: lateness in the order of the declared inputs, times to live in
    /// that of the declared states.
    pub fn time(&self, shape: &JobShape, name: &str) -> TimePlan {
        let options = &self.pipeline.computations[name];
        let description = self.descriptions[name];
        let lateness = |input| options.allowed_lateness.get(input).copied();
        let ttl = |state: &str| options.state_ttls.get(state).map(|of| of.ttl);
        TimePlan {
            allowed_lateness: (description.inputs.iter())
                .map(|input| lateness(input).map_or(0, milliseconds))
                .collect(),
            late_output: (options.late_output.as_ref()).and_then(|stream| shape.place_of(stream)),
            state_ttls: (description.states.iter())
                .map(|state| ttl(&state.name).map(milliseconds))
                .collect(),
        }
    }

    /// The place of one of a shape's maps. Streams are found by the names that the component
    /// declares; inputs that other jobs feed stay silent in this chain.
    pub fn map_places(&self, shape: &JobShape, name: &str) -> NodePlaces {
        let inputs = self.descriptions[name].inputs.iter();
        NodePlaces {
            inputs: inputs.map(|stream| shape.place_of(stream)).collect(),
            outputs: self.output_places(shape, name),
        }
    }

    fn output_places(&self, shape: &JobShape, name: &str) -> Vec<usize> {
        let place = |stream: &String| {
            let place = shape.place_of(stream);
            place.expect("a job's streams hold its chain's outputs")
        };
        let outputs = self.descriptions[name].outputs.iter();
        outputs.map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controller::graph::tests::pipeline;
    use crate::controller::registry::Intent;
    use crate::storage::memory::MemoryStorage;
    use crate::types::batch::{ComputationKind, StateDeclaration};
    use crate::types::pipeline::StateTtl;

    /// Inputs and states stand in the pipeline file in another order than in the component.
    #[test]
    fn what_a_transform_makes_of_time_stands_in_the_order_of_its_declarations() {
        let mut pipeline = pipeline();
        let options = pipeline.computations.get_mut("t").unwrap();
        options
            .allowed_lateness
            .insert("x".to_owned(), Duration::from_secs(3_600));
        let ttl = Duration::from_secs(7);
        (options.state_ttls).insert("totals".to_owned(), StateTtl { ttl, line: 1 });
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let state = |name: &str| StateDeclaration {
            name: name.to_owned(),
            version: 1,
            format: "json".to_owned(),
        };
        let description = Description {
            kind: ComputationKind::Transform,
            inputs: names(["y", "x"]),
            outputs: vec!["t_out".to_owned()],
            states: vec![state("last"), state("totals")],
            timers: Vec::new(),
        };
        let storage = MemoryStorage::default();
        let registration = Registration::draft(&storage, "p", &Intent::default()).unwrap();
        let wiring = Wiring::new(&pipeline, [("t", &description)].into(), &registration);
        let time = wiring.time(&wiring.shapes()[1], "t");
        assert_eq!(time.allowed_lateness, [0, 3_600_000]);
        assert_eq!(time.late_output, Some(1));
        assert_eq!(time.state_ttls, [None, Some(7_000)]);
        // The component's outputs do not count it.
        let places = wiring.transform_places(&wiring.shapes()[1], "t");
        assert_eq!(places.outputs, [0]);
    }
}
