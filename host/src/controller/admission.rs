//! Whether a pipeline may run: its components load, import only what they are granted, fit their
//! places and accept their parameters; its sources can be opened. `tidelock check` and
//! `tidelock run` ask the same questions here, before a record is read and anything is written.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::controller::queues::QueueError;
use crate::controller::queues::declared::check_declared;
#[cfg(feature = "native-computations")]
use crate::guest::native::NativeFunction;
use crate::guest::{
    COMPONENT_BYTES_MAX, Component, Computation, ComputationSettings, GuestError, GuestRuntime,
};
use crate::source::{self, Opening};
use crate::storage::{Storage, StorageError};
use crate::types::batch::{Batch, ComputationKind, Description, StateColumn};
use crate::types::finding::Finding;
use crate::types::pipeline::{ComputationOptions, Pipeline, SinkConnector, SourceConnector};

/// A pipeline whose components have been found fit for their places.
pub struct Admission {
    /// Every computation by name, with its component ready to be called.
    pub computations: BTreeMap<String, AdmittedComputation>,
    /// What deserves a look and stops nothing.
    pub warnings: Vec<Finding>,
}

/// A computation whose component fits its place.
pub struct AdmittedComputation {
    /// The component.
    pub component: Component,
    settings: ComputationSettings,
    /// What the component says of itself.
    pub description: Description,
    /// Called in place of the component.
    #[cfg(feature = "native-computations")]
    native: Option<NativeFunction>,
}

impl AdmittedComputation {
    /// What it is called with.
    pub fn settings(&self) -> &ComputationSettings {
        &self.settings
    }

    /// The component, ready to be called, for one job.
    ///
    /// # Errors
    ///
    /// As [`Computation::new`]; it worked once before.
    pub fn instance(&self, runtime: &Arc<GuestRuntime>) -> Result<Computation, GuestError> {
        let computation = Computation::new(runtime, &self.component, self.settings.clone())?;
        #[cfg(feature = "native-computations")]
        if let Some(function) = &self.native {
            return Ok(computation.with_native(Arc::clone(function)));
        }
        Ok(computation)
    }

    /// Has every job call `function` in place of the component; all else goes by the component.
    #[cfg(feature = "native-computations")]
    pub fn call_natively(&mut self, function: NativeFunction) {
        self.native = Some(function);
    }
}

/// Loads and checks every component of the pipeline, and opens its sources.
///
/// # Errors
///
/// Everything that was found, at once, with the warnings.
pub fn admit(pipeline: &Pipeline, runtime: &Arc<GuestRuntime>) -> Result<Admission, Vec<Finding>> {
    let mut findings = pipeline.warnings.clone();
    let components = load_components(pipeline, runtime, &mut findings);
    let mut computations = BTreeMap::new();
    for (name, options) in &pipeline.computations {
        // A component that could not be loaded has been reported where it is named.
        let Some(component) = components.get(options.component.as_str()) else {
            continue;
        };
        let settings = ComputationSettings {
            name: name.clone(),
            parameters: options.parameters.clone(),
            grants: options.grants.clone(),
            limits: options.limits,
            instance: options.instance,
            relaxed_batching: options.relaxed_batching,
        };
        match Computation::new(runtime, component, settings.clone()) {
            Ok(mut computation) => {
                let description = computation.description().clone();
                check_place(pipeline, name, options, &description, &mut findings);
                check_states(pipeline, name, options, &description, &mut findings);
                check_parameters(pipeline, options, &mut computation, &mut findings);
                let admitted = AdmittedComputation {
                    component: component.clone(),
                    settings,
                    description,
                    #[cfg(feature = "native-computations")]
                    native: None,
                };
                computations.insert(name.clone(), admitted);
            }
            Err(error) => findings.push(Finding::error(
                &pipeline.file,
                options.lines.component,
                guest_error(&error),
                "`tidelock inspect` shows what the component imports and exports",
            )),
        }
    }
    check_sources(pipeline, &mut findings);
    if findings.iter().any(Finding::is_error) {
        return Err(findings);
    }
    Ok(Admission {
        computations,
        warnings: findings,
    })
}

