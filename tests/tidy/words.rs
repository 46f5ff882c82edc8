//! Words that only some files may use: crates behind one module, wall time, unsafe code.

use crate::check;
use crate::files::File;
use crate::rust::has_word;

/// A word that only some files may use in code, and why a reader can rely on that.
struct Reserved {
    word: &'static str,
    /// Beginnings of the paths that may.
    allowed: &'static [&'static str],
    reason: &'static str,
}

const RESERVED: [Reserved; 6] = [
    Reserved {
        word: "wasmtime",
        allowed: &["host/src/guest/"],
        reason: "only the sandbox knows the engine",
    },
    Reserved {
        word: "wasmtime_wasi",
        allowed: &["host/src/guest/"],
        reason: "only the sandbox knows the engine",
    },
    Reserved {
        word: "sled",
        allowed: &["host/src/storage/embedded/decisions.rs"],
        reason: "only decisions.rs knows the transactional store",
    },
    Reserved {
        word: "fjall",
        allowed: &["host/src/storage/embedded/bulk.rs"],
        reason: "only bulk.rs knows the store of the bulk",
    },
    Reserved {
        word: "SystemTime::now",
        allowed: &["host/src/clock.rs", "tests/guests/"],
        reason: "wall time comes from the clock alone",
    },
    Reserved {
        word: "unsafe",
        // A guest needs it to misbehave, and can only hurt itself.
        allowed: &["host/src/guest/artifacts.rs", "tests/guests/"],
        reason: "unsafe code stands in one argued place",
    },
];

fn reserved_words(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (line, code) in file.code() {
            for reserved in &RESERVED {
                let allowed = reserved
                    .allowed
                    .iter()
                    .any(|path| file.path.starts_with(path));
                if !allowed && has_word(&code, reserved.word) {
                    found.push(file.at(line, &format!("`{}`: {}", reserved.word, reserved.reason)));
                }
            }
        }
    }
    found
}

#[test]
fn crates_wall_time_and_unsafe_code_stand_only_where_they_may() {
    for reserved in &RESERVED {
        let text = format!("//! x\nfn f() {{ {}() }}\n", reserved.word);
        let found = reserved_words(&[File::new("host/src/engine/mod.rs", &text)]);
        assert_eq!(found.len(), 1, "{found:?}");
        let allowed = format!("{}x.rs", reserved.allowed[0]);
        assert!(reserved_words(&[File::new(&allowed, &text)]).is_empty());
    }
    check(
        reserved_words,
        &[File::new("host/src/worker/job.rs", "use sled::Db;\n")],
        "host/src/worker/job.rs:1: `sled`",
    );
}
