//! The one place that reads time. Everything else is handed a [`Clock`].

use std::time::{Duration, Instant};

/// Tells how much time has passed; injected so that tests can stand still.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment of this process; never falls.
    fn elapsed(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of time")]
    pub fn start() -> SystemClock {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
