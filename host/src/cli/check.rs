//! `tidelock check`: everything that a run would check, all errors at once.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::cli::{Outcome, OutputFormat, print_json};
use crate::config;
use crate::controller::admission::admit;
use crate::guest::{GuestOptions, GuestRuntime};
use crate::types::finding::Finding;
use crate::types::pipeline::Pipeline;

/// Arguments of `tidelock check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// A pipeline file, or the folder of its tidelock.toml.
    pub pipeline: PathBuf,
}

#[derive(Serialize)]
struct CheckDocument<'a> {
    ok: bool,
    findings: &'a [Finding],
}

/// Checks a pipeline and prints what was found.
///
/// # Errors
///
/// When the sandbox can't be set up or nothing can be printed.
pub fn check(arguments: &CheckArguments, output: OutputFormat) -> anyhow::Result<Outcome> {
    let runtime =
        GuestRuntime::new(GuestOptions::default()).context("failed to set the sandbox up")?;
    let checked: Result<(Pipeline, Vec<Finding>), Vec<Finding>> =
        match config::load(&arguments.pipeline) {
            Err(error) => Err(error.findings),
            Ok(pipeline) => {
                admit(&pipeline, &runtime).map(|admission| (pipeline, admission.warnings))
            }
        };
    let ok = checked.is_ok();
    let findings = match &checked {
        Ok((_, warnings)) => warnings,
        Err(findings) => findings,
    };
    match output {
        OutputFormat::Json => print_json(&CheckDocument { ok, findings })?,
        OutputFormat::Text => print_findings(
            findings,
            checked.as_ref().ok().map(|(pipeline, _)| pipeline),
        )?,
    }
    Ok(if ok { Outcome::Done } else { Outcome::Failed })
}

fn print_findings(findings: &[Finding], admitted: Option<&Pipeline>) -> anyhow::Result<()> {
    use std::io::Write as _;

    let mut stdout = std::io::stdout().lock();
    for finding in findings {
        writeln!(stdout, "{finding}")?;
    }
    if let Some(pipeline) = admitted {
        writeln!(
            stdout,
            "pipeline {} is fit to run: {} sources, {} computations, {} sinks",
            pipeline.name,
            pipeline.sources.len(),
            pipeline.computations.len(),
            pipeline.sinks.len(),
        )?;
    }
    Ok(())
}
