//! Tests computations natively: a small host for one computation, without WebAssembly.
//!
//! What it does the way the real host does: states and timers last between calls, timers fire at
//! watermark steps, a failing batch has no effects and the verdict is on one item alone. What it
//! leaves out: partitions, epochs, grants and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::{self, Batch, Description, Failure, Messages, StateColumn};
use crate::codec::Codec;
use crate::column;
use crate::computation::Computation;
use crate::effects::Level;
use crate::timestamp::{Timestamp, duration_ms};

/// How many items a call gets, unless a test says otherwise; as in the host.
const DEFAULT_BATCH_SIZE: usize = 1000;

/// A host for one computation. It panics where a test names what is not declared, and returns what
/// the computation refuses as a [`TestFailure`].
pub struct TestBench<C> {
    process: fn(&str, Batch) -> Result<bindings::Effects, Failure>,
    description: Description,
    parameters: String,
    batch_size: usize,
    /// Messages that wait for the next run.
    pending: Vec<Item>,
    watermarks: Vec<u64>,
    clock_ms: u64,
    /// For each declared state, the values by key.
    states: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    timers: BTreeSet<StandingTimer>,
    outputs: Vec<Output>,
    logs: Vec<Log>,
    computation: PhantomData<fn() -> C>,
}

/// A message that the computation emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The stream that it went to.
    pub stream: String,
    /// Its key.
    pub key: Vec<u8>,
    /// Its event time.
    pub event_time: Timestamp,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Output {
    /// The payload as text, with replacement characters where it is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    /// The payload, read as JSON.
    ///
    /// # Panics
    ///
    /// When it is not JSON of that type.
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.payload)
            .unwrap_or_else(|error| panic!("{error} in the output {:?}", self.text()))
    }
}

/// A timer that is set and has not fired. Ordered as timers fire: by trigger time, then stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StandingTimer {
    /// When it fires: by the watermark, or by the bench's clock.
    pub trigger_time: Timestamp,
    /// Its timer stream, as the place among the declarations.
    stream: u16,
    /// Its key.
    pub key: Vec<u8>,
    /// The event time that it carries.
    pub event_time: Timestamp,
    /// The name of its timer stream.
    pub name: String,
}

/// A line that the computation logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// How much it matters.
    pub level: Level,
    /// The line.
    pub text: String,
}

/// The computation refused an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFailure {
    /// The item, for a person to read; none where the computation could not be made at all.
    pub item: Option<String>,
    /// What the computation said.
    pub reason: String,
}

impl fmt::Display for TestFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.item {
            Some(item) => write!(formatter, "{item}: {}", self.reason),
            None => formatter.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TestFailure {}

/// A message or a due timer.
#[derive(Debug, Clone)]
struct Item {
    stream: u16,
    key: Vec<u8>,
    event_time: u64,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Message { payload: Vec<u8> },
    Timer { trigger_time: u64 },
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
        let watermarks = match description.kind {
            bindings::Kind::Map => Vec::new(),
            bindings::Kind::Transform => vec![0; description.inputs.len()],
        };
        let mut bench = TestBench {
            process: C::process,
            states: vec![BTreeMap::new(); description.states.len()],
            description,
            parameters: parameters.to_owned(),
            batch_size: DEFAULT_BATCH_SIZE,
            pending: Vec::new(),
            watermarks,
            clock_ms: 0,
            timers: BTreeSet::new(),
            outputs: Vec::new(),
            logs: Vec::new(),
            computation: PhantomData,
        };
        match bench.call(&[]) {
            Ok(()) => Ok(bench),
            Err(failure) => Err(TestFailure {
                item: None,
                reason: failure.reason,
            }),
        }
    }

    /// Hands over at most `items` items in one call.
    #[must_use]
    pub fn with_batch_size(mut self, items: usize) -> TestBench<C> {
        assert!(items > 0, "a batch holds at least one item");
        self.batch_size = items;
        self
    }

