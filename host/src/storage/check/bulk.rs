//! One bulk row at a time against its key and its format, and what all of a partition's rows say together.

use std::collections::BTreeMap;

use crate::storage::check::catalog::CatalogFacts;
use crate::storage::check::queues::QueueCheck;
use crate::storage::check::{PartitionFacts, StoreCheck};
use crate::storage::letter_codec::decode_letter;
use crate::storage::{StorageError, codec, keys, timer_codec, timer_keys};
use crate::types::epoch::Head;
use crate::types::ids::{EpochId, PartitionId, SinkFileId};

/// Looks at bulk rows as they come, in the order of their keys.
pub(super) struct BulkCheck<'a> {
    catalog: &'a CatalogFacts,
    facts: &'a dyn PartitionFacts,
    applied: BTreeMap<PartitionId, Head>,
    records: BTreeMap<PartitionId, Records>,
    /// Pending timers as they were counted, by partition and stream.
    timers: BTreeMap<(PartitionId, String), u64>,
    /// Partitions of which some rows of a kind could not be read: nothing can be said of what is missing.
    skipped: Vec<(u8, PartitionId)>,
    set_aside: u64,
    queues: QueueCheck,
}

/// The epoch records of a partition.
struct Records {
    first: EpochId,
    last: EpochId,
    count: u64,
}

