//! Numbers with a meaning. Each is a newtype whose `Display` carries the prefix seen in logs.
//!
//! **Invariant:** partition ids, stream ids, lease ids and sink file ids come from the store's
//! counters and are never used again, not even by a pipeline deleted and deployed anew.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::timer::TimerPlace;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A partition of a computation or of a source: unit of order and of parallelism.
    PartitionId, "p"
);
number!(
    /// One epoch of one partition. The first committed epoch is 1; 0 stands for "none yet".
    EpochId, "e"
);
number!(
    /// Rising number of a partition's jobs. Storage refuses a smaller one.
    Generation, "g"
);
number!(
    /// One grant of the right to commit for a partition.
    LeaseId, "l"
);
number!(
    /// A stream of one pipeline, as numbered by the store.
    StreamId, "s"
);
number!(
    /// A file that a synchronous sink appends to.
    SinkFileId, "f"
);

impl Default for EpochId {
    fn default() -> EpochId {
        EpochId::NONE
    }
}

impl EpochId {
    /// What a partition has committed before its first epoch.
    pub const NONE: EpochId = EpochId(0);

    /// The epoch that follows this one.
    pub fn next(self) -> EpochId {
        EpochId(self.0 + 1)
    }
}

/// The name of a message for ever: producer partition, epoch, index within the epoch.
///
/// As bytes it is 8 + 8 + 4 bytes big-endian, so that comparing bytes compares ids; its text form
/// is those bytes in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId {
    /// The partition whose job made the message.
    pub partition: PartitionId,
    /// The epoch that it was committed with.
    pub epoch: EpochId,
    /// Its place among the epoch's outputs, from 0.
    pub index: u32,
}

impl MessageId {
    /// The 20 bytes by which ids are compared and stored.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.partition.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.0.to_be_bytes());
        bytes[16..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        PublicId::from(*self).fmt(formatter)
    }
}

/// What a message, or whatever else messages follow from, is known by outside of the host.
///
/// Of an ordinary message these are the bytes of its [`MessageId`]. Of one that goes back to several items (relaxed
/// batching), of a record of a source and of a fired timer they are the first 20 bytes of a BLAKE3 hash, over what
/// stays the same whenever it is made again. The text form is hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicId(pub [u8; PublicId::BYTES]);

impl PublicId {
    /// How many bytes an id has.
    pub const BYTES: usize = 20;

    /// The record of a source's partition that has this name there, as the source gives it.
    pub fn of_record(partition: PartitionId, name: &[u8]) -> PublicId {
        PublicId::hashed(&[b"record", &partition.0.to_be_bytes(), name])
    }

    /// One firing of a timer: in this run, once the clock stood here. A timer that is set again later has another
    /// one, as a clock only moves on.
    pub fn of_timer(
        partition: PartitionId,
        run: u64,
        clock: (TimeDomain, Timestamp),
        timer: &TimerPlace,
    ) -> PublicId {
        let (domain, stands_at) = clock;
        PublicId::hashed(&[
            b"timer",
            &partition.0.to_be_bytes(),
            &run.to_be_bytes(),
            &[u8::from(domain == TimeDomain::SystemTime)],
            &stands_at.to_be_bytes(),
            &timer.trigger_time.to_be_bytes(),
            timer.stream.as_bytes(),
            &[0],
            &timer.key,
        ])
    }

    /// The id of a message of a stream that goes back to all these items: their ids, rising, each once. `place` is its place, from 0,
    /// among the messages of the stream that go back to the same ones.
    pub fn of_parents(stream: StreamId, parents: &[PublicId], place: u32) -> PublicId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"message");
        hasher.update(&stream.0.to_be_bytes());
        hasher.update(&place.to_be_bytes());
        for parent in parents {
            hasher.update(&parent.0);
        }
        PublicId::first_bytes(&hasher.finalize())
    }

    fn hashed(pieces: &[&[u8]]) -> PublicId {
        let mut hasher = blake3::Hasher::new();
        for piece in pieces {
            hasher.update(piece);
        }
        PublicId::first_bytes(&hasher.finalize())
    }

    fn first_bytes(hash: &blake3::Hash) -> PublicId {
        let mut bytes = [0; PublicId::BYTES];
        bytes.copy_from_slice(&hash.as_bytes()[..PublicId::BYTES]);
        PublicId(bytes)
    }
}

impl From<MessageId> for PublicId {
    fn from(id: MessageId) -> PublicId {
        PublicId(id.to_bytes())
    }
}

impl fmt::Display for PublicId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PublicId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// One producer partition's messages of one stream for one reader partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    /// Whose job writes the lane.
    pub producer: PartitionId,
    /// The stream that it carries.
    pub stream: StreamId,
    /// Whose job reads it.
    pub reader: PartitionId,
}

impl fmt::Display for LaneId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}/{}>{}",
            self.producer, self.stream, self.reader
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ids_order_as_their_bytes_do() {
        let id = |partition, epoch, index| MessageId {
            partition: PartitionId(partition),
            epoch: EpochId(epoch),
            index,
        };
        let mut ids = vec![id(2, 1, 0), id(1, 300, 0), id(1, 2, 256), id(1, 2, 3)];
        let mut by_bytes = ids.clone();
        ids.sort();
        by_bytes.sort_by_key(|id| id.to_bytes());
        assert_eq!(ids, by_bytes);
        assert_eq!(
            id(1, 2, 3).to_string(),
            "0000000000000001000000000000000200000003"
        );
    }

    #[test]
    fn b1_an_id_follows_from_the_parents_the_stream_and_the_place_and_from_nothing_else() {
        let record = |name: &[u8]| PublicId::of_record(PartitionId(1), name);
        let mut parents = [record(b"1"), record(b"2")];
        parents.sort_unstable();
        let id = PublicId::of_parents(StreamId(4), &parents, 0);
        assert_eq!(id, PublicId::of_parents(StreamId(4), &parents, 0));
        // As docs/format.md says.
        let layout = [
            b"message".as_slice(),
            &4_u64.to_be_bytes(),
            &0_u32.to_be_bytes(),
            &parents[0].0,
            &parents[1].0,
        ];
        assert_eq!(id.0, blake3::hash(&layout.concat()).as_bytes()[..20]);
        for other in [
            PublicId::of_parents(StreamId(4), &parents, 1),
            PublicId::of_parents(StreamId(5), &parents, 0),
            PublicId::of_parents(StreamId(4), &parents[..1], 0),
        ] {
            assert_ne!(id, other);
        }
    }

    #[test]
    fn records_and_firings_of_timers_have_ids_of_their_own() {
        let (one, two) = (PartitionId(1), PartitionId(2));
        let timer = TimerPlace {
            trigger_time: 5,
            stream: "tick".to_owned(),
            key: b"k".to_vec(),
        };
        let other_key = TimerPlace {
            key: b"l".to_vec(),
            ..timer.clone()
        };
        let at = |moment| (TimeDomain::EventTime, moment);
        let mut ids = vec![
            PublicId::of_record(one, b"1"),
            PublicId::of_record(one, b"2"),
            PublicId::of_record(two, b"1"),
            PublicId::of_timer(one, 1, at(7), &timer),
            PublicId::of_timer(one, 1, at(8), &timer),
            PublicId::of_timer(one, 2, at(7), &timer),
            PublicId::of_timer(two, 1, at(7), &timer),
            PublicId::of_timer(one, 1, at(7), &other_key),
            PublicId::of_timer(one, 1, (TimeDomain::SystemTime, 7), &timer),
        ];
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
