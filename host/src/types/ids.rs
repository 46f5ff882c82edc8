//! Numbers with a meaning. Each is a newtype whose `Display` carries the prefix seen in logs.
//!
//! **Invariant:** partition ids, stream ids, lease ids and sink file ids come from the store's
//! counters and are never used again, not even by a pipeline deleted and deployed anew.

use std::fmt;

use serde::{Deserialize, Serialize};

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
        for byte in self.to_bytes() {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
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
}
