//! `tidelock check`: everything that a run would check before it begins, all errors at once.
//!
//! What a data directory knows is asked where there is one: whether the files of sinks are as the
//! last run left them. Without one a run would start afresh, so a sink's file with bytes in it is an
//! error. Nothing is made; a data directory that a killed run left behind is brought into order, as
//! the next run would. Whether component, parameters or sources are those of the last run is asked
//! by the run itself, which then wants `--accept-change`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::cli::printing::{print, print_json};
use crate::cli::run::DATA_DIRECTORY_NAME;
use crate::cli::{Outcome, OutputFormat};
use crate::config;
use crate::controller::admission::{admit, directory_findings, queue_findings, sink_file_findings};
use crate::guest::{GuestOptions, GuestRuntime};
use crate::storage::StorageError;
use crate::storage::embedded::{EmbeddedOptions, EmbeddedStorage, check_new_sink_file};
use crate::types::finding::Finding;
use crate::types::pipeline::Pipeline;

/// Arguments of `tidelock check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// A pipeline file, or the folder of its tidelock.toml.
    pub pipeline: PathBuf,
    /// Where a run would keep states and positions [default: .tidelock beside the pipeline file].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
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
    let (pipeline, findings) = match config::load(&arguments.pipeline) {
        Err(error) => (None, error.findings),
        Ok(pipeline) => {
            let findings = find(&pipeline, arguments)?;
            (Some(pipeline), findings)
        }
    };
    let ok = !findings.iter().any(Finding::is_error);
    match output {
        OutputFormat::Json => print_json(&CheckDocument {
            ok,
            findings: &findings,
        })?,
        OutputFormat::Text => {
            let fit = pipeline.as_ref().filter(|_| ok);
            print(|output| write_findings(&findings, fit, output))?;
        }
    }
    Ok(if ok { Outcome::Done } else { Outcome::Failed })
}

/// Everything that is found, by line.
fn find(pipeline: &Pipeline, arguments: &CheckArguments) -> anyhow::Result<Vec<Finding>> {
    let runtime =
        GuestRuntime::new(GuestOptions::default()).context("failed to set the sandbox up")?;
    let mut findings = match admit(pipeline, &runtime) {
        Ok(admission) => admission.warnings,
        Err(findings) => findings,
    };
    let data = match &arguments.data {
        Some(directory) => directory.clone(),
        None => (pipeline.file.parent())
            .unwrap_or(Path::new("."))
            .join(DATA_DIRECTORY_NAME),
    };
    findings.extend(check_data(pipeline, &data));
    findings.sort_by_key(|finding| finding.line);
    Ok(findings)
}

/// What a run on this data directory would find wrong with the files of sinks, and with the queues.
fn check_data(pipeline: &Pipeline, data: &Path) -> Vec<Finding> {
    if !EmbeddedStorage::exists_in(data) {
        let mut findings = sink_file_findings(pipeline, check_new_sink_file);
        findings.extend(directory_findings(pipeline));
        return findings;
    }
    match EmbeddedStorage::open(data, EmbeddedOptions::default()) {
        Ok(storage) => {
            let mut findings = sink_file_findings(pipeline, |path| storage.check_sink_file(path));
            findings.extend(queue_findings(pipeline, &storage));
            findings
        }
        Err(error @ StorageError::InUse { .. }) => vec![Finding::warning(
            &pipeline.file,
            None,
            error.to_string(),
            "the files of sinks and the queues were not looked at",
        )],
        Err(error) => {
            let error = anyhow::Error::new(error);
            let message = format!("failed to open {}: {error:#}", data.display());
            let remedy = "see to the data directory, or name another one with --data";
            vec![Finding::error(&pipeline.file, None, message, remedy)]
        }
    }
}

fn write_findings(
    findings: &[Finding],
    fit: Option<&Pipeline>,
    output: &mut dyn Write,
) -> anyhow::Result<()> {
    for finding in findings {
        writeln!(output, "{finding}")?;
    }
    if let Some(pipeline) = fit {
        writeln!(
            output,
            "pipeline {} is fit to run: {} sources, {} computations, {} sinks",
            pipeline.name,
            pipeline.sources.len(),
            pipeline.computations.len(),
            pipeline.sinks.len(),
        )?;
    }
    Ok(())
}
