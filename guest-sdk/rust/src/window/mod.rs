//! Windows over event time, ready-made: hours, the last hour every ten minutes, visits.
//!
//! An author names the kind of window ([`Tumbling`], [`Sliding`], [`Session`]), and by an
//! [`Aggregate`] what is gathered in one, how a message is added and what is emitted. A [`Windowing`]
//! does the rest, over a keyed state ([`Windows`]) and a timer stream of the computation that nothing
//! else uses. Each kind has a complete example.
//!
//! # When a window fires
//!
//! By the least watermark of the computation's inputs. Each firing is a [`Pane`], which says whether it
//! is early, on time or late, and its number within the window.
//!
//! - **On time**, once, when the watermark reaches the window's end.
//! - **Early**, if that is asked for: whenever the watermark passes a multiple of a period
//!   ([`early_every`](Windowing::early_every)), after so many messages
//!   ([`early_after`](Windowing::early_after)), or both; always only if messages have come since the
//!   last pane. An early pane whose moment comes in the same step as the window's end is left out.
//! - **Late**, at once, for each message that comes behind the window's end, within
//!   [`allowed_lateness`](Windowing::allowed_lateness).
//!
//! A pane has all that was gathered since the window began, and supersedes the one before it; or, with
//! [`discarding`](Windowing::discarding), what came since the pane before.
//!
//! What is emitted has the window's last millisecond as its event time. Results early and on time are
//! not late for those who read them; a late result is behind the watermark that they have, and so needs
//! lateness there too.
//!
//! # How long a window lasts
//!
//! Until the watermark reaches its end plus the allowed lateness: then its state is freed, by a timer.
//! A message that comes later still is in no window: [`Windowing::add`] hands it back as
//! [`Placement::TooLate`]. In sliding windows a message that is too late for some of its windows is in the
//! others alone.
//!
//! When a run ends, the watermark goes to the end of time: all windows fire and are freed, and neither
//! state nor timers are left. In the next run the same stretch of time begins with a new window.
//!
//! An event time of 0 (none) is a moment like any other here: it is in a window at the start of 1970.
//!
//! # What it costs
//!
//! A message changes one accumulator for each of its windows. The timer of a window is set when the
//! window is opened, not with each message; that of a session moves when it fires, so at most once for
//! each gap; one of an early pane is set with the first message after a pane. All windows of a key are
//! one value of its state: see [`Windows`].

mod aggregate;
mod firing;
mod interval;
mod kind;
mod pane;
mod session;
mod sliding;
mod state;
mod table;
mod tumbling;
mod windowing;

pub use self::aggregate::{Aggregate, Merge};
pub use self::interval::Window;
pub use self::kind::WindowKind;
pub use self::pane::{Pane, Timing};
pub use self::session::Session;
pub use self::sliding::Sliding;
pub use self::state::Windows;
pub use self::tumbling::Tumbling;
pub use self::windowing::{Placement, Windowing};
