//! What is left that nobody goes on with. Files of directory sinks: of partitions that are not in force any more, and of sinks
//! that are not fed by their partition any more. They are finished at the next start, as a run's end would have. Marks of partitions
//! of sources that are forgotten: they go.

use crate::controller::registry::Registration;
use crate::controller::repartition::RepartitionError;
use crate::controller::repartition::writer::PartitionWriter;
use crate::controller::wiring::Wiring;
use crate::storage::{Storage, rows};
use crate::types::epoch::SinkProgress;
use crate::types::ids::PartitionId;
use crate::types::pipeline::{Pipeline, SinkConnector};
use crate::worker::rolling::decode_progress;

/// Finishes every such file of the pipeline. Nothing may run it meanwhile.
///
/// # Errors
///
/// When a commit is refused, its answer is lost, or the store fails.
pub fn finish_orphaned_files(
    pipeline: &Pipeline,
    storage: &dyn Storage,
    registration: &Registration,
    wiring: &Wiring<'_>,
) -> Result<(), RepartitionError> {
    let mut partitions = registration.partitions_ever();
    partitions.extend(registration.partitions_in_force());
    partitions.sort_unstable();
    partitions.dedup();
    for partition in partitions {
        let mut orphaned = Vec::new();
        for (sink, value) in rows::read_sink_progress(storage, partition)? {
            if !is_fed(pipeline, wiring, partition, &sink) {
                let progress = decode_progress(partition, &sink, &value)?;
                orphaned.push((sink, progress.open));
            }
        }
        if orphaned.is_empty() {
            continue;
        }
        let mut writer = PartitionWriter::open(storage, partition, registration.deployment())?;
        writer.commit(|epoch| {
            let files = orphaned.iter().filter_map(|(_, open)| *open);
            epoch.finished_files = files.map(|open| open.file).collect();
            let gone = |(sink, _): &(String, _)| SinkProgress {
                sink: sink.clone(),
                value: None,
            };
            epoch.sink_progress = orphaned.iter().map(gone).collect();
        })?;
        writer.close()?;
        tracing::debug!(%partition, files = orphaned.len(), "orphaned files finished");
    }
    Ok(())
}

/// Removes what the partitions of sources kept by name that have just been forgotten.
///
/// # Errors
///
/// As [`finish_orphaned_files`].
pub fn sweep_forgotten_marks(
    storage: &dyn Storage,
    registration: &Registration,
) -> Result<(), RepartitionError> {
    for partition in registration.forgotten_source_partitions() {
        let mut marks = rows::read_source_marks(storage, *partition)?;
        if marks.is_empty() {
            continue;
        }
        marks.iter_mut().for_each(|mark| mark.value = None);
        let mut writer = PartitionWriter::open(storage, *partition, registration.deployment())?;
        writer.commit(|epoch| epoch.source_marks = marks)?;
        writer.close()?;
    }
    Ok(())
}

/// Whether a partition that is about to run feeds a directory sink of that name.
fn is_fed(pipeline: &Pipeline, wiring: &Wiring<'_>, partition: PartitionId, sink: &str) -> bool {
    let options = pipeline.sinks.get(sink);
    let is_directory =
        options.is_some_and(|sink| matches!(sink.connector, SinkConnector::Directory(_)));
    let mut shapes = wiring.shapes().iter();
    let runs = shapes.find(|shape| wiring.partitions(&shape.head).contains(&partition));
    is_directory && runs.is_some_and(|shape| wiring.sinks_fed(shape).contains(&sink))
}