    /// Lets a message wait for the next [`run`](TestBench::run) or watermark.
    ///
    /// # Panics
    ///
    /// When the computation declares no such input.
    pub fn send(
        &mut self,
        stream: &str,
        key: impl AsRef<[u8]>,
        event_time: Timestamp,
        payload: impl AsRef<[u8]>,
    ) {
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
    /// When the computation declares no such input, or the value has no encoding.
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
        let items = std::mem::take(&mut self.pending);
        let outcome = self.handle(&items);
        if let Err((index, _)) = &outcome {
            self.pending = items[index + 1..].to_vec();
        }
        outcome.map_err(|(_, failure)| failure)
    }

    /// Handles the messages that wait, then raises the watermark of an input and fires the
    /// event-time timers that are due by the least watermark of all inputs.
    ///
    /// # Errors
    ///
    /// When the computation refuses a message or a timer.
    ///
    /// # Panics
    ///
    /// When the computation declares no such input, or is a map.
    pub fn advance_watermark(&mut self, stream: &str, to: Timestamp) -> Result<(), TestFailure> {
        self.run()?;
        let input = position(&self.description.inputs, stream, "input");
        let watermark = self
            .watermarks
            .get_mut(usize::from(input))
            .expect("a map sees no watermark");
        *watermark = to.0.max(*watermark);
        let least = self.watermarks.iter().min().copied().unwrap_or(0);
        self.fire(bindings::TimeDomain::EventTime, least)
    }

