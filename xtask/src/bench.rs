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

/// The measurement that is no contest.
const GROWTH: &str = "w1-growth";

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// w1: map and transform over 100,000 keys; w3: a map alone [default: both]. w1-growth: w1 with a
    /// quarter of the records and with all, to see what grows with their number.
    #[arg(value_parser = ["w1", "w3", GROWTH])]
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
    let example = workspace.root.join("examples/keyed-sum");
    let guests = workspace
        .guests
        .iter()
        .filter(|guest| guest.folder.starts_with(&example));
    components::build(workspace, toolchain, guests)?;
    // Apart, as in one build the host would get the feature that the bench asks for.
    for package in ["tidelock", "tidelock-bench"] {
        let mut build = command::cargo();
        build.args(["build", "--release", "--locked", "--bins"]);
        build.args(["--package", package]);
        command::run(build.current_dir(&workspace.root))?;
    }

    let (growth, contests): (Vec<&String>, Vec<&String>) =
        (arguments.workloads.iter()).partition(|name| *name == GROWTH);
    if arguments.workloads.is_empty() {
        measure(workspace, arguments, &["run", "w1", "w3"])?;
    } else if !contests.is_empty() {
        let names = contests.into_iter().map(String::as_str);
        let verb: Vec<&str> = std::iter::once("run").chain(names).collect();
        measure(workspace, arguments, &verb)?;
    }
    match growth.is_empty() {
        true => Ok(()),
        false => measure(workspace, arguments, &["growth"]),
    }
}

/// Calls the measuring program.
fn measure(workspace: &Workspace, arguments: &BenchArguments, verb: &[&str]) -> Result<()> {
    let release = workspace.target.join("release");
    let target = workspace.root.join("target");
    let mut bench = Command::new(release.join("tidelock-bench"));
    bench.args(verb);
    if let Some(records) = arguments.records {
        bench.args(["--records", &records.to_string()]);
    }
    if let Some(runs) = arguments.runs {
        bench.args(["--runs", &runs.to_string()]);
    }
    bench.args(["--partitions", &arguments.partitions.to_string()]);
    let components = target.join("components").join(TARGET).join(PROFILE);
    for (name, path) in [
        ("--tidelock", release.join("tidelock")),
        ("--plain", release.join("keyed-sum-plain")),
        ("--native", release.join("keyed-sum-native")),
        ("--components", components),
        ("--folder", target.join("bench")),
    ] {
        bench.arg(name).arg(path);
    }
    command::run(&mut bench)
}
