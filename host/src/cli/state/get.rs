//! `tidelock state get`.

use clap::Args;

use crate::cli::bytes::{KeyFormat, text_of};
use crate::cli::data::DataArguments;
use crate::cli::printing::print_line;
use crate::cli::state::rows::StateRow;
use crate::cli::state::shown::json_line;
use crate::cli::state::{Selected, StateName, open};
use crate::cli::{Outcome, OutputFormat};
use crate::storage::keys::state_key_bytes_max;
use crate::storage::{Storage, StorageError, rows};
use crate::telemetry::LogOutput;
use crate::types::moment::Moment;

/// Arguments of `tidelock state get`.
#[derive(Debug, Args)]
pub struct GetArguments {
    /// Which state.
    #[command(flatten)]
    pub name: StateName,
    /// The key.
    pub key: String,
    /// How the key is written.
    #[arg(long, value_enum, default_value_t = KeyFormat::Text)]
    pub key_format: KeyFormat,
    /// Show a value that a run would not see any more because of its age.
    #[arg(long)]
    pub absent: bool,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// Shows the value of a key.
///
/// # Errors
///
/// When there is no such state, or the store fails.
pub(super) fn get(
    arguments: &GetArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let key = arguments.key_format.parse(&arguments.key)?;
    let Some(storage) = open(&arguments.data, logs)? else {
        return Ok(Outcome::Conflict);
    };
    let selected = Selected::find(&storage, &arguments.name)?;
    let Some(row) = find(&storage, &selected, &key)? else {
        logs.print_line(&format!("key {} has no value", text_of(&key)));
        return Ok(Outcome::Failed);
    };
    if row.is_absent && !arguments.absent {
        let touched = match row.stored.touched {
            0 => "at a time that is not known".to_owned(),
            touched => format!("at {}", Moment(touched)),
        };
        logs.print_line(&format!(
            "the value of key {} is absent because of its age, it was last touched {touched}; --absent shows it",
            text_of(&key)
        ));
        return Ok(Outcome::Failed);
    }
    print_line(&match output {
        OutputFormat::Json => json_line(&selected.format, &row),
        OutputFormat::Text => text_of(&row.stored.value),
    })?;
    Ok(Outcome::Done)
}

/// The row of a key: where its hash says, or, while partitions move, where it still is.
fn find(
    storage: &dyn Storage,
    selected: &Selected,
    key: &[u8],
) -> Result<Option<StateRow>, StorageError> {
    if key.len() > state_key_bytes_max(&selected.state) {
        return Ok(None);
    }
    let place = selected.computation.partition_of(key);
    let may_have = |partition: &&super::SelectedPartition| {
        Some(partition.id) == place || partition.is_retiring
    };
    for partition in selected.partitions.iter().filter(may_have) {
        let state = &selected.state;
        let mut found = rows::read_states(storage, partition.id, state, &[key])?;
        let stored = found.pop().unwrap_or_default();
        if !stored.value.is_empty() {
            return Ok(Some(StateRow {
                key: key.to_vec(),
                partition: partition.id,
                is_retiring: partition.is_retiring,
                is_absent: partition.time.is_expired(state, stored.touched),
                stored,
            }));
        }
    }
    Ok(None)
}
