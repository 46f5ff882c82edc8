//! The chain of a partition's decided entries that are not applied, followed from its head back to where its rows
//! stand.
//!
//! **Invariant:** a link is proven by the checksum that its successor, or the head, has of it.

use std::collections::BTreeMap;

use crate::storage::embedded::withheld::Withheld;
use crate::storage::embedded::{Damage, Shared};
use crate::storage::entry::{Entry, EntryHead};
use crate::storage::{StorageError, keys};
use crate::types::epoch::Head;
use crate::types::ids::{PartitionId, SinkFileId};
use crate::types::queue::QueueSpan;

/// One decided entry that is not applied yet.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) head: Head,
    /// File, offset and end of each append.
    pub(super) appends: Vec<(SinkFileId, u64, u64)>,
    /// Files that get no more rows.
    pub(super) finished: Vec<SinkFileId>,
    /// The rows that it brings to queues.
    pub(super) queues: Vec<QueueSpan>,
}

/// Those of all partitions.
pub(super) type Chains = BTreeMap<PartitionId, Vec<Link>>;

/// The entries from behind `stands_at` to `head`, in order, each proven by the checksum that its
/// successor or the head names.
pub(super) fn follow_chain(
    shared: &Shared,
    partition: PartitionId,
    head: Head,
    stands_at: Head,
    withheld: &mut Withheld,
) -> Result<Result<Vec<Link>, Damage>, StorageError> {
    let mut chain = Vec::new();
    let mut at = head;
    while at != stands_at {
        let damage = |finding: String, hides_queue_rows: bool| {
            Ok(Err(Damage {
                epoch: at.epoch,
                finding: format!("{finding}; its rows stand at epoch {}", stands_at.epoch),
                hides_queue_rows,
            }))
        };
        if at.epoch <= stands_at.epoch {
            return damage("its entries lead past its rows".to_owned(), true);
        }
        let key = keys::entry(partition, at.generation, at.epoch);
        let Some(bytes) = shared.bulk.get(&key)? else {
            withhold(withheld, partition, &chain);
            return damage("the entry of a decided epoch is gone".to_owned(), true);
        };
        let entry = match Entry::decode(&bytes, at.checksum) {
            Ok(entry) => entry,
            Err(finding) => {
                withhold(withheld, partition, &chain);
                let all_known = withhold_heads(shared, partition, at, stands_at, withheld)?;
                return damage(finding, !all_known);
            }
        };
        let commit = &entry.commit;
        if (commit.partition, commit.generation, commit.epoch)
            != (partition, at.generation, at.epoch)
        {
            withhold(withheld, partition, &chain);
            let finding = "the entry of a decided epoch is another one's".to_owned();
            return damage(finding, true);
        }
        let appends = (commit.appends.iter().zip(&entry.head.files))
            .map(|(append, offset)| (append.file, *offset, offset + append.bytes.len() as u64))
            .collect();
        chain.push(Link {
            head: at,
            appends,
            finished: commit.finished_files.clone(),
            queues: entry.head.queues,
        });
        at = entry.head.predecessor;
    }
    chain.reverse();
    Ok(Ok(chain))
}

/// Takes down what the links of a partition that stops have for queues.
pub(super) fn withhold(withheld: &mut Withheld, partition: PartitionId, chain: &[Link]) {
    for link in chain {
        withheld.add(partition, link.head.epoch, &link.queues);
    }
}

/// The same for entries from `at` on back to where the rows stand, as far as their heads are whole: who follows
/// must not take their room in queues. Whether that is all of them.
fn withhold_heads(
    shared: &Shared,
    partition: PartitionId,
    mut at: Head,
    stands_at: Head,
    withheld: &mut Withheld,
) -> Result<bool, StorageError> {
    while at != stands_at && at.epoch > stands_at.epoch {
        let key = keys::entry(partition, at.generation, at.epoch);
        let entry = shared.bulk.get(&key)?;
        let Some(Ok(head)) = entry.map(|bytes| EntryHead::decode(&bytes, at.checksum)) else {
            return Ok(false);
        };
        withheld.add(partition, at.epoch, &head.queues);
        at = head.predecessor;
    }
    Ok(at == stands_at)
}

/// Reads a link's entry once more.
pub(super) fn read_entry(
    shared: &Shared,
    partition: PartitionId,
    link: &Link,
) -> Result<Entry, StorageError> {
    let key = keys::entry(partition, link.head.generation, link.head.epoch);
    let bytes = shared.bulk.get(&key)?.unwrap_or_default();
    Entry::decode(&bytes, link.head.checksum).map_err(|finding| StorageError::Damaged {
        partition,
        epoch: link.head.epoch,
        finding,
    })
}
