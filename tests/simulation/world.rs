//! One simulated world: a pipeline, its store, its jobs, and all that goes wrong around them. Every
//! decision follows from the seed; there is one thread and no clock.
//!
//! A world goes through several runs over one store. In each, sources have grown, jobs take steps
//! in a random order while things go wrong for a while, and then, undisturbed, must come to their
//! end. After each run the checkers judge all that was ever decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidelock::source::SourceError;
use tidelock::types::pipeline::LaneLimits;
use tidelock::worker::error::JobError;
use tidelock::worker::job::{Job, JobEnd, JobStep};

use crate::checkers::{self, Checker, Evidence, Finding};
use crate::clock::SimulatedClock;
use crate::deployment::{Deployment, JobPlace, Parts};
use crate::faults::{Fault, FaultCounts};
use crate::graph::{Graph, Head};
use crate::guests::Guests;
use crate::layouts::Layouts;
use crate::mutation::Mutation;
use crate::queues;
use crate::random::Random;
use crate::record_source::{SourceLength, SourcePart};
use crate::storage::SimulatedStorage;
use crate::worker::{JobStage, SimulatedWorker};

/// In how many runs of a hundred a reader is starved.
const STARVED_RUNS_PERCENT: u64 = 60;
/// At how many ends of runs of a hundred nobody writes down that they are over.
const UNRECORDED_ENDS_PERCENT: u64 = 20;
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
    let mut world = World::new(random, graph, mutation, guests);
    let mut findings = Vec::new();
    for _ in 0..world.random.within(1..=3) {
        world.grow_sources();
        let stalled = world.run().err();
        let evidence = Evidence {
            graph: &world.graph,
            deployment: world.deployment(),
            layouts: &world.layouts,
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
    let mut decided = world.storage.decided();
    let mut counts = world.storage.counts();
    for one in decided.iter().filter(|one| !one.is_move) {
        counts.add_epoch(&one.commit.record);
    }
    for one in &mut decided {
        // A kept instance uses less than a fresh one, and how many are kept is for all worlds of this
        // process together to say.
        one.commit.record.fuel = 0;
    }
    Verdict {
        findings,
        counts,
        epochs: decided.len(),
        history: format!("{decided:?}"),
    }
}

/// What a seed makes.
pub(crate) struct World<'w> {
    pub(crate) random: Random,
    pub(crate) graph: Graph,
    pub(crate) guests: &'w Guests,
    /// There is one after the first start.
    pub(crate) deployment: Option<Deployment>,
    /// Every partition that the pipeline ever had.
    pub(crate) layouts: Layouts,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) places: Vec<JobPlace>,
    pub(crate) storage: Arc<SimulatedStorage>,
    pub(crate) clock: Arc<SimulatedClock>,
    /// How many records each source has.
    pub(crate) sources: BTreeMap<SourcePart, SourceLength>,
    pub(crate) worker: SimulatedWorker,
    /// Jobs that go on without a lease.
    pub(crate) stale_jobs: Vec<Job>,
    /// A job that gets no turn.
    pub(crate) starved: Option<usize>,
    /// How much may wait in the lanes of the worker.
    pub(crate) lane_limits: LaneLimits,
    /// Whether things go wrong.
    pub(crate) is_disturbed: bool,
    /// The number of the last run that came to its end.
    last_run: u64,
}

