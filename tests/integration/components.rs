//! The guests as `cargo xtask components` leaves them: components, whose bytes name no folder of the
//! machine that built them.

use std::fs;
use std::path::PathBuf;

use harness::{component, workspace};

/// The first eight bytes of a component; a core module has 1, 0 where this has 13 and 1.
const COMPONENT_HEADER: [u8; 8] = *b"\0asm\x0d\0\x01\0";

fn built_components() -> Vec<PathBuf> {
    let folder = component("flights-parse");
    let folder = folder.parent().expect("a component lies in a folder");
    let examples = folder.join("examples");
    let mut found = Vec::new();
    for folder in [folder, &examples] {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        let paths = entries.map(|entry| entry.expect("the folder can be read").path());
        found.extend(paths.filter(|path| {
            let name = path
                .file_name()
                .expect("a file has a name")
                .to_string_lossy();
            // Cargo keeps each example a second time, under a name with a dash.
            name.ends_with(".wasm") && !name.contains('-')
        }));
    }
    found
}

fn names(bytes: &[u8], folder: &str) -> bool {
    bytes
        .windows(folder.len())
        .any(|window| window == folder.as_bytes())
}

#[test]
fn every_guest_is_a_component() {
    let components = built_components();
    assert!(components.len() >= 3, "found {components:?}");
    for path in components {
        let bytes = fs::read(&path).expect("a component can be read");
        assert!(
            bytes.starts_with(&COMPONENT_HEADER),
            "{} is not a component",
            path.display()
        );
    }
}

#[test]
fn no_component_names_the_folder_it_was_built_in() {
    let folder = workspace().to_str().expect("the workspace's path is UTF-8");
    for path in built_components() {
        let bytes = fs::read(&path).expect("a component can be read");
        assert!(!names(&bytes, folder), "{} holds {folder}", path.display());
        assert!(
            !names(&bytes, "/registry/src/"),
            "{} holds the path of cargo's registry",
            path.display()
        );
    }
    // The search would find it: this very test's program is built without remapping.
    let test = std::env::current_exe().expect("the running test has a path");
    let test = fs::read(test).expect("the running test can be read");
    assert!(names(&test, folder));
}
