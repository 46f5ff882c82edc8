//! The files of a folder with a call that failed.
//!
//! | file | what it has |
//! |---|---|
//! | `README.md` | how to run it |
//! | `component.wasm` | the component |
//! | `call.json` | settings and batch, as [`crate::cli::repro::call`] writes them; written last |
//! | `expected.json` | how the call failed: class, reason, fuel, backtrace, stdout, stderr |
//!
//! Of a record that a source could not decode there is no call: `record.bin` has its bytes, `letter.json` all that is known.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::repro::call::{CallDocument, FORMAT};
use crate::types::dead_letter::LetterFailure;

/// The component.
pub const COMPONENT: &str = "component.wasm";
/// The call.
pub const CALL: &str = "call.json";
/// How it failed.
pub const EXPECTED: &str = "expected.json";
/// A record that could not be decoded.
pub const RECORD: &str = "record.bin";
/// All that is known of a record.
pub const LETTER: &str = "letter.json";
/// How to run it.
const README: &str = "README.md";

/// The largest document that is read, in bytes; a batch has one item with the states of its key.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// A folder that is being written.
pub struct NewFolder {
    path: PathBuf,
}

impl NewFolder {
    /// Makes the folder, or takes an empty one.
    ///
    /// # Errors
    ///
    /// When it can't be made or has something in it.
    pub fn make(path: &Path) -> anyhow::Result<NewFolder> {
        let made = fs::create_dir(path);
        match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(path)
                    .with_context(|| format!("{} is there and is no folder", path.display()))?;
                anyhow::ensure!(
                    entries.next().is_none(),
                    "{} is not empty; name a new folder",
                    path.display()
                );
            }
            made => {
                made.with_context(|| format!("failed to make the folder {}", path.display()))?;
            }
        }
        Ok(NewFolder {
            path: path.to_owned(),
        })
    }

    /// Writes a file.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.path.join(name);
        fs::write(&path, bytes).with_context(|| format!("failed to write {}", path.display()))
    }

    /// Writes a JSON document.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn write_json(&self, name: &str, document: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(document)?;
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    /// Writes the README.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn write_readme(&self, text: &str) -> anyhow::Result<()> {
        self.write(README, text.as_bytes())
    }
}

/// A call and how it failed, read from a folder.
#[derive(Debug)]
pub struct RecordedCall {
    /// The call.
    pub call: CallDocument,
    /// How it failed.
    pub expected: LetterFailure,
}

impl RecordedCall {
    /// Reads a folder.
    ///
    /// # Errors
    ///
    /// When it has no call, or a document is not as it was written.
    pub fn read(folder: &Path) -> anyhow::Result<RecordedCall> {
        let call = folder.join(CALL);
        if !call.is_file() {
            anyhow::ensure!(
                !folder.join(RECORD).is_file(),
                "{} has a record that a source could not decode, and no call of a component; its README.md says what can be done with it",
                folder.display()
            );
            anyhow::bail!(
                "{} has no {CALL}: it is no folder that `tidelock dlq repro` has written, or not all of it",
                folder.display()
            );
        }
        let call: CallDocument = read_json(&call)?;
        anyhow::ensure!(
            call.format == FORMAT,
            "{} is of form {}, and this release reads {FORMAT}; run the release that wrote it, {}",
            folder.join(CALL).display(),
            call.format,
            call.tidelock
        );
        let expected = read_json(&folder.join(EXPECTED))?;
        Ok(RecordedCall { call, expected })
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let shown = path.display();
    let file = fs::File::open(path).with_context(|| format!("failed to open {shown}"))?;
    let mut text = String::new();
    file.take(DOCUMENT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("failed to read {shown}"))?;
    anyhow::ensure!(
        text.len() as u64 <= DOCUMENT_BYTES_MAX,
        "{shown} has more than {DOCUMENT_BYTES_MAX} bytes"
    );
    serde_json::from_str(&text).with_context(|| format!("{shown} is not as it was written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_or_empty() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("new");
        let folder = NewFolder::make(&made).unwrap();
        NewFolder::make(&made).unwrap();
        folder.write_readme("run it").unwrap();
        let error = NewFolder::make(&made).err().unwrap().to_string();
        assert!(error.contains("is not empty"), "{error}");
        let file = made.join(README);
        let error = NewFolder::make(&file).err().unwrap().to_string();
        assert!(error.contains("is no folder"), "{error}");
    }

    #[test]
    fn what_is_no_such_folder_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let check = |expected: &str| {
            let error = RecordedCall::read(directory.path()).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{error}");
        };
        check("has no call.json");
        fs::write(directory.path().join(RECORD), b"x").unwrap();
        check("a record that a source could not decode");
        fs::write(directory.path().join(CALL), b"{\"format\": 1}").unwrap();
        check("call.json is not as it was written");
    }
}
