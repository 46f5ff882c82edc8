//! The bench: one computation, what it keeps, and what a test lets happen to it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;

use super::batch::{Content, Item};
use super::failure::TestFailure;
use super::output::{LateMessage, Log, Output};
use super::timers::{StandingTimer, TimerBook};
use crate::bindings::{Batch, Description, Effects, Failure, Kind, TimeDomain};
use crate::codec::Codec;
use crate::computation::Computation;
use crate::timestamp::{Timestamp, duration_ms};

/// How many items a call gets, unless a test says otherwise; as in the host.
const DEFAULT_BATCH_SIZE: usize = 1000;

/// A host for one computation. It panics where a test names what is not declared, and returns what
/// the computation refuses as a [`TestFailure`]. The [module](crate::testing) says what it makes of
/// time.
pub struct TestBench<C> {
    pub(super) process: fn(&str, Batch) -> Result<Effects, Failure>,
    pub(super) description: Description,
    pub(super) parameters: String,
    pub(super) batch_size: usize,
    /// Messages that wait for the next run.
    pending: Vec<Item>,
    /// One for each input; none for a map.
    pub(super) watermarks: Vec<u64>,
    /// How far behind its watermark a message of each input may be without being late.
    allowed_lateness_ms: Vec<u64>,
    /// Whether late messages are kept from the computation.
    late_output: bool,
    pub(super) clock_ms: u64,
    /// For each declared state, the values by key.
    pub(super) states: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) timers: TimerBook,
    pub(super) outputs: Vec<Output>,
    pub(super) late: Vec<LateMessage>,
    pub(super) logs: Vec<Log>,
    computation: PhantomData<fn() -> C>,
}

impl<C> TestBench<C> {
    /// A bench for a computation with these parameters, as JSON text of an object.
    ///
    /// # Errors
    ///
    /// When the computation refuses the parameters.
    pub fn new<K>(parameters: &str) -> Result<TestBench<C>, TestFailure>
    where
        C: Computation<K>,
    {
        let description = C::describe();
        let inputs = description.inputs.len();
        let watermarks = match description.kind {
            Kind::Map => Vec::new(),
            Kind::Transform => vec![0; inputs],
        };
        let bench = TestBench {
            process: C::process,
            states: vec![BTreeMap::new(); description.states.len()],
            description,
            parameters: parameters.to_owned(),
            batch_size: DEFAULT_BATCH_SIZE,
            pending: Vec::new(),
            watermarks,
            allowed_lateness_ms: vec![0; inputs],
            late_output: false,
            clock_ms: 0,
            timers: TimerBook::default(),
            outputs: Vec::new(),
            late: Vec::new(),
            logs: Vec::new(),
            computation: PhantomData,
        };
        match bench.ask(&[], &[]) {
            Ok(_) => Ok(bench),
            Err(failure) => Err(TestFailure {
                item: None,
                reason: failure.reason,
            }),
        }
    }

    /// Hands over at most `items` items in one call.
    #[must_use]
    pub fn with_batch_size(mut self, items: usize) -> TestBench<C> {
        self.set_batch_size(items);
        self
    }

    /// Hands over at most `items` items in one call from now on.
    pub fn set_batch_size(&mut self, items: usize) {
        assert!(items > 0, "a batch holds at least one item");
        self.batch_size = items;
    }

    /// Lets messages of an input be behind its watermark by that much without being late, as
    /// `allowed_lateness` in a pipeline file does.
    ///
    /// # Panics
    ///
    /// When the computation declares no such input.
    pub fn set_allowed_lateness(&mut self, stream: &str, lateness: Duration) {
        let input = position(&self.description.inputs, stream, "input");
        self.allowed_lateness_ms[usize::from(input)] = duration_ms(lateness);
    }

    /// Keeps late messages from the computation, as `late_output` in a pipeline file does. Without, it
    /// gets them like all others.
    pub fn divert_late_messages(&mut self) {
        self.late_output = true;
    }

