//! What a check has to say about one place of a file: what is wrong, where, and what to do. Made
//! by [`crate::config`] and by the checks of components against the pipeline that names them.

use std::fmt;
use std::path::{Path, PathBuf};

/// One thing found in a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; none where the file as a whole is meant.
    pub line: Option<usize>,
    /// Whether it stops a run.
    pub severity: Severity,
    /// What was found: lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing runs until it is dealt with.
    Error,
    /// It runs; somebody should have a look.
    Warning,
}

impl Finding {
    /// A finding that stops a run.
    pub fn error(
        file: &Path,
        line: impl Into<Option<usize>>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            file: file.to_owned(),
            line: line.into(),
            severity: Severity::Error,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A finding that stops nothing.
    pub fn warning(
        file: &Path,
        line: impl Into<Option<usize>>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::Warning,
            ..Finding::error(file, line, message, remedy)
        }
    }

    /// Whether it stops a run.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `file:line: message; remedy`, with the word "warning" before the message of a warning.
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(formatter, "{line}:")?;
        }
        if self.severity == Severity::Warning {
            write!(formatter, " warning:")?;
        }
        write!(formatter, " {}; {}", self.message, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_show_place_message_and_remedy() {
        let file = Path::new("tidelock.toml");
        assert_eq!(
            Finding::error(file, 3, "no name", "add one").to_string(),
            "tidelock.toml:3: no name; add one"
        );
        assert_eq!(
            Finding::warning(file, None, "it is empty", "fill it").to_string(),
            "tidelock.toml: warning: it is empty; fill it"
        );
    }
}
