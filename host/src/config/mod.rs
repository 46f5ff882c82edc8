//! Reads pipeline files: `tidelock.toml` in, [`Pipeline`] out, or everything that is wrong with it
//! at once, each finding with its line and what to do.
//!
//! Checked here is what the file and the names in it can tell; whether a component fits its place
//! is checked later, against the lines that [`Pipeline`] keeps.
//!
//! **Invariant:** nothing in a file is ignored in silence. What this release does not act on is
//! refused, and a finding in one place hides none in another.

mod connectors;
pub(crate) mod fields;
mod graph;
pub mod queues;
mod report;
mod tables;
mod time;
pub(crate) mod units;

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::config::fields::Fields;
use crate::config::report::Report;
use crate::types::finding::Finding;
use crate::types::pipeline::Pipeline;

/// The name of a pipeline file where only its folder is given.
pub const PIPELINE_FILE_NAME: &str = "tidelock.toml";

/// The longest pipeline file accepted, in bytes.
pub const PIPELINE_FILE_BYTES_MAX: usize = 1 << 20;

/// A pipeline file that can't be used, with everything that was found in it, by line.
#[derive(Debug, serde::Serialize)]
pub struct PipelineFileError {
    /// All findings, at least one of them an error.
    pub findings: Vec<Finding>,
}

/// One finding a line.
impl fmt::Display for PipelineFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PipelineFileError {}

/// Reads and checks the pipeline file at `path`; a folder stands for its `tidelock.toml`.
///
/// # Errors
///
/// When the file can't be read, or anything in it is wrong: all findings at once.
pub fn load(path: &Path) -> Result<Pipeline, PipelineFileError> {
    let file = match path.is_dir() {
        true => path.join(PIPELINE_FILE_NAME),
        false => path.to_owned(),
    };
    let text = read_text(&file).map_err(|finding| PipelineFileError {
        findings: vec![finding],
    })?;
    parse(&file, &text)
}

/// The text of the file, which must not be longer than [`PIPELINE_FILE_BYTES_MAX`].
fn read_text(file: &Path) -> Result<String, Finding> {
    let unreadable = |error: std::io::Error| {
        let remedy = format!(
            "name a pipeline file, or a folder that holds a {PIPELINE_FILE_NAME}, that can be read"
        );
        Finding::error(file, None, format!("can't be read: {error}"), remedy)
    };
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(Finding::error(
            file,
            None,
            "is not a regular file",
            "name a pipeline file, or the folder that holds it",
        ));
    }
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| {
            opened
                .take(PIPELINE_FILE_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(unreadable)?;
    if bytes.len() > PIPELINE_FILE_BYTES_MAX {
        return Err(Finding::error(
            file,
            None,
            format!("is longer than {PIPELINE_FILE_BYTES_MAX} bytes"),
            "check that this is the pipeline file and not one of its inputs",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Finding::error(
            file,
            line,
            "is not UTF-8 from this line on",
            "save it as UTF-8",
        )
    })
}

/// Reads and checks `text`, the content of `file`.
fn parse(file: &Path, text: &str) -> Result<Pipeline, PipelineFileError> {
    let report = Report::new(file, text);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        let line = error.span().map(|span| report.line_at(span.start));
        // Some messages list what was expected over several lines.
        let message = error
            .message()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        report.error(line, format!("not TOML: {message}"), "correct the line");
    }
    // What was recovered from broken text would only lead to wrong findings.
    let pipeline = match syntax_errors.is_empty() {
        true => {
            let folder = folder_of(file);
            let fields = Fields::new(&report, "the pipeline".to_owned(), 1, document.get_ref());
            tables::read_pipeline(&report, file, &folder, fields)
        }
        false => None,
    };
    let findings = report.into_findings();
    match pipeline {
        Some(pipeline) if !findings.iter().any(Finding::is_error) => Ok(Pipeline {
            warnings: findings,
            ..pipeline
        }),
        _ => Err(PipelineFileError { findings }),
    }
}

/// The folder that paths in `file` are relative to, absolute where that can be found out.
fn folder_of(file: &Path) -> PathBuf {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

#[cfg(test)]
mod tests;
