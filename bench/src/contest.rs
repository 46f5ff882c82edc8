//! The contest: plain program and engine in turns, from a clean state each time, and the outputs of each
//! pair compared. What is warm on a machine that has run the pipeline before is warm here too: the
//! input is in the page cache and the components are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::RunArguments;
use crate::agreement;
use crate::contestant::{self, Cost};
use crate::events;
use crate::figures::Figures;
use crate::workload::Workload;

/// How many users the input has.
const USERS: u64 = 100_000;

/// Lines of the input of the run before the first, which fills caches and is not measured.
const WARM_UP_RECORDS: u64 = 1_000;

/// Measures all the workloads asked for.
///
/// # Errors
///
/// If a program fails or the outputs differ.
pub(crate) fn run(arguments: &RunArguments) -> Result<()> {
    for workload in &arguments.workloads {
        Contest::prepare(*workload, arguments)?.run(arguments)?;
    }
    Ok(())
}

struct Contest {
    workload: Workload,
    folder: PathBuf,
    input: PathBuf,
    warm_up_input: PathBuf,
}

impl Contest {
    fn prepare(workload: Workload, arguments: &RunArguments) -> Result<Contest> {
        let folder = arguments.folder.join(workload.name());
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        let input = |records: u64| -> Result<PathBuf> {
            let path = arguments.folder.join(format!("events-{records}.jsonl"));
            if !path.exists() {
                eprintln!("writing {records} events to {}", path.display());
                events::generate(&path, records, USERS)?;
            }
            Ok(path)
        };
        Ok(Contest {
            workload,
            folder: folder.clone(),
            input: input(arguments.records)?,
            warm_up_input: input(WARM_UP_RECORDS)?,
        })
    }

    fn run(&self, arguments: &RunArguments) -> Result<()> {
        let name = self.workload.name();
        self.engine(arguments, &self.warm_up_input)?;
        self.plain(arguments)?;
        let mut plain = Vec::new();
        let mut engine = Vec::new();
        let mut agreed = (0, 0);
        for run in 1..=arguments.runs {
            plain.push(self.plain(arguments)?);
            engine.push(self.engine(arguments, &self.input)?);
            agreed = agreement::check(&self.output("engine"), &self.output("plain"))?;
            eprintln!(
                "{name} run {run} of {}: plain {:.2} s, tidelock {:.2} s",
                arguments.runs,
                plain[run - 1].elapsed.as_secs_f64(),
                engine[run - 1].elapsed.as_secs_f64(),
            );
        }
        self.report(arguments, &plain, &engine, agreed);
        Ok(())
    }

    fn output(&self, of: &str) -> PathBuf {
        self.folder.join(format!("{of}.jsonl"))
    }

    fn plain(&self, arguments: &RunArguments) -> Result<Cost> {
        let output = self.output("plain");
        remove(&output)?;
        let mut command = Command::new(&arguments.plain);
        contestant::run(
            command
                .arg(self.workload.name())
                .args([&self.input, &output]),
        )
    }

    /// Runs the engine without positions, states and output of the run before; its compiled
    /// components stay.
    fn engine(&self, arguments: &RunArguments, input: &Path) -> Result<Cost> {
        let output = self.output("engine");
        remove(&output)?;
        let data = self.folder.join("data");
        if data.exists() {
            let entries = fs::read_dir(&data);
            for entry in entries.with_context(|| format!("failed to read {}", data.display()))? {
                let entry = entry.with_context(|| format!("failed to read {}", data.display()))?;
                if entry.file_name() != "artifacts" {
                    remove(&entry.path())?;
                }
            }
        }
        let text =
            self.workload
                .pipeline(input, &arguments.components, &output, arguments.partitions);
        let pipeline = self.folder.join("tidelock.toml");
        fs::write(&pipeline, text)
            .with_context(|| format!("failed to write {}", pipeline.display()))?;
        let log = self.folder.join("tidelock.log");
        let stderr = fs::File::create(&log)
            .with_context(|| format!("failed to create {}", log.display()))?;
        let mut command = Command::new(&arguments.tidelock);
        command.arg("run").arg(&pipeline).arg("--data").arg(&data);
        contestant::run(command.stderr(stderr))
            .with_context(|| format!("{} has what it said", log.display()))
    }

    fn report(
        &self,
        arguments: &RunArguments,
        plain: &[Cost],
        engine: &[Cost],
        (rows, users): (u64, usize),
    ) {
        println!(
            "\n{}: {}; {} records, partitions: {}, runs: {}",
            self.workload.name(),
            self.workload.description(),
            arguments.records,
            arguments.partitions,
            arguments.runs,
        );
        println!(
            "{:<10}{:<32}{:<28}{:<20}written, bytes for each record",
            "", "records/s: median (range)", "processors, us a record", "peak memory, MiB"
        );
        for (name, costs) in [("plain", plain), ("tidelock", engine)] {
            let records = arguments.records as f64;
            let rates = costs
                .iter()
                .map(|cost| records / cost.elapsed.as_secs_f64());
            let processors = costs.iter().filter_map(|cost| cost.processors);
            let processors = processors.map(|time| time.as_secs_f64() * 1e6 / records);
            let memory = costs.iter().filter_map(|cost| cost.memory_bytes);
            let memory = memory.map(|bytes| bytes as f64 / f64::from(1 << 20));
            let written = costs.iter().filter_map(|cost| cost.written_bytes);
            let written = written.map(|bytes| bytes as f64 / records);
            println!(
                "{name:<10}{:<32}{:<28}{:<20}{}",
                shown(Figures::of(rates), 0),
                shown(Figures::of(processors), 2),
                shown(Figures::of(memory), 0),
                shown(Figures::of(written), 0),
            );
        }
        let pairs = plain.iter().zip(engine);
        let ratios =
            pairs.map(|(plain, engine)| plain.elapsed.as_secs_f64() / engine.elapsed.as_secs_f64());
        println!(
            "tidelock against plain, pair by pair: {}",
            shown(Figures::of(ratios), 3)
        );
        println!(
            "The outputs agree: for each of {users} users the same rows in the same order, {rows} in all."
        );
    }
}

fn shown(figures: Option<Figures>, digits: usize) -> String {
    figures.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.digits$}"))
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> Result<()> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
