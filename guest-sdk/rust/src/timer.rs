//! The timer streams that a computation declares, and a timer that is due.

use crate::error::{Context, Result};
use crate::timestamp::Timestamp;

/// The clock that a timer stream goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeDomain {
    /// The event watermark of the computation's inputs: fires once it has reached a moment.
    EventTime,
    /// The clock of the host: fires a while after it was set. Such timers are outside of what event time
    /// decides, so results that depend on them differ from run to run.
    SystemTime,
}

/// Declared timer streams: an enum without fields, made by `#[derive(Timers)]`.
///
/// A timer stream's name is its variant's in snake case, or what `#[timer(name = "...")]` says. It
/// goes by event time, or with `#[timer(system_time)]` by the host's clock.
///
/// ```
/// use tidelock_guest::{TimeDomain, Timers};
///
/// #[derive(Timers)]
/// enum Alarms {
///     Quiet,
///     #[timer(system_time)]
///     Flush,
/// }
///
/// assert_eq!(
///     Alarms::DECLARATIONS,
///     [("quiet", TimeDomain::EventTime), ("flush", TimeDomain::SystemTime)]
/// );
/// ```
pub trait Timers: Sized + 'static {
    /// Their names and clocks, in the order of the variants.
    const DECLARATIONS: &'static [(&'static str, TimeDomain)];

    /// The timer stream with that place among the declarations.
    fn from_index(index: usize) -> Option<Self>;

    /// The timer stream's place among the declarations.
    fn index(&self) -> u16;
}

/// No timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTimers {}

impl Timers for NoTimers {
    const DECLARATIONS: &'static [(&'static str, TimeDomain)] = &[];

    fn from_index(_index: usize) -> Option<NoTimers> {
        None
    }

    fn index(&self) -> u16 {
        match *self {}
    }
}

/// A timer that is due. `T` is the enum of the computation's timer streams.
#[derive(Debug)]
pub struct Timer<'a, T> {
    pub(crate) stream: T,
    pub(crate) key: &'a [u8],
    pub(crate) trigger_time: Timestamp,
    pub(crate) event_time: Timestamp,
    pub(crate) watermarks: &'a [u64],
}

impl<'a, T> Timer<'a, T> {
    /// Its timer stream.
    pub fn stream(&self) -> &T {
        &self.stream
    }

    /// The key that it was set for.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The key as text.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8.
    pub fn key_text(&self) -> Result<&'a str> {
        std::str::from_utf8(self.key).context("the timer's key")
    }

    /// The moment that it was set for; of a system-time timer, the moment that it was due.
    pub fn trigger_time(&self) -> Timestamp {
        self.trigger_time
    }

    /// The event time that it was set with.
    pub fn event_time(&self) -> Timestamp {
        self.event_time
    }

    /// The least watermark of the computation's inputs: nothing older is expected. At the end of a run
    /// it is [`Timestamp::MAX`].
    pub fn watermark(&self) -> Option<Timestamp> {
        self.watermarks.iter().min().copied().map(Timestamp)
    }
}
