//! What a job is to do: its input, its chain and where its messages go. Made by the controller,
//! carried out by [`crate::worker::job`].

use std::sync::Arc;
use std::time::Duration;

use crate::engine::epoch::SealedParts;
use crate::guest::Computation;
use crate::sink::{Sealed, Sink};
use crate::source::Source;
use crate::storage::{Storage, StorageError};
use crate::types::batch::Timestamp;
use crate::types::ids::{LaneId, PartitionId, SinkFileId, StreamId};
use crate::types::lease::Lease;
use crate::types::pipeline::{EpochLimits, FailurePolicy, OnFailure, WatermarkOptions};
use crate::types::queue::{QueueAppend, QueueRows};
use crate::worker::rolling::RollingFiles;
use crate::worker::turns::SourceTurn;

/// One job: one partition of a source or of a transform, with the maps chained behind it.
pub struct JobPlan {
    /// The pipeline that the job belongs to.
    pub pipeline: String,
    /// The source or transform that the job is a partition of.
    pub name: String,
    /// Which of its partitions.
    pub place: PartitionPlace,
    /// The right to commit for the partition.
    pub lease: Lease,
    /// Number of the deployment in force.
    pub deployment: u64,
    /// The run of the pipeline, which its watermarks belong to; from 1.
    pub run: u64,
    /// How large epochs and batches may grow.
    pub limits: EpochLimits,
    /// How much it may keep in memory.
    pub memory: JobMemory,
    /// Where its items come from.
    pub input: InputPlan,
    /// The transform, unless the job reads a source.
    pub transform: Option<NodePlan>,
    /// What the transform makes of time.
    pub time: TimePlan,
    /// The maps behind it, each after those that feed it.
    pub maps: Vec<NodePlan>,
    /// Every stream that is written inside the job.
    pub streams: Vec<StreamPlan>,
    /// The sinks that the job feeds.
    pub sinks: Vec<SinkPlan>,
}

/// How much a job may keep in memory, beside the epochs that it works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobMemory {
    /// Bytes of states between two epochs: 64 MiB, or an equal share of 1 GiB where a run has many
    /// jobs.
    pub state_cache_bytes: usize,
    /// Bytes of messages read ahead from storage, all its lanes together: 64 MiB, or an equal share
    /// of 512 MiB. Of each lane one chunk is read whatever its size.
    pub read_ahead_bytes: usize,
}

impl JobMemory {
    /// The most that all jobs of a run keep of states together.
    const STATE_CACHES_BYTES_MAX: usize = 1 << 30;
    /// The most that all jobs of a run read ahead together.
    const READ_AHEADS_BYTES_MAX: usize = 512 << 20;

    /// What one of `jobs` jobs of a run may keep.
    pub fn share_of(jobs: usize) -> JobMemory {
        let jobs = jobs.max(1);
        let whole = JobMemory::default();
        JobMemory {
            state_cache_bytes: (whole.state_cache_bytes).min(Self::STATE_CACHES_BYTES_MAX / jobs),
            read_ahead_bytes: (whole.read_ahead_bytes).min(Self::READ_AHEADS_BYTES_MAX / jobs),
        }
    }
}

impl Default for JobMemory {
    fn default() -> JobMemory {
        JobMemory {
            state_cache_bytes: 64 << 20,
            read_ahead_bytes: 64 << 20,
        }
    }
}

/// Which of the partitions of a source or transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionPlace {
    /// From 0.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

impl PartitionPlace {
    /// The place of partition `index` of `count`.
    ///
    /// # Panics
    ///
    /// When there are more than 4 Gi of them; a source or transform may have a few hundred.
    pub fn new(index: usize, count: usize) -> PartitionPlace {
        let number = |number: usize| u32::try_from(number).expect("partitions are few");
        PartitionPlace {
            index: number(index),
            count: number(count),
        }
    }

