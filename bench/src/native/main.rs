//! The engine with functions of this process in place of the components of `examples/keyed-sum`: what
//! is missing in its cost against `tidelock run` is the sandbox's share. Pipeline file, admission,
//! storage, epochs and jobs are those of the product; the components are loaded and never called with
//! a record.
//!
//! Usage: `keyed-sum-native PIPELINE DATA`.

mod functions;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tidelock::cli::open_embedded_storage;
use tidelock::cli::run::COMPILED_COMPONENTS_NAME;
use tidelock::clock::{Clock, SystemClock};
use tidelock::config;
use tidelock::controller::admission::{Admission, admit};
use tidelock::controller::{Controller, StartContext};
use tidelock::guest::native::NativeFunction;
use tidelock::guest::{GuestOptions, GuestRuntime};
use tidelock::telemetry::{LogLevel, LogOutput};
use tidelock::types::finding::Finding;
use tidelock::worker::job::JobEnd;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pipeline, data] = &arguments[..] else {
        bail!("usage: keyed-sum-native PIPELINE DATA");
    };
    LogOutput::install(LogLevel::Warn);
    run(Path::new(pipeline), Path::new(data))
}

/// What `tidelock run` does, without its display and its signals.
fn run(pipeline: &Path, data: &Path) -> Result<()> {
    let pipeline = config::load(pipeline)?;
    let runtime = GuestRuntime::new(GuestOptions {
        cache_directory: Some(data.join(COMPILED_COMPONENTS_NAME)),
        ..GuestOptions::default()
    })?;
    let mut admission = admit(&pipeline, &runtime).map_err(|findings| refused(&findings))?;
    replace_components(&mut admission)?;
    let storage = open_embedded_storage(data)
        .with_context(|| format!("failed to open {}", data.display()))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let controller = Controller::open(
        &pipeline,
        &admission,
        StartContext {
            runtime: &runtime,
            storage: &storage,
            clock: &clock,
            accept_change: false,
            observe_move: &mut |_| {},
        },
    )?;
    let end = controller.worker.run().map_err(|failures| {
        let failures = failures.into_iter();
        let told = failures.map(|(job, error)| format!("job {job}: {:#}", anyhow!(error)));
        anyhow!(told.collect::<Vec<_>>().join("\n"))
    })?;
    storage.settle()?;
    match end {
        JobEnd::Finished => Ok(()),
        JobEnd::Stopped => bail!("the run was stopped before its input was at its end"),
    }
}

/// Puts a function in the place of every component.
fn replace_components(admission: &mut Admission) -> Result<()> {
    for (name, admitted) in &mut admission.computations {
        let function: NativeFunction = match name.as_str() {
            "parse" => Arc::new(functions::parse),
            "sum" => Arc::new(functions::sum),
            other => bail!("there is no function for computation {other}, only for parse and sum"),
        };
        admitted.call_natively(function);
    }
    Ok(())
}

fn refused(findings: &[Finding]) -> anyhow::Error {
    let findings: Vec<String> = findings.iter().map(Finding::to_string).collect();
    anyhow!("the pipeline is refused:\n{}", findings.join("\n"))
}
