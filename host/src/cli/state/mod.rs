//! `tidelock state`: the states that a data directory keeps, for people and programs to read. Of a store that
//! nobody has; nothing is changed.
//!
//! - this file: the commands, and which state one is about.
//! - `rows`: the rows of a state over all its partitions, by key.
//! - `shown`: keys and values as text and as JSON.

mod export;
mod get;
mod list;
mod rows;
mod scan;
mod shown;

use std::path::Path;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::cli::data::{DataArguments, open_embedded};
use crate::cli::{Outcome, OutputFormat};
use crate::controller::inventory::{Inventory, KnownTransform};
use crate::storage::embedded::EmbeddedStorage;
use crate::storage::{Storage, rows as stored};
use crate::telemetry::LogOutput;
use crate::types::batch::ComputationKind;
use crate::types::epoch::EpochTime;
use crate::types::ids::PartitionId;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Show pipelines, their computations, the partitions and the states of those.
    List(list::ListArguments),
    /// Show the value of one key.
    Get(get::GetArguments),
    /// Show keys and values in the order of the keys.
    Scan(scan::ScanArguments),
    /// Write all keys and values as JSON lines.
    Export(export::ExportArguments),
}

/// Which state.
#[derive(Debug, Clone, Args)]
pub struct StateName {
    /// The pipeline's name.
    pub pipeline: String,
    /// The computation's name.
    pub computation: String,
    /// The state's name.
    pub state: String,
}

/// Carries one out.
///
/// # Errors
///
/// As each of them.
pub fn run(
    command: &StateCommand,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    match command {
        StateCommand::List(arguments) => list::list(arguments, output, logs),
        StateCommand::Get(arguments) => get::get(arguments, output, logs),
        StateCommand::Scan(arguments) => scan::scan(arguments, output, logs),
        StateCommand::Export(arguments) => export::export(arguments, logs),
    }
}

/// Opens the store, or says who has it.
fn open(data: &DataArguments, logs: &LogOutput) -> anyhow::Result<Option<EmbeddedStorage>> {
    Ok(open_embedded(&data.existing()?)?.free_or_tell(logs))
}

/// One state with the partitions that keep it.
struct Selected {
    state: String,
    /// What its values are: "json".
    format: String,
    computation: KnownTransform,
    partitions: Vec<SelectedPartition>,
}

/// A partition that keeps a state.
#[derive(Clone)]
struct SelectedPartition {
    id: PartitionId,
    /// Whether it is none of the layout in force.
    is_retiring: bool,
    /// Where it stands in time, which its states grow old by.
    time: EpochTime,
}

impl Selected {
    /// Finds a state by its name.
    fn find(storage: &dyn Storage, name: &StateName) -> anyhow::Result<Selected> {
        let mut inventory = Inventory::read(storage)?;
        let StateName {
            pipeline: of_pipeline,
            computation: of_computation,
            state,
        } = name;
        let pipelines: Vec<String> = inventory.pipelines.keys().cloned().collect();
        let pipeline = (inventory.pipelines.get_mut(of_pipeline)).with_context(|| {
            format!(
                "there is no pipeline {of_pipeline} in this store; it has {}",
                listed(&pipelines)
            )
        })?;
        let computations: Vec<String> = pipeline.computations.keys().cloned().collect();
        let computation = pipeline
            .computations
            .remove(of_computation)
            .with_context(|| {
                format!(
                    "pipeline {of_pipeline} has no computation {of_computation}; it has {}",
                    listed(&computations)
                )
            })?;
        anyhow::ensure!(
            computation.kind == ComputationKind::Transform || !computation.states.is_empty(),
            "computation {of_computation} is a map, which has no states"
        );
        let states: Vec<String> = computation.states.keys().cloned().collect();
        let encoding = computation.states.get(state).with_context(|| {
            format!(
                "computation {of_computation} has no state {state}; it has {}",
                listed(&states)
            )
        })?;
        let in_force = computation.partitions.iter().map(|id| (*id, false));
        let retiring = computation.retiring.iter().map(|id| (*id, true));
        let partitions = in_force
            .chain(retiring)
            .map(|(id, is_retiring)| {
                Ok(SelectedPartition {
                    id,
                    is_retiring,
                    time: time_of(storage, id)?,
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Selected {
            state: state.clone(),
            format: encoding.format.clone(),
            partitions,
            computation,
        })
    }
}

/// Where a partition stands in time, by its last epoch.
fn time_of(storage: &dyn Storage, partition: PartitionId) -> anyhow::Result<EpochTime> {
    let head = storage.head(partition)?;
    let record = stored::read_epoch_record(storage, partition, head.epoch)?;
    Ok(record.map_or_else(EpochTime::default, |record| record.time))
}

fn listed(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// The name under which a file is written until it is whole; none under `path` may be there.
fn unfinished(path: &Path) -> anyhow::Result<std::path::PathBuf> {
    anyhow::ensure!(
        path.symlink_metadata().is_err(),
        "{} is there already; name another file, or move it away",
        path.display()
    );
    Ok(crate::storage::backup::writer::unfinished_path(path))
}
