//! The runs of a pipeline: watermarks belong to one. A run begins when none is in progress, goes on
//! through stops, kills and changes of the pipeline, and is completed when every job is at its end.
//!
//! **Invariant:** whoever learns that all jobs are at their end writes it down. Was there no time for
//! it, the next start sees it by the records of the last epochs.

use serde::{Deserialize, Serialize};

use crate::controller::registry::refusal::RegistryError;
use crate::controller::registry::rows::{self, node_key};
use crate::storage::{CatalogChange, CatalogOutcome, Storage, StorageError, rows as stored};
use crate::types::ids::PartitionId;
use crate::types::watermark::END_OF_TIME;

/// What follows the pipeline's name in the key of the row of its run.
pub(in crate::controller) const RUN: &str = "run";

/// The row of a pipeline's run: the one in progress, or the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::controller) struct RunRow {
    /// From 1.
    pub(super) number: u64,
    /// Whether every job came to its end.
    pub(super) is_completed: bool,
}

impl RunRow {
    /// The pipeline's row; `None` where it never ran.
    pub(in crate::controller) fn read(
        storage: &dyn Storage,
        pipeline: &str,
    ) -> Result<Option<RunRow>, StorageError> {
        let found = storage.read_catalog(&RunRow::key(pipeline))?;
        found.map(|row| rows::decode(pipeline, &row)).transpose()
    }

    pub(super) fn key(pipeline: &str) -> Vec<u8> {
        node_key(pipeline, RUN, "")
    }

    /// The row of the run that a start goes on with or begins. `has_come_to_its_end` is asked of a run
    /// that is not known to be completed.
    pub(super) fn next(
        known: Option<RunRow>,
        has_come_to_its_end: impl FnOnce(u64) -> Result<bool, StorageError>,
    ) -> Result<RunRow, StorageError> {
        let in_progress = |number| RunRow {
            number,
            is_completed: false,
        };
        Ok(match known {
            None => in_progress(1),
            Some(run) if run.is_completed || has_come_to_its_end(run.number)? => {
                in_progress(run.number + 1)
            }
            Some(run) => run,
        })
    }
}

