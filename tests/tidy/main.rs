//! The house rules that a machine can read. Each rule is a function from the project's files to what it
//! finds there; its test first shows it an offender, so that a rule which has gone blind fails.

mod arrows;
mod contents;
mod documents;
mod files;
mod manifests;
mod rust;
mod words;

use crate::files::{File, project};

/// The project keeps the rule, and the rule finds the offender.
fn check(rule: fn(&[File]) -> Vec<String>, offender: &[File], expected: &str) {
    let found = rule(offender);
    assert!(
        found.iter().any(|finding| finding.starts_with(expected)),
        "the rule does not see its offender: {found:?}"
    );
    let found = rule(&project());
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
