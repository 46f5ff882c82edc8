//! The item of a dead letter through the chain once more: the computation that failed on it, then those behind it.

use crate::engine::epoch::OpenEpoch;
use crate::engine::stream::{CallItems, InputMessages};
use crate::storage::Storage;
use crate::types::batch::{Batch, MessageColumns, TimerColumns};
use crate::types::dead_letter::LetterItem;
use crate::types::pipeline::OnFailure;
use crate::types::timer::TimerSetting;

use super::node::Node;
use super::{Chain, ChainError};

impl Chain {
    /// Processes the item of a dead letter as one that has just come: states and watermarks are those of now, and a timer
    /// fires though it is no longer pending. What fails is passed over and kept, whatever the policies say: a person has
    /// asked, and the job goes on. Whether the computation is in the chain and reads the stream, or has the timer stream,
    /// that the item is of; else nothing is done.
    ///
    /// # Errors
    ///
    /// As [`Chain::run`]; the item is number 0.
    pub fn replay(
        &mut self,
        computation: &str,
        item: &LetterItem,
        setting: TimerSetting,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<bool, ChainError> {
        let Some(batch) = self.batch_of(computation, item) else {
            return Ok(false);
        };
        self.begin_batch();
        count_in(&batch, epoch);
        let mut items = CallItems {
            roots: vec![0],
            event_times: [&batch.timers.event_times[..], &batch.messages.event_times].concat(),
            ..CallItems::default()
        };
        self.keeping_whatever_fails(|chain| {
            let Some(place) = chain.place_of(computation) else {
                let failure = chain.run_transform(batch, &items, setting, epoch, storage)?;
                return chain.run_maps(failure, epoch);
            };
            if chain.maps[place].keeps_origins {
                items.origins.push([0]);
            }
            let failure = chain.call_map(place, &batch, &items, epoch)?;
            chain.run_maps_from(place + 1, failure, epoch)
        })?;
        Ok(true)
    }

    /// Records of the job's source, of which one could not be decoded when it came.
    ///
    /// # Errors
    ///
    /// As [`Chain::run`].
    pub fn replay_records(
        &mut self,
        records: InputMessages,
        epoch: &mut OpenEpoch,
    ) -> Result<(), ChainError> {
        self.begin_batch();
        epoch.add_input(&records);
        let count = records.len();
        self.take_records(records);
        // All go back to the one item that is replayed.
        self.streams[0].roots = vec![0; count];
        self.keeping_whatever_fails(|chain| chain.run_maps(None, epoch))
    }

    /// Has every computation pass over and keep what it fails on while `run` goes on.
    fn keeping_whatever_fails<T>(&mut self, run: impl FnOnce(&mut Chain) -> T) -> T {
        let policies = self.keep_whatever_fails();
        let done = run(self);
        self.restore(&policies);
        done
    }

    /// Has every computation pass over what it fails on, and returns what they did before.
    fn keep_whatever_fails(&mut self) -> Vec<OnFailure> {
        self.attempts.set_replaying(true);
        let nodes = self.nodes_mut();
        let kept = nodes.map(|node| {
            let policy = &mut node.plan.failure.policy.on_failure;
            std::mem::replace(policy, OnFailure::DeadLetter)
        });
        kept.collect()
    }

    fn restore(&mut self, policies: &[OnFailure]) {
        self.attempts.set_replaying(false);
        for (node, policy) in self.nodes_mut().zip(policies) {
            node.plan.failure.policy.on_failure = *policy;
        }
    }

    fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        let transform = self.transform.as_mut().map(|keyed| &mut keyed.node);
        transform.into_iter().chain(&mut self.maps)
    }

    /// The place of a map among the maps.
    fn place_of(&self, computation: &str) -> Option<usize> {
        (self.maps.iter()).position(|map| map.plan.name == computation)
    }

    /// The item alone, as a batch of the computation.
    fn batch_of(&self, computation: &str, item: &LetterItem) -> Option<Batch> {
        let transform = self.transform.as_ref().map(|keyed| &keyed.node);
        let mut nodes = transform.into_iter().chain(&self.maps);
        let plan = &nodes.find(|node| node.plan.name == computation)?.plan;
        match item {
            LetterItem::Message {
                stream,
                key,
                event_time,
                payload,
            } => {
                let input = plan
                    .failure
                    .inputs
                    .iter()
                    .position(|input| input == stream)?;
                Some(Batch {
                    keys: [&key[..]].into_iter().collect(),
                    messages: MessageColumns {
                        streams: vec![u16::try_from(input).ok()?],
                        keys: vec![0],
                        event_times: vec![*event_time],
                        payloads: [&payload[..]].into_iter().collect(),
                    },
                    ..Batch::default()
                })
            }
            LetterItem::Timer {
                stream,
                key,
                trigger_time,
                event_time,
            } => {
                let declared = &plan.computation.description().timers;
                let place = declared.iter().position(|timer| timer.name == *stream)?;
                Some(Batch {
                    keys: [&key[..]].into_iter().collect(),
                    timers: TimerColumns {
                        streams: vec![u16::try_from(place).ok()?],
                        keys: vec![0],
                        trigger_times: vec![*trigger_time],
                        event_times: vec![*event_time],
                    },
                    ..Batch::default()
                })
            }
            LetterItem::Record { .. } => None,
        }
    }
}

/// Counts the item in, as one of the epoch's input.
fn count_in(batch: &Batch, epoch: &mut OpenEpoch) {
    if batch.timers.keys.is_empty() {
        let mut input = InputMessages::default();
        let messages = &batch.messages;
        input.push(
            messages.streams[0],
            batch.keys.get(0),
            messages.event_times[0],
            messages.payloads.get(0),
        );
        epoch.add_input(&input);
    } else {
        epoch.add_timers(batch);
    }
}
