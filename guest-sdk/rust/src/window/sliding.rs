//! Windows that begin more often than they end: each moment is in several.

use std::time::Duration;

use super::interval::{self, Window};
use crate::error::{Error, Result};
use crate::timestamp::duration_ms;

/// How many windows a message may be in: as each of them is changed by it.
const MAX_WINDOWS_PER_MESSAGE: u64 = 1000;

/// Windows of one size, of which one begins every period: the last hour, told every ten minutes.
///
/// They begin at 1970-01-01T00:00:00Z and at every multiple of the period before and after it, moved by
/// an [`offset`](Sliding::offset). A message changes each of its windows, `size / period` rounded up, so
/// it costs as many times what it costs with [`Tumbling`](super::Tumbling).
///
/// How many legs departed in the last hour, every half hour, and a first word on it after ten minutes:
///
/// ```
/// use std::time::Duration;
///
/// use tidelock_guest::prelude::*;
/// use tidelock_guest::window::{Aggregate, Pane, Placement, Sliding, Windowing, Windows};
///
/// #[derive(Streams)]
/// pub enum Inputs { Legs }
///
/// #[derive(Streams)]
/// pub enum Outputs { Counts }
///
/// #[derive(Timers)]
/// pub enum Alarms { LastHour }
///
/// #[derive(State)]
/// pub struct Keyed { last_hour: Windows<u64> }
///
/// struct Count;
///
/// impl Aggregate for Count {
///     type Value = ();
///     type Accumulator = u64;
///     type Outputs = Outputs;
///     type Timers = Alarms;
///
///     fn add(&self, count: &mut u64, _: &()) -> Result<()> {
///         *count += 1;
///         Ok(())
///     }
///
///     fn emit(&self, pane: &Pane<u64>, effects: &mut Effects<Outputs, Alarms>) -> Result<()> {
///         let minute = pane.window().end().as_ms() / 60_000;
///         let text = format!("up to minute {minute}: {} {:?}", pane.accumulator(), pane.timing());
///         effects.emit(Outputs::Counts).bytes(text);
///         Ok(())
///     }
/// }
///
/// pub struct Departures { last_hour: Windowing<Count> }
///
/// impl Transform for Departures {
///     type Parameters = NoParameters;
///     type Inputs = Inputs;
///     type Outputs = Outputs;
///     type Timers = Alarms;
///     type State = Keyed;
///
///     fn new(_: NoParameters) -> Result<Departures> {
///         let last_hour = Sliding::new(Duration::from_secs(3600), Duration::from_secs(1800))?;
///         let last_hour = Windowing::new(last_hour, Alarms::LastHour, Count)?
///             .early_every(Duration::from_secs(600))?;
///         Ok(Departures { last_hour })
///     }
///
///     fn on_message(
///         &self,
///         message: &Message<Inputs>,
///         state: &mut Keyed,
///         effects: &mut Effects<Outputs, Alarms>,
///     ) -> Result<()> {
///         let placement = self.last_hour.add(&(), message, &mut state.last_hour, effects)?;
///         if placement == Placement::TooLate {
///             effects.warn(format!("a leg of {} is too late", message.event_time()));
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
///         self.last_hour.on_timer(timer, &mut state.last_hour, effects)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// // And its test.
/// use tidelock_guest::testing::TestBench;
///
/// let minute = |minute: u64| Timestamp(minute * 60_000);
/// let mut bench = TestBench::<Departures>::new("{}")?;
/// bench.advance_watermark("legs", minute(60))?;
/// bench.send("legs", "EWR", minute(65), "");
/// bench.advance_watermark("legs", minute(70))?;
/// assert_eq!(
///     bench.payloads("counts"),
///     ["up to minute 90: 1 Early", "up to minute 120: 1 Early"]
/// );
/// bench.send("legs", "EWR", minute(95), "");
/// bench.advance_watermark("legs", minute(95))?;
/// bench.end_of_input()?;
/// assert_eq!(
///     bench.payloads("counts")[2..],
///     [
///         "up to minute 120: 2 Early",
///         "up to minute 150: 1 Early",
///         "up to minute 90: 1 OnTime",
///         "up to minute 120: 2 OnTime",
///         "up to minute 150: 1 OnTime",
///     ]
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sliding {
    size_ms: u64,
    period_ms: u64,
    offset_ms: u64,
}

