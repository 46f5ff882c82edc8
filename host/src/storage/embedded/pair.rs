//! The two stores of a data directory, which carry one store id: made together, opened together,
//! never one without the other.
//!
//! **Invariant:** under its final name a store is complete and has its id. Each is made under
//! another name and renamed, the bulk store first; so a lone bulk store without rows is an
//! interrupted beginning, and any other lone store has lost its partner. What has that other name
//! is only removed where a mark says that it is of our making.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::embedded::bulk::{Bulk, OpenError, failed};
use crate::storage::embedded::decisions::Decisions;
use crate::storage::embedded::directories;
use crate::storage::embedded::faults::{FaultPoints, pass};
use crate::storage::embedded::{format, journal};
use crate::storage::{StorageError, codec, keys};

pub(super) const DECISIONS: &str = "decisions";
pub(super) const BULK: &str = "bulk";
/// What a store in the making is called.
const UNFINISHED: &str = "new";
/// The file that says that whatever is called so is of our making.
const MAKING_MARK: &str = "stores.unfinished";

const NO_DECISIONS: &str = "decisions (leases, heads, pipelines)";
const NO_BULK: &str = "bulk rows (states, positions, chunks)";

/// Whether one of the stores is in `dir`.
pub(super) fn exists_in(dir: &Path) -> bool {
    dir.join(DECISIONS).exists() || dir.join(BULK).exists()
}

/// Marks a directory without stores as one in which some are to be made, before anything in it says that there were
/// any. The directory's lock must be held.
///
/// # Errors
///
/// [`StorageError::StoresGone`] when something says that there were some.
pub(super) fn prepare(dir: &Path, faults: &Arc<dyn FaultPoints>) -> Result<(), StorageError> {
    if exists_in(dir) {
        return Ok(());
    }
    if !dir.join(MAKING_MARK).exists() {
        let format = format::check(dir)?.then(|| format::path(dir));
        if let Some(witness) = format.or(journal::any_saved_tail(dir)?) {
            return Err(StorageError::StoresGone {
                path: dir.to_owned(),
                witness,
                present_once: "decisions/ and bulk/",
            });
        }
    }
    begin(dir, &[BULK, DECISIONS], faults)
}

/// Opens both stores in `dir`, or makes both. The directory's lock must be held.
pub(super) fn open(
    dir: &Path,
    bulk_cache_bytes: u64,
    faults: &Arc<dyn FaultPoints>,
) -> Result<(Decisions, Bulk), StorageError> {
    let missing = |present, missing| StorageError::MissingStore {
        path: dir.to_owned(),
        present,
        missing,
    };
    match (dir.join(DECISIONS).exists(), dir.join(BULK).exists()) {
        (true, true) => remove_mark(dir)?,
        (true, false) => return Err(missing(NO_DECISIONS, NO_BULK)),
        (false, true) => {
            let bulk = open_bulk(dir, bulk_cache_bytes)?;
            let id = bulk.store_id()?;
            let (false, Some(id)) = (bulk.has_rows()?, id) else {
                return Err(missing(NO_BULK, NO_DECISIONS));
            };
            drop(bulk);
            begin(dir, &[DECISIONS], faults)?;
            make_decisions(dir, &id, faults)?;
        }
        (false, false) => {
            let id = new_store_id();
            begin(dir, &[BULK, DECISIONS], faults)?;
            make_bulk(dir, &id, bulk_cache_bytes, faults)?;
            make_decisions(dir, &id, faults)?;
        }
    }
    pass(faults, "open: open the bulk store")?;
    let bulk = open_bulk(dir, bulk_cache_bytes)?;
    pass(faults, "open: open the decisions")?;
    let decisions = Decisions::open(&dir.join(DECISIONS))?;
    let (left, right) = (decisions.store_id()?, bulk.store_id()?);
    if let (None, Some(mark)) = (&left, bulk.decisions_mark()?) {
        return Err(StorageError::DecisionsLost {
            path: dir.to_owned(),
            expected: mark.transactions,
            found: 0,
        });
    }
    if left.is_none() || left != right {
        return Err(StorageError::MixedStores {
            path: dir.to_owned(),
            decisions: hexadecimal(left.as_deref()),
            bulk: hexadecimal(right.as_deref()),
        });
    }
    Ok((decisions, bulk))
}

