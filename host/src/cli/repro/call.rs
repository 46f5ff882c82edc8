//! A call of a component as JSON: settings, and a batch with one item.

use serde::{Deserialize, Serialize};

use crate::cli::bytes::JsonBytes;
use crate::guest::RecordedSettings;
use crate::types::batch::{
    Batch, ComputationKind, Description, MessageColumns, StateColumn, TimerColumns, Timestamp,
};
use crate::types::column::Column;

/// The form of the documents written here.
pub const FORMAT: u32 = 1;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallDocument {
    /// The form of this document: 1.
    pub format: u32,
    /// The release that wrote it.
    pub tidelock: String,
    /// The dead letter that it was made of.
    pub letter: String,
    /// Its pipeline.
    pub pipeline: String,
    /// The computation.
    pub computation: String,
    /// SHA-256 of the component, in hexadecimal.
    pub component_digest: String,
    /// Bytes of states that the batch is without, as they were too large to be kept; 0 where it has them all.
    #[serde(default)]
    pub left_out_state_bytes: u64,
    /// Parameters, grants and limits.
    pub settings: RecordedSettings,
    /// What it was called with.
    pub batch: BatchDocument,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchDocument {
    /// The event watermark of each input, in milliseconds since 1970; none for a map.
    pub watermarks: Vec<Timestamp>,
    /// The keys that the others point into.
    pub keys: Vec<JsonBytes<'static>>,
    /// What each declared state has for those keys.
    pub states: Vec<StateDocument>,
    /// Due timers.
    pub timers: Vec<TimerDocument>,
    /// Messages.
    pub messages: Vec<MessageDocument>,
    /// Keys that a key visitor reached.
    pub visits: Vec<u32>,
}

/// The values of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateDocument {
    /// Its name, where that is known; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its values.
    pub values: Vec<ValueDocument>,
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueDocument {
    /// Which of the keys.
    pub key: u32,
    /// The value.
    pub value: JsonBytes<'static>,
}

/// A due timer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerDocument {
    /// Which of the declared timers.
    pub stream: u16,
    /// Which of the keys.
    pub key: u32,
    /// When it fires.
    pub trigger_time: Timestamp,
    /// The event time that it carries.
    pub event_time: Timestamp,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageDocument {
    /// Which of the declared inputs.
    pub stream: u16,
    /// Which of the keys.
    pub key: u32,
    /// Its event time; 0 for none.
    pub event_time: Timestamp,
    /// Its payload.
    pub payload: JsonBytes<'static>,
}

fn owned(bytes: &[u8]) -> JsonBytes<'static> {
    JsonBytes(bytes.to_vec().into())
}

fn column<'a>(values: impl Iterator<Item = &'a JsonBytes<'static>>) -> Column {
    values.map(|value| &*value.0).collect()
}

impl BatchDocument {
    /// A batch as a document. `states` are names.
    pub fn of(batch: &Batch, states: &[String]) -> BatchDocument {
        let Batch {
            watermarks,
            keys,
            states: columns,
            timers,
            messages,
            visits,
        } = batch;
        let states = columns.iter().enumerate().map(|(index, column)| {
            let pairs = column.keys.iter().zip(column.values.iter());
            let values = pairs.map(|(key, value)| ValueDocument {
                key: *key,
                value: owned(value),
            });
            StateDocument {
                name: states.get(index).cloned(),
                values: values.collect(),
            }
        });
        let timers = (0..timers.streams.len()).map(|row| TimerDocument {
            stream: timers.streams[row],
            key: timers.keys[row],
            trigger_time: timers.trigger_times[row],
            event_time: timers.event_times[row],
        });
        let messages = (0..messages.streams.len()).map(|row| MessageDocument {
            stream: messages.streams[row],
            key: messages.keys[row],
            event_time: messages.event_times[row],
            payload: owned(messages.payloads.get(row)),
        });
        BatchDocument {
            watermarks: watermarks.clone(),
            keys: keys.iter().map(owned).collect(),
            states: states.collect(),
            timers: timers.collect(),
            messages: messages.collect(),
            visits: visits.clone(),
        }
    }

    /// The batch, for a component that says `description` of itself.
    ///
    /// # Errors
    ///
    /// What in it contradicts itself or the component.
    pub fn batch(&self, description: &Description) -> Result<Batch, String> {
        self.check(description)?;
        let states = self.states.iter().map(|state| StateColumn {
            keys: state.values.iter().map(|value| value.key).collect(),
            values: column(state.values.iter().map(|value| &value.value)),
        });
        Ok(Batch {
            watermarks: self.watermarks.clone(),
            keys: column(self.keys.iter()),
            states: states.collect(),
            timers: TimerColumns {
                streams: self.timers.iter().map(|timer| timer.stream).collect(),
                keys: self.timers.iter().map(|timer| timer.key).collect(),
                trigger_times: self.timers.iter().map(|timer| timer.trigger_time).collect(),
                event_times: self.timers.iter().map(|timer| timer.event_time).collect(),
            },
            messages: MessageColumns {
                streams: self.messages.iter().map(|message| message.stream).collect(),
                keys: self.messages.iter().map(|message| message.key).collect(),
                event_times: self
                    .messages
                    .iter()
                    .map(|message| message.event_time)
                    .collect(),
                payloads: column(self.messages.iter().map(|message| &message.payload)),
            },
            visits: self.visits.clone(),
        })
    }

