//! One simulated world: a pipeline, its store, its jobs, and all that goes wrong around them. Every
//! decision follows from the seed; there is one thread and no clock.
//!
//! A world goes through several runs over one store. In each, sources have grown, jobs take steps
//! in a random order while things go wrong for a while, and then, undisturbed, must come to their
//! end. After each run the checkers judge all that was ever decided.

use std::sync::Arc;

use tidelock::storage::leases;
use tidelock::storage::memory::UnsyncedTail;
use tidelock::worker::error::JobError;
use tidelock::worker::job::{Job, JobEnd, JobStep};

use crate::checkers::{self, Checker, Evidence, Finding};
use crate::clock::SimulatedClock;
use crate::deployment::{Deployment, JobPlace, Parts};
use crate::faults::{Fault, FaultCounts};
use crate::graph::Graph;
use crate::guests::Guests;
use crate::mutation::Mutation;
use crate::random::Random;
use crate::record_source::SourceLength;
use crate::storage::SimulatedStorage;
use crate::worker::{JobStage, SimulatedWorker};

/// How many jobs without a lease go on at most.
const STALE_JOBS_MAX: usize = 4;
/// Rounds without disturbance after which a run should long have ended.
const CALM_ROUNDS_MAX: usize = 10_000;

/// What came of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What the checkers found, nothing in a sound world.
    pub(crate) findings: Vec<Finding>,
    /// The faults that came to pass.
    pub(crate) counts: FaultCounts,
    /// How many epochs were decided.
    pub(crate) epochs: usize,
    /// All that was decided, as text, for comparing two runs of one seed.
    pub(crate) history: String,
}

/// Runs the world of a seed to its end or to the first findings.
pub(crate) fn run(seed: u64, mutation: Option<Mutation>, guests: &Guests) -> Verdict {
    let mut random = Random::new(seed);
    let graph = Graph::random(&mut random);
    let mut world = World::new(random, &graph, mutation, guests);
    let mut findings = Vec::new();
    for _ in 0..world.random.within(1..=3) {
        world.grow_sources();
        let stalled = world.run().err();
        let evidence = Evidence {
            graph: &graph,
            deployment: &world.deployment,
            storage: &world.storage,
            sources: &world.sources,
            is_finished: stalled.is_none(),
        };
        findings.extend(checkers::judge(&evidence));
        findings.extend(stalled);
        if !findings.is_empty() {
            break;
        }
    }
    let decided = world.storage.decided();
    Verdict {
        findings,
        counts: world.storage.counts(),
        epochs: decided.len(),
        history: format!("{decided:?}"),
    }
}

struct World<'w> {
    random: Random,
    graph: &'w Graph,
    guests: &'w Guests,
    deployment: Deployment,
    mutation: Option<Mutation>,
    places: Vec<JobPlace>,
    storage: Arc<SimulatedStorage>,
    clock: Arc<SimulatedClock>,
    /// How many records each source has.
    sources: Vec<SourceLength>,
    worker: SimulatedWorker,
    /// Jobs that go on without a lease.
    stale_jobs: Vec<Job>,
    /// Whether things go wrong.
    is_disturbed: bool,
}

