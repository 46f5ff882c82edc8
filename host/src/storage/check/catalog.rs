//! The rows of the catalog that storage itself knows, and what they say of partitions. Those of pipelines
//! and of queues are the controller's.

use std::collections::{BTreeMap, BTreeSet};

use crate::storage::check::StoreCheck;
use crate::storage::{StorageError, StoredRow, attempts, codec, keys, letter_requests};
use crate::types::epoch::Head;
use crate::types::ids::{PartitionId, SinkFileId};

/// What the catalog says.
#[derive(Debug, Default)]
pub(super) struct CatalogFacts {
    pub(super) store_id: Option<Vec<u8>>,
    pub(super) heads: BTreeMap<PartitionId, Head>,
    pub(super) sink_files: BTreeSet<SinkFileId>,
}

impl CatalogFacts {
    /// Reads it; what is wrong with it goes into `check`.
    pub(super) fn read(rows: &[StoredRow], check: &mut StoreCheck) -> CatalogFacts {
        let mut facts = CatalogFacts::default();
        let mut counters: BTreeMap<String, u64> = BTreeMap::new();
        let mut generations: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for (key, value) in rows {
            let partition = partition_of(key);
            let read = facts.row(key, value, &mut counters, &mut generations);
            if let Err(error) = read {
                check.undecodable(partition, &error);
            }
        }
        facts.check_numbers(&counters, &generations, check);
        facts
    }

    fn row(
        &mut self,
        key: &[u8],
        value: &[u8],
        counters: &mut BTreeMap<String, u64>,
        generations: &mut BTreeMap<PartitionId, u64>,
    ) -> Result<(), StorageError> {
        let what = || format!("the row {} of the catalog", key.escape_ascii());
        let number = || keys::catalog_number(key).ok_or_else(|| undecodable(what(), "its key"));
        match key.first() {
            Some(&keys::CATALOG_STORE_ID) => {
                self.store_id = Some(codec::decode_plain(what, value.to_vec())?);
            }
            Some(&keys::CATALOG_HEAD) => {
                let partition = PartitionId(number()?);
                let what = || format!("the head of partition {partition}");
                self.heads
                    .insert(partition, codec::decode_head(what, value)?);
            }
            Some(&keys::CATALOG_LEASE) => {
                let partition = PartitionId(number()?);
                let lease = codec::decode_lease(partition, Some(value))?;
                generations.insert(partition, lease.generation);
            }
            Some(&keys::CATALOG_COUNTER) => {
                let name = String::from_utf8_lossy(&key[1..]).into_owned();
                counters.insert(name, codec::decode_number(what, value)?);
            }
            Some(&keys::CATALOG_SINK_FILE) => {
                self.sink_files.insert(SinkFileId(number()?));
                codec::decode_plain(what, value.to_vec())?;
            }
            Some(&keys::CATALOG_MARK) => {
                codec::decode_plain(what, value.to_vec())?;
            }
            Some(&keys::CATALOG_LETTER_REQUESTS) => {
                letter_requests::decode_page(key, value)?;
            }
            Some(&keys::CATALOG_ATTEMPTS) => {
                attempts::decode_attempts(PartitionId(number()?), value)?;
            }
            Some(&(keys::CATALOG_PIPELINE | keys::CATALOG_QUEUE)) => {}
            _ => return Err(undecodable(what(), "this release knows no such row")),
        }
        Ok(())
    }

    /// Numbers that are handed out next must be above all that are taken, and generations never fall.
    fn check_numbers(
        &self,
        counters: &BTreeMap<String, u64>,
        generations: &BTreeMap<PartitionId, u64>,
        check: &mut StoreCheck,
    ) {
        let partition = self.heads.keys().chain(generations.keys()).max();
        let greatest = [
            ("partition", partition.map(|partition| partition.0)),
            ("sink_file", self.sink_files.last().map(|file| file.0)),
        ];
        for (name, greatest) in greatest {
            let next = counters.get(name).copied().unwrap_or(1);
            if let Some(greatest) = greatest.filter(|greatest| *greatest >= next) {
                check.find(
                    None,
                    format!("the counter {name} stands at {next}, but {greatest} is taken"),
                );
            }
        }
        for (partition, head) in &self.heads {
            let generation = generations.get(partition).copied().unwrap_or(0);
            if head.generation.0 > generation {
                check.find(
                    Some(*partition),
                    format!(
                        "its head is of generation {}, its lease of g{generation}",
                        head.generation
                    ),
                );
            }
        }
    }
}

fn partition_of(key: &[u8]) -> Option<PartitionId> {
    match key.first() {
        Some(&(keys::CATALOG_HEAD | keys::CATALOG_LEASE)) => {
            keys::catalog_number(key).map(PartitionId)
        }
        _ => None,
    }
}

fn undecodable(what: String, finding: &str) -> StorageError {
    StorageError::Undecodable {
        what,
        finding: finding.to_owned(),
    }
}
