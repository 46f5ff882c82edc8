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

/// Builds every guest and removes what earlier builds left of guests that are no more: tests would
/// take it for theirs.
///
/// # Errors
///
/// As [`build`], or if something can't be removed.
pub(crate) fn build_all(workspace: &Workspace, toolchain: &Toolchain) -> Result<Vec<Artifact>> {
    let artifacts = build(workspace, toolchain, &workspace.guests)?;
    let folder = workspace.root.join(FOLDER).join(TARGET).join(PROFILE);
    for folder in [folder.join("examples"), folder] {
        remove_stale(&folder, &artifacts)?;
    }
    Ok(artifacts)
}

/// Removes the files of `folder` that belong to none of the components.
fn remove_stale(folder: &Path, artifacts: &[Artifact]) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Folders and hidden files, such as its lock, are cargo's own business.
        let is_output = path.is_file() && !name.starts_with('.');
        if is_output && !belongs_to_one(&path, folder, artifacts) {
            std::fs::remove_file(&path)
                .with_context(|| format!("failed to remove the stale {}", path.display()))?;
            println!("removed {}, which no guest builds any more", path.display());
        }
    }
    Ok(())
}

/// Whether cargo writes `path` when it builds one of the components: itself, a library of its name,
/// the list of its sources, or one of these with a fingerprint behind a dash.
fn belongs_to_one(path: &Path, folder: &Path, artifacts: &[Artifact]) -> bool {
    let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
        return false;
    };
    let stem = stem.split_once('-').map_or(stem, |(name, _)| name);
    artifacts.iter().any(|artifact| {
        let name = artifact.path.file_stem().and_then(|name| name.to_str());
        artifact.path.parent() == Some(folder)
            && name.is_some_and(|name| stem == name || stem.strip_prefix("lib") == Some(name))
    })
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
    fn files_of_guests_that_are_no_more_are_removed() {
        let folder = std::env::temp_dir().join(format!("xtask-stale-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("deps")).expect("a folder can be made");
        let names = [
            "flights_parse.wasm",
            "flights_parse.d",
            "flights_parse-0123456789abcdef.wasm",
            "libflights_parse.rlib",
            ".cargo-lock",
            "flights.wasm",
            "flights_parse_old.wasm",
            "libflights_parse_old.rlib",
        ];
        for name in names {
            std::fs::write(folder.join(name), "").expect("a file can be written");
        }
        let artifact = |folder: PathBuf| Artifact {
            path: folder.join("flights_parse.wasm"),
            size_bytes: 0,
        };
        remove_stale(&folder, &[artifact(folder.clone())]).expect("they can be removed");
        let left = names.map(|name| folder.join(name).exists());
        let deps_are_left = folder.join("deps").exists();
        // What lies elsewhere keeps nothing here.
        remove_stale(&folder, &[artifact(folder.join("examples"))]).expect("they can be removed");
        let names = names.iter().filter(|name| !name.starts_with('.'));
        let none_is_left = names.clone().all(|name| !folder.join(name).exists());
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert_eq!(left, [true, true, true, true, true, false, false, false]);
        assert!(deps_are_left && none_is_left);
    }

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
