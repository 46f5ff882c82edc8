//! `tidelock queue read`: rows of a queue, as text or as JSON lines.

use std::io::Write;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::cli::bytes::JsonBytes;
use crate::cli::printing::print;
use crate::cli::queue::{QueueContext, partitions_named, several_partitions};
use crate::controller::queues::registry::{QueueRow, find_queue};
use crate::storage::queue_rows::{QueueLimit, read_bounds, read_queue};
use crate::types::moment::Moment;
use crate::types::queue::QueueRows;

/// How much is read at a time; one chunk is read whatever its size.
const PAGE: QueueLimit = QueueLimit {
    rows: 10_000,
    bytes: 4 << 20,
};

/// Arguments of `tidelock queue read`.
#[derive(Debug, Args)]
pub struct ReadArguments {
    /// The queue.
    pub queue: String,
    /// One of its partitions alone, from 0; without it all, one after the other.
    #[arg(long, value_name = "INDEX")]
    pub partition: Option<u32>,
    /// Begin with this offset instead of the first row that is kept; needs --partition where the queue has
    /// several.
    #[arg(long, value_name = "OFFSET")]
    pub from: Option<u64>,
    /// Print at most so many rows.
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u64>,
}

/// A row, for `-o json`: each on a line of its own.
#[derive(Serialize)]
struct RowDocument<'a> {
    partition: u32,
    offset: u64,
    key: Option<JsonBytes<'a>>,
    event_time: Option<String>,
    write_time: String,
    payload: JsonBytes<'a>,
}

/// Prints rows.
///
/// # Errors
///
/// When the rows asked for are gone or missing, the store fails, or nothing can be printed.
pub(super) fn read(context: &QueueContext<'_>, arguments: &ReadArguments) -> anyhow::Result<()> {
    let row = find_queue(&*context.storage, &arguments.queue)?;
    let places = partitions_named(&arguments.queue, &row, arguments.partition)?;
    if arguments.from.is_some() && places.len() > 1 {
        return Err(several_partitions(&arguments.queue, places.len()).into());
    }
    print(|output| write(context, arguments, &row, places, output))
}

fn write(
    context: &QueueContext<'_>,
    arguments: &ReadArguments,
    row: &QueueRow,
    places: Vec<u32>,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut printer = Printer {
        output,
        format: context.output,
        left: arguments.limit.unwrap_or(u64::MAX),
    };
    for index in places {
        let partition = row.partitions()[index as usize];
        let bounds = read_bounds(&*context.storage, partition)?;
        let mut next = arguments.from.unwrap_or(bounds.start);
        while printer.left > 0 {
            let page = read_queue(&*context.storage, partition, next, PAGE).with_context(|| {
                let queue = &arguments.queue;
                format!("failed to read queue {queue}[{index}] at offset {next}")
            })?;
            if page.chunks.is_empty() {
                break;
            }
            next = page.next;
            for (offset, rows) in &page.chunks {
                printer.print(index, *offset, rows)?;
            }
        }
    }
    Ok(())
}

struct Printer<'o> {
    output: &'o mut dyn Write,
    format: OutputFormat,
    /// How many rows may still be printed.
    left: u64,
}

impl Printer<'_> {
    fn print(&mut self, partition: u32, first: u64, rows: &QueueRows) -> anyhow::Result<()> {
        for (offset, row) in (first..).zip(0..rows.len()) {
            if self.left == 0 {
                return Ok(());
            }
            self.left -= 1;
            let (key, payload) = (rows.keys.get(row), rows.payloads.get(row));
            match self.format {
                OutputFormat::Text => self.output.write_all(payload)?,
                OutputFormat::Json => {
                    let event_time = rows.event_times[row];
                    let document = RowDocument {
                        partition,
                        offset,
                        key: (!key.is_empty()).then(|| key.into()),
                        event_time: (event_time > 0).then(|| Moment(event_time).to_string()),
                        write_time: Moment(rows.write_time).to_string(),
                        payload: payload.into(),
                    };
                    self.output.write_all(&serde_json::to_vec(&document)?)?;
                }
            }
            self.output.write_all(b"\n")?;
        }
        Ok(())
    }
}
