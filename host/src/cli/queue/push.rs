//! `tidelock queue push`: rows from files or standard input into a queue. With numbers each is in the queue once,
//! however often the push is killed and repeated.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::cli::UsageError;
use crate::cli::printing::print_json;
use crate::cli::queue::QueueContext;
use crate::cli::queue::records::{LineOptions, LineRow, PushFormat, parse_line, read_line};
use crate::controller::queues::intake::{
    Intake, IntakeCounts, IntakeLimits, IntakeRow, PRODUCER_BYTES_MAX, ProducerNumber,
};
use crate::controller::queues::registry::find_queue;

/// The longest line that is pushed, in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;

/// The greatest number of rows that one commit may be told to bring.
const BATCH_ROWS_MAX: u64 = 1_000_000;

/// What some programs begin a file of JSON with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much of the input is read at a time, in bytes.
const INPUT_BUFFER_BYTES: usize = 256 << 10;

/// How often progress is shown.
const DRAW_PERIOD: Duration = Duration::from_millis(200);

/// How often a plain line is printed where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(2);

/// Arguments of `tidelock queue push`.
#[derive(Debug, Args)]
pub struct PushArguments {
    /// The queue.
    pub queue: String,
    /// Files to push, in this order; "-" is standard input [default: -].
    pub files: Vec<PathBuf>,
    /// What a line of the input is.
    #[arg(long, value_enum, default_value_t = PushFormat::Lines)]
    pub format: PushFormat,
    /// The field of a JSON line that is the row's key.
    #[arg(long, value_name = "FIELD")]
    pub key_field: Option<String>,
    /// The field of a JSON line that is the row's event time: milliseconds since 1970, or as RFC 3339 writes it.
    #[arg(long, value_name = "FIELD")]
    pub event_time_field: Option<String>,
    /// Who sends the rows: those that it has sent under the same or a greater number are recognized and not
    /// pushed again.
    #[arg(long, value_name = "ID")]
    pub producer_id: Option<String>,
    /// The number of the first row; each further one has the next. Records say their numbers themselves.
    #[arg(long, value_name = "NUMBER", requires = "producer_id")]
    pub seq_no_start: Option<u64>,
    /// How many rows one commit brings at most.
    #[arg(long, value_name = "ROWS", default_value_t = IntakeLimits::default().rows as u64,
        value_parser = clap::value_parser!(u64).range(1..=BATCH_ROWS_MAX))]
    pub max_batch_rows: u64,
}

/// What was pushed, for `-o json`.
#[derive(Serialize)]
struct PushDocument<'a> {
    queue: &'a str,
    /// Rows that are in the queue by this push.
    pushed: u64,
    /// Rows that were in it before.
    repeated: u64,
}

/// Pushes rows.
///
/// # Errors
///
/// When the input can't be read or is malformed: what stands before that place is in the queue then. When the store
/// fails.
pub(super) fn push(context: &QueueContext<'_>, arguments: &PushArguments) -> anyhow::Result<()> {
    refuse_misplaced_options(arguments)?;
    let queue = find_queue(&*context.storage, &arguments.queue)?;
    let limits = IntakeLimits {
        rows: arguments.max_batch_rows as usize,
        ..IntakeLimits::default()
    };
    let intake = Intake::open(&*context.storage, &queue, limits)?;
    tracing::debug!(queue = arguments.queue, "queue opened");
    let mut pusher = Pusher {
        context,
        arguments,
        options: LineOptions {
            key_field: arguments.key_field.clone(),
            event_time_field: arguments.event_time_field.clone(),
        },
        intake,
        next_seq_no: arguments.seq_no_start.unwrap_or(1),
        view: PushView::start(context),
    };
    let standard_input = [PathBuf::from("-")];
    let files = match arguments.files.as_slice() {
        [] => &standard_input,
        files => files,
    };
    let pushed = files.iter().try_for_each(|file| pusher.push_file(file));
    // What stands before a malformed line is pushed all the same, so that it is known what is in.
    let flushed = pusher.intake.flush(context.clock.now());
    pusher.view.finish();
    let counts = pusher.intake.counts();
    pushed.map_err(|error| stopped_at(error, counts))?;
    flushed?;
    pusher.intake.close()?;
    report(context, &arguments.queue, counts)
}

