//! Whether a pipeline may run: its components load, import only what they are granted, and fit
//! their places. `tidelock check` and `tidelock run` ask the same questions here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::guest::{Component, Computation, ComputationSettings, GuestRuntime};
use crate::types::batch::Description;
use crate::types::finding::Finding;
use crate::types::pipeline::{ComputationOptions, Pipeline};

/// The largest component file accepted, in bytes.
pub const COMPONENT_BYTES_MAX: u64 = 256 << 20;

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
}

impl AdmittedComputation {
    /// The component, ready to be called, for one job.
    ///
    /// # Errors
    ///
    /// As [`Computation::new`]; it worked once before.
    pub fn instance(
        &self,
        runtime: &Arc<GuestRuntime>,
    ) -> Result<Computation, crate::guest::GuestError> {
        Computation::new(runtime, &self.component, self.settings.clone())
    }
}

/// Loads and checks every component of the pipeline.
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
        };
        match Computation::new(runtime, component, settings.clone()) {
            Ok(computation) => {
                let description = computation.description().clone();
                check_place(pipeline, name, options, &description, &mut findings);
                warn_of_impurity(pipeline, name, options, &computation, &mut findings);
                let admitted = AdmittedComputation {
                    component: component.clone(),
                    settings,
                    description,
                };
                computations.insert(name.clone(), admitted);
            }
            Err(error) => findings.push(Finding::error(
                &pipeline.file,
                options.lines.component,
                format!("computation {name}: {error}"),
                "`tidelock inspect` shows what the component imports and exports",
            )),
        }
    }
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
    let metadata = std::fs::metadata(path).map_err(can_not)?;
    if !metadata.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if metadata.len() > COMPONENT_BYTES_MAX {
        let size = metadata.len();
        return Err(format!(
            "has {size} bytes, the limit is {COMPONENT_BYTES_MAX}"
        ));
    }
    std::fs::read(path).map_err(can_not)
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
        let (asked, is) = (kind_name(options), description.kind);
        let is = format!("{is:?}").to_lowercase();
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

fn kind_name(options: &ComputationOptions) -> String {
    format!("{:?}", options.kind).to_lowercase()
}

fn difference<'a>(these: &'a [String], those: &[String]) -> Vec<&'a str> {
    let missing = these.iter().filter(|name| !those.contains(name));
    missing.map(String::as_str).collect()
}

/// An impure transform runs, and everybody should know.
fn warn_of_impurity(
    pipeline: &Pipeline,
    name: &str,
    options: &ComputationOptions,
    computation: &Computation,
    findings: &mut Vec<Finding>,
) {
    for warning in &computation.verdicts().warnings {
        findings.push(Finding::warning(
            &pipeline.file,
            options.lines.grants,
            format!("computation {name}: {warning}"),
            "grant less to make its results repeatable",
        ));
    }
}
