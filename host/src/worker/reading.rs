//! What a run and its jobs looked like at one moment, in the words that people read.

use serde::Serialize;

use crate::engine::hot_keys::HotKey;
use crate::worker::time_progress::TimeReading;

/// The counts of all jobs at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ProgressReading {
    /// Records read from sources and committed.
    pub source_records: u64,
    /// Bytes of the sources read so far, in the units of `source_total_bytes`.
    pub source_done_bytes: u64,
    /// Bytes of the sources in all; `None` when one of them is followed, as that has no end.
    pub source_total_bytes: Option<u64>,
    /// Epochs committed by all jobs.
    pub epochs: u64,
    /// Messages that epochs put into lanes and sinks.
    pub messages: u64,
    /// Rows given to sinks.
    pub sink_rows: u64,
    /// Items that nothing could be made of and that were passed over without being kept (`on_failure = "skip"`).
    pub skipped: u64,
    /// Items that nothing could be made of and that were kept as dead letters.
    pub dead_letters: u64,
    /// Keys of batches whose states were in memory.
    pub state_cache_hits: u64,
    /// Keys of batches whose states had to be read from the data directory.
    pub state_cache_misses: u64,
}

/// One job at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobReading {
    /// The job as it is called everywhere: its source or transform, and which partition of several.
    pub job: String,
    /// The source or transform.
    pub name: String,
    /// Which of its partitions, from 0.
    pub partition_index: u32,
    /// How many it has.
    pub partition_count: u32,
    /// The partition's number in the store, as logs show it.
    pub partition: String,
    /// Records read from the source, or messages taken from lanes, and committed.
    pub input_messages: u64,
    /// Messages put into lanes and sinks.
    pub output_messages: u64,
    /// Rows given to sinks.
    pub sink_rows: u64,
    /// Items that nothing could be made of and that were passed over without being kept (`on_failure = "skip"`).
    pub skipped: u64,
    /// Items that nothing could be made of and that were kept as dead letters.
    pub dead_letters: u64,
    /// Epochs committed.
    pub epochs: u64,
    /// Keys of batches whose states were in memory.
    pub state_cache_hits: u64,
    /// Keys of batches whose states had to be read from the data directory.
    pub state_cache_misses: u64,
    /// How often it found a lane full and waited, the most frequent first.
    pub waits: Vec<WaitReading>,
    /// What it waits for now.
    pub waits_now: Option<LaneReading>,
    /// The keys that its input mostly consists of, the greatest share first.
    pub hot_keys: Vec<HotKeyReading>,
    /// Where it stands in time.
    pub time: TimeReading,
}

/// How often a job waited for room in a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitReading {
    /// The lane.
    #[serde(flatten)]
    pub lane: LaneReading,
    /// Times.
    pub count: u64,
}

/// A lane that a job writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaneReading {
    /// The stream.
    pub stream: String,
    /// The job that reads it.
    pub reader: String,
}

/// A key with a large share of its partition's messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotKeyReading {
    /// As text where it is text, else in hexadecimal; long ones are cut.
    pub key: String,
    /// The part of the partition's messages that it has at least, 0 to 1.
    pub share: f64,
}

impl HotKeyReading {
    /// How many characters of a key are shown.
    const CHARACTERS_MAX: usize = 80;

    pub(super) fn of(hot: &HotKey) -> HotKeyReading {
        // A text that was cut may end within a character.
        let text = match std::str::from_utf8(&hot.key) {
            Err(error) if hot.is_cut && error.error_len().is_none() => {
                std::str::from_utf8(&hot.key[..error.valid_up_to()])
            }
            whole => whole,
        };
        let text = text.ok().filter(|text| !text.contains(char::is_control));
        let shown = match text {
            Some(text) => text.to_owned(),
            None => hot.key.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let mut key: String = shown.chars().take(Self::CHARACTERS_MAX).collect();
        if hot.is_cut || key.len() < shown.len() {
            key.push('…');
        }
        // More digits than a person needs would only look exact.
        let share = (hot.share * 10_000.0).floor() / 10_000.0;
        HotKeyReading { key, share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_text_where_they_are_text() {
        let shown = |key: &[u8], is_cut| {
            let key = key.to_vec();
            let share = 0.43219;
            HotKeyReading::of(&HotKey { key, is_cut, share }).key
        };
        assert_eq!(shown(b"UA@EWR", false), "UA@EWR");
        assert_eq!(shown("Köln".as_bytes(), false), "Köln");
        assert_eq!(shown(b"\x00\xff", false), "00ff");
        assert_eq!(shown(b"a\nb", false), "610a62");
        // Cut within a character, and without being told so.
        assert_eq!(shown(b"K\xc3", true), "K…");
        assert_eq!(shown(b"K\xc3", false), "4bc3");
        let long = shown(&[b'a'; 200], false);
        assert_eq!(long.chars().count(), HotKeyReading::CHARACTERS_MAX + 1);
    }
}
