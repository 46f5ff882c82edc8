//! `cargo xtask bench`: whole pipelines against a plain program that does the same. It builds what takes
//! part and hands over to the programs of `bench/`, which measure.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::command;
use crate::components::{self, PROFILE};
use crate::toolchain::{TARGET, Toolchain};
use crate::workspace::Workspace;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// w1: map and transform over 100,000 keys; w3: a map alone [default: both]
    #[arg(value_parser = ["w1", "w3"])]
    workloads: Vec<String>,
    /// Lines of the input, about 110 bytes each.
    #[arg(long, default_value_t = 4_000_000)]
    records: u64,
    /// How often each program runs.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Partitions of the transform.
    #[arg(long, default_value_t = 1)]
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
    let mut build = command::cargo();
    build.args(["build", "--release", "--locked"]);
    build.args(["--package", "tidelock", "--package", "tidelock-bench"]);
    command::run(build.current_dir(&workspace.root))?;

    let release = workspace.target.join("release");
    let components = workspace.root.join("target/components");
    let mut bench = Command::new(release.join("tidelock-bench"));
    bench.arg("run");
    match arguments.workloads.is_empty() {
        true => bench.args(["w1", "w3"]),
        false => bench.args(&arguments.workloads),
    };
    for (name, value) in [
        ("--records", arguments.records.to_string()),
        ("--runs", arguments.runs.to_string()),
        ("--partitions", arguments.partitions.to_string()),
    ] {
        bench.args([name, &value]);
    }
    bench.arg("--tidelock").arg(release.join("tidelock"));
    bench.arg("--plain").arg(release.join("keyed-sum-plain"));
    bench
        .arg("--components")
        .arg(components.join(TARGET).join(PROFILE));
    bench
        .arg("--folder")
        .arg(workspace.root.join("target/bench"));
    command::run(&mut bench)
}
