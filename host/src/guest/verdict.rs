//! From a batch that failed to the one item that is to blame, or to the effects after all.
//!
//! A limit holds for a call and a batch is as large as the host likes, so a failed call says nothing
//! yet: the batch is run again in halves, the earlier one first, each on a fresh instance, with the
//! states that the items before left behind. Halves that fail are halved again. **Invariant:** the
//! verdict is on one item that failed alone, after all items before it had passed; so neither results
//! nor failures depend on how the host cut its input into batches.
//!
//! **Work:** an item is handed over once for each level of halving, and there are about log2 n of
//! them for n items. A batch with one item to blame takes at most that many failing calls and as many
//! that pass; what has passed is not run again. A guest's hint where to cut is followed on the first
//! [`HINTED_LEVELS`] levels, so a right one leaves the prefix and the item, and a wrong one costs no
//! more than those levels. Where a verdict does not end the batch but the item is passed over, the next hint is
//! followed again.

use std::ops::Range;

use crate::guest::call_fault::FailedCall;
use crate::guest::computation::{Call, ComputationSettings};
use crate::guest::cut::CutBatch;
use crate::guest::error::GuestError;
use crate::guest::passed_item::{AfterFailure, PassedItem};
use crate::types::batch::Batch;

/// On how many levels of halving the guest's hint is followed: one to cut before the item, one to
/// cut behind it.
const HINTED_LEVELS: u32 = 2;

/// The most that the parts of one batch may want done, all together. Each of them is within
/// `limits.output`, but there may be as many as items, and the host holds all of it.
const PARTS_BYTES_MAX: usize = 1 << 30;

/// How a call on a fresh instance ended without effects.
pub(super) enum CallFailure {
    /// In the guest, so that a smaller batch may pass.
    OfTheBatch(Box<FailedCall>),
    /// Before the guest saw the batch.
    NotOfTheBatch(GuestError),
}

/// The parts of a batch that are still to be run, in order.
pub(super) struct Parts {
    /// The next one is the last.
    waiting: Vec<Part>,
    /// How the call with the first of them ended, where it has been made.
    failed: Option<Box<FailedCall>>,
}

struct Part {
    items: Range<usize>,
    /// How often it was cut out of a larger one.
    level: u32,
}

impl Parts {
    /// Two parts, cut before item `at`.
    pub(super) fn cut_at(item_count: usize, at: usize) -> Parts {
        let mut parts = Parts {
            waiting: Vec::new(),
            failed: None,
        };
        parts.push(0..item_count, 0, at);
        parts
    }

    /// A batch that failed as a whole.
    pub(super) fn of_failed(item_count: usize, failed: Box<FailedCall>) -> Parts {
        let whole = Part {
            items: 0..item_count,
            level: 0,
        };
        Parts {
            waiting: vec![whole],
            failed: Some(failed),
        }
    }

    fn push(&mut self, items: Range<usize>, level: u32, at: usize) {
        for part in [at..items.end, items.start..at] {
            if !part.is_empty() {
                self.waiting.push(Part {
                    items: part,
                    level: level + 1,
                });
            }
        }
    }

