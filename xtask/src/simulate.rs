//! `cargo xtask simulate`: the simulation of tests/simulation with seeds of one's own. The test that
//! CI runs is the same one; this only builds what it needs and passes the seeds on.

use anyhow::Result;

use crate::command;
use crate::components;
use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

/// Which seeds are run.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Seeds {
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
}

/// The test that runs seeds.
const TEST: &str = "whatever_goes_wrong_each_input_counts_once";
/// The package whose components the simulated computations are.
const GUESTS: &str = "guest-behaviours";

/// Runs the seeds and shows what went wrong, or that nothing did.
///
/// # Errors
///
/// If a seed fails, or something could not be built.
pub(crate) fn run(workspace: &Workspace, toolchain: &Toolchain, seeds: Seeds) -> Result<()> {
    let guests = workspace
        .guests
        .iter()
        .filter(|guest| guest.package == GUESTS);
    components::build(workspace, toolchain, guests)?;
    command::run(
        command::cargo()
            .current_dir(&workspace.root)
            .args([
                "test",
                "--locked",
                "--package",
                "tidelock-tests",
                "--test",
                "simulation",
            ])
            .args(["--", "--nocapture", TEST])
            .env("TIDELOCK_SIMULATION_SEED", seeds.seed.to_string())
            .env("TIDELOCK_SIMULATION_RUNS", seeds.runs.to_string()),
    )
}
