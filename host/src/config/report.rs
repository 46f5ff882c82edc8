//! Collects what is found in one pipeline file, and knows its lines. Says nothing about what is
//! right or wrong.

use std::cell::RefCell;
use std::path::Path;

use crate::types::finding::Finding;

/// The findings of one file, as they come.
pub(super) struct Report<'a> {
    file: &'a Path,
    /// Byte offset at which each line begins.
    line_starts: Vec<usize>,
    findings: RefCell<Vec<Finding>>,
}

impl<'a> Report<'a> {
    pub(super) fn new(file: &'a Path, text: &str) -> Report<'a> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Report {
            file,
            line_starts: [0].into_iter().chain(ends.map(|(at, _)| at + 1)).collect(),
            findings: RefCell::default(),
        }
    }

    /// The line, from 1, that byte `offset` of the file is on.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    pub(super) fn error(
        &self,
        line: impl Into<Option<usize>>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let finding = Finding::error(self.file, line, message, remedy);
        self.findings.borrow_mut().push(finding);
    }

    pub(super) fn warning(
        &self,
        line: impl Into<Option<usize>>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let finding = Finding::warning(self.file, line, message, remedy);
        self.findings.borrow_mut().push(finding);
    }

    /// An option or value that a later release will know.
    pub(super) fn not_supported_yet(&self, line: usize, what: &str, remedy: impl Into<String>) {
        self.error(line, format!("{what} is not supported yet"), remedy);
    }

    /// All findings in the order of their lines.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        let mut findings = self.findings.into_inner();
        findings.sort_by_key(|finding| finding.line);
        findings
    }
}

/// The candidate most like `name`, if any is close enough to be what was meant.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + name.len().min(candidate.len()) / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The names in quotes, for messages: `"a", "b" or "c"`.
pub(super) fn listed(names: &[&str], last_word: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} {last_word} {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let report = Report::new(Path::new("f"), "a\n\nbc");
        let lines: Vec<usize> = (0..5).map(|offset| report.line_at(offset)).collect();
        assert_eq!(lines, [1, 1, 2, 3, 3]);
    }

    #[test]
    fn nearest_takes_slips_and_leaves_strangers() {
        let names = ["inputs", "outputs", "kind"];
        assert_eq!(nearest("input", names), Some("inputs"));
        assert_eq!(nearest("ouptuts", names), Some("outputs"));
        assert_eq!(nearest("retention", names), None);
        assert_eq!(nearest("", ["a"]), Some("a"));
    }
}
