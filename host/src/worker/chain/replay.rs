//! The item of a dead letter through the chain once more: the computation that failed on it, then those behind it.

use crate::engine::epoch::OpenEpoch;
use crate::engine::stream::{CallItems, InputMessages, StreamMessages, distribute};
use crate::storage::Storage;
use crate::types::batch::{Batch, MessageColumns, TimerColumns};
use crate::types::dead_letter::LetterItem;
use crate::types::pipeline::OnFailure;
use crate::types::timer::TimerSetting;

use super::keyed::KeyedCall;
use super::node::Node;
use super::{Chain, ChainError};

impl Chain {
    /// Whether the computation of that name is in the chain and reads the stream, or has the timer stream, that the item is
    /// of.
    pub fn can_replay(&self, computation: &str, item: &LetterItem) -> bool {
        self.batch_of(computation, item).is_some()
    }

    /// Processes the item of a dead letter as one that has just come: states and watermarks are those of now, and a timer
    /// fires though it is no longer pending. What fails is passed over and kept, whatever the policies say: a person has
    /// asked, and the job goes on.
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
    ) -> Result<(), ChainError> {
        self.begin_batch();
        let policies = self.keep_whatever_fails();
        let replayed = self.replay_item(computation, item, setting, epoch, storage);
        self.restore(&policies);
        replayed
    }

    fn replay_item(
        &mut self,
        computation: &str,
        item: &LetterItem,
        setting: TimerSetting,
        epoch: &mut OpenEpoch,
        storage: &dyn Storage,
    ) -> Result<(), ChainError> {
        let Some(mut batch) = self.batch_of(computation, item) else {
            return Ok(());
        };
        count_in(&batch, epoch);
        let mut items = CallItems {
            roots: vec![0],
            event_times: [&batch.timers.event_times[..], &batch.messages.event_times].concat(),
            ..CallItems::default()
        };
        if let Some(place) = self.place_of(computation) {
            let node = &mut self.maps[place];
            if node.keeps_origins {
                items.origins.push([0]);
            }
            match node.call(
                &batch,
                &items,
                epoch,
                &mut self.attempts,
                &mut self.letter_room,
            ) {
                Ok((effects, passed)) => {
                    self.passed.extend(passed);
                    let outputs = &node.plan.outputs;
                    distribute(&effects.outputs, &items, outputs, &mut self.streams);
                }
                Err(failure) => return Err(ChainError::Guest(failure)),
            }
            return self.run_maps_from(place + 1, None, epoch);
        }
        let slots = self.fill_in(&mut batch, &items, epoch, storage)?;
        let Some(keyed) = &mut self.transform else {
            return Ok(());
        };
        match keyed.node.call(
            &batch,
            &items,
            epoch,
            &mut self.attempts,
            &mut self.letter_room,
        ) {
            Ok((effects, passed)) => {
                let call = KeyedCall {
                    keys: &batch.keys,
                    items: &items,
                    slots: &slots,
                    effects: &effects,
                };
                let of = (&batch, &passed[..]);
                keyed.apply(of, &call, setting, epoch, storage, &mut self.streams)?;
                self.passed.extend(passed);
            }
            Err(failure) => return Err(ChainError::Guest(failure)),
        }
        self.run_maps_from(0, None, epoch)
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
        let policies = self.keep_whatever_fails();
        epoch.add_input(&records);
        // All go back to the one item that is replayed.
        self.streams[0] = StreamMessages {
            roots: vec![0; records.len()],
            keys: records.keys,
            event_times: records.event_times,
            payloads: records.payloads,
            ..StreamMessages::default()
        };
        let replayed = self.run_maps_from(0, None, epoch);
        self.restore(&policies);
        replayed
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
