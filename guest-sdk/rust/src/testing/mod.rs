//! Tests computations natively: a small host for one computation, without WebAssembly.
//!
//! What it does the way the real host does: states and timers last between calls, everything that
//! depends on time happens at watermark steps, timers fire in their order, messages behind the
//! watermark are late, a failing batch has no effects and the verdict is on one item alone. What it
//! leaves out: partitions, epochs, idle inputs, times to live, grants and limits.
//!
//! # Time
//!
//! A watermark `W` of an input says that nothing with an event time before `W` is expected any more.
//! [`advance_watermark`](TestBench::advance_watermark) raises one and is a step:
//!
//! - Due are the event-time timers whose trigger is not after the least watermark of all inputs.
//!   They fire one after the other in the order of trigger, name of the timer stream (as bytes), key.
//! - A timer that a handler sets joins them if it is due and its place, trigger and stream, is behind
//!   that of the timer at hand; otherwise it waits for the next step. So no step goes on for ever.
//! - How many timers come in one call makes no difference, and neither does a timer that is set to fire
//!   between two of them: the call is then cut again.
//!
//! [`advance_clock`](TestBench::advance_clock) does the same for system-time timers, by the bench's
//! clock, which stands at 0 to begin with.
//!
//! [`end_of_input`](TestBench::end_of_input) is what happens when all sources are at their end: every
//! watermark goes to the end of time and the timers that are due fire once; what their handlers set
//! waits for the next run. [`next_run`](TestBench::next_run) begins it: watermarks at 0 again, states
//! and timers as they were left.

mod batch;
mod bench;
mod call;
mod cuts;
mod failure;
mod output;
mod step;
mod timers;

pub use self::bench::TestBench;
pub use self::failure::TestFailure;
pub use self::output::{LateMessage, Log, Output};
pub use self::timers::StandingTimer;
