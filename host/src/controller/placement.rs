//! The plans of a pipeline's jobs: each partition under a lease of its own, its input opened, its
//! chain instantiated, its lanes and sinks named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::admission::Admission;
use crate::controller::change::Change;
use crate::controller::graph::{JobHead, JobShape, job_shapes, transforms_reading};
use crate::controller::registry::Registration;
use crate::guest::{GuestError, GuestRuntime};
use crate::sink;
use crate::source::{self, OnChange, Source, SourceError};
use crate::storage::{Storage, StorageError, leases, rows};
use crate::types::ids::{LaneId, PartitionId};
use crate::types::lease::Lease;
use crate::types::pipeline::{Pipeline, SinkConnector};
use crate::worker::plan::{
    InputPlan, JobPlan, LanePlan, NodePlan, PartitionPlace, SinkPlan, StreamPlan,
};

/// A job could not be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// A source can't be opened, or is not the one that was read before.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A component that was admitted can't be called any more.
    #[error("computation {computation} can't be called")]
    Guest {
        /// The computation.
        computation: String,
        /// Why.
        source: Box<GuestError>,
    },
    /// Messages wait in a lane that the graph no longer has.
    #[error(
        "messages of stream {stream} of pipeline {pipeline} wait in lane {lane}, which the pipeline no longer has; run it as it was to its end, then change it"
    )]
    Stranded {
        /// The pipeline.
        pipeline: String,
        /// The stream.
        stream: String,
        /// The lane.
        lane: LaneId,
    },
    /// A sink's file is not as the last run left it, or the store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// For each stream, which of a job's sinks take it.
type SinkPlaces<'s> = BTreeMap<&'s str, Vec<usize>>;

/// The sources of a pipeline, opened.
pub type OpenSources = BTreeMap<String, Box<dyn Source>>;

/// Makes the plans of a pipeline's jobs.
pub struct Planner<'a> {
    pipeline: &'a Pipeline,
    admission: &'a Admission,
    runtime: &'a Arc<GuestRuntime>,
    storage: &'a dyn Storage,
    registration: &'a Registration,
    shapes: Vec<JobShape>,
}