    /// Runs part after part with `call`, cuts those that fail (in halves, or before and behind the item that the
    /// guest named), and puts the effects together. `decide` says what becomes of an item that fails alone.
    ///
    /// # Errors
    ///
    /// The verdict on the first item that fails alone and is not passed over, [`GuestError::PartsTooLarge`], or what
    /// kept a part from being run.
    pub(super) fn run(
        mut self,
        mut batch: CutBatch<'_>,
        settings: &ComputationSettings,
        mut call: impl FnMut(&Batch) -> Result<Call, CallFailure>,
        decide: &mut dyn FnMut(u32, &GuestError) -> AfterFailure,
    ) -> Result<Call, GuestError> {
        let log_bytes = settings.limits.log_bytes;
        let (mut joined, mut kept_bytes) = (Call::default(), 0);
        while let Some(next) = self.waiting.pop() {
            let part = batch.part(next.items.clone());
            let answer = match self.failed.take() {
                Some(failed) => Err(CallFailure::OfTheBatch(failed)),
                None => call(&part.batch),
            };
            match answer {
                Ok(answer) => {
                    joined.parts += 1;
                    joined.fuel = joined.fuel.saturating_add(answer.fuel);
                    append(&mut joined.stdout, &answer.stdout, log_bytes);
                    append(&mut joined.stderr, &answer.stderr, log_bytes);
                    batch.add(&part, answer.effects);
                    check_size(&batch, settings)?;
                }
                Err(CallFailure::NotOfTheBatch(error)) => return Err(error),
                Err(CallFailure::OfTheBatch(failed)) if next.items.len() == 1 => {
                    let item = next.items.start as u32;
                    let error = failed.into_error(settings, Some(item));
                    match decide(item, &error) {
                        AfterFailure::Fail => return Err(error),
                        AfterFailure::TryAgain => self.waiting.push(next),
                        AfterFailure::PassOver => {
                            let passed = PassedItem::new(item, part.batch, error, &mut kept_bytes);
                            joined.passed_items.push(passed);
                            if let Some(rest) = self.waiting.last_mut() {
                                rest.level = 0;
                            }
                        }
                    }
                }
                Err(CallFailure::OfTheBatch(failed)) => {
                    let at = next.cut(failed.hint());
                    self.push(next.items, next.level, at);
                }
            }
        }
        joined.effects = batch.finish(&settings.limits);
        Ok(joined)
    }
}

impl Part {
    /// Where to cut it: an item of the batch that lies inside.
    fn cut(&self, hint: Option<u32>) -> usize {
        let count = self.items.len();
        let hinted = hint.filter(|_| self.level < HINTED_LEVELS);
        let at = match hinted.map(|item| item as usize) {
            Some(0) => 1,
            Some(item) if item < count => item,
            Some(_) | None => count / 2,
        };
        self.items.start + at
    }
}

fn check_size(batch: &CutBatch<'_>, settings: &ComputationSettings) -> Result<(), GuestError> {
    match batch.size_bytes() > PARTS_BYTES_MAX {
        true => Err(GuestError::PartsTooLarge {
            computation: settings.name.clone(),
            limit_bytes: PARTS_BYTES_MAX,
        }),
        false => Ok(()),
    }
}