impl Sliding {
    /// Windows of this size, one beginning every period, both in whole milliseconds.
    ///
    /// # Errors
    ///
    /// When the period is less than a millisecond or longer than the size, which would leave messages
    /// without a window, or so short that a message would be in more than 1,000 windows.
    pub fn new(size: Duration, period: Duration) -> Result<Sliding> {
        let size_ms = interval::positive_ms(size, "the size of a sliding window")?;
        let period_ms = interval::positive_ms(period, "the period of a sliding window")?;
        if period_ms > size_ms {
            return Err(Error::new(format!(
                "sliding windows of {size:?} that begin every {period:?} leave gaps: choose a period that \
                 is no longer than the size"
            )));
        }
        if size_ms.div_ceil(period_ms) > MAX_WINDOWS_PER_MESSAGE {
            return Err(Error::new(format!(
                "with sliding windows of {size:?} that begin every {period:?} a message is in more than \
                 {MAX_WINDOWS_PER_MESSAGE} of them: choose a longer period"
            )));
        }
        Ok(Sliding {
            size_ms,
            period_ms,
            offset_ms: 0,
        })
    }

    /// Lets each window begin that much later.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Sliding {
        self.offset_ms = duration_ms(offset) % self.period_ms;
        self
    }

    /// The windows of a moment, in the order in which they end.
    pub(super) fn windows(self, moment: u64) -> impl Iterator<Item = Window> {
        let into = interval::since_start(moment, self.period_ms, self.offset_ms);
        // The last one begins `into` before the moment, each one before it a period earlier, as long as
        // it still reaches the moment.
        let earlier = (self.size_ms - 1 - into) / self.period_ms;
        (0..=earlier).rev().map(move |earlier| {
            let into = into + earlier * self.period_ms;
            let end = moment.saturating_add(self.size_ms - into);
            Window::new(moment.saturating_sub(into), end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliding(size_ms: u64, period_ms: u64) -> Result<Sliding> {
        Sliding::new(
            Duration::from_millis(size_ms),
            Duration::from_millis(period_ms),
        )
    }

    #[test]
    fn a_moment_is_in_every_window_that_covers_it() {
        for (size, period, offset) in [(10, 5, 0), (10, 3, 0), (10, 10, 4), (7, 2, 1), (1, 1, 0)] {
            let windows = sliding(size, period)
                .expect("they fit")
                .offset(Duration::from_millis(offset));
            for moment in 0..50 {
                // Beginnings before 1970 are counted by a shift of whole periods.
                let shift = size.next_multiple_of(period);
                let expected: Vec<Window> = (0..=moment + shift)
                    .filter(|begin| begin % period == offset)
                    .filter(|begin| (*begin..begin + size).contains(&(moment + shift)))
                    .map(|begin| Window::new(begin.saturating_sub(shift), begin + size - shift))
                    .collect();
                let found: Vec<Window> = windows.windows(moment).collect();
                assert_eq!(found, expected, "{windows:?} at {moment}");
            }
        }
    }

    #[test]
    fn windows_with_gaps_and_too_many_windows_are_refused() {
        let refused = |size, period| sliding(size, period).expect_err("refused").to_string();
        assert!(refused(10, 11).contains("leave gaps"));
        assert!(refused(1001, 1).contains("more than 1000"));
        assert!(refused(10, 0).contains("at least 1 ms"));
        assert!(sliding(1000, 1).is_ok());
        let huge = Sliding::new(Duration::MAX, Duration::MAX).expect("one window");
        assert_eq!(huge.windows(u64::MAX).count(), 1);
    }
}