    /// Handles the messages that wait, then lets time pass and fires the system-time timers that
    /// are due.
    ///
    /// # Errors
    ///
    /// When the computation refuses a message or a timer.
    pub fn advance_clock(&mut self, by: Duration) -> Result<(), TestFailure> {
        self.run()?;
        self.clock_ms += duration_ms(by);
        self.fire(bindings::TimeDomain::SystemTime, self.clock_ms)
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

    /// The stored bytes of a key's state.
    ///
    /// # Panics
    ///
    /// When the computation declares no such state.
    pub fn state_bytes(&self, name: &str, key: impl AsRef<[u8]>) -> Option<&[u8]> {
        let names = self.description.states.iter().map(|state| &state.name);
        let index = position(names, name, "state");
        self.states[usize::from(index)]
            .get(key.as_ref())
            .map(Vec::as_slice)
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

    /// The timers that stand, in the order in which they fire.
    pub fn timers(&self) -> impl Iterator<Item = &StandingTimer> {
        self.timers.iter()
    }

    /// What was logged.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// Plays a scenario under many cuts of its batches and panics unless outputs, states, timers,
    /// logs and failures are the same under all. Returns the bench after the scenario.
    ///
    /// # Panics
    ///
    /// When results depend on the cut, or the computation refuses its parameters.
    pub fn assert_cuts_agree<K>(
        parameters: &str,
        scenario: impl Fn(&mut TestBench<C>) -> Result<(), TestFailure>,
    ) -> TestBench<C>
    where
        C: Computation<K>,
    {
        let play = |batch_size| {
            let mut bench = TestBench::<C>::new(parameters)
                .expect("the computation takes its parameters")
                .with_batch_size(batch_size);
            let outcome = scenario(&mut bench);
            (bench, outcome)
        };
        let (whole, outcome) = play(DEFAULT_BATCH_SIZE);
        for batch_size in [1, 2, 3, 7, 64] {
            let (cut, cut_outcome) = play(batch_size);
            let sizes = format!("in batches of {batch_size} and of {DEFAULT_BATCH_SIZE}");
            assert_eq!(cut_outcome, outcome, "failures differ {sizes}");
            assert_eq!(cut.outputs, whole.outputs, "outputs differ {sizes}");
            assert_eq!(cut.states, whole.states, "states differ {sizes}");
            assert_eq!(cut.timers, whole.timers, "timers differ {sizes}");
            assert_eq!(cut.logs, whole.logs, "logs differ {sizes}");
        }
        whole
    }

    /// Handles items in batches; on a failure says which item it was.
    fn handle(&mut self, items: &[Item]) -> Result<(), (usize, TestFailure)> {
        let mut start = 0;
        for batch in items.chunks(self.batch_size) {
            if let Err(failure) = self.call(batch) {
                self.find_guilty(start, batch, &failure)?;
            }
            start += batch.len();
        }
        Ok(())
    }

    /// Handles the items of a failed batch one by one: the verdict is on one item alone.
    fn find_guilty(
        &mut self,
        start: usize,
        batch: &[Item],
        failure: &Failure,
    ) -> Result<(), (usize, TestFailure)> {
        for (index, item) in batch.iter().enumerate() {
            if let Err(failure) = self.call(std::slice::from_ref(item)) {
                let failure = TestFailure {
                    item: Some(self.name_of(item)),
                    reason: failure.reason,
                };
                return Err((start + index, failure));
            }
        }
        panic!(
            "the batch fails as a whole, but none of its items alone: {}",
            failure.reason
        );
    }

    fn name_of(&self, item: &Item) -> String {
        let key = item.key.escape_ascii();
        let stream = usize::from(item.stream);
        match &item.content {
            Content::Message { payload } => format!(
                "message \"{}\" with key \"{key}\" of stream {:?}",
                payload.escape_ascii(),
                self.description.inputs[stream]
            ),
            Content::Timer { .. } => format!(
                "timer {:?} with key \"{key}\"",
                self.description.timers[stream].name
            ),
        }
    }

    /// One watermark step, or one moment of the clock: fires due timers until none is left, at most
    /// one for each key in a call. A timer that a handler sets for a moment not after the one that
    /// fired waits for the next step.
    fn fire(&mut self, domain: bindings::TimeDomain, now: u64) -> Result<(), TestFailure> {
        let mut waiting = BTreeSet::new();
        let outcome = loop {
            let mut keys = BTreeSet::new();
            let due: Vec<StandingTimer> = (self.timers.iter())
                .take_while(|timer| timer.trigger_time.0 <= now)
                .filter(|timer| self.domain_of(timer.stream) == domain)
                .filter(|timer| keys.insert(&timer.key))
                .cloned()
                .collect();
            if due.is_empty() {
                break Ok(());
            }
            let items: Vec<Item> = due.iter().map(timer_item).collect();
            let fired: BTreeMap<Vec<u8>, Timestamp> = due
                .iter()
                .map(|timer| (timer.key.clone(), timer.trigger_time))
                .collect();
            for timer in &due {
                self.timers.remove(timer);
            }
            let before = self.timers.clone();
            if let Err((_, failure)) = self.handle(&items) {
                break Err(failure);
            }
            let late: Vec<StandingTimer> = (self.timers.difference(&before))
                .filter(|timer| {
                    fired
                        .get(&timer.key)
                        .is_some_and(|at| timer.trigger_time <= *at)
                })
                .cloned()
                .collect();
            for timer in late {
                self.timers.remove(&timer);
                waiting.insert(timer);
            }
        };
        self.timers.append(&mut waiting);
        outcome
    }

    fn domain_of(&self, stream: u16) -> bindings::TimeDomain {
        self.description.timers[usize::from(stream)].time
    }

    /// One call, and its effects.
    fn call(&mut self, items: &[Item]) -> Result<(), Failure> {
        let keys: BTreeSet<&[u8]> = items.iter().map(|item| item.key.as_slice()).collect();
        let keys: Vec<&[u8]> = keys.into_iter().collect();
        let effects = (self.process)(&self.parameters, self.batch(&keys, items))?;
        self.apply(&keys, items, &effects);
        Ok(())
    }

    fn batch(&self, keys: &[&[u8]], items: &[Item]) -> Batch {
        let mut batch = Batch {
            watermarks: self.watermarks.clone(),
            keys: column::with_capacity(keys.len()),
            states: self
                .states
                .iter()
                .map(|rows| state_column(rows, keys))
                .collect(),
            timers: bindings::Timers {
                streams: Vec::new(),
                keys: Vec::new(),
                trigger_times: Vec::new(),
                event_times: Vec::new(),
            },
            messages: Messages {
                streams: Vec::new(),
                keys: Vec::new(),
                event_times: Vec::new(),
                payloads: column::with_capacity(items.len()),
            },
            visits: Vec::new(),
        };
        for key in keys {
            column::push(&mut batch.keys, key);
        }
        for item in items {
            let key = keys.partition_point(|key| *key < item.key.as_slice()) as u32;
            match &item.content {
                Content::Message { payload } => {
                    batch.messages.streams.push(item.stream);
                    batch.messages.keys.push(key);
                    batch.messages.event_times.push(item.event_time);
                    column::push(&mut batch.messages.payloads, payload);
                }
                Content::Timer { trigger_time } => {
                    batch.timers.streams.push(item.stream);
                    batch.timers.keys.push(key);
                    batch.timers.trigger_times.push(*trigger_time);
                    batch.timers.event_times.push(item.event_time);
                }
            }
        }
        batch
    }

    fn apply(&mut self, keys: &[&[u8]], items: &[Item], effects: &bindings::Effects) {
        let outputs = &effects.outputs;
        for index in 0..outputs.streams.len() {
            let parent = &items[outputs.parents[index] as usize];
            let event_time = outputs.event_times.get(index).copied();
            self.outputs.push(Output {
                stream: self.description.outputs[usize::from(outputs.streams[index])].clone(),
                key: column::value(&outputs.keys, index).to_vec(),
                event_time: Timestamp(event_time.unwrap_or(parent.event_time)),
                payload: column::value(&outputs.payloads, index).to_vec(),
            });
        }
        for (rows, changed) in self.states.iter_mut().zip(&effects.states) {
            for (index, key) in changed.keys.iter().enumerate() {
                let key = keys[*key as usize];
                match column::value(&changed.values, index) {
                    [] => rows.remove(key),
                    value => rows.insert(key.to_vec(), value.to_vec()),
                };
            }
        }
        self.apply_timers(keys, effects);
        for line in &effects.logs {
            self.logs.push(Log {
                level: match line.level {
                    bindings::Level::Debug => Level::Debug,
                    bindings::Level::Info => Level::Info,
                    bindings::Level::Warn => Level::Warn,
                    bindings::Level::Error => Level::Error,
                },
                text: line.text.clone(),
            });
        }
    }

    fn apply_timers(&mut self, keys: &[&[u8]], effects: &bindings::Effects) {
        for timers in [&effects.cancel_timers, &effects.set_timers] {
            for index in 0..timers.streams.len() {
                let stream = timers.streams[index];
                let key = keys[timers.keys[index] as usize];
                let system = self.domain_of(stream) == bindings::TimeDomain::SystemTime;
                let trigger_time = match system {
                    true => self.clock_ms.saturating_add(timers.trigger_times[index]),
                    false => timers.trigger_times[index],
                };
                self.timers.retain(|timer| {
                    let same = timer.stream == stream
                        && timer.key == key
                        && (system || timer.trigger_time.0 == trigger_time);
                    !same
                });
                if let Some(event_time) = timers.event_times.get(index) {
                    self.timers.insert(StandingTimer {
                        trigger_time: Timestamp(trigger_time),
                        stream,
                        key: key.to_vec(),
                        event_time: Timestamp(*event_time),
                        name: self.description.timers[usize::from(stream)].name.clone(),
                    });
                }
            }
        }
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

fn timer_item(timer: &StandingTimer) -> Item {
    Item {
        stream: timer.stream,
        key: timer.key.clone(),
        event_time: timer.event_time.0,
        content: Content::Timer {
            trigger_time: timer.trigger_time.0,
        },
    }
}

fn state_column(rows: &BTreeMap<Vec<u8>, Vec<u8>>, keys: &[&[u8]]) -> StateColumn {
    let mut state = StateColumn {
        keys: Vec::new(),
        values: column::with_capacity(0),
    };
    for (index, key) in (0..).zip(keys) {
        if let Some(value) = rows.get(*key) {
            state.keys.push(index);
            column::push(&mut state.values, value);
        }
    }
    state
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
