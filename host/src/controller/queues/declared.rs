//! The queues that a pipeline declares, compared with those of the store: what is missing is made, what differs is
//! refused or changed.

use std::collections::BTreeMap;

use crate::controller::queues::QueueError;
use crate::controller::queues::registry::{QueueChanges, QueueRow, all_queues, number_queue};
use crate::storage::Storage;
use crate::types::batch::Timestamp;
use crate::types::ids::PartitionId;
use crate::types::pipeline::QueueOptions;

/// The queues of a pipeline as they will be, numbered and not written yet.
#[derive(Debug, Default)]
pub struct DeclaredQueues {
    /// By name: as it was found, as it will be.
    queues: BTreeMap<String, (Option<QueueRow>, QueueRow)>,
}

impl DeclaredQueues {
    /// Compares the queues that a pipeline declares with those of the store, and gives numbers to the partitions
    /// of those that are new.
    ///
    /// # Errors
    ///
    /// [`QueueError::OtherPartitions`], or when the store fails.
    pub fn draft(
        storage: &dyn Storage,
        declared: &BTreeMap<String, QueueOptions>,
        now: Timestamp,
    ) -> Result<DeclaredQueues, QueueError> {
        if declared.is_empty() {
            return Ok(DeclaredQueues::default());
        }
        let mut stored = all_queues(storage)?;
        let mut queues = BTreeMap::new();
        for (name, options) in declared {
            let found = stored.remove(name);
            refuse_other_partitions(name, options, found.as_ref())?;
            let mut row = match &found {
                Some(found) => found.clone(),
                None => {
                    let retention = options.retention.unwrap_or_default();
                    number_queue(storage, options.partitions, retention, now)?
                }
            };
            row.retention = options.retention.unwrap_or(row.retention);
            queues.insert(name.clone(), (found, row));
        }
        Ok(DeclaredQueues { queues })
    }

    /// The partitions of a queue.
    ///
    /// # Panics
    ///
    /// When the pipeline did not declare it.
    pub fn partitions(&self, name: &str) -> Vec<PartitionId> {
        self.queues[name].1.partitions()
    }

    /// The partitions of all queues, by name.
    pub fn by_name(&self) -> BTreeMap<String, Vec<PartitionId>> {
        let queues = self.queues.iter();
        queues
            .map(|(name, (_, row))| (name.clone(), row.partitions()))
            .collect()
    }

    /// Makes the queues that are missing, and writes down the retention of the others.
    ///
    /// # Errors
    ///
    /// [`QueueError::Contended`], or when the store fails.
    pub fn commit(&self, storage: &dyn Storage) -> Result<(), QueueError> {
        let mut changes = QueueChanges::default();
        let changed = self.queues.iter();
        let changed = changed.filter(|(_, (found, now))| found.as_ref() != Some(now));
        let mut names = Vec::new();
        for (name, (found, now)) in changed {
            changes.set(name, found.as_ref(), Some(now));
            names.push(name.as_str());
        }
        match changes.commit(storage)? {
            true => Ok(()),
            false => Err(QueueError::Contended {
                queue: names.join(", "),
            }),
        }
    }
}

/// Whether the queues that a pipeline declares are those of the store, as far as they are there.
///
/// # Errors
///
/// As [`DeclaredQueues::draft`], by the name of the queue.
pub fn check_declared(
    storage: &dyn Storage,
    declared: &BTreeMap<String, QueueOptions>,
) -> Result<Vec<(String, QueueError)>, QueueError> {
    let stored = all_queues(storage)?;
    let refused = declared.iter().filter_map(|(name, options)| {
        let refused = refuse_other_partitions(name, options, stored.get(name));
        refused.err().map(|error| (name.clone(), error))
    });
    Ok(refused.collect())
}

fn refuse_other_partitions(
    name: &str,
    options: &QueueOptions,
    found: Option<&QueueRow>,
) -> Result<(), QueueError> {
    match found {
        Some(row) if row.partition_count() != options.partitions => {
            Err(QueueError::OtherPartitions {
                queue: name.to_owned(),
                stored: row.partition_count(),
                declared: options.partitions,
            })
        }
        _ => Ok(()),
    }
}
