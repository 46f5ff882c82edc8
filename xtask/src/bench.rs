//! `cargo xtask bench`: whole pipelines against a plain program that does the same, and against the
//! engine with functions in place of components. It builds what takes part and hands over to the
//! programs of `bench/`, which measure.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::command;
use crate::components::{self, PROFILE};
use crate::toolchain::{TARGET, Toolchain};
use crate::workspace::Workspace;

/// The measurements that are no contest.
const GROWTH: &str = "w1-growth";
const SOAK: &str = "soak";
const LATENCY: &str = "latency";
const ISOLATION: &str = "isolation";

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// w1: map and transform over 100,000 keys; w3: a map alone [default: both]. w1-growth: w1 with a
    /// quarter of the records and with all, to see what grows with their number. soak: updates of 5 million
    /// keys for half an hour, to see that memory and disk stay where they are, then a kill and a restart. latency:
    /// rows through queues, at a tenth and at half of what goes through. isolation: a million messages of which up to a
    /// tenth are bad, in ten ways.
    #[arg(value_parser = ["w1", "w3", GROWTH, SOAK, LATENCY, ISOLATION])]
    workloads: Vec<String>,
    /// Lines of the input, about 110 bytes each [default: 4,000,000; of w1-growth 10,000,000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// How often each program runs [default: 5; of w1-growth 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Partitions of the transform, 1 to 256.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    partitions: u32,
    /// How long the soak lasts, in minutes.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
}

/// Builds host, components and the measuring programs, and measures.
///
/// # Errors
///
/// If a build fails, a program fails, or the outputs differ.
pub(crate) fn run(
    workspace: &Workspace,
    toolchain: &Toolchain,
    arguments: &BenchArguments,
) -> Result<()> {
    let is_named = |name: &str| arguments.workloads.iter().any(|named| named == name);
    let example = workspace.root.join("examples/keyed-sum");
    let obedient = workspace.root.join("tests/guests/behaviours");
    let guests = workspace.guests.iter().filter(|guest| {
        let is_obedient = is_named(ISOLATION) && guest.folder.starts_with(&obedient);
        is_obedient || guest.folder.starts_with(&example)
    });
    components::build(workspace, toolchain, guests)?;
    // Apart, as in one build the host would get the feature that the bench asks for.
    for package in ["tidelock", "tidelock-bench"] {
        let mut build = command::cargo();
        build.args(["build", "--release", "--locked", "--bins"]);
        build.args(["--package", package]);
        command::run(build.current_dir(&workspace.root))?;
    }

    let contests: Vec<&str> = match arguments.workloads.is_empty() {
        true => vec!["w1", "w3"],
        false => (["w1", "w3"].into_iter().filter(|name| is_named(name))).collect(),
    };
    if !contests.is_empty() {
        let verb: Vec<&str> = std::iter::once("run").chain(contests).collect();
        measure(workspace, arguments, &verb)?;
    }
    if is_named(GROWTH) {
        measure(workspace, arguments, &["growth"])?;
    }
    if is_named(LATENCY) {
        command::run(&mut program(workspace, &["latency"]))?;
    }
    if is_named(ISOLATION) {
        let mut bench = program(workspace, &["isolation"]);
        bench
            .arg("--tidelock")
            .arg(workspace.target.join("release/tidelock"));
        if let Some(records) = arguments.records {
            bench.args(["--records", &records.to_string()]);
        }
        command::run(&mut bench)?;
    }
    match is_named(SOAK) {
        true => soak(workspace, arguments),
        false => Ok(()),
    }
}

/// Calls the measuring program for a soak.
fn soak(workspace: &Workspace, arguments: &BenchArguments) -> Result<()> {
    let mut bench = program(workspace, &["soak"]);
    bench
        .arg("--tidelock")
        .arg(workspace.target.join("release/tidelock"));
    bench.args(["--minutes", &arguments.minutes.to_string()]);
    bench.args(["--partitions", &arguments.partitions.to_string()]);
    command::run(&mut bench)
}

/// The measuring program, told where everything is.
fn program(workspace: &Workspace, verb: &[&str]) -> Command {
    let release = workspace.target.join("release");
    let target = workspace.root.join("target");
    let mut bench = Command::new(release.join("tidelock-bench"));
    bench.args(verb);
    for (name, path) in [
        (
            "--components",
            target.join("components").join(TARGET).join(PROFILE),
        ),
        ("--folder", target.join("bench")),
    ] {
        bench.arg(name).arg(path);
    }
    bench
}

/// Calls the measuring program.
fn measure(workspace: &Workspace, arguments: &BenchArguments, verb: &[&str]) -> Result<()> {
    let release = workspace.target.join("release");
    let mut bench = program(workspace, verb);
    if let Some(records) = arguments.records {
        bench.args(["--records", &records.to_string()]);
    }
    if let Some(runs) = arguments.runs {
        bench.args(["--runs", &runs.to_string()]);
    }
    bench.args(["--partitions", &arguments.partitions.to_string()]);
    for (name, path) in [
        ("--tidelock", release.join("tidelock")),
        ("--plain", release.join("keyed-sum-plain")),
        ("--native", release.join("keyed-sum-native")),
    ] {
        bench.arg(name).arg(path);
    }
    command::run(&mut bench)
}
