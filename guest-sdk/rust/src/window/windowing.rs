//! Windows at work: which windows a message opens and changes, when they fire, when they are freed.
//!
//! **Invariant:** everything is decided by the key's windows and the watermark of the last step, so
//! nothing depends on how messages are cut into batches.
//!
//! **Invariant:** each window of the table has its timer set, for its end or later for the end of its
//! lateness, and that timer's trigger is behind the watermark. So every window is freed in the end.

use std::fmt;
use std::time::Duration;

use super::aggregate::Aggregate;
use super::firing::Firing;
use super::interval::{self, Window};
use super::kind::{Assigner, WindowKind};
use super::state::Windows;
use crate::effects::Effects;
use crate::error::{Context, Error, Result};
use crate::message::Message;
use crate::timer::{TimeDomain, Timer, Timers};
use crate::timestamp::{Timestamp, duration_ms};

/// How many windows a key may have at once, unless a computation says otherwise.
const DEFAULT_MAX_OPEN_WINDOWS: usize = 10_000;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message that is too late is in no window: it is for the computation to handle"]
pub enum Placement {
    /// It is in at least one window.
    Placed,
    /// The watermark is behind the end and the allowed lateness of every window that it belongs to. It
    /// changed nothing.
    TooLate,
}

/// Windows over event time: of which kind, what is gathered in them, when they fire.
///
/// It keeps nothing itself: make it in the computation's `new`. What it works on is a keyed state,
/// [`Windows`], and a timer stream that nothing else uses. The [module](crate::window) tells when
/// windows fire and how long they last.
pub struct Windowing<G: Aggregate> {
    pub(super) assigner: Assigner<G>,
    /// The place of its timer stream.
    pub(super) timer: u16,
    pub(super) aggregate: G,
    pub(super) allowed_lateness_ms: u64,
    pub(super) early_every_ms: Option<u64>,
    pub(super) early_after: Option<u32>,
    pub(super) discarding: bool,
    pub(super) max_open_windows: usize,
}

impl<G: Aggregate> Windowing<G> {
    /// Windows that fire once, when the watermark reaches their end, and are freed then.
    ///
    /// # Errors
    ///
    /// When the timer stream does not go by event time.
    #[expect(clippy::needless_pass_by_value, reason = "a timer is named, not lent")]
    pub fn new(kind: impl WindowKind<G>, timer: G::Timers, aggregate: G) -> Result<Windowing<G>> {
        let (name, domain) = G::Timers::DECLARATIONS
            .get(usize::from(timer.index()))
            .context("a timer that is not declared")?;
        if *domain != TimeDomain::EventTime {
            return Err(Error::new(format!(
                "timer {name:?} goes by system time, but windows go by event time: declare it with \
                 #[timer(event_time)]"
            )));
        }
        Ok(Windowing {
            assigner: kind.assigner(),
            timer: timer.index(),
            aggregate,
            allowed_lateness_ms: 0,
            early_every_ms: None,
            early_after: None,
            discarding: false,
            max_open_windows: DEFAULT_MAX_OPEN_WINDOWS,
        })
    }

    /// Keeps each window for that long behind its end (of event time; 0 unless said), so that a message
    /// that comes so late is added to it and fires it at once.
    ///
    /// Where the pipeline sends late messages elsewhere (`late_output`), those that it lets pass are
    /// decided by its own `allowed_lateness`: give it the same.
    #[must_use]
    pub fn allowed_lateness(mut self, lateness: Duration) -> Windowing<G> {
        self.allowed_lateness_ms = duration_ms(lateness);
        self
    }

    /// Lets a window fire before its end: whenever the watermark passes a multiple of `period`, if
    /// messages have come since its last pane. Counted from the start of 1970.
    ///
    /// # Errors
    ///
    /// When the period is less than a millisecond.
    pub fn early_every(mut self, period: Duration) -> Result<Windowing<G>> {
        let period_ms = interval::positive_ms(period, "the period of early firing")?;
        self.early_every_ms = Some(period_ms);
        Ok(self)
    }

