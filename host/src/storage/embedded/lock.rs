//! The lock on a data directory: a file of our own, held by the operating system for as long as
//! the process lives, with the holder's name inside. The stores underneath have locks too; this one
//! is taken first, because leftovers of a killed process are cleared away before they are opened.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::storage::StorageError;

/// Name of the lock file in the data directory.
pub(super) const FILE_NAME: &str = "lock";

/// Most bytes of a lock file that are read to name its holder.
const HOLDER_BYTES_MAX: u64 = 256;

/// Held until dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Takes the lock, or says who holds it.
    pub(super) fn take(dir: &Path) -> Result<DirectoryLock, StorageError> {
        let path = dir.join(FILE_NAME);
        let failed = |action| StorageError::of_file(action, &path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StorageError::InUse {
                    path: dir.to_owned(),
                    holder: read_holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        // The name is for people: no sync, and what an earlier holder left is overwritten.
        file.set_len(0).map_err(failed("write"))?;
        file.rewind().map_err(failed("write"))?;
        writeln!(file, "process {} on {}", std::process::id(), host_name())
            .map_err(failed("write"))?;
        Ok(DirectoryLock { file })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process on its way from fork to exec has the file open
        // too. A lock that can't be given up goes with the process.
        let _ = self.file.unlock();
    }
}

/// How often a store is tried again, and how long each wait for it is, in milliseconds.
const OPEN_ATTEMPTS_MAX: usize = 200;
const OPEN_WAIT_MS: u64 = 10;

/// Opens a store that its last owner may not have let go of yet. With the directory's lock held that
/// owner is on its way out: a background thread of this very process, or a child of it between fork
/// and exec.
pub(super) fn open_when_released<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_locked: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for _ in 1..OPEN_ATTEMPTS_MAX {
        match open() {
            Err(error) if is_locked(&error) => {
                std::thread::park_timeout(Duration::from_millis(OPEN_WAIT_MS));
            }
            result => return result,
        }
    }
    open()
}

fn read_holder(file: &mut File) -> String {
    let mut holder = String::new();
    match file.take(HOLDER_BYTES_MAX).read_to_string(&mut holder) {
        Ok(_) if !holder.trim().is_empty() => holder.trim().to_owned(),
        _ => "a process that has not written its name yet".to_owned(),
    }
}

fn host_name() -> String {
    (std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "an unnamed host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirectoryLock::take(dir.path()).unwrap();
        let text = DirectoryLock::take(dir.path()).unwrap_err().to_string();
        assert!(
            text.contains(&format!("process {} on ", std::process::id())),
            "{text}"
        );
        drop(held);
        assert!(DirectoryLock::take(dir.path()).is_ok());
    }

    #[test]
    fn a_lock_given_up_is_free_though_another_handle_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirectoryLock::take(dir.path()).unwrap();
        let _as_a_forked_child_has_it = held.file.try_clone().unwrap();
        drop(held);
        assert!(DirectoryLock::take(dir.path()).is_ok());
    }

    #[test]
    fn a_store_is_tried_again_only_while_it_is_locked() {
        let tried = std::cell::Cell::new(0);
        let open = |result: fn(i32) -> Result<(), &'static str>| {
            tried.set(0);
            let open = || {
                tried.set(tried.get() + 1);
                result(tried.get())
            };
            open_when_released(open, |error| *error == "locked")
        };
        assert_eq!(
            open(|time| if time < 3 { Err("locked") } else { Ok(()) }),
            Ok(())
        );
        assert_eq!(tried.get(), 3);
        assert_eq!(open(|_| Err("broken")), Err("broken"));
        assert_eq!(tried.get(), 1);
    }
}
