//! Brings what a pipeline's transforms have to the layouts in force, around the moment at which those
//! are written down:
//!
//! 1. [`LayoutMover::finish_recorded`]: moves that an earlier start wrote down and did not finish.
//! 2. [`Registration::commit`]: writes down that those are finished, and which ones begin.
//! 3. [`LayoutMover::carry_out`]: does these, writes down that they are done, then removes what earlier
//!    layouts have left, and what readers remember of producers that are gone, and forgets those partitions
//!    of which nothing is left.
//!
//! Whenever it stops, the next start begins again at 1. No job runs before all of it is done.

use std::collections::BTreeMap;

use crate::controller::layouts::RecordedMove;
use crate::controller::registry::{Registration, RegistryError};
use crate::controller::repartition::{
    self, MoveLimits, Repartition, RepartitionError, RepartitionProgress,
};
use crate::storage::{Storage, rows};
use crate::types::ids::PartitionId;

/// A transform that goes over to another number of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutMove {
    /// The transform.
    pub computation: String,
    /// How many partitions it had.
    pub from: usize,
    /// How many it has now.
    pub to: usize,
    /// What has been done so far.
    pub progress: RepartitionProgress,
}

/// A move was not finished; the next start goes on with it.
#[derive(Debug, thiserror::Error)]
pub enum LayoutMoveError {
    /// States or messages could not be moved, or what is left of them not removed.
    #[error("states and messages of computation {computation} can't move to its new partitions")]
    Repartition {
        /// The transform.
        computation: String,
        /// Why.
        source: RepartitionError,
    },
    /// What a transform remembers of producers that are gone could not be removed.
    #[error("what computation {computation} remembers of inputs that are gone can't be removed")]
    Frontiers {
        /// The transform.
        computation: String,
        /// Why.
        source: RepartitionError,
    },
    /// What is done could not be written down.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Moves what a pipeline's transforms have.
pub struct LayoutMover<'a> {
    storage: &'a dyn Storage,
    registration: &'a Registration,
    /// How much is moved at a time.
    pub limits: MoveLimits,
    observe: &'a mut dyn FnMut(&LayoutMove),
}

