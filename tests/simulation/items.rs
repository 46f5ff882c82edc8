//! What jobs took, by the rows that their decided epochs gave to their witnesses: a source's shows the
//! record, a transform's the answer to a message or a timer, and late messages as they came.

use guest_behaviours::trace::{self, Fired, Seen, SeenItem};
use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::EpochCommit;
use tidelock::types::ids::SinkFileId;

/// Something that a job took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A source's record, or a message that went past the transform because it was late.
    Passed(Vec<u8>),
    /// A message that the transform took while its inputs had these watermarks.
    Message(Vec<u8>, Vec<Timestamp>),
    /// A timer that fired, while its inputs had these watermarks.
    Timer(Fired, Vec<Timestamp>),
}

impl Item {
    /// The payload of what came from outside.
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        match self {
            Item::Passed(payload) | Item::Message(payload, _) => Some(payload),
            Item::Timer(..) => None,
        }
    }
}

/// The items of an epoch, in order. `transform` is the name of the job's transform, if it has one.
pub(crate) fn items_of(
    commit: &EpochCommit,
    witness: SinkFileId,
    transform: Option<&str>,
) -> Vec<Item> {
    let appends = commit.appends.iter();
    let rows = appends
        .filter(|append| append.file == witness)
        .flat_map(|append| lines(&append.bytes));
    rows.map(
        |row| match transform.and_then(|name| trace::seen(name, row)) {
            None => Item::Passed(row.to_vec()),
            Some(Seen { what, watermarks }) => match what {
                SeenItem::Message(payload) => Item::Message(payload, watermarks),
                SeenItem::Timer(fired) => Item::Timer(fired, watermarks),
            },
        },
    )
    .collect()
}

/// The rows of a sink's file.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n');
    whole.map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}
