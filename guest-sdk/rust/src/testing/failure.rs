//! What a computation refused.

use std::fmt;

/// The computation refused an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFailure {
    /// The item, for a person to read; none where the computation could not be made at all.
    pub item: Option<String>,
    /// What the computation said.
    pub reason: String,
}

impl fmt::Display for TestFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.item {
            Some(item) => write!(formatter, "{item}: {}", self.reason),
            None => formatter.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TestFailure {}
