//! The two kinds of computation, and how a batch runs through one: item by item, each with the
//! state that the items before it left behind.

use serde::de::DeserializeOwned;

use crate::bindings::{
    Batch, Column, Description, Failure, Kind, Messages, TimeDomain as DeclaredDomain,
    TimerDeclaration,
};
use crate::column;
use crate::effects::{Effects, Item};
use crate::error::{Context, Error, Result};
use crate::message::Message;
use crate::parameters;
use crate::state::State;
use crate::stream::Streams;
use crate::timer::{TimeDomain, Timer, Timers};
use crate::timestamp::Timestamp;

/// A computation that turns each message into others by itself: it keeps nothing from one message
/// to the next. The host may run it anywhere and again.
pub trait Map: Sized {
    /// Its parameters in the pipeline file; `()` or [`NoParameters`](crate::NoParameters) for
    /// none.
    type Parameters: DeserializeOwned;
    /// The streams that it reads.
    type Inputs: Streams;
    /// The streams that it writes.
    type Outputs: Streams;

    /// Makes the computation. This happens for every batch.
    ///
    /// # Errors
    ///
    /// When the parameters make no sense.
    fn new(parameters: Self::Parameters) -> Result<Self>;

    /// Handles a message.
    ///
    /// # Errors
    ///
    /// When the message can't be handled; the pipeline's policy for failures decides about it.
    fn on_message(
        &self,
        message: &Message<'_, Self::Inputs>,
        effects: &mut Effects<'_, Self::Outputs>,
    ) -> Result<()>;
}

/// A computation that remembers: it has state for each key, and timers.
///
/// Messages and timers of one key are handled one after the other, each with the state that the one
/// before it left behind. Fields of the computation itself do not last: an instance lives no longer
/// than a batch, and where batches begin and end is for the host to choose.
pub trait Transform: Sized {
    /// Its parameters in the pipeline file; `()` or [`NoParameters`](crate::NoParameters) for
    /// none.
    type Parameters: DeserializeOwned;
    /// The streams that it reads.
    type Inputs: Streams;
    /// The streams that it writes.
    type Outputs: Streams;
    /// Its timer streams; [`NoTimers`](crate::NoTimers) for none.
    type Timers: Timers;
    /// What it keeps for each key; [`NoState`](crate::NoState) for nothing.
    type State: State;

    /// Makes the computation. This happens for every batch.
    ///
    /// # Errors
    ///
    /// When the parameters make no sense.
    fn new(parameters: Self::Parameters) -> Result<Self>;

    /// Handles a message. `state` is that of the message's key.
    ///
    /// # Errors
    ///
    /// When the message can't be handled; the pipeline's policy for failures decides about it.
    fn on_message(
        &self,
        message: &Message<'_, Self::Inputs>,
        state: &mut Self::State,
        effects: &mut Effects<'_, Self::Outputs, Self::Timers>,
    ) -> Result<()>;

    /// Handles a timer that is due. `state` is that of the timer's key.
    ///
    /// Timers fire at watermark steps alone, never between two messages, in the order that
    /// [`TimerEffect::set_at`](crate::TimerEffect::set_at) tells.
    ///
    /// # Errors
    ///
    /// When the timer can't be handled; the pipeline's policy for failures decides about it.
    fn on_timer(
        &self,
        timer: &Timer<'_, Self::Timers>,
        state: &mut Self::State,
        effects: &mut Effects<'_, Self::Outputs, Self::Timers>,
    ) -> Result<()> {
        let (_, _, _) = (timer, state, effects);
        Err(Error::new(
            "a timer is due, but the computation has no on_timer",
        ))
    }
}

/// Every [`Map`], [`Transform`] and [`BatchMap`](crate::BatchMap), behind the contract. `K` only tells them apart, and
/// the compiler finds it by itself.
///
/// ```compile_fail,E0277
/// struct Neither;
/// tidelock_guest::export!(Neither);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` implements neither `Map` nor `Transform` nor `BatchMap`"
)]
pub trait Computation<K> {
    /// What the component says of itself.
    #[doc(hidden)]
    fn describe() -> Description;

    /// Runs a batch.
    #[doc(hidden)]
    fn process(parameters: &str, batch: Batch) -> Result<crate::bindings::Effects, Failure>;
}

/// Tells maps from transforms.
#[doc(hidden)]
#[derive(Debug)]
pub enum OfMap {}

/// Tells transforms from maps.
#[doc(hidden)]
#[derive(Debug)]
pub enum OfTransform {}

/// Tells maps of whole batches from both.
#[doc(hidden)]
#[derive(Debug)]
pub enum OfBatchMap {}

impl<C: Map> Computation<OfMap> for C {
    fn describe() -> Description {
        describe_map(C::Inputs::NAMES, C::Outputs::NAMES)
    }

    fn process(parameters: &str, batch: Batch) -> Result<crate::bindings::Effects, Failure> {
        let computation = parameters::read(parameters)
            .and_then(C::new)
            .map_err(whole_batch)?;
        refuse_what_no_map_gets(&batch)?;
        let Batch { keys, messages, .. } = batch;
        let mut effects = Effects::new(&[], &messages.event_times);
        for index in 0..messages.streams.len() {
            let item = message_item(&keys, &messages, index, 0);
            effects.select(item);
            message(&messages, index, item, &[])
                .and_then(|message| computation.on_message(&message, &mut effects))
                .map_err(|error| at_item(item, &error))?;
        }
        Ok(effects.finish(Vec::new()))
    }
}

