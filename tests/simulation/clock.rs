//! The clock of a simulated machine: it stands still within a step of a job, so that what an epoch
//! read of it is known, and goes on between two steps, now and then backwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidelock::clock::Clock;
use tidelock::types::batch::Timestamp;

use crate::random::Random;

/// When the first run begins.
const START_MS: u64 = 100;

/// A clock that the world sets.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    now: AtomicU64,
    /// How much has passed; never falls.
    elapsed: AtomicU64,
}

impl Default for SimulatedClock {
    fn default() -> SimulatedClock {
        SimulatedClock {
            now: AtomicU64::new(START_MS),
            elapsed: AtomicU64::new(0),
        }
    }
}

impl SimulatedClock {
    /// Some time passes, or somebody sets the clock back. True in the latter case.
    pub(crate) fn pass(&self, random: &mut Random) -> bool {
        let now = self.now();
        let is_set_back = random.chance(3);
        let then = match is_set_back {
            true => now.saturating_sub(random.within(1..=40) as u64),
            false => {
                let passed = random.within(0..=3) as u64;
                self.elapsed.fetch_add(passed, Ordering::Relaxed);
                now + passed
            }
        };
        self.now.store(then, Ordering::Relaxed);
        is_set_back
    }
}

impl Clock for SimulatedClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed.load(Ordering::Relaxed))
    }

    fn now(&self) -> Timestamp {
        self.now.load(Ordering::Relaxed)
    }
}
