//! The tables of queues, and of the sources and sinks that read and write them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use crate::config::fields::{Fields, Located};
use crate::config::report::nearest;
use crate::config::tables::{Tables, on_failure};
use crate::types::pipeline::{
    QueueOptions, QueueSourceOptions, QueueStart, SinkConnector, SinkOptions, SourceConnector,
    SourceOptions,
};
use crate::types::queue::Retention;

/// The greatest number of partitions of a queue: each is a job of every pipeline that reads it.
pub const QUEUE_PARTITIONS_MAX: u32 = 256;

/// For how long rows may be told to be kept, by the host's clock.
pub const RETENTION_TIMES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(100 * 365 * 24 * 3_600);

/// How many bytes of rows may be told to be kept.
pub const RETENTION_BYTES: RangeInclusive<u64> = 1..=1 << 50;

impl Tables<'_> {
    pub(super) fn queues(&self, fields: &mut Fields<'_>) -> BTreeMap<String, QueueOptions> {
        let mut queues = BTreeMap::new();
        for (name, mut fields) in fields.named_tables("queues", "queue") {
            let partitions = fields.number("partitions", 1..=u64::from(QUEUE_PARTITIONS_MAX));
            let options = QueueOptions {
                // The range is that of a u32.
                partitions: partitions.map_or(1, |partitions| partitions.value as u32),
                retention: self.retention(&mut fields),
                line: name.line,
            };
            fields.finish();
            queues.insert(name.value, options);
        }
        queues
    }

    /// A time, the word for no bound, or a table with a time, a size or both.
    fn retention(&self, fields: &mut Fields<'_>) -> Option<Retention> {
        let Located { value, line } = fields.raw("retention")?;
        match value {
            DeValue::Table(_) => {
                let mut table = fields.table("retention")?;
                let time = table.duration("time", RETENTION_TIMES);
                let bytes = table.size("bytes", RETENTION_BYTES);
                if !table.has("time") && !table.has("bytes") {
                    let message = format!("{} has neither time nor bytes", table.what);
                    let remedy = "write one of them or both, or retention = \"forever\"";
                    self.report.error(line, message, remedy);
                }
                table.finish();
                Some(Retention {
                    time_ms: time.map(|time| time.value.as_millis() as u64),
                    bytes: bytes.map(|bytes| bytes.value),
                })
            }
            DeValue::String(word) if word == "forever" => Some(Retention::default()),
            _ => {
                let time = fields.duration("retention", RETENTION_TIMES)?;
                Some(Retention {
                    time_ms: Some(time.value.as_millis() as u64),
                    bytes: None,
                })
            }
        }
    }

    /// A source of type queue: a partition of the source for each one of the queue.
    pub(super) fn queue_source(
        &self,
        fields: &mut Fields<'_>,
        queues: &BTreeMap<String, QueueOptions>,
    ) -> Option<SourceOptions> {
        let queue = self.queue_named(fields, queues);
        let follow = fields.switch("follow").is_none_or(|follow| follow.value);
        let starts = [("start", QueueStart::Start), ("end", QueueStart::End)];
        let from = fields.choice("from", &starts, &[]);
        let from = from.map_or_else(QueueStart::default, |from| from.value);
        let watermarks = self.watermarks(fields);
        let on_failure = on_failure(fields);
        let (queue, options) = queue?;
        let partition =
            |index| SourceConnector::Queue(QueueSourceOptions::new(&queue, index, follow, from));
        Some(SourceOptions {
            partitions: (0..options.partitions).map(partition).collect(),
            // None of them has an end while it is followed, and none is older than another.
            parallel_partitions: Some(options.partitions as usize),
            watermarks,
            on_failure,
            line: fields.line,
        })
    }

    /// A sink of type queue.
    pub(super) fn queue_sink(
        &self,
        fields: &mut Fields<'_>,
        queues: &BTreeMap<String, QueueOptions>,
    ) -> Option<SinkConnector> {
        let (queue, options) = self.queue_named(fields, queues)?;
        Some(SinkConnector::Queue {
            queue,
            partitions: options.partitions,
        })
    }

    /// The declared queue that `queue` names.
    fn queue_named(
        &self,
        fields: &mut Fields<'_>,
        queues: &BTreeMap<String, QueueOptions>,
    ) -> Option<(String, QueueOptions)> {
        let queue = fields.text("queue");
        let remedy = "write queue = \"...\", a name under [queues]";
        let queue = fields.require("queue", queue, remedy)?;
        if let Some(options) = queues.get(&queue.value) {
            return Some((queue.value, *options));
        }
        let message = format!("{} names unknown queue {:?}", fields.what, queue.value);
        let remedy = match nearest(&queue.value, queues.keys().map(String::as_str)) {
            Some(name) => format!("did you mean {name:?}?"),
            None => format!("write [queues.{}] with its partitions", queue.value),
        };
        self.report.error(queue.line, message, remedy);
        None
    }

    /// A queue has one sink of a pipeline, which may take many streams: rows of two would come in an order that
    /// nothing tells. One that is read as well brings back what was written.
    pub(super) fn check_queue_users(
        &self,
        sources: &BTreeMap<String, SourceOptions>,
        sinks: &BTreeMap<String, SinkOptions>,
    ) {
        let mut writers: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, sink) in sinks {
            let SinkConnector::Queue { queue, .. } = &sink.connector else {
                continue;
            };
            if let Some(first) = writers.insert(queue, name) {
                let message = format!("sinks {first} and {name} both write queue {queue}");
                let remedy = "keep one of them, with the inputs of both";
                self.report.error(sink.line, message, remedy);
            }
        }
        for (name, source) in sources {
            let Some(SourceConnector::Queue(options)) = source.partitions.first() else {
                continue;
            };
            if let Some(writer) = writers.get(options.queue.as_str()) {
                let queue = &options.queue;
                let message =
                    format!("source {name} reads queue {queue}, which sink {writer} writes");
                let remedy = "see that what comes back is not sent round again without end";
                self.report.warning(source.line, message, remedy);
            }
        }
    }
}
