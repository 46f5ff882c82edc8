//! The settings of a computation as JSON text: as a dead letter keeps them, so that the call that failed can be made again
//! by anyone, years later. What JSON can't say of them is said in whole numbers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guest::computation::ComputationSettings;
use crate::types::batch::Description;
use crate::types::pipeline::{
    CallLimits, ClockGrant, DirectoryGrant, Grants, InstancePolicy, RandomGrant,
};

/// Settings, all but the computation's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedSettings {
    /// The parameters: JSON text that the component gets to the byte.
    pub parameters: String,
    /// What it may see of the outside.
    pub grants: RecordedGrants,
    /// What one call may use.
    pub limits: RecordedLimits,
    /// Names of the component's states, in the order of a batch's; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// When instances are made. A failure is a verdict on a fresh one whatever it says.
    pub instance: InstancePolicy,
    /// Whether an output may have several parents.
    pub relaxed_batching: bool,
}

/// What a component may see of the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedGrants {
    /// Random numbers.
    pub random: RandomGrant,
    /// Clocks.
    pub clock: ClockGrant,
    /// Directories. What was in them is not recorded.
    pub directories: Vec<RecordedDirectory>,
}

/// A directory that a component may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedDirectory {
    /// Where the component finds it.
    pub guest_path: String,
    /// Where it was; what is no UTF-8 in it is replaced.
    pub path: String,
}

/// What one call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedLimits {
    /// Fuel.
    pub fuel: u64,
    /// Linear memory, in bytes.
    pub memory_bytes: usize,
    /// Wall-clock safety net, in milliseconds.
    pub deadline_ms: u64,
    /// What a call may return, in bytes.
    pub output_bytes: usize,
    /// Messages that a call may return.
    pub outputs: usize,
    /// Key and payload of one message, in bytes.
    pub message_bytes: usize,
    /// One state value, in bytes.
    pub state_value_bytes: usize,
    /// Timers of one key.
    pub timers_per_key: usize,
    /// What it may print and log, in bytes.
    pub log_bytes: usize,
    /// Log lines that are kept.
    pub log_lines: usize,
}

impl RecordedSettings {
    /// What is recorded of settings.
    pub fn of(settings: &ComputationSettings) -> RecordedSettings {
        let ComputationSettings {
            name: _,
            parameters,
            grants,
            limits,
            instance,
            relaxed_batching,
        } = settings;
        let CallLimits {
            fuel,
            memory_bytes,
            deadline,
            output_bytes,
            outputs,
            message_bytes,
            state_value_bytes,
            timers_per_key,
            log_bytes,
            log_lines,
        } = *limits;
        let directories = grants
            .directories
            .iter()
            .map(|directory| RecordedDirectory {
                guest_path: directory.guest_path.clone(),
                path: directory.path.to_string_lossy().into_owned(),
            });
        RecordedSettings {
            parameters: parameters.clone(),
            grants: RecordedGrants {
                random: grants.random,
                clock: grants.clock,
                directories: directories.collect(),
            },
            limits: RecordedLimits {
                fuel,
                memory_bytes,
                deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
                output_bytes,
                outputs,
                message_bytes,
                state_value_bytes,
                timers_per_key,
                log_bytes,
                log_lines,
            },
            states: Vec::new(),
            instance: *instance,
            relaxed_batching: *relaxed_batching,
        }
    }

    /// With the names of the states that the component declares.
    #[must_use]
    pub fn with_states(mut self, description: &Description) -> RecordedSettings {
        let names = description.states.iter().map(|state| state.name.clone());
        self.states = names.collect();
        self
    }

    /// The settings of a computation of that name.
    pub fn into_settings(self, name: &str) -> ComputationSettings {
        let RecordedSettings {
            parameters,
            grants,
            limits,
            states: _,
            instance,
            relaxed_batching,
        } = self;
        let directories = grants
            .directories
            .into_iter()
            .map(|directory| DirectoryGrant {
                guest_path: directory.guest_path,
                path: PathBuf::from(directory.path),
            });
        ComputationSettings {
            name: name.to_owned(),
            parameters,
            grants: Grants {
                random: grants.random,
                clock: grants.clock,
                directories: directories.collect(),
            },
            limits: CallLimits {
                fuel: limits.fuel,
                memory_bytes: limits.memory_bytes,
                deadline: Duration::from_millis(limits.deadline_ms),
                output_bytes: limits.output_bytes,
                outputs: limits.outputs,
                message_bytes: limits.message_bytes,
                state_value_bytes: limits.state_value_bytes,
                timers_per_key: limits.timers_per_key,
                log_bytes: limits.log_bytes,
                log_lines: limits.log_lines,
            },
            instance,
            relaxed_batching,
        }
    }

    /// As JSON text, on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers always encode as JSON")
    }

    /// From what [`RecordedSettings::to_json`] made, however it is laid out.
    ///
    /// # Errors
    ///
    /// When it is no such JSON: which field, line and column.
    pub fn from_json(text: &str) -> Result<RecordedSettings, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_as_they_were() {
        let settings = ComputationSettings {
            name: "delays".to_owned(),
            parameters: "{ \"a\": 1.0,\n\"b\": \"\u{e9}\" }".to_owned(),
            grants: Grants {
                random: RandomGrant::Seeded,
                clock: ClockGrant::Host,
                directories: vec![DirectoryGrant {
                    guest_path: "tables".to_owned(),
                    path: PathBuf::from("/srv/tables"),
                }],
            },
            limits: CallLimits {
                fuel: u64::MAX,
                deadline: Duration::from_millis(1_500),
                ..CallLimits::default()
            },
            instance: InstancePolicy::Reuse,
            relaxed_batching: true,
        };
        let json = RecordedSettings::of(&settings).to_json();
        let back = RecordedSettings::from_json(&json).unwrap();
        let back = back.into_settings("delays");
        assert_eq!(format!("{back:?}"), format!("{settings:?}"));
        let error = RecordedSettings::from_json(&json.replace("random", "randoms"));
        assert!(error.unwrap_err().to_string().contains("randoms"));
    }
}