    /// Lets a message wait for the next [`run`](TestBench::run) or step.
    ///
    /// # Panics
    ///
    /// When the computation declares no such input, or the input has ended.
    pub fn send(
        &mut self,
        stream: &str,
        key: impl AsRef<[u8]>,
        event_time: Timestamp,
        payload: impl AsRef<[u8]>,
    ) {
        assert!(
            !self.is_end_of_run(),
            "the input has ended: begin the next run"
        );
        self.pending.push(Item {
            stream: position(&self.description.inputs, stream, "input"),
            key: key.as_ref().to_vec(),
            event_time: event_time.0,
            content: Content::Message {
                payload: payload.as_ref().to_vec(),
            },
        });
    }

    /// Like [`send`](TestBench::send), with a value as JSON.
    ///
    /// # Panics
    ///
    /// When the computation declares no such input, the input has ended, or the value has no encoding.
    pub fn send_json(
        &mut self,
        stream: &str,
        key: impl AsRef<[u8]>,
        event_time: Timestamp,
        value: &impl Serialize,
    ) {
        let payload = serde_json::to_vec(value).expect("the payload has an encoding as JSON");
        self.send(stream, key, event_time, payload);
    }

    /// Handles the messages that wait.
    ///
    /// # Errors
    ///
    /// When the computation refuses a message. The effects of those before it stand; it is gone;
    /// those after it still wait.
    pub fn run(&mut self) -> Result<(), TestFailure> {
        let mut items = std::mem::take(&mut self.pending);
        items.retain(|item| !(self.note_if_late(item) && self.late_output));
        let outcome = self.handle(&items);
        if let Err((index, _)) = &outcome {
            self.pending = items[index + 1..].to_vec();
        }
        outcome.map_err(|(_, failure)| failure)
    }

    /// Handles the messages that wait, then raises the watermark of an input and fires the
    /// event-time timers that are due by the least watermark of all inputs. A watermark that is not
    /// above the one that there is leaves it as it is, and is a step all the same.
    ///
    /// # Errors
    ///
    /// When the computation refuses a message or a timer. A timer that it refuses is gone, those
    /// behind it stand.
    ///
    /// # Panics
    ///
    /// When the computation declares no such input, or is a map.
    pub fn advance_watermark(&mut self, stream: &str, to: Timestamp) -> Result<(), TestFailure> {
        let input = position(&self.description.inputs, stream, "input");
        self.run()?;
        let watermark = self
            .watermarks
            .get_mut(usize::from(input))
            .expect("a map sees no watermark");
        *watermark = to.0.max(*watermark);
        self.fire(TimeDomain::EventTime, self.least_watermark())
    }

    /// Handles the messages that wait, then raises the watermark of every input at once and fires the
    /// timers that are due, as a step of a source that all inputs go back to.
    ///
    /// # Errors
    ///
    /// As [`advance_watermark`](TestBench::advance_watermark).
    pub fn advance_watermarks(&mut self, to: Timestamp) -> Result<(), TestFailure> {
        self.run()?;
        for watermark in &mut self.watermarks {
            *watermark = to.0.max(*watermark);
        }
        self.fire(TimeDomain::EventTime, self.least_watermark())
    }

    /// Handles the messages that wait, then ends the run: every watermark goes to the end of time and
    /// the event-time timers fire, each once. What their handlers set waits for the next run, and so do
    /// system-time timers.
    ///
    /// # Errors
    ///
    /// As [`advance_watermark`](TestBench::advance_watermark).
    pub fn end_of_input(&mut self) -> Result<(), TestFailure> {
        self.advance_watermarks(Timestamp::MAX)
    }

    /// Begins the next run: watermarks are at 0 again, states and timers are as the last run left them.
    pub fn next_run(&mut self) {
        self.watermarks.fill(0);
        self.timers.begin_run();
    }

    /// Handles the messages that wait, then lets time pass and fires the system-time timers that
    /// are due.
    ///
    /// # Errors
    ///
    /// When the computation refuses a message or a timer.
    pub fn advance_clock(&mut self, by: Duration) -> Result<(), TestFailure> {
        self.run()?;
        self.clock_ms = self.clock_ms.saturating_add(duration_ms(by));
        self.fire(TimeDomain::SystemTime, self.clock_ms)
    }

