//! The one place that reads time. Everything else is handed a [`Clock`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::types::batch::Timestamp;

/// Tells how much time has passed; injected so that tests can stand still.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment of this process; never falls.
    fn elapsed(&self) -> Duration;

    /// The time of day, in milliseconds since the Unix epoch. May be set back.
    fn now(&self) -> Timestamp;
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

    #[expect(clippy::disallowed_methods, reason = "this is the one reader of time")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A machine that believes in a time before 1970 has no better answer.
        since.map_or(0, |since| since.as_millis() as Timestamp)
    }
}
