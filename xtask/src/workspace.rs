//! What cargo knows of the workspace: where it lies, which of its packages are guests, and where the
//! sources of its dependencies are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command;
use crate::toolchain::TARGET;

/// The workspace that this command belongs to.
pub(crate) struct Workspace {
    /// Its folder.
    pub(crate) root: PathBuf,
    /// Where cargo puts the host.
    pub(crate) target: PathBuf,
    /// Packages that build components.
    pub(crate) guests: Vec<Guest>,
    /// Folders that hold the sources of packages from a registry, a folder for each below it.
    pub(crate) registries: BTreeSet<PathBuf>,
}

/// A package that builds components. Nothing marks it but that it builds a `cdylib`, which no other
/// package here has a reason to do.
pub(crate) struct Guest {
    /// The package's name.
    pub(crate) package: String,
    /// The package's folder.
    pub(crate) folder: PathBuf,
    /// Whether its library is a component.
    pub(crate) library: bool,
    /// Those of its examples that are components.
    pub(crate) examples: Vec<String>,
}

impl Workspace {
    /// Asks cargo. Packages that guests need are downloaded if they are not there.
    ///
    /// # Errors
    ///
    /// If cargo fails, for one because Cargo.lock does not fit the manifests.
    pub(crate) fn read() -> Result<Workspace> {
        let metadata = command::read(
            command::cargo()
                .args(["metadata", "--format-version=1", "--locked"])
                .args(["--filter-platform", TARGET]),
        )
        .context("failed to read the workspace")?;
        let metadata =
            serde_json::from_str(&metadata).context("failed to read cargo's metadata")?;
        Workspace::from_metadata(&metadata).context("cargo's metadata lacks a field")
    }

    fn from_metadata(metadata: &Value) -> Option<Workspace> {
        let mut guests = Vec::new();
        let mut registries = BTreeSet::new();
        for package in metadata["packages"].as_array()? {
            if package["source"].is_null() {
                let guest = Guest::from_package(package)?;
                if guest.library || !guest.examples.is_empty() {
                    guests.push(guest);
                }
            } else {
                let manifest = Path::new(package["manifest_path"].as_str()?);
                registries.insert(manifest.parent()?.parent()?.to_owned());
            }
        }
        Some(Workspace {
            root: PathBuf::from(metadata["workspace_root"].as_str()?),
            target: PathBuf::from(metadata["target_directory"].as_str()?),
            guests,
            registries,
        })
    }
}

impl Guest {
    /// What a package builds; nothing, if it is no guest. `None` where the metadata lacks a field.
    fn from_package(package: &Value) -> Option<Guest> {
        let mut guest = Guest {
            package: package["name"].as_str()?.to_owned(),
            folder: Path::new(package["manifest_path"].as_str()?)
                .parent()?
                .to_owned(),
            library: false,
            examples: Vec::new(),
        };
        for target in package["targets"].as_array()? {
            let has = |field: &str, word: &str| {
                target[field]
                    .as_array()
                    .is_some_and(|words| words.iter().any(|w| w == word))
            };
            if !has("crate_types", "cdylib") {
                continue;
            }
            if has("kind", "example") {
                guest.examples.push(target["name"].as_str()?.to_owned());
            } else {
                guest.library = true;
            }
        }
        Some(guest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn guests_are_the_packages_that_build_a_cdylib() {
        let library = json!({"name": "guest_a", "kind": ["cdylib", "rlib"], "crate_types": ["cdylib", "rlib"]});
        let example = json!({"name": "spins", "kind": ["example"], "crate_types": ["cdylib"]});
        let plain = json!({"name": "host", "kind": ["lib"], "crate_types": ["lib"]});
        let metadata = json!({
            "workspace_root": "/w",
            "target_directory": "/w/target",
            "packages": [
                {"name": "guest-a", "source": null, "manifest_path": "/w/a/Cargo.toml", "targets": [library, example]},
                {"name": "host", "source": null, "manifest_path": "/w/host/Cargo.toml", "targets": [plain]},
                {"name": "serde", "source": "registry", "manifest_path": "/c/registry/src/i/serde-1.0/Cargo.toml", "targets": []},
            ],
        });

        let workspace = Workspace::from_metadata(&metadata).unwrap();
        let [guest] = &workspace.guests[..] else {
            panic!("{} guests", workspace.guests.len());
        };
        assert_eq!(guest.package, "guest-a");
        assert_eq!(guest.folder, Path::new("/w/a"));
        assert!(guest.library);
        assert_eq!(guest.examples, ["spins"]);
        assert!(
            workspace
                .registries
                .contains(Path::new("/c/registry/src/i"))
        );
    }
}
