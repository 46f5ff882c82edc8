//! Items that a computation of the chain was passed over for, as dead letters tell of them.

use crate::guest::PassedItem;
use crate::types::batch::Batch;
use crate::types::dead_letter::{FailedComputation, LetterFailure, LetterItem, LetterOrigin};
use crate::types::pipeline::OnFailure;
use crate::worker::plan::NodePlan;

/// An item of a computation that the chain has moved past.
#[derive(Debug)]
pub struct PassedOver {
    /// Its number among the items of the call.
    pub item: u32,
    /// The item of the job's input that it is or goes back to.
    pub root: u32,
    /// What is kept of it; `None` where it is skipped.
    pub kept: Option<Box<KeptItem>>,
}

/// What is kept of an item.
#[derive(Debug)]
pub struct KeptItem {
    /// Who failed on it, in which call.
    pub origin: LetterOrigin,
    /// The item as it came to the computation.
    pub item: LetterItem,
    /// How it failed.
    pub failure: LetterFailure,
    /// How often it was tried.
    pub attempts: u32,
}

impl PassedOver {
    /// An item that the computation of `plan` was passed over for, after `attempts`. `roots` are the items of the
    /// job's input that the items of the call go back to.
    pub(super) fn of(
        plan: &NodePlan,
        passed: PassedItem,
        roots: &[u32],
        attempts: u32,
    ) -> PassedOver {
        let root = roots.get(passed.item as usize).copied().unwrap_or_default();
        let failure = || passed.error.letter_failure().unwrap_or_default();
        PassedOver {
            item: passed.item,
            root,
            kept: keep(
                plan,
                (passed.batch, passed.left_out_state_bytes),
                failure,
                attempts,
            ),
        }
    }

    /// The only item of a batch, with which the process has ended `attempts` times, so that the computation of `plan` is
    /// not called with it any more.
    pub(super) fn given_up(plan: &NodePlan, batch: Batch, attempts: u32) -> PassedOver {
        let failure = || LetterFailure {
            class: GIVEN_UP.to_owned(),
            reason: format!("the process ended {attempts} times while it was processed"),
            ..LetterFailure::default()
        };
        PassedOver {
            item: 0,
            root: 0,
            kept: keep(plan, (batch, 0), failure, attempts),
        }
    }
}

/// The class of failure of an item that the process has ended with.
const GIVEN_UP: &str = "unclean_stop";

fn keep(
    plan: &NodePlan,
    (batch, left_out_state_bytes): (Batch, u64),
    failure: impl FnOnce() -> LetterFailure,
    attempts: u32,
) -> Option<Box<KeptItem>> {
    let of = &plan.failure;
    (of.policy.on_failure == OnFailure::DeadLetter).then(|| {
        Box::new(KeptItem {
            item: only_item(plan, &batch),
            failure: failure(),
            attempts,
            origin: LetterOrigin::Computation(Box::new(FailedComputation {
                name: plan.name.clone(),
                component: of.component.clone(),
                digest: of.digest.clone(),
                settings: of.settings.clone(),
                batch,
                left_out_state_bytes,
            })),
        })
    })
}

/// The item of a batch that has one.
fn only_item(plan: &NodePlan, batch: &Batch) -> LetterItem {
    let key = batch.keys.iter().next().unwrap_or_default().to_vec();
    if let Some(stream) = batch.timers.streams.first() {
        let declared = &plan.computation.description().timers;
        let name = declared.get(usize::from(*stream)).map(|timer| &timer.name);
        return LetterItem::Timer {
            stream: name.cloned().unwrap_or_default(),
            key,
            trigger_time: batch.timers.trigger_times[0],
            event_time: batch.timers.event_times[0],
        };
    }
    let stream = batch.messages.streams.first().copied().unwrap_or_default();
    let name = plan.failure.inputs.get(usize::from(stream));
    LetterItem::Message {
        stream: name.cloned().unwrap_or_default(),
        key,
        event_time: (batch.messages.event_times.first().copied()).unwrap_or_default(),
        payload: (batch.messages.payloads.iter().next())
            .unwrap_or_default()
            .to_vec(),
    }
}
