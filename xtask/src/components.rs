//! Building guests for wasm32-wasip2, into a target folder of their own: another cargo may hold the
//! host's. A component's bytes do not depend on the folder that it was built in.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::toolchain::{TARGET, Toolchain};
use crate::workspace::{Guest, Workspace};

/// The cargo profile for components.
pub(crate) const PROFILE: &str = "component";

/// Their target folder, always inside the workspace: pipeline files and tests name it by path.
const FOLDER: &str = "target/components";

/// A component that was built.
pub(crate) struct Artifact {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// How large it is.
    pub(crate) size_bytes: u64,
}

/// Builds these guests and returns their components.
///
/// # Errors
///
/// If cargo fails, or a guest left no component.
pub(crate) fn build<'a>(
    workspace: &Workspace,
    toolchain: &Toolchain,
    guests: impl IntoIterator<Item = &'a Guest>,
) -> Result<Vec<Artifact>> {
    let folder = workspace.root.join(FOLDER).join(TARGET).join(PROFILE);
    let mut artifacts = Vec::new();
    for guest in guests {
        if guest.library {
            // As a cdylib alone: cargo applies no link-time optimisation to a library that is an rlib
            // too (its tests need that), and such a component is four times as large.
            let mut cargo = cargo(workspace, toolchain, "rustc", [guest]);
            command::run(cargo.args(["--profile", PROFILE, "--lib", "--crate-type", "cdylib"]))?;
            artifacts.push(artifact(&folder, &guest.package)?);
        }
        if !guest.examples.is_empty() {
            let mut cargo = cargo(workspace, toolchain, "build", [guest]);
            cargo.args(["--profile", PROFILE]);
            for example in &guest.examples {
                cargo.args(["--example", example]);
            }
            command::run(&mut cargo)?;
            for example in &guest.examples {
                artifacts.push(artifact(&folder.join("examples"), example)?);
            }
        }
    }
    if artifacts.is_empty() {
        bail!("there is no guest to build: no package builds a cdylib");
    }
    Ok(artifacts)
}

/// A cargo command over these guests and nothing else, with their target, folder and compiler flags.
pub(crate) fn cargo<'a>(
    workspace: &Workspace,
    toolchain: &Toolchain,
    verb: &str,
    guests: impl IntoIterator<Item = &'a Guest>,
) -> Command {
    let mut cargo = command::cargo();
    cargo
        .current_dir(&workspace.root)
        .args([verb, "--locked", "--target", TARGET]);
    // Relative where it can be, so that the command shown is one to type.
    cargo.args(["--target-dir", FOLDER]);
    for guest in guests {
        cargo.args(["--package", &guest.package]);
    }
    // The encoded form wins over RUSTFLAGS and over configuration, and keeps spaces in paths whole.
    cargo.env(
        "CARGO_ENCODED_RUSTFLAGS",
        remapped_paths(workspace, toolchain).join("\u{1f}"),
    );
    cargo
}

/// Flags that take this machine's paths out of panic messages and debug information. Names stay those
/// that a reader can follow: files of the workspace as they lie in it, others under /registry and /rustc.
fn remapped_paths(workspace: &Workspace, toolchain: &Toolchain) -> Vec<String> {
    let sources = toolchain.sysroot.join("lib/rustlib/src/rust");
    let mut folders = vec![
        (workspace.root.as_path(), ".".to_owned()),
        (sources.as_path(), format!("/rustc/{}", toolchain.commit)),
    ];
    for registry in &workspace.registries {
        folders.push((registry, "/registry".to_owned()));
    }
    folders
        .into_iter()
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .collect()
}

fn artifact(folder: &Path, target: &str) -> Result<Artifact> {
    let path = folder.join(format!("{}.wasm", target.replace('-', "_")));
    let size_bytes = path
        .metadata()
        .with_context(|| {
            format!(
                "cargo built no component {}; does its crate have `crate-type = [\"cdylib\"]`?",
                path.display()
            )
        })?
        .len();
    Ok(Artifact { path, size_bytes })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_of_workspace_registry_and_standard_library_are_remapped() {
        let workspace = Workspace {
            root: PathBuf::from("/home/me/my projects/tidelock"),
            target: PathBuf::from("/t"),
            guests: Vec::new(),
            registries: BTreeSet::from([PathBuf::from("/home/me/.cargo/registry/src/index")]),
        };
        let toolchain = Toolchain {
            sysroot: PathBuf::from("/opt/rust"),
            commit: "abc".to_owned(),
        };
        assert_eq!(
            remapped_paths(&workspace, &toolchain),
            [
                "--remap-path-prefix=/home/me/my projects/tidelock=.",
                "--remap-path-prefix=/opt/rust/lib/rustlib/src/rust=/rustc/abc",
                "--remap-path-prefix=/home/me/.cargo/registry/src/index=/registry",
            ]
        );
    }
}
