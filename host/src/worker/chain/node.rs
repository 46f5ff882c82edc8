//! A computation in a chain: calls, audits, verdicts, log lines.

use crate::engine::epoch::OpenEpoch;
use crate::engine::stream::{CallItems, StreamMessages, distribute};
use crate::guest::{AfterFailure, Call, Computation, GuestError};
use crate::types::batch::{Batch, Effects, LogLevel};
use crate::types::epoch::Checksum;
use crate::types::ids::EpochId;
use crate::worker::attempts::Attempts;
use crate::worker::cut_audit::CutAudit;
use crate::worker::plan::NodePlan;

use super::{ChainError, ChainFailure, PassedOver};

/// A computation in the chain.
pub(super) struct Node {
    pub(super) plan: NodePlan,
    pub(super) audit: Option<CutAudit>,
    /// Whether it is to be kept which items of the job's input its outputs go back to.
    pub(super) keeps_origins: bool,
}

impl Node {
    pub(super) fn new(plan: NodePlan) -> Node {
        Node {
            audit: CutAudit::of(&plan.computation),
            keeps_origins: false,
            plan,
        }
    }

    /// Calls the guest, audits what it returned, counts what it used, hands its log lines on. Beside the effects it
    /// returns the items that were passed over.
    pub(super) fn call(
        &mut self,
        batch: &Batch,
        items: &CallItems,
        epoch: &mut OpenEpoch,
        attempts: &mut Attempts,
        room_bytes: &mut usize,
    ) -> Result<(Effects, Vec<PassedOver>), Box<ChainFailure>> {
        let (policy, name) = (self.plan.failure.policy, self.plan.name.clone());
        let determinism = self.plan.computation.verdicts().determinism;
        let epoch_id = epoch.id();
        let checksum = |item| item_checksum(&name, epoch_id, batch, item);
        let mut decide = |item, error: &GuestError| {
            attempts.decide(&policy, determinism, || checksum(item), error)
        };
        let answer = (self.plan.computation).process_deciding(batch, &mut decide);
        let answer = answer.and_then(|call| {
            let cut = self
                .audit
                .as_mut()
                .and_then(|audit| audit.next_cut(batch.item_count()));
            match cut {
                Some(at) => audit_cut(&self.plan.computation, batch, &call, at).map(|()| call),
                None => Ok(call),
            }
        });
        match answer {
            Ok(call) => {
                epoch.add_call(call.fuel);
                log_call(&self.plan.name, &call);
                let passed = call.passed_items.into_iter().map(|passed| {
                    let count = attempts.of(checksum(passed.item));
                    PassedOver::of(&self.plan, passed, &items.roots, count, room_bytes)
                });
                Ok((call.effects, passed.collect()))
            }
            Err(error) => Err(Box::new(ChainFailure {
                computation: self.plan.name.clone(),
                items: failed_items(&error, items),
                error,
            })),
        }
    }

    /// After a failed call: where it is the verdict on an item, leaves in the streams what the items
    /// before that one led to, if computations follow.
    ///
    /// # Errors
    ///
    /// A failure that is not on one item, so that nothing can come before it.
    pub(super) fn fail(
        &mut self,
        failure: Box<ChainFailure>,
        batch: &Batch,
        items: &CallItems,
        followed: bool,
        streams: &mut [StreamMessages],
    ) -> Result<Option<Box<ChainFailure>>, ChainError> {
        let Some(item) = failure.error.item() else {
            return Err(ChainError::Guest(failure));
        };
        if followed && item > 0 {
            let computation = &mut self.plan.computation;
            let before = computation.items_before(batch, item);
            // They have passed before, or were passed over: another failure would tell of the machine.
            let passing = computation.process_deciding(&before, &mut |_, _| AfterFailure::PassOver);
            if let Ok(call) = passing {
                distribute(&call.effects.outputs, items, &self.plan.outputs, streams);
            }
        }
        for stream in streams {
            stream.keep_before(failure.items.start);
        }
        Ok(Some(failure))
    }
}

/// Runs a batch again under another cut. An audit that proves nothing fails nothing.
fn audit_cut(
    computation: &Computation,
    batch: &Batch,
    call: &Call,
    at: usize,
) -> Result<(), GuestError> {
    match computation.verify_cut(batch, call, at) {
        Err(error) if !matches!(error, GuestError::DependsOnCut { .. }) => {
            tracing::warn!(%error, "cut audit given up");
            Ok(())
        }
        proof => proof,
    }
}

/// What an item is known by while it is tried: the same after a restart, as long as nothing behind the epoch before is
/// committed.
fn item_checksum(computation: &str, epoch: EpochId, batch: &Batch, item: u32) -> Checksum {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(computation.as_bytes());
    add(&epoch.0.to_le_bytes());
    let (timers, messages) = (&batch.timers, &batch.messages);
    let at = item as usize;
    if let Some(key) = timers.keys.get(at) {
        add(batch.keys.get(*key as usize));
        add(&timers.streams[at].to_le_bytes());
        add(&timers.trigger_times[at].to_le_bytes());
    } else if let Some(at) = at.checked_sub(timers.keys.len())
        && let Some(key) = messages.keys.get(at)
    {
        add(batch.keys.get(*key as usize));
        add(&messages.streams[at].to_le_bytes());
        add(&messages.event_times[at].to_le_bytes());
        add(messages.payloads.get(at));
    }
    Checksum::finish(&hasher)
}

/// Which items of the job's input a failed call speaks of: the one that the verdict is on, or
/// all.
fn failed_items(error: &GuestError, items: &CallItems) -> std::ops::Range<u32> {
    let first = items.roots.first().copied().unwrap_or(0);
    let last = items.roots.last().copied().unwrap_or(0);
    error
        .item()
        .and_then(|item| items.roots.get(item as usize).copied())
        .map_or(first..last + 1, |root| root..root + 1)
}

fn log_call(computation: &str, call: &Call) {
    for line in &call.effects.logs {
        let text = line.text.as_str();
        match line.level {
            LogLevel::Debug => tracing::debug!(target: "guest", computation, text, "guest logged"),
            LogLevel::Info => tracing::info!(target: "guest", computation, text, "guest logged"),
            LogLevel::Warn => tracing::warn!(target: "guest", computation, text, "guest logged"),
            LogLevel::Error => tracing::error!(target: "guest", computation, text, "guest logged"),
        }
    }
    for (stream, text) in [("stdout", &call.stdout), ("stderr", &call.stderr)] {
        if !text.is_empty() {
            tracing::info!(target: "guest", computation, stream, text, "guest printed");
        }
    }
}
