//! `tidelock queue`: the queues of a data directory that nobody uses at the time.
//!
//! - [`push`]: rows into a queue, each once; [`records`] says how input is cut into rows.
//! - [`list`]: which queues there are, and how far their readers are.
//! - [`read`]: rows of a queue.

pub mod list;
pub mod push;
pub mod read;
pub mod records;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::data::open;
use crate::cli::printing::print_json;
use crate::cli::run::DATA_DIRECTORY_NAME;
use crate::cli::{OpenStorage, Outcome, OutputFormat, UsageError};
use crate::clock::{Clock, SystemClock};
use crate::config::fields::{NAME_FORM, is_name};
use crate::config::queues::{QUEUE_PARTITIONS_MAX, RETENTION_BYTES, RETENTION_TIMES};
use crate::config::units;
use crate::controller::queues::QueueError;
use crate::controller::queues::registry::{
    QueueRow, create_queue, delete_queue, find_queue, finish_deletions, set_retention,
};
use crate::storage::Storage;
use crate::storage::embedded::EmbeddedStorage;
use crate::storage::embedded::directories::make_durable;
use crate::storage::queue_rows::read_bounds;
use crate::telemetry::LogOutput;
use crate::types::queue::Retention;

/// Arguments of `tidelock queue`.
#[derive(Debug, Args)]
pub struct QueueArguments {
    /// The data directory that has the queues.
    #[arg(long, global = true, value_name = "DIR", default_value = DATA_DIRECTORY_NAME)]
    pub data: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: QueueCommand,
}

/// What may be done with queues.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Make a queue, and the data directory where there is none.
    Create(CreateArguments),
    /// List queues with their offsets, retention and readers.
    List(list::ListArguments),
    /// Push rows from files or standard input; those that are in the queue already are recognized.
    Push(push::PushArguments),
    /// Print rows.
    Read(read::ReadArguments),
    /// Let rows go from the start of a queue.
    Trim(TrimArguments),
    /// Say how long rows are kept.
    SetRetention(SetRetentionArguments),
    /// Delete a queue with all its rows.
    Delete(DeleteArguments),
}

/// Arguments of `tidelock queue create`.
#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The queue's name.
    #[arg(value_parser = parse_name)]
    pub queue: String,
    /// How many partitions it has; rows of one key are in one of them, in order.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUE_PARTITIONS_MAX)))]
    pub partitions: u32,
    /// How long its rows are kept [default: forever].
    #[command(flatten)]
    pub retention: RetentionArguments,
}

/// How long rows are kept, for the command line.
#[derive(Debug, Args)]
pub struct RetentionArguments {
    /// Keep rows for so long after they were written, as in "7d".
    #[arg(long, value_name = "DURATION", value_parser = parse_retention_time)]
    pub retention_time: Option<Duration>,
    /// Keep so many bytes of rows, all partitions together, as in "10GiB".
    #[arg(long, value_name = "SIZE", value_parser = parse_retention_bytes)]
    pub retention_bytes: Option<u64>,
}

impl RetentionArguments {
    fn retention(&self) -> Retention {
        Retention {
            time_ms: self.retention_time.map(|time| time.as_millis() as u64),
            bytes: self.retention_bytes,
        }
    }
}

/// Arguments of `tidelock queue set-retention`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("bound").required(true).multiple(true)
    .args(["retention_time", "retention_bytes", "forever"])))]
pub struct SetRetentionArguments {
    /// The queue.
    pub queue: String,
    /// What is kept from now on, instead of what was said before.
    #[command(flatten)]
    pub retention: RetentionArguments,
    /// Keep all rows.
    #[arg(long, conflicts_with_all = ["retention_time", "retention_bytes"])]
    pub forever: bool,
}

/// Arguments of `tidelock queue trim`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["before", "all"])))]
pub struct TrimArguments {
    /// The queue.
    pub queue: String,
    /// One of its partitions alone, from 0.
    #[arg(long, value_name = "INDEX")]
    pub partition: Option<u32>,
    /// Let rows below this offset go; needs --partition where the queue has several.
    #[arg(long, value_name = "OFFSET")]
    pub before: Option<u64>,
    /// Let all rows go.
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `tidelock queue delete`.
#[derive(Debug, Args)]
pub struct DeleteArguments {
    /// The queue.
    pub queue: String,
    /// Delete it although sources or sinks of pipelines use it. Their next run makes an empty one, which
    /// sources take only with --accept-change.
    #[arg(long)]
    pub even_if_used: bool,
}

/// Does something with queues.
///
/// # Errors
///
/// Whatever keeps it from being done.
pub fn queue(
    arguments: &QueueArguments,
    output: OutputFormat,
    logs: &LogOutput,
    open_storage: &OpenStorage,
) -> anyhow::Result<Outcome> {
    let data = &arguments.data;
    match &arguments.command {
        QueueCommand::Create(_) => {
            make_durable(data).context("failed to make the data directory")?;
        }
        _ if !EmbeddedStorage::exists_in(data) => anyhow::bail!(
            "there is no data directory {}; name the one of a run with --data, or make one with `tidelock queue create`",
            data.display()
        ),
        _ => {}
    }
    let Some(storage) = open(data, open_storage)?.free_or_tell(logs) else {
        return Ok(Outcome::Conflict);
    };
    let context = QueueContext {
        storage,
        clock: Arc::new(SystemClock::start()),
        output,
        logs,
    };
    let done = finish_deletions(&*context.storage)
        .map_err(anyhow::Error::new)
        .and_then(|()| context.carry_out(&arguments.command))
        .and_then(|()| Ok(context.storage.check_queue_ends()?));
    let is_conflict = |error: &anyhow::Error| {
        let error = error.downcast_ref::<QueueError>();
        error.is_some_and(QueueError::is_conflict)
    };
    match done {
        Err(error) if is_conflict(&error) => {
            logs.print_line(&format!("error: {error:#}"));
            Ok(Outcome::Conflict)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(Outcome::Done),
    }
}

/// What the commands work with.
struct QueueContext<'a> {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    output: OutputFormat,
    logs: &'a LogOutput,
}

/// What was done to a queue, for `-o json`.
#[derive(Serialize)]
struct DoneDocument<'a> {
    queue: &'a str,
    done: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trimmed_rows: Option<u64>,
}

