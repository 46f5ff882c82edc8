//! A call of the computation on a bench: items become a batch, and what comes back happens.

use std::collections::BTreeSet;

use super::batch::{self, Content, Item};
use super::bench::TestBench;
use super::failure::TestFailure;
use super::output::{Log, Output};
use crate::bindings::{self, Effects, Failure};
use crate::column;
use crate::effects::Level;
use crate::timestamp::Timestamp;

impl<C> TestBench<C> {
    /// Handles messages in batches; on a failure says which one it was.
    pub(super) fn handle(&mut self, items: &[Item]) -> Result<(), (usize, TestFailure)> {
        let mut start = 0;
        for batch in items.chunks(self.batch_size) {
            if let Err(failure) = self.call(batch) {
                self.find_guilty(start, batch, &failure)?;
            }
            start += batch.len();
        }
        Ok(())
    }

    /// Handles the messages of a failed batch one by one: the verdict is on one item alone.
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

    /// An item, for a person to read.
    pub(super) fn name_of(&self, item: &Item) -> String {
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

    /// One call, and its effects.
    fn call(&mut self, items: &[Item]) -> Result<(), Failure> {
        let keys = Self::keys_of(items);
        let effects = self.ask(&keys, items)?;
        self.apply(&keys, items, &effects);
        Ok(())
    }

    /// The keys of items, each once, in rising order.
    pub(super) fn keys_of(items: &[Item]) -> Vec<&[u8]> {
        let keys: BTreeSet<&[u8]> = items.iter().map(|item| item.key.as_slice()).collect();
        keys.into_iter().collect()
    }

    /// What the computation wants done because of these items. Nothing is done yet.
    pub(super) fn ask(&self, keys: &[&[u8]], items: &[Item]) -> Result<Effects, Failure> {
        let batch = batch::batch(&self.watermarks, &self.states, keys, items);
        (self.process)(&self.parameters, batch)
    }

    /// Does what the computation wants done because of these items.
    pub(super) fn apply(&mut self, keys: &[&[u8]], items: &[Item], effects: &Effects) {
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
        let (clock_ms, at_end) = (self.clock_ms, self.is_end_of_run());
        let declarations = &self.description.timers;
        self.timers
            .apply(declarations, keys, effects, clock_ms, at_end);
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
}