    /// What a partition of `name` is called: by the name alone where it is the only one, else
    /// `name[index]`.
    pub fn label(self, name: &str) -> String {
        match self.count {
            1 => name.to_owned(),
            _ => format!("{name}[{}]", self.index),
        }
    }
}

/// Where a job's items come from.
pub enum InputPlan {
    /// A partition of a source; its records are the messages of the job's first stream.
    Source(SourcePlan),
    /// Lanes, in the order in which they are read.
    Lanes(Vec<LanePlan>),
}

/// A partition of a source to read.
pub struct SourcePlan {
    /// What it is in errors: "source departures", or "monday.csv of source departures".
    pub described: String,
    /// The connector, at its position.
    pub source: Box<dyn Source>,
    /// Its turn, where not all partitions of the source are read at once.
    pub turn: Option<SourceTurn>,
    /// How its watermarks are made.
    pub watermarks: WatermarkOptions,
    /// What becomes of records that it can't decode, as the source was told too.
    pub on_failure: OnFailure,
    /// Whether the run has a source that never ends, so that there will be no next one: what is found behind an end
    /// that readers were told of is read in this run.
    pub reads_on: bool,
}

/// A lane to read.
#[derive(Debug, Clone, Copy)]
pub struct LanePlan {
    /// The lane.
    pub lane: LaneId,
    /// The transform's input that it feeds, as an index into the description's inputs.
    pub input: u16,
    /// How much younger than their alignment timestamps its messages are taken to be
    /// (`input_ordering.stream_delays`).
    pub delay: Duration,
    /// `None` for a lane of a partition that is in force. A lane of one that is retiring has the rank of
    /// its layout, the oldest least: it is read to its end before lanes of the same stream with a
    /// greater rank, or with none, are begun (row R4).
    pub retiring: Option<u32>,
}

/// A computation in its place in the chain.
pub struct NodePlan {
    /// The computation's name.
    pub name: String,
    /// The component, ready to be called.
    pub computation: Computation,
    /// For each of the description's inputs its place in the job's streams, or `None` where only
    /// other jobs feed it; empty for the transform, whose input comes by lanes.
    pub inputs: Vec<Option<usize>>,
    /// For each of the description's outputs its place in the job's streams.
    pub outputs: Vec<usize>,
    /// What becomes of items that it fails on.
    pub failure: FailurePlan,
}

/// What becomes of items that a computation fails on, and what dead letters say of it.
#[derive(Debug, Clone, Default)]
pub struct FailurePlan {
    /// The policy.
    pub policy: FailurePolicy,
    /// The component's file.
    pub component: String,
    /// The digest of the component's bytes, in hexadecimal.
    pub digest: String,
    /// Its settings, as JSON text.
    pub settings: String,
    /// The streams that it reads, in the order of the description's inputs.
    pub inputs: Vec<String>,
}

/// What a transform makes of time, as its options say.
#[derive(Debug, Clone, Default)]
pub struct TimePlan {
    /// For each input how far behind the watermark a message may be without being late, in
    /// milliseconds.
    pub allowed_lateness: Vec<Timestamp>,
    /// The place in the job's streams that late messages go to instead of the component.
    pub late_output: Option<usize>,
    /// For each declared state how long it outlasts the last item of its key, in milliseconds;
    /// `None` for ever.
    pub state_ttls: Vec<Option<Timestamp>>,
}

/// A stream written inside the job, and who takes it outside the chain.
#[derive(Debug, Clone)]
pub struct StreamPlan {
    /// Its name.
    pub name: String,
    /// Its number in the store.
    pub id: StreamId,
    /// The partitions of each transform that reads it.
    pub readers: Vec<Vec<PartitionId>>,
    /// Places in the job's sinks.
    pub sinks: Vec<usize>,
}

impl StreamPlan {
    /// Whether anything takes its messages out of the chain.
    pub fn leaves_the_chain(&self) -> bool {
        !self.readers.is_empty() || !self.sinks.is_empty()
    }
}

