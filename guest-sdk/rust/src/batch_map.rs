//! A map that makes one message of several: it gets its messages batch by batch and names for each output those that
//! it was made from.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::{self, Batch, Description, Failure};
use crate::codec::{self, Codec};
use crate::column;
use crate::computation::{
    Computation, OfBatchMap, at_item, describe_map, message, message_item, refuse_what_no_map_gets,
    whole_batch,
};
use crate::effects::{Level, no_timers};
use crate::error::{Error, Result};
use crate::message::Message;
use crate::parameters;
use crate::stream::Streams;
use crate::timestamp::Timestamp;

/// A map that may make one message of several, such as one request of many rows. The pipeline has to allow that with
/// `allow_batching_with_relaxed_guarantees = true`, as outputs then depend on how the host cuts its input into batches.
///
/// Each message is still in exactly one batch whose outputs count, and what an output is known by follows from the
/// messages that it was made from.
///
/// This one joins the lines of a batch, at most so many in one message:
///
/// ```
/// use serde::Deserialize;
/// use tidelock_guest::prelude::*;
/// use tidelock_guest::{BatchEffects, BatchMap};
///
/// #[derive(Deserialize)]
/// pub struct Parameters { lines_max: usize }
///
/// #[derive(Streams)]
/// pub enum Inputs { Lines }
///
/// #[derive(Streams)]
/// pub enum Outputs { Blocks }
///
/// pub struct JoinLines { lines_max: usize }
///
/// impl BatchMap for JoinLines {
///     type Parameters = Parameters;
///     type Inputs = Inputs;
///     type Outputs = Outputs;
///
///     fn new(parameters: Parameters) -> Result<Self> {
///         Ok(JoinLines { lines_max: parameters.lines_max.max(1) })
///     }
///
///     fn on_batch(
///         &self,
///         messages: &[Message<Inputs>],
///         effects: &mut BatchEffects<Outputs>,
///     ) -> Result<()> {
///         let mut first = 0;
///         for block in messages.chunks(self.lines_max) {
///             let lines: Vec<&str> = block.iter().map(|line| line.text()).collect::<Result<_>>()?;
///             let parents = first..first + block.len();
///             first = parents.end;
///             effects.emit(Outputs::Blocks, parents).json(&lines)?;
///         }
///         Ok(())
///     }
/// }
///
/// export!(JoinLines);
/// # fn main() -> Result<()> {
/// # let mut bench = tidelock_guest::testing::TestBench::<JoinLines>::new(r#"{"lines_max": 2}"#)?;
/// # for (time, line) in [(3, "a"), (1, "b"), (2, "c")] {
/// #     bench.send("lines", line, Timestamp(time), line);
/// # }
/// # bench.run()?;
/// # assert_eq!(bench.payloads("blocks"), [r#"["a","b"]"#, r#"["c"]"#]);
/// # assert_eq!(bench.outputs()[0].event_time, Timestamp(1));
/// # assert_eq!(bench.outputs()[0].key, b"b");
/// # Ok(())
/// # }
/// ```
pub trait BatchMap: Sized {
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

    /// Handles the messages of a batch, in order. How many there are is for the host to choose: also a single one,
    /// as that is how it finds the one that can't be handled.
    ///
    /// # Errors
    ///
    /// When a message can't be handled. The host then runs the batch again in parts, until that message stands alone.
    fn on_batch(
        &self,
        messages: &[Message<'_, Self::Inputs>],
        effects: &mut BatchEffects<'_, Self::Outputs>,
    ) -> Result<()>;
}

impl<C: BatchMap> Computation<OfBatchMap> for C {
    fn describe() -> Description {
        describe_map(C::Inputs::NAMES, C::Outputs::NAMES)
    }

    fn process(parameters: &str, batch: Batch) -> Result<bindings::Effects, Failure> {
        let computation = parameters::read(parameters)
            .and_then(C::new)
            .map_err(whole_batch)?;
        refuse_what_no_map_gets(&batch)?;
        let count = batch.messages.streams.len();
        let mut messages = Vec::with_capacity(count);
        let mut origins = Vec::with_capacity(count);
        for index in 0..count {
            let item = message_item(&batch.keys, &batch.messages, index, 0);
            let message = message(&batch.messages, index, item, &[])
                .map_err(|error| at_item(item, &error))?;
            messages.push(message);
            origins.push(Origin {
                key: item.key,
                event_time: item.event_time,
            });
        }
        let mut effects = BatchEffects::new(&origins);
        if count > 0 {
            computation
                .on_batch(&messages, &mut effects)
                .map_err(whole_batch)?;
        }
        Ok(effects.finish())
    }
}

/// What an output may inherit of a message.
#[derive(Debug, Clone, Copy)]
struct Origin<'a> {
    key: &'a [u8],
    event_time: u64,
}