    /// Lets a window fire before its end: after each `count` messages since its last pane.
    ///
    /// # Errors
    ///
    /// When the count is 0.
    pub fn early_after(mut self, count: u32) -> Result<Windowing<G>> {
        if count == 0 {
            return Err(Error::new(
                "early firing after 0 messages: it has to be at least 1",
            ));
        }
        self.early_after = Some(count);
        Ok(self)
    }

    /// Lets a window begin to gather anew after each pane, so that the panes of a window add up to it.
    /// Otherwise each pane has all that came so far, and supersedes the one before it.
    #[must_use]
    pub fn discarding(mut self) -> Windowing<G> {
        self.discarding = true;
        self
    }

    /// Refuses a message that would give its key more windows than that at once; 10,000 unless said.
    #[must_use]
    pub fn max_open_windows(mut self, count: usize) -> Windowing<G> {
        self.max_open_windows = count;
        self
    }

    /// Adds the value of a message to the windows that it belongs to by its event time, opens those that
    /// there are not yet, and fires what it makes fire.
    ///
    /// # Errors
    ///
    /// When the aggregate refuses the value, a stored accumulator can't be decoded, or the key has too
    /// many windows.
    pub fn add<I>(
        &self,
        value: &G::Value,
        message: &Message<'_, I>,
        windows: &mut Windows<G::Accumulator>,
        effects: &mut Effects<'_, G::Outputs, G::Timers>,
    ) -> Result<Placement> {
        let moment = message.event_time().as_ms();
        let watermark = message.least_watermark().map_or(0, Timestamp::as_ms);
        let mut firing = Firing::new(self, windows, effects, watermark);
        match &self.assigner {
            Assigner::Tumbling(tumbling) => firing.add(tumbling.window(moment), value),
            Assigner::Sliding(sliding) => {
                let mut placement = Placement::TooLate;
                for window in sliding.windows(moment) {
                    if firing.add(window, value)? == Placement::Placed {
                        placement = Placement::Placed;
                    }
                }
                Ok(placement)
            }
            Assigner::Session(session, merge) => {
                firing.add_merging(session.window(moment), *merge, value)
            }
        }
    }

    /// Does what is due in the key's windows: to be called for every timer of the timer stream that
    /// the windows were given.
    ///
    /// # Errors
    ///
    /// When it is a timer of another stream, the aggregate refuses to emit, or a stored accumulator
    /// can't be decoded.
    pub fn on_timer(
        &self,
        timer: &Timer<'_, G::Timers>,
        windows: &mut Windows<G::Accumulator>,
        effects: &mut Effects<'_, G::Outputs, G::Timers>,
    ) -> Result<()> {
        if timer.stream().index() != self.timer {
            return Err(Error::new(
                "windows were given a timer of another stream than their own",
            ));
        }
        let watermark = timer.watermark().map_or(0, Timestamp::as_ms);
        Firing::new(self, windows, effects, watermark).timer(timer.trigger_time().as_ms())
    }

    /// The moment at which a window's state is freed.
    pub(super) fn freed_at(&self, window: Window) -> u64 {
        (window.end().as_ms()).saturating_add(self.allowed_lateness_ms)
    }
}

impl<G: Aggregate> fmt::Debug for Windowing<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Windowing");
        match &self.assigner {
            Assigner::Tumbling(tumbling) => debug.field("kind", tumbling),
            Assigner::Sliding(sliding) => debug.field("kind", sliding),
            Assigner::Session(session, _) => debug.field("kind", session),
        };
        debug
            .field("allowed_lateness_ms", &self.allowed_lateness_ms)
            .field("early_every_ms", &self.early_every_ms)
            .field("early_after", &self.early_after)
            .field("discarding", &self.discarding)
            .finish_non_exhaustive()
    }
}
