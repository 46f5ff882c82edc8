//! Whole pipelines against a plain program that does the same, in turns, on the same generated input.
//! `cargo xtask bench` builds all that takes part and calls this; nothing here is part of the product.

mod agreement;
mod contest;
mod contestant;
mod events;
mod figures;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

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
    /// Let the engine and the plain program run in turns, and compare speed and output.
    Run(RunArguments),
}

/// What to measure, and where everything is.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
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
    /// The host.
    #[arg(long)]
    pub(crate) tidelock: PathBuf,
    /// The plain program.
    #[arg(long)]
    pub(crate) plain: PathBuf,
    /// The folder of the built components.
    #[arg(long)]
    pub(crate) components: PathBuf,
    /// Where input, state and output go; the input is kept.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}

fn main() -> ExitCode {
    let outcome = match &Cli::parse().verb {
        Verb::Generate {
            records,
            users,
            path,
        } => events::generate(path, *records, *users),
        Verb::Run(arguments) => contest::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
