//! Windows that last as long as messages keep coming.

use std::time::Duration;

use super::interval::{self, Window};
use crate::error::Result;

/// A window for each stretch of activity of a key: it ends once no message has come for a gap.
///
/// Messages whose event times are less than a gap apart are in one session. It begins with the first
/// one and ends a gap after the last one, so a message that lies between two sessions can make one of
/// them: their accumulators are [merged](super::Merge), and their panes are counted on. What was
/// emitted for a session that grew since is superseded by what comes: the later pane's window covers
/// the earlier one's.
///
/// How many messages each visit has:
///
/// ```
/// use std::time::Duration;
///
/// use tidelock_guest::prelude::*;
/// use tidelock_guest::window::{Aggregate, Merge, Pane, Placement, Session, Windowing, Windows};
///
/// #[derive(Streams)]
/// pub enum Inputs { Clicks }
///
/// #[derive(Streams)]
/// pub enum Outputs { Visits }
///
/// #[derive(Timers)]
/// pub enum Alarms { Silence }
///
/// #[derive(State)]
/// pub struct Keyed { visits: Windows<u64> }
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
///         let window = pane.window();
///         let visit = (pane.key_text()?, window.start().as_ms(), window.end().as_ms(), pane.accumulator());
///         effects.emit(Outputs::Visits).json(&visit)
///     }
/// }
///
/// impl Merge for Count {
///     fn merge(&self, count: &mut u64, later: u64) -> Result<()> {
///         *count += later;
///         Ok(())
///     }
/// }
///
/// pub struct CountVisits { visits: Windowing<Count> }
///
/// impl Transform for CountVisits {
///     type Parameters = NoParameters;
///     type Inputs = Inputs;
///     type Outputs = Outputs;
///     type Timers = Alarms;
///     type State = Keyed;
///
///     fn new(_: NoParameters) -> Result<CountVisits> {
///         let visit = Session::new(Duration::from_millis(30))?;
///         let visits = Windowing::new(visit, Alarms::Silence, Count)?
///             .allowed_lateness(Duration::from_millis(100));
///         Ok(CountVisits { visits })
///     }
///
///     fn on_message(
///         &self,
///         message: &Message<Inputs>,
///         state: &mut Keyed,
///         effects: &mut Effects<Outputs, Alarms>,
///     ) -> Result<()> {
///         let placement = self.visits.add(&(), message, &mut state.visits, effects)?;
///         if placement == Placement::TooLate {
///             bail!("a click of {} comes too late", message.event_time());
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
///         self.visits.on_timer(timer, &mut state.visits, effects)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// // And its test.
/// use tidelock_guest::testing::TestBench;
///
/// let mut bench = TestBench::<CountVisits>::new("{}")?;
/// for ms in [100, 110, 150] {
///     bench.send("clicks", "anna", Timestamp(ms), "");
/// }
/// bench.advance_watermark("clicks", Timestamp(180))?;
/// assert_eq!(
///     bench.payloads("visits"),
///     [r#"["anna",100,140,2]"#, r#"["anna",150,180,1]"#]
/// );
/// // It bridges the two.
/// bench.send("clicks", "anna", Timestamp(135), "");
/// bench.run()?;
/// assert_eq!(bench.payloads("visits")[2..], [r#"["anna",100,180,4]"#]);
/// # Ok(())
/// # }
/// ```
///
/// Sessions of what can't be merged do not compile:
///
/// ```compile_fail,E0277
/// # use std::time::Duration;
/// # use tidelock_guest::prelude::*;
/// # use tidelock_guest::window::{Aggregate, Pane, Session, Windowing};
/// # #[derive(Timers)] pub enum Alarms { Silence }
/// struct Unmergeable;
///
/// impl Aggregate for Unmergeable {
///     type Value = ();
///     type Accumulator = u64;
///     type Outputs = NoStreams;
///     type Timers = Alarms;
///
///     fn add(&self, _: &mut u64, _: &()) -> Result<()> { Ok(()) }
///     fn emit(&self, _: &Pane<u64>, _: &mut Effects<NoStreams, Alarms>) -> Result<()> { Ok(()) }
/// }
///
/// # fn main() -> Result<()> {
/// let minute = Session::new(Duration::from_secs(60))?;
/// Windowing::new(minute, Alarms::Silence, Unmergeable)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    gap_ms: u64,
}

impl Session {
    /// Sessions that end once no message has come for this long, in whole milliseconds.
    ///
    /// # Errors
    ///
    /// When it is less than a millisecond.
    pub fn new(gap: Duration) -> Result<Session> {
        Ok(Session {
            gap_ms: interval::positive_ms(gap, "the gap between sessions")?,
        })
    }

    /// The session of a message alone.
    pub(super) fn window(self, moment: u64) -> Window {
        Window::new(moment, moment.saturating_add(self.gap_ms))
    }
}
