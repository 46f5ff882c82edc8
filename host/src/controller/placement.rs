//! The plans of a pipeline's jobs: each partition under a lease of its own, its input opened, its
//! chain instantiated, its lanes and sinks named.

use std::sync::Arc;

use crate::controller::admission::Admission;
use crate::controller::graph::{JobHead, JobShape};
use crate::controller::queues::declared::DeclaredQueues;
use crate::controller::registry::Registration;
use crate::controller::retiring::RetiringWriters;
use crate::controller::sources::OpenSources;
use crate::controller::wiring::{NodePlaces, Wiring};
use crate::guest::{GuestError, GuestRuntime, RecordedSettings};
use crate::sink;
use crate::source::SourceError;
use crate::storage::{Storage, StorageError, leases, rows};
use crate::types::ids::{LaneId, PartitionId};
use crate::types::lease::Lease;
use crate::types::pipeline::{Pipeline, SinkConnector};
use crate::worker::plan::{
    FailurePlan, InputPlan, JobMemory, JobPlan, NodePlan, PartitionPlace, SinkPlan, SinkTarget,
    TimePlan,
};
use crate::worker::rolling::RollingFiles;
use crate::worker::timers::TimersError;

/// A job could not be planned or opened.
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
    /// Timers are pending that a component no longer declares, or the store failed where they lie.
    #[error(transparent)]
    Timers(#[from] TimersError),
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
    /// Several files could be what a file that left a source's list has become.
    #[error(
        "files that left the list of source {source_name} ({left}) and files that are new in it ({arrived}) have the same content as far as that was read: which one was moved where can't be told; list them under the paths that they had, or move them so that each keeps its file name"
    )]
    AmbiguousMove {
        /// The source.
        source_name: String,
        /// Names that are gone.
        left: String,
        /// Names that are new.
        arrived: String,
    },
    /// A sink's file is not as the last run left it, or the store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Makes the plans of a pipeline's jobs.
pub struct Planner<'a> {
    pipeline: &'a Pipeline,
    admission: &'a Admission,
    runtime: &'a Arc<GuestRuntime>,
    storage: &'a dyn Storage,
    registration: &'a Registration,
    /// The queues that the pipeline declares.
    queues: &'a DeclaredQueues,
    wiring: Wiring<'a>,
    /// What each job may keep in memory.
    memory: JobMemory,
}

