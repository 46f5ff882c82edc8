//! What every test of the built programs needs: [`TestHost`], a temporary folder in which the host runs
//! as a real process, and the places where builds put the host and the guests.
//!
//! A test waits for what a process says or for its end, never for time to pass. Each wait has a
//! deadline, after which the process is killed and the test fails with all that the process printed.

mod artifacts;
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

pub use crate::artifacts::{component, program, tidelock, workspace};
pub use crate::process::{Finished, Running};

/// A temporary folder for one host: its pipeline file, data and output. The folder goes with the value.
#[derive(Debug)]
pub struct TestHost {
    folder: TempDir,
}

impl TestHost {
    /// A host with an empty folder.
    ///
    /// # Panics
    ///
    /// If no temporary folder can be made.
    #[expect(clippy::new_without_default, reason = "making it touches the disk")]
    #[must_use]
    pub fn new() -> TestHost {
        let folder = tempfile::Builder::new()
            .prefix("tidelock-test-")
            .tempdir()
            .expect("a temporary folder can be made");
        TestHost { folder }
    }

    /// A path in the host's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file in the host's folder, with the folders above it, and returns its path.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let parent = path.parent().expect("a path in a folder has a parent");
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, contents))
            .unwrap_or_else(|error| panic!("failed to write {}: {error}", path.display()));
        path
    }

    /// Reads a file of the host's folder.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[must_use]
    pub fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("failed to read {}: {error}", path.display()))
    }

    /// Starts `tidelock` with these arguments in the host's folder.
    ///
    /// # Panics
    ///
    /// If the program is not built or cannot be started.
    #[must_use]
    pub fn start<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Running {
        Running::start(self.command().args(arguments))
    }

    /// Runs `tidelock` with these arguments to its end.
    ///
    /// # Panics
    ///
    /// As [`TestHost::start`], and when the deadline passes.
    #[must_use]
    pub fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Finished {
        self.start(arguments).wait()
    }

    /// The command that [`TestHost::start`] gives its arguments to, for tests that set more.
    ///
    /// # Panics
    ///
    /// If the program is not built.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(tidelock());
        command.current_dir(self.folder());
        command
    }

    /// The host's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Says that a test cannot run because this machine lacks a tool. CI fails on the line when the tool is
/// listed in `ci/required.txt`. It goes around the capture of test output, which would swallow it.
pub fn skip(tool: &str) {
    use std::io::Write;

    // A test that has nowhere to say this passes silently; there is nothing better to do.
    let _ = writeln!(std::io::stderr(), "skipped: no {tool}");
}

/// The computation in README.md, compiled and driven by its own test with the documentation tests, so that
/// it stays true.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