impl<'a> BulkCheck<'a> {
    pub(super) fn new(catalog: &'a CatalogFacts, facts: &'a dyn PartitionFacts) -> BulkCheck<'a> {
        BulkCheck {
            catalog,
            facts,
            applied: BTreeMap::new(),
            records: BTreeMap::new(),
            timers: BTreeMap::new(),
            skipped: Vec::new(),
            set_aside: 0,
            queues: QueueCheck::default(),
        }
    }

    /// Rows from this key on can't be read.
    pub(super) fn skip(&mut self, start: &[u8]) {
        if let (Some(prefix), Some(partition)) = (start.first(), keys::owner(start)) {
            self.skipped.push((*prefix, partition));
        }
    }

    /// The next row.
    pub(super) fn row(&mut self, check: &mut StoreCheck, key: &[u8], value: Vec<u8>) {
        let partition = keys::owner(key).filter(|_| key[0] != keys::SINK_LENGTH);
        match self.look(key, value) {
            Ok(None) => {}
            Ok(Some(finding)) => check.find(partition, finding),
            Err(error) => check.undecodable(partition, &error),
        }
    }

    /// What is wrong with a row that decodes, if anything is.
    fn look(&mut self, key: &[u8], value: Vec<u8>) -> Result<Option<String>, StorageError> {
        let bad_key = || {
            Err(StorageError::Undecodable {
                what: "a row's key".to_owned(),
                finding: format!("it is {}", key.escape_ascii()),
            })
        };
        let row = || format!("the row {}", key.escape_ascii());
        let Some(prefix) = key.first().copied() else {
            return bad_key();
        };
        if matches!(prefix, keys::STORE_ID | keys::DECISIONS_MARK) {
            let value = codec::decode_plain(row, value)?;
            let is_other =
                prefix == keys::STORE_ID && self.catalog.store_id.as_ref() != Some(&value);
            return Ok(
                is_other.then(|| "the store id is another one than the catalog's".to_owned())
            );
        }
        let Some(partition) = keys::owner(key) else {
            return bad_key();
        };
        match prefix {
            keys::ENTRY => {
                let Some((_, _, epoch)) = keys::parse_entry(key) else {
                    return bad_key();
                };
                return Ok(Some(format!("its decided epoch {epoch} can't be applied")));
            }
            keys::APPLIED => {
                let what = || format!("the applied head of partition {partition}");
                self.applied
                    .insert(partition, codec::decode_head(what, &value)?);
            }
            keys::SOURCE_POSITION => {
                codec::decode_plain(row, value)?;
            }
            keys::FRONTIER => {
                let Some(lane) = keys::parse_frontier(key) else {
                    return bad_key();
                };
                let frontier = codec::decode_frontier(lane, &value)?;
                return Ok(self.is_ahead(lane.producer, frontier.epoch).then(|| {
                    format!(
                        "its frontier in lane {lane} is at epoch {}, which is not decided",
                        frontier.epoch
                    )
                }));
            }
            keys::STATE => return self.state(partition, key, value),
            keys::CHUNK => {
                let parts = keys::parse_chunk_lane(key).zip(keys::parse_chunk_epoch(key));
                let Some((lane, epoch)) = parts else {
                    return bad_key();
                };
                codec::decode_chunk(lane, epoch, &value)?;
                return Ok(self.is_ahead(partition, epoch).then(|| {
                    format!("lane {lane} has a chunk of epoch {epoch}, which is not decided")
                }));
            }
            keys::EPOCH_RECORD => {
                let Some(epoch) = keys::parse_epoch_record(key) else {
                    return bad_key();
                };
                codec::decode_record(partition, epoch, &value)?;
                let records = self.records.entry(partition).or_insert(Records {
                    first: epoch,
                    last: epoch,
                    count: 0,
                });
                records.last = epoch;
                records.count += 1;
            }
            keys::SINK_LENGTH => {
                let file = SinkFileId(partition.0);
                codec::decode_number(|| format!("the length of sink file {file}"), &value)?;
                return Ok((!self.catalog.sink_files.contains(&file))
                    .then(|| format!("sink file {file} has a length and no place")));
            }
            keys::SET_ASIDE => self.set_aside += 1,
            keys::TIMER | keys::TIMER_HOLD | keys::SYSTEM_TIMER | keys::TIMER_STREAM => {
                return self.timer(partition, prefix, key, &value);
            }
            keys::SOURCE_MARK | keys::SINK_PROGRESS => {
                if keys::parse_name(key).is_none() {
                    return bad_key();
                }
                codec::decode_plain(row, value)?;
            }
            keys::DEAD_LETTER => {
                let Some(id) = keys::parse_dead_letter(key) else {
                    return bad_key();
                };
                decode_letter(id, &value)?;
                return Ok(self
                    .is_ahead(partition, id.epoch)
                    .then(|| format!("dead letter {id} is of an epoch that is not decided")));
            }
            keys::QUEUE_ROWS => return self.queues.chunk(key, &value),
            keys::QUEUE_BOUNDS => return self.queues.bounds(partition, key, &value),
            _ => {
                return Ok(Some(format!(
                    "this release knows no row {}",
                    key.escape_ascii()
                )));
            }
        }
        Ok(None)
    }

    fn state(
        &self,
        partition: PartitionId,
        key: &[u8],
        value: Vec<u8>,
    ) -> Result<Option<String>, StorageError> {
        let Some(state) = keys::parse_state_name(key) else {
            return Err(StorageError::Undecodable {
                what: format!("the key of a state of partition {partition}"),
                finding: format!("it is {}", key.escape_ascii()),
            });
        };
        let of_key = &key[10 + state.len()..];
        let what = || {
            format!(
                "the value of key {} of state {state} of partition {partition}",
                of_key.escape_ascii()
            )
        };
        codec::decode_state(what, value)?;
        let place = self.facts.place_of_key(partition, of_key);
        Ok(place.filter(|place| *place != partition).map(|place| {
            format!(
                "key {} of state {state} belongs to partition {place}",
                of_key.escape_ascii()
            )
        }))
    }

    fn timer(
        &mut self,
        partition: PartitionId,
        prefix: u8,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<String>, StorageError> {
        let bad_key = || StorageError::Undecodable {
            what: format!("the key of a timer of partition {partition}"),
            finding: format!("it is {}", key.escape_ascii()),
        };
        match prefix {
            keys::TIMER => {
                let timer = timer_keys::parse_timer(key).ok_or_else(bad_key)?;
                timer_codec::decode_timer(partition, &timer, value)?;
                let of_stream = self.timers.entry((partition, timer.stream.to_owned()));
                *of_stream.or_default() += 1;
            }
            keys::TIMER_HOLD => {
                timer_keys::parse_timer_hold(key).ok_or_else(bad_key)?;
                timer_codec::check_timer_hold(partition, value)?;
            }
            keys::SYSTEM_TIMER => {
                let name = key.get(9..).unwrap_or_default();
                let end = name
                    .iter()
                    .position(|byte| *byte == 0)
                    .ok_or_else(bad_key)?;
                let stream = std::str::from_utf8(&name[..end]).map_err(|_| bad_key())?;
                timer_codec::decode_system_timer(partition, stream, value)?;
            }
            _ => {
                let stream = timer_keys::parse_timer_stream(key).ok_or_else(bad_key)?;
                let (_, pending) = timer_codec::decode_stream(partition, stream, value)?;
                let counted = self.timers.remove(&(partition, stream.to_owned()));
                let counted = counted.unwrap_or(0);
                if counted != pending && !self.has_skipped(keys::TIMER, partition) {
                    return Ok(Some(format!(
                        "timer stream {stream} has {counted} pending timers and says {pending}"
                    )));
                }
            }
        }
        Ok(None)
    }

    fn has_skipped(&self, prefix: u8, partition: PartitionId) -> bool {
        self.skipped.contains(&(prefix, partition))
    }

    fn is_ahead(&self, producer: PartitionId, epoch: EpochId) -> bool {
        let head = self.catalog.heads.get(&producer).copied();
        epoch > head.unwrap_or_default().epoch
    }

    /// What shows only when all rows have been seen.
    pub(super) fn end(self, check: &mut StoreCheck) {
        for (partition, head) in &self.catalog.heads {
            self.check_head(*partition, head, check);
        }
        for (partition, head) in &self.applied {
            if !self.catalog.heads.contains_key(partition) {
                let finding = format!("its rows stand at epoch {}, but it has no head", head.epoch);
                check.find(Some(*partition), finding);
            }
        }
        for ((partition, stream), counted) in &self.timers {
            if !self.has_skipped(keys::TIMER_STREAM, *partition) {
                check.find(
                    Some(*partition),
                    format!("timer stream {stream} has {counted} pending timers and says none"),
                );
            }
        }
        let skipped = &self.skipped;
        self.queues.end(check, |queue| {
            let rows = [keys::QUEUE_ROWS, keys::QUEUE_BOUNDS];
            rows.iter()
                .all(|prefix| !skipped.contains(&(*prefix, queue)))
        });
        if self.set_aside > 0 {
            check.notes.push(format!(
                "{} epochs are set aside, whose decision may have been lost; nothing needs them",
                self.set_aside
            ));
        }
    }

    fn check_head(&self, partition: PartitionId, head: &Head, check: &mut StoreCheck) {
        if !self.has_skipped(keys::APPLIED, partition) {
            let applied = self.applied.get(&partition).copied().unwrap_or_default();
            if applied != *head {
                let finding = format!(
                    "its head is at epoch {}, its rows stand at epoch {}",
                    head.epoch, applied.epoch
                );
                check.find(Some(partition), finding);
            }
        }
        if self.has_skipped(keys::EPOCH_RECORD, partition) {
            return;
        }
        match self.records.get(&partition) {
            None if self.facts.is_in_force(partition) => {
                let finding = format!("its last epoch {} has no record", head.epoch);
                check.find(Some(partition), finding);
            }
            None => {}
            Some(records) => {
                if records.last != head.epoch {
                    let finding = format!(
                        "its head is at epoch {}, its last record is of epoch {}",
                        head.epoch, records.last
                    );
                    check.find(Some(partition), finding);
                }
                let expected = records.last.0 - records.first.0 + 1;
                if records.count != expected {
                    let finding = format!(
                        "of epochs {} to {} {} have no record",
                        records.first,
                        records.last,
                        expected - records.count
                    );
                    check.find(Some(partition), finding);
                }
            }
        }
    }
}