fn refuse_misplaced_options(arguments: &PushArguments) -> anyhow::Result<()> {
    let has_field = arguments.key_field.is_some() || arguments.event_time_field.is_some();
    if has_field && arguments.format != PushFormat::Jsonl {
        let finding = "--key-field and --event-time-field are of JSON lines; add --format jsonl, or remove them";
        return Err(UsageError(finding.to_owned()).into());
    }
    if arguments.seq_no_start.is_some() && arguments.format == PushFormat::Records {
        let finding = "records say their numbers themselves, in seq_no; remove --seq-no-start";
        return Err(UsageError(finding.to_owned()).into());
    }
    if let Some(id) = &arguments.producer_id {
        check_producer(id).map_err(|finding| UsageError(format!("--producer-id: {finding}")))?;
    }
    Ok(())
}

fn check_producer(id: &str) -> Result<(), String> {
    match (1..=PRODUCER_BYTES_MAX).contains(&id.len()) {
        true => Ok(()),
        false => Err(format!(
            "a producer id of {} bytes; use 1 to {PRODUCER_BYTES_MAX}",
            id.len()
        )),
    }
}

fn stopped_at(error: anyhow::Error, counts: IntakeCounts) -> anyhow::Error {
    let IntakeCounts { pushed, repeated } = counts;
    error.context(format!(
        "stopped; {pushed} rows before it were pushed{}",
        match repeated {
            0 => String::new(),
            repeated => format!(", {repeated} were in the queue already"),
        }
    ))
}

/// A push that goes on.
struct Pusher<'a, 's> {
    context: &'a QueueContext<'s>,
    arguments: &'a PushArguments,
    options: LineOptions,
    intake: Intake<'a>,
    /// The number of the next row of a producer that the command line names.
    next_seq_no: u64,
    view: PushView<'a, 's>,
}

impl Pusher<'_, '_> {
    fn push_file(&mut self, file: &PathBuf) -> anyhow::Result<()> {
        if file.as_os_str() == "-" {
            let mut input = BufReader::with_capacity(INPUT_BUFFER_BYTES, io::stdin().lock());
            return self.push_lines("standard input", &mut input, true);
        }
        let name = file.display().to_string();
        let opened = File::open(file).with_context(|| format!("failed to open {name}"))?;
        let may_wait = opened.metadata().map_or(true, |opened| !opened.is_file());
        let mut input = BufReader::with_capacity(INPUT_BUFFER_BYTES, opened);
        self.push_lines(&name, &mut input, may_wait)
    }

    fn push_lines<R: io::Read>(
        &mut self,
        name: &str,
        input: &mut BufReader<R>,
        may_wait: bool,
    ) -> anyhow::Result<()> {
        let mut line = Vec::new();
        let mut number = 0_u64;
        loop {
            if may_wait && memchr::memchr(b'\n', input.buffer()).is_none() {
                // Whoever writes to a pipe may be long in coming back, and have left in the middle of a line: the
                // whole lines that it has written are committed.
                self.intake.flush(self.context.clock.now())?;
            }
            number += 1;
            let place = || format!("{name}:{number}");
            let read = read_line(input, &mut line, LINE_BYTES_MAX);
            if !read.with_context(place)? {
                return Ok(());
            }
            let text = match line.strip_prefix(BYTE_ORDER_MARK) {
                Some(text) if number == 1 && self.arguments.format != PushFormat::Lines => text,
                _ => &line,
            };
            let row = parse_line(self.arguments.format, text, &self.options);
            let row = row.map_err(anyhow::Error::msg).with_context(place)?;
            if let Some(row) = row {
                self.push_row(&row).with_context(place)?;
            }
            self.view.read(line.len() + 1, self.intake.counts());
        }
    }