/// Whether every partition of `last` has seen the end of time in that run, with all that it made to happen, and
/// nothing waits in a lane of `partitions`. Those are the partitions of transforms, or of sources where there is
/// no transform.
pub(super) fn has_come_to_its_end(
    storage: &dyn Storage,
    run: u64,
    last: &[PartitionId],
    partitions: &[PartitionId],
) -> Result<bool, StorageError> {
    if last.is_empty() {
        return Ok(false);
    }
    for partition in last {
        let epoch = storage.head(*partition)?.epoch;
        let record = stored::read_epoch_record(storage, *partition, epoch)?;
        let time = record.map(|record| record.time).unwrap_or_default();
        let is_at_end =
            time.run == run && time.watermark() == Some(END_OF_TIME) && time.fired_up_to.is_none();
        if !is_at_end {
            return Ok(false);
        }
    }
    for partition in partitions {
        if !stored::lanes_kept(storage, *partition)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A run of a pipeline that is in progress.
#[derive(Debug, Clone)]
pub struct RunInProgress {
    pub(super) pipeline: String,
    /// Its number, from 1.
    pub number: u64,
}

impl RunInProgress {
    /// Writes down that every job came to its end: the next start begins another run.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Contended`] when the run is not in progress any more, or when the store fails.
    pub fn complete(&self, storage: &dyn Storage) -> Result<(), RegistryError> {
        let key = RunRow::key(&self.pipeline);
        let row = |is_completed| {
            let number = self.number;
            rows::encode(&RunRow {
                number,
                is_completed,
            })
        };
        let change = CatalogChange {
            expectations: vec![(key.clone(), Some(row(false)))],
            writes: vec![(key, Some(row(true)))],
        };
        match storage.commit_catalog(&change)? {
            CatalogOutcome::Committed => Ok(()),
            CatalogOutcome::Refused => Err(RegistryError::Contended {
                pipeline: self.pipeline.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::controller::registry::tests::{intent, without_computations};
    use crate::controller::registry::{Intent, Registration};
    use crate::storage::memory::MemoryStorage;
    use crate::storage::{CommitOutcome, leases};
    use crate::types::batch::Timestamp;
    use crate::types::epoch::{ChunkMessages, EpochCommit, EpochTime, LaneChunk, LaneTrim};
    use crate::types::ids::LaneId;
    use crate::types::timer::TimerPlace;
    use crate::types::watermark::{LaneStep, LaneTime};

    fn draft(storage: &MemoryStorage, intent: &Intent) -> Registration {
        Registration::draft(storage, "a", intent).unwrap()
    }

    /// Starts the pipeline, with its transform in two partitions; the number of the run.
    fn start(storage: &MemoryStorage) -> u64 {
        let registration = draft(storage, &two_partitions());
        registration.commit(storage).unwrap();
        registration.run()
    }

    fn two_partitions() -> Intent {
        let mut intent = intent("{}", "file x", 1);
        let delays = intent.computations.get_mut("delays").unwrap();
        delays.partition_count = 2;
        intent
    }

    /// The partitions of the transform.
    fn partitions(storage: &MemoryStorage) -> Vec<PartitionId> {
        draft(storage, &two_partitions())
            .computation("delays")
            .to_vec()
    }

    /// The partition's next epoch.
    fn commit(
        storage: &MemoryStorage,
        partition: PartitionId,
        change: impl FnOnce(&mut EpochCommit),
    ) {
        let lease = leases::grant(storage, partition).unwrap();
        let epoch = storage.head(partition).unwrap().epoch.next();
        let mut commit = EpochCommit::empty(&lease, epoch);
        change(&mut commit);
        let outcome = storage.submit_epoch(lease, commit).wait().unwrap();
        assert!(
            matches!(outcome, CommitOutcome::Committed(_)),
            "{outcome:?}"
        );
    }

    fn time(run: u64, input_watermarks: [Timestamp; 2]) -> EpochTime {
        EpochTime {
            run,
            input_watermarks: input_watermarks.to_vec(),
            ..EpochTime::default()
        }
    }

    fn at_end(run: u64) -> EpochTime {
        time(run, [END_OF_TIME; 2])
    }

    #[test]
    fn the_row_has_the_bytes_that_are_written_down() {
        let storage = MemoryStorage::default();
        start(&storage);
        let row = || storage.read_catalog(b"pa\0run").unwrap();
        assert_eq!(row().as_deref(), Some(b"\x01\x01\x00".as_slice()));
        let run = draft(&storage, &two_partitions()).run_in_progress();
        run.complete(&storage).unwrap();
        assert_eq!(row().as_deref(), Some(b"\x01\x01\x01".as_slice()));
    }

    #[test]
    fn a_run_goes_on_under_its_number_until_it_is_completed() {
        let storage = MemoryStorage::default();
        assert_eq!([start(&storage), start(&storage)], [1, 1]);
        // Another parameter, and no transform at all, are the same run.
        let changed = draft(&storage, &intent("{\"limit\":1}", "file x", 1));
        changed.commit(&storage).unwrap();
        assert_eq!(changed.run(), 1);
        assert_eq!(draft(&storage, &without_computations()).run(), 1);
        changed.run_in_progress().complete(&storage).unwrap();
        assert_eq!([start(&storage), start(&storage)], [2, 2]);
        // A run is completed once.
        let again = changed.run_in_progress().complete(&storage);
        assert!(matches!(again, Err(RegistryError::Contended { .. })));
        assert_eq!(start(&storage), 2);
    }

    #[test]
    fn a_start_that_another_one_overtook_is_refused_although_nothing_else_has_changed() {
        let storage = MemoryStorage::default();
        start(&storage);
        let run = draft(&storage, &two_partitions()).run_in_progress();
        run.complete(&storage).unwrap();
        let late = draft(&storage, &two_partitions());
        assert_eq!(start(&storage), 2);
        assert!(matches!(
            late.commit(&storage),
            Err(RegistryError::Contended { .. })
        ));
    }

    /// The process died after the last epoch and before the run was written down as completed.
    #[test]
    fn a_run_whose_transforms_have_seen_the_end_of_time_is_taken_as_completed() {
        let storage = MemoryStorage::default();
        start(&storage);
        let [first, second] = partitions(&storage)[..] else {
            panic!("there are two");
        };
        let give = |partition, time| commit(&storage, partition, |it| it.record.time = time);
        give(first, at_end(1));
        assert_eq!(start(&storage), 1, "the second has seen nothing");
        give(second, time(1, [END_OF_TIME, 7]));
        assert_eq!(start(&storage), 1, "an input is not at its end");
        let fired_up_to = Some(TimerPlace::default());
        give(
            second,
            EpochTime {
                fired_up_to,
                ..at_end(1)
            },
        );
        assert_eq!(start(&storage), 1, "timers are due that have not fired");
        give(second, at_end(1));
        assert_eq!(start(&storage), 2);
        assert_eq!(start(&storage), 2, "it was the end of the run before");
        give(first, at_end(2));
        give(second, at_end(2));
        assert_eq!(start(&storage), 3);
    }

    #[test]
    fn a_run_in_whose_lanes_anything_waits_goes_on() {
        let storage = MemoryStorage::default();
        start(&storage);
        let source = draft(&storage, &two_partitions()).source("departures")[0];
        let readers = partitions(&storage);
        let lane = LaneId {
            producer: source,
            stream: draft(&storage, &two_partitions()).stream("departures"),
            reader: readers[0],
        };
        let time = LaneTime {
            watermark: END_OF_TIME,
            is_idle: false,
        };
        let messages = Arc::new(ChunkMessages {
            steps: vec![LaneStep { index: 0, time }],
            ..ChunkMessages::default()
        });
        commit(&storage, source, |it| {
            let epoch = it.epoch;
            it.chunks = vec![LaneChunk {
                lane,
                epoch,
                messages,
            }];
        });
        for partition in readers {
            commit(&storage, partition, |it| it.record.time = at_end(1));
        }
        assert_eq!(start(&storage), 1);
        let epoch = storage.head(source).unwrap().epoch;
        commit(&storage, source, |it| {
            it.trims = vec![LaneTrim { lane, epoch }];
        });
        assert_eq!(start(&storage), 2);
    }
}
