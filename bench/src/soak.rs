//! Hours of updates over many more keys than fit in memory: whether memory and disk stay where they are, what
//! a record costs on the disk, and how long the engine takes to go on after a kill.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tidelock::cli::open_embedded_storage;
use tidelock::storage::rows;
use tidelock::storage::{Storage, keys};
use tidelock::types::ids::PartitionId;

use crate::SoakArguments;
use crate::cost::field;

/// How often memory and disk are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// How long a restart may take before it counts as none.
const RESTART_MAX: Duration = Duration::from_secs(120);

/// By how much the last third of the run may pass the one before and still be called flat.
const FLAT: f64 = 1.10;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// What a job says once an epoch of it is durable.
const COMMITTED: &str = "epoch committed";

/// What was seen at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    elapsed: Duration,
    memory_bytes: u64,
    disk_bytes: u64,
}

/// Lets the engine run, kills it, starts it again, and reports.
///
/// # Errors
///
/// If the engine ends by itself, or its store can't be read.
pub(crate) fn run(arguments: &SoakArguments) -> Result<()> {
    let folder = arguments.engine.folder.join("soak");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    let pipeline = folder.join("soak.toml");
    fs::write(&pipeline, pipeline_text(arguments))
        .with_context(|| format!("failed to write {}", pipeline.display()))?;
    let data = folder.join("data");

    let mut engine = Engine::start(arguments, &pipeline, &data)?;
    let samples = watch(&mut engine, &data, arguments)?;
    let written_bytes = engine.written_bytes();
    engine.kill()?;
    let after_kill = directory_bytes(&data);

    let begun = now();
    let mut again = Engine::start(arguments, &pipeline, &data)?;
    let restart = again.first_commit(begun)?;
    again.kill()?;

    report(
        arguments,
        &samples,
        written_bytes,
        after_kill,
        restart,
        &data,
    )
}

/// A source that makes records, and a transform that counts and adds up for each key.
fn pipeline_text(arguments: &SoakArguments) -> String {
    let mut text = format!(
        "name = \"soak\"\n\
         [limits]\nstate_cache = \"64MiB\"\n\
         [components]\nsum = {:?}\n\
         [sources.amounts]\ntype = \"generator\"\nkeys = {}\nskew = {:.1}\nseed = 1\n",
        arguments.engine.components.join("keyed_sum_sum.wasm"),
        arguments.keys,
        arguments.skew,
    );
    if let Some(rate) = arguments.rate {
        let _ = writeln!(text, "rate = {rate}");
    }
    let _ = write!(
        text,
        "[computations.sum]\ncomponent = \"sum\"\nkind = \"transform\"\npartitions = {}\n\
         inputs = [\"amounts\"]\noutputs = [\"sums\"]\n\
         [queues.sums]\npartitions = 2\nretention = {{ bytes = \"256MiB\" }}\n\
         [sinks.sums]\ntype = \"queue\"\nqueue = \"sums\"\ninputs = [\"sums\"]\n",
        arguments.partitions
    );
    text
}

/// Looks at the engine until its time is over.
fn watch(engine: &mut Engine, data: &Path, arguments: &SoakArguments) -> Result<Vec<Sample>> {
    let length = Duration::from_secs(60 * arguments.minutes);
    let begun = now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut told = 0;
    while begun.elapsed() < length {
        engine.go_on(LOOK_PERIOD)?;
        let sample = Sample {
            elapsed: begun.elapsed(),
            memory_bytes: engine.memory_bytes()?,
            disk_bytes: directory_bytes(data),
        };
        samples.push(sample);
        let minutes = sample.elapsed.as_secs() / 60;
        if minutes > told {
            told = minutes;
            eprintln!(
                "minute {minutes} of {}: {:.0} MiB of memory, {:.0} MiB on the disk",
                arguments.minutes,
                sample.memory_bytes as f64 / MIB,
                sample.disk_bytes as f64 / MIB
            );
        }
    }
    Ok(samples)
}

fn report(
    arguments: &SoakArguments,
    samples: &[Sample],
    written_bytes: Option<u64>,
    after_kill: u64,
    restart: Duration,
    data: &Path,
) -> Result<()> {
    let kept = Kept::read(data)?;
    let minutes = samples
        .last()
        .map_or(0.0, |last| last.elapsed.as_secs_f64() / 60.0);
    println!(
        "\nsoak: {minutes:.1} minutes, {} keys, skew {}, {} partitions",
        arguments.keys, arguments.skew, arguments.partitions
    );
    println!(
        "{} updates ({:.0} a second), {} keys kept",
        kept.updates,
        kept.updates as f64 / (60.0 * minutes).max(1.0),
        kept.keys
    );
    println!("{:<24}{:>14}{:>14}", "", "memory, MiB", "disk, MiB");
    let thirds = samples.chunks(samples.len().div_ceil(3).max(1));
    let mut greatest: Vec<[f64; 2]> = Vec::new();
    for (name, samples) in ["first third", "second third", "last third"]
        .iter()
        .zip(thirds)
    {
        let most = |of: fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or(0) as f64 / MIB;
        let most = [most(|it| it.memory_bytes), most(|it| it.disk_bytes)];
        println!(
            "{:<24}{:>14.0}{:>14.0}",
            format!("{name}, at most"),
            most[0],
            most[1]
        );
        greatest.push(most);
    }
    for (what, at) in [("memory", 0), ("disk", 1)] {
        let verdict = match greatest.as_slice() {
            [_, before, last] if last[at] <= before[at] * FLAT => "flat",
            [_, _, _] => "GROWING",
            _ => "too short a run to tell",
        };
        println!("{what}: {verdict}");
    }
    if let Some(written) = written_bytes {
        println!(
            "written: {:.0} bytes an update",
            written as f64 / kept.updates.max(1) as f64
        );
    }
    println!(
        "killed with {:.0} MiB on the disk; from the start of the next process to its first durable epoch: {} ms",
        after_kill as f64 / MIB,
        restart.as_millis()
    );
    Ok(())
}