impl<C: Transform> Computation<OfTransform> for C {
    fn describe() -> Description {
        Description {
            kind: Kind::Transform,
            inputs: names(C::Inputs::NAMES),
            outputs: names(C::Outputs::NAMES),
            states: C::State::declarations(),
            timers: C::Timers::DECLARATIONS.iter().map(declaration).collect(),
        }
    }

    fn process(parameters: &str, batch: Batch) -> Result<crate::bindings::Effects, Failure> {
        let computation = parameters::read(parameters)
            .and_then(C::new)
            .map_err(whole_batch)?;
        refuse_visits(&batch)?;
        let Batch {
            watermarks,
            keys,
            states,
            timers,
            messages,
            ..
        } = batch;
        let mut state = C::State::load(states, keys.ends.len()).map_err(whole_batch)?;
        let mut effects = Effects::new(&timers.event_times, &messages.event_times);

        let timer_count = timers.streams.len();
        for index in 0..timer_count {
            let key_index = timers.keys[index];
            let item = Item {
                index: index as u32,
                key: column::value(&keys, key_index as usize),
                key_index,
                event_time: timers.event_times[index],
            };
            effects.select(item);
            state.select(key_index, item.index);
            C::Timers::from_index(timers.streams[index].into())
                .context("a timer that is not declared is due")
                .and_then(|stream| {
                    let timer = Timer {
                        stream,
                        key: item.key,
                        trigger_time: Timestamp(timers.trigger_times[index]),
                        event_time: Timestamp(item.event_time),
                        watermarks: &watermarks,
                    };
                    computation.on_timer(&timer, &mut state, &mut effects)
                })
                .map_err(|error| at_item(item, &error))?;
        }
        for index in 0..messages.streams.len() {
            let item = message_item(&keys, &messages, index, timer_count);
            effects.select(item);
            state.select(item.key_index, item.index);
            message(&messages, index, item, &watermarks)
                .and_then(|message| computation.on_message(&message, &mut state, &mut effects))
                .map_err(|error| at_item(item, &error))?;
        }
        Ok(effects.finish(state.store()?))
    }
}

/// What a map says of itself, whether it gets messages one by one or whole batches.
pub(crate) fn describe_map(inputs: &[&str], outputs: &[&str]) -> Description {
    Description {
        kind: Kind::Map,
        inputs: names(inputs),
        outputs: names(outputs),
        states: Vec::new(),
        timers: Vec::new(),
    }
}

pub(crate) fn refuse_what_no_map_gets(batch: &Batch) -> Result<(), Failure> {
    match batch.timers.streams.is_empty() {
        true => refuse_visits(batch),
        false => Err(whole_batch(Error::new("a map has no timers"))),
    }
}

pub(crate) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn declaration((name, domain): &(&str, TimeDomain)) -> TimerDeclaration {
    TimerDeclaration {
        name: (*name).to_owned(),
        time: match domain {
            TimeDomain::EventTime => DeclaredDomain::EventTime,
            TimeDomain::SystemTime => DeclaredDomain::SystemTime,
        },
    }
}

pub(crate) fn message_item<'a>(
    keys: &'a Column,
    messages: &Messages,
    index: usize,
    timer_count: usize,
) -> Item<'a> {
    let key_index = messages.keys[index];
    Item {
        index: (timer_count + index) as u32,
        key: column::value(keys, key_index as usize),
        key_index,
        event_time: messages.event_times[index],
    }
}

pub(crate) fn message<'a, I: Streams>(
    messages: &'a Messages,
    index: usize,
    item: Item<'a>,
    watermarks: &'a [u64],
) -> Result<Message<'a, I>> {
    let stream = usize::from(messages.streams[index]);
    Ok(Message {
        stream: I::from_index(stream).with_context(|| {
            format!(
                "a message of stream {stream}, but the declared inputs are {}",
                I::NAMES.join(", ")
            )
        })?,
        key: item.key,
        event_time: Timestamp(item.event_time),
        payload: column::value(&messages.payloads, index),
        watermark: watermarks.get(stream).copied().map(Timestamp),
        watermarks,
    })
}

/// Visits belong to a later version of the contract; passing them over would lose work.
pub(crate) fn refuse_visits(batch: &Batch) -> Result<(), Failure> {
    match batch.visits.is_empty() {
        true => Ok(()),
        false => Err(whole_batch(Error::new(
            "the batch has visits, which this version of the SDK does not know",
        ))),
    }
}

/// A failure that no item is to blame for.
#[expect(clippy::needless_pass_by_value, reason = "the end of the error's way")]
pub(crate) fn whole_batch(error: Error) -> Failure {
    Failure {
        item: None,
        reason: error.to_string(),
    }
}

pub(crate) fn at_item(item: Item<'_>, error: &Error) -> Failure {
    Failure {
        item: Some(item.index),
        reason: error.to_string(),
    }
}
