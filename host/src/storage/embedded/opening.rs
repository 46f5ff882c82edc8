//! Panics of the stores underneath while they are opened, made errors of the directory.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use crate::storage::StorageError;

thread_local! {
    /// Whether what panics in this thread becomes an error, and need not be printed.
    static IS_OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Opens what lies in a directory, whatever it may be. The stores underneath assert some of what
/// they read rather than answer; nothing that they have half opened is used after a panic, since it
/// is dropped with it, so the panic becomes an error of the directory. (Where they panic again on
/// the way out, `bulk.rs` looks first.)
pub(super) fn read_or_refuse<T>(
    dir: &Path,
    open: impl FnOnce() -> Result<T, StorageError>,
) -> Result<T, StorageError> {
    let unreadable = |store, action, source| StorageError::Unreadable {
        path: dir.to_owned(),
        store,
        action,
        source,
    };
    match without_panic_text(|| catch_unwind(AssertUnwindSafe(open))) {
        Ok(Err(StorageError::Backend {
            store,
            action,
            source,
        })) => Err(unreadable(store, action, source)),
        Ok(opened) => opened,
        Err(panic) => {
            let message = (panic.downcast_ref::<String>().map(String::as_str))
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("it gave no reason");
            let source = format!("it panicked: {message}").into();
            Err(unreadable("a store", "open", source))
        }
    }
}

/// Does `open`, of which no panic is printed. Those of other threads and other times are, as before.
fn without_panic_text<T>(open: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // A thread that ends has no such flag any more.
            match IS_OPENING.try_with(Cell::get).unwrap_or(false) {
                true => tracing::debug!(%panic, "a store panicked while it was opened"),
                false => others(panic),
            }
        }));
    });
    let before = IS_OPENING.replace(true);
    let opened = open();
    IS_OPENING.set(before);
    opened
}
