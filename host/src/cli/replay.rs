//! `tidelock replay`: makes the call of a dead letter again, from the folder that `tidelock dlq repro` wrote.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::cli::printing::{print, print_json};
use crate::cli::repro::call::CallDocument;
use crate::cli::repro::effects::EffectsDocument;
use crate::cli::repro::folder::{COMPONENT, RecordedCall};
use crate::cli::{Outcome, OutputFormat};
use crate::controller::admission::read_component;
use crate::guest::policy::Determinism;
use crate::guest::{Call, Component, Computation, GuestError, GuestOptions, GuestRuntime};
use crate::telemetry::LogOutput;
use crate::types::batch::Batch;
use crate::types::dead_letter::LetterFailure;
use crate::types::digest::Digest;

/// Characters that are shown of a text from where it differs.
const SHOWN_CHARS: usize = 60;

/// Arguments of `tidelock replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The folder that `tidelock dlq repro` wrote.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Try this component on the same call, and show what it makes of it.
    #[arg(long, value_name = "FILE.wasm")]
    pub component: Option<PathBuf>,
}

/// What came of it, for `-o json`.
#[derive(Debug, Serialize)]
struct ReplayDocument<'a> {
    letter: &'a str,
    pipeline: &'a str,
    computation: &'a str,
    /// Of the component that was called.
    component_digest: String,
    /// Whether the call failed as it did before.
    reproduced: bool,
    expected: &'a LetterFailure,
    /// How it failed now; null where it passed.
    failure: Option<&'a LetterFailure>,
    /// In what the failures differ; nothing is compared of another component.
    differences: &'a [Difference],
    /// What it brings where it passed.
    effects: Option<EffectsDocument<'a>>,
}

/// A part of a failure that is another one than before.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Difference {
    part: &'static str,
    expected: String,
    found: String,
}

/// Makes the call again.
///
/// # Errors
///
/// When the folder is not as it was written, or the component can't be called.
pub fn replay(
    arguments: &ReplayArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let RecordedCall { call, expected } = RecordedCall::read(&arguments.folder)?;
    let runtime = GuestRuntime::new(GuestOptions {
        instances_max: 1,
        ..GuestOptions::default()
    })?;
    let component = component_of(arguments, &call, &runtime)?;
    let settings = call.settings.clone().into_settings(&call.computation);
    let mut computation = Computation::new(&runtime, &component, settings)
        .context("the component can't be called")?;
    if computation.verdicts().determinism == Determinism::Host {
        logs.print_line(
            "warning: the computation sees the machine's clock, random numbers or files, which were other ones when it failed",
        );
    }
    if call.left_out_state_bytes > 0 {
        logs.print_line(&format!(
            "warning: the call is without the {} bytes of states that it had when it failed",
            call.left_out_state_bytes
        ));
    }
    let batch = (call.batch.batch(computation.description())).map_err(|finding| {
        let which = match &arguments.component {
            Some(_) => "the component does not fit the call",
            None => "call.json is not as it was written",
        };
        anyhow::anyhow!("{which}: {finding}")
    })?;
    let called = made_again(&mut computation, &batch)?;
    let replayed = Replayed {
        is_other: arguments.component.is_some(),
        differences: match (&called, &arguments.component) {
            (_, Some(_)) => Vec::new(),
            (Called::Failed(found), None) => differences(&expected, found),
            (Called::Passed(_), None) => vec![Difference {
                part: "outcome",
                expected: format!("a failure of class {}", expected.class),
                found: "the call passes".to_owned(),
            }],
        },
        called,
    };
    let effects = match &replayed.called {
        Called::Passed(passed) => Some(EffectsDocument::of(
            passed,
            &batch,
            computation.description(),
        )),
        Called::Failed(_) => None,
    };
    if let Called::Failed(found) = &replayed.called
        && !replayed.is_other
        && found.backtrace != expected.backtrace
    {
        // Its form is the engine's, which another release may have another one of.
        logs.print_line("note: the backtrace is another one than before");
    }
    match output {
        OutputFormat::Json => print_json(&ReplayDocument {
            letter: &call.letter,
            pipeline: &call.pipeline,
            computation: &call.computation,
            component_digest: component.digest().to_string(),
            reproduced: replayed.outcome() == Outcome::Done && !replayed.is_other,
            expected: &expected,
            failure: match &replayed.called {
                Called::Failed(failure) => Some(failure),
                Called::Passed(_) => None,
            },
            differences: &replayed.differences,
            effects,
        })?,
        OutputFormat::Text => print(|to| {
            writeln!(to, "{}", replayed.headline(&call))?;
            for Difference {
                part,
                expected,
                found,
            } in &replayed.differences
            {
                writeln!(to, "  {part}: expected {expected}")?;
                writeln!(
                    to,
                    "  {:part_len$}     found {found}",
                    "",
                    part_len = part.len()
                )?;
            }
            if let Some(effects) = effects {
                writeln!(to, "{}", serde_json::to_string_pretty(&effects)?)?;
            }
            Ok(())
        })?,
    }
    Ok(replayed.outcome())
}

