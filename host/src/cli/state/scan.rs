//! `tidelock state scan`.

use clap::Args;

use crate::cli::bytes::{KeyFormat, text_of};
use crate::cli::data::DataArguments;
use crate::cli::printing::print;
use crate::cli::state::rows::MergedRows;
use crate::cli::state::shown::json_line;
use crate::cli::state::{Selected, StateName, open};
use crate::cli::{Outcome, OutputFormat, UsageError};
use crate::storage::keys::state_key_bytes_max;
use crate::telemetry::LogOutput;

/// Arguments of `tidelock state scan`.
#[derive(Debug, Args)]
pub struct ScanArguments {
    /// Which state.
    #[command(flatten)]
    pub name: StateName,
    /// Only keys that begin with this.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only keys from this one on.
    #[arg(
        long,
        value_name = "KEY",
        default_value = "",
        hide_default_value = true
    )]
    pub from: String,
    /// At most so many keys.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub limit: u64,
    /// How prefix and key are written.
    #[arg(long, value_enum, default_value_t = KeyFormat::Text)]
    pub key_format: KeyFormat,
    /// Show values too that a run would not see any more because of their age.
    #[arg(long)]
    pub absent: bool,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// Shows keys and values.
///
/// # Errors
///
/// When there is no such state, or the store fails.
pub(super) fn scan(
    arguments: &ScanArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let prefix = arguments.key_format.parse(&arguments.prefix)?;
    let from = arguments.key_format.parse(&arguments.from)?;
    let Some(storage) = open(&arguments.data, logs)? else {
        return Ok(Outcome::Conflict);
    };
    let selected = Selected::find(&storage, &arguments.name)?;
    let bytes_max = state_key_bytes_max(&selected.state);
    for (option, key) in [("--prefix", &prefix), ("--from", &from)] {
        if key.len() > bytes_max {
            let finding = format!(
                "{option} has {} bytes, and no key has more than {bytes_max}; shorten it",
                key.len()
            );
            return Err(UsageError(finding).into());
        }
    }
    let mut rows = MergedRows::new(&storage, &selected, &prefix, &from)?
        .filter(|row| arguments.absent || row.as_ref().map_or(true, |row| !row.is_absent));
    let mut count = 0;
    let mut is_more = false;
    print(|printed| {
        if output == OutputFormat::Json {
            write!(printed, "{{\"rows\":[")?;
        }
        for row in &mut rows {
            let row = row?;
            if count == arguments.limit {
                is_more = true;
                break;
            }
            match output {
                OutputFormat::Text => writeln!(
                    printed,
                    "{}\t{}",
                    text_of(&row.key),
                    text_of(&row.stored.value)
                )?,
                OutputFormat::Json => {
                    let comma = if count > 0 { "," } else { "" };
                    write!(printed, "{comma}\n  {}", json_line(&selected.format, &row))?;
                }
            }
            count += 1;
        }
        if output == OutputFormat::Json {
            writeln!(printed, "\n],\"more\":{is_more}}}")?;
        }
        Ok(())
    })?;
    if is_more {
        logs.print_line(&format!(
            "there are more than {count} keys; --limit shows more of them, --from goes on"
        ));
    }
    Ok(Outcome::Done)
}
