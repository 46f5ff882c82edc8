//! Which dead letters a command is about, as the command line says it.

use clap::Args;

use crate::cli::bytes::KeyFormat;
use crate::cli::data::DataArguments;
use crate::cli::dlq::question::{Asked, AskedAs, LettersQuestion};
use crate::cli::dlq::{IDS_PER_REQUEST, LetterStore, unknown};
use crate::cli::printing::print_json;
use crate::cli::{Outcome, OutputFormat, UsageError};
use crate::clock::{Clock as _, SystemClock};
use crate::config::units;
use crate::controller::letters::filter::LetterFilter;
use crate::controller::letters::request::LetterSelection;
use crate::telemetry::LogOutput;
use crate::types::batch::Timestamp;
use crate::types::dead_letter::{DeadLetterId, LetterRequestKind};

/// What a letter must be to be meant.
#[derive(Debug, Clone, Args)]
pub struct FilterArguments {
    /// Only letters of this pipeline.
    #[arg(long, value_name = "NAME")]
    pub pipeline: Option<String>,
    /// Only letters that this computation failed on.
    #[arg(long, value_name = "NAME", conflicts_with = "source")]
    pub computation: Option<String>,
    /// Only records that this source could not decode.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Only this kind of failure, as lists show it: panic, trap, out_of_fuel, failure ...
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Only items with this key.
    #[arg(long)]
    pub key: Option<String>,
    /// How the key is written.
    #[arg(long, value_enum, default_value_t = KeyFormat::Text)]
    pub key_format: KeyFormat,
    /// Only letters written at this moment or later, as in "2026-03-01T06:00:00Z", or within this time, as in "2h".
    #[arg(long, value_name = "MOMENT|DURATION", value_parser = parse_moment)]
    pub since: Option<Timestamp>,
    /// Only letters written before this moment, or longer ago than this time.
    #[arg(long, value_name = "MOMENT|DURATION", value_parser = parse_moment)]
    pub until: Option<Timestamp>,
}

impl FilterArguments {
    pub(super) fn filter(&self) -> anyhow::Result<LetterFilter> {
        let key = self.key.as_deref().map(|key| self.key_format.parse(key));
        Ok(LetterFilter {
            pipeline: self.pipeline.clone(),
            computation: self.computation.clone(),
            source: self.source.clone(),
            class: self.class.clone(),
            key: key.transpose()?,
            since: self.since,
            until: self.until,
        })
    }
}

/// A moment, or how long ago it is.
fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Some(ago) = units::duration(text) {
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Ok(SystemClock::start().now().saturating_sub(ago));
    }
    let moment = humantime::parse_rfc3339_weak(text).ok();
    let since = moment.and_then(|moment| moment.duration_since(std::time::UNIX_EPOCH).ok());
    since
        .map(|since| since.as_millis() as Timestamp)
        .ok_or_else(|| {
            "write a moment, as in \"2026-03-01T06:00:00Z\", or how long ago it is, as in \"90m\""
                .to_owned()
        })
}

/// Which letters are to be replayed or discarded.
#[derive(Debug, Clone, Args)]
pub struct SelectionArguments {
    /// Their ids, as `tidelock dlq list` shows them.
    #[arg(value_name = "ID")]
    pub ids: Vec<DeadLetterId>,
    /// All that the options below let through.
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Which.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

impl SelectionArguments {
    /// What is to be asked, in as many requests as it takes.
    fn selections(&self) -> anyhow::Result<Vec<LetterSelection>> {
        let filter = self.filter.filter()?;
        let usage = |finding: &str| Err(UsageError(finding.to_owned()).into());
        match (self.ids.is_empty(), filter.is_any() || self.all) {
            (true, true) => Ok(vec![LetterSelection::Matching(filter)]),
            (true, false) => usage(
                "name the dead letters by their ids, or by an option such as --computation, or all of them with --all",
            ),
            (false, true) => usage("name dead letters by their ids or by options, not by both"),
            (false, false) => {
                let chunks = self.ids.chunks(IDS_PER_REQUEST);
                Ok(chunks
                    .map(|ids| LetterSelection::Named(ids.to_vec()))
                    .collect())
            }
        }
    }