/// What the store holds at the end.
struct Kept {
    updates: u64,
    keys: usize,
}

impl Kept {
    fn read(data: &Path) -> Result<Kept> {
        let storage = open_embedded_storage(data)
            .with_context(|| format!("failed to open {}", data.display()))?;
        let mut updates = 0;
        // The transform's partitions are those that have states.
        let mut state_keys = 0;
        let mut start = vec![keys::STATE];
        loop {
            const PAGE: usize = 100_000;
            let page = storage.scan_keys(&start, &[keys::STATE + 1], PAGE)?;
            state_keys += page.len();
            match page.last() {
                Some(last) if page.len() == PAGE => start = [last.as_slice(), &[0]].concat(),
                _ => break,
            }
        }
        for partition in partitions_with_states(&*storage)? {
            updates += updates_of(&*storage, partition)?;
        }
        Ok(Kept {
            updates,
            keys: state_keys,
        })
    }
}

fn partitions_with_states(storage: &dyn Storage) -> Result<Vec<PartitionId>> {
    let mut partitions = Vec::new();
    let mut start = vec![keys::STATE];
    while let Some(key) = storage.scan_keys(&start, &[keys::STATE + 1], 1)?.pop() {
        let Some(partition) = keys::owner(&key) else {
            break;
        };
        partitions.push(partition);
        start = keys::states_of(partition).1;
    }
    Ok(partitions)
}

/// How many messages a partition has taken: the counts in its states, added up.
fn updates_of(storage: &dyn Storage, partition: PartitionId) -> Result<u64> {
    let mut updates = 0;
    let mut from = Vec::new();
    loop {
        let limit = tidelock::storage::scan::ScanLimit::rows(10_000);
        let page = rows::scan_states(storage, partition, "totals", &from, limit)?;
        for (key, stored) in &page.rows {
            let totals: (u64, i64) = postcard::from_bytes(&stored.value)
                .with_context(|| format!("the totals of {} are none", key.escape_ascii()))?;
            updates += totals.0;
        }
        match page.next {
            Some(next) => from = next,
            None => return Ok(updates),
        }
    }
}

/// A running engine.
struct Engine {
    child: Child,
    /// Its log, line by line.
    lines: Receiver<String>,
    log: PathBuf,
}

impl Engine {
    fn start(arguments: &SoakArguments, pipeline: &Path, data: &Path) -> Result<Engine> {
        let mut command = Command::new(&arguments.engine.tidelock);
        command.args(["run", "--log", "debug"]).arg(pipeline);
        command.arg("--data").arg(data);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start {command:?}"))?;
        let stderr = child.stderr.take().context("its stderr is piped")?;
        let (sender, lines) = sync_channel(1_024);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Engine {
            child,
            lines,
            log: pipeline.with_extension("last-words"),
        })
    }

    /// Lets it run for so long.
    fn go_on(&mut self, length: Duration) -> Result<()> {
        let begun = now();
        let mut last = String::new();
        while begun.elapsed() < length {
            match self
                .lines
                .recv_timeout(length.saturating_sub(begun.elapsed()))
            {
                Ok(line) => last = line,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    fs::write(&self.log, &last)?;
                    bail!("the engine has ended by itself: {last}");
                }
            }
        }
        Ok(())
    }

    /// How long after `begun` its first epoch is durable.
    fn first_commit(&mut self, begun: Instant) -> Result<Duration> {
        loop {
            let left = RESTART_MAX.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(COMMITTED) => return Ok(begun.elapsed()),
                Ok(_) => {}
                Err(_) => bail!("no epoch was committed within {RESTART_MAX:?} of the restart"),
            }
        }
    }

    fn memory_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        Ok(field(&text, "VmRSS:").unwrap_or(0) * 1_024)
    }

    /// What it had the disk write up to now.
    fn written_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.child.id())).ok()?;
        field(&text, "write_bytes:")
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill().context("failed to kill the engine")?;
        self.child.wait().context("failed to wait for the engine")?;
        Ok(())
    }
}

/// Bytes that the files of a directory take on the disk, as far as they can be seen: files come and go.
fn directory_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let sizes = entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => directory_bytes(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        });
    sizes.sum()
}

#[expect(clippy::disallowed_methods, reason = "to tell the time is its purpose")]
fn now() -> Instant {
    Instant::now()
}
