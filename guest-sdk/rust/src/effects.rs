//! What a handler wants done: messages to emit, timers to set and cancel, lines to log. It is
//! collected in the contract's columns as the handler goes along, without an allocation per effect.
//!
//! **Invariant:** over the timers to set and those to cancel there is at most one row for each name
//! of a timer; the last word wins.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;

use crate::bindings;
use crate::codec::{self, Codec};
use crate::column;
use crate::error::{Context, Error, Result};
use crate::stream::Streams;
use crate::timer::{NoTimers, TimeDomain, Timers};
use crate::timestamp::{Timestamp, duration_ms};

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the author of the computation.
    Debug,
    /// For the record.
    Info,
    /// Unexpected, and handled.
    Warn,
    /// Somebody must act.
    Error,
}

impl From<Level> for bindings::Level {
    fn from(level: Level) -> bindings::Level {
        match level {
            Level::Debug => bindings::Level::Debug,
            Level::Info => bindings::Level::Info,
            Level::Warn => bindings::Level::Warn,
            Level::Error => bindings::Level::Error,
        }
    }
}

/// What is to be done because of the item at hand. `O` is the enum of the computation's output
/// streams, `T` that of its timer streams.
///
/// Nothing happens before the whole batch is handled; where a handler fails, nothing happens at all.
#[derive(Debug)]
pub struct Effects<'a, O, T = NoTimers> {
    /// The event times of the batch's timers, then those of its messages: the event times that
    /// outputs inherit.
    item_event_times: [&'a [u64]; 2],
    item: Item<'a>,
    /// The event time that outputs inherit in place of the item's, if any.
    output_event_time: Option<u64>,
    outputs: bindings::Outputs,
    timer_words: Vec<TimerWord>,
    logs: Vec<bindings::LogLine>,
    streams: PhantomData<(O, T)>,
}

/// The item that is being handled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Item<'a> {
    pub(crate) index: u32,
    pub(crate) key: &'a [u8],
    /// The key's place among the batch's keys.
    pub(crate) key_index: u32,
    pub(crate) event_time: u64,
}

/// What was said last about a timer.
#[derive(Debug, Clone, Copy)]
struct TimerWord {
    key: u32,
    stream: u16,
    domain: TimeDomain,
    trigger_time: u64,
    /// The event time of a timer that is to be set; none where it is to be cancelled.
    event_time: Option<u64>,
}

impl TimerWord {
    /// What the timer is named by: of a system-time stream, one timer stands for each key.
    fn name(&self) -> (u32, u16, u64) {
        let trigger_time = match self.domain {
            TimeDomain::EventTime => self.trigger_time,
            TimeDomain::SystemTime => 0,
        };
        (self.key, self.stream, trigger_time)
    }
}

impl<'a, O, T> Effects<'a, O, T> {
    /// Without any effect, for a batch whose timers and messages have these event times.
    pub(crate) fn new(
        timer_event_times: &'a [u64],
        message_event_times: &'a [u64],
    ) -> Effects<'a, O, T> {
        let count = timer_event_times.len() + message_event_times.len();
        Effects {
            item_event_times: [timer_event_times, message_event_times],
            item: Item::default(),
            output_event_time: None,
            outputs: bindings::Outputs {
                streams: Vec::with_capacity(count),
                parents: Vec::with_capacity(count),
                parent_ends: Vec::new(),
                keys: column::with_capacity(count),
                event_times: Vec::new(),
                payloads: column::with_capacity(count),
            },
            timer_words: Vec::new(),
            logs: Vec::new(),
            streams: PhantomData,
        }
    }

    /// Turns to the next item: what follows is caused by it.
    pub(crate) fn select(&mut self, item: Item<'a>) {
        self.item = item;
    }

    /// The key of the item at hand.
    pub(crate) fn key(&self) -> &'a [u8] {
        self.item.key
    }

    /// Lets outputs inherit an event time in place of the item's, until it is taken back.
    pub(crate) fn date_outputs(&mut self, event_time: Option<Timestamp>) {
        self.output_event_time = event_time
            .map(Timestamp::as_ms)
            .filter(|event_time| *event_time != self.item.event_time);
    }

    /// The effects of all items, in the contract's shape.
    pub(crate) fn finish(self, states: Vec<bindings::StateColumn>) -> bindings::Effects {
        let (set_timers, cancel_timers) = net_timers(self.timer_words);
        bindings::Effects {
            outputs: self.outputs,
            states,
            set_timers,
            cancel_timers,
            logs: self.logs,
        }
    }

    fn event_time_of(&self, item: u32) -> u64 {
        let [timers, messages] = self.item_event_times;
        let item = item as usize;
        match timers.get(item) {
            Some(event_time) => *event_time,
            None => messages[item - timers.len()],
        }
    }

    /// Adds a line to the pipeline's log.
    pub fn log(&mut self, level: Level, text: impl Into<String>) {
        self.logs.push(bindings::LogLine {
            item: Some(self.item.index),
            level: level.into(),
            text: text.into(),
        });
    }

    /// Logs something for the author of the computation.
    pub fn debug(&mut self, text: impl Into<String>) {
        self.log(Level::Debug, text);
    }

    /// Logs something for the record.
    pub fn info(&mut self, text: impl Into<String>) {
        self.log(Level::Info, text);
    }

    /// Logs something unexpected that was handled.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.log(Level::Warn, text);
    }

    /// Logs something that somebody must act on.
    pub fn error(&mut self, text: impl Into<String>) {
        self.log(Level::Error, text);
    }
}

