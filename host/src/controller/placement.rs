//! The plans of a pipeline's jobs: each partition under a lease of its own, its input opened, its
//! chain instantiated, its lanes and sinks named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::admission::Admission;
use crate::controller::change::Change;
use crate::controller::graph::{JobHead, JobShape};
use crate::controller::registry::Registration;
use crate::controller::wiring::{NodePlaces, Wiring};
use crate::engine::state::STATE_CACHE_BYTES_MAX;
use crate::guest::{GuestError, GuestRuntime};
use crate::sink;
use crate::source::{self, OnChange, Source, SourceError};
use crate::storage::{Storage, StorageError, leases, rows};
use crate::types::ids::LaneId;
use crate::types::lease::Lease;
use crate::types::pipeline::{Pipeline, SinkConnector};
use crate::worker::plan::{InputPlan, JobPlan, NodePlan, PartitionPlace, SinkPlan};

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

/// The sources of a pipeline, opened.
pub type OpenSources = BTreeMap<String, Box<dyn Source>>;

/// Makes the plans of a pipeline's jobs.
pub struct Planner<'a> {
    pipeline: &'a Pipeline,
    admission: &'a Admission,
    runtime: &'a Arc<GuestRuntime>,
    storage: &'a dyn Storage,
    registration: &'a Registration,
    wiring: Wiring<'a>,
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
        let computations = admission.computations.iter();
        let descriptions = computations.map(|(name, of)| (name.as_str(), &of.description));
        Planner {
            pipeline,
            admission,
            runtime,
            storage,
            registration,
            wiring: Wiring::new(pipeline, descriptions.collect(), registration),
        }
    }

    /// Refuses a graph that has no reader any more for messages that wait in a lane: they would
    /// neither be processed nor ever be removed.
    ///
    /// # Errors
    ///
    /// [`PlacementError::Stranded`], or when the store fails.
    pub fn refuse_to_strand_messages(&self) -> Result<(), PlacementError> {
        let wiring = &self.wiring;
        let lanes = (wiring.shapes().iter()).flat_map(|shape| match &shape.head {
            JobHead::Source(_) => Vec::new(),
            JobHead::Transform(name) => {
                let partitions = wiring.partitions(&shape.head).iter();
                partitions
                    .flat_map(|reader| wiring.lanes_read(name, *reader))
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
        for shape in self.wiring.shapes() {
            let partitions = self.wiring.partitions(&shape.head);
            for (index, partition) in partitions.iter().enumerate() {
                let lease = leases::grant(self.storage, *partition)?;
                tracing::debug!(lease = %lease.id, partition = %partition, "lease granted");
                let input = match &shape.head {
                    JobHead::Source(name) => {
                        let source = sources.remove(name);
                        InputPlan::Source(source.expect("every source was opened"))
                    }
                    JobHead::Transform(name) => {
                        InputPlan::Lanes(self.wiring.lanes_read(name, *partition))
                    }
                };
                let place = PartitionPlace::new(index, partitions.len());
                plans.push(self.job(shape, place, lease, input)?);
            }
        }
        Ok(plans)
    }

    fn job(
        &self,
        shape: &JobShape,
        place: PartitionPlace,
        lease: Lease,
        input: InputPlan,
    ) -> Result<JobPlan, PlacementError> {
        let wiring = &self.wiring;
        let transform = match &shape.head {
            JobHead::Source(_) => None,
            JobHead::Transform(name) => {
                Some(self.node(name, wiring.transform_places(shape, name))?)
            }
        };
        let mut maps = Vec::with_capacity(shape.maps.len());
        for name in &shape.maps {
            maps.push(self.node(name, wiring.map_places(shape, name))?);
        }
        let mut sinks = Vec::new();
        for name in wiring.sinks_fed(shape) {
            sinks.push(self.sink(name)?);
        }
        Ok(JobPlan {
            name: shape.head.name().to_owned(),
            place,
            lease,
            deployment: self.registration.deployment(),
            limits: self.pipeline.epoch,
            state_cache_bytes_max: STATE_CACHE_BYTES_MAX,
            input,
            transform,
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
        })
    }

    fn sink(&self, name: &str) -> Result<SinkPlan, PlacementError> {
        let connector = &self.pipeline.sinks[name].connector;
        let file = match connector {
            SinkConnector::File { path } => Some(self.storage.open_sink_file(path)?),
            SinkConnector::Stdout => None,
        };
        Ok(SinkPlan {
            name: name.to_owned(),
            sink: sink::open(connector),
            file,
        })
    }
}
