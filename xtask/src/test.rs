//! `cargo xtask test`: every check that a change must pass, the same on a desk and in CI. It stops at
//! the first step that fails, and its last lines repeat the test runners' results.
//!
//! The order is from quick to slow. Lints and documentation share the metadata of the dependencies;
//! the guests' lints share the macros of the components; the host is built once, in the dev profile,
//! together with the tests that start it.

use std::process::Command;

use anyhow::Result;

use crate::command;
use crate::components;
use crate::steps::Steps;
use crate::toolchain::Toolchain;
use crate::workspace::Workspace;

/// What each line of a test runner that sums up its tests begins with.
const RESULT_PREFIX: &str = "test result:";

/// Runs every check.
///
/// # Errors
///
/// If one fails: its step and its command.
pub(crate) fn run(workspace: &Workspace, toolchain: &Toolchain) -> Result<()> {
    let mut steps = Steps::default();
    let mut results = Vec::new();
    let outcome = check(workspace, toolchain, &mut steps, &mut results);
    println!("\nsummary\n{}", steps.summary());
    for result in results {
        println!("{result}");
    }
    outcome
}

fn check(
    workspace: &Workspace,
    toolchain: &Toolchain,
    steps: &mut Steps,
    results: &mut Vec<String>,
) -> Result<()> {
    let cargo = |verb: &str| {
        let mut cargo = command::cargo();
        cargo.current_dir(&workspace.root).arg(verb);
        cargo
    };
    let whole = |verb: &str| -> Command {
        let mut cargo = cargo(verb);
        cargo.args(["--workspace", "--locked"]);
        cargo
    };

    steps.run("formatting", || {
        command::run(cargo("fmt").args(["--all", "--check"]))
    })?;
    steps.run("lints", || {
        command::run(whole("clippy").args(["--all-targets", "--", "-D", "warnings"]))
    })?;
    steps.run("lints of the guests", || {
        command::run(
            components::cargo(workspace, toolchain, "clippy", &workspace.guests)
                .args(["--profile", components::PROFILE, "--lib", "--examples"])
                .args(["--", "-D", "warnings"]),
        )
    })?;
    steps.run("documentation", || {
        command::run(
            whole("doc")
                .arg("--no-deps")
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    steps.run("components", || components::build_all(workspace, toolchain))?;
    // The tests start the host as a program, and `cargo test` alone does not build it.
    steps.run("build of host and tests", || {
        command::run(whole("build").args(["--bins", "--tests"]))
    })?;
    steps.run("tests", || {
        command::run_and_keep(&mut whole("test"), RESULT_PREFIX, results)
    })
}