/// Appends what a part printed; together they keep no more than one call may print.
fn append(prints: &mut String, more: &str, bytes_max: usize) {
    let room = bytes_max.saturating_sub(prints.len());
    prints.push_str(&more[..more.floor_char_boundary(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::call_fault::CallFault;
    use crate::guest::error::CallReport;
    use crate::types::batch::{ComputationKind, Description};
    use crate::types::pipeline::{CallLimits, Grants, InstancePolicy};

    fn settings() -> ComputationSettings {
        ComputationSettings {
            name: "tried".to_owned(),
            parameters: String::new(),
            grants: Grants::default(),
            limits: CallLimits::default(),
            instance: InstancePolicy::Fresh,
            relaxed_batching: false,
        }
    }

    /// A batch whose payloads are the numbers of its items, all with one key.
    fn batch(item_count: usize) -> Batch {
        let mut batch = Batch {
            keys: [b"k".as_slice()].into_iter().collect(),
            ..Batch::default()
        };
        for item in 0..item_count {
            batch.messages.streams.push(0);
            batch.messages.keys.push(0);
            batch.messages.event_times.push(0);
            batch.messages.payloads.push(item.to_string().as_bytes());
        }
        batch
    }

    fn numbers(part: &Batch) -> Vec<usize> {
        let number = |payload| std::str::from_utf8(payload).unwrap().parse().unwrap();
        part.messages.payloads.iter().map(number).collect()
    }

    fn failed(fault: CallFault) -> CallFailure {
        CallFailure::OfTheBatch(Box::new(FailedCall {
            fault,
            report: CallReport::default(),
        }))
    }

    /// Runs a batch that failed as a whole in halves. `fault` says how a part with these numbers
    /// fails. Also returns the parts that were run.
    fn run(
        item_count: usize,
        hint: Option<u32>,
        fault: impl Fn(&[usize]) -> Option<CallFault>,
    ) -> (Result<Call, GuestError>, Vec<Vec<usize>>) {
        run_deciding(item_count, hint, fault, |_| AfterFailure::Fail)
    }

    fn run_deciding(
        item_count: usize,
        hint: Option<u32>,
        fault: impl Fn(&[usize]) -> Option<CallFault>,
        mut decide: impl FnMut(u32) -> AfterFailure,
    ) -> (Result<Call, GuestError>, Vec<Vec<usize>>) {
        let (whole, description) = (batch(item_count), description());
        let mut calls = Vec::new();
        let whole_failed = Box::new(FailedCall {
            fault: CallFault::Failure {
                item: hint,
                reason: "refused".to_owned(),
            },
            report: CallReport::default(),
        });
        let end = Parts::of_failed(item_count, whole_failed).run(
            CutBatch::new(&whole, &description),
            &settings(),
            |part| {
                let items = numbers(part);
                let end = match fault(&items) {
                    Some(fault) => Err(failed(fault)),
                    None => Ok(Call {
                        fuel: items.len() as u64,
                        stdout: format!("{} ", items.len()),
                        ..Call::default()
                    }),
                };
                calls.push(items);
                end
            },
            &mut |item, _| decide(item),
        );
        (end, calls)
    }

    fn description() -> Description {
        Description {
            kind: ComputationKind::Map,
            inputs: Vec::new(),
            outputs: Vec::new(),
            states: Vec::new(),
            timers: Vec::new(),
        }
    }

    fn refuse(item: usize) -> impl Fn(&[usize]) -> Option<CallFault> {
        move |items| {
            items.contains(&item).then(|| CallFault::Failure {
                item: None,
                reason: "refused".to_owned(),
            })
        }
    }

    #[test]
    fn n3_the_verdict_is_on_the_item_alone_after_its_prefix() {
        for guilty in [0, 417, 998, 999] {
            let (end, calls) = run(1_000, None, refuse(guilty));
            let error = end.expect_err("one item is refused");
            assert_eq!(error.item(), Some(guilty as u32));
            assert!(error.is_verdict());
            assert_eq!(calls.last(), Some(&vec![guilty]));
            // What passed passed in order, without a gap and once.
            let passed: Vec<usize> = calls
                .iter()
                .filter(|items| !items.contains(&guilty))
                .flatten()
                .copied()
                .collect();
            assert_eq!(passed, (0..guilty).collect::<Vec<_>>());
        }
    }

    #[test]
    fn one_guilty_item_takes_a_logarithm_of_calls() {
        let levels = 1_000_f64.log2().ceil() as usize;
        for guilty in 0..1_000 {
            let (_, calls) = run(1_000, None, refuse(guilty));
            let failing = calls.iter().filter(|items| items.contains(&guilty));
            assert!(failing.count() <= levels);
            assert!(calls.len() <= 2 * levels, "{} calls", calls.len());
        }
    }

    #[test]
    fn n3_the_earliest_of_several_guilty_items_gets_the_verdict() {
        let (end, _) = run(1_000, None, |items| {
            refuse(700)(items).or_else(|| refuse(300)(items))
        });
        assert_eq!(end.expect_err("two are refused").item(), Some(300));
    }

    #[test]
    fn n3_a_batch_that_only_is_too_large_passes_in_parts() {
        let (end, calls) = run(1_000, None, |items| {
            (items.len() > 5).then_some(CallFault::OutOfFuel)
        });
        let call = end.expect("every part of five passes");
        assert_eq!(
            call.fuel, 1_000,
            "fuel of the parts that passed is added up"
        );
        let passing: Vec<usize> = calls
            .iter()
            .filter(|items| items.len() <= 5)
            .flatten()
            .copied()
            .collect();
        assert_eq!(passing, (0..1_000).collect::<Vec<_>>());
        assert_eq!(
            call.parts,
            calls.iter().filter(|items| items.len() <= 5).count()
        );
    }

    #[test]
    fn a_right_hint_leaves_the_prefix_and_the_item() {
        let hinting = |items: &[usize]| {
            let item = items.iter().position(|item| *item == 417)?;
            Some(CallFault::Failure {
                item: Some(item as u32),
                reason: "refused".to_owned(),
            })
        };
        let (end, calls) = run(1_000, Some(417), hinting);
        assert_eq!(end.expect_err("it is refused").item(), Some(417));
        let lengths: Vec<usize> = calls.iter().map(Vec::len).collect();
        assert_eq!(lengths, [417, 583, 1]);
    }

    #[test]
    fn n3_a_wrong_hint_changes_no_verdict_and_costs_little() {
        let lying = |items: &[usize]| {
            items.contains(&417).then(|| CallFault::Failure {
                item: Some(items.len() as u32 - 1),
                reason: "refused".to_owned(),
            })
        };
        let (end, calls) = run(1_000, Some(999), lying);
        assert_eq!(end.expect_err("it is refused").item(), Some(417));
        assert!(calls.len() <= 24, "{} calls", calls.len());
    }

    #[test]
    fn a_deadline_that_an_item_hits_alone_names_it_and_is_no_verdict() {
        let (end, _) = run(8, None, |items| {
            items.contains(&3).then_some(CallFault::Deadline)
        });
        let error = end.expect_err("item 3 runs too long");
        assert_eq!(error.item(), Some(3));
        assert!(!error.is_verdict());
    }

    #[test]
    fn what_is_not_of_the_batch_ends_at_once() {
        let (whole, description) = (batch(8), description());
        let mut count = 0;
        let end = Parts::cut_at(8, 4).run(
            CutBatch::new(&whole, &description),
            &settings(),
            |_| {
                count += 1;
                Err(CallFailure::NotOfTheBatch(GuestError::Runtime {
                    reason: "broken".to_owned(),
                }))
            },
            &mut |_, _| AfterFailure::PassOver,
        );
        assert_eq!(end.expect_err("it can't run").item(), None);
        assert_eq!(count, 1);
    }

    #[test]
    fn p1_guilty_items_are_passed_over_one_by_one_and_the_others_pass_once_in_order() {
        let guilty = [0, 1, 417, 418, 700, 999];
        let fault = |items: &[usize]| {
            let item = items.iter().position(|item| guilty.contains(item))?;
            Some(CallFault::Failure {
                // Every other one is named.
                item: items[item].is_multiple_of(2).then_some(item as u32),
                reason: "refused".to_owned(),
            })
        };
        let (end, calls) = run_deciding(1_000, None, fault, |_| AfterFailure::PassOver);
        let call = end.expect("all that fail are passed over");
        let passed_over: Vec<usize> = (call.passed_items.iter())
            .map(|passed| passed.item as usize)
            .collect();
        assert_eq!(passed_over, guilty);
        for passed in &call.passed_items {
            assert_eq!(numbers(&passed.batch), [passed.item as usize]);
            assert_eq!(passed.error.item(), Some(passed.item));
        }
        let passed: Vec<usize> = (calls.iter())
            .filter(|items| items.iter().all(|item| !guilty.contains(item)))
            .flatten()
            .copied()
            .collect();
        let others: Vec<usize> = (0..1_000).filter(|item| !guilty.contains(item)).collect();
        assert_eq!(passed, others);
    }

    #[test]
    fn p1_the_item_that_is_not_passed_over_ends_the_batch() {
        let (end, _) = run_deciding(
            100,
            None,
            |items| refuse(30)(items).or_else(|| refuse(60)(items)),
            |item| match item {
                30 => AfterFailure::PassOver,
                _ => AfterFailure::Fail,
            },
        );
        assert_eq!(end.expect_err("the second one counts").item(), Some(60));
    }

    #[test]
    fn an_item_alone_is_called_as_often_as_it_is_to_be_tried() {
        let mut attempts = 0;
        let (end, calls) = run_deciding(1, None, refuse(0), |_| {
            attempts += 1;
            match attempts {
                3 => AfterFailure::Fail,
                _ => AfterFailure::TryAgain,
            }
        });
        assert_eq!(end.expect_err("it fails each time").item(), Some(0));
        // The first call had been made.
        assert_eq!(calls, [[0], [0]]);
    }

    #[test]
    fn prints_of_the_parts_are_bounded_together() {
        let mut prints = "abc".to_owned();
        append(&mut prints, "dé", 5);
        assert_eq!(prints, "abcd");
        append(&mut prints, "x", 4);
        assert_eq!(prints, "abcd");
    }
}
