//! Queues of the simulated store: the third source of a pipeline reads one, which its records are put into, and every
//! other sink that is no witness writes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock::controller::queues::reader::StoredQueues;
use tidelock::controller::queues::registry::{all_queues, create_queue};
use tidelock::source::queue::QueueReader;
use tidelock::source::{
    Opening, PollLimit, PollOutcome, Source, SourceError, SourceProgress, SourceRecords, open,
};
use tidelock::storage::queue_rows::{QueueLimit, read_bounds, read_queue};
use tidelock::storage::{Storage, StorageError};
use tidelock::types::batch::Timestamp;
use tidelock::types::ids::PartitionId;
use tidelock::types::key::{key_hash, partition_of};
use tidelock::types::pipeline::{QueueSourceOptions, QueueStart, SourceConnector};
use tidelock::types::queue::{QueueRows, Retention};

use crate::checkers::{Checker, Evidence, Finding};
use crate::graph::Graph;
use crate::model::ShapeModel;
use crate::random::Random;
use crate::record_source::{
    RECORDS_WRITTEN_TOGETHER, SourceLength, SourcePart, record, written_alone,
};
use crate::sequence::{Sequence, Taken, Takings};
use crate::storage::SimulatedStorage;

/// The source, of those of a pipeline, that reads a queue.
pub(crate) const QUEUE_SOURCE: usize = 2;

/// Partitions of a queue that a sink writes.
pub(crate) const SINK_PARTITIONS: u32 = 2;

/// More rows of one partition than all runs of a world can make.
const ALL_ROWS: QueueLimit = QueueLimit {
    rows: 100_000,
    bytes: 1 << 26,
};

/// Makes the queues of a pipeline; nothing goes wrong yet.
pub(crate) fn create(graph: &Graph, storage: &SimulatedStorage) {
    let make = |name: &str, partitions| {
        let made = create_queue(storage, name, partitions, Retention::default(), 1);
        made.expect("the store is new");
    };
    if graph.sources > QUEUE_SOURCE {
        let (partitions, _) = graph.source_partitions[QUEUE_SOURCE];
        let partitions = u32::try_from(partitions).expect("there are few");
        make(&graph.source_name(QUEUE_SOURCE), partitions);
    }
    for sink in (0..graph.sinks.len()).filter(|sink| graph.is_queue_sink(*sink)) {
        make(&graph.sink_name(sink), SINK_PARTITIONS);
    }
}

/// The partitions of a queue.
pub(crate) fn partitions(storage: &dyn Storage, queue: &str) -> Vec<PartitionId> {
    let queues = all_queues(storage).expect("the catalog can always be read");
    queues[queue].partitions()
}

/// Puts the records that the source which reads a queue has got into that queue, each group that was written together
/// as one chunk.
pub(crate) fn feed(
    graph: &Graph,
    storage: &SimulatedStorage,
    sources: &BTreeMap<SourcePart, SourceLength>,
) {
    for (part, length) in sources {
        if part.source != QUEUE_SOURCE {
            continue;
        }
        let queue = partitions(storage, &graph.source_name(part.source))[part.partition];
        storage.put_into_queue(queue, |end| {
            let left = length.records().checked_sub(end).filter(|left| *left > 0)?;
            let mut rows = QueueRows {
                write_time: written_alone(*part, end),
                ..QueueRows::default()
            };
            let group_end = (end / RECORDS_WRITTEN_TOGETHER + 1) * RECORDS_WRITTEN_TOGETHER;
            for number in end..group_end.min(end + left) {
                rows.push(b"", 0, &record(*part, number));
            }
            Some(rows)
        });
    }
}

/// The source of a queue's partition, whose polls are short, bring nothing, or fail as those of others.
pub(crate) struct FedSource {
    queue: Box<dyn Source>,
    length: SourceLength,
    random: Random,
}

