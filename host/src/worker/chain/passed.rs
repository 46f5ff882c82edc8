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

/// The most bytes of what is kept of items that one batch of a job's input leads to; what fails beyond is kept without
/// what is needed to repeat its call. An epoch must be able to hold it.
pub const BATCH_KEPT_BYTES_MAX: usize = 128 << 20;

/// Bytes of the reason of a failure that is kept without the rest.
const SHORT_REASON_BYTES: usize = 256;

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
        room_bytes: &mut usize,
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
            )
            .map(|kept| kept.within(room_bytes)),
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

impl KeptItem {
    /// The same, without what is needed to repeat the call where there is no room for that.
    fn within(mut self: Box<KeptItem>, room_bytes: &mut usize) -> Box<KeptItem> {
        let LetterFailure {
            reason,
            backtrace,
            stdout,
            stderr,
            ..
        } = &mut self.failure;
        let texts = [&*reason, &*backtrace, &*stdout, &*stderr].map(String::len);
        let mut size_bytes = SHORT_REASON_BYTES + texts.iter().sum::<usize>();
        if let LetterItem::Message { key, payload, .. } = &self.item {
            size_bytes += key.len() + payload.len();
        }
        if let LetterOrigin::Computation(computation) = &self.origin {
            let states = computation.batch.states.iter();
            let states = states.map(|state| state.values.bytes.len());
            size_bytes += computation.settings.len() + states.sum::<usize>();
        }
        if let Some(left) = room_bytes.checked_sub(size_bytes) {
            *room_bytes = left;
            return self;
        }
        *room_bytes = 0;
        reason.truncate(reason.floor_char_boundary(SHORT_REASON_BYTES));
        for text in [backtrace, stdout, stderr] {
            *text = String::new();
        }
        if let LetterOrigin::Computation(computation) = &mut self.origin {
            computation.settings = String::new();
            computation.batch = Batch::default();
        }
        self
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// However much fails at once, each item is kept, and an epoch can hold them.
    #[test]
    fn p2_what_is_kept_of_one_batch_is_bounded_and_every_item_is_there() {
        let kept = || {
            Box::new(KeptItem {
                origin: LetterOrigin::Computation(Box::new(FailedComputation {
                    name: "refuse".to_owned(),
                    component: "refuse.wasm".to_owned(),
                    digest: "sha256:00".to_owned(),
                    settings: "{}".to_owned(),
                    batch: Batch::default(),
                    left_out_state_bytes: 0,
                })),
                item: LetterItem::Message {
                    stream: "lines".to_owned(),
                    key: Vec::new(),
                    event_time: 0,
                    payload: b"payload".to_vec(),
                },
                failure: LetterFailure {
                    reason: "\u{e9}".repeat(1_000),
                    stderr: "x".repeat(1 << 20),
                    ..LetterFailure::default()
                },
                attempts: 1,
            })
        };
        let mut room_bytes = BATCH_KEPT_BYTES_MAX;
        let all: Vec<Box<KeptItem>> = (0..200).map(|_| kept().within(&mut room_bytes)).collect();
        let told = |kept: &KeptItem| kept.failure.stderr.len() + kept.failure.reason.len();
        assert!(
            all.iter().map(|kept| told(kept)).sum::<usize>()
                <= BATCH_KEPT_BYTES_MAX + 200 * SHORT_REASON_BYTES
        );
        let is_whole = |kept: &KeptItem| match &kept.origin {
            LetterOrigin::Computation(computation) => !computation.settings.is_empty(),
            LetterOrigin::Source { .. } => false,
        };
        let whole = all.iter().filter(|kept| is_whole(kept)).count();
        assert!((100..200).contains(&whole), "{whole}");
        for kept in &all {
            let LetterItem::Message { payload, .. } = &kept.item else {
                panic!("{kept:?}");
            };
            assert_eq!(payload, b"payload");
            assert!(!kept.failure.reason.is_empty());
        }
    }
}