    /// Has it done, or asks for it, and tells what came of it.
    pub(super) fn ask(
        &self,
        kind: LetterRequestKind,
        output: OutputFormat,
        logs: &LogOutput,
    ) -> anyhow::Result<Outcome> {
        let mut sum: Option<(AskedAs, Asked)> = None;
        for selection in self.selections()? {
            let question = LettersQuestion::Ask { kind, selection };
            let (how, asked) = LetterStore::open(&self.data)?.asked(&question)?;
            sum = Some(match sum {
                None => (how, asked),
                Some((_, before)) => (how, before.and(asked)),
            });
        }
        let (how, asked) = sum.expect("there is at least one selection");
        if !asked.unknown.is_empty() {
            let what_else = match asked.letters {
                0 => String::new(),
                count => {
                    format!("; nothing was done with the {count} others that were named with them")
                }
            };
            anyhow::bail!("{}{what_else}", unknown(&asked.unknown));
        }
        tell(kind, how, &asked, output, logs)
    }
}

fn tell(
    kind: LetterRequestKind,
    how: AskedAs,
    asked: &Asked,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    for id in &asked.unreadable {
        logs.print_line(&format!(
            "error: dead letter {id} can't be read, so nothing was done with it; name it by its id, or see `tidelock dlq list`"
        ));
    }
    let count = |letters: usize| match letters {
        1 => "1 dead letter".to_owned(),
        letters => format!("{letters} dead letters"),
    };
    let verb = match kind {
        LetterRequestKind::Replay => "replayed",
        LetterRequestKind::Discard => "discarded",
    };
    let waiting = asked.letters - asked.running.min(asked.letters);
    let letters = count(asked.letters);
    let already = match asked.already {
        0 => String::new(),
        already => format!(" ({already} of them were asked for before)"),
    };
    logs.print_line(&match (how, asked.running, waiting) {
        _ if asked.letters == 0 => "no dead letter is meant; nothing was done".to_owned(),
        (AskedAs::Done, ..) => format!("{} {verb}", count(asked.done)),
        (AskedAs::Stored, ..) => format!(
            "{letters} will be {verb} by the next run of their pipeline{already}; until then nothing changes"
        ),
        (AskedAs::HandedOn, running, 0) => {
            format!("{letters} handed to the run that has the store, to be {verb}{already}", letters = count(running))
        }
        (AskedAs::HandedOn, running, waiting) => format!(
            "{letters} to be {verb}{already}: {running} handed to the run that has the store, {waiting} left to a later one as no job of \
             this run has their partitions"
        ),
    });
    if output == OutputFormat::Json {
        print_json(&serde_json::json!({
            "asked": kind,
            "how": how,
            "letters": asked.letters,
            "already": asked.already,
            "running": asked.running,
            "done": asked.done,
            "unreadable": asked.unreadable.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }))?;
    }
    Ok(match asked.unreadable.is_empty() {
        true => Outcome::Done,
        false => Outcome::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::dlq::DlqCommand;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn selections(arguments: &[&str]) -> Result<Vec<LetterSelection>, String> {
        let line = ["tidelock", "dlq", "replay"].iter().chain(arguments);
        let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
        match cli.command {
            Command::Dlq(DlqCommand::Replay(replay)) => {
                (replay.selection.selections()).map_err(|error| error.to_string())
            }
            other => panic!("{other:?} is another command"),
        }
    }

    #[test]
    fn letters_are_named_by_ids_or_by_a_filter_and_never_by_accident_all() {
        let named = selections(&["p3-e42-0", "p3-e42-1"]).unwrap();
        assert!(matches!(&named[..], [LetterSelection::Named(ids)] if ids.len() == 2));
        for all in [
            &["--all"][..],
            &["--class", "panic"],
            &["--all", "--computation", "a"],
        ] {
            let meant = selections(all).unwrap();
            assert!(
                matches!(meant[..], [LetterSelection::Matching(_)]),
                "{meant:?}"
            );
        }
        for (wrong, expected) in [
            (&[][..], "--all"),
            (&["p3-e42-0", "--all"], "--all"),
            (&["p3-e42-0", "--class", "panic"], "not by both"),
            (&["p3"], "no id of a dead letter"),
            (&["--all", "--since", "yesterday"], "write a moment"),
            (&["--computation", "a", "--source", "b"], "--source"),
            (
                &["--key", "0", "--key-format", "hex"],
                "no key in hexadecimal",
            ),
        ] {
            let error = selections(wrong).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn moments_are_absolute_or_so_long_ago() {
        assert_eq!(parse_moment("1970-01-01T00:00:01Z"), Ok(1_000));
        let now = SystemClock::start().now();
        let hour_ago = parse_moment("1h").unwrap();
        assert!(now - 3_600_000 <= hour_ago && hour_ago < now);
    }
}