impl<'a, O: Streams, T> Effects<'a, O, T> {
    /// Begins a message to a stream: `effects.emit(Outputs::Alerts).json(&alert)?`.
    ///
    /// It has the key and the event time of the item at hand unless it is given others.
    #[expect(clippy::needless_pass_by_value, reason = "a stream is named, not lent")]
    pub fn emit(&mut self, stream: O) -> Emission<'_, 'a, O, T> {
        Emission {
            key: self.item.key,
            event_time: self.output_event_time.map(Timestamp),
            stream: stream.index(),
            effects: self,
        }
    }
}

impl<'a, O, T: Timers> Effects<'a, O, T> {
    /// Names a timer of the key at hand, to be set or cancelled:
    /// `effects.timer(Alarms::Quiet).set_at(message.event_time() + QUIET)?`.
    #[expect(clippy::needless_pass_by_value, reason = "a timer is named, not lent")]
    pub fn timer(&mut self, timer: T) -> TimerEffect<'_, 'a, O, T> {
        self.timer_of(timer.index())
    }

    /// Names a timer by the place of its stream.
    pub(crate) fn timer_of(&mut self, stream: u16) -> TimerEffect<'_, 'a, O, T> {
        TimerEffect {
            event_time: self.item.event_time,
            stream,
            effects: self,
        }
    }
}

/// A message on its way out. Nothing is emitted before its payload is given.
#[must_use = "nothing is emitted before the payload is given"]
pub struct Emission<'e, 'a, O, T> {
    effects: &'e mut Effects<'a, O, T>,
    stream: u16,
    key: &'e [u8],
    event_time: Option<Timestamp>,
}

impl<'e, O: Streams, T> Emission<'e, '_, O, T> {
    /// Gives it a key of its own.
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'e K) -> Self {
        self.key = key.as_ref();
        self
    }

    /// Gives it an event time of its own.
    pub fn event_time(mut self, event_time: Timestamp) -> Self {
        self.event_time = Some(event_time);
        self
    }

    /// Emits it with these bytes.
    pub fn bytes(self, payload: impl AsRef<[u8]>) {
        column::push(&mut self.effects.outputs.payloads, payload.as_ref());
        self.complete();
    }

    /// Emits it with a value as JSON.
    ///
    /// # Errors
    ///
    /// When the value has no encoding; then nothing is emitted.
    pub fn json<V: Serialize + ?Sized>(self, value: &V) -> Result<()> {
        self.write(|bytes| codec::write_json(value, bytes))
    }

    /// Emits it with a value in postcard's encoding.
    ///
    /// # Errors
    ///
    /// When the value has no encoding; then nothing is emitted.
    pub fn postcard<V: Serialize + ?Sized>(self, value: &V) -> Result<()> {
        self.write(|bytes| codec::write_postcard(value, bytes))
    }

    /// Emits it with a value as a codec writes it.
    ///
    /// # Errors
    ///
    /// When the value has no encoding; then nothing is emitted.
    pub fn encode<C: Codec<V>, V>(self, value: &V) -> Result<()> {
        self.write(|bytes| C::encode(value, bytes))
    }

    /// Emits it with a payload that is written straight into the column.
    fn write(self, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let payloads = &mut self.effects.outputs.payloads;
        match write(&mut payloads.bytes) {
            Ok(()) => {
                column::end_value(payloads);
                self.complete();
                Ok(())
            }
            Err(error) => {
                column::abandon_value(payloads);
                let stream = O::NAMES[usize::from(self.stream)];
                Err(error.context(format!("a message to stream {stream:?}")))
            }
        }
    }

    /// Adds all of it but the payload.
    fn complete(self) {
        let effects = self.effects;
        // The column of event times stays empty, which means inherited, until one differs.
        if let Some(event_time) = self.event_time {
            if effects.outputs.event_times.is_empty() {
                let inherited: Vec<u64> = (effects.outputs.parents.iter())
                    .map(|parent| effects.event_time_of(*parent))
                    .collect();
                effects.outputs.event_times = inherited;
            }
            effects.outputs.event_times.push(event_time.0);
        } else if !effects.outputs.event_times.is_empty() {
            effects.outputs.event_times.push(effects.item.event_time);
        }
        effects.outputs.streams.push(self.stream);
        effects.outputs.parents.push(effects.item.index);
        column::push(&mut effects.outputs.keys, self.key);
    }
}

