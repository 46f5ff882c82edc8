//! What a dead letter tells of a call that failed. The same call has the same failure on every machine, so it is also what
//! a repetition is held against.

use crate::guest::error::GuestError;
use crate::types::dead_letter::{LETTER_TEXT_BYTES_MAX, LetterFailure};

impl GuestError {
    /// The kind of failure, one of a fixed set of names that dead letters are known by; `None` where no call was made.
    pub fn class(&self) -> Option<&'static str> {
        Some(match self {
            GuestError::Panic { .. } => "panic",
            GuestError::Trap { .. } => "trap",
            GuestError::Exit { .. } => "exit",
            GuestError::OutOfFuel { .. } => "out_of_fuel",
            GuestError::OutOfMemory { .. } => "out_of_memory",
            GuestError::StackOverflow { .. } => "stack_overflow",
            GuestError::Deadline { .. } => "deadline",
            GuestError::OversizeOutput { .. } => "oversize_output",
            GuestError::OverLimit { .. } => "over_limit",
            GuestError::MalformedEffects { .. } => "malformed_effects",
            GuestError::Failure { .. } => "failure",
            _ => return None,
        })
    }

    /// What a dead letter tells of it, each part bounded by [`LETTER_TEXT_BYTES_MAX`]; `None` where no call was made.
    pub fn letter_failure(&self) -> Option<LetterFailure> {
        let class = self.class()?.to_owned();
        let report = self.report()?;
        Some(LetterFailure {
            class,
            reason: bounded(&self.bare_reason()),
            fuel: report.fuel,
            backtrace: bounded(&report.backtrace),
            stdout: bounded(&report.stdout),
            stderr: bounded(&report.stderr),
        })
    }

    /// Why, without the computation's name and advice.
    fn bare_reason(&self) -> String {
        match self {
            GuestError::Panic { message, .. } => message.clone(),
            GuestError::Trap { reason, .. } | GuestError::Failure { reason, .. } => reason.clone(),
            GuestError::Exit { code, .. } => format!("called exit({code})"),
            GuestError::OutOfFuel { limit, .. } => format!("used up its {limit} units of fuel"),
            GuestError::OutOfMemory {
                asked_bytes,
                limit_bytes,
                ..
            } => format!("asked for {asked_bytes} bytes of memory, allowed are {limit_bytes}"),
            GuestError::StackOverflow { .. } => {
                "its calls nest deeper than the stack allows".to_owned()
            }
            GuestError::Deadline { deadline, .. } => format!("ran longer than {deadline:?}"),
            GuestError::OversizeOutput {
                size_bytes,
                limit_bytes,
                ..
            } => match size_bytes {
                Some(size) => {
                    format!("returned {size} bytes of effects, allowed are {limit_bytes}")
                }
                None => format!("returned too much to be copied, allowed are {limit_bytes} bytes"),
            },
            GuestError::OverLimit { excess, .. } => excess.to_string(),
            GuestError::MalformedEffects { fault, .. } => fault.to_string(),
            error => error.to_string(),
        }
    }
}

/// A text, cut to what a letter keeps of one.
fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(LETTER_TEXT_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::error::CallReport;

    fn report(stderr: &str) -> Box<CallReport> {
        Box::new(CallReport {
            item: Some(0),
            fuel: 77,
            backtrace: "0: process".to_owned(),
            stdout: String::new(),
            stderr: stderr.to_owned(),
        })
    }

    #[test]
    fn a_letter_tells_the_bare_reason_and_no_more_than_it_keeps() {
        let long = "\u{e9}".repeat(LETTER_TEXT_BYTES_MAX);
        let error = GuestError::Failure {
            computation: "delays".to_owned(),
            reason: "no carrier".to_owned(),
            report: report(&long),
        };
        let failure = error.letter_failure().expect("a call failed");
        assert_eq!(
            (
                failure.class.as_str(),
                failure.reason.as_str(),
                failure.fuel
            ),
            ("failure", "no carrier", 77)
        );
        assert_eq!(failure.stderr.len(), LETTER_TEXT_BYTES_MAX);
        assert!(long.starts_with(&failure.stderr));
    }

    #[test]
    fn what_is_no_call_is_no_failure_of_an_item() {
        let error = GuestError::Runtime {
            reason: "no memory".to_owned(),
        };
        assert_eq!(error.letter_failure(), None);
    }
}
