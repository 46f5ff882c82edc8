//! A pipeline as its file describes it: names resolved, units parsed, defaults filled in. Made by
//! [`crate::config`]; checked by it as far as the file alone can tell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::types::batch::ComputationKind;
use crate::types::connectors::{DirectorySinkOptions, DirectorySourceOptions, GeneratorOptions};
use crate::types::finding::Finding;
use crate::types::queue::Retention;

/// One pipeline: sources, computations, streams and sinks under one name.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// The file that describes it.
    pub file: PathBuf,
    /// Components by name.
    pub components: BTreeMap<String, ComponentReference>,
    /// Sources by name. A source writes the stream of its own name.
    pub sources: BTreeMap<String, SourceOptions>,
    /// Computations by name.
    pub computations: BTreeMap<String, ComputationOptions>,
    /// Sinks by name.
    pub sinks: BTreeMap<String, SinkOptions>,
    /// Queues by name: those that its sources and sinks name, at least.
    pub queues: BTreeMap<String, QueueOptions>,
    /// How large epochs and batches may grow.
    pub epoch: EpochLimits,
    /// How much may wait between jobs.
    pub lanes: LaneLimits,
    /// How much jobs may keep in memory.
    pub memory: MemoryLimits,
    /// What the file's checks found that stops nothing.
    pub warnings: Vec<Finding>,
}

/// Where a component's bytes are.
#[derive(Debug, Clone)]
pub struct ComponentReference {
    /// The file, made absolute against the pipeline file's folder.
    pub path: PathBuf,
    /// Line of the pipeline file that names it, for errors.
    pub line: usize,
}

/// A source of records.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// What each of its partitions reads, at least one; no two have the same name.
    pub partitions: Vec<SourceConnector>,
    /// How many partitions are read at once at most, at least 1; as many as there are cores where the
    /// pipeline file does not say.
    pub parallel_partitions: Option<usize>,
    /// How its watermarks are made.
    pub watermarks: WatermarkOptions,
    /// What becomes of a record that can't be decoded.
    pub on_failure: OnFailure,
    /// Line of the pipeline file where its table begins.
    pub line: usize,
}

/// How the watermarks of a source are made (`watermark_generator` of a source).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WatermarkOptions {
    /// How far behind the greatest event time the watermark stays: messages may be out of order by so much
    /// without being late.
    pub out_of_orderness_bound: Duration,
    /// After how many records a watermark is made, at least 1.
    pub records_per_watermark: u64,
    /// How far ahead of its record's write time an event time may be to move the watermark.
    pub future_limit: Duration,
    /// When a partition without records no longer holds the watermark back; `None` for never.
    pub idle_partitions: Option<IdleOptions>,
    /// What the watermark does when all partitions have been without records.
    pub all_idle: AllIdle,
    /// Whether partitions that wait for their turn hold the watermark back.
    pub unread_partitions: UnreadPartitions,
    /// How far the watermark of one partition may be ahead of the others' before it waits for them;
    /// `None` for any distance.
    pub drift_bound: Option<Duration>,
}

impl Default for WatermarkOptions {
    fn default() -> WatermarkOptions {
        WatermarkOptions {
            out_of_orderness_bound: Duration::from_secs(60),
            records_per_watermark: 1_000,
            future_limit: Duration::from_secs(24 * 3_600),
            idle_partitions: None,
            all_idle: AllIdle::Hold,
            unread_partitions: UnreadPartitions::Hold,
            drift_bound: None,
        }
    }
}

/// When a partition of a source counts as idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IdleOptions {
    /// How long it has to be without records.
    pub duration: Duration,
    /// The greatest share of a source's partitions that may be left out, from 0 to 1. Are more without
    /// records, the watermark stands still.
    pub max_ratio: f64,
}

impl Default for IdleOptions {
    fn default() -> IdleOptions {
        IdleOptions {
            duration: Duration::from_secs(60),
            max_ratio: 0.4,
        }
    }
}

/// What partitions of a source that wait for their turn mean for the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadPartitions {
    /// They hold it back: what they bring may be of any time.
    Hold,
    /// They are left out until it is their turn: they bring what is newer.
    LeaveOut,
}

/// What the watermark does when all partitions of a source are without records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllIdle {
    /// It stands still until records come.
    Hold,
    /// After so long it goes on as the clock does, from where it stood.
    AdvanceAfter(Duration),
}