impl QueueContext<'_> {
    fn carry_out(&self, command: &QueueCommand) -> anyhow::Result<()> {
        match command {
            QueueCommand::Create(arguments) => self.create(arguments),
            QueueCommand::List(arguments) => list::list(self, arguments),
            QueueCommand::Push(arguments) => push::push(self, arguments),
            QueueCommand::Read(arguments) => read::read(self, arguments),
            QueueCommand::Trim(arguments) => self.trim(arguments),
            QueueCommand::SetRetention(arguments) => self.set_retention(arguments),
            QueueCommand::Delete(arguments) => self.delete(arguments),
        }
    }

    fn create(&self, arguments: &CreateArguments) -> anyhow::Result<()> {
        let CreateArguments {
            queue,
            partitions,
            retention,
        } = arguments;
        let retention = retention.retention();
        create_queue(
            &*self.storage,
            queue,
            *partitions,
            retention,
            self.clock.now(),
        )?;
        self.done(queue, "created", None)
    }

    fn set_retention(&self, arguments: &SetRetentionArguments) -> anyhow::Result<()> {
        let retention = arguments.retention.retention();
        set_retention(&*self.storage, &arguments.queue, retention)?;
        self.done(&arguments.queue, "retention set", None)
    }

    fn delete(&self, arguments: &DeleteArguments) -> anyhow::Result<()> {
        delete_queue(&*self.storage, &arguments.queue, arguments.even_if_used)?;
        self.done(&arguments.queue, "deleted", None)
    }

    fn trim(&self, arguments: &TrimArguments) -> anyhow::Result<()> {
        let row = find_queue(&*self.storage, &arguments.queue)?;
        let places = partitions_named(&arguments.queue, &row, arguments.partition)?;
        if arguments.before.is_some() && places.len() > 1 {
            return Err(several_partitions(&arguments.queue, places.len()).into());
        }
        let (mut trimmed, mut trims) = (0, Vec::new());
        for index in places {
            let partition = row.partitions()[index as usize];
            let bounds = read_bounds(&*self.storage, partition)?;
            let before = arguments.before.unwrap_or(bounds.end).min(bounds.end);
            trimmed += before.saturating_sub(bounds.start);
            trims.push((partition, before));
        }
        self.storage.trim_queues(&trims)?;
        self.done(&arguments.queue, "trimmed", Some(trimmed))
    }

    fn done(
        &self,
        queue: &str,
        done: &'static str,
        trimmed_rows: Option<u64>,
    ) -> anyhow::Result<()> {
        match self.output {
            OutputFormat::Json => print_json(&DoneDocument {
                queue,
                done,
                trimmed_rows,
            }),
            OutputFormat::Text => {
                let rows = trimmed_rows.map_or_else(String::new, |rows| format!(", {rows} rows"));
                self.logs
                    .print_line(&format!("queue {queue}: {done}{rows}"));
                Ok(())
            }
        }
    }
}

/// The places of the partitions that a command is about: all, or the one that it names.
fn partitions_named(queue: &str, row: &QueueRow, index: Option<u32>) -> anyhow::Result<Vec<u32>> {
    let count = row.partition_count();
    match index {
        None => Ok((0..count).collect()),
        Some(index) if index < count => Ok(vec![index]),
        Some(index) => anyhow::bail!(
            "queue {queue} has no partition {index}; it has {count}, from 0 to {}",
            count - 1
        ),
    }
}

/// That an offset was named without the partition that it is in.
fn several_partitions(queue: &str, count: usize) -> UsageError {
    UsageError(format!(
        "queue {queue} has {count} partitions, each with offsets of its own; name one with --partition"
    ))
}

fn parse_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(NAME_FORM.to_owned()),
    }
}

fn parse_retention_time(text: &str) -> Result<Duration, String> {
    let time = units::duration(text).ok_or(units::DURATION_FORM)?;
    match RETENTION_TIMES.contains(&time) {
        true => Ok(time),
        false => Err(format!(
            "write a duration from {} to {}",
            units::show_duration(*RETENTION_TIMES.start()),
            units::show_duration(*RETENTION_TIMES.end())
        )),
    }
}

fn parse_retention_bytes(text: &str) -> Result<u64, String> {
    let bytes = units::size_bytes(text).ok_or(units::SIZE_FORM)?;
    match RETENTION_BYTES.contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!(
            "write a size from {} to {}",
            units::show_size(*RETENTION_BYTES.start()),
            units::show_size(*RETENTION_BYTES.end())
        )),
    }
}
