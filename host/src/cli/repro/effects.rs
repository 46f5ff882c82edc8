//! What a call brings that passes, as JSON that people can read.

use serde::Serialize;

use crate::cli::bytes::JsonBytes;
use crate::guest::Call;
use crate::types::batch::{Batch, Description, LogLevel, TimerColumns, Timestamp};

/// The effects of a call.
#[derive(Debug, Serialize)]
pub struct EffectsDocument<'a> {
    outputs: Vec<OutputDocument<'a>>,
    /// New values of states; null where the value is deleted.
    states: Vec<StateDocument<'a>>,
    set_timers: Vec<TimerDocument<'a>>,
    cancelled_timers: Vec<TimerDocument<'a>>,
    logs: Vec<LogDocument<'a>>,
    /// Fuel that the call used.
    fuel: u64,
    stdout: &'a str,
    stderr: &'a str,
}

#[derive(Debug, Serialize)]
struct OutputDocument<'a> {
    stream: &'a str,
    key: JsonBytes<'a>,
    /// Milliseconds since 1970; null where it has that of the item.
    event_time: Option<Timestamp>,
    payload: JsonBytes<'a>,
}

#[derive(Debug, Serialize)]
struct StateDocument<'a> {
    state: &'a str,
    key: JsonBytes<'a>,
    value: Option<JsonBytes<'a>>,
}

#[derive(Debug, Serialize)]
struct TimerDocument<'a> {
    stream: &'a str,
    key: JsonBytes<'a>,
    trigger_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
struct LogDocument<'a> {
    level: &'static str,
    text: &'a str,
}

impl<'a> EffectsDocument<'a> {
    /// Those of a call with `batch` of a component that says `description` of itself.
    pub fn of(
        call: &'a Call,
        batch: &'a Batch,
        description: &'a Description,
    ) -> EffectsDocument<'a> {
        let effects = &call.effects;
        let key = |index: u32| -> JsonBytes<'a> { batch.keys.get(index as usize).into() };
        let outputs = &effects.outputs;
        let output = |row: usize| OutputDocument {
            stream: &description.outputs[usize::from(outputs.streams[row])],
            key: outputs.keys.get(row).into(),
            event_time: outputs.event_times.get(row).copied(),
            payload: outputs.payloads.get(row).into(),
        };
        let timers = |columns: &'a TimerColumns| -> Vec<TimerDocument<'a>> {
            let timer = |row: usize| TimerDocument {
                stream: &description.timers[usize::from(columns.streams[row])].name,
                key: key(columns.keys[row]),
                trigger_time: columns.trigger_times[row],
                event_time: columns.event_times.get(row).copied(),
            };
            (0..columns.streams.len()).map(timer).collect()
        };
        let mut states = Vec::new();
        for (declared, column) in description.states.iter().zip(&effects.states) {
            for (of_key, value) in column.keys.iter().zip(column.values.iter()) {
                states.push(StateDocument {
                    state: &declared.name,
                    key: key(*of_key),
                    value: (!value.is_empty()).then(|| value.into()),
                });
            }
        }
        let logs = effects.logs.iter().map(|line| LogDocument {
            level: match line.level {
                LogLevel::Debug => "debug",
                LogLevel::Info => "info",
                LogLevel::Warn => "warn",
                LogLevel::Error => "error",
            },
            text: &line.text,
        });
        EffectsDocument {
            outputs: (0..outputs.streams.len()).map(output).collect(),
            states,
            set_timers: timers(&effects.set_timers),
            cancelled_timers: timers(&effects.cancel_timers),
            logs: logs.collect(),
            fuel: call.fuel,
            stdout: &call.stdout,
            stderr: &call.stderr,
        }
    }
}
