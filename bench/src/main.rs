//! Whole pipelines against a plain program that does the same, and against the engine without its
//! sandbox, in turns, on the same generated input. `cargo xtask bench` builds all that takes part and
//! calls this; nothing here is part of the product.

mod agreement;
mod contest;
mod cost;
mod events;
mod figures;
mod growth;
mod isolation;
mod latency;
mod program;
mod soak;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::program::{EngineFiles, Programs};
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
    /// Let the engine run for long over many keys, kill it, and see what it takes to go on.
    Soak(SoakArguments),
    /// Push rows through queues and see how long they take.
    Latency(LatencyArguments),
    /// Let the engine run over messages of which some are bad, and compare the time with that of a clean run.
    Isolation(IsolationArguments),
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

/// How long, and over what.
#[derive(Debug, Args)]
pub(crate) struct SoakArguments {
    /// Minutes.
    #[arg(long, default_value_t = 30)]
    pub(crate) minutes: u64,
    /// The size of the key space.
    #[arg(long, default_value_t = 5_000_000)]
    pub(crate) keys: u64,
    /// Exponent of the distribution over keys; 0: all alike.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) skew: f64,
    /// Records a second; as many as the engine takes where nothing is said.
    #[arg(long)]
    pub(crate) rate: Option<u64>,
    /// Partitions of the transform.
    #[arg(long, default_value_t = 2)]
    pub(crate) partitions: u32,
    #[command(flatten)]
    pub(crate) engine: EngineFiles,
}

/// How long rows take.
#[derive(Debug, Args)]
pub(crate) struct LatencyArguments {
    /// Seconds for each load.
    #[arg(long, default_value_t = 15)]
    pub(crate) seconds: u64,
    /// The folder of the built components.
    #[arg(long)]
    pub(crate) components: PathBuf,
    /// Where everything goes.
    #[arg(long)]
    pub(crate) folder: PathBuf,
}

/// What is bad, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct IsolationArguments {
    /// Messages of each run.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) records: u64,
    /// How many of them are bad, for each run; each divides the number of messages.
    #[arg(long, value_delimiter = ',', default_value = "1,100,10000,100000")]
    pub(crate) bad: Vec<u64>,
    /// In which way: the words that the test guest obeys.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "named,fail,panic,trap,abort,exit,wrong,much,eat,spin"
    )]
    pub(crate) kinds: Vec<String>,
    #[command(flatten)]
    pub(crate) engine: EngineFiles,
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
        Verb::Soak(arguments) => soak::run(arguments),
        Verb::Latency(arguments) => latency::run(arguments),
        Verb::Isolation(arguments) => isolation::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
