//! Which pipelines of the store read and write a queue, and how far its readers are.

use std::fmt;

use crate::controller::registry::rows::{
    NodeOfPipeline, sinks_of_all_pipelines, sources_of_all_pipelines,
};
use crate::controller::source_rows::listed_partitions;
use crate::source::queue::{QueuePosition, describe_kind};
use crate::storage::{Storage, StorageError, rows};
use crate::types::ids::PartitionId;
use crate::types::pipeline::{QueueSourceOptions, QueueStart};

/// A source or sink that uses a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueUser {
    /// Its pipeline.
    pub pipeline: String,
    /// "source" or "sink".
    pub role: &'static str,
    /// The source or sink.
    pub name: String,
}

impl fmt::Display for QueueUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueueUser {
            pipeline,
            role,
            name,
        } = self;
        write!(formatter, "{role} {name} of pipeline {pipeline}")
    }
}

/// The sources and sinks, of any pipeline as it ran last, that use a queue.
///
/// # Errors
///
/// When the store fails.
pub fn users_of(storage: &dyn Storage, queue: &str) -> Result<Vec<QueueUser>, StorageError> {
    let mut users = Vec::new();
    for source in sources_reading(storage, queue)? {
        users.push(QueueUser {
            pipeline: source.pipeline,
            role: "source",
            name: source.name,
        });
    }
    for sink in sinks_of_all_pipelines(storage)? {
        let is_there = sink.row.removed_in.is_none();
        if is_there && sink.row.last.queue.as_deref() == Some(queue) {
            users.push(QueueUser {
                pipeline: sink.pipeline,
                role: "sink",
                name: sink.name,
            });
        }
    }
    Ok(users)
}

/// How far a source has read a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReading {
    /// Its pipeline.
    pub pipeline: String,
    /// The source.
    pub source: String,
    /// For each partition of the queue the offset that comes next; `None` where it has not begun.
    pub next: Vec<Option<u64>>,
}

/// How far the sources, of any pipeline as it ran last, have read a queue of these partitions.
///
/// # Errors
///
/// When the store fails.
pub fn readings_of(
    storage: &dyn Storage,
    queue: &str,
    partitions: &[PartitionId],
) -> Result<Vec<QueueReading>, StorageError> {
    let mut readings = Vec::new();
    for source in sources_reading(storage, queue)? {
        let readers = listed_partitions(storage, &source.pipeline, &source.name)?;
        let mut next = Vec::with_capacity(partitions.len());
        for (index, partition) in (0..).zip(partitions) {
            let name = QueueSourceOptions::new(queue, index, true, QueueStart::Start);
            let position = match readers.get(&name.partition_name) {
                Some(reader) => rows::read_source_position(storage, *reader)?,
                None => None,
            };
            let position = position.and_then(|encoded| QueuePosition::decode(&encoded).ok());
            // One of a queue that was deleted says nothing of this one.
            let position = position.filter(|position| position.partition == *partition);
            next.push(position.map(|position| position.next));
        }
        readings.push(QueueReading {
            pipeline: source.pipeline,
            source: source.name,
            next,
        });
    }
    Ok(readings)
}

fn sources_reading(
    storage: &dyn Storage,
    queue: &str,
) -> Result<Vec<NodeOfPipeline<String>>, StorageError> {
    let kind = describe_kind(queue);
    let mut sources = sources_of_all_pipelines(storage)?;
    sources.retain(|source| source.row.removed_in.is_none() && source.row.last == kind);
    Ok(sources)
}
