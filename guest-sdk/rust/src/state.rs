//! Keyed state: named values that the host keeps for each key.
//!
//! A value is decoded when a handler first asks for it, carried along while the batch lasts, and
//! encoded once at its end if a handler touched it. Handlers only ever see the values of the key at
//! hand.

use std::fmt;

use crate::bindings::{Column, Failure, StateColumn, StateDeclaration};
use crate::codec::Codec;
use crate::column;
use crate::error::{Error, Result};

/// Declared keyed state: a struct whose fields are [`Value`]s or
/// [`Windows`](crate::window::Windows), made by `#[derive(State)]`.
///
/// A state's name is its field's, or what `#[state(name = "...")]` says. `version` (1 if not given)
/// is that of the encoding, and `codec` any [`Codec`] of the value's type
/// ([`Postcard`](crate::Postcard) if not given).
///
/// ```
/// use tidelock_guest::{Bytes, Json, State, Value};
///
/// #[derive(State)]
/// struct Seen {
///     count: Value<u64>,
///     #[state(name = "last-names", version = 2, codec = Json)]
///     last_names: Value<Vec<String>>,
///     #[state(codec = Bytes)]
///     digest: Value<[u8; 32]>,
/// }
/// ```
///
/// A codec that can't write the type does not compile:
///
/// ```compile_fail,E0277
/// use tidelock_guest::{Bytes, State, Value};
///
/// #[derive(State)]
/// struct Seen {
///     #[state(codec = Bytes)]
///     count: Value<u64>,
/// }
/// ```
pub trait State: Sized {
    /// What the host is told, in the order of the fields.
    #[doc(hidden)]
    fn declarations() -> Vec<StateDeclaration>;

    /// Takes over the values of a batch with that many keys.
    #[doc(hidden)]
    fn load(columns: Vec<StateColumn>, key_count: usize) -> Result<Self>;

    /// Turns to the next item and its key.
    #[doc(hidden)]
    fn select(&mut self, key: u32, item: u32);

    /// The values that changed.
    #[doc(hidden)]
    fn store(self) -> Result<Vec<StateColumn>, Failure>;
}

/// No state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoState;

impl State for NoState {
    fn declarations() -> Vec<StateDeclaration> {
        Vec::new()
    }

    fn load(_columns: Vec<StateColumn>, _key_count: usize) -> Result<NoState> {
        Ok(NoState)
    }

    fn select(&mut self, _key: u32, _item: u32) {}

    fn store(self) -> Result<Vec<StateColumn>, Failure> {
        Ok(Vec::new())
    }
}

/// A named value of the key at hand: a field of a struct with `#[derive(State)]`.
pub struct Value<T> {
    name: &'static str,
    codec: CodecFunctions<T>,
    /// The bytes of all values that came with the batch.
    bytes: Vec<u8>,
    /// One for each key of the batch.
    slots: Vec<Slot<T>>,
    /// The key at hand.
    key: usize,
    /// The item at hand.
    item: u32,
}

/// The value of one key.
enum Slot<T> {
    /// There is none, as when the batch came.
    Absent,
    /// It lies between these places of the column and nobody has asked for it.
    Encoded { start: usize, end: usize },
    /// It was decoded, or is new.
    Decoded {
        value: T,
        /// The last item that may have changed it.
        changed_by: Option<u32>,
    },
    /// It was cleared.
    Cleared,
}

/// The functions of the state's codec; so the type of a field need not name it.
struct CodecFunctions<T> {
    encode: fn(&T, &mut Vec<u8>) -> Result<()>,
    decode: fn(&[u8]) -> Result<T>,
    is_nothing: fn(&T) -> bool,
}

