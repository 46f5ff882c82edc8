//! Whole pipelines against a plain program that does the same, and against the engine without its
//! sandbox, in turns, on the same generated input. `cargo xtask bench` builds all that takes part and
//! calls this; nothing here is part of the product.

mod agreement;
mod contest;
mod cost;
mod events;
mod figures;
mod growth;
mod program;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::program::Programs;
use crate::workload::Workload;

/// Measures whole pipelines.
#[derive(Debug, Parser)]
#[command(name = "tidelock-bench")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write generated events, a JSON object a line.
    Generate {
        /// How many.
        #[arg(long, default_value_t = 300)]
        records: u64,
        /// Of how many users.
        #[arg(long, default_value_t = 20)]
        users: u64,
        /// The file to write.
        path: PathBuf,
    },
    /// Let the programs run in turns, and compare speed and output.
    Run(ContestArguments),
    /// Let the engine run a quarter of an input and all of it in turns, and see what grows.
    Growth(GrowthArguments),
}

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct ContestArguments {
    /// The workloads.
    #[arg(value_enum, required = true)]
    pub(crate) workloads: Vec<Workload>,
    /// Lines of the input.
    #[arg(long, default_value_t = 4_000_000)]
    pub(crate) records: u64,
    /// How often each program runs.
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// Partitions of the transform.
    #[arg(long, default_value_t = 1)]
    pub(crate) partitions: u32,
    #[command(flatten)]
    pub(crate) programs: Programs,
}

/// How far to grow.
#[derive(Debug, Args)]
pub(crate) struct GrowthArguments {
    /// Lines of the larger input.
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) records: u64,
    /// How often each size runs.
    #[arg(long, default_value_t = 3)]
    pub(crate) runs: usize,
    /// Partitions of the transform.
    #[arg(long, default_value_t = 1)]
    pub(crate) partitions: u32,
    #[command(flatten)]
    pub(crate) programs: Programs,
}

fn main() -> ExitCode {
    let outcome = match &Cli::parse().verb {
        Verb::Generate {
            records,
            users,
            path,
        } => events::generate(path, *records, *users),
        Verb::Run(arguments) => contest::run(arguments),
        Verb::Growth(arguments) => growth::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
