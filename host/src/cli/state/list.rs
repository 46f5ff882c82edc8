//! `tidelock state list`.

use clap::Args;
use comfy_table::{Table, presets};
use indicatif::HumanCount;
use serde::Serialize;

use crate::cli::data::DataArguments;
use crate::cli::printing::{print_json, print_line};
use crate::cli::state::open;
use crate::cli::{Outcome, OutputFormat};
use crate::controller::inventory::{Inventory, KnownTransform};
use crate::storage::{Storage, StorageError, rows};
use crate::telemetry::LogOutput;
use crate::types::batch::ComputationKind;
use crate::types::ids::PartitionId;

/// Keys that are read at a time when they are counted.
const KEYS_PER_PAGE: usize = 10_000;

/// Arguments of `tidelock state list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Count the keys of each state. Those that only wait to be removed count too.
    #[arg(long)]
    pub count: bool,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

#[derive(Debug, Serialize)]
struct ListDocument {
    pipelines: Vec<PipelineView>,
}

#[derive(Debug, Serialize)]
struct PipelineView {
    pipeline: String,
    deployment: u64,
    computations: Vec<ComputationView>,
}

#[derive(Debug, Serialize)]
struct ComputationView {
    computation: String,
    kind: &'static str,
    /// Whether it is no part of the pipeline any more.
    removed: bool,
    partitions: Vec<PartitionView>,
    states: Vec<StateView>,
}

#[derive(Debug, Serialize)]
struct PartitionView {
    partition: String,
    /// Its place in the layout in force; absent for one that is retiring.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    /// Its last committed epoch; absent for one that is damaged.
    epoch: Option<u64>,
    retiring: bool,
}

#[derive(Debug, Serialize)]
struct StateView {
    state: String,
    version: u32,
    format: String,
    /// How many keys it has about, where they were to be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
}

/// Shows what states there are.
///
/// # Errors
///
/// When there is no store, or it fails.
pub(super) fn list(
    arguments: &ListArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let Some(storage) = open(&arguments.data, logs)? else {
        return Ok(Outcome::Conflict);
    };
    let inventory = Inventory::read(&storage)?;
    let mut document = ListDocument {
        pipelines: Vec::new(),
    };
    for (name, pipeline) in inventory.pipelines {
        let mut view = PipelineView {
            pipeline: name,
            deployment: pipeline.deployment,
            computations: Vec::new(),
        };
        for (name, computation) in &pipeline.computations {
            let computation = ComputationView::of(&storage, name, computation, arguments.count)?;
            view.computations.push(computation);
        }
        document.pipelines.push(view);
    }
    match output {
        OutputFormat::Json => print_json(&document)?,
        OutputFormat::Text => print_line(&text_of(&document, arguments.count))?,
    }
    Ok(Outcome::Done)
}

impl ComputationView {
    fn of(
        storage: &dyn Storage,
        name: &str,
        known: &KnownTransform,
        counts: bool,
    ) -> Result<ComputationView, StorageError> {
        let in_force = known.partitions.iter().enumerate();
        let in_force = in_force.map(|(index, id)| (*id, Some(index)));
        let retiring = known.retiring.iter().map(|id| (*id, None));
        let partitions: Vec<(PartitionId, Option<usize>)> = in_force.chain(retiring).collect();
        let states = known.states.iter().map(|(state, encoding)| {
            let keys = match counts {
                true => Some(count(storage, &partitions, state)?),
                false => None,
            };
            Ok(StateView {
                state: state.clone(),
                version: encoding.version,
                format: encoding.format.clone(),
                keys,
            })
        });
        let states = states.collect::<Result<_, StorageError>>()?;
        let partitions = partitions.into_iter().map(|(id, index)| PartitionView {
            partition: id.to_string(),
            index,
            epoch: storage.head(id).ok().map(|head| head.epoch.0),
            retiring: index.is_none(),
        });
        Ok(ComputationView {
            computation: name.to_owned(),
            kind: known.kind.name(),
            removed: known.is_removed,
            partitions: partitions.collect(),
            states,
        })
    }
}

fn count(
    storage: &dyn Storage,
    partitions: &[(PartitionId, Option<usize>)],
    state: &str,
) -> Result<u64, StorageError> {
    let mut count = 0;
    for (partition, _) in partitions {
        let mut from = Vec::new();
        loop {
            let page = rows::scan_state_keys(storage, *partition, state, &from, KEYS_PER_PAGE)?;
            count += page.len() as u64;
            match page.into_iter().next_back() {
                Some(last) => from = [last.as_slice(), &[0]].concat(),
                None => break,
            }
        }
    }
    Ok(count)
}

fn text_of(document: &ListDocument, counts: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut heading = vec!["PIPELINE", "COMPUTATION", "STATE", "VERSION", "FORMAT"];
    heading.extend(["PARTITIONS"].iter().chain(counts.then_some(&"KEYS")));
    table.set_header(heading);
    for pipeline in &document.pipelines {
        for computation in &pipeline.computations {
            if computation.kind == ComputationKind::Map.name() && computation.states.is_empty() {
                continue;
            }
            for row in rows_of(&pipeline.pipeline, computation) {
                table.add_row(row);
            }
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

/// A row for each state, or one that says that there is none.
fn rows_of(pipeline: &str, computation: &ComputationView) -> Vec<Vec<String>> {
    let retiring = (computation.partitions.iter()).filter(|of| of.retiring);
    let retiring = retiring.count();
    let mut partitions = (computation.partitions.len() - retiring).to_string();
    if retiring > 0 {
        partitions.push_str(&format!(" and {retiring} retiring"));
    }
    let mut name = computation.computation.clone();
    if computation.removed {
        name.push_str(" (removed)");
    }
    let row = |state: String, version: String, format: String, keys: Option<u64>| {
        let mut row = vec![
            pipeline.to_owned(),
            name.clone(),
            state,
            version,
            format,
            partitions.clone(),
        ];
        row.extend(keys.map(|keys| HumanCount(keys).to_string()));
        row
    };
    if computation.states.is_empty() {
        let none = || "-".to_owned();
        return vec![row(none(), none(), none(), None)];
    }
    (computation.states.iter())
        .map(|state| {
            row(
                state.state.clone(),
                state.version.to_string(),
                state.format.clone(),
                state.keys,
            )
        })
        .collect()
}
