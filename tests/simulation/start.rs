//! How a worker starts: what the pipeline's registration says, and the bounds that it keeps.

use tidelock::storage::leases;
use tidelock::types::pipeline::LaneLimits;

use crate::checkers::Finding;
use crate::deployment::Deployment;
use crate::random::Random;
use crate::record_source::SourceLength;
use crate::worker::{JobStage, SimulatedWorker};
use crate::world::{World, progress};

impl World<'_> {
    /// A new worker takes over: finds the pipeline registered, announces every job, opens none yet.
    pub(crate) fn start_worker(&mut self) -> Result<(), Finding> {
        self.sources.values().for_each(SourceLength::forget_end);
        self.register()?;
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

    /// Ends all leases and finds the pipeline as it was registered.
    fn register(&mut self) -> Result<(), Finding> {
        leases::end_all(&*self.storage)
            .map_err(|error| progress(format!("leases can't be ended: {error}")))?;
        self.deployment = Deployment::register(&self.graph, &*self.storage)
            .map_err(|error| progress(format!("the pipeline can't be registered: {error}")))?;
        let changes = self.deployment.changes();
        if !changes.is_empty() {
            return Err(progress(format!("the pipeline has changed: {changes:?}")));
        }
        self.places = self.deployment.places(&self.graph);
        for shape in 0..self.graph.shapes.len() {
            let layout = self.deployment.layout(&self.graph, shape);
            self.layouts.follow(shape, layout);
        }
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