/// The source connectors, with the options of one partition.
#[derive(Debug, Clone)]
pub enum SourceConnector {
    /// A file, read once to its end, where what is appended later is read by the next run; or followed.
    File(FileSourceOptions),
    /// The files of a directory, one after the other; what comes later is read by the next run, or followed.
    Directory(DirectorySourceOptions),
    /// Records that are made, for load tests.
    Generator(GeneratorOptions),
    /// A partition of a queue of the same store.
    Queue(QueueSourceOptions),
}

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSourceOptions {
    /// Made absolute against the pipeline file's folder.
    pub path: PathBuf,
    /// As the pipeline file writes it, without any `.` in it: what the file is known by when the
    /// folder moves.
    pub written_path: String,
    /// How its bytes are cut into records.
    pub format: RecordFormat,
    /// The longest record accepted, in bytes, as it stands in the (decompressed) file.
    pub max_record_bytes: usize,
    /// Whether what is appended is read as it comes, so that the source never ends.
    pub follow: bool,
}

impl SourceConnector {
    /// What the partition is known by among those of its source.
    pub fn partition_name(&self) -> &str {
        match self {
            SourceConnector::File(options) => &options.written_path,
            SourceConnector::Directory(options) => &options.partition_name,
            SourceConnector::Generator(options) => &options.partition_name,
            SourceConnector::Queue(options) => &options.partition_name,
        }
    }

    /// Whether it has no end: what comes later is read as it comes.
    pub fn is_followed(&self) -> bool {
        match self {
            SourceConnector::File(options) => options.follow,
            SourceConnector::Directory(options) => options.follow,
            SourceConnector::Generator(options) => options.count.is_none(),
            SourceConnector::Queue(options) => options.follow,
        }
    }

    /// The partition of another name in the same source; `folder` is that of the pipeline file.
    pub fn with_partition_name(&self, folder: &Path, name: &str) -> SourceConnector {
        match self {
            SourceConnector::File(options) => SourceConnector::File(FileSourceOptions {
                path: folder.join(name),
                written_path: name.to_owned(),
                ..options.clone()
            }),
            SourceConnector::Directory(options) => {
                SourceConnector::Directory(DirectorySourceOptions {
                    partition_name: name.to_owned(),
                    ..options.clone()
                })
            }
            SourceConnector::Generator(options) => SourceConnector::Generator(GeneratorOptions {
                partition_name: name.to_owned(),
                ..options.clone()
            }),
            SourceConnector::Queue(options) => SourceConnector::Queue(QueueSourceOptions {
                partition_name: name.to_owned(),
                ..options.clone()
            }),
        }
    }

    /// A partition of that name of the same source, for people: "file a.csv".
    pub fn describe_partition(&self, name: &str) -> String {
        match self {
            SourceConnector::File(_) => format!("file {name}"),
            SourceConnector::Directory(_) | SourceConnector::Generator(_) => {
                format!("partition {name}")
            }
            SourceConnector::Queue(_) => format!("queue {name}"),
        }
    }
}

/// A partition of a queue to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSourceOptions {
    /// The queue.
    pub queue: String,
    /// Which of its partitions, from 0.
    pub index: u32,
    /// What the partition is known by among those of its source: `alerts[0]`.
    pub partition_name: String,
    /// Whether rows are read as they come, so that the source never ends. If not, it ends where the queue
    /// ended when the source was opened.
    pub follow: bool,
    /// Where it begins when it is read for the first time.
    pub from: QueueStart,
}

impl QueueSourceOptions {
    /// Partition `index` of a queue.
    pub fn new(queue: &str, index: u32, follow: bool, from: QueueStart) -> QueueSourceOptions {
        QueueSourceOptions {
            queue: queue.to_owned(),
            index,
            partition_name: format!("{queue}[{index}]"),
            follow,
            from,
        }
    }
}

/// Where a queue is read from when it is read for the first time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueStart {
    /// The first row that it still has.
    #[default]
    Start,
    /// Behind the last row that it has then.
    End,
}

/// A queue that the pipeline uses; a run makes those that the store does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// How many partitions it has, at least 1.
    pub partitions: u32,
    /// How long its rows are kept; `None` where the pipeline file does not say, so that what the store has stays
    /// in force.
    pub retention: Option<Retention>,
    /// Line of the pipeline file where its table begins.
    pub line: usize,
}

impl FileSourceOptions {
    /// The longest record accepted where the pipeline file does not say, in bytes.
    pub const RECORD_BYTES_MAX_DEFAULT: usize = 1 << 20;
}

/// How a file's bytes are cut into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// Each line is a payload, without its end.
    Lines,
    /// Each row becomes a JSON object with the header's names.
    Csv,
    /// Each line is a JSON value, checked and passed on as it stands.
    Jsonl,
}

impl RecordFormat {
    /// The format's name in pipeline files.
    pub fn name(self) -> &'static str {
        match self {
            RecordFormat::Lines => "lines",
            RecordFormat::Csv => "csv",
            RecordFormat::Jsonl => "jsonl",
        }
    }
}

