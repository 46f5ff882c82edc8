//! How a worker starts: what the pipeline's registration says, and the bounds that it keeps.

use tidelock::types::pipeline::LaneLimits;
use tidelock::types::watermark::END_OF_TIME;

use crate::checkers::Finding;
use crate::deployment::{Deployment, StartError};
use crate::faults::Fault;
use crate::graph::Head;
use crate::random::Random;
use crate::record_source::{SourceLength, SourcePart};
use crate::worker::{JobStage, SimulatedWorker};
use crate::world::{World, progress};

/// How many starts of a hundred ask for other numbers of partitions.
const REPARTITION_PERCENT: u64 = 30;
/// Failed attempts to start after which nothing goes wrong any more.
const ATTEMPTS_MAX: usize = 6;

impl World<'_> {
    /// A new worker takes over: finds the pipeline registered, announces every job, opens none yet.
    pub(crate) fn start_worker(&mut self) -> Result<(), Finding> {
        self.sources.values().for_each(SourceLength::forget_end);
        self.deploy()?;
        self.recall_ends();
        self.lane_limits = lane_limits(&mut self.random);
        self.storage.set_lane_bytes_max(self.lane_limits.max_bytes);
        let mutated = self.mutation.map(|it| it.limit(self.lane_limits));
        let limits = mutated.unwrap_or(self.lane_limits);
        let (storage, clock) = (self.storage.clone(), self.clock.clone());
        self.worker = SimulatedWorker::new(storage, clock, limits, self.places.len());
        for at in 0..self.places.len() {
            // None is opened before all are announced.
            while matches!(self.worker.jobs[at], JobStage::Gone) {
                self.announce(at)?;
            }
        }
        Ok(())
    }

    /// What was read to its end in this run, as its readers know, is not read on in it.
    fn recall_ends(&self) {
        let run = self.deployment().run();
        let decided = self.storage.decided();
        for place in &self.places {
            let Head::Source(source) = self.graph.shapes[place.shape].head else {
                continue;
            };
            let mut latest = decided.iter().rev();
            let last = latest.find(|one| one.commit.partition == place.partition);
            let is_at_end = last.is_some_and(|one| {
                let time = &one.commit.record.time;
                time.run == run && time.input_watermarks.contains(&END_OF_TIME)
            });
            if is_at_end {
                let partition = self.layouts.place(place.partition).index;
                self.sources[&SourcePart { source, partition }].tell_end();
            }
        }
    }

    /// Brings the pipeline to its start, in several attempts if things go wrong; each may ask for other
    /// numbers of partitions.
    fn deploy(&mut self) -> Result<(), Finding> {
        let is_disturbed = self.is_disturbed;
        for attempt in 0.. {
            if self.random.chance(REPARTITION_PERCENT) {
                self.graph.repartition(&mut self.random);
            }
            if attempt == ATTEMPTS_MAX {
                self.set_disturbed(false);
            }
            self.storage.set_starting(true);
            let (layouts, random) = (&mut self.layouts, &mut self.random);
            let started = Deployment::start(&self.graph, &self.storage, layouts, random);
            self.storage.set_starting(false);
            match started {
                Ok(deployment) => {
                    self.deployment = Some(deployment);
                    self.storage.set_start(self.layouts.start());
                    break;
                }
                Err(StartError::Failed(_)) if self.storage.take_start_fault() => {
                    self.storage.count(Fault::StartFailed);
                    if self.storage.has_stopped() {
                        self.crash_storage();
                    }
                }
                Err(StartError::Failed(text) | StartError::Wrong(text)) => {
                    return Err(progress(format!("the pipeline can't start: {text}")));
                }
            }
        }
        self.set_disturbed(is_disturbed);
        self.places = self.deployment().places(&self.graph);
        Ok(())
    }
}

/// Bounds that are mostly tiny, so that lanes fill up and channels drop chunks.
fn lane_limits(random: &mut Random) -> LaneLimits {
    let default = LaneLimits::default();
    LaneLimits {
        max_bytes: match random.within(0..=9) {
            0..=3 => random.within(1..=500) as u64,
            4..=6 => random.within(500..=4_000) as u64,
            _ => default.max_bytes,
        },
        channel_bytes: match random.chance(70) {
            true => random.within(0..=4_000) as u64,
            false => default.channel_bytes,
        },
    }
}
