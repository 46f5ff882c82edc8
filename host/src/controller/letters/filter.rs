//! Which dead letters are meant.

use serde::{Deserialize, Serialize};

use crate::types::batch::Timestamp;
use crate::types::dead_letter::{DeadLetter, LetterOrigin};

/// What a letter must be to be meant; nothing given is all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterFilter {
    /// Of this pipeline.
    pub pipeline: Option<String>,
    /// Of this computation.
    pub computation: Option<String>,
    /// Of this source, which could not decode the record.
    pub source: Option<String>,
    /// Failed in this way.
    pub class: Option<String>,
    /// Its item has this key.
    pub key: Option<Vec<u8>>,
    /// Written at this moment or later.
    pub since: Option<Timestamp>,
    /// Written before this moment.
    pub until: Option<Timestamp>,
}

impl LetterFilter {
    /// Whether it says anything.
    pub fn is_any(&self) -> bool {
        *self != LetterFilter::default()
    }

    /// Whether a letter is meant.
    pub fn matches(&self, letter: &DeadLetter) -> bool {
        let (computation, source) = match &letter.origin {
            LetterOrigin::Computation(computation) => (Some(computation.name.as_str()), None),
            LetterOrigin::Source { name } => (None, Some(name.as_str())),
        };
        let is = |asked: &Option<String>, found: Option<&str>| {
            asked.as_deref().is_none_or(|asked| Some(asked) == found)
        };
        is(&self.pipeline, Some(&letter.pipeline))
            && is(&self.computation, computation)
            && is(&self.source, source)
            && is(&self.class, Some(&letter.failure.class))
            && (self.key.as_deref()).is_none_or(|key| letter.item.key() == Some(key))
            && self.since.is_none_or(|since| letter.written >= since)
            && self.until.is_none_or(|until| letter.written < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::letters::walk::tests::{letter, source_letter};

    #[test]
    fn a_letter_is_meant_where_all_that_is_asked_holds() {
        let letter = letter("totals", b"UA", 1_000);
        let matches = |filter: LetterFilter| filter.matches(&letter);
        let text = |text: &str| Some(text.to_owned());
        assert!(matches(LetterFilter::default()));
        assert!(!LetterFilter::default().is_any());
        let all = LetterFilter {
            pipeline: text("flights"),
            computation: text("totals"),
            class: text("panic"),
            key: Some(b"UA".to_vec()),
            since: Some(1_000),
            until: Some(1_001),
            source: None,
        };
        assert!(all.is_any() && matches(all.clone()));
        for other in [
            LetterFilter {
                pipeline: text("other"),
                ..all.clone()
            },
            LetterFilter {
                computation: text("other"),
                ..all.clone()
            },
            LetterFilter {
                source: text("totals"),
                ..all.clone()
            },
            LetterFilter {
                class: text("trap"),
                ..all.clone()
            },
            LetterFilter {
                key: Some(b"U".to_vec()),
                ..all.clone()
            },
            LetterFilter {
                since: Some(1_001),
                ..all.clone()
            },
            LetterFilter {
                until: Some(1_000),
                ..all.clone()
            },
        ] {
            assert!(!matches(other.clone()), "{other:?}");
        }
    }

    #[test]
    fn a_record_of_a_source_has_no_key_and_no_computation() {
        let letter = source_letter("departures", 5);
        let of_source = LetterFilter {
            source: Some("departures".to_owned()),
            ..LetterFilter::default()
        };
        assert!(of_source.matches(&letter));
        let with_key = LetterFilter {
            key: Some(Vec::new()),
            ..LetterFilter::default()
        };
        assert!(!with_key.matches(&letter));
        let of_computation = LetterFilter {
            computation: Some("departures".to_owned()),
            ..LetterFilter::default()
        };
        assert!(!of_computation.matches(&letter));
    }
}