    fn push_row(&mut self, row: &LineRow<'_>) -> anyhow::Result<()> {
        let given = self.arguments.producer_id.as_deref();
        let number = match (row.producer_id.as_deref().or(given), row.seq_no) {
            (None, None) => None,
            (None, Some(seq_no)) => anyhow::bail!(
                "seq_no {seq_no} without a producer; add producer_id to the record, or --producer-id"
            ),
            (Some(producer), Some(seq_no)) => Some((producer, seq_no)),
            (Some(_), None) if self.arguments.format == PushFormat::Records => {
                anyhow::bail!(
                    "a record of a producer without seq_no; add it, or leave the producer out"
                )
            }
            (Some(producer), None) => {
                let seq_no = self.next_seq_no;
                let next = seq_no.checked_add(1);
                self.next_seq_no = next.context("the numbers end at 2^64")?;
                Some((producer, seq_no))
            }
        };
        if let Some((producer, _)) = number {
            check_producer(producer).map_err(anyhow::Error::msg)?;
        }
        let row = IntakeRow {
            key: &row.key,
            event_time: row.event_time,
            payload: &row.payload,
            number: number.map(|(producer, seq_no)| ProducerNumber {
                producer: producer.as_bytes(),
                seq_no,
            }),
        };
        Ok(self.intake.push(row, self.context.clock.now())?)
    }
}

fn report(context: &QueueContext<'_>, queue: &str, counts: IntakeCounts) -> anyhow::Result<()> {
    let IntakeCounts { pushed, repeated } = counts;
    match context.output {
        OutputFormat::Json => print_json(&PushDocument {
            queue,
            pushed,
            repeated,
        }),
        OutputFormat::Text => {
            let known = match repeated {
                0 => String::new(),
                repeated => format!(", {repeated} were in it already"),
            };
            let line = format!("queue {queue}: {pushed} rows pushed{known}");
            context.logs.print_line(&line);
            Ok(())
        }
    }
}

/// Shows how far a push is: a bar on a terminal, plain lines elsewhere.
struct PushView<'a, 's> {
    context: &'a QueueContext<'s>,
    bar: Option<ProgressBar>,
    bytes: u64,
    lines: u64,
    shown: Duration,
}

impl<'a, 's> PushView<'a, 's> {
    /// How many lines go by between two looks at the clock.
    const LINES_PER_LOOK: u64 = 256;

    fn start(context: &'a QueueContext<'s>) -> PushView<'a, 's> {
        let bar = context.logs.is_terminal() && !io::stdin().is_terminal();
        let bar = bar.then(|| {
            let style = ProgressStyle::with_template("{msg}  {elapsed_precise}")
                .expect("the template is constant");
            context
                .logs
                .bars()
                .add(ProgressBar::new_spinner().with_style(style))
        });
        PushView {
            context,
            bar,
            bytes: 0,
            lines: 0,
            shown: context.clock.elapsed(),
        }
    }

    fn read(&mut self, bytes: usize, counts: IntakeCounts) {
        self.bytes += bytes as u64;
        self.lines += 1;
        if !self.lines.is_multiple_of(Self::LINES_PER_LOOK) {
            return;
        }
        let period = match self.bar {
            Some(_) => DRAW_PERIOD,
            None => LINE_PERIOD,
        };
        let now = self.context.clock.elapsed();
        if now < self.shown + period {
            return;
        }
        self.shown = now;
        let text = format!(
            "{} rows pushed, {} were there already, {} read",
            HumanCount(counts.pushed),
            HumanCount(counts.repeated),
            HumanBytes(self.bytes)
        );
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.context.logs.print_line(&text),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.context.logs.bars().remove(bar);
        }
    }
}
