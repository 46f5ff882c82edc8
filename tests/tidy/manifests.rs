//! Manifests name no version of their own.

use std::iter;

use toml::{Table, Value};

use crate::check;
use crate::files::File;

/// What a package inherits from the workspace.
const INHERITED: [&str; 4] = ["version", "edition", "rust-version", "license"];

fn versions_outside_the_workspace_manifest(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
    {
        let manifest: Table = match file.text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                found.push(file.at(1, &format!("is not a manifest: {error}")));
                continue;
            }
        };
        let package = manifest.get("package").and_then(Value::as_table);
        for (key, value) in package.into_iter().flatten() {
            let inherited = value.get("workspace").is_some();
            if INHERITED.contains(&key.as_str()) && !inherited {
                found.push(file.at(1, &format!("`{key}` belongs into the workspace's manifest")));
            }
        }
        for (name, dependency) in dependencies(&manifest) {
            if dependency.is_str() || dependency.get("version").is_some() {
                let message =
                    format!("the version of `{name}` belongs into the workspace's manifest");
                found.push(file.at(1, &message));
            }
        }
    }
    found
}

/// Dependencies of every kind, on every platform.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&String, &Value)> {
    let platforms = manifest.get("target").and_then(Value::as_table);
    let platforms = platforms.into_iter().flat_map(Table::values);
    iter::once(manifest)
        .chain(platforms.filter_map(Value::as_table))
        .flat_map(|table| {
            ["dependencies", "dev-dependencies", "build-dependencies"]
                .into_iter()
                .filter_map(|kind| table.get(kind).and_then(Value::as_table))
        })
        .flatten()
}

#[test]
fn versions_are_named_once() {
    let check_manifest = |text: &str| {
        check(
            versions_outside_the_workspace_manifest,
            &[File::new("host/Cargo.toml", text)],
            "host/Cargo.toml:1",
        );
    };
    check_manifest("[dependencies]\nserde = \"1.0\"");
    check_manifest("[dev-dependencies]\nserde = { version = \"1.0\" }");
    check_manifest("[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"");
    check_manifest("[package]\nversion = \"0.1.0\"");
    let inherits = "[package]\nversion.workspace = true\n[dependencies]\nserde = { workspace = true, features = [\"rc\"] }\nsibling = { path = \"../sibling\" }";
    let inherits = File::new("host/Cargo.toml", inherits);
    assert!(versions_outside_the_workspace_manifest(&[inherits]).is_empty());
}
