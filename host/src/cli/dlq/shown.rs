//! A dead letter as a document: for programs as JSON, for people as text.

use std::io::Write;

use serde::Serialize;

use crate::cli::bytes::{JsonBytes, is_hidden, text_of};
use crate::cli::dlq::question::WholeLetter;
use crate::guest::RecordedSettings;
use crate::types::batch::{Batch, Timestamp};
use crate::types::dead_letter::{
    DeadLetterId, FailedComputation, LetterFailure, LetterItem, LetterOrigin, LetterRequestKind,
};
use crate::types::moment::Moment;

/// All of a letter.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct LetterDocument<'a> {
    id: String,
    written: String,
    pipeline: &'a str,
    /// Number of the deployment in force.
    deployment: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    computation: Option<ComputationDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    item: ItemDocument<'a>,
    location: &'a str,
    /// The message of the job's input that the item is or goes back to.
    message_id: Option<String>,
    attempts: u32,
    /// What is asked to be done with it.
    asked: Option<LetterRequestKind>,
    failure: &'a LetterFailure,
    /// The states of the item's key, as they were before the call.
    states: Vec<StateDocument<'a>>,
    /// Bytes of states that were too large to be kept; 0 where all are here.
    left_out_state_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ComputationDocument<'a> {
    name: &'a str,
    component: &'a str,
    /// SHA-256 of the component.
    digest: &'a str,
    /// Parameters, grants and limits; the text itself where it is not understood.
    settings: serde_json::Value,
}

/// The item. Event times that it does not have are null.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum ItemDocument<'a> {
    Message {
        stream: &'a str,
        key: JsonBytes<'a>,
        event_time: Option<String>,
        payload: JsonBytes<'a>,
    },
    Timer {
        stream: &'a str,
        key: JsonBytes<'a>,
        trigger_time: String,
        event_time: Option<String>,
    },
    Record {
        of: &'a str,
        position: u64,
        size_bytes: u64,
        bytes: JsonBytes<'a>,
    },
}

#[derive(Debug, Serialize)]
struct StateDocument<'a> {
    state: String,
    key: JsonBytes<'a>,
    value: JsonBytes<'a>,
}

fn event_time(time: Timestamp) -> Option<String> {
    (time > 0).then(|| Moment(time).to_string())
}

impl<'a> LetterDocument<'a> {
    pub(in crate::cli) fn of(id: DeadLetterId, whole: &'a WholeLetter) -> LetterDocument<'a> {
        let letter = &whole.letter;
        let left_out_state_bytes = match &letter.origin {
            LetterOrigin::Computation(failed) => failed.left_out_state_bytes,
            LetterOrigin::Source { .. } => 0,
        };
        let (computation, source, states) = match &letter.origin {
            LetterOrigin::Source { name } => (None, Some(name.as_str()), Vec::new()),
            LetterOrigin::Computation(failed) => {
                let settings = RecordedSettings::from_json(&failed.settings).ok();
                let names = settings.map_or_else(Vec::new, |settings| settings.states);
                (
                    Some(ComputationDocument::of(failed)),
                    None,
                    states_of(&failed.batch, &names),
                )
            }
        };
        LetterDocument {
            id: id.to_string(),
            written: Moment(letter.written).to_string(),
            pipeline: &letter.pipeline,
            deployment: letter.deployment,
            computation,
            source,
            item: ItemDocument::of(&letter.item),
            location: &letter.location,
            message_id: letter.root.map(|id| id.to_string()),
            attempts: letter.attempts,
            asked: whole.asked,
            failure: &letter.failure,
            states,
            left_out_state_bytes,
        }
    }

    /// Writes it for people.
    pub(super) fn write_text(&self, to: &mut dyn Write) -> anyhow::Result<()> {
        let mut line = |name: &str, value: &str| writeln!(to, "{name:<14} {value}");
        line("id", &self.id)?;
        line("written", &self.written)?;
        line(
            "pipeline",
            &format!("{}, deployment {}", self.pipeline, self.deployment),
        )?;
        if let Some(computation) = &self.computation {
            line("computation", computation.name)?;
            line("component", computation.component)?;
            line("digest", computation.digest)?;
            line("settings", &computation.settings.to_string())?;
        }
        if let Some(source) = self.source {
            line("source", source)?;
        }
        line("from", self.location)?;
        if let Some(id) = &self.message_id {
            line("message id", id)?;
        }
        match &self.item {
            ItemDocument::Message {
                stream,
                key,
                event_time,
                payload,
            } => {
                line(
                    "item",
                    &format!("message of {stream}, {} bytes", payload.0.len()),
                )?;
                line("key", &text_of(&key.0))?;
                if let Some(time) = event_time {
                    line("event time", time)?;
                }
            }
            ItemDocument::Timer {
                stream,
                key,
                trigger_time,
                event_time,
            } => {
                line(
                    "item",
                    &format!("timer of {stream}, set for {trigger_time}"),
                )?;
                line("key", &text_of(&key.0))?;
                if let Some(time) = event_time {
                    line("event time", time)?;
                }
            }
            ItemDocument::Record {
                of,
                position,
                size_bytes,
                ..
            } => {
                line(
                    "item",
                    &format!("record {position} of {of}, {size_bytes} bytes"),
                )?;
            }
        }
        line("attempts", &self.attempts.to_string())?;
        if let Some(asked) = self.asked {
            line("asked", &asked.to_string())?;
        }
        line("class", &self.failure.class)?;
        line("fuel", &self.failure.fuel.to_string())?;
        let state = |state: &StateDocument<'_>| {
            format!(
                "{} {} = {}",
                state.state,
                text_of(&state.key.0),
                text_of(&state.value.0)
            )
        };
        let mut states: Vec<String> = self.states.iter().map(state).collect();
        if self.left_out_state_bytes > 0 {
            states.push(format!(
                "{} bytes, too many to be kept",
                self.left_out_state_bytes
            ));
        }
        let payload = match &self.item {
            ItemDocument::Message { payload: bytes, .. } | ItemDocument::Record { bytes, .. } => {
                block_of(&bytes.0)
            }
            ItemDocument::Timer { .. } => String::new(),
        };
        let blocks = [
            ("payload", payload.as_str()),
            ("states", &states.join("\n")),
            ("reason", &block_of(self.failure.reason.as_bytes())),
            ("backtrace", &block_of(self.failure.backtrace.as_bytes())),
            ("stdout", &block_of(self.failure.stdout.as_bytes())),
            ("stderr", &block_of(self.failure.stderr.as_bytes())),
        ];
        for (title, text) in blocks {
            if !text.is_empty() {
                writeln!(to, "{title}:")?;
                for line in text.lines() {
                    writeln!(to, "  {line}")?;
                }
            }
        }
        Ok(())
    }
}

