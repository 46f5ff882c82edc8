//! What is gathered in a window, and what is emitted for it.

use super::pane::Pane;
use crate::effects::Effects;
use crate::error::Result;
use crate::stream::Streams;
use crate::timer::Timers;

/// What an author decides about windows: what is gathered, how a message is added, what is emitted.
pub trait Aggregate {
    /// What is added to a window for a message: what was read from its payload.
    type Value: ?Sized;
    /// What is kept for each window of each key. It begins as the default.
    type Accumulator: Default;
    /// The output streams of the computation.
    type Outputs: Streams;
    /// The timer streams of the computation.
    type Timers: Timers;

    /// Adds the value of a message to a window.
    ///
    /// # Errors
    ///
    /// When it can't be added; the message has failed then.
    fn add(&self, accumulator: &mut Self::Accumulator, value: &Self::Value) -> Result<()>;

    /// Emits the result of a window, at a firing.
    ///
    /// Messages emitted here have the key of the window and its last millisecond as their event time
    /// unless they are given others. So results on time are not late for those who read them.
    ///
    /// # Errors
    ///
    /// When there is no result; the message or timer that fired has failed then.
    fn emit(
        &self,
        pane: &Pane<'_, Self::Accumulator>,
        effects: &mut Effects<'_, Self::Outputs, Self::Timers>,
    ) -> Result<()>;
}

/// An [`Aggregate`] for [`Session`](super::Session)s, which can become one.
pub trait Merge: Aggregate {
    /// Adds to a session what was gathered in a later one that is one with it now.
    ///
    /// # Errors
    ///
    /// When they can't be merged; the message that bridged them has failed then.
    fn merge(&self, accumulator: &mut Self::Accumulator, later: Self::Accumulator) -> Result<()>;
}
