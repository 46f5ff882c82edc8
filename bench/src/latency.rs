//! How long a row takes through queues: from the moment at which it is due to be pushed into one, over a
//! transform that keeps a state for its key, to the moment at which a reader of another one has its answer; every
//! commit on the way durable. First as many rows as go through, then a tenth and a half of that.
//!
//! Rows are pushed on a schedule, however long earlier ones take, and counted from when they were due.

use std::fs;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tidelock::cli::open_embedded_storage;
use tidelock::cli::run::COMPILED_COMPONENTS_NAME;
use tidelock::clock::{Clock, SystemClock};
use tidelock::config;
use tidelock::controller::admission::admit;
use tidelock::controller::queues::intake::{Intake, IntakeLimits, IntakeRow};
use tidelock::controller::queues::registry::find_queue;
use tidelock::controller::{Controller, StartContext};
use tidelock::guest::{GuestOptions, GuestRuntime};
use tidelock::storage::Storage;
use tidelock::storage::queue_rows::{QueueLimit, read_bounds, read_queue};
use tidelock::types::ids::PartitionId;

use crate::LatencyArguments;
use crate::program::USERS;

/// The shares of saturation at which latency is measured, in percent.
const LOADS: [u64; 2] = [10, 50];

/// What comes in this time is not counted: queues and caches fill.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long rows may take before the measurement is given up.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// How much a reader takes at once.
const PAGE: QueueLimit = QueueLimit {
    rows: 10_000,
    bytes: 8 << 20,
};

/// Rows in one push while as many as possible are pushed.
const FLOOD_ROWS: u64 = 10_000;

/// Rows that may be on their way then: more would only wait.
const FLOOD_AHEAD: u64 = 500_000;

/// Wakes whoever waits for rows.
#[derive(Default)]
struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until it has rung again after `seen` times.
    fn wait_past(&self, seen: &mut u64, at_most: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(rung, at_most, |rung| *rung == *seen);
        *seen = *waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Reads the answers and takes down when each came.
struct Reader {
    storage: Arc<dyn Storage>,
    queue: PartitionId,
    next: u64,
    bell: Arc<Bell>,
    seen: u64,
}

impl Reader {
    /// How many rows there are to read now, without waiting.
    fn take(&mut self) -> Result<u64> {
        let page = read_queue(&*self.storage, self.queue, self.next, PAGE)?;
        let count = page.next - self.next;
        self.next = page.next;
        Ok(count)
    }

    /// Reads on to offset `end`; when each row was there.
    fn read_to(&mut self, end: u64) -> Result<Vec<Instant>> {
        let mut times = Vec::new();
        let mut last = now();
        while self.next < end {
            let count = self.take()?;
            if count > 0 {
                last = now();
                times.extend(std::iter::repeat_n(last, count as usize));
            } else if last.elapsed() > LATENCY_MAX {
                bail!("no row came for {LATENCY_MAX:?}");
            } else {
                self.bell.wait_past(&mut self.seen, Duration::from_secs(1));
            }
        }
        Ok(times)
    }
}

/// Pushes rows of many keys, one after another.
struct Pusher<'a> {
    intake: Intake<'a>,
    clock: Arc<dyn Clock>,
    key: u64,
}

impl Pusher<'_> {
    /// Commits so many rows.
    fn push(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            // A step that is prime to the number of users goes through all of them.
            self.key = (self.key + 61_803) % USERS;
            let key = format!("user-{:08}", self.key);
            let row = IntakeRow {
                key: key.as_bytes(),
                event_time: 0,
                payload: br#"{"amount":7,"item":"item-025875","channel":"web"}"#,
                number: None,
            };
            self.intake.push(row, self.clock.now())?;
        }
        Ok(self.intake.flush(self.clock.now())?)
    }
}

/// Measures and reports.
///
/// # Errors
///
/// If the pipeline can't run or a store fails.
pub(crate) fn run(arguments: &LatencyArguments) -> Result<()> {
    let folder = arguments.folder.join("latency");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    let data = folder.join("data");
    fs::create_dir_all(&data).with_context(|| format!("failed to create {}", data.display()))?;
    let file = folder.join("latency.toml");
    let component = arguments.components.join("keyed_sum_sum.wasm");
    fs::write(&file, pipeline_text(&component))
        .with_context(|| format!("failed to write {}", file.display()))?;
    let pipeline = config::load(&file)?;
    let runtime = GuestRuntime::new(GuestOptions {
        cache_directory: Some(data.join(COMPILED_COMPONENTS_NAME)),
        ..GuestOptions::default()
    })?;
    let admission = admit(&pipeline, &runtime)
        .map_err(|findings| anyhow!("the pipeline is refused: {findings:?}"))?;
    let storage = open_embedded_storage(&data)
        .with_context(|| format!("failed to open {}", data.display()))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let context = StartContext {
        runtime: &runtime,
        storage: &storage,
        clock: &clock,
        accept_change: false,
        observe_move: &mut |_| {},
    };
    let controller = Controller::open(&pipeline, &admission, context)?;
    let handle = controller.worker.handle();
    let worker = std::thread::spawn(move || controller.worker.run());

    let bell = Arc::new(Bell::default());
    let ringer = Arc::clone(&bell);
    storage.on_queue_append(Arc::new(move |_| ringer.ring()));
    let answers = find_queue(&*storage, "answers")?.partitions()[0];
    let reader = Reader {
        next: read_bounds(&*storage, answers)?.end,
        storage: Arc::clone(&storage),
        queue: answers,
        bell,
        seen: 0,
    };
    let pusher = Pusher {
        intake: Intake::open(
            &*storage,
            &find_queue(&*storage, "amounts")?,
            IntakeLimits::default(),
        )?,
        clock,
        key: 0,
    };
    let measured = measure(pusher, reader, arguments);
    handle.stop();
    let end = worker.join().map_err(|_| anyhow!("the worker panicked"))?;
    end.map_err(|failures| anyhow!("{failures:?}"))?;
    measured
}

