//! Queues in the workload of the crash tests: all partitions write to one, the first alone to another, which is
//! trimmed as it goes. A reader in the same process notes each row that it sees, with its offset: no crash may
//! take it back or put it elsewhere.

use std::collections::BTreeMap;

use crate::storage::contract::{queue_append, queue_texts};
use crate::storage::queue_rows::{QueueError, QueueLimit, read_bounds};
use crate::storage::{Storage, StorageError};
use crate::types::ids::PartitionId;
use crate::types::queue::QueueAppend;

/// Everybody's queue.
pub(super) const SHARED: PartitionId = PartitionId(50);
/// That of partition 1.
pub(super) const OWN: PartitionId = PartitionId(51);
/// Rows that stay in it, at least.
const KEPT: u64 = 4;

const LIMIT: QueueLimit = QueueLimit {
    rows: 1_000,
    bytes: 1 << 20,
};

/// The rows that an epoch appends to a queue.
fn rows_of(partition: u64, epoch: u64) -> Vec<String> {
    (0..=epoch % 2)
        .map(|row| format!("{partition}/{epoch}/{row}"))
        .collect()
}

/// All rows of a partition up to an epoch.
fn rows_up_to(partition: u64, epoch: u64) -> Vec<String> {
    (1..=epoch)
        .flat_map(|epoch| rows_of(partition, epoch))
        .collect()
}

/// What an epoch appends.
pub(super) fn appends_of(partition: u64, epoch: u64) -> Vec<QueueAppend> {
    let rows = rows_of(partition, epoch);
    let texts: Vec<&str> = rows.iter().map(String::as_str).collect();
    let mut appends = vec![queue_append(SHARED, epoch, &texts)];
    if partition == 1 {
        appends.push(queue_append(OWN, epoch, &texts));
    }
    appends
}

/// Below which row the own queue is trimmed when partition 1 stands at an epoch.
pub(super) fn trim_point(epoch: u64) -> u64 {
    (rows_up_to(1, epoch).len() as u64).saturating_sub(KEPT)
}

/// What the queues hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueueContent {
    /// Each partition's rows in the shared queue, in order.
    shared: Vec<Vec<String>>,
    shared_end: u64,
    own_start: u64,
    own: Vec<String>,
}

/// Reads them to their ends.
pub(super) fn read_queues(
    storage: &dyn Storage,
    partitions: u64,
) -> Result<QueueContent, QueueError> {
    let shared = queue_texts(storage, SHARED, 0, LIMIT)?;
    let own_start = read_bounds(storage, OWN)?.start;
    let own = queue_texts(storage, OWN, own_start, LIMIT)?;
    let texts_of = |partition: u64| {
        let prefix = format!("{partition}/");
        let texts = shared.iter().map(|(_, text)| text.clone());
        texts.filter(|text| text.starts_with(&prefix)).collect()
    };
    Ok(QueueContent {
        shared: (1..=partitions).map(texts_of).collect(),
        shared_end: shared.len() as u64,
        own_start,
        own: own.into_iter().map(|(_, text)| text).collect(),
    })
}

/// What they must hold when the partitions stand at these epochs and the own queue begins at a row.
pub(super) fn model_of_queues(epochs: &[u64], own_start: u64) -> QueueContent {
    let rows = (1..).zip(epochs);
    let shared: Vec<Vec<String>> = rows
        .map(|(partition, epoch)| rows_up_to(partition, *epoch))
        .collect();
    let mut own = rows_up_to(1, epochs[0]);
    let own = own.split_off(own.len().min(own_start as usize));
    QueueContent {
        shared_end: shared.iter().map(Vec::len).sum::<usize>() as u64,
        shared,
        own_start,
        own,
    }
}

impl QueueContent {
    /// Where the own queue begins.
    pub(super) fn own_start(&self) -> u64 {
        self.own_start
    }
}

/// A reader of the shared queue in the process that writes.
#[derive(Debug, Default)]
pub(super) struct Follower {
    next: u64,
}

impl Follower {
    /// Notes the rows that are new to it, as lines of the log.
    pub(super) fn follow(
        &mut self,
        storage: &dyn Storage,
        mut note: impl FnMut(String),
    ) -> Result<(), StorageError> {
        let rows = queue_texts(storage, SHARED, self.next, LIMIT);
        for (offset, text) in rows.expect("rows are never missing while they are written") {
            note(format!("row {offset} {text}"));
            self.next = offset + 1;
        }
        Ok(())
    }
}

/// Whether all rows that a reader saw are still where it saw them.
pub(super) fn check_seen(
    storage: &dyn Storage,
    seen: &BTreeMap<u64, String>,
) -> Result<(), String> {
    let found = queue_texts(storage, SHARED, 0, LIMIT).map_err(|error| error.to_string())?;
    let found: BTreeMap<u64, String> = found.into_iter().collect();
    for (offset, text) in seen {
        if found.get(offset) != Some(text) {
            let now = found.get(offset);
            return Err(format!("row {offset} was seen as {text} and is {now:?}"));
        }
    }
    Ok(())
}