impl<'w> World<'w> {
    fn new(
        random: Random,
        graph: Graph,
        mutation: Option<Mutation>,
        guests: &'w Guests,
    ) -> World<'w> {
        let clock = Arc::new(SimulatedClock::default());
        let storage = Arc::new(SimulatedStorage::new(clock.clone(), mutation));
        queues::create(&graph, &storage);
        World {
            random,
            guests,
            mutation,
            places: Vec::new(),
            deployment: None,
            layouts: Layouts::default(),
            worker: SimulatedWorker::new(storage.clone(), clock.clone(), LaneLimits::default(), 0),
            storage,
            sources: (graph.source_parts())
                .map(|part| (part, SourceLength::new(clock.clone())))
                .collect(),
            clock,
            graph,
            stale_jobs: Vec::new(),
            starved: None,
            lane_limits: LaneLimits::default(),
            is_disturbed: false,
            last_run: 0,
        }
    }

    pub(crate) fn deployment(&self) -> &Deployment {
        let deployment = self.deployment.as_ref();
        deployment.expect("a worker is started first")
    }

    fn grow_sources(&mut self) {
        for source in self.sources.values() {
            source.forget_end();
            source.grow(self.random.within(0..=40) as u64);
        }
        queues::feed(&self.graph, &self.storage, &self.sources);
    }

    /// One run of the pipeline: disturbed for a while, then undisturbed to its end.
    fn run(&mut self) -> Result<(), Finding> {
        self.set_disturbed(true);
        self.start_worker()?;
        for _ in 0..self.random.within(0..=400) {
            self.disturb()?;
        }
        self.set_disturbed(false);
        if self.random.chance(STARVED_RUNS_PERCENT) {
            self.starve()?;
        }
        for _ in 0..CALM_ROUNDS_MAX {
            if self.worker.is_finished() {
                self.stale_jobs.clear();
                return self.complete_run();
            }
            if !self.round()? {
                return Err(progress(format!("no job can go on: {}", self.stages())));
            }
        }
        Err(progress("the run does not end".to_owned()))
    }

    /// Every job is at its end. Nobody writes that down now and then: then the next start has to see it.
    fn complete_run(&mut self) -> Result<(), Finding> {
        let deployment = self.deployment();
        let run = deployment.run();
        if run <= self.last_run {
            return Err(progress(format!(
                "run {run} comes after run {}",
                self.last_run
            )));
        }
        let has_transforms = self.graph.computations.iter().any(|it| it.is_transform);
        self.last_run = run;
        if has_transforms && self.random.chance(UNRECORDED_ENDS_PERCENT) {
            self.storage.count(Fault::EndUnrecorded);
            return Ok(());
        }
        let completed = self.deployment().complete_run(&*self.storage);
        completed.map_err(|error| progress(format!("the run can't be completed: {error}")))
    }

    /// Every job goes on once, in some order. False when that changed nothing.
    pub(crate) fn round(&mut self) -> Result<bool, Finding> {
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        self.random.shuffle(&mut order);
        let mut has_changed = false;
        for at in order {
            has_changed |= self.go_on(at)?;
            has_changed |= self.step_stale_job()?;
        }
        // A source that brought nothing will bring more.
        for source in self.sources.values() {
            if source.take_wait() {
                self.storage.count(Fault::SourceQuiet);
                has_changed = true;
            }
        }
        Ok(has_changed)
    }

    /// The next thing for a job to do: to be announced, to be opened, or a step. False when it
    /// could do nothing.
    pub(crate) fn go_on(&mut self, at: usize) -> Result<bool, Finding> {
        if self.clock.pass(&mut self.random) {
            self.storage.count(Fault::ClockSetBack);
        }
        match &mut self.worker.jobs[at] {
            JobStage::Gone => self.announce(at).map(|()| true),
            JobStage::Announced(_) => match self.worker.open(at) {
                Ok(()) => Ok(true),
                // The job is gone.
                Err(_) if self.storage.take_failed_read() => Ok(true),
                Err(error) => Err(progress(format!("a job can't be opened: {error}"))),
            },
            JobStage::Open(_) if self.starved == Some(at) => Ok(false),
            JobStage::Open(job) => {
                // A job that goes on hands on what it had submitted before.
                let decided = self.storage.decided_count();
                let step = job.step();
                if let Some(row) = self.storage.take_read_back() {
                    return Err(Finding {
                        checker: Checker::State,
                        text: format!(
                            "a job read back row {} that its undecided epoch had changed",
                            row.escape_ascii()
                        ),
                    });
                }
                if step.is_ok() {
                    self.storage.hand_on(self.places[at].partition, decided);
                }
                self.take_step(at, step)
            }
            JobStage::Ended => Ok(false),
        }
    }

    fn take_step(&mut self, at: usize, step: Result<JobStep, JobError>) -> Result<bool, Finding> {
        let stage = match step {
            Ok(JobStep::Advanced) => {
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
            Err(JobError::Storage(_) | JobError::Source(SourceError::Queue { .. }))
                if self.storage.take_failed_read() =>
            {
                JobStage::Gone
            }
            // A job tells it once what it had read before is committed.
            Err(JobError::Source(_)) if self.source_has_failed(at) => {
                self.storage.count(Fault::SourceFailed);
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

    fn source_has_failed(&self, at: usize) -> bool {
        let JobPlace { shape, partition } = self.places[at];
        match self.graph.shapes[shape].head {
            Head::Source(source) => {
                let partition = self.layouts.place(partition).index;
                self.sources[&SourcePart { source, partition }].take_failure()
            }
            Head::Transform(_) => false,
        }
    }

    pub(crate) fn announce(&mut self, at: usize) -> Result<(), Finding> {
        let parts = Parts {
            graph: &self.graph,
            guests: self.guests,
            sources: &self.sources,
            mutation: self.mutation,
        };
        let (place, storage) = (self.places[at], &self.storage);
        let deployment = self.deployment.as_ref();
        let deployment = deployment.expect("a worker is started first");
        storage.job_begins(place.partition);
        let plan = deployment.plan(place, &parts, storage, &mut self.random);
        match plan.and_then(|plan| self.worker.announce(at, plan)) {
            Err(_) if self.storage.take_failed_read() => {
                self.worker.jobs[at] = JobStage::Gone;
                Ok(())
            }
            Ok(()) => {
                // It has found whatever the job before it wrote.
                let decided = self.storage.decided_count();
                self.storage.hand_on(place.partition, decided);
                Ok(())
            }
            Err(error) => Err(progress(format!("a job can't be announced: {error}"))),
        }
    }

    pub(crate) fn stages(&self) -> String {
        let stage = |(place, stage): (&JobPlace, &JobStage)| {
            let name = self.graph.head_name(self.graph.shapes[place.shape].head);
            let stage = match stage {
                JobStage::Gone => "gone",
                JobStage::Announced(_) => "announced",
                JobStage::Open(_) => "open",
                JobStage::Ended => "ended",
            };
            format!("{} of {name} is {stage}", place.partition)
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

/// A run did not go on as it should.
pub(crate) fn progress(text: String) -> Finding {
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
