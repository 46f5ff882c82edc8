//! The compiler and the target that guests are built for. The target's standard library comes from
//! rustup; where it is there already, no network is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;

/// What guests are compiled for.
pub(crate) const TARGET: &str = "wasm32-wasip2";

/// Facts about the compiler in use.
pub(crate) struct Toolchain {
    /// Where it is installed.
    pub(crate) sysroot: PathBuf,
    /// The commit that it was built from; names the standard library's sources in debug information.
    pub(crate) commit: String,
}

/// Makes sure that the standard library for [`TARGET`] is installed.
///
/// # Errors
///
/// If it is missing and rustup cannot install it: what was run, what it printed, and what to do.
pub(crate) fn prepare() -> Result<Toolchain> {
    let sysroot = command::read(Command::new("rustc").args(["--print", "sysroot"]))
        .context("failed to ask rustc where it is installed; is rustup's toolchain on the PATH?")?;
    let version = command::read(Command::new("rustc").arg("-vV"))?;
    let toolchain = Toolchain {
        sysroot: PathBuf::from(sysroot.trim()),
        commit: field(&version, "commit-hash").to_owned(),
    };
    if has_standard_library(&toolchain.sysroot) {
        return Ok(toolchain);
    }

    eprintln!(
        "the standard library for {TARGET} is not installed in {}; asking rustup for it",
        toolchain.sysroot.display()
    );
    let failure = match command::read(Command::new("rustup").args(["target", "add", TARGET])) {
        Ok(_) if has_standard_library(&toolchain.sysroot) => return Ok(toolchain),
        Ok(_) => format!("rustup target add {TARGET} succeeded, for another toolchain than this"),
        // With what rustup printed.
        Err(error) => format!("{error:#}"),
    };
    bail!(
        "failed to install the standard library of rustc {} for {TARGET}: {failure}\n\
         to do: run `rustup target add {TARGET}` in this folder where static.rust-lang.org (or the server in \
         RUSTUP_DIST_SERVER) can be reached; or, if this rustc does not come from rustup, install its standard \
         library for {TARGET} the way rustc was installed",
        field(&version, "release")
    );
}

fn has_standard_library(sysroot: &Path) -> bool {
    let folder = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    folder.read_dir().is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libstd-") && name.ends_with(".rlib")
        })
    })
}

/// The value of one line of `rustc -vV`, or nothing.
fn field<'a>(version: &'a str, name: &str) -> &'a str {
    version
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_the_compilers_version() {
        let version =
            "rustc 1.95.0 (f2d3ce0bd 2026-04-14)\nrelease: 1.95.0\ncommit-hash: f2d3ce0bd\n";
        assert_eq!(field(version, "release"), "1.95.0");
        assert_eq!(field(version, "commit-hash"), "f2d3ce0bd");
        assert_eq!(field(version, "host"), "");
    }

    #[test]
    fn a_folder_without_the_target_is_no_sysroot_for_it() {
        assert!(!has_standard_library(Path::new("/nonexistent")));
    }
}