/// A sink that the job feeds.
pub struct SinkPlan {
    /// Its name.
    pub name: String,
    /// The connector.
    pub sink: Box<dyn Sink>,
    /// Where what it answers at the end of an epoch goes.
    pub target: SinkTarget,
}

/// Where what a sink answers at the end of an epoch goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkTarget {
    /// Nowhere: the sink writes by itself, or keeps nothing.
    Nowhere,
    /// A file that the committer appends its rows to.
    File(SinkFileId),
    /// The partitions of a queue, by their places.
    Queue(Vec<PartitionId>),
    /// Files of a directory, one after the other.
    Directory(RollingFiles),
}

impl SinkTarget {
    /// Puts what a sink has answered into an epoch that ends at `now`.
    ///
    /// # Errors
    ///
    /// When a file that its rows go to can't be made.
    ///
    /// # Panics
    ///
    /// When it is not what a sink with this target answers.
    pub fn take(
        &mut self,
        sealed: Sealed,
        now: Timestamp,
        storage: &dyn Storage,
        parts: &mut SealedParts,
    ) -> Result<(), StorageError> {
        match (self, sealed) {
            (SinkTarget::Directory(files), Sealed::Nothing) => {
                files.take(None, now, storage, parts)?;
            }
            (SinkTarget::Directory(files), Sealed::Append(bytes)) => {
                files.take(Some(bytes), now, storage, parts)?;
            }
            (_, Sealed::Nothing) => {}
            (SinkTarget::File(file), Sealed::Append(bytes)) => parts.appends.push((*file, bytes)),
            (SinkTarget::Queue(partitions), Sealed::Rows(rows)) => {
                let append = |(place, rows): (usize, QueueRows)| QueueAppend {
                    queue: partitions[place],
                    rows: Arc::new(rows),
                };
                parts.queue_appends.extend(rows.into_iter().map(append));
            }
            (target, sealed) => unreachable!("a sink to {target:?} answered {sealed:?}"),
        }
        Ok(())
    }

    /// The files of a directory, if it is one.
    pub fn files(&self) -> Option<&RollingFiles> {
        match self {
            SinkTarget::Directory(files) => Some(files),
            _ => None,
        }
    }
}

impl JobPlan {
    /// A job of a partition that is not in force any more: it reads nothing, and removes what it wrote
    /// once the readers have taken it.
    pub fn retiring(
        pipeline: String,
        name: String,
        place: PartitionPlace,
        lease: Lease,
        deployment: u64,
        run: u64,
        streams: Vec<StreamPlan>,
    ) -> JobPlan {
        let without_sinks = |stream| StreamPlan {
            sinks: Vec::new(),
            ..stream
        };
        JobPlan {
            pipeline,
            name,
            place,
            lease,
            deployment,
            run,
            limits: EpochLimits::default(),
            memory: JobMemory::default(),
            input: InputPlan::Lanes(Vec::new()),
            transform: None,
            time: TimePlan::default(),
            maps: Vec::new(),
            streams: streams.into_iter().map(without_sinks).collect(),
            sinks: Vec::new(),
        }
    }

    /// Whether it is a job that [`JobPlan::retiring`] has made: it processes nothing.
    pub fn is_retiring(&self) -> bool {
        self.transform.is_none() && matches!(self.input, InputPlan::Lanes(_))
    }

    /// What the job is called.
    pub fn label(&self) -> String {
        self.place.label(&self.name)
    }

    /// Every lane that the job writes.
    pub fn lanes_written(&self) -> Vec<LaneId> {
        let lane = |stream: &StreamPlan, reader: &PartitionId| LaneId {
            producer: self.lease.partition,
            stream: stream.id,
            reader: *reader,
        };
        self.streams
            .iter()
            .flat_map(|stream| {
                let readers = stream.readers.iter().flatten();
                readers.map(|reader| lane(stream, reader))
            })
            .collect()
    }
}