/// What is to be done because of a batch. `O` is the enum of the computation's output streams.
#[derive(Debug)]
pub struct BatchEffects<'a, O> {
    messages: &'a [Origin<'a>],
    outputs: bindings::Outputs,
    logs: Vec<bindings::LogLine>,
    streams: PhantomData<O>,
}

impl<'a, O> BatchEffects<'a, O> {
    fn new(messages: &'a [Origin<'a>]) -> BatchEffects<'a, O> {
        BatchEffects {
            messages,
            outputs: bindings::Outputs {
                streams: Vec::new(),
                parents: Vec::with_capacity(messages.len()),
                // Always said, though each output may have a single parent: a pipeline that does not allow several
                // is to hear of it at once, and not from a batch that happens to have two.
                parent_ends: Vec::new(),
                keys: column::with_capacity(0),
                event_times: Vec::new(),
                payloads: column::with_capacity(0),
            },
            logs: Vec::new(),
            streams: PhantomData,
        }
    }

    fn finish(self) -> bindings::Effects {
        bindings::Effects {
            outputs: self.outputs,
            states: Vec::new(),
            set_timers: no_timers(),
            cancel_timers: no_timers(),
            logs: self.logs,
        }
    }

    /// Adds a line to the pipeline's log.
    pub fn log(&mut self, level: Level, text: impl Into<String>) {
        self.logs.push(bindings::LogLine {
            item: None,
            level: level.into(),
            text: text.into(),
        });
    }
}

impl<'a, O: Streams> BatchEffects<'a, O> {
    /// Begins a message to a stream that is made from some messages of the batch, given by their places in it:
    /// `effects.emit(Outputs::Blocks, 0..messages.len()).json(&block)?`.
    ///
    /// It belongs to the last of them: it stands in the order where that one did, and has its key unless it is given
    /// another. Its event time is the least of theirs unless it is given another.
    #[expect(clippy::needless_pass_by_value, reason = "a stream is named, not lent")]
    pub fn emit(
        &mut self,
        stream: O,
        parents: impl IntoIterator<Item = usize>,
    ) -> BatchEmission<'_, 'a, O> {
        let mut parents: Vec<usize> = parents.into_iter().collect();
        parents.sort_unstable();
        parents.dedup();
        BatchEmission {
            stream: stream.index(),
            parents,
            key: None,
            event_time: None,
            effects: self,
        }
    }
}

/// A message on its way out. Nothing is emitted before its payload is given.
#[must_use = "nothing is emitted before the payload is given"]
pub struct BatchEmission<'e, 'a, O> {
    effects: &'e mut BatchEffects<'a, O>,
    stream: u16,
    parents: Vec<usize>,
    key: Option<&'e [u8]>,
    event_time: Option<Timestamp>,
}

