//! Lets dead letters go whose partitions no job has: an epoch of the partition that does nothing else. Nobody may run a job of
//! those partitions meanwhile.

use std::collections::BTreeSet;

use crate::controller::repartition::RepartitionError;
use crate::controller::repartition::writer::PartitionWriter;
use crate::storage::letter_requests::remove_requests;
use crate::storage::letter_rows::are_kept;
use crate::storage::{Refusal, Storage, StorageError, rows};
use crate::types::dead_letter::DeadLetterId;
use crate::types::ids::{EpochId, PartitionId};

/// The most letters that one epoch lets go.
const LETTERS_PER_EPOCH: usize = 65_536;

/// Letters could not be discarded.
#[derive(Debug, thiserror::Error)]
pub enum DiscardError {
    /// Somebody else has taken their partition over.
    #[error("dead letters can't be discarded, as another process has taken their partition over")]
    Refused(#[source] Refusal),
    /// Storage could not tell whether they are gone.
    #[error(
        "it can't be told whether epoch {epoch} of partition {partition} was committed, which discards dead letters; discard them again"
    )]
    OutcomeUnknown {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: EpochId,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<RepartitionError> for DiscardError {
    fn from(error: RepartitionError) -> DiscardError {
        match error {
            RepartitionError::Refused(refusal) => DiscardError::Refused(refusal),
            RepartitionError::OutcomeUnknown { partition, epoch } => {
                DiscardError::OutcomeUnknown { partition, epoch }
            }
            RepartitionError::Storage(error) => DiscardError::Storage(error),
        }
    }
}

/// Discards letters, with what else is asked for them. Those that are gone are passed over. Returns how many went.
///
/// # Errors
///
/// When a commit is refused, its answer is lost, or the store fails, as for a damaged partition. Those of partitions before
/// that one are discarded.
pub fn discard_letters(storage: &dyn Storage, ids: &[DeadLetterId]) -> Result<usize, DiscardError> {
    let ids: BTreeSet<DeadLetterId> = ids.iter().copied().collect();
    let ids: Vec<DeadLetterId> = ids.into_iter().collect();
    let mut discarded = 0;
    for of_partition in ids.chunk_by(|left, right| left.partition == right.partition) {
        let partition = of_partition[0].partition;
        let mut kept = are_kept(storage, of_partition)?.into_iter();
        let mut there = of_partition.to_vec();
        there.retain(|_| kept.next().unwrap_or(false));
        if !there.is_empty() {
            // Epochs that only tidy up belong to the deployment that was in force.
            let head = storage.head(partition)?;
            let record = rows::read_epoch_record(storage, partition, head.epoch)?;
            let is_forgotten = record.is_none();
            let deployment = record.map_or(0, |record| record.deployment);
            let mut writer = PartitionWriter::open(storage, partition, deployment)?;
            for ids in there.chunks(LETTERS_PER_EPOCH) {
                writer.commit(|epoch| {
                    epoch.removed_letters = ids.to_vec();
                    if is_forgotten {
                        // No record of a partition that is swept comes back.
                        epoch.dropped_records = vec![epoch.epoch];
                    }
                })?;
            }
            writer.close()?;
            tracing::debug!(%partition, letters = there.len(), "dead letters discarded");
        }
        discarded += there.len();
        remove_requests(storage, of_partition)?;
    }
    Ok(discarded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::letters::walk::LetterWalk;
    use crate::controller::letters::walk::tests::{letter, write_letters};
    use crate::storage::letter_requests::{add_requests, all_requests};
    use crate::storage::memory::MemoryStorage;
    use crate::types::dead_letter::LetterRequestKind;

    fn left(storage: &MemoryStorage) -> Vec<DeadLetterId> {
        let walk = LetterWalk::new(storage).unwrap();
        walk.map(|found| found.unwrap().0).collect()
    }

    #[test]
    fn letters_go_with_their_requests_and_others_stay() {
        let storage = MemoryStorage::new();
        let first = write_letters(&storage, 9, vec![letter("totals", b"k", 1); 3]);
        let second = write_letters(&storage, 12, vec![letter("totals", b"k", 2)]);
        add_requests(&storage, LetterRequestKind::Replay, &first).unwrap();
        let asked = [second[0], first[2], first[0], first[0]];
        assert_eq!(discard_letters(&storage, &asked).unwrap(), 3);
        assert_eq!(left(&storage), [first[1]]);
        let requested: Vec<_> = all_requests(&storage).unwrap();
        assert_eq!(requested.len(), 1);
        assert_eq!(requested[0].id, first[1]);
        // The epoch that let them go is the partition's next one, and nothing of it is left to do.
        assert_eq!(storage.head(PartitionId(9)).unwrap().epoch.0, 2);
        assert_eq!(discard_letters(&storage, &asked).unwrap(), 0);
        assert_eq!(storage.head(PartitionId(9)).unwrap().epoch.0, 2);
    }
}
