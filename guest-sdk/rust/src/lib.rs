//! Write a Tidelock computation in Rust.
//!
//! A computation is a struct that implements [`Map`] or [`Transform`] and is exported with
//! [`export!`]. It declares the streams that it reads and writes, its keyed state and its timers as
//! types, so that a name that was not declared does not compile. It is compiled to a WebAssembly
//! component by `cargo build --target wasm32-wasip2` in a crate with `crate-type = ["cdylib",
//! "rlib"]`, and tested natively, without WebAssembly, on the [`testing::TestBench`].
//!
//! This one counts the messages of each key:
//!
//! ```
//! use tidelock_guest::prelude::*;
//!
//! #[derive(Streams)]
//! pub enum Inputs { Words }
//!
//! #[derive(Streams)]
//! pub enum Outputs { Counts }
//!
//! #[derive(State)]
//! pub struct Keyed { count: Value<u64> }
//!
//! pub struct CountWords;
//!
//! impl Transform for CountWords {
//!     type Parameters = NoParameters;
//!     type Inputs = Inputs;
//!     type Outputs = Outputs;
//!     type Timers = NoTimers;
//!     type State = Keyed;
//!
//!     fn new(_: NoParameters) -> Result<Self> { Ok(CountWords) }
//!
//!     fn on_message(&self, _: &Message<Inputs>, state: &mut Keyed, effects: &mut Effects<Outputs>) -> Result<()> {
//!         let count = state.count.get_or_default()?;
//!         *count += 1;
//!         effects.emit(Outputs::Counts).json(count)
//!     }
//! }
//!
//! export!(CountWords);
//! # fn main() -> Result<()> {
//! # let mut bench = tidelock_guest::testing::TestBench::<CountWords>::new("{}")?;
//! # for word in ["tide", "lock", "tide"] {
//! #     bench.send("words", word, Timestamp(0), "");
//! # }
//! # bench.run()?;
//! # assert_eq!(bench.payloads("counts"), ["1", "1", "2"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Parameters, timers, logs, and a test
//!
//! This one keeps the mean delay of each key, warns of great ones, and forgets a key after a day of
//! silence:
//!
//! ```
//! use std::time::Duration;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_guest::prelude::*;
//!
//! #[derive(Deserialize)]
//! pub struct Parameters {
//!     alert_minutes: i64,
//! }
//!
//! #[derive(Streams)]
//! pub enum Inputs {
//!     Delays,
//! }
//!
//! #[derive(Streams)]
//! pub enum Outputs {
//!     Means,
//!     Alerts,
//! }
//!
//! #[derive(Timers)]
//! pub enum Alarms {
//!     Silence,
//! }
//!
//! #[derive(Default, Serialize, Deserialize)]
//! pub struct Totals {
//!     count: i64,
//!     minutes: i64,
//!     silent_at: Timestamp,
//! }
//!
//! #[derive(State)]
//! pub struct Keyed {
//!     #[state(version = 1, codec = Postcard)]
//!     totals: Value<Totals>,
//! }
//!
//! pub struct MeanDelay {
//!     parameters: Parameters,
//! }
//!
//! impl Transform for MeanDelay {
//!     type Parameters = Parameters;
//!     type Inputs = Inputs;
//!     type Outputs = Outputs;
//!     type Timers = Alarms;
//!     type State = Keyed;
//!
//!     fn new(parameters: Parameters) -> Result<MeanDelay> {
//!         Ok(MeanDelay { parameters })
//!     }
//!
//!     fn on_message(
//!         &self,
//!         message: &Message<Inputs>,
//!         state: &mut Keyed,
//!         effects: &mut Effects<Outputs, Alarms>,
//!     ) -> Result<()> {
//!         let minutes: i64 = message.json()?;
//!         let totals = state.totals.get_or_default()?;
//!         totals.count += 1;
//!         totals.minutes += minutes;
//!         effects.emit(Outputs::Means).json(&(totals.minutes / totals.count))?;
//!         if minutes > self.parameters.alert_minutes {
//!             effects.warn(format!("{} minutes", minutes));
//!             effects.emit(Outputs::Alerts).json(&minutes)?;
//!         }
//!         effects.timer(Alarms::Silence).cancel_at(totals.silent_at)?;
//!         totals.silent_at = message.event_time() + Duration::from_secs(86_400);
//!         effects.timer(Alarms::Silence).set_at(totals.silent_at)
//!     }
//!
//!     fn on_timer(
//!         &self,
//!         timer: &Timer<Alarms>,
//!         state: &mut Keyed,
//!         effects: &mut Effects<Outputs, Alarms>,
//!     ) -> Result<()> {
//!         state.totals.clear();
//!         effects.info(format!("{} fell silent", timer.key_text()?));
//!         Ok(())
//!     }
//! }
//!
//! export!(MeanDelay);
//!
//! # fn main() -> Result<()> {
//! // And its test.
//! use tidelock_guest::testing::TestBench;
//!
//! let mut bench = TestBench::<MeanDelay>::new(r#"{"alert_minutes": 180}"#)?;
//! bench.send("delays", "UA@EWR", Timestamp(0), "10");
//! bench.send("delays", "UA@EWR", Timestamp(60_000), "200");
//! bench.run()?;
//! assert_eq!(bench.payloads("means"), ["10", "105"]);
//! assert_eq!(bench.payloads("alerts"), ["200"]);
//!
//! bench.advance_watermark("delays", Timestamp(60_000) + Duration::from_secs(86_400))?;
//! assert_eq!(bench.state_bytes("totals", "UA@EWR"), None);
//! assert_eq!(bench.logs()[1].text, "UA@EWR fell silent");
//! # Ok(())
//! # }
//! ```
//!
//! A map that makes one message of several is a [`BatchMap`], which the pipeline has to allow.
//!
//! What is gathered for stretches of time needs no timers of its own: [`window`] has tumbling, sliding and
//! session windows.
//!
//! A stream that is not declared does not compile:
//!
//! ```compile_fail,E0599
//! use tidelock_guest::prelude::*;
//!
//! #[derive(Streams)]
//! pub enum Outputs { Counts }
//!
//! pub fn misspelt<I: Streams>(message: &Message<I>, effects: &mut Effects<Outputs>) {
//!     effects.emit(Outputs::Count).bytes(message.payload());
//! }
//! ```
//!
//! # What keeps results right
//!
//! A component sees nothing but its input: no clock, no random numbers, no file. It must also not
//! matter how the host cuts the sequence of messages into batches. Handlers get `&self`, so nothing
//! lasts but the declared state, and what depends on time happens at watermark steps alone, which no batch
//! reaches across; [`testing::TestBench::assert_cuts_agree`] tries a computation under many cuts. A standard `HashMap` asks for random numbers and makes a component one that the host
//! refuses: use a `BTreeMap` or [`FixedMap`].
//!
//! # When something goes wrong
//!
//! Handlers return [`Result`]: `?` turns any [`std::error::Error`] into an [`Error`], [`Context`]
//! puts words in front, [`bail!`] makes one. The host gets the text with the item that was being
//! handled, and applies the pipeline's policy to that item. A panic does the same, with the panic's
//! text and a backtrace.

