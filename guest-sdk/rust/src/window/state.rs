//! The keyed state that windows are kept in.

use std::fmt;

use super::table::{Table, TableCodec};
use crate::bindings::{Failure, StateColumn, StateDeclaration};
use crate::codec::Codec;
use crate::error::Result;
use crate::state::Value;

/// The windows of the key at hand: a field of a struct with `#[derive(State)]`, beside
/// [`Value`]s. `A` is the accumulator of an [`Aggregate`](super::Aggregate), and the field's codec is
/// the accumulator's.
///
/// ```
/// use tidelock_guest::window::Windows;
/// use tidelock_guest::{Json, State, Value};
///
/// #[derive(State)]
/// struct Keyed {
///     last_seen: Value<u64>,
///     #[state(version = 2, codec = Json)]
///     hours: Windows<Vec<String>>,
/// }
/// ```
///
/// All windows of a key are one value: it is carried to the component and back with each batch that has
/// the key, 15 to 30 bytes for each window beside its accumulator. Of the accumulators only those are
/// decoded that a message or a firing needs, once for each batch. So many open windows cost something
/// for each batch, not for each message: about 0.1 ms for a key with 1,000 of them. As a key has one
/// timer in a batch at most, that is also what it costs to close a window of such a key; put something
/// into the key (a day, say) where keys would have many thousands.
pub struct Windows<A> {
    pub(super) value: Value<Table<A>>,
    pub(super) decode: fn(&[u8]) -> Result<A>,
}

/// What `#[derive(State)]` calls.
#[doc(hidden)]
impl<A> Windows<A> {
    pub fn declaration<C: Codec<A>>(name: &'static str, version: u32) -> StateDeclaration {
        Value::<Table<A>>::declaration::<TableCodec<C>>(name, version)
    }

    pub fn load<C: Codec<A>>(
        name: &'static str,
        column: Option<StateColumn>,
        key_count: usize,
    ) -> Result<Windows<A>> {
        Ok(Windows {
            value: Value::load::<TableCodec<C>>(name, column, key_count)?,
            decode: C::decode,
        })
    }

    pub fn select(&mut self, key: u32, item: u32) {
        self.value.select(key, item);
    }

    pub fn store(self) -> Result<StateColumn, Failure> {
        self.value.store()
    }
}

impl<A> fmt::Debug for Windows<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Windows").field(&self.value).finish()
    }
}
