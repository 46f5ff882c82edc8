//! `tidelock store check`: every stored row, and the files of sinks, looked at.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;

use crate::cli::data::{DataArguments, open_embedded};
use crate::cli::printing::{print, print_json};
use crate::cli::store::restore::SinkFileReport;
use crate::cli::task_view::TaskView;
use crate::cli::{Outcome, OutputFormat};
use crate::controller::catalog_check::check_catalog;
use crate::controller::inventory::Inventory;
use crate::storage::check::{StoreCheck, StoreFinding, check_store};
use crate::storage::kinds::KindSize;
use crate::storage::{Storage as _, StoreSize};
use crate::telemetry::LogOutput;

/// Arguments of `tidelock store check`.
#[derive(Debug, Args)]
pub struct CheckStoreArguments {
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

#[derive(Debug, Serialize)]
struct CheckReport {
    data: PathBuf,
    ok: bool,
    findings: Vec<OwnedFinding>,
    /// Beyond those that are listed.
    more_findings: u64,
    notes: Vec<String>,
    rows: u64,
    kinds: Vec<KindSize>,
    #[serde(flatten)]
    disk: StoreSize,
    sink_files: Vec<SinkFileReport>,
    elapsed_ms: u64,
}

#[derive(Debug, Serialize)]
struct OwnedFinding {
    #[serde(flatten)]
    finding: StoreFinding,
    /// What the partition is.
    owner: Option<String>,
}

/// Checks a store that nobody has.
///
/// # Errors
///
/// When there is no store, or it can't be opened at all.
pub fn check(
    arguments: &CheckStoreArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let data = arguments.data.existing()?;
    let Some(storage) = open_embedded(&data)?.free_or_tell(logs) else {
        return Ok(Outcome::Conflict);
    };
    let mut view = TaskView::start(logs, "check");
    let mut of_catalog = check_catalog(&storage)?;
    let inventory = Inventory::read(&storage).unwrap_or_else(|error| {
        let finding = error.to_string();
        if !of_catalog.contains(&finding) {
            of_catalog.push(finding);
        }
        Inventory::default()
    });
    let snapshot = storage.snapshot()?;
    let mut found = check_store(&*snapshot, &inventory, &mut |rows, total| {
        view.show(rows, total, &|| format!("{} rows", HumanCount(rows)));
        ControlFlow::Continue(())
    });
    drop(snapshot);
    for finding in of_catalog {
        found.find(None, finding);
    }
    for (partition, damage) in storage.damaged() {
        let finding = format!("damaged at epoch {}: {}", damage.epoch, damage.finding);
        found.find(Some(partition), finding);
    }
    let sink_files = storage.sink_file_lengths().into_iter();
    let sink_files: Vec<SinkFileReport> = sink_files.map(SinkFileReport::of).collect();
    for finding in sink_files.iter().filter_map(SinkFileReport::finding) {
        found.find(None, finding);
    }
    let elapsed = view.finish();
    let report = CheckReport {
        data,
        elapsed_ms: elapsed.as_millis() as u64,
        disk: storage.size()?,
        sink_files,
        ..CheckReport::of(found, &inventory)
    };
    match output {
        OutputFormat::Json => print_json(&report)?,
        OutputFormat::Text => print(|output| report.write(output))?,
    }
    Ok(match report.ok {
        true => Outcome::Done,
        false => Outcome::Failed,
    })
}

impl CheckReport {
    fn of(found: StoreCheck, inventory: &Inventory) -> CheckReport {
        let owned = |finding: StoreFinding| OwnedFinding {
            owner: (finding.partition)
                .and_then(|partition| inventory.owner(partition))
                .map(str::to_owned),
            finding,
        };
        CheckReport {
            data: PathBuf::new(),
            ok: found.findings_count() == 0,
            more_findings: found.more_findings,
            notes: found.notes,
            rows: found.counts.rows(),
            kinds: found.counts.sizes(),
            findings: found.findings.into_iter().map(owned).collect(),
            disk: StoreSize::default(),
            sink_files: Vec::new(),
            elapsed_ms: 0,
        }
    }

    fn write(&self, output: &mut dyn Write) -> anyhow::Result<()> {
        for OwnedFinding { finding, owner } in &self.findings {
            let text = &finding.finding;
            match (finding.partition, owner) {
                (Some(partition), Some(owner)) => {
                    writeln!(output, "partition {partition} ({owner}): {text}")?;
                }
                (Some(partition), None) => writeln!(output, "partition {partition}: {text}")?,
                (None, _) => writeln!(output, "{text}")?,
            }
        }
        if self.more_findings > 0 {
            writeln!(output, "and {} findings more", self.more_findings)?;
        }
        for note in &self.notes {
            writeln!(output, "note: {note}")?;
        }
        let (data, rows) = (self.data.display(), HumanCount(self.rows));
        match self.ok {
            true => writeln!(
                output,
                "{data} is whole: {rows} rows, {} sink files",
                self.sink_files.len()
            )?,
            false => writeln!(
                output,
                "{data} is not whole: restore it from a backup where partitions are damaged, put files of sinks right"
            )?,
        }
        Ok(())
    }
}