// The derives name this crate by its name, also in its own tests.
extern crate self as tidelock_guest;

mod batch_map;
#[allow(
    missing_docs,
    missing_debug_implementations,
    unsafe_code,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "made by wit-bindgen: the one place where memory crosses the boundary"
)]
#[doc(hidden)]
pub mod bindings;
mod codec;
mod column;
mod computation;
mod effects;
mod error;
mod hash;
mod message;
mod parameters;
mod state;
mod stream;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod timer;
mod timestamp;
pub mod window;

pub use crate::batch_map::{BatchEffects, BatchEmission, BatchMap};
pub use crate::codec::{Bytes, Codec, Json, Postcard};
pub use crate::computation::{Computation, Map, Transform};
pub use crate::effects::{Effects, Emission, Level, TimerEffect};
pub use crate::error::{Context, Error, Result};
pub use crate::hash::{FixedHasher, FixedMap, FixedSet};
pub use crate::message::Message;
pub use crate::parameters::NoParameters;
pub use crate::state::{NoState, State, Value};
pub use crate::stream::{NoStreams, Streams};
pub use crate::timer::{NoTimers, TimeDomain, Timer, Timers};
pub use crate::timestamp::{Timestamp, TimestampError};
pub use tidelock_guest_derive::{State, Streams, Timers};

/// What nearly every computation names.
pub mod prelude {
    pub use crate::{
        Bytes, Context, Effects, Error, Json, Map, Message, NoParameters, NoState, NoStreams,
        NoTimers, Postcard, Result, State, Streams, Timer, Timers, Timestamp, Transform, Value,
        bail, export,
    };
}

/// What the macros need; no part of the API.
#[doc(hidden)]
pub mod __private {
    pub use crate::bindings::{
        Batch, Description, Effects, Failure, Guest, StateColumn, StateDeclaration,
    };
    use crate::computation::Computation;

    pub fn describe<C: Computation<K>, K>() -> Description {
        C::describe()
    }

    pub fn process<C: Computation<K>, K>(
        parameters: &str,
        batch: Batch,
    ) -> Result<Effects, Failure> {
        C::process(parameters, batch)
    }
}

/// Makes a [`Map`], a [`Transform`] or a [`BatchMap`] the computation of this component: `export!(MyComputation);`.
///
/// A component has one computation. In a native build it exports nothing and only checks that the
/// type is a computation.
#[macro_export]
macro_rules! export {
    ($computation:ty) => {
        const _: () = {
            struct Component;

            impl $crate::__private::Guest for Component {
                fn describe() -> $crate::__private::Description {
                    $crate::__private::describe::<$computation, _>()
                }

                fn process(
                    parameters: ::std::string::String,
                    batch: $crate::__private::Batch,
                ) -> ::core::result::Result<$crate::__private::Effects, $crate::__private::Failure>
                {
                    $crate::__private::process::<$computation, _>(&parameters, batch)
                }
            }

            #[cfg(target_arch = "wasm32")]
    $crate::__export_guest_impl!(Component with_types_in $crate::bindings);
        };
    };
}