fn open_bulk(dir: &Path, cache_bytes: u64) -> Result<Bulk, StorageError> {
    let path = dir.join(BULK);
    if let Some(saved) = journal::cut_torn_tail(&path, dir)? {
        tracing::warn!(saved = %saved.display(), "torn journal tail cut");
    }
    open_bulk_at(&path, cache_bytes)
}

fn open_bulk_at(path: &Path, cache_bytes: u64) -> Result<Bulk, StorageError> {
    Bulk::open(path, cache_bytes).map_err(|error| match error {
        OpenError::Failed(error) => error,
        // The tail was whole when it was looked at.
        OpenError::TornJournal(source) => failed("read its journal", source),
    })
}

fn make_bulk(
    dir: &Path,
    id: &[u8],
    cache_bytes: u64,
    faults: &Arc<dyn FaultPoints>,
) -> Result<(), StorageError> {
    let path = unfinished(dir, BULK);
    pass(faults, "open: make the bulk store")?;
    let bulk = open_bulk_at(&path, cache_bytes)?;
    pass(faults, "open: write the id into the bulk store")?;
    bulk.set_store_id(id)?;
    bulk.sync()?;
    drop(bulk);
    finish(dir, BULK, &path, faults)
}

fn make_decisions(
    dir: &Path,
    id: &[u8],
    faults: &Arc<dyn FaultPoints>,
) -> Result<(), StorageError> {
    let path = unfinished(dir, DECISIONS);
    pass(faults, "open: make the decisions")?;
    let decisions = Decisions::open(&path)?;
    pass(faults, "open: write the id into the decisions")?;
    decisions.put(&[(keys::catalog_store_id(), codec::encode_plain(id))])?;
    decisions.flush()?;
    decisions.sync()?;
    drop(decisions);
    directories::sync(&path)?;
    finish(dir, DECISIONS, &path, faults)?;
    remove_mark(dir)
}

/// Clears away what an interrupted beginning left of the stores to make, and nothing else.
fn begin(dir: &Path, names: &[&str], faults: &Arc<dyn FaultPoints>) -> Result<(), StorageError> {
    let mark = dir.join(MAKING_MARK);
    let failed = StorageError::of_file;
    let paths = names.iter().map(|name| unfinished(dir, name));
    let leftovers: Vec<PathBuf> = paths
        .filter(|path| path.symlink_metadata().is_ok())
        .collect();
    // All are looked at before the mark vouches for any.
    if !mark.exists() {
        for path in &leftovers {
            let is_empty = std::fs::read_dir(path).is_ok_and(|mut files| files.next().is_none());
            if !is_empty {
                let source = std::io::Error::other(
                    "something that is not of the host's making is in its place; move it away, or \
                     name another data directory",
                );
                return Err(failed("make a store as", path)(source));
            }
        }
        pass(faults, "open: mark the beginning")?;
        std::fs::File::create(&mark).map_err(failed("make", &mark))?;
        directories::sync(dir)?;
    }
    for path in leftovers {
        std::fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
    }
    Ok(())
}

fn unfinished(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).with_extension(UNFINISHED)
}

fn remove_mark(dir: &Path) -> Result<(), StorageError> {
    let path = dir.join(MAKING_MARK);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| StorageError::File {
            action: "remove",
            path,
            source,
        }),
    }
}

fn finish(
    dir: &Path,
    name: &str,
    unfinished: &PathBuf,
    faults: &Arc<dyn FaultPoints>,
) -> Result<(), StorageError> {
    pass(faults, "open: name a finished store")?;
    let path = dir.join(name);
    std::fs::rename(unfinished, &path).map_err(|source| StorageError::File {
        action: "rename a new store to",
        path,
        source,
    })?;
    pass(faults, "open: sync the data directory")?;
    directories::sync(dir)
}

/// 16 bytes that no other store has; they only need to differ.
fn new_store_id() -> Vec<u8> {
    let random = || RandomState::new().build_hasher().finish().to_be_bytes();
    [random(), random()].concat()
}

fn hexadecimal(id: Option<&[u8]>) -> String {
    let Some(id) = id else {
        return "no id".to_owned();
    };
    id.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
