//! Arrows between the modules of the host.

use crate::check;
use crate::files::File;
use crate::rust::{first_word, is_word_character};

/// The layers of the host, lowest first. `api` stands in its place before it exists: whoever writes it
/// finds the rule. A module may import from lower layers; modules of one layer
/// never import each other.
const LAYERS: [&[&str]; 7] = [
    &["types"],
    &["engine", "guest", "storage", "source", "sink"],
    &["worker"],
    &["controller"],
    &["api"],
    &["cli"],
    &["main"],
];

/// Made by main and passed in (`shutdown` too, once it exists), so only the upper layers see them; of the host they know `types` alone.
const PASSED_IN: [&str; 4] = ["clock", "config", "shutdown", "telemetry"];

/// Who may import what is passed in: the layers from `worker` up.
const RECEIVERS_FROM_LAYER: usize = 2;

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn arrow_is_allowed(from: &str, to: &str) -> bool {
    if from == to {
        return true;
    }
    let from_layer = layer(from);
    if PASSED_IN.contains(&to) {
        return from_layer.is_some_and(|layer| layer >= RECEIVERS_FROM_LAYER);
    }
    if PASSED_IN.contains(&from) {
        return to == "types";
    }
    matches!((from_layer, layer(to)), (Some(from), Some(to)) if from > to)
}

fn arrows_between_modules(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let Some(inside) = file.path.strip_prefix("host/src/") else {
            continue;
        };
        let module = inside.split('/').next().unwrap_or_default();
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if module == "lib" {
            continue;
        }
        for (line, code) in file.product_code() {
            for name in ["crate", "tidelock"] {
                for imported in imported_modules(&code, name) {
                    if !arrow_is_allowed(module, &imported) {
                        found.push(file.at(line, &format!("{module} may not import {imported}")));
                    }
                }
            }
        }
    }
    found
}

/// The modules named as `crate::module` or in `crate::{a, b::C}` on one line.
fn imported_modules(code: &str, root: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (start, path) in code.match_indices(&format!("{root}::")) {
        if code[..start].ends_with(is_word_character) {
            continue;
        }
        let rest = &code[start + path.len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => top_level_names(list),
            None => vec![first_word(rest)],
        };
        // Items of the crate's root, such as macros, are not modules.
        modules.extend(
            names
                .into_iter()
                .filter(|name| layer(name).is_some() || PASSED_IN.contains(&name.as_str())),
        );
    }
    modules
}

/// The first word of each element of a brace list, up to its closing brace.
fn top_level_names(list: &str) -> Vec<String> {
    let mut depth = 0;
    let mut names = vec![String::new()];
    for character in list.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(String::new()),
            _ => names
                .last_mut()
                .expect("there is always one")
                .push(character),
        }
    }
    names.iter().map(|name| first_word(name.trim())).collect()
}

#[test]
fn arrows_point_down() {
    check(
        arrows_between_modules,
        &[File::new(
            "host/src/storage/mod.rs",
            "//! x\nuse crate::engine::Epoch;\n",
        )],
        "host/src/storage/mod.rs:2: storage may not import engine",
    );
    let finds = |path: &str, text: &str| arrows_between_modules(&[File::new(path, text)]).len();
    assert_eq!(
        finds(
            "host/src/types/ids.rs",
            "use crate::{config::Options, types::Id};"
        ),
        1
    );
    assert_eq!(
        finds(
            "host/src/engine/mod.rs",
            "fn f(c: &crate::clock::System) {}"
        ),
        1
    );
    assert_eq!(
        finds(
            "host/src/worker/job.rs",
            "use crate::{clock, engine, guest, types};"
        ),
        0
    );
    assert_eq!(finds("host/src/main.rs", "use tidelock::cli;"), 0);
    assert_eq!(
        finds("host/src/sink/mod.rs", "// as crate::worker does\n"),
        0
    );
    assert_eq!(
        finds(
            "host/src/sink/mod.rs",
            "#[cfg(test)]\nmod tests {\nuse crate::source::X;\n}"
        ),
        0
    );
}