/// A computation: a component in its place in the graph.
#[derive(Debug, Clone)]
pub struct ComputationOptions {
    /// Name of its component.
    pub component: String,
    /// Map or transform.
    pub kind: ComputationKind,
    /// The streams that it reads, in the order of the component's inputs.
    pub inputs: Vec<String>,
    /// The streams that it writes, in the order of the component's outputs.
    pub outputs: Vec<String>,
    /// How many partitions it has; 1 for a map.
    pub partitions: u32,
    /// For inputs that are to be merged later than their timestamps say: by how much.
    pub stream_delays: BTreeMap<String, Duration>,
    /// The stream that late messages go to instead of the component, if any.
    pub late_output: Option<String>,
    /// For inputs whose messages may be behind the watermark without being late: by how much.
    pub allowed_lateness: BTreeMap<String, Duration>,
    /// For states that do not last for ever: for how long they do.
    pub state_ttls: BTreeMap<String, StateTtl>,
    /// Its parameters, as JSON text of an object.
    pub parameters: String,
    /// What it may see of the outside.
    pub grants: Grants,
    /// What one call may use.
    pub limits: CallLimits,
    /// Whether instances are made fresh for every call.
    pub instance: InstancePolicy,
    /// Whether an output may have several parents, so that what it is depends on how input is cut into batches. Of
    /// maps alone.
    pub relaxed_batching: bool,
    /// What happens when it fails on an item.
    pub failure: FailurePolicy,
    /// Line of the pipeline file where its table begins.
    pub line: usize,
    /// Lines of its options, for findings about them.
    pub lines: ComputationLines,
}

impl ComputationOptions {
    /// Every stream that it writes: its outputs, and that of its late messages.
    pub fn streams_written(&self) -> impl Iterator<Item = &String> {
        self.outputs.iter().chain(&self.late_output)
    }
}

/// How long a state of a key lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateTtl {
    /// How long after the last item of the key, by event time.
    pub ttl: Duration,
    /// Line of the pipeline file that names the state, for errors.
    pub line: usize,
}

/// Where the options of a computation stand in the pipeline file. The line of an option that is
/// not written is the line where the computation's table begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputationLines {
    /// Line of `component`.
    pub component: usize,
    /// Line of `kind`.
    pub kind: usize,
    /// Line of `inputs`.
    pub inputs: usize,
    /// Line of `outputs`.
    pub outputs: usize,
    /// Line of `parameters`.
    pub parameters: usize,
    /// Line of `grants`.
    pub grants: usize,
    /// Line of `limits`.
    pub limits: usize,
    /// Line of `instance`.
    pub instance: usize,
}

/// What a component may see of the outside, each granted by name in the pipeline file.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Grants {
    /// Random numbers.
    pub random: RandomGrant,
    /// Clocks.
    pub clock: ClockGrant,
    /// Directories, read only; make the component impure.
    pub directories: Vec<DirectoryGrant>,
}

/// A directory that a component may read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DirectoryGrant {
    /// Where the component finds it: the path as the pipeline file writes it, so that a pipeline
    /// may be moved.
    pub guest_path: String,
    /// Where it is: made absolute against the pipeline file's folder.
    pub path: PathBuf,
}

/// Random numbers for a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RandomGrant {
    /// None: a component that imports them is refused.
    #[default]
    Deny,
    /// A generator with a fixed seed, the same in every call.
    Seeded,
    /// The machine's; makes the component impure.
    Host,
}

/// Clocks for a component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockGrant {
    /// None: a component that imports them is refused.
    #[default]
    Deny,
    /// A clock that stands still, at the same moment in every call.
    Frozen,
    /// The machine's; makes the component impure.
    Host,
}

/// What one guest call may use, whatever the size of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// Fuel, about one unit for each WebAssembly instruction.
    pub fuel: u64,
    /// Linear memory, in bytes.
    pub memory_bytes: usize,
    /// Wall-clock safety net.
    pub deadline: Duration,
    /// Keys and payloads of outputs, state values and timers that a call may return, in bytes.
    pub output_bytes: usize,
    /// Messages that a call may return.
    pub outputs: usize,
    /// Key and payload of one message that it returns, in bytes.
    pub message_bytes: usize,
    /// One state value that it returns, in bytes.
    pub state_value_bytes: usize,
    /// Timers of one key that it may set and cancel.
    pub timers_per_key: usize,
    /// Captured stdout and stderr, and the text of log lines: each, in bytes.
    pub log_bytes: usize,
    /// Log lines that are kept.
    pub log_lines: usize,
}

