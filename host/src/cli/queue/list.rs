//! `tidelock queue list`: the queues of a data directory, from where to where they have rows, how long those are
//! kept, and how far their readers are.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use comfy_table::{Table, presets};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::cli::printing::{print, print_json};
use crate::cli::queue::QueueContext;
use crate::config::units;
use crate::controller::queues::registry::{QueueRow, all_queues, find_queue};
use crate::controller::queues::users::{readings_of, users_of};
use crate::storage::queue_rows::read_bounds;
use crate::storage::{Storage, StorageError};
use crate::types::moment::Moment;

/// Arguments of `tidelock queue list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// One queue alone.
    pub queue: Option<String>,
}

/// A queue.
#[derive(Debug, Serialize)]
struct QueueDocument {
    queue: String,
    created_at: String,
    retention: RetentionDocument,
    partitions: Vec<PartitionDocument>,
    /// Sources that read it.
    readers: Vec<ReaderDocument>,
    /// Sinks that write it, as "sink a of pipeline b".
    writers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RetentionDocument {
    /// Null: not by time.
    time_ms: Option<u64>,
    /// Null: not by size.
    bytes: Option<u64>,
}

/// A partition of a queue.
#[derive(Debug, Serialize)]
struct PartitionDocument {
    index: usize,
    /// Its number in the data directory, as logs show it.
    partition: String,
    /// Offset of the first row that is kept.
    start: u64,
    /// Offset that the next row gets.
    end: u64,
    rows: u64,
    bytes: u64,
}

/// How far a source is.
#[derive(Debug, Serialize)]
struct ReaderDocument {
    pipeline: String,
    source: String,
    /// For each partition the offset that comes next; null where it has not begun.
    next: Vec<Option<u64>>,
    /// Rows that it has not read, those that are gone included.
    lag: u64,
}

/// Lists queues.
///
/// # Errors
///
/// When there is no such queue, the store fails, or nothing can be printed.
pub(super) fn list(context: &QueueContext<'_>, arguments: &ListArguments) -> anyhow::Result<()> {
    let storage = &*context.storage;
    let queues = match &arguments.queue {
        Some(name) => [(name.clone(), find_queue(storage, name)?)].into(),
        None => all_queues(storage)?,
    };
    let mut documents = Vec::with_capacity(queues.len());
    for (name, row) in queues {
        documents.push(describe(storage, name, &row)?);
    }
    match context.output {
        OutputFormat::Json => print_json(&documents),
        OutputFormat::Text if documents.is_empty() => {
            context.logs.print_line("there is no queue");
            Ok(())
        }
        OutputFormat::Text => print(|output| write_text(&documents, output)),
    }
}

fn describe(
    storage: &dyn Storage,
    queue: String,
    row: &QueueRow,
) -> Result<QueueDocument, StorageError> {
    let numbers = row.partitions();
    let mut partitions = Vec::with_capacity(numbers.len());
    for (index, number) in numbers.iter().enumerate() {
        let bounds = read_bounds(storage, *number)?;
        partitions.push(PartitionDocument {
            index,
            partition: number.to_string(),
            start: bounds.start,
            end: bounds.end,
            rows: bounds.len(),
            bytes: bounds.size_bytes(),
        });
    }
    let readings = readings_of(storage, &queue, &numbers)?.into_iter();
    let readers = readings.map(|reading| {
        let of_partition = |(partition, next): (&PartitionDocument, &Option<u64>)| {
            partition
                .end
                .saturating_sub(next.unwrap_or(partition.start))
        };
        ReaderDocument {
            lag: partitions.iter().zip(&reading.next).map(of_partition).sum(),
            pipeline: reading.pipeline,
            source: reading.source,
            next: reading.next,
        }
    });
    let readers = readers.collect();
    let users = users_of(storage, &queue)?.into_iter();
    let writers = users.filter(|user| user.role == "sink");
    Ok(QueueDocument {
        created_at: Moment(row.created_at).to_string(),
        retention: RetentionDocument {
            time_ms: row.retention.time_ms,
            bytes: row.retention.bytes,
        },
        readers,
        writers: writers.map(|writer| writer.to_string()).collect(),
        partitions,
        queue,
    })
}

fn write_text(queues: &[QueueDocument], output: &mut dyn Write) -> anyhow::Result<()> {
    for queue in queues {
        let retention = shown_retention(&queue.retention);
        let created = &queue.created_at;
        writeln!(
            output,
            "queue {}, kept {retention}, made {created}",
            queue.queue
        )?;
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["partition", "start", "end", "rows", "bytes"]);
        for partition in &queue.partitions {
            table.add_row([
                partition.index.to_string(),
                partition.start.to_string(),
                partition.end.to_string(),
                HumanCount(partition.rows).to_string(),
                HumanBytes(partition.bytes).to_string(),
            ]);
        }
        for line in table.lines() {
            writeln!(output, "  {}", line.trim_end())?;
        }
        for reader in &queue.readers {
            let ReaderDocument {
                pipeline,
                source,
                lag,
                ..
            } = reader;
            let lag = HumanCount(*lag);
            writeln!(
                output,
                "  read by source {source} of pipeline {pipeline}, {lag} rows behind"
            )?;
        }
        for writer in &queue.writers {
            writeln!(output, "  written by {writer}")?;
        }
    }
    Ok(())
}

fn shown_retention(retention: &RetentionDocument) -> String {
    let time = retention.time_ms.map(Duration::from_millis);
    let time = time.map(units::show_duration);
    let bytes = retention.bytes.map(units::show_size);
    match (time, bytes) {
        (None, None) => "forever".to_owned(),
        (Some(time), None) => format!("for {time}"),
        (None, Some(bytes)) => format!("up to {bytes}"),
        (Some(time), Some(bytes)) => format!("for {time} and up to {bytes}"),
    }
}
