//! `tidelock store size`: how much disk space a data directory takes, and what for.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{HumanBytes, HumanCount};
use serde::{Deserialize, Serialize};

use crate::cli::control::{self, Answered, Request, Told};
use crate::cli::data::{DataArguments, Opened, open_embedded};
use crate::cli::printing::{print_json, print_line};
use crate::cli::task_view::TaskView;
use crate::cli::{Outcome, OutputFormat};
use crate::storage::kinds::{KindSize, count_rows};
use crate::storage::{Storage, StorageError, StoreSize};
use crate::telemetry::LogOutput;

/// Arguments of `tidelock store size`.
#[derive(Debug, Args)]
pub struct SizeArguments {
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// How large a store is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SizeReport {
    /// Bytes on disk: the catalog and the bulk rows.
    #[serde(flatten)]
    pub disk: StoreSize,
    /// Both together.
    pub store_bytes: u64,
    /// Rows by kind. Their bytes are those before compression.
    pub kinds: Vec<KindSize>,
}

#[derive(Debug, Serialize)]
struct SizeDocument {
    data: PathBuf,
    #[serde(flatten)]
    size: SizeReport,
}

/// Shows how large a store is. A run that has the store is asked.
///
/// # Errors
///
/// When there is no store, it fails, or the process that has it can't answer.
pub fn size(
    arguments: &SizeArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let data = arguments.data.existing()?;
    let mut view = TaskView::start(logs, "counting");
    let mut show = |done: u64, total: u64| {
        view.show(done, total, &|| format!("{} rows", HumanCount(done)));
    };
    let size = match open_embedded(&data)? {
        Opened::Free(storage) => measure(&storage, &mut |done, total| {
            show(done, total);
            ControlFlow::Continue(())
        })?,
        Opened::Held(error) => {
            let mut show = |told| {
                if let Told::Progress(progress) = told {
                    show(progress.done, progress.total);
                }
                Ok(())
            };
            match control::ask(&data, &Request::Size, &mut show) {
                Ok(Answered::Size(size)) => size,
                Ok(_) => anyhow::bail!("the answer is another request's"),
                Err(refused) if refused.root_cause().is::<std::io::Error>() => {
                    logs.print_line(&format!("error: {refused:#}; {error}"));
                    return Ok(Outcome::Conflict);
                }
                Err(refused) => return Err(refused),
            }
        }
    };
    view.finish();
    match output {
        OutputFormat::Json => print_json(&SizeDocument { data, size })?,
        OutputFormat::Text => print_line(&format!("{}\n{}", data.display(), text(&size)))?,
    }
    Ok(Outcome::Done)
}

/// Measures an open store. Commits go on meanwhile.
///
/// # Errors
///
/// When the store fails.
pub fn measure(
    storage: &dyn Storage,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<SizeReport, StorageError> {
    let snapshot = storage.snapshot()?;
    let kinds = count_rows(&*snapshot, observe)?.sizes();
    let disk = storage.size()?;
    Ok(SizeReport {
        disk,
        store_bytes: disk.total(),
        kinds,
    })
}

fn text(size: &SizeReport) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut row = |name: &str, rows: String, bytes: u64| {
        table.add_row([name.to_owned(), rows, HumanBytes(bytes).to_string()]);
    };
    row("on disk", String::new(), size.store_bytes);
    row("  bulk rows", String::new(), size.disk.bulk_bytes);
    row("  catalog", String::new(), size.disk.catalog_bytes);
    row(
        "before compression",
        "rows".to_owned(),
        size.kinds.iter().map(|kind| kind.bytes).sum(),
    );
    for kind in &size.kinds {
        row(
            &format!("  {}", kind.kind),
            HumanCount(kind.rows).to_string(),
            kind.bytes,
        );
    }
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = (table.lines())
        .map(|line| {
            line.strip_prefix(" ")
                .unwrap_or(&line)
                .trim_end()
                .to_owned()
        })
        .collect();
    lines.join("\n")
}