impl<'w> World<'w> {
    fn new(
        random: Random,
        graph: &'w Graph,
        mutation: Option<Mutation>,
        guests: &'w Guests,
    ) -> World<'w> {
        let clock = Arc::new(SimulatedClock::default());
        let storage = Arc::new(SimulatedStorage::new(clock.clone(), mutation));
        let deployment = Deployment::register(graph, &*storage).expect("the store is sound");
        World {
            random,
            graph,
            guests,
            mutation,
            places: graph.places(),
            deployment,
            worker: SimulatedWorker::new(storage.clone(), clock.clone(), 0),
            storage,
            clock,
            sources: (0..graph.sources)
                .map(|_| SourceLength::default())
                .collect(),
            stale_jobs: Vec::new(),
            is_disturbed: false,
        }
    }

    fn grow_sources(&mut self) {
        for source in &self.sources {
            source.forget_end();
            source.grow(self.random.within(0..=60) as u64);
        }
    }

    /// A source grows while it is read.
    fn grow_source(&mut self) {
        let at = self.random.index(self.sources.len());
        let records = self.random.within(1..=20) as u64;
        if self.sources[at].grow(records) {
            self.storage.count(Fault::SourceGrew);
        }
    }

    /// One run of the pipeline: disturbed for a while, then undisturbed to its end.
    fn run(&mut self) -> Result<(), Finding> {
        self.start_worker()?;
        self.is_disturbed = true;
        self.storage.set_faults(Some(self.random.fork()));
        for _ in 0..self.random.within(0..=400) {
            self.disturb()?;
        }
        self.is_disturbed = false;
        self.storage.set_faults(None);
        for _ in 0..CALM_ROUNDS_MAX {
            if self.worker.is_finished() {
                self.stale_jobs.clear();
                return Ok(());
            }
            if !self.round()? {
                return Err(progress(format!("no job can go on: {}", self.stages())));
            }
        }
        Err(progress("the run does not end".to_owned()))
    }

    /// One thing that may happen at any moment.
    fn disturb(&mut self) -> Result<(), Finding> {
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

    /// Every job goes on once, in some order. False when that changed nothing.
    fn round(&mut self) -> Result<bool, Finding> {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        self.random.shuffle(&mut order);
        let mut has_changed = false;
        for at in order {
            has_changed |= self.go_on(at)?;
            has_changed |= self.step_stale_job()?;
        }
        Ok(has_changed)
    }

    /// The next thing for a job to do: to be announced, to be opened, or a step. False when it
    /// could do nothing.
    fn go_on(&mut self, at: usize) -> Result<bool, Finding> {
        if self.clock.pass(&mut self.random) {
            self.storage.count(Fault::ClockSetBack);
        }
        match &mut self.worker.jobs[at] {
            JobStage::Gone => self.announce(at).map(|()| true),
            JobStage::Announced(_) => match self.worker.open(at) {
                Ok(()) => Ok(true),
                Err(error) => Err(progress(format!("a job can't be opened: {error}"))),
            },
            JobStage::Open(job) => {
                let step = job.step();
                self.take_step(at, step)
            }
            JobStage::Ended => Ok(false),
        }
    }

    fn take_step(&mut self, at: usize, step: Result<JobStep, JobError>) -> Result<bool, Finding> {
        let stage = match step {
            Ok(JobStep::Committed) => {
                // The epoch that it has just submitted may be the one that stopped the store.
                self.reopen_stopped_storage()?;
                return Ok(true);
            }
            Ok(JobStep::Idle) => return Ok(false),
            Ok(JobStep::Ended(JobEnd::Finished)) => JobStage::Ended,
            Ok(JobStep::Ended(JobEnd::Stopped)) => {
                return Err(progress("a job stopped that nobody stopped".to_owned()));
            }
            Err(JobError::Refused(_) | JobError::OutcomeUnknown { .. })
                if (self.worker.lease(at)).is_some_and(|lease| self.storage.met_fault(lease)) =>
            {
                JobStage::Gone
            }
            Err(error) => {
                let name = self
                    .graph
                    .head_name(self.graph.shapes[self.places[at].shape].head);
                let causes = with_causes(&error);
                return Err(progress(format!(
                    "job {name} failed without cause: {causes}"
                )));
            }
        };
        self.worker.jobs[at] = stage;
        self.reopen_stopped_storage()?;
        Ok(true)
    }

    /// A step of a job without a lease. Whatever comes of it, nobody must ever see it.
    fn step_stale_job(&mut self) -> Result<bool, Finding> {
        if self.stale_jobs.is_empty() {
            return Ok(false);
        }
        let at = self.random.index(self.stale_jobs.len());
        let step = self.stale_jobs[at].step();
        let goes_on = matches!(step, Ok(JobStep::Committed | JobStep::Idle));
        if !goes_on {
            self.stale_jobs.swap_remove(at);
        }
        self.reopen_stopped_storage()?;
        Ok(!matches!(step, Ok(JobStep::Idle)))
    }

    fn announce(&mut self, at: usize) -> Result<(), Finding> {
        let parts = Parts {
            graph: self.graph,
            guests: self.guests,
            sources: &self.sources,
            mutation: self.mutation,
        };
        let (place, storage) = (self.places[at], &*self.storage);
        let plan = (self.deployment).plan(place, &parts, storage, &mut self.random);
        plan.and_then(|plan| self.worker.announce(at, plan))
            .map_err(|error| progress(format!("a job can't be announced: {error}")))
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

    /// A new worker takes over: ends all leases, finds the pipeline registered, announces every job,
    /// opens none yet.
    fn start_worker(&mut self) -> Result<(), Finding> {
        self.sources.iter().for_each(SourceLength::forget_end);
        let (storage, clock) = (self.storage.clone(), self.clock.clone());
        self.worker = SimulatedWorker::new(storage, clock, self.places.len());
        leases::end_all(&*self.storage)
            .map_err(|error| progress(format!("leases can't be ended: {error}")))?;
        self.deployment = Deployment::register(self.graph, &*self.storage)
            .map_err(|error| progress(format!("the pipeline can't be registered: {error}")))?;
        let changes = self.deployment.changes();
        if !changes.is_empty() {
            return Err(progress(format!("the pipeline has changed: {changes:?}")));
        }
        (0..self.places.len()).try_for_each(|at| self.announce(at))
    }

    fn reopen_stopped_storage(&mut self) -> Result<(), Finding> {
        match self.storage.has_stopped() {
            true => self.reopen_storage(),
            false => Ok(()),
        }
    }

    /// The machine dies: store and jobs, with and without lease, are gone.
    fn reopen_storage(&mut self) -> Result<(), Finding> {
        self.stale_jobs.clear();
        // Both hold the store.
        let empty = Arc::new(SimulatedStorage::new(self.clock.clone(), None));
        self.worker = SimulatedWorker::new(empty.clone(), self.clock.clone(), 0);
        let storage = Arc::into_inner(std::mem::replace(&mut self.storage, empty));
        let storage = storage.expect("jobs alone share the store");
        let tail = match self.random.chance(50) {
            true => UnsyncedTail::Lost,
            false => UnsyncedTail::Survived,
        };
        self.storage = Arc::new(storage.crash_and_reopen(tail));
        if self.is_disturbed {
            self.storage.set_faults(Some(self.random.fork()));
        }
        self.start_worker()
    }

    fn stages(&self) -> String {
        let stage = |(place, stage): (&JobPlace, &JobStage)| {
            let name = self.graph.head_name(self.graph.shapes[place.shape].head);
            let stage = match stage {
                JobStage::Gone => "gone",
                JobStage::Announced(_) => "announced",
                JobStage::Open(_) => "open",
                JobStage::Ended => "ended",
            };
            format!("{name}[{}] is {stage}", place.partition)
        };
        let stages: Vec<String> = self
            .places
            .iter()
            .zip(&self.worker.jobs)
            .map(stage)
            .collect();
        stages.join(", ")
    }
}

fn progress(text: String) -> Finding {
    Finding {
        checker: Checker::Progress,
        text,
    }
}

fn with_causes(error: &JobError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