impl FedSource {
    /// Opens the partition of a part at a position. It ends where the queue ends now: what comes later is for the
    /// next run.
    ///
    /// # Errors
    ///
    /// When the store can't be read.
    pub(crate) fn open(
        graph: &Graph,
        part: SourcePart,
        position: Option<&[u8]>,
        storage: &Arc<dyn Storage>,
        length: SourceLength,
        random: Random,
    ) -> Result<FedSource, StorageError> {
        let queue = graph.source_name(part.source);
        let numbers = partitions(&**storage, &queue);
        let named = BTreeMap::from([(queue.clone(), numbers)]);
        let queues: Arc<dyn QueueReader> = StoredQueues::shared(storage, named);
        let index = u32::try_from(part.partition).expect("there are few");
        let options = QueueSourceOptions::new(&queue, index, false, QueueStart::Start);
        let opening = Opening {
            queues: Some(&queues),
            ..Opening::at(position)
        };
        let opened = open(&SourceConnector::Queue(options), opening);
        let opened = opened.map_err(|error| StorageError::Backend {
            store: "the simulated store",
            action: "open a queue",
            source: Box::new(error),
        });
        let queue = opened?;
        length.tell_end();
        Ok(FedSource {
            queue,
            length,
            random,
        })
    }
}

impl Source for FedSource {
    fn poll(
        &mut self,
        limit: PollLimit,
        records: &mut SourceRecords,
    ) -> Result<PollOutcome, SourceError> {
        if let Some(disturbed) = self.length.disturb(&mut self.random) {
            return disturbed;
        }
        let rows = match self.random.chance(20) {
            true => self.random.within(1..=limit.rows.max(1)),
            false => limit.rows,
        };
        self.queue.poll(PollLimit { rows, ..limit }, records)
    }

    fn position(&self) -> Vec<u8> {
        self.queue.position()
    }

    fn queue_partition(&self) -> Option<PartitionId> {
        self.queue.queue_partition()
    }

    fn commits_where_it_begins(&self) -> bool {
        self.queue.commits_where_it_begins()
    }

    fn write_time(&self) -> Timestamp {
        self.queue.write_time()
    }

    fn progress(&self) -> SourceProgress {
        self.queue.progress()
    }
}

impl Evidence<'_> {
    /// A queue that a sink writes holds the rows of each job that feeds it, by key, without gap, repetition or
    /// reordering, as they were made.
    pub(crate) fn compare_queue(&self, sink: usize, models: &[ShapeModel<'_>]) -> Vec<Finding> {
        let name = self.graph.sink_name(sink);
        let numbers = partitions(self.storage, &name);
        let mut findings = Vec::new();
        for (place, partition) in numbers.iter().enumerate() {
            let rows = models.iter().flat_map(|model| &model.rows);
            let is_here = |key: &[u8]| partition_of(key_hash(key), numbers.len()) == place;
            let given: Vec<Sequence<'_>> = rows
                .filter(|((_, of), _)| *of == sink)
                .map(|((producer, _), rows)| Sequence {
                    name: self.name(*producer),
                    messages: rows.iter().filter(|row| is_here(&row.key)).collect(),
                })
                .collect();
            let sound = "the store is sound between two runs";
            let page = read_queue(self.storage, *partition, 0, ALL_ROWS).expect(sound);
            let bounds = read_bounds(self.storage, *partition).expect(sound);
            let mut written = Vec::new();
            let mut labels = Vec::new();
            for (first, rows) in &page.chunks {
                for (offset, row) in (*first..).zip(0..rows.len()) {
                    written.push(Taken {
                        payload: rows.payloads.get(row).to_vec(),
                        partition: None,
                        place: format!("at offset {offset} of {partition}"),
                    });
                    labels.push((rows.keys.get(row).to_vec(), rows.event_times[row]));
                }
            }
            let what = format!("queue {name} holds");
            let mut takings = Takings::new(Checker::Sinks, what);
            let messages = takings.compare(&given, &written, self.is_finished);
            findings.append(&mut takings.findings);
            for ((message, label), row) in messages.iter().zip(&labels).zip(&written) {
                let Some(message) = message else { continue };
                if (&message.key, message.event_time) != (&label.0, label.1) {
                    findings.push(sink_finding(format!(
                        "queue {name} holds {} with another key or event time",
                        row.place
                    )));
                }
            }
            if bounds.end != written.len() as u64 {
                findings.push(sink_finding(format!(
                    "queue {name} ends at {} and has {} rows",
                    bounds.end,
                    written.len()
                )));
            }
        }
        findings
    }
}

fn sink_finding(text: String) -> Finding {
    Finding {
        checker: Checker::Sinks,
        text,
    }
}
