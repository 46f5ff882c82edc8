//! Where builds put the host and the guests. Tests do not build anything themselves; what is missing is
//! named together with the command that builds it.

use std::path::{Path, PathBuf};

/// The workspace's folder.
///
/// # Panics
///
/// Never: this package lies one folder below it.
#[must_use]
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests lie in the workspace's folder")
}

/// The host's program, of the same profile as the running test.
///
/// # Panics
///
/// If it is not built.
#[must_use]
pub fn tidelock() -> PathBuf {
    program("tidelock")
}

/// A program of the workspace by its name, of the same profile as the running test.
///
/// # Panics
///
/// If it is not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    // Cargo puts tests into `deps` beside the programs.
    let folder = test
        .ancestors()
        .find(|folder| folder.ends_with("deps"))
        .and_then(Path::parent)
        .unwrap_or_else(|| panic!("{} is not in a target folder", test.display()));
    built(folder.join(name), "cargo xtask test")
}

/// A guest's component by the name of its package or of its example: `flights-parse`.
///
/// # Panics
///
/// If it is not built.
#[must_use]
pub fn component(name: &str) -> PathBuf {
    let folder = workspace().join("target/components/wasm32-wasip2/component");
    let file = format!("{}.wasm", name.replace('-', "_"));
    let example = folder.join("examples").join(&file);
    if example.exists() {
        return example;
    }
    built(folder.join(file), "cargo xtask components")
}

fn built(path: PathBuf, command: &str) -> PathBuf {
    assert!(
        path.exists(),
        "{} is not built: run `{command}` first",
        path.display()
    );
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(
        expected = "no_such_guest.wasm is not built: run `cargo xtask components` first"
    )]
    fn a_component_that_is_not_built_is_named_with_the_command_that_builds_it() {
        let _ = component("no-such-guest");
    }

    #[test]
    fn the_host_lies_beside_the_running_test() {
        let target = std::env::current_exe().unwrap();
        assert!(target.starts_with(tidelock().parent().unwrap()));
    }
}
