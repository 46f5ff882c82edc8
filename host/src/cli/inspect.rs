//! `tidelock inspect FILE.wasm`: what a component is, says and imports, and what the host makes of
//! each import when nothing is granted.
//!
//! A component that can't run is shown as far as it is understood, with the reason; only bytes that
//! are not a component are an error.

use std::path::PathBuf;

use anyhow::Context as _;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::cli::OutputFormat;
use crate::cli::printing::print_line;
use crate::controller::admission::read_component;
use crate::guest::policy::{self, Determinism, JudgedImport, Verdict};
use crate::guest::{
    Component, Computation, ComputationSettings, GuestError, GuestOptions, GuestRuntime,
};
use crate::types::batch::{Description, TimeDomain};
use crate::types::pipeline::{CallLimits, ClockGrant, Grants, InstancePolicy, RandomGrant};

/// Shows a component: exports, description, imports with verdicts, determinism, size, digest
#[derive(Debug, clap::Args)]
pub struct InspectArguments {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
}

/// Shows the component on standard output.
///
/// # Errors
///
/// When the file can't be read or is not a component, or standard output is closed.
pub fn inspect(arguments: &InspectArguments, output: OutputFormat) -> anyhow::Result<()> {
    let shown = arguments.file.display();
    let bytes = read_component(&arguments.file)
        .map_err(|finding| anyhow::anyhow!("{shown} {finding}; name a component file"))?;
    let runtime = GuestRuntime::new(GuestOptions {
        instances_max: 1,
        ..GuestOptions::default()
    })?;
    let component = runtime
        .load(&bytes)
        .with_context(|| format!("failed to load {shown}"))?;
    let inspection = Inspection::of(&runtime, &component);
    let text = match output {
        OutputFormat::Text => inspection.to_text(),
        OutputFormat::Json => serde_json::to_string_pretty(&inspection)?,
    };
    print_line(text.trim_end())
}

/// Everything that is known of a component.
#[derive(Debug, Serialize)]
struct Inspection {
    digest: String,
    size_bytes: usize,
    exports: Vec<String>,
    imports: Vec<JudgedImport>,
    /// With the grants that it needs.
    determinism: Determinism,
    /// The least that must be granted for it to run, as the pipeline file spells it; absent where
    /// no constant grant is enough.
    grants_needed: Option<&'static str>,
    description: Option<Description>,
    /// Why there is no description.
    problem: Option<String>,
}

impl Inspection {
    fn of(runtime: &std::sync::Arc<GuestRuntime>, component: &Component) -> Inspection {
        let (description, problem) = match describe(runtime, component) {
            Ok(description) => (Some(description), None),
            Err(error) => (None, Some(chain(&error))),
        };
        Inspection {
            digest: component.digest().to_string(),
            size_bytes: component.size_bytes(),
            exports: component.exports().to_vec(),
            imports: policy::judge(component, &Grants::default(), None).imports,
            determinism: policy::judge(component, &constant_grants(), None).determinism,
            grants_needed: grants_needed(component),
            description,
            problem,
        }
    }

    fn to_text(&self) -> String {
        let mut facts = table();
        facts.add_row(["digest", &self.digest]);
        facts.add_row(["size", &format!("{} bytes", self.size_bytes)]);
        facts.add_row(["determinism", &self.determinism_text()]);
        if let Some(description) = &self.description {
            for (name, value) in description_rows(description) {
                facts.add_row([name, &value]);
            }
        }
        let mut text = lines_of(&facts);
        if let Some(problem) = &self.problem {
            text.push_str("\n\nno description: ");
            text.push_str(problem);
        }
        push_section(&mut text, "exports", &list(&self.exports));
        push_section(
            &mut text,
            "imports, with nothing granted",
            &imports(&self.imports),
        );
        text
    }

    fn determinism_text(&self) -> String {
        match self.grants_needed {
            Some("") => self.determinism.to_string(),
            Some(grants) => format!("{}, with {grants}", self.determinism),
            None => "it can't run, see the imports".to_owned(),
        }
    }
}

/// Asks the component for its description with constant clocks and random numbers, which show
/// nothing of this machine.
fn describe(
    runtime: &std::sync::Arc<GuestRuntime>,
    component: &Component,
) -> Result<Description, GuestError> {
    let settings = ComputationSettings {
        name: "inspected".to_owned(),
        parameters: "{}".to_owned(),
        grants: constant_grants(),
        limits: CallLimits::default(),
        instance: InstancePolicy::Fresh,
        relaxed_batching: false,
    };
    Computation::new(runtime, component, settings)
        .map(|computation| computation.description().clone())
}

