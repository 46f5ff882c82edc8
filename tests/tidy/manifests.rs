//! Manifests name no version of their own.

use std::iter;

use crate::check;
use crate::files::File;

fn versions_outside_the_workspace_manifest(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        if !file.path.ends_with("/Cargo.toml") {
            continue;
        }
        let manifest: toml::Table = match file.text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                found.push(file.at(1, &format!("is not a manifest: {error}")));
                continue;
            }
        };
        for key in ["version", "edition", "rust-version", "license"] {
            if manifest
                .get("package")
                .and_then(|package| package.get(key))
                .is_some_and(|v| !inherited(v))
            {
                found.push(file.at(
                    1,
                    &format!("`{key}` is named in the workspace's manifest, once"),
                ));
            }
        }
        let targets = manifest.get("target").and_then(toml::Value::as_table);
        let platforms = targets
            .into_iter()
            .flat_map(toml::Table::values)
            .filter_map(toml::Value::as_table);
        for table in iter::once(&manifest).chain(platforms) {
            for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
                let dependencies = table.get(kind).and_then(toml::Value::as_table);
                for (name, value) in dependencies.into_iter().flatten() {
                    if !inherited(value) {
                        found.push(file.at(
                            1,
                            &format!(
                                "the version of `{name}` belongs into the workspace's manifest"
                            ),
                        ));
                    }
                }
            }
        }
    }
    found
}

fn inherited(value: &toml::Value) -> bool {
    value.get("workspace").and_then(toml::Value::as_bool) == Some(true)
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
    let inherits = "[package]\nversion.workspace = true\n[dependencies]\nserde = { workspace = true, features = [\"rc\"] }";
    let inherits = File::new("host/Cargo.toml", inherits);
    assert!(versions_outside_the_workspace_manifest(&[inherits]).is_empty());
}
