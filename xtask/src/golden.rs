//! `cargo xtask golden`: writes the golden files of stored formats that are missing. The tests that hold the host
//! against the files do it themselves, where they are told to.

use anyhow::Result;

use crate::command;
use crate::workspace::Workspace;

/// What those tests are called after.
const TESTS: &str = "golden";

/// Writes the files.
///
/// # Errors
///
/// If a file that is there is not what the host writes, or a test could not be built.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    command::run(
        command::cargo()
            .current_dir(&workspace.root)
            .args(["test", "--locked", "--package", "tidelock", "--lib"])
            .args(["--", TESTS])
            .env("TIDELOCK_WRITE_GOLDEN", "1"),
    )
}