    /// Everything that was emitted, in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The payloads emitted to one stream, in order, as text.
    ///
    /// # Panics
    ///
    /// When the computation declares no such output.
    pub fn payloads(&self, stream: &str) -> Vec<String> {
        position(&self.description.outputs, stream, "output");
        (self.outputs.iter())
            .filter(|output| output.stream == stream)
            .map(Output::text)
            .collect()
    }

    /// The messages that were late when their turn came, in order, whether the computation got them or
    /// not: their event times (0 is none) lay before the watermark of their input by more than was
    /// allowed.
    pub fn late_messages(&self) -> &[LateMessage] {
        &self.late
    }

    /// The stored bytes of a key's state.
    ///
    /// # Panics
    ///
    /// When the computation declares no such state.
    pub fn state_bytes(&self, name: &str, key: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.state_rows(name)
            .get(key.as_ref())
            .map(std::vec::Vec::as_slice)
    }

    /// A key's state, read by its codec: `bench.state::<Postcard, Totals>("totals", "UA@EWR")`.
    ///
    /// # Panics
    ///
    /// When the computation declares no such state, or the codec can't read it.
    pub fn state<D: Codec<T>, T>(&self, name: &str, key: impl AsRef<[u8]>) -> Option<T> {
        self.state_bytes(name, key)
            .map(|bytes| D::decode(bytes).unwrap_or_else(|error| panic!("state {name:?}: {error}")))
    }

    /// The keys that have a value of a state, in order.
    ///
    /// # Panics
    ///
    /// When the computation declares no such state.
    pub fn state_keys(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.state_rows(name).keys().map(std::vec::Vec::as_slice)
    }

    fn state_rows(&self, name: &str) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        let names = self.description.states.iter().map(|state| &state.name);
        &self.states[usize::from(position(names, name, "state"))]
    }

    /// The timers that stand: those of event time in the order in which they fire, then those of system
    /// time.
    pub fn timers(&self) -> impl Iterator<Item = &StandingTimer> {
        self.timers.iter()
    }

    /// The watermark of what the computation emits: the least of its inputs' watermarks and what the
    /// timers that stand hold it at. An event-time timer holds it at its trigger or its event time,
    /// whichever is less, a system-time timer at its event time.
    pub fn output_watermark(&self) -> Timestamp {
        let held = self.timers.holds_at().unwrap_or(u64::MAX);
        Timestamp(self.least_watermark().min(held))
    }

    /// What was logged.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// Whether the watermark is at the end of time, where handlers' timers wait for the next run.
    pub(super) fn is_end_of_run(&self) -> bool {
        self.least_watermark() == u64::MAX
    }

    fn least_watermark(&self) -> u64 {
        self.watermarks.iter().min().copied().unwrap_or(0)
    }

    /// Whether a message is late; if so it is written down.
    fn note_if_late(&mut self, item: &Item) -> bool {
        let input = usize::from(item.stream);
        let Some(watermark) = self.watermarks.get(input).copied() else {
            return false;
        };
        let bound = watermark.saturating_sub(self.allowed_lateness_ms[input]);
        let late = item.event_time != 0 && item.event_time < bound;
        if let (true, Content::Message { payload }) = (late, &item.content) {
            self.late.push(LateMessage {
                stream: self.description.inputs[input].clone(),
                key: item.key.clone(),
                event_time: Timestamp(item.event_time),
                payload: payload.clone(),
                watermark: Timestamp(watermark),
            });
        }
        late
    }
}

impl<C> fmt::Debug for TestBench<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TestBench")
            .field("parameters", &self.parameters)
            .field("pending", &self.pending.len())
            .field("outputs", &self.outputs.len())
            .finish_non_exhaustive()
    }
}

/// The place of a declared name.
fn position<'a>(names: impl IntoIterator<Item = &'a String>, name: &str, noun: &str) -> u16 {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    let position = names.iter().position(|declared| *declared == name);
    let Some(position) = position else {
        panic!("no {noun} {name:?} is declared: there are {names:?}");
    };
    position as u16
}