/// Bytes as text where they are UTF-8 without control characters but line ends and tabs, else escaped.
fn block_of(bytes: &[u8]) -> String {
    let is_shown = |character: char| !is_hidden(character) || matches!(character, '\n' | '\t');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_shown) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

impl ComputationDocument<'_> {
    fn of(failed: &FailedComputation) -> ComputationDocument<'_> {
        ComputationDocument {
            name: &failed.name,
            component: &failed.component,
            digest: &failed.digest,
            settings: serde_json::from_str(&failed.settings)
                .unwrap_or_else(|_| failed.settings.as_str().into()),
        }
    }
}

impl ItemDocument<'_> {
    fn of(item: &LetterItem) -> ItemDocument<'_> {
        match item {
            LetterItem::Message {
                stream,
                key,
                event_time: time,
                payload,
            } => ItemDocument::Message {
                stream,
                key: key.as_slice().into(),
                event_time: event_time(*time),
                payload: payload.as_slice().into(),
            },
            LetterItem::Timer {
                stream,
                key,
                trigger_time,
                event_time: time,
            } => ItemDocument::Timer {
                stream,
                key: key.as_slice().into(),
                trigger_time: Moment(*trigger_time).to_string(),
                event_time: event_time(*time),
            },
            LetterItem::Record {
                of,
                position,
                bytes,
                size_bytes,
            } => ItemDocument::Record {
                of,
                position: *position,
                size_bytes: *size_bytes,
                bytes: bytes.as_slice().into(),
            },
        }
    }
}

fn states_of<'a>(batch: &'a Batch, names: &[String]) -> Vec<StateDocument<'a>> {
    let mut documents = Vec::new();
    for (index, column) in batch.states.iter().enumerate() {
        let name = names.get(index);
        for (key, value) in column.keys.iter().zip(column.values.iter()) {
            let key = (batch.keys.iter()).nth(*key as usize).unwrap_or_default();
            documents.push(StateDocument {
                state: name.cloned().unwrap_or_else(|| format!("state {index}")),
                key: key.into(),
                value: value.into(),
            });
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_text_where_they_are_and_are_escaped_elsewhere() {
        assert_eq!(block_of("a\u{e9}\n\tb".as_bytes()), "a\u{e9}\n\tb");
        assert_eq!(block_of(b"a\x1b[0m"), "a\\x1b[0m");
        assert_eq!(block_of(b"\xff\x00a"), "\\xff\\x00a");
    }
}
