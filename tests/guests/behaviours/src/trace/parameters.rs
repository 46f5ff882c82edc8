//! What the two computations are told.

/// The parameters of a computation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Parameters {
    /// The computation's name, which its messages carry.
    #[serde(default)]
    pub name: String,
    /// How many of the transform's inputs are fed.
    #[serde(default)]
    pub inputs: usize,
    /// Whether the map gives event times to messages that have none.
    #[serde(default)]
    pub gives_times: bool,
    /// Whether the transform sets timers.
    #[serde(default)]
    pub sets_timers: bool,
}

impl Parameters {
    /// Reads them; where they make no sense, those of a computation without name.
    pub fn read(text: &str) -> Parameters {
        serde_json::from_str(text).unwrap_or_else(|_| Parameters {
            name: String::new(),
            inputs: 0,
            gives_times: false,
            sets_timers: false,
        })
    }

    /// As a pipeline file has them.
    ///
    /// # Panics
    ///
    /// Never: text and flags can be written as JSON.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("text and flags can be written as JSON")
    }
}
