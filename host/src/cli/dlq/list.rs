//! `tidelock dlq list`.

use std::borrow::Cow;
use std::io::Write;

use clap::Args;

use crate::cli::bytes::text_of;
use crate::cli::data::DataArguments;
use crate::cli::dlq::LetterStore;
use crate::cli::dlq::question::{LettersAnswer, LettersQuestion, ListEnd, ListedLetter};
use crate::cli::dlq::selection::FilterArguments;
use crate::cli::printing::print;
use crate::cli::{Outcome, OutputFormat};
use crate::telemetry::LogOutput;

/// The longest reason in a line of text, in characters.
const REASON_CHARS_MAX: usize = 80;
/// The longest key in a line of text, in characters.
const KEY_CHARS_MAX: usize = 40;

/// Arguments of `tidelock dlq list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Which letters.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Tell of at most so many; the others are counted.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub limit: u64,
    /// Of which store.
    #[command(flatten)]
    pub data: DataArguments,
}

/// Lists letters, the oldest first, as they are found: never all of them are held in memory.
///
/// # Errors
///
/// When the store fails, or the process that has it can't answer.
pub(super) fn list(
    arguments: &ListArguments,
    output: OutputFormat,
    logs: &LogOutput,
) -> anyhow::Result<Outcome> {
    let question = LettersQuestion::List {
        filter: arguments.filter.filter()?,
        limit: arguments.limit,
    };
    let store = LetterStore::open(&arguments.data)?;
    let (mut printed, mut end) = (0, ListEnd::default());
    print(|to| {
        let answer = store.ask(&question, &mut |page| {
            for letter in &page {
                match output {
                    OutputFormat::Text => write_line(to, letter, printed == 0)?,
                    OutputFormat::Json => {
                        let before = if printed == 0 { "{\"letters\":[" } else { "," };
                        // As text first: an error of the output would come back as one of the document.
                        write!(to, "{before}\n  {}", serde_json::to_string(letter)?)?;
                    }
                }
                printed += 1;
            }
            Ok(())
        })?;
        let LettersAnswer::Listed(ended) = answer else {
            anyhow::bail!("the answer is another question's");
        };
        end = ended;
        if output == OutputFormat::Json {
            let start = if printed == 0 { "{\"letters\":[" } else { "\n" };
            writeln!(to, "{start}],\"more\":{}}}", end.more)?;
        }
        Ok(())
    })?;
    if printed == 0 && output == OutputFormat::Text {
        logs.print_line("there is no such dead letter");
    }
    if end.more > 0 {
        logs.print_line(&format!(
            "and {} more; --limit shows more of them, --since those written later",
            end.more
        ));
    }
    for finding in &end.findings {
        logs.print_line(&format!("error: {finding}"));
    }
    if end.unreadable > 0 {
        logs.print_line(&format!(
            "error: {} dead letters can't be read; `tidelock dlq discard ID` lets go of them",
            end.unreadable
        ));
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Done)
}

fn write_line(to: &mut dyn Write, letter: &ListedLetter, is_first: bool) -> anyhow::Result<()> {
    let mut line = |cells: [&str; 9]| {
        let [
            id,
            written,
            origin,
            class,
            item,
            location,
            attempts,
            asked,
            reason,
        ] = cells;
        let line = format!(
            "{id:<14} {written:<24} {origin:<20} {class:<16} {item:<24} {location:<48} {attempts:>8} {asked:<8} {reason}"
        );
        writeln!(to, "{}", line.trim_end())
    };
    if is_first {
        line([
            "id",
            "written",
            "failed on it",
            "class",
            "item",
            "from",
            "attempts",
            "asked",
            "reason",
        ])?;
    }
    let origin = match (&letter.computation, &letter.source) {
        (_, Some(source)) => format!("source {source}"),
        (computation, None) => computation.clone().unwrap_or_default(),
    };
    let key = letter.key.as_ref().map(|key| text_of(&key.0));
    let item = match (&letter.stream, key) {
        (Some(stream), Some(key)) => {
            format!("{} {stream} {}", letter.item, cut(&key, KEY_CHARS_MAX))
        }
        _ => letter.item.clone(),
    };
    let reason = text_of(letter.reason.as_bytes());
    let asked = letter
        .asked
        .map_or_else(String::new, |kind| kind.to_string());
    line([
        &letter.id,
        &letter.written,
        &origin,
        &letter.class,
        item.trim_end(),
        &letter.location,
        &letter.attempts.to_string(),
        &asked,
        &cut(&reason, REASON_CHARS_MAX),
    ])?;
    Ok(())
}

/// A text, cut to so many characters.
fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("a\u{e9}b", 3), "a\u{e9}b");
        assert_eq!(cut("a\u{e9}bc", 2), "a\u{e9}...");
    }
}
