//! `cargo xtask`: the project's own commands, which README.md, CONTRIBUTING.md and CI call. This file
//! is the command tree; each command is a file of its own. Nothing here is part of the product, and
//! no build script calls any of it.

mod bench;
mod command;
mod components;
mod demo;
mod flights;
mod golden;
mod simulate;
mod steps;
mod test;
mod toolchain;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::simulate::Seeds;
use crate::workspace::Workspace;

/// Builds, shows and checks Tidelock.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Prepare the wasm32-wasip2 target and build every guest into target/components.
    Components,
    /// Build host and guests, run the flights pipeline from a clean state, show and verify its result.
    Demo {
        /// The whole year instead of the week that the repository carries: a flights.csv.zip, read straight.
        #[arg(long, value_name = "PATH")]
        flights: Option<PathBuf>,
    },
    /// Measure whole pipelines against a plain program that does the same, in turns.
    Bench(bench::BenchArguments),
    /// Run random pipelines over storage in memory while jobs crash, leases move and commits fail.
    Simulate(Seeds),
    /// Write the golden files of stored formats that are missing; one that is there is never changed.
    Golden,
    /// Run every check: formatting, lints, documentation, every test.
    Test,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // The target first: the look at the workspace that follows asks cargo about it.
    let toolchain = toolchain::prepare()?;
    let workspace = Workspace::read()?;
    match &arguments.verb {
        Verb::Components => {
            for artifact in components::build_all(&workspace, &toolchain)? {
                println!("{}  {} bytes", artifact.path.display(), artifact.size_bytes);
            }
            Ok(())
        }
        Verb::Demo { flights } => demo::run(&workspace, &toolchain, flights.as_deref()),
        Verb::Bench(arguments) => bench::run(&workspace, &toolchain, arguments),
        Verb::Simulate(seeds) => simulate::run(&workspace, &toolchain, *seeds),
        Verb::Golden => golden::run(&workspace),
        Verb::Test => test::run(&workspace, &toolchain),
    }
}
