//! Windows side by side: each moment is in exactly one.

use std::time::Duration;

use super::interval::{self, Window};
use crate::error::Result;
use crate::timestamp::duration_ms;

/// Windows of one size side by side: hours, days.
///
/// They begin at 1970-01-01T00:00:00Z and at every multiple of their size after it, moved by an
/// [`offset`](Tumbling::offset).
///
/// The greatest delay of each hour:
///
/// ```
/// use std::time::Duration;
///
/// use tidelock_guest::prelude::*;
/// use tidelock_guest::window::{Aggregate, Pane, Placement, Tumbling, Windowing, Windows};
///
/// #[derive(Streams)]
/// pub enum Inputs { Delays }
///
/// #[derive(Streams)]
/// pub enum Outputs { Worst, TooLate }
///
/// #[derive(Timers)]
/// pub enum Alarms { Hours }
///
/// #[derive(State)]
/// pub struct Keyed { hours: Windows<i32> }
///
/// struct Worst;
///
/// impl Aggregate for Worst {
///     type Value = i32;
///     type Accumulator = i32;
///     type Outputs = Outputs;
///     type Timers = Alarms;
///
///     fn add(&self, worst: &mut i32, minutes: &i32) -> Result<()> {
///         *worst = (*worst).max(*minutes);
///         Ok(())
///     }
///
///     fn emit(&self, pane: &Pane<i32>, effects: &mut Effects<Outputs, Alarms>) -> Result<()> {
///         let text = format!("{} {} {}", pane.key_text()?, pane.window().start(), pane.accumulator());
///         effects.emit(Outputs::Worst).bytes(text);
///         Ok(())
///     }
/// }
///
/// pub struct HourlyWorst { hours: Windowing<Worst> }
///
/// impl Transform for HourlyWorst {
///     type Parameters = NoParameters;
///     type Inputs = Inputs;
///     type Outputs = Outputs;
///     type Timers = Alarms;
///     type State = Keyed;
///
///     fn new(_: NoParameters) -> Result<HourlyWorst> {
///         let hour = Tumbling::new(Duration::from_secs(3600))?;
///         Ok(HourlyWorst { hours: Windowing::new(hour, Alarms::Hours, Worst)? })
///     }
///
///     fn on_message(
///         &self,
///         message: &Message<Inputs>,
///         state: &mut Keyed,
///         effects: &mut Effects<Outputs, Alarms>,
///     ) -> Result<()> {
///         match self.hours.add(&message.json()?, message, &mut state.hours, effects)? {
///             Placement::Placed => {}
///             Placement::TooLate => effects.emit(Outputs::TooLate).bytes(message.payload()),
///         }
///         Ok(())
///     }
///
///     fn on_timer(
///         &self,
///         timer: &Timer<Alarms>,
///         state: &mut Keyed,
///         effects: &mut Effects<Outputs, Alarms>,
///     ) -> Result<()> {
///         self.hours.on_timer(timer, &mut state.hours, effects)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// // And its test.
/// use tidelock_guest::testing::TestBench;
///
/// let at = |text: &str| text.parse::<Timestamp>().expect("a time");
/// let mut bench = TestBench::<HourlyWorst>::new("{}")?;
/// bench.send("delays", "EWR", at("2013-01-01T10:20:00Z"), "12");
/// bench.send("delays", "EWR", at("2013-01-01T10:50:00Z"), "7");
/// bench.advance_watermark("delays", at("2013-01-01T11:00:00Z"))?;
/// assert_eq!(bench.payloads("worst"), ["EWR 2013-01-01T10:00:00Z 12"]);
///
/// bench.send("delays", "EWR", at("2013-01-01T10:59:00Z"), "90");
/// bench.run()?;
/// assert_eq!(bench.payloads("too_late"), ["90"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tumbling {
    size_ms: u64,
    offset_ms: u64,
}

impl Tumbling {
    /// Windows of this size, in whole milliseconds.
    ///
    /// # Errors
    ///
    /// When it is less than a millisecond.
    pub fn new(size: Duration) -> Result<Tumbling> {
        Ok(Tumbling {
            size_ms: interval::positive_ms(size, "the size of a tumbling window")?,
            offset_ms: 0,
        })
    }

    /// Lets each window begin that much later: with a size of a day and an offset of 5 hours, days
    /// begin at 05:00 UTC.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Tumbling {
        self.offset_ms = duration_ms(offset) % self.size_ms;
        self
    }

    /// The window of a moment.
    pub(super) fn window(self, moment: u64) -> Window {
        interval::aligned(moment, self.size_ms, self.offset_ms)
    }
}
