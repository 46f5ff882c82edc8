//! The plans of a pipeline's jobs: each partition under a lease of its own, its input opened, its
//! chain instantiated, its lanes and sinks named.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::controller::admission::Admission;
use crate::controller::graph::{JobHead, JobShape, job_shapes, transforms_reading};
use crate::controller::registry::Registration;
use crate::guest::{GuestError, GuestRuntime};
use crate::sink;
use crate::source::{self, OnChange, SourceError};
use crate::storage::{Storage, StorageError, leases, rows};
use crate::types::ids::{LaneId, PartitionId};
use crate::types::lease::Lease;
use crate::types::pipeline::{Pipeline, SinkConnector};
use crate::worker::plan::{InputPlan, JobPlan, LanePlan, NodePlan, SinkPlan, StreamPlan};

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
    /// A sink's file is not as the last run left it, or the store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Plans every job of the pipeline.
///
/// # Errors
///
/// The first source, sink file, lease or component that can't be had.
pub fn plan(
    pipeline: &Pipeline,
    admission: &Admission,
    runtime: &Arc<GuestRuntime>,
    storage: &dyn Storage,
    registration: &Registration,
    accept_change: bool,
) -> Result<Vec<JobPlan>, PlacementError> {
    let shapes = job_shapes(pipeline);
    let planner = Planner {
        pipeline,
        admission,
        runtime,
        storage,
        registration,
        shapes: &shapes,
    };
    let mut plans = Vec::new();
    for shape in &shapes {
        let partitions = planner.partitions(&shape.head);
        for partition in partitions {
            let lease = leases::grant(storage, *partition)?;
            tracing::debug!(lease = %lease.id, partition = %partition, "lease granted");
            let input = match &shape.head {
                JobHead::Source(name) => planner.source(name, *partition, accept_change)?,
                JobHead::Transform(name) => InputPlan::Lanes(planner.lanes(name, *partition)),
            };
            plans.push(planner.job(shape, lease, input)?);
        }
    }
    Ok(plans)
}

/// For each stream, which of a job's sinks take it.
type SinkPlaces<'s> = BTreeMap<&'s str, Vec<usize>>;

struct Planner<'a> {
    pipeline: &'a Pipeline,
    admission: &'a Admission,
    runtime: &'a Arc<GuestRuntime>,
    storage: &'a dyn Storage,
    registration: &'a Registration,
    shapes: &'a [JobShape],
}

impl Planner<'_> {
    fn partitions(&self, head: &JobHead) -> &[PartitionId] {
        match head {
            JobHead::Source(name) => &self.registration.sources[name],
            JobHead::Transform(name) => &self.registration.computations[name],
        }
    }

    fn job(
        &self,
        shape: &JobShape,
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
            id: self.registration.streams[stream],
            readers: transforms_reading(self.pipeline, stream)
                .map(|name| self.registration.computations[name].clone())
                .collect(),
            sinks: places.get(stream.as_str()).cloned().unwrap_or_default(),
        });
        Ok(JobPlan {
            pipeline: self.pipeline.name.clone(),
            name: shape.head.name().to_owned(),
            lease,
            deployment: self.registration.deployment,
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

    fn source(
        &self,
        name: &str,
        partition: PartitionId,
        accept_change: bool,
    ) -> Result<InputPlan, PlacementError> {
        let position = rows::read_source_position(self.storage, partition)?;
        let options = &self.pipeline.sources[name];
        let on_change = match accept_change {
            true => OnChange::StartOver,
            false => OnChange::Refuse,
        };
        let source = source::open(&options.connector, position.as_deref(), on_change)?;
        Ok(InputPlan::Source(source))
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
                            stream: self.registration.streams[stream],
                            reader,
                        },
                        input: u16::try_from(input).expect("a component has few inputs"),
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
