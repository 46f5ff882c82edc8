//! Whether anything grows with the number of messages while the keys stay the same: the engine runs
//! inputs of two sizes in turns, and what it keeps is counted: its peak of memory, and the rows in its
//! store by kind. The frontiers among them are all that deduplication keeps.

use std::path::Path;

use anyhow::{Context, Result};
use tidelock::cli::open_embedded_storage;
use tidelock::storage::keys;

use crate::GrowthArguments;
use crate::agreement;
use crate::cost::Cost;
use crate::figures::{Figures, shown};
use crate::program::{Ground, Program, USERS, WARM_UP_RECORDS};
use crate::workload::Workload;

/// The smaller input has one record for so many of the larger one.
const GROWTH: u64 = 4;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// What a run took and what it left.
struct Trace {
    cost: Cost,
    kept: Kept,
}

/// Rows in a store.
#[derive(Debug)]
struct Kept {
    frontiers: usize,
    chunks: usize,
    epoch_records: usize,
    states: usize,
}

/// Runs both sizes in turns and reports.
///
/// # Errors
///
/// If a program fails, outputs differ from those of the plain program, or a store can't be read.
pub(crate) fn run(arguments: &GrowthArguments) -> Result<()> {
    let ground = Ground::prepare(Workload::W1, &arguments.programs, arguments.partitions)?;
    let sizes = [arguments.records / GROWTH, arguments.records];
    ground.run(Program::Tidelock, &ground.input(WARM_UP_RECORDS)?)?;
    let mut traces = [Vec::new(), Vec::new()];
    for run in 1..=arguments.runs {
        for (records, traces) in sizes.into_iter().zip(&mut traces) {
            let trace = trace(&ground, records)?;
            eprintln!(
                "{records} records, run {run} of {}: {:.2} s, {:?}",
                arguments.runs,
                trace.cost.elapsed.as_secs_f64(),
                trace.kept
            );
            traces.push(trace);
        }
    }
    println!(
        "\n{}; {USERS} users, partitions: {}, runs: {}",
        ground.workload.description(),
        arguments.partitions,
        arguments.runs,
    );
    println!(
        "{:<12}{:<32}{:<20}rows left in the store: frontiers, chunks, epoch records, states",
        "records", "records/s: median (range)", "peak memory, MiB"
    );
    for (records, traces) in sizes.into_iter().zip(&traces) {
        let rates = traces.iter();
        let rates = rates.map(|trace| records as f64 / trace.cost.elapsed.as_secs_f64());
        let memory = traces.iter().filter_map(|trace| trace.cost.memory_bytes);
        let memory = memory.map(|bytes| bytes as f64 / MIB);
        let kept = |count: fn(&Kept) -> usize| {
            let counts = traces.iter().map(|trace| count(&trace.kept) as f64);
            shown(Figures::of(counts), 0)
        };
        println!(
            "{records:<12}{:<32}{:<20}{}, {}, {}, {}",
            shown(Figures::of(rates), 0),
            shown(Figures::of(memory), 0),
            kept(|kept| kept.frontiers),
            kept(|kept| kept.chunks),
            kept(|kept| kept.epoch_records),
            kept(|kept| kept.states),
        );
    }
    println!("The outputs agree with those of the plain program.");
    Ok(())
}

fn trace(ground: &Ground<'_>, records: u64) -> Result<Trace> {
    let input = ground.input(records)?;
    let cost = ground.run(Program::Tidelock, &input)?;
    ground.run(Program::Plain, &input)?;
    agreement::check(
        &ground.output(Program::Tidelock),
        &ground.output(Program::Plain),
    )?;
    let kept = Kept::count(&ground.data(Program::Tidelock))?;
    Ok(Trace { cost, kept })
}

impl Kept {
    fn count(data: &Path) -> Result<Kept> {
        let storage = open_embedded_storage(data)
            .with_context(|| format!("failed to open {}", data.display()))?;
        let rows = |prefix: u8| {
            let keys = storage.scan_keys(&[prefix], &[prefix + 1], usize::MAX);
            keys.map(|keys| keys.len())
                .with_context(|| format!("failed to read {}", data.display()))
        };
        Ok(Kept {
            frontiers: rows(keys::FRONTIER)?,
            chunks: rows(keys::CHUNK)?,
            epoch_records: rows(keys::EPOCH_RECORD)?,
            states: rows(keys::STATE)?,
        })
    }
}
