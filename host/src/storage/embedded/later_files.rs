//! What became of the files of directory sinks after a backup was made, in a data directory that came out of it: a
//! file that it knows as still written was finished, and later ones of its series were begun. Their rows are written
//! again, so the first is to be cut back under its first name, and the others are to go out of the way.
//!
//! **Invariant:** a file is taken for one of these only by its series and number, and for the one that was finished only
//! if it has at least the bytes that are committed. Nothing is deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::storage::embedded::sink_checks::rename_to_free;
use crate::storage::embedded::sink_files::SinkFiles;
use crate::storage::embedded::sink_handle::SinkHandle;
use crate::storage::embedded::{EmbeddedStorage, directories};
use crate::storage::{PART_SUFFIX, StorageError, final_name};
use crate::types::ids::SinkFileId;

/// The folder, in that of the files, to which later ones go; a number follows where there is one already.
const ASIDE: &str = "after-backup";
/// Most folders of that name.
const ASIDE_MAX: u32 = 1_000;

/// How many digits the number in a name has at least.
const NUMBER_DIGITS: usize = 8;

/// The files of series that go on, as of after the backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaterFiles {
    /// Finished since: the file, its final name, and how many bytes that has.
    pub finished: Vec<(SinkFileId, PathBuf, u64)>,
    /// Begun since, finished or not.
    pub begun: Vec<PathBuf>,
}

/// A name of a file of a series, finished or not: what stands before the number, the number, and what follows it.
pub(super) fn parts_of(name: &str) -> Option<(&str, u64, &str)> {
    let name = name.strip_suffix(PART_SUFFIX).unwrap_or(name);
    name.rmatch_indices('-').find_map(|(dash, _)| {
        let rest = &name[dash + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, end) = rest.split_at(digits);
        let is_number = digits >= NUMBER_DIGITS && (end.is_empty() || end.starts_with('.'));
        is_number.then(|| Some((&name[..dash], number.parse().ok()?, end)))?
    })
}

impl SinkFiles {
    fn later_files(&self) -> Result<LaterFiles, StorageError> {
        let mut later = LaterFiles::default();
        let written = self.files.iter().filter(|(_, file)| !file.is_finished);
        for (id, file) in written {
            let (Some(name), Some(folder)) = (final_name(&file.path), file.path.parent()) else {
                continue;
            };
            let is_there = fs::symlink_metadata(&file.path).is_ok();
            let finished = fs::symlink_metadata(&name).ok().filter(|_| !is_there);
            let finished = finished.filter(|it| it.is_file() && it.len() >= file.written_len);
            let is_it = finished.is_some() && file.written_len > 0;
            if let Some(found) = finished.filter(|_| is_it) {
                later.finished.push((*id, name.clone(), found.len()));
            }
            let Some((series, number, extension)) =
                name.file_name().and_then(|name| parts_of(name.to_str()?))
            else {
                continue;
            };
            for other in list(folder)? {
                let path = folder.join(&other);
                let is_known = self.files.values().any(|known| known.path == path);
                let is_later = parts_of(&other).is_some_and(|(of, at, end)| {
                    (of, end) == (series, extension)
                        && (at > number || at == number && !is_it && path == name)
                });
                if is_later && !is_known {
                    later.begun.push(path);
                }
            }
        }
        later.begun.sort();
        later.begun.dedup();
        Ok(later)
    }
}

impl EmbeddedStorage {
    /// What lies beside the files of sinks that is of after the backup which the data directory came out of.
    ///
    /// # Errors
    ///
    /// When a folder can't be read.
    pub fn later_files(&self) -> Result<LaterFiles, StorageError> {
        self.shared.sink_files().later_files()
    }

    /// Gives files that were finished since their first names back, uncut, and puts those that were begun since into a
    /// folder beside them. Returns where each went.
    ///
    /// # Errors
    ///
    /// [`StorageError::SinkFileInUse`] when another process writes to one of them, before any is moved; and when one
    /// can't be moved.
    pub fn put_back(&self, later: &LaterFiles) -> Result<Vec<(PathBuf, PathBuf)>, StorageError> {
        let paths = later
            .finished
            .iter()
            .map(|(_, name, _)| name)
            .chain(&later.begun);
        let mut held = Vec::new();
        for path in paths {
            let handle = SinkHandle::open(path)?;
            handle.lock(path)?;
            held.push(handle);
        }
        let mut moved = Vec::new();
        for (file, name, _) in &later.finished {
            let part = self.shared.sink_files().path(*file);
            rename_durably(name, &part)?;
            moved.push((name.clone(), part));
        }
        let mut aside: Option<(PathBuf, PathBuf)> = None;
        for path in &later.begun {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                continue;
            };
            let to = match aside.take().filter(|(of, _)| of == folder) {
                Some((_, to)) => to,
                None => make_aside(folder)?,
            };
            rename_durably(path, &to.join(name))?;
            moved.push((path.clone(), to.join(name)));
            aside = Some((folder.to_owned(), to));
        }
        Ok(moved)
    }
}

fn list(folder: &Path) -> Result<Vec<String>, StorageError> {
    let failed = |source| StorageError::File {
        action: "list",
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file() {
            // A series has no other names.
            names.extend(entry.file_name().into_string().ok());
        }
    }
    Ok(names)
}

/// A new folder in `folder`.
fn make_aside(folder: &Path) -> Result<PathBuf, StorageError> {
    let mut number = 1;
    loop {
        let path = match number {
            1 => folder.join(ASIDE),
            number => folder.join(format!("{ASIDE}-{number}")),
        };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < ASIDE_MAX => {
                number += 1;
            }
            Err(source) => {
                return Err(StorageError::File {
                    action: "make",
                    path,
                    source,
                });
            }
        }
    }
}

fn rename_durably(from: &Path, to: &Path) -> Result<(), StorageError> {
    rename_to_free(from, to).map_err(|source| StorageError::File {
        action: "rename",
        path: from.to_owned(),
        source,
    })?;
    let folders = [to.parent(), from.parent()];
    (folders.into_iter().flatten()).try_for_each(directories::sync)
}

#[cfg(test)]
mod tests {
    use super::parts_of;

    #[test]
    fn a_name_is_cut_at_its_number_whatever_stands_around_it() {
        for (name, parts) in [
            ("a-1-00000012.jsonl.part", Some(("a-1", 12, ".jsonl"))),
            ("a-1-00000012.x-1", Some(("a-1", 12, ".x-1"))),
            ("a-00000001-2-00000012.x", Some(("a-00000001-2", 12, ".x"))),
            ("rolling-00000003", Some(("rolling", 3, ""))),
            ("a-1-x.jsonl", None),
            ("a-1-12.jsonl", None),
            ("a-1-99999999999999999999999.jsonl", None),
        ] {
            assert_eq!(parts_of(name), parts, "{name}");
        }
    }
}