impl CallLimits {
    /// The most linear memory that a call may be allowed, in bytes: what the host reserves address
    /// space for in every instance.
    pub const MEMORY_BYTES_MAX: usize = 1 << 30;
}

impl Default for CallLimits {
    fn default() -> CallLimits {
        CallLimits {
            fuel: 10_000_000_000,
            memory_bytes: 256 << 20,
            deadline: Duration::from_secs(30),
            output_bytes: 64 << 20,
            outputs: 1_000_000,
            message_bytes: 16 << 20,
            state_value_bytes: 16 << 20,
            timers_per_key: 10_000,
            log_bytes: 64 << 10,
            log_lines: 10_000,
        }
    }
}

/// What happens when a computation fails on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailurePolicy {
    /// What becomes of the item, once it has no attempt left.
    pub on_failure: OnFailure,
    /// How often an item is tried whose failure may pass: with the machine's clock, random numbers or files in it,
    /// past the deadline, or after the process died on it. A verdict of a pure computation is the same every time
    /// and takes one. At least 1, at most [`FailurePolicy::ATTEMPTS_MAX`].
    pub attempts: u32,
}

impl FailurePolicy {
    /// The most attempts that may be asked for.
    pub const ATTEMPTS_MAX: u32 = 100;
    /// How long to wait before the second attempt; each further one waits twice as long.
    pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);
    /// The longest wait before an attempt.
    pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
}

impl Default for FailurePolicy {
    fn default() -> FailurePolicy {
        FailurePolicy {
            on_failure: OnFailure::Fail,
            attempts: 3,
        }
    }
}

/// What becomes of an item that a computation fails on, or of a record that a source can't decode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The job fails there, and its partition goes no further.
    #[default]
    Fail,
    /// It is counted and passed over.
    Skip,
    /// It is kept with all that is known of the failure, and passed over.
    DeadLetter,
}

/// When instances are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstancePolicy {
    /// A fresh one for every call.
    #[default]
    Fresh,
    /// One for many calls, for guests that start slowly; a failure is repeated on a fresh one.
    Reuse,
}

/// A sink: where streams leave the pipeline.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    /// Which connector, with its options.
    pub connector: SinkConnector,
    /// The streams that it takes.
    pub inputs: Vec<String>,
    /// Line of the pipeline file where its table begins.
    pub line: usize,
    /// Line of its `inputs`.
    pub inputs_line: usize,
}

/// The sink connectors.
#[derive(Debug, Clone)]
pub enum SinkConnector {
    /// A file that gets each payload as a line, exactly once.
    File {
        /// Made absolute against the pipeline file's folder.
        path: PathBuf,
    },
    /// A directory of files that get each payload as a line, exactly once.
    Directory(DirectorySinkOptions),
    /// Standard output, each payload a line, at least once.
    Stdout,
    /// Nowhere: rows are counted and dropped.
    Null,
    /// A queue of the same store that gets each message as a row, exactly once.
    Queue {
        /// The queue.
        queue: String,
        /// How many partitions it has: a message goes to that of its key.
        partitions: u32,
    },
}

/// How large epochs and batches may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochLimits {
    /// Items in one guest call.
    pub max_rows_per_batch: usize,
    /// Payload and key bytes in one guest call.
    pub max_bytes_per_batch: usize,
    /// Items in one epoch.
    pub max_rows_per_epoch: usize,
    /// Payload and key bytes in one epoch.
    pub max_bytes_per_epoch: usize,
    /// For how long an epoch takes items: what is computed waits no longer for more. The batch that is being
    /// computed then is the last one.
    pub max_duration: Duration,
}

impl Default for EpochLimits {
    fn default() -> EpochLimits {
        EpochLimits {
            max_rows_per_batch: 1_000,
            max_bytes_per_batch: 10 << 20,
            max_rows_per_epoch: 65_536,
            max_bytes_per_epoch: 32 << 20,
            max_duration: Duration::from_millis(50),
        }
    }
}

/// How much jobs may keep in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of states that each job keeps between two epochs; `None`: 64 MiB, less where a run has many jobs.
    pub state_cache_bytes: Option<usize>,
}

/// How much may wait between jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLimits {
    /// Bytes of messages that a lane may hold which its reader has not committed past, before its
    /// writer waits. One epoch may pass the bound.
    pub max_bytes: u64,
    /// Bytes of messages that are handed to readers in memory, all lanes of a run together, each
    /// with an equal share. What is above is read from storage.
    pub channel_bytes: u64,
}

impl Default for LaneLimits {
    fn default() -> LaneLimits {
        LaneLimits {
            max_bytes: 64 << 20,
            channel_bytes: 64 << 20,
        }
    }
}
