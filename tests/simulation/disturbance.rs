//! What goes wrong in a run: jobs that crash or lose their lease, workers and machines that die,
//! sources that grow, readers that get no turn.

use std::sync::Arc;

use tidelock::storage::memory::UnsyncedTail;
use tidelock::types::ids::PartitionId;
use tidelock::worker::job::{Job, JobStep};

use crate::backpressure::WaitingChunks;
use crate::checkers::{Checker, Finding};
use crate::deployment::JobPlace;
use crate::faults::Fault;
use crate::graph::Head;
use crate::history::Decided;
use crate::queues;
use crate::record_source::SourcePart;
use crate::storage::SimulatedStorage;
use crate::worker::SimulatedWorker;
use crate::world::World;

/// How many jobs without a lease go on at most.
const STALE_JOBS_MAX: usize = 4;

impl World<'_> {
    /// From here on things go wrong, or no longer.
    pub(crate) fn set_disturbed(&mut self, is_disturbed: bool) {
        self.is_disturbed = is_disturbed;
        let faults = is_disturbed.then(|| self.random.fork());
        self.storage.set_faults(faults);
        for source in self.sources.values() {
            source.set_disturbed(is_disturbed);
        }
    }

    /// Whether a partition of a source that need not wait for its turn has more to read.
    fn can_read(&self, source: usize, partition: PartitionId) -> bool {
        let (partitions, parallel) = self.graph.source_partitions[source];
        let partition = self.layouts.place(partition).index;
        let length = &self.sources[&SourcePart { source, partition }];
        // One that is ahead may wait for one that is before a full lane.
        let may_wait = self.graph.watermarks[source].drift_bound.is_some();
        parallel == partitions && !may_wait && !length.is_told()
    }

    /// One thing that may happen at any moment.
    pub(crate) fn disturb(&mut self) -> Result<(), Finding> {
        let at = self.random.index(self.places.len());
        match self.random.within(0..=999) {
            0..=839 => self.go_on(at).map(drop),
            840..=859 => {
                self.grow_source();
                Ok(())
            }
            860..=929 => self.step_stale_job().map(drop),
            930..=959 => {
                if self.worker.take_open(at).is_some() {
                    self.storage.count(Fault::JobCrashed);
                }
                Ok(())
            }
            960..=989 => self.move_lease(at),
            990..=996 => self.lose_worker(),
            _ => self.reopen_storage(),
        }
    }

    /// A source grows while it is read.
    fn grow_source(&mut self) {
        let at = self.random.index(self.sources.len());
        let records = self.random.within(1..=20) as u64;
        let source = self.sources.values().nth(at);
        if source.is_some_and(|source| source.grow(records)) {
            self.storage.count(Fault::SourceGrew);
            queues::feed(&self.graph, &self.storage, &self.sources);
        }
    }

    /// A reader gets no turn while all others go on as far as they can: whoever stands still then
    /// must stand before a full lane.
    pub(crate) fn starve(&mut self) -> Result<(), Finding> {
        for source in self.sources.values() {
            source.grow(self.random.within(0..=80) as u64);
        }
        queues::feed(&self.graph, &self.storage, &self.sources);
        let head = |at: &usize| self.graph.shapes[self.places[*at].shape].head;
        let in_force = |at: &usize| {
            let JobPlace { shape, partition } = self.places[*at];
            self.layouts.in_force(shape).contains(&partition)
        };
        let is_reader = |at: &usize| matches!(head(at), Head::Transform(_)) && in_force(at);
        let readers: Vec<usize> = (0..self.places.len()).filter(is_reader).collect();
        if readers.is_empty() {
            return Ok(());
        }
        let starved = readers[self.random.index(readers.len())];
        self.starved = Some(starved);
        while self.round()? {}
        self.starved = None;
        // It may not have said yet how far it had read with its last epoch.
        let mut decided = self.storage.decided();
        let of_starved = |one: &Decided| one.commit.partition == self.places[starved].partition;
        if let Some(last) = decided.iter().rposition(of_starved) {
            decided.remove(last);
        }
        let waiting = WaitingChunks::after(&decided);
        let mut is_felt = false;
        for at in (0..self.places.len()).filter(|at| *at != starved) {
            let JobPlace { shape, partition } = self.places[at];
            let can_go_on = match self.graph.shapes[shape].head {
                Head::Source(source) => self.can_read(source, partition),
                Head::Transform(_) => waiting.has_input(partition, self.places[starved].partition),
            };
            let is_full = waiting
                .full_lane(partition, self.lane_limits.max_bytes)
                .is_some();
            is_felt |= is_full;
            if can_go_on && !is_full {
                let text = format!(
                    "{partition} stands still before its bound: {}",
                    self.stages()
                );
                return Err(Finding {
                    checker: Checker::Backpressure,
                    text,
                });
            }
        }
        if is_felt {
            self.storage.count(Fault::WriterStopped);
        }
        Ok(())
    }

    /// A step of a job without a lease. Whatever comes of it, nobody must ever see it.
    pub(crate) fn step_stale_job(&mut self) -> Result<bool, Finding> {
        if self.stale_jobs.is_empty() {
            return Ok(false);
        }
        let at = self.random.index(self.stale_jobs.len());
        let step = self.stale_jobs[at].step();
        self.storage.take_failed_read();
        // It may read what the job after it has changed.
        self.storage.take_read_back();
        let goes_on = matches!(step, Ok(JobStep::Advanced | JobStep::Idle));
        if !goes_on {
            self.stale_jobs.swap_remove(at);
        }
        self.reopen_stopped_storage()?;
        Ok(!matches!(step, Ok(JobStep::Idle)))
    }

    /// Another job gets the lease at once; the one that had it does not notice.
    fn move_lease(&mut self, at: usize) -> Result<(), Finding> {
        if let Some(job) = self.worker.take_open(at) {
            self.storage.count(Fault::LeaseMoved);
            self.keep_stale(job);
            self.announce(at)?;
        }
        Ok(())
    }

    fn lose_worker(&mut self) -> Result<(), Finding> {
        self.storage.count(Fault::WorkerLost);
        for at in 0..self.places.len() {
            if let Some(job) = self.worker.take_open(at)
                && self.random.chance(50)
            {
                self.keep_stale(job);
            }
        }
        self.start_worker()
    }

    fn keep_stale(&mut self, job: Job) {
        if self.stale_jobs.len() < STALE_JOBS_MAX {
            self.stale_jobs.push(job);
        }
    }

    pub(crate) fn reopen_stopped_storage(&mut self) -> Result<(), Finding> {
        match self.storage.has_stopped() {
            true => self.reopen_storage(),
            false => Ok(()),
        }
    }

    /// The machine dies: store and jobs, with and without lease, are gone.
    fn reopen_storage(&mut self) -> Result<(), Finding> {
        self.crash_storage();
        self.start_worker()
    }

    /// The store's process dies, with all jobs, and the store is opened again.
    pub(crate) fn crash_storage(&mut self) {
        self.stale_jobs.clear();
        // Both hold the store.
        let empty = Arc::new(SimulatedStorage::new(self.clock.clone(), None));
        self.worker = SimulatedWorker::new(empty.clone(), self.clock.clone(), self.lane_limits, 0);
        let storage = Arc::into_inner(std::mem::replace(&mut self.storage, empty));
        let storage = storage.expect("jobs alone share the store");
        let tail = match self.random.chance(50) {
            true => UnsyncedTail::Lost,
            false => UnsyncedTail::Survived,
        };
        self.storage = Arc::new(storage.crash_and_reopen(tail));
        self.set_disturbed(self.is_disturbed);
    }
}
