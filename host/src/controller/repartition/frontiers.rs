//! Frontiers of lanes in which nothing comes any more go from their readers.

use super::writer::PartitionWriter;
use super::{MoveLimits, RepartitionError};
use crate::storage::{Storage, StorageError, rows};
use crate::types::ids::PartitionId;

/// Removes the frontiers of `reader` in lanes whose producer `is_silent`: it writes nothing in this run and
/// all that it wrote is gone. Should it write again, its epochs are later than all that it wrote before, so
/// a reader without a frontier takes what it finds, once. Returns how many frontiers went.
///
/// # Errors
///
/// Those of `is_silent`; when a commit is refused, its answer is lost, or the store fails. What is gone by
/// then is gone.
pub fn drop_silent_frontiers(
    storage: &dyn Storage,
    reader: PartitionId,
    deployment: u64,
    limits: &MoveLimits,
    mut is_silent: impl FnMut(PartitionId) -> Result<bool, StorageError>,
) -> Result<u64, RepartitionError> {
    let mut dropped = 0;
    let mut writer = None;
    let mut last = None;
    loop {
        let page = rows::frontiers_kept(storage, reader, last, limits.page_rows)?;
        let Some(behind) = page.last().copied() else {
            break;
        };
        last = Some(behind);
        let mut silent = Vec::new();
        for lane in page {
            if is_silent(lane.producer)? {
                silent.push(lane);
            }
        }
        if silent.is_empty() {
            continue;
        }
        let writer = match &mut writer {
            Some(writer) => writer,
            None => writer.insert(PartitionWriter::open(storage, reader, deployment)?),
        };
        dropped += silent.len() as u64;
        writer.commit(|epoch| epoch.dropped_frontiers = silent)?;
    }
    if let Some(writer) = writer {
        writer.close()?;
        tracing::debug!(partition = %reader, frontiers = dropped, "frontiers of silent producers dropped");
    }
    Ok(dropped)
}