impl<'a> Planner<'a> {
    /// A planner for a pipeline as it is about to be registered.
    pub fn new(
        pipeline: &'a Pipeline,
        admission: &'a Admission,
        runtime: &'a Arc<GuestRuntime>,
        storage: &'a dyn Storage,
        registration: &'a Registration,
        queues: &'a DeclaredQueues,
    ) -> Planner<'a> {
        let computations = admission.computations.iter();
        let descriptions = computations.map(|(name, of)| (name.as_str(), &of.description));
        let wiring = Wiring::new(pipeline, descriptions.collect(), registration);
        let shapes = wiring.shapes().iter();
        let jobs = shapes.map(|shape| wiring.partitions(&shape.head).len());
        Planner {
            pipeline,
            admission,
            runtime,
            storage,
            registration,
            queues,
            memory: match pipeline.memory.state_cache_bytes {
                None => JobMemory::share_of(jobs.sum()),
                Some(state_cache_bytes) => JobMemory {
                    state_cache_bytes,
                    ..JobMemory::share_of(jobs.sum())
                },
            },
            wiring,
        }
    }

    /// Refuses a graph that has no reader any more for messages that wait in a lane: they would
    /// neither be processed nor ever be removed.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Stranded`], or when the store fails.
    pub fn refuse_to_strand_messages(&self) -> Result<(), PlacementError> {
        for producer in self.registration.partitions_ever() {
            for lane in rows::lanes_kept(self.storage, producer)? {
                if !self.wiring.has_lane(lane) {
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

    /// How the pipeline's jobs are joined.
    pub fn wiring(&self) -> &Wiring<'a> {
        &self.wiring
    }

    /// Plans every job of the pipeline, each under a new lease, and one for each partition of an earlier
    /// layout whose messages have not all been taken. Layouts must have been moved by then.
    ///
    /// # Errors
    ///
    /// The first sink file, lease or component that can't be had.
    pub fn plan(&self, mut sources: OpenSources) -> Result<Vec<JobPlan>, PlacementError> {
        let retiring = RetiringWriters::find(&self.wiring, self.storage)?;
        let mut plans = Vec::new();
        for shape in self.wiring.shapes() {
            for writer in retiring.of(&shape.head) {
                plans.push(JobPlan::retiring(
                    self.pipeline.name.clone(),
                    format!("retiring {}", shape.head.name()),
                    writer.place,
                    self.grant(writer.partition)?,
                    self.registration.deployment(),
                    self.registration.run(),
                    self.wiring.streams_written(shape),
                ));
            }
            let partitions = self.wiring.partitions(&shape.head);
            for (index, partition) in partitions.iter().enumerate() {
                let lease = self.grant(*partition)?;
                let input = match &shape.head {
                    JobHead::Source(name) => {
                        let source = sources.take(name, index);
                        InputPlan::Source(source.expect("every source was opened"))
                    }
                    JobHead::Transform(name) => {
                        InputPlan::Lanes(self.wiring.lanes_read(name, *partition, &retiring))
                    }
                };
                let place = PartitionPlace::new(index, partitions.len());
                plans.push(self.job(shape, place, lease, input)?);
            }
        }
        Ok(plans)
    }

    fn grant(&self, partition: PartitionId) -> Result<Lease, StorageError> {
        let lease = leases::grant(self.storage, partition)?;
        tracing::debug!(lease = %lease.id, partition = %partition, "lease granted");
        Ok(lease)
    }

    fn job(
        &self,
        shape: &JobShape,
        place: PartitionPlace,
        lease: Lease,
        input: InputPlan,
    ) -> Result<JobPlan, PlacementError> {
        let wiring = &self.wiring;
        let (transform, time) = match &shape.head {
            JobHead::Source(_) => (None, TimePlan::default()),
            JobHead::Transform(name) => {
                let node = self.node(name, wiring.transform_places(shape, name))?;
                (Some(node), wiring.time(shape, name))
            }
        };
        let mut maps = Vec::with_capacity(shape.maps.len());
        for name in &shape.maps {
            maps.push(self.node(name, wiring.map_places(shape, name))?);
        }
        let mut sinks = Vec::new();
        for name in wiring.sinks_fed(shape) {
            sinks.push(self.sink(name, lease.partition)?);
        }
        Ok(JobPlan {
            pipeline: self.pipeline.name.clone(),
            name: shape.head.name().to_owned(),
            place,
            lease,
            deployment: self.registration.deployment(),
            run: self.registration.run(),
            limits: self.pipeline.epoch,
            memory: self.memory,
            input,
            transform,
            time,
            maps,
            streams: wiring.streams_written(shape),
            sinks,
        })
    }

    fn node(&self, name: &str, places: NodePlaces) -> Result<NodePlan, PlacementError> {
        let instance = self.admission.computations[name].instance(self.runtime);
        Ok(NodePlan {
            name: name.to_owned(),
            computation: instance.map_err(|error| PlacementError::Guest {
                computation: name.to_owned(),
                source: Box::new(error),
            })?,
            inputs: places.inputs,
            outputs: places.outputs,
            failure: self.failure(name),
        })
    }

    fn failure(&self, name: &str) -> FailurePlan {
        let options = &self.pipeline.computations[name];
        let admitted = &self.admission.computations[name];
        let component = &self.pipeline.components[&options.component].path;
        FailurePlan {
            policy: options.failure,
            component: component.to_string_lossy().into_owned(),
            digest: admitted.component.digest().to_string(),
            settings: RecordedSettings::of(admitted.settings())
                .with_states(&admitted.description)
                .to_json(),
            inputs: options.inputs.clone(),
        }
    }

    fn sink(&self, name: &str, partition: PartitionId) -> Result<SinkPlan, PlacementError> {
        let connector = &self.pipeline.sinks[name].connector;
        let target = match connector {
            SinkConnector::File { path } => SinkTarget::File(self.storage.open_sink_file(path)?),
            SinkConnector::Directory(options) => {
                let files = RollingFiles::open(name, options, partition, self.storage)?;
                SinkTarget::Directory(files)
            }
            SinkConnector::Stdout | SinkConnector::Null => SinkTarget::Nowhere,
            SinkConnector::Queue { queue, .. } => SinkTarget::Queue(self.queues.partitions(queue)),
        };
        Ok(SinkPlan {
            name: name.to_owned(),
            sink: sink::open(connector),
            target,
        })
    }
}