impl<'a> LayoutMover<'a> {
    /// A mover for a pipeline as it is about to be registered; `observe` is told after each commit.
    pub fn new(
        storage: &'a dyn Storage,
        registration: &'a Registration,
        observe: &'a mut dyn FnMut(&LayoutMove),
    ) -> LayoutMover<'a> {
        LayoutMover {
            storage,
            registration,
            limits: MoveLimits::default(),
            observe,
        }
    }

    /// Finishes what an earlier start has written down, as the registration is about to say so.
    ///
    /// # Errors
    ///
    /// When a commit is refused, its answer is lost, or the store fails.
    pub fn finish_recorded(&mut self) -> Result<(), LayoutMoveError> {
        // The next one is not written down yet, and never will be if this stops.
        let deployment = self.registration.deployment_before();
        let moves = self.registration.unfinished_moves();
        moves
            .into_iter()
            .try_for_each(|recorded| self.run(recorded, deployment))
    }

    /// Does what the registration has just written down.
    ///
    /// # Errors
    ///
    /// As [`LayoutMover::finish_recorded`], and when another process registered the pipeline.
    pub fn carry_out(&mut self) -> Result<(), LayoutMoveError> {
        for begun in self.registration.begun_moves() {
            self.run(begun, self.registration.deployment())?;
        }
        let layouts = self.registration.moves_finished(self.storage)?;
        for (computation, earlier) in &layouts {
            self.sweep(computation, &earlier.partitions().collect::<Vec<_>>())?;
        }
        self.drop_silent_frontiers()?;
        let keeps_anything = |partition| repartition::keeps_anything(self.storage, partition);
        self.registration
            .forget_empty(self.storage, &layouts, keeps_anything)?;
        Ok(())
    }

    /// Moves what `recorded` says, in epochs of the deployment in force.
    fn run(&mut self, recorded: RecordedMove, deployment: u64) -> Result<(), LayoutMoveError> {
        let mut shown = LayoutMove {
            from: recorded.from.len(),
            to: recorded.to.len(),
            computation: recorded.computation,
            progress: RepartitionProgress::default(),
        };
        let repartition = Repartition {
            from: &recorded.from,
            to: &recorded.to,
            producers: &self.registration.partitions_ever(),
            deployment,
            limits: self.limits,
        };
        let done = repartition.run(self.storage, &mut |progress| {
            shown.progress = progress;
            (self.observe)(&shown);
        });
        match done {
            Ok(_) => Ok(()),
            Err(source) => Err(LayoutMoveError::Repartition {
                computation: shown.computation,
                source,
            }),
        }
    }

    /// Removes the frontiers of lanes from partitions that are not in force and of whose messages none is
    /// left, files that left their source's list above all: what readers remember does not grow with
    /// the files that came and went.
    fn drop_silent_frontiers(&mut self) -> Result<(), LayoutMoveError> {
        let in_force = self.registration.partitions_in_force();
        let mut known: BTreeMap<PartitionId, bool> = BTreeMap::new();
        let mut is_silent = |producer| {
            if in_force.contains(&producer) {
                return Ok(false);
            }
            if let Some(is_silent) = known.get(&producer) {
                return Ok(*is_silent);
            }
            let is_silent = rows::lanes_kept(self.storage, producer)?.is_empty();
            known.insert(producer, is_silent);
            Ok(is_silent)
        };
        let deployment = self.registration.deployment();
        for (computation, readers) in self.registration.transforms() {
            for reader in readers {
                repartition::drop_silent_frontiers(
                    self.storage,
                    *reader,
                    deployment,
                    &self.limits,
                    &mut is_silent,
                )
                .map_err(|source| LayoutMoveError::Frontiers {
                    computation: computation.to_owned(),
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Removes what partitions of earlier layouts have beside messages on their way.
    fn sweep(
        &mut self,
        computation: &str,
        partitions: &[PartitionId],
    ) -> Result<(), LayoutMoveError> {
        let mut shown = LayoutMove {
            computation: computation.to_owned(),
            from: partitions.len(),
            to: self.registration.layout_in_force(computation).len(),
            progress: RepartitionProgress::default(),
        };
        let deployment = self.registration.deployment();
        for partition in partitions {
            let before = shown.progress.swept;
            let mut observe = |progress: RepartitionProgress| {
                shown.progress.swept = before + progress.swept;
                (self.observe)(&shown);
            };
            repartition::sweep(
                self.storage,
                *partition,
                deployment,
                &self.limits,
                &mut observe,
            )
            .map_err(|source| LayoutMoveError::Repartition {
                computation: computation.to_owned(),
                source,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::controller::layouts::tests::with_partitions;
    use crate::controller::registry::tests::register;
    use crate::controller::repartition::tests::{KEYS, begin, content_of};
    use crate::storage::memory::{CommitFault, MemoryStorage, UnsyncedTail};
    use crate::storage::{leases, rows};

    /// So little at a time that there is a commit to stop at everywhere.
    const LIMITS: MoveLimits = MoveLimits {
        commit_bytes: 1 << 20,
        commit_rows: 25,
        page_rows: 10,
        page_bytes: 1 << 20,
    };

    /// What a start does before its jobs are opened, with `count` partitions.
    fn start(storage: &dyn Storage, count: u32) -> Result<Registration, LayoutMoveError> {
        let registration = Registration::draft(storage, "a", &with_partitions(count))?;
        let mut observe = |_: &LayoutMove| {};
        let mut mover = LayoutMover::new(storage, &registration, &mut observe);
        mover.limits = LIMITS;
        mover.finish_recorded()?;
        registration.commit(storage)?;
        mover.carry_out()?;
        Ok(registration)
    }

    /// Starts with 4 partitions in place of 2 and is stopped at the epoch `stop`, then starts with
    /// `count`. Whether it was stopped.
    fn check(stop: usize, fault: CommitFault, count: u32) -> bool {
        let storage = MemoryStorage::new();
        register(&storage, "a", &with_partitions(2));
        let before = Registration::draft(&storage, "a", &with_partitions(2)).unwrap();
        let producers = before.source("departures").to_vec();
        begin(&storage, &producers, before.computation("delays"));
        let expected = content_of(&storage, &producers, before.computation("delays"));
        assert!(expected.states.len() as u64 > KEYS && !expected.waiting.is_empty());

        let epochs = AtomicUsize::new(0);
        storage.set_faults(Some(Box::new(move |_| {
            match epochs.fetch_add(1, Ordering::Relaxed) == stop {
                true => fault,
                false => CommitFault::None,
            }
        })));
        let was_stopped = start(&storage, 4).is_err();
        assert_eq!(storage.faults_made(), usize::from(was_stopped));

        let storage = Arc::new(storage.crash_and_reopen(UnsyncedTail::Survived));
        leases::end_all(&*storage).unwrap();
        let now = start(&*storage, count).unwrap();
        let found = content_of(&*storage, &producers, now.computation("delays"));
        assert_eq!(found, expected, "stopped at {stop} by {fault:?}");
        let next = Registration::draft(&*storage, "a", &with_partitions(count)).unwrap();
        assert!(next.changes.is_empty() && next.retiring("delays").is_empty());
        assert!(next.unfinished_moves().is_empty());
        was_stopped
    }

    #[test]
    fn d1_a_change_that_is_stopped_is_finished_before_yet_another_one() {
        let faults = [
            CommitFault::Refused,
            CommitFault::UnknownDecided,
            CommitFault::UnknownUndecided,
            CommitFault::FailedSync,
        ];
        for fault in faults {
            for count in [4, 3, 2] {
                let stops = (0..).take_while(|stop| check(*stop, fault, count)).count();
                assert!(stops > 10, "{stops}");
            }
        }
    }

    /// The deployment that is about to be registered may never be, and its number be given to
    /// another one.
    #[test]
    fn what_finishes_a_recorded_move_is_of_the_deployment_in_force() {
        let storage = MemoryStorage::new();
        register(&storage, "a", &with_partitions(2));
        let before = Registration::draft(&storage, "a", &with_partitions(2)).unwrap();
        let producers = before.source("departures").to_vec();
        begin(&storage, &producers, before.computation("delays"));
        let recorded = Registration::draft(&storage, "a", &with_partitions(4)).unwrap();
        recorded.commit(&storage).unwrap();

        let next = Registration::draft(&storage, "a", &with_partitions(3)).unwrap();
        let mut observe = |_: &LayoutMove| {};
        let mut mover = LayoutMover::new(&storage, &next, &mut observe);
        let deployments = |partitions: &[PartitionId]| -> Vec<u64> {
            let records = partitions.iter().map(|partition| {
                let head = storage.head(*partition).unwrap();
                rows::read_epoch_record(&storage, *partition, head.epoch).unwrap()
            });
            records.map(|record| record.unwrap().deployment).collect()
        };
        mover.finish_recorded().unwrap();
        assert_eq!(deployments(recorded.computation("delays")), [2; 4]);
        next.commit(&storage).unwrap();
        mover.carry_out().unwrap();
        assert_eq!(deployments(next.computation("delays")), [3; 3]);
    }
}