    fn check(&self, description: &Description) -> Result<(), String> {
        let items = self.timers.len() + self.messages.len() + self.visits.len();
        if items != 1 {
            return Err(format!(
                "the batch has {items} items, and a call that is made again has one"
            ));
        }
        let count = |what: &str, found: usize, declared: usize| match found == declared {
            true => Ok(()),
            false => Err(format!(
                "the batch has {found} {what}, and the component declares {declared}"
            )),
        };
        count(
            "columns of states",
            self.states.len(),
            description.states.len(),
        )?;
        let watermarks = match description.kind {
            ComputationKind::Map => 0,
            ComputationKind::Transform => description.inputs.len(),
        };
        count("watermarks", self.watermarks.len(), watermarks)?;
        let points_to = |what: &str, index: usize, count: usize| match index < count {
            true => Ok(()),
            false => Err(format!("{what} {index} is named, and there are {count}")),
        };
        let keys_named = (self.timers.iter().map(|timer| timer.key))
            .chain(self.messages.iter().map(|message| message.key))
            .chain(self.visits.iter().copied())
            .chain(
                self.states
                    .iter()
                    .flat_map(|state| state.values.iter().map(|value| value.key)),
            );
        for key in keys_named {
            points_to("key", key as usize, self.keys.len())?;
        }
        for timer in &self.timers {
            points_to(
                "timer stream",
                timer.stream.into(),
                description.timers.len(),
            )?;
        }
        for message in &self.messages {
            points_to("input", message.stream.into(), description.inputs.len())?;
        }
        for state in &self.states {
            let mut keys: Vec<u32> = state.values.iter().map(|value| value.key).collect();
            keys.sort_unstable();
            if keys.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("a state has two values of one key".to_owned());
            }
        }
        let mut keys: Vec<&[u8]> = self.keys.iter().map(|key| &*key.0).collect();
        keys.sort_unstable();
        match keys.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err("the batch has one key twice".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::{StateDeclaration, TimeDomain, TimerDeclaration};

    fn description() -> Description {
        let state = |name: &str| StateDeclaration {
            name: name.to_owned(),
            version: 1,
            format: "json".to_owned(),
        };
        Description {
            kind: ComputationKind::Transform,
            inputs: vec!["in".to_owned()],
            outputs: Vec::new(),
            states: vec![state("total"), state("seen")],
            timers: vec![TimerDeclaration {
                name: "hour".to_owned(),
                time: TimeDomain::EventTime,
            }],
        }
    }

    fn batch() -> Batch {
        Batch {
            watermarks: vec![7],
            keys: [b"\xffk".as_slice()].into_iter().collect(),
            states: vec![
                StateColumn {
                    keys: vec![0],
                    values: [b"{\"n\":1}".as_slice()].into_iter().collect(),
                },
                StateColumn::default(),
            ],
            messages: MessageColumns {
                streams: vec![0],
                keys: vec![0],
                event_times: vec![u64::MAX],
                payloads: [b"a\x00\xff".as_slice()].into_iter().collect(),
            },
            ..Batch::default()
        }
    }

    #[test]
    fn a_batch_comes_back_to_the_byte() {
        let document = BatchDocument::of(&batch(), &["total".to_owned()]);
        let json = serde_json::to_string_pretty(&document).unwrap();
        let back: BatchDocument = serde_json::from_str(&json).unwrap();
        assert_eq!(back.batch(&description()), Ok(batch()));
    }

    #[test]
    fn a_batch_that_fits_no_call_is_refused_with_what_is_wrong() {
        let check = |spoil: &dyn Fn(&mut BatchDocument), expected: &str| {
            let mut document = BatchDocument::of(&batch(), &[]);
            spoil(&mut document);
            let error = document.batch(&description()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(&|batch| batch.messages.clear(), "has 0 items");
        check(&|batch| batch.visits.push(0), "has 2 items");
        check(&|batch| drop(batch.states.pop()), "1 columns of states");
        check(&|batch| batch.watermarks.clear(), "0 watermarks");
        check(&|batch| batch.messages[0].key = 1, "key 1 is named");
        check(&|batch| batch.messages[0].stream = 9, "input 9 is named");
        check(&|batch| batch.states[0].values[0].key = 4, "key 4 is named");
        check(
            &|batch| batch.keys.push(batch.keys[0].clone()),
            "one key twice",
        );
        let doubled = |batch: &mut BatchDocument| {
            let value = batch.states[0].values[0].clone();
            batch.states[0].values.push(value);
        };
        check(&doubled, "two values of one key");
    }
}
