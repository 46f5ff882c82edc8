//! `tidelock store compact`: frees the disk space of what was overwritten and removed.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;

use crate::cli::data::{DataArguments, Opened, open_embedded, tell_damage};
use crate::cli::printing::{print_json, print_line};
use crate::cli::task_view::TaskView;
use crate::cli::{Outcome, OutputFormat};
use crate::storage::{Storage as _, StorageError, StoreSize};
use crate::telemetry::LogOutput;

/// How often it is shown that work goes on.
const DRAW_PERIOD: Duration = Duration::from_millis(200);

/// Arguments of `tidelock store compact`.
#[derive(Debug, Args)]
pub struct CompactArguments {
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

#[derive(Debug, Serialize)]
struct CompactReport {
    data: PathBuf,
    store_bytes_before: u64,
    store_bytes: u64,
    elapsed_ms: u64,
}

/// Compacts a store that nobody has.
///
/// # Errors
///
/// When there is no store, or it fails.
pub fn compact(
    arguments: &CompactArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let data = arguments.data.existing()?;
    let Some(storage) = open_embedded(&data)?.free_or_tell(logs) else {
        return Ok(Outcome::Conflict);
    };
    let outcome = tell_damage(&storage, logs);
    let before = storage.size()?.total();
    let mut view = TaskView::start(logs, "compact");
    let compacted = std::thread::scope(|scope| {
        let (sender, done) = mpsc::sync_channel(1);
        let storage = &storage;
        scope.spawn(move || {
            // The receiver waits for it.
            let _ = sender.send(storage.compact());
        });
        loop {
            match done.recv_timeout(DRAW_PERIOD) {
                Ok(compacted) => break compacted,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // How far it is the store does not tell: new tables stand beside the old ones until the end.
                    let now = storage.size().map_or(before, StoreSize::total);
                    let written = now.saturating_sub(before);
                    view.show(written, before, &|| {
                        format!("{} on disk, {} before", HumanBytes(now), HumanBytes(before))
                    });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break Err(StorageError::Stopped),
            }
        }
    });
    compacted.with_context(|| format!("failed to compact {}", data.display()))?;
    let elapsed = view.finish();
    // What tables no longer hold is given up when the store is closed and opened again.
    drop(storage);
    let after = match open_embedded(&data)? {
        Opened::Free(storage) => storage.size()?.total(),
        Opened::Held(error) => return Err(error.into()),
    };
    let report = CompactReport {
        data,
        store_bytes_before: before,
        store_bytes: after,
        elapsed_ms: elapsed.as_millis() as u64,
    };
    match output {
        OutputFormat::Json => print_json(&report)?,
        OutputFormat::Text => print_line(&format!(
            "{}: {} before, {} now, in {:.1} s",
            report.data.display(),
            HumanBytes(before),
            HumanBytes(after),
            elapsed.as_secs_f64()
        ))?,
    }
    Ok(outcome)
}