fn load_components<'a>(
    pipeline: &'a Pipeline,
    runtime: &Arc<GuestRuntime>,
    findings: &mut Vec<Finding>,
) -> BTreeMap<&'a str, Component> {
    let mut components = BTreeMap::new();
    for (name, reference) in &pipeline.components {
        let mut report = |message: String, remedy: &str| {
            let finding = Finding::error(&pipeline.file, reference.line, message, remedy);
            findings.push(finding);
        };
        let path = &reference.path;
        match read_component(path) {
            Err(message) => report(
                format!("component {name}: {} {message}", path.display()),
                "name a component built for wasm32-wasip2",
            ),
            Ok(bytes) => match runtime.load(&bytes) {
                Ok(component) => {
                    components.insert(name.as_str(), component);
                }
                Err(error) => report(
                    format!("component {name}: {}: {error}", path.display()),
                    "`tidelock inspect` shows what the file is",
                ),
            },
        }
    }
    components
}

/// The bytes of a component file, or what stands against it.
pub fn read_component(path: &Path) -> Result<Vec<u8>, String> {
    let can_not = |error: std::io::Error| format!("can't be read: {error}");
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(can_not)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(COMPONENT_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(can_not)?;
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(format!("has more than {COMPONENT_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

/// What stands against each file that the pipeline's sinks would append to, as `check` finds it
/// without making anything.
pub fn sink_file_findings(
    pipeline: &Pipeline,
    check: impl Fn(&Path) -> Result<(), StorageError>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, sink) in &pipeline.sinks {
        let checked = match &sink.connector {
            SinkConnector::File { path } => check(path),
            // Which files it writes follows from numbers that the run gives.
            SinkConnector::Directory(options) => check(&options.path.join(options.file_name(0, 0))),
            SinkConnector::Stdout | SinkConnector::Null | SinkConnector::Queue { .. } => Ok(()),
        };
        if let Err(error) = checked {
            findings.push(Finding::error(
                &pipeline.file,
                sink.line,
                format!("sink {name}: {}", with_causes(&error)),
                "the file of a sink is written by tidelock alone",
            ));
        }
    }
    findings
}

/// What stands against the queues that the pipeline declares, as `check` finds it in the store.
pub fn queue_findings(pipeline: &Pipeline, storage: &dyn Storage) -> Vec<Finding> {
    let finding = |line: Option<usize>, error: &QueueError| {
        let remedy = "`tidelock queue list` shows the queues of the data directory";
        Finding::error(&pipeline.file, line, with_causes(error), remedy)
    };
    match check_declared(storage, &pipeline.queues) {
        Err(error) => vec![finding(None, &error)],
        Ok(refused) => (refused.iter())
            .map(|(name, error)| finding(Some(pipeline.queues[name].line), error))
            .collect(),
    }
}

/// What a run that starts afresh would find in the directories of sinks: files whose names its own would have.
pub fn directory_findings(pipeline: &Pipeline) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, sink) in &pipeline.sinks {
        let SinkConnector::Directory(options) = &sink.connector else {
            continue;
        };
        let entries = std::fs::read_dir(&options.path).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        if let Some(file) = names.filter(|name| options.is_file_name(name)).min() {
            findings.push(Finding::error(
                &pipeline.file,
                sink.line,
                format!(
                    "sink {name}: {} is there, and no data directory that knows of it",
                    options.path.join(file).display()
                ),
                "move such files away, write another path or prefix, or name their data directory by --data",
            ));
        }
    }
    findings
}

/// Opens every source at its beginning, to see that it can be read. A queue is there for certain: a run makes it.
fn check_sources(pipeline: &Pipeline, findings: &mut Vec<Finding>) {
    for (name, source) in &pipeline.sources {
        let opened = source.partitions.iter();
        let opened = opened.filter(|it| !matches!(it, SourceConnector::Queue(_)));
        let opened = opened.map(|partition| source::open(partition, Opening::at(None)));
        for error in opened.filter_map(Result::err) {
            findings.push(Finding::error(
                &pipeline.file,
                source.line,
                format!("source {name}: {}", with_causes(&error)),
                "see to it, or name another one",
            ));
        }
    }
}

/// Whether the component has the states that are told to grow old.
fn check_states(
    pipeline: &Pipeline,
    name: &str,
    options: &ComputationOptions,
    description: &Description,
    findings: &mut Vec<Finding>,
) {
    let declared: Vec<&str> = (description.states.iter())
        .map(|state| state.name.as_str())
        .collect();
    for (state, ttl) in &options.state_ttls {
        if declared.contains(&state.as_str()) {
            continue;
        }
        let remedy = match declared.is_empty() {
            true => "remove it: the component has no states".to_owned(),
            false => format!("the component declares {}", declared.join(", ")),
        };
        findings.push(Finding::error(
            &pipeline.file,
            ttl.line,
            format!("computation {name}: its component has no state {state}"),
            remedy,
        ));
    }
}

/// Calls the computation with an empty batch, which has no effects: a component reads its
/// parameters first.
fn check_parameters(
    pipeline: &Pipeline,
    options: &ComputationOptions,
    computation: &mut Computation,
    findings: &mut Vec<Finding>,
) {
    let description = computation.description();
    let empty = Batch {
        watermarks: match description.kind {
            ComputationKind::Map => Vec::new(),
            ComputationKind::Transform => vec![0; description.inputs.len()],
        },
        states: vec![StateColumn::default(); description.states.len()],
        ..Batch::default()
    };
    let Err(error) = computation.process(&empty) else {
        return;
    };
    let (line, remedy) = match error {
        GuestError::Failure { .. } => (
            options.lines.parameters,
            "correct the parameters; it was called without a message",
        ),
        _ => (
            options.lines.component,
            "it was called without a message, to see whether it accepts its parameters",
        ),
    };
    let message = guest_error(&error);
    findings.push(Finding::error(&pipeline.file, line, message, remedy));
}

/// The error with its cause, but without the backtrace of a failed call: a finding is one line.
fn guest_error(error: &GuestError) -> String {
    match error.report() {
        Some(_) => error.to_string(),
        None => with_causes(error),
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Whether the component is what the pipeline file says: its kind, and its streams by name.
fn check_place(
    pipeline: &Pipeline,
    name: &str,
    options: &ComputationOptions,
    description: &Description,
    findings: &mut Vec<Finding>,
) {
    let mut report = |line: usize, message: String, remedy: String| {
        findings.push(Finding::error(&pipeline.file, line, message, remedy));
    };
    if options.kind != description.kind {
        let (asked, is) = (options.kind.name(), description.kind.name());
        report(
            options.lines.kind,
            format!("computation {name} is a {asked} here, its component is a {is}"),
            format!("write kind = \"{is}\" or name another component"),
        );
    }
    let sides = [
        (
            "inputs",
            options.lines.inputs,
            &options.inputs,
            &description.inputs,
        ),
        (
            "outputs",
            options.lines.outputs,
            &options.outputs,
            &description.outputs,
        ),
    ];
    for (side, line, written, declared) in sides {
        let missing = difference(declared, written);
        let unknown = difference(written, declared);
        if missing.is_empty() && unknown.is_empty() {
            continue;
        }
        let mut parts = Vec::new();
        if !unknown.is_empty() {
            parts.push(format!(
                "the component does not know {}",
                unknown.join(", ")
            ));
        }
        if !missing.is_empty() {
            parts.push(format!("{} is missing here", missing.join(", ")));
        }
        report(
            line,
            format!("{side} of computation {name}: {}", parts.join("; ")),
            format!("the component declares {side} = {declared:?}"),
        );
    }
}

fn difference<'a>(these: &'a [String], those: &[String]) -> Vec<&'a str> {
    let missing = these.iter().filter(|name| !those.contains(name));
    missing.map(String::as_str).collect()
}