impl<'e, O: Streams> BatchEmission<'e, '_, O> {
    /// Gives it a key of its own.
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'e K) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Gives it an event time of its own.
    pub fn event_time(mut self, event_time: Timestamp) -> Self {
        self.event_time = Some(event_time);
        self
    }

    /// Emits it with these bytes.
    ///
    /// # Errors
    ///
    /// When it names no message as a parent, or one that is not in the batch; then nothing is emitted.
    pub fn bytes(self, payload: impl AsRef<[u8]>) -> Result<()> {
        self.write(|bytes| {
            bytes.extend_from_slice(payload.as_ref());
            Ok(())
        })
    }

    /// Emits it with a value as JSON.
    ///
    /// # Errors
    ///
    /// As [`bytes`](BatchEmission::bytes), and when the value has no encoding.
    pub fn json<V: Serialize + ?Sized>(self, value: &V) -> Result<()> {
        self.write(|bytes| codec::write_json(value, bytes))
    }

    /// Emits it with a value in postcard's encoding.
    ///
    /// # Errors
    ///
    /// As [`bytes`](BatchEmission::bytes), and when the value has no encoding.
    pub fn postcard<V: Serialize + ?Sized>(self, value: &V) -> Result<()> {
        self.write(|bytes| codec::write_postcard(value, bytes))
    }

    /// Emits it with a value as a codec writes it.
    ///
    /// # Errors
    ///
    /// As [`bytes`](BatchEmission::bytes), and when the value has no encoding.
    pub fn encode<C: Codec<V>, V>(self, value: &V) -> Result<()> {
        self.write(|bytes| C::encode(value, bytes))
    }

    fn write(self, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let name = O::NAMES[usize::from(self.stream)];
        let failed = |error: Error| error.context(format!("a message to stream {name:?}"));
        let count = self.effects.messages.len();
        let last = match self.parents.last() {
            None => {
                return Err(failed(Error::new(
                    "it names no message that it is made from",
                )));
            }
            Some(last) if *last >= count => {
                return Err(failed(Error::new(format!(
                    "it names message {last} as one that it is made from, and the batch has {count}"
                ))));
            }
            Some(last) => *last,
        };
        let effects = self.effects;
        let outputs = &mut effects.outputs;
        if let Err(error) = write(&mut outputs.payloads.bytes) {
            column::abandon_value(&mut outputs.payloads);
            return Err(failed(error));
        }
        column::end_value(&mut outputs.payloads);
        let of_parents = self
            .parents
            .iter()
            .map(|parent| effects.messages[*parent].event_time);
        let inherited = of_parents.min().unwrap_or_default();
        let event_time = self.event_time.map_or(inherited, Timestamp::as_ms);
        outputs.event_times.push(event_time);
        outputs.streams.push(self.stream);
        let parents = self.parents.iter().map(|parent| *parent as u32);
        outputs.parents.extend(parents);
        outputs.parent_ends.push(outputs.parents.len() as u32);
        let key = self.key.unwrap_or(effects.messages[last].key);
        column::push(&mut outputs.keys, key);
        Ok(())
    }
}

impl<O> fmt::Debug for BatchEmission<'_, '_, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BatchEmission")
            .field("stream", &self.stream)
            .field("parents", &self.parents)
            .field("key", &self.key.map(|key| key.escape_ascii().to_string()))
            .field("event_time", &self.event_time)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[derive(Debug, Streams)]
    enum Lines {
        Lines,
    }

    const MESSAGES: [Origin<'static>; 3] = [
        Origin {
            key: b"a",
            event_time: 3,
        },
        Origin {
            key: b"b",
            event_time: 1,
        },
        Origin {
            key: b"c",
            event_time: 2,
        },
    ];

    #[test]
    fn b1_an_output_names_its_parents_in_order_and_has_what_it_does_not_say_from_them() {
        let mut effects = BatchEffects::<Lines>::new(&MESSAGES);
        effects
            .emit(Lines::Lines, [2, 0, 2])
            .bytes("two")
            .expect("they are in the batch");
        effects
            .emit(Lines::Lines, [1])
            .key("own")
            .event_time(Timestamp(9))
            .bytes("one")
            .expect("it is in the batch");
        let outputs = effects.finish().outputs;
        assert_eq!(outputs.parents, [0, 2, 1]);
        // Said though one has a single parent.
        assert_eq!(outputs.parent_ends, [2, 3]);
        assert_eq!(outputs.event_times, [2, 9]);
        assert_eq!(outputs.keys.bytes, b"cown");
        assert_eq!(outputs.payloads.bytes, b"twoone");
    }

    #[test]
    fn b1_an_output_without_parents_or_of_others_than_the_batchs_is_refused_and_leaves_nothing() {
        let mut effects = BatchEffects::<Lines>::new(&MESSAGES);
        let refuse = |effects: &mut BatchEffects<'_, Lines>, parents: &[usize], part: &str| {
            let emission = effects.emit(Lines::Lines, parents.iter().copied());
            let error = emission.bytes("x").expect_err("it is refused").to_string();
            assert!(error.contains(part), "{error}");
            assert!(error.contains("\"lines\""), "{error}");
        };
        refuse(&mut effects, &[], "names no message");
        refuse(
            &mut effects,
            &[0, 3],
            "names message 3 as one that it is made from, and the batch has 3",
        );
        let outputs = effects.finish().outputs;
        assert!(outputs.payloads.ends.is_empty() && outputs.parents.is_empty());
    }
}