/// The component that is to be called.
fn component_of(
    arguments: &ReplayArguments,
    call: &CallDocument,
    runtime: &GuestRuntime,
) -> anyhow::Result<Component> {
    let in_folder = arguments.folder.join(COMPONENT);
    let path = arguments.component.as_ref().unwrap_or(&in_folder);
    let shown = path.display();
    let bytes = read_component(path)
        .map_err(|finding| anyhow::anyhow!("the component {shown} {finding}"))?;
    let found = Digest::of(&bytes).to_string();
    anyhow::ensure!(
        arguments.component.is_some() || found == call.component_digest,
        "{shown} is {found}, and the component that failed was {}; write the folder again, or try the file with --component",
        call.component_digest
    );
    runtime
        .load(&bytes)
        .with_context(|| format!("failed to load {shown}"))
}

/// How a call ended.
#[derive(Debug)]
enum Called {
    Passed(Box<Call>),
    Failed(Box<LetterFailure>),
}

fn made_again(computation: &mut Computation, batch: &Batch) -> Result<Called, GuestError> {
    match computation.process(batch) {
        Ok(call) => Ok(Called::Passed(Box::new(call))),
        Err(error) => match error.letter_failure() {
            Some(failure) => Ok(Called::Failed(Box::new(failure))),
            // No call was made.
            None => Err(error),
        },
    }
}

/// A call that was made again.
struct Replayed {
    called: Called,
    /// Whether another component was tried.
    is_other: bool,
    differences: Vec<Difference>,
}

impl Replayed {
    fn outcome(&self) -> Outcome {
        match (&self.called, self.is_other) {
            (Called::Passed(_), true) => Outcome::Done,
            (Called::Failed(_), true) => Outcome::Failed,
            (_, false) if self.differences.is_empty() => Outcome::Done,
            (_, false) => Outcome::NotReproduced,
        }
    }

    fn headline(&self, call: &CallDocument) -> String {
        let name = &call.computation;
        match (&self.called, self.is_other) {
            (Called::Passed(_), true) => {
                format!("computation {name} passes with this component; its effects:")
            }
            (Called::Failed(failure), true) => format!(
                "computation {name} fails with this component too: {}: {}",
                failure.class, failure.reason
            ),
            (Called::Failed(failure), false) if self.differences.is_empty() => format!(
                "reproduced: computation {name} fails with {}: {} ({} units of fuel)",
                failure.class, failure.reason, failure.fuel
            ),
            (_, false) => format!("not reproduced: computation {name} did not end as before"),
        }
    }
}

/// In what a failure is another one, to the byte.
fn differences(expected: &LetterFailure, found: &LetterFailure) -> Vec<Difference> {
    let fuel = [expected.fuel.to_string(), found.fuel.to_string()];
    let parts = [
        ("class", &expected.class, &found.class),
        ("reason", &expected.reason, &found.reason),
        ("fuel", &fuel[0], &fuel[1]),
        ("stdout", &expected.stdout, &found.stdout),
        ("stderr", &expected.stderr, &found.stderr),
    ];
    let differing = parts
        .into_iter()
        .filter(|(_, expected, found)| expected != found);
    differing
        .map(|(part, expected, found)| {
            let (expected, found) = shown_difference(expected, found);
            Difference {
                part,
                expected,
                found,
            }
        })
        .collect()
}

/// Two texts from where they differ.
fn shown_difference(expected: &str, found: &str) -> (String, String) {
    let same = (expected.chars().zip(found.chars()))
        .take_while(|(left, right)| left == right)
        .count();
    // With a little before it, so that the place can be found.
    let start = same.saturating_sub(SHOWN_CHARS / 3);
    let show = |text: &str| {
        let shown: String = text.chars().skip(start).take(SHOWN_CHARS).collect();
        match start {
            0 => format!("{shown:?}"),
            start => format!("{shown:?} (from character {start} on)"),
        }
    };
    (show(expected), show(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_where_it_is() {
        let failure = |stderr: &str| LetterFailure {
            class: "panic".to_owned(),
            stderr: stderr.to_owned(),
            ..LetterFailure::default()
        };
        let long = "a".repeat(100);
        let expected = failure(&format!("{long}b"));
        assert_eq!(differences(&expected, &expected), []);
        let found = differences(&expected, &failure(&format!("{long}c")));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].part, "stderr");
        let ends = |text: &str, end: &str| text.ends_with(end);
        assert!(
            ends(&found[0].expected, "aab\" (from character 80 on)"),
            "{found:?}"
        );
        assert!(
            ends(&found[0].found, "aac\" (from character 80 on)"),
            "{found:?}"
        );
        let other = LetterFailure {
            fuel: 1,
            ..expected.clone()
        };
        assert_eq!(differences(&expected, &other)[0].part, "fuel");
    }
}