impl<T> Value<T> {
    /// The value, if there is one.
    ///
    /// # Errors
    ///
    /// When the stored bytes can't be decoded.
    pub fn get(&mut self) -> Result<Option<&T>> {
        self.decode()?;
        match &self.slots[self.key] {
            Slot::Decoded { value, .. } if !(self.codec.is_nothing)(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// The value, to be changed, if there is one.
    ///
    /// # Errors
    ///
    /// When the stored bytes can't be decoded.
    pub fn get_mut(&mut self) -> Result<Option<&mut T>> {
        self.decode()?;
        match &mut self.slots[self.key] {
            Slot::Decoded { value, changed_by } if !(self.codec.is_nothing)(value) => {
                *changed_by = Some(self.item);
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    /// The value, to be changed; the default one if there was none.
    ///
    /// # Errors
    ///
    /// When the stored bytes can't be decoded.
    pub fn get_or_default(&mut self) -> Result<&mut T>
    where
        T: Default,
    {
        self.decode()?;
        let slot = &mut self.slots[self.key];
        if !matches!(slot, Slot::Decoded { .. }) {
            *slot = Slot::Decoded {
                value: T::default(),
                changed_by: None,
            };
        }
        match slot {
            Slot::Decoded { value, changed_by } => {
                *changed_by = Some(self.item);
                Ok(value)
            }
            _ => unreachable!("the slot was filled above"),
        }
    }

    /// Puts a value in the place of what there was.
    pub fn set(&mut self, value: T) {
        self.slots[self.key] = Slot::Decoded {
            value,
            changed_by: Some(self.item),
        };
    }

    /// Removes the value: its row is deleted.
    pub fn clear(&mut self) {
        let slot = &mut self.slots[self.key];
        if !matches!(slot, Slot::Absent) {
            *slot = Slot::Cleared;
        }
    }

    /// Removes the value and hands it over.
    ///
    /// # Errors
    ///
    /// When the stored bytes can't be decoded.
    pub fn take(&mut self) -> Result<Option<T>> {
        self.decode()?;
        let slot = &mut self.slots[self.key];
        if matches!(slot, Slot::Absent) {
            return Ok(None);
        }
        match std::mem::replace(slot, Slot::Cleared) {
            Slot::Decoded { value, .. } if !(self.codec.is_nothing)(&value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Makes sure that the slot at hand is not encoded.
    fn decode(&mut self) -> Result<()> {
        let slot = &mut self.slots[self.key];
        if let Slot::Encoded { start, end } = *slot {
            let value = (self.codec.decode)(&self.bytes[start..end])
                .map_err(|error| error.context(format!("state {:?}", self.name)))?;
            *slot = Slot::Decoded {
                value,
                changed_by: None,
            };
        }
        Ok(())
    }
}

/// What `#[derive(State)]` calls.
#[doc(hidden)]
impl<T> Value<T> {
    pub fn declaration<C: Codec<T>>(name: &'static str, version: u32) -> StateDeclaration {
        StateDeclaration {
            name: name.to_owned(),
            version,
            format: C::FORMAT.to_owned(),
        }
    }

    pub fn load<C: Codec<T>>(
        name: &'static str,
        column: Option<StateColumn>,
        key_count: usize,
    ) -> Result<Value<T>> {
        let StateColumn { keys, values } =
            column.ok_or_else(|| Error::new(format!("the batch has no state {name:?}")))?;
        let mut slots = Vec::with_capacity(key_count);
        slots.resize_with(key_count, || Slot::Absent);
        for (index, key) in keys.iter().enumerate() {
            let range = column::range(&values.ends, index);
            if !range.is_empty() {
                slots[*key as usize] = Slot::Encoded {
                    start: range.start,
                    end: range.end,
                };
            }
        }
        Ok(Value {
            name,
            codec: CodecFunctions {
                encode: C::encode,
                decode: C::decode,
                is_nothing: C::is_nothing,
            },
            bytes: values.bytes,
            slots,
            key: 0,
            item: 0,
        })
    }

    pub fn select(&mut self, key: u32, item: u32) {
        self.key = key as usize;
        self.item = item;
    }

    pub fn store(self) -> Result<StateColumn, Failure> {
        let mut keys = Vec::new();
        let mut values: Column = column::with_capacity(0);
        for (key, slot) in (0..).zip(&self.slots) {
            match slot {
                Slot::Decoded {
                    value,
                    changed_by: Some(item),
                } => {
                    let start = values.bytes.len();
                    let encoded = (self.codec.encode)(value, &mut values.bytes);
                    let empty = values.bytes.len() == start;
                    encoded
                        .and_then(|()| match empty && !(self.codec.is_nothing)(value) {
                            true => Err(Error::new(
                                "the value is encoded as no bytes at all, \
                                which stands for no value",
                            )),
                            false => Ok(()),
                        })
                        .map_err(|error| Failure {
                            item: Some(*item),
                            reason: error.context(format!("state {:?}", self.name)).to_string(),
                        })?;
                    column::end_value(&mut values);
                    keys.push(key);
                }
                Slot::Cleared => {
                    column::end_value(&mut values);
                    keys.push(key);
                }
                Slot::Absent
                | Slot::Encoded { .. }
                | Slot::Decoded {
                    changed_by: None, ..
                } => {}
            }
        }
        Ok(StateColumn { keys, values })
    }
}

impl<T> fmt::Debug for Value<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Value")
            .field("name", &self.name)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
