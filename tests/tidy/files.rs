//! The files of the project as the rules see them.

use std::fs;
use std::path::Path;

use crate::rust::blanked;

/// A text file of the project.
pub(crate) struct File {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Its lines of code with their numbers, comments and the insides of strings blanked out.
    pub(crate) fn code(&self) -> Vec<(usize, String)> {
        numbered(&blanked(&self.text, false))
    }

    /// The code that is part of the product: what stands before the tests at the foot of the file, and
    /// nothing of a file of tests.
    pub(crate) fn product_code(&self) -> Vec<(usize, String)> {
        if self.path.starts_with("tests/") || self.path.ends_with("tests.rs") {
            return Vec::new();
        }
        let code = self.code();
        let tests = code
            .windows(2)
            .position(|pair| pair[0].1.trim() == "#[cfg(test)]" && pair[1].1.contains("mod "))
            .unwrap_or(code.len());
        code.into_iter().take(tests).collect()
    }

    /// A finding at one of its lines.
    pub(crate) fn at(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path)
    }
}

pub(crate) fn numbered(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.to_owned()))
        .collect()
}

/// Every text file of the project, in the order of their paths.
pub(crate) fn project() -> Vec<File> {
    fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) {
        for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
            let path = entry.expect("a folder of the project can be read").path();
            let relative = path.strip_prefix(root).expect("it lies below the root");
            let relative = relative
                .to_str()
                .expect("its name is UTF-8")
                .replace('\\', "/");
            let name = relative.rsplit('/').next().unwrap_or_default();
            if path.is_dir() {
                if !["target", "out", ".git", ".tidelock"].contains(&name) {
                    walk(root, &path, files);
                }
            } else if let Ok(text) = fs::read_to_string(&path) {
                files.push(File {
                    path: relative,
                    text,
                });
            }
        }
    }
    let mut files = Vec::new();
    walk(harness::workspace(), harness::workspace(), &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}