fn pipeline_text(component: &std::path::Path) -> String {
    format!(
        "name = \"latency\"\n[components]\nsum = {component:?}\n\
         [queues.amounts]\n[queues.answers]\n\
         [sources.amounts]\ntype = \"queue\"\nqueue = \"amounts\"\n\
         [computations.sum]\ncomponent = \"sum\"\nkind = \"transform\"\ninputs = [\"amounts\"]\noutputs = [\"sums\"]\n\
         [sinks.answers]\ntype = \"queue\"\nqueue = \"answers\"\ninputs = [\"sums\"]\n"
    )
}

fn measure(mut pusher: Pusher<'_>, mut reader: Reader, arguments: &LatencyArguments) -> Result<()> {
    let length = Duration::from_secs(arguments.seconds);
    let saturation = flood(&mut pusher, &mut reader, length)?;
    println!(
        "queue -> transform with a state for each of {USERS} keys -> queue, one partition each"
    );
    println!("saturation: {saturation:.0} rows a second");
    println!(
        "{:<14}{:>14}{:>12}{:>12}{:>12}",
        "load", "rows/s", "p50, ms", "p99, ms", "most, ms"
    );
    for percent in LOADS {
        let rate = saturation * percent as f64 / 100.0;
        let mut latencies = pace(&mut pusher, &mut reader, rate, length)?;
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            let latency = latencies.get(place.min(latencies.len().saturating_sub(1)));
            latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1_000.0)
        };
        println!(
            "{:<14}{rate:>14.0}{:>12.2}{:>12.2}{:>12.2}",
            format!("{percent} %"),
            at(0.50),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}

/// Pushes as many rows as go through; how many came out in a second.
fn flood(pusher: &mut Pusher<'_>, reader: &mut Reader, length: Duration) -> Result<f64> {
    let mut end = reader.next;
    let mut counted: Option<(Instant, u64)> = None;
    let begun = now();
    while begun.elapsed() < WARM_UP + length {
        if end - reader.next < FLOOD_AHEAD {
            pusher.push(FLOOD_ROWS)?;
            end += FLOOD_ROWS;
        } else {
            reader
                .bell
                .wait_past(&mut reader.seen, Duration::from_secs(1));
        }
        while reader.take()? > 0 {}
        if counted.is_none() && begun.elapsed() >= WARM_UP {
            counted = Some((now(), reader.next));
        }
    }
    let (from, first) = counted.context("the warm-up is part of the run")?;
    let rate = (reader.next - first) as f64 / from.elapsed().as_secs_f64();
    reader.read_to(end)?;
    Ok(rate)
}

/// Pushes `rate` rows a second; how long each took from when it was due.
fn pace(
    pusher: &mut Pusher<'_>,
    reader: &mut Reader,
    rate: f64,
    length: Duration,
) -> Result<Vec<Duration>> {
    let count = ((WARM_UP + length).as_secs_f64() * rate) as u64;
    let end = reader.next + count;
    let begun = now();
    let due = |row: u64| begun + Duration::from_secs_f64(row as f64 / rate);
    let times = std::thread::scope(|scope| {
        let reading = scope.spawn(|| reader.read_to(end));
        let mut pushed = 0;
        while pushed < count {
            let late = ((begun.elapsed().as_secs_f64() * rate) as u64).min(count);
            match late > pushed {
                true => pusher.push(late - pushed)?,
                false => wait_until(due(pushed)),
            }
            pushed = late;
        }
        reading.join().map_err(|_| anyhow!("the reader panicked"))?
    })?;
    let warm = (WARM_UP.as_secs_f64() * rate) as usize;
    let rows = times.into_iter().enumerate().skip(warm);
    Ok(rows
        .map(|(row, time)| time.saturating_duration_since(due(row as u64)))
        .collect())
}

fn wait_until(moment: Instant) {
    while let Some(left) = moment
        .checked_duration_since(now())
        .filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

#[expect(clippy::disallowed_methods, reason = "to tell the time is its purpose")]
fn now() -> Instant {
    Instant::now()
}