impl<O, T> fmt::Debug for Emission<'_, '_, O, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Emission")
            .field("stream", &self.stream)
            .field("key", &self.key.escape_ascii().to_string())
            .field("event_time", &self.event_time)
            .finish()
    }
}

/// A timer that is about to be set or cancelled.
#[must_use = "nothing happens before the timer is set or cancelled"]
pub struct TimerEffect<'e, 'a, O, T> {
    effects: &'e mut Effects<'a, O, T>,
    stream: u16,
    event_time: u64,
}

impl<O, T: Timers> TimerEffect<'_, '_, O, T> {
    /// Gives the timer an event time; without, it has the item's. Until it has fired, the timer
    /// holds the watermark of what the computation emits at this event time, or at its trigger if
    /// that is less, so that what it emits is not late for those who read it. A timer that sets
    /// itself again should move its event time along.
    pub fn event_time(mut self, event_time: Timestamp) -> Self {
        self.event_time = event_time.0;
        self
    }

    /// Sets an event-time timer: it fires at the first watermark step at which the least watermark of
    /// the inputs has reached that moment.
    ///
    /// Due timers fire in the order of trigger, name of the timer stream, key. A timer that is set while
    /// another one fires joins that order if its place, trigger and stream, is behind that of the other
    /// one; else it waits for the next step, even if it is due. At the end of a run the watermark goes to
    /// [`Timestamp::MAX`]; what is set then waits for the next run.
    ///
    /// # Errors
    ///
    /// When the timer stream goes by system time.
    pub fn set_at(self, trigger_time: Timestamp) -> Result<()> {
        let event_time = Some(self.event_time);
        self.say(TimeDomain::EventTime, trigger_time.0, event_time)
    }

    /// Cancels the event-time timer that was set for that moment, if it stands.
    ///
    /// # Errors
    ///
    /// When the timer stream goes by system time.
    pub fn cancel_at(self, trigger_time: Timestamp) -> Result<()> {
        self.say(TimeDomain::EventTime, trigger_time.0, None)
    }

    /// Sets the key's system-time timer: it fires that long after the moment at which the host made the
    /// call, at least a millisecond. It replaces the one that stands.
    ///
    /// # Errors
    ///
    /// When the timer stream goes by event time.
    pub fn set_after(self, delay: Duration) -> Result<()> {
        let event_time = Some(self.event_time);
        self.say(TimeDomain::SystemTime, duration_ms(delay), event_time)
    }

    /// Cancels the key's system-time timer, if one stands.
    ///
    /// # Errors
    ///
    /// When the timer stream goes by event time.
    pub fn cancel(self) -> Result<()> {
        self.say(TimeDomain::SystemTime, 0, None)
    }

    fn say(self, domain: TimeDomain, trigger_time: u64, event_time: Option<u64>) -> Result<()> {
        let (name, declared) = T::DECLARATIONS
            .get(usize::from(self.stream))
            .context("a timer that is not declared")?;
        if *declared != domain {
            return Err(Error::new(match declared {
                TimeDomain::EventTime => format!(
                    "timer {name:?} goes by event time: use set_at and cancel_at, or declare it \
                     with #[timer(system_time)]"
                ),
                TimeDomain::SystemTime => format!(
                    "timer {name:?} goes by system time: use set_after and cancel, or declare it \
                     with #[timer(event_time)]"
                ),
            }));
        }
        self.effects.timer_words.push(TimerWord {
            key: self.effects.item.key_index,
            stream: self.stream,
            domain,
            trigger_time,
            event_time,
        });
        Ok(())
    }
}

impl<O, T> fmt::Debug for TimerEffect<'_, '_, O, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TimerEffect")
            .field("stream", &self.stream)
            .field("event_time", &self.event_time)
            .finish()
    }
}

/// What is left to set and to cancel when only the last word about each timer counts.
fn net_timers(mut words: Vec<TimerWord>) -> (bindings::Timers, bindings::Timers) {
    // A stable sort keeps the words about one timer in the order in which they were said.
    words.sort_by_key(TimerWord::name);
    let (mut set, mut cancel) = (no_timers(), no_timers());
    for (index, word) in words.iter().enumerate() {
        let revised = words
            .get(index + 1)
            .is_some_and(|next| next.name() == word.name());
        if revised {
            continue;
        }
        let timers = match word.event_time {
            Some(event_time) => {
                set.event_times.push(event_time);
                &mut set
            }
            None => &mut cancel,
        };
        timers.streams.push(word.stream);
        timers.keys.push(word.key);
        timers.trigger_times.push(word.trigger_time);
    }
    (set, cancel)
}

pub(crate) fn no_timers() -> bindings::Timers {
    bindings::Timers {
        streams: Vec::new(),
        keys: Vec::new(),
        trigger_times: Vec::new(),
        event_times: Vec::new(),
    }
}