fn constant_grants() -> Grants {
    Grants {
        random: RandomGrant::Seeded,
        clock: ClockGrant::Frozen,
        directories: Vec::new(),
    }
}

/// The least of the constant grants under which nothing is refused.
fn grants_needed(component: &Component) -> Option<&'static str> {
    let choices = [
        ("", RandomGrant::Deny, ClockGrant::Deny),
        ("random = \"seeded\"", RandomGrant::Seeded, ClockGrant::Deny),
        ("clock = \"frozen\"", RandomGrant::Deny, ClockGrant::Frozen),
        (
            "random = \"seeded\", clock = \"frozen\"",
            RandomGrant::Seeded,
            ClockGrant::Frozen,
        ),
    ];
    let is_enough = |random, clock| {
        let grants = Grants {
            random,
            clock,
            directories: Vec::new(),
        };
        policy::judge(component, &grants, None)
            .refusals()
            .is_empty()
    };
    choices
        .into_iter()
        .find(|(_, random, clock)| is_enough(*random, *clock))
        .map(|(text, _, _)| text)
}

fn chain(error: &GuestError) -> String {
    match error.report() {
        Some(report) => format!("{error}\n{report}"),
        None => error.to_string(),
    }
}

fn description_rows(description: &Description) -> Vec<(&'static str, String)> {
    let states = description.states.iter().map(|state| {
        format!(
            "{} (version {}, {})",
            state.name, state.version, state.format
        )
    });
    let timers = description.timers.iter().map(|timer| match timer.time {
        TimeDomain::EventTime => format!("{} (event time)", timer.name),
        TimeDomain::SystemTime => format!("{} (system time)", timer.name),
    });
    vec![
        ("kind", description.kind.name().to_owned()),
        ("inputs", description.inputs.join(", ")),
        ("outputs", description.outputs.join(", ")),
        ("states", states.collect::<Vec<_>>().join(", ")),
        ("timers", timers.collect::<Vec<_>>().join(", ")),
    ]
}

fn imports(imports: &[JudgedImport]) -> String {
    let mut shown = table();
    for import in imports {
        let verdict = match &import.verdict {
            Verdict::Offered => "offered".to_owned(),
            Verdict::Granted { by } => format!("granted by {by}"),
            Verdict::Refused { cause, remedy } => format!("refused: {cause}; {remedy}"),
        };
        shown.add_row([&import.name, &verdict]);
    }
    match imports.is_empty() {
        true => "none".to_owned(),
        false => lines_of(&shown),
    }
}

fn list(lines: &[String]) -> String {
    match lines.is_empty() {
        true => "none".to_owned(),
        false => lines.join("\n"),
    }
}

fn push_section(text: &mut String, title: &str, body: &str) {
    text.push_str("\n\n");
    text.push_str(title);
    for line in body.lines() {
        text.push_str("\n  ");
        text.push_str(line);
    }
}

/// Columns without a frame, for people and for `cut` alike.
fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn lines_of(table: &Table) -> String {
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspect_text(text: &str) -> Inspection {
        let bytes = wat::parse_str(text).expect("wat");
        let runtime = GuestRuntime::new(GuestOptions::default()).expect("the runtime starts");
        let component = runtime.load(&bytes).expect("a component");
        Inspection::of(&runtime, &component)
    }

    #[test]
    fn component_that_can_not_run_is_shown_with_the_reason() {
        let inspection = inspect_text(
            r#"(component (import "wasi:sockets/tcp@0.2.0" (instance (export "connect" (func)))))"#,
        );
        assert_eq!(inspection.grants_needed, None);
        let text = inspection.to_text();
        for part in [
            "sha256:",
            "wasi:sockets/tcp.connect@0.2.0",
            "refused: ",
            "std::net",
            "exports",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn json_has_the_verdict_of_each_import() {
        let inspection = inspect_text(
            r#"(component (import "wasi:random/random@0.2.0" (instance
                (export "get-random-u64" (func (result u64))))))"#,
        );
        let json = serde_json::to_value(&inspection).expect("JSON");
        assert_eq!(json["imports"][0]["verdict"], "refused");
        assert_eq!(
            json["imports"][0]["name"],
            "wasi:random/random.get-random-u64@0.2.0"
        );
        assert_eq!(json["determinism"], "granted");
        assert_eq!(json["grants_needed"], "random = \"seeded\"");
        assert_eq!(json["description"], serde_json::Value::Null);
        assert!(
            json["problem"]
                .as_str()
                .is_some_and(|problem| problem.contains("exports nothing"))
        );
    }
}
