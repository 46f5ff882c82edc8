//! What a start finds asked for that no job of its run can do: what is left of decided requests goes, letters to be discarded
//! are discarded, and of the others a person is told why they wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::discard::{DiscardError, discard_letters};
use crate::controller::inventory::Inventory;
use crate::storage::letter_requests::{all_requests, remove_requests};
use crate::storage::letter_rows::{are_kept, read_letter};
use crate::storage::{Storage, StorageError};
use crate::types::dead_letter::{DeadLetterId, LetterRequestKind};
use crate::types::ids::PartitionId;

/// Letters of one partition that were to be replayed, which no job of the run has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedReplays {
    /// The partition.
    pub partition: String,
    /// How many.
    pub letters: usize,
    /// The first of them.
    pub first: String,
    /// Why nobody replays them.
    pub reason: String,
}

impl fmt::Display for UnservedReplays {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnservedReplays {
            partition,
            letters,
            first,
            reason,
        } = self;
        let subject = match letters {
            1 => format!("dead letter {first} is"),
            _ => format!("{letters} dead letters of partition {partition}, {first} the first, are"),
        };
        write!(
            formatter,
            "{subject} not replayed: {reason}; `tidelock dlq repro` makes the call again, `tidelock dlq discard` lets go"
        )
    }
}

/// Looks after all requests for letters of partitions that are not `served` by a job of the pipeline that is about to run.
/// Nobody may run a job of the store meanwhile. Replays of other pipelines' letters wait for those in silence.
///
/// # Errors
///
/// When letters can't be discarded or the store fails.
pub fn settle_unserved(
    storage: &dyn Storage,
    pipeline: &str,
    served: &BTreeSet<PartitionId>,
) -> Result<Vec<UnservedReplays>, DiscardError> {
    let mut by_partition: BTreeMap<PartitionId, Vec<DeadLetterId>> = BTreeMap::new();
    let mut discarded = Vec::new();
    for request in all_requests(storage)? {
        if !served.contains(&request.id.partition) {
            match request.kind {
                LetterRequestKind::Discard => discarded.push(request.id),
                LetterRequestKind::Replay => {
                    let ids = by_partition.entry(request.id.partition).or_default();
                    ids.push(request.id);
                }
            }
        }
    }
    for of_partition in discarded.chunk_by(|left, right| left.partition == right.partition) {
        // What is wrong with one partition keeps no pipeline from running; `dlq discard` tells it whoever asks.
        match discard_letters(storage, of_partition) {
            Err(DiscardError::Storage(error @ StorageError::Damaged { .. })) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "dead letters not discarded");
            }
            discarded => discarded.map(drop)?,
        }
    }
    let mut unserved = Vec::new();
    if by_partition.is_empty() {
        return Ok(unserved);
    }
    let inventory = Inventory::read(storage)?;
    for (partition, ids) in by_partition {
        let waiting = remove_decided(storage, &ids)?;
        let Some(first) = waiting.first() else {
            continue;
        };
        let is_of_pipeline = match read_letter(storage, *first) {
            Ok(letter) => letter.is_some_and(|letter| letter.pipeline == pipeline),
            // It is told rather than lost sight of.
            Err(StorageError::Undecodable { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        if is_of_pipeline {
            let reason = match inventory.owner(partition) {
                Some(owner) => {
                    format!("its partition {partition} is {owner}, and has no job in this run")
                }
                None => format!("its partition {partition} is none that the store still knows"),
            };
            unserved.push(UnservedReplays {
                partition: partition.to_string(),
                letters: waiting.len(),
                first: first.to_string(),
                reason,
            });
        }
    }
    Ok(unserved)
}

/// Removes requests for letters that are gone; the others.
fn remove_decided(
    storage: &dyn Storage,
    ids: &[DeadLetterId],
) -> Result<Vec<DeadLetterId>, StorageError> {
    let (mut waiting, mut gone) = (Vec::new(), Vec::new());
    for (id, is_there) in ids.iter().zip(are_kept(storage, ids)?) {
        match is_there {
            true => waiting.push(*id),
            false => gone.push(*id),
        }
    }
    remove_requests(storage, &gone)?;
    Ok(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::letters::walk::tests::{letter, write_letters};
    use crate::storage::letter_requests::add_requests;
    use crate::storage::memory::MemoryStorage;
    use LetterRequestKind::{Discard, Replay};

    #[test]
    fn what_nobody_can_do_is_told_and_kept_and_the_rest_is_done() {
        let storage = MemoryStorage::new();
        let of = |partition| write_letters(&storage, partition, vec![letter("a", b"k", 1); 3]);
        let (unserved, served) = (of(9), of(12));
        add_requests(&storage, Replay, &unserved[..2]).unwrap();
        add_requests(&storage, Discard, &unserved[2..]).unwrap();
        add_requests(&storage, Replay, &served).unwrap();
        let gone = DeadLetterId {
            index: 77,
            ..unserved[0]
        };
        add_requests(&storage, Replay, &[gone]).unwrap();

        let found = settle_unserved(&storage, "flights", &[PartitionId(12)].into()).unwrap();
        assert_eq!(found.len(), 1);
        let told = found[0].to_string();
        assert!(
            told.starts_with("2 dead letters of partition p9, p9-e1-0 the first"),
            "{told}"
        );
        let left: Vec<DeadLetterId> = (all_requests(&storage).unwrap().iter())
            .map(|request| request.id)
            .collect();
        assert_eq!(left, [&unserved[..2], &served[..]].concat());
        assert_eq!(are_kept(&storage, &unserved).unwrap(), [true, true, false]);
        assert_eq!(are_kept(&storage, &served).unwrap(), [true; 3]);
        // Of another pipeline's run they are no business.
        let others = settle_unserved(&storage, "other", &BTreeSet::new()).unwrap();
        assert_eq!(others, []);
    }
}
