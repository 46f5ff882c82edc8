//! The queue sink: each message a row of a queue in the same store, exactly once. The epoch's commit carries the
//! rows, and storage gives them their offsets when it decides the epoch.
//!
//! A row goes to the partition of its key, with key and event time. So rows of one key stay in the order in which
//! their messages were made, as far as one job makes them. A payload may hold any bytes.

use crate::sink::{Sealed, Sink, SinkError, SinkMessage};
use crate::types::batch::Timestamp;
use crate::types::key::{key_hash, partition_of};
use crate::types::queue::QueueRows;

/// Messages of one epoch as rows.
#[derive(Debug)]
pub struct QueueSink {
    /// Of each partition of the queue.
    rows: Vec<QueueRows>,
}

impl QueueSink {
    /// A sink to a queue of so many partitions, with no epoch open.
    pub fn new(partitions: u32) -> QueueSink {
        QueueSink {
            rows: vec![QueueRows::default(); partitions as usize],
        }
    }
}

impl Sink for QueueSink {
    fn add(&mut self, message: SinkMessage<'_>) -> Result<(), SinkError> {
        let place = partition_of(key_hash(message.key), self.rows.len());
        self.rows[place].push(message.key, message.event_time, message.payload);
        Ok(())
    }

    fn seal(&mut self, now: Timestamp) -> Result<Sealed, SinkError> {
        let mut sealed = Vec::new();
        for (place, rows) in self.rows.iter_mut().enumerate() {
            if !rows.is_empty() {
                let rows = std::mem::take(rows);
                sealed.push((
                    place,
                    QueueRows {
                        write_time: now,
                        ..rows
                    },
                ));
            }
        }
        Ok(match sealed.is_empty() {
            true => Sealed::Nothing,
            false => Sealed::Rows(sealed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<'a>(key: &'a [u8], event_time: Timestamp, payload: &'a [u8]) -> SinkMessage<'a> {
        SinkMessage {
            stream: "alerts",
            index: 0,
            public_id: None,
            key,
            event_time,
            payload,
        }
    }

    #[test]
    fn rows_of_a_key_stay_together_and_in_order_with_their_times() {
        let mut sink = QueueSink::new(3);
        let keys: Vec<String> = (0..20).map(|number| format!("key {number}")).collect();
        for round in 0..5_u8 {
            for key in &keys {
                let payload = [b'\n', round];
                sink.add(message(key.as_bytes(), u64::from(round), &payload))
                    .unwrap();
            }
        }
        let Sealed::Rows(sealed) = sink.seal(77).unwrap() else {
            panic!("there are rows");
        };
        assert_eq!(sealed.len(), 3, "twenty keys reach three partitions");
        for (place, rows) in &sealed {
            assert_eq!(rows.write_time, 77);
            for key in &keys {
                let of_key = (0..rows.len()).filter(|row| rows.keys.get(*row) == key.as_bytes());
                let times: Vec<Timestamp> = of_key.map(|row| rows.event_times[row]).collect();
                match partition_of(key_hash(key.as_bytes()), 3) == *place {
                    true => assert_eq!(times, [0, 1, 2, 3, 4]),
                    false => assert!(times.is_empty()),
                }
            }
            assert!(rows.payloads.iter().all(|payload| payload[0] == b'\n'));
        }
        assert_eq!(
            sealed.iter().map(|(_, rows)| rows.len()).sum::<usize>(),
            100
        );
        assert_eq!(sink.seal(78).unwrap(), Sealed::Nothing);
    }
}