impl<'a> Planner<'a> {
    /// A planner for a pipeline as it is about to be registered.
    pub fn new(
        pipeline: &'a Pipeline,
        admission: &'a Admission,
        runtime: &'a Arc<GuestRuntime>,
        storage: &'a dyn Storage,
        registration: &'a Registration,
    ) -> Planner<'a> {
        Planner {
            pipeline,
            admission,
            runtime,
            storage,
            registration,
            shapes: job_shapes(pipeline),
        }
    }

    /// Refuses a graph that has no reader any more for messages that wait in a lane: they would
    /// neither be processed nor ever be removed.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Stranded`], or when the store fails.
    pub fn refuse_to_strand_messages(&self) -> Result<(), PlacementError> {
        let lanes = self.shapes.iter().flat_map(|shape| match &shape.head {
            JobHead::Source(_) => Vec::new(),
            JobHead::Transform(name) => {
                let partitions = self.registration.computation(name).iter();
                partitions
                    .flat_map(|reader| self.lanes(name, *reader))
                    .collect()
            }
        });
        let planned: BTreeSet<LaneId> = lanes.map(|plan| plan.lane).collect();
        for producer in self.registration.partitions_ever() {
            for lane in rows::lanes_kept(self.storage, producer)? {
                if !planned.contains(&lane) {
                    let stream = self.registration.stream_name(lane.stream);
                    return Err(PlacementError::Stranded {
                        pipeline: self.pipeline.name.clone(),
                        stream: stream.map_or_else(|| lane.stream.to_string(), str::to_owned),
                        lane,
                    });
                }
            }
        }
        Ok(())
    }

    /// Opens every source at its committed position. One whose content is not what was read before
    /// is opened at its beginning and named among the changes.
    ///
    /// # Errors
    ///
    /// When a source can't be opened or the store fails.
    pub fn open_sources(&self) -> Result<(OpenSources, Vec<Change>), PlacementError> {
        let mut sources = OpenSources::new();
        let mut changes = Vec::new();
        for (name, options) in &self.pipeline.sources {
            let [partition] = self.registration.source(name) else {
                unreachable!("a file is one partition");
            };
            let position = rows::read_source_position(self.storage, *partition)?;
            let open = |on_change| source::open(&options.connector, position.as_deref(), on_change);
            let source = match open(OnChange::Refuse) {
                Err(SourceError::IdentityChanged { path, was, now }) => {
                    let what = format!("content of source {name} ({})", path.display());
                    changes.push(Change { what, was, now });
                    open(OnChange::StartOver)?
                }
                opened => opened?,
            };
            sources.insert(name.clone(), source);
        }
        Ok((sources, changes))
    }

    /// Plans every job of the pipeline, each under a new lease.
    ///
    /// # Errors
    ///
    /// The first sink file, lease or component that can't be had.
    pub fn plan(&self, mut sources: OpenSources) -> Result<Vec<JobPlan>, PlacementError> {
        let mut plans = Vec::new();
        for shape in &self.shapes {
            let partitions = self.partitions(&shape.head);
            for (index, partition) in partitions.iter().enumerate() {
                let lease = leases::grant(self.storage, *partition)?;
                tracing::debug!(lease = %lease.id, partition = %partition, "lease granted");
                let input = match &shape.head {
                    JobHead::Source(name) => {
                        let source = sources.remove(name);
                        InputPlan::Source(source.expect("every source was opened"))
                    }
                    JobHead::Transform(name) => InputPlan::Lanes(self.lanes(name, *partition)),
                };
                let place = PartitionPlace::new(index, partitions.len());
                plans.push(self.job(shape, place, lease, input)?);
            }
        }
        Ok(plans)
    }

    fn partitions(&self, head: &JobHead) -> &[PartitionId] {
        match head {
            JobHead::Source(name) => self.registration.source(name),
            JobHead::Transform(name) => self.registration.computation(name),
        }
    }

    fn job(
        &self,
        shape: &JobShape,
        place: PartitionPlace,
        lease: Lease,
        input: InputPlan,
    ) -> Result<JobPlan, PlacementError> {
        let transform = match &shape.head {
            JobHead::Source(_) => None,
            JobHead::Transform(name) => Some(self.node(shape, name, false)?),
        };
        let mut maps = Vec::with_capacity(shape.maps.len());
        for name in &shape.maps {
            maps.push(self.node(shape, name, true)?);
        }
        let (sinks, places) = self.sinks(shape)?;
        let streams = shape.streams.iter().map(|stream| StreamPlan {
            name: stream.clone(),
            id: self.registration.stream(stream),
            readers: transforms_reading(self.pipeline, stream)
                .map(|name| self.registration.computation(name).to_vec())
                .collect(),
            sinks: places.get(stream.as_str()).cloned().unwrap_or_default(),
        });
        Ok(JobPlan {
            name: shape.head.name().to_owned(),
            place,
            lease,
            deployment: self.registration.deployment(),
            limits: self.pipeline.epoch,
            input,
            transform,
            maps,
            streams: streams.collect(),
            sinks,
        })
    }

    /// A computation in the chain of a job. Streams are found by the names that the component
    /// declares. A map may have inputs that other jobs feed: in this chain they stay silent.
    fn node(&self, shape: &JobShape, name: &str, is_map: bool) -> Result<NodePlan, PlacementError> {
        let admitted = &self.admission.computations[name];
        let computation =
            admitted
                .instance(self.runtime)
                .map_err(|error| PlacementError::Guest {
                    computation: name.to_owned(),
                    source: Box::new(error),
                })?;
        let place = |stream: &String| shape.place_of(stream);
        let description = &admitted.description;
        Ok(NodePlan {
            name: name.to_owned(),
            computation,
            inputs: match is_map {
                true => description.inputs.iter().map(place).collect(),
                false => Vec::new(),
            },
            outputs: description
                .outputs
                .iter()
                .map(|stream| place(stream).expect("a job's streams hold its chain's outputs"))
                .collect(),
        })
    }

    /// The lanes that feed a partition of a transform: one from each partition that writes one of
    /// its inputs, in the order of the component's inputs, then of the producers.
    fn lanes(&self, transform: &str, reader: PartitionId) -> Vec<LanePlan> {
        let description = &self.admission.computations[transform].description;
        let mut lanes = Vec::new();
        for (input, stream) in description.inputs.iter().enumerate() {
            for shape in self
                .shapes
                .iter()
                .filter(|shape| shape.place_of(stream).is_some())
            {
                for producer in self.partitions(&shape.head) {
                    lanes.push(LanePlan {
                        lane: LaneId {
                            producer: *producer,
                            stream: self.registration.stream(stream),
                            reader,
                        },
                        input: u16::try_from(input).expect("a component has few inputs"),
                        layout: 0,
                    });
                }
            }
        }
        lanes
    }

    /// The sinks that a job feeds, and which of them take each stream.
    fn sinks<'s>(
        &self,
        shape: &'s JobShape,
    ) -> Result<(Vec<SinkPlan>, SinkPlaces<'s>), PlacementError> {
        let mut plans = Vec::new();
        let mut places = SinkPlaces::new();
        for (name, options) in &self.pipeline.sinks {
            let taken: Vec<&String> = shape
                .streams
                .iter()
                .filter(|stream| options.inputs.contains(stream))
                .collect();
            if taken.is_empty() {
                continue;
            }
            for stream in taken {
                places.entry(stream).or_default().push(plans.len());
            }
            let file = match &options.connector {
                SinkConnector::File { path } => Some(self.storage.open_sink_file(path)?),
                SinkConnector::Stdout => None,
            };
            plans.push(SinkPlan {
                name: name.clone(),
                sink: sink::open(&options.connector),
                file,
            });
        }
        Ok((plans, places))
    }
}
