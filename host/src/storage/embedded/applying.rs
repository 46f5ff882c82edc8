//! How decided epochs come to their place: sink bytes into their files, rows into the bulk store, where the
//! entries go in the same write. By the committer as it goes, or by a recovery.
//!
//! **Invariant:** as long as an entry is there, all that it holds may be written again.

use std::collections::{BTreeSet, HashMap};

use crate::storage::embedded::bulk::{RowBytes, RowChange, mark_row};
use crate::storage::embedded::faults::pass;
use crate::storage::embedded::sink_files::PlacedAppend;
use crate::storage::embedded::{Sabotage, Shared};
use crate::storage::{StorageError, codec, keys};
use crate::types::epoch::{Head, SinkAppend};
use crate::types::ids::{PartitionId, SinkFileId};

/// A decided epoch that is not applied yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) entry_key: Vec<u8>,
    pub(super) partition: PartitionId,
    pub(super) head: Head,
    /// The files whose lengths it moves on.
    pub(super) files: Vec<SinkFileId>,
    /// Those that get no more rows.
    pub(super) finished: Vec<SinkFileId>,
}

/// Brings decided epochs to their place, whose sink bytes are in their files, synced: rows, applied
/// heads, file lengths and the removal of the entries in one batch. Files that get no more rows are then to be finished.
pub(super) fn apply(shared: &Shared, pending: &mut Vec<Pending>) -> Result<(), StorageError> {
    if pending.is_empty() {
        return Ok(());
    }
    let mut files = BTreeSet::new();
    let mut finished = BTreeSet::new();
    let mut heads: HashMap<PartitionId, Head> = HashMap::new();
    let mut changes: Vec<RowChange> = Vec::new();
    let mut removals: Vec<RowChange> = Vec::with_capacity(pending.len());
    for decided in pending.drain(..) {
        files.extend(decided.files);
        finished.extend(decided.finished);
        heads.insert(decided.partition, decided.head);
        removals.push((decided.entry_key.into(), None));
    }
    files.extend(&finished);
    for file in &finished {
        shared.sink_files().set_finished(*file);
    }
    if !files.is_empty() {
        let lengths = shared.sink_files().length_rows(&files);
        changes.extend(lengths.into_iter().map(to_row));
    }
    changes.extend(
        heads
            .iter()
            .map(|(partition, head)| to_row((keys::applied(*partition), codec::encode_head(head)))),
    );
    changes.extend(shared.decisions.durable_mark().map(mark_row));
    pass(&shared.faults, "apply: write the rows")?;
    if shared.is_sabotaged(Sabotage::EntriesRemovedBeforeRows) {
        shared.bulk.write(removals)?;
        pass(&shared.faults, "apply: write the rows, sabotaged")?;
    } else {
        changes.append(&mut removals);
    }
    let runs = shared.overlay.all_rows();
    let rows = runs.iter().flat_map(|run| run.rows().changes());
    shared.bulk.write(rows.chain(changes))?;
    drop(runs);
    shared.overlay.clear();
    Ok(())
}

/// Writes sink bytes at their offsets and syncs the files.
pub(super) fn write_appends(
    shared: &Shared,
    appends: &mut [PlacedAppend],
) -> Result<(), StorageError> {
    let mut sink_files = shared.sink_files();
    if shared.is_sabotaged(Sabotage::AppendWithoutOffset) {
        for append in appends {
            let found = std::fs::metadata(sink_files.path(append.file));
            append.offset = found.map_or(0, |file| file.len());
            sink_files.write(std::slice::from_ref(append), &shared.faults)?;
        }
        return Ok(());
    }
    sink_files.write(appends, &shared.faults)
}

/// Gives each append the offset that its entry has for it.
pub(super) fn place_appends(appends: Vec<SinkAppend>, offsets: &[u64]) -> Vec<PlacedAppend> {
    (appends.into_iter().zip(offsets))
        .map(|(append, offset)| PlacedAppend {
            file: append.file,
            offset: *offset,
            bytes: append.bytes,
        })
        .collect()
}

fn to_row((key, value): (Vec<u8>, Vec<u8>)) -> RowChange {
    (RowBytes::from(key), Some(RowBytes::from(value)))
}
