//! A component in its place in a pipeline: judged, linked, described, ready to be called.
//!
//! Every call gets the same limits whatever its batch, and one that fails is repeated in parts until
//! it passes or one item stands alone (`verdict.rs`). By default a call gets a fresh instance too; a
//! kept one (policy `reuse`) saves its start, and any failure in it is repeated on a fresh one, so
//! that the verdict never comes from an instance with a past.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::guest::batch_size::BatchSize;
use crate::guest::bindings::exports::tidelock::computation::computation as contract;
use crate::guest::bindings::{Guest, GuestIndices};
use crate::guest::call_fault::{self, CallFault, FailedCall};
use crate::guest::columns;
use crate::guest::component::Component;
use crate::guest::cut::CutBatch;
use crate::guest::cut_difference::{self, CutDifference};
use crate::guest::deadline;
use crate::guest::description::take_description;
use crate::guest::effect_limits;
use crate::guest::error::{CallReport, GuestError};
use crate::guest::instances::InstanceSlot;
#[cfg(feature = "native-computations")]
use crate::guest::native::{self, NativeFunction};
use crate::guest::passed_item::{AfterFailure, PassedItem};
use crate::guest::policy::{self, Determinism, Verdicts};
use crate::guest::runtime::GuestRuntime;
use crate::guest::verdict::{CallFailure, Parts};
use crate::guest::wasi::{GuestState, Outside};
use crate::types::batch::{Batch, Description, Effects};
use crate::types::pipeline::{CallLimits, Grants, InstancePolicy};

/// The export that the host calls.
const CONTRACT: &str = "tidelock:computation/computation@0.1.0";
/// What the engine may copy out of a guest beyond `limits.output`: log lines, and what rows cost in
/// the host's own types. It bounds the host's memory where a guest's lists point at the same bytes
/// many times.
const COPY_BYTES_BEYOND_OUTPUT: usize = 16 << 20;

/// What a computation is made with.
#[derive(Debug, Clone)]
pub struct ComputationSettings {
    /// Its name, for errors.
    pub name: String,
    /// Its parameters, as JSON text.
    pub parameters: String,
    /// What it may see of the outside.
    pub grants: Grants,
    /// What one call may use.
    pub limits: CallLimits,
    /// When instances are made.
    pub instance: InstancePolicy,
    /// Whether an output may have several parents.
    pub relaxed_batching: bool,
}

/// A component that is ready to be called with batches.
pub struct Computation {
    runtime: Arc<GuestRuntime>,
    prepared: Prepared,
    settings: ComputationSettings,
    outside: Outside,
    verdicts: Verdicts,
    description: Description,
    kept: Option<Instance>,
    batch_size: BatchSize,
    /// Called in place of the component.
    #[cfg(feature = "native-computations")]
    native: Option<NativeFunction>,
}

/// What a batch that passed brings.
#[derive(Debug, Default)]
pub struct Call {
    /// What it wants done, checked.
    pub effects: Effects,
    /// In how many parts it passed; more than 1 after a failure of the whole.
    pub parts: usize,
    /// Fuel that it used, added up over the parts that passed.
    pub fuel: u64,
    /// What it printed, bounded.
    pub stdout: String,
    /// What it printed as errors, bounded.
    pub stderr: String,
    /// Items that were passed over, in order.
    pub passed_items: Vec<PassedItem>,
}

/// A component with its imports linked and its exports found.
struct Prepared {
    linked: InstancePre<GuestState>,
    exports: GuestIndices,
}

/// An instance with its store. The slot goes back last, when the pool has its memory again.
struct Instance {
    guest: Guest,
    store: Store<GuestState>,
    slot: InstanceSlot,
}

impl std::fmt::Debug for Computation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Computation")
            .field("settings", &self.settings)
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

impl Computation {
    /// Judges the component's imports, links it and asks it for its description, under the limits
    /// of every call.
    ///
    /// # Errors
    ///
    /// [`GuestError::RefusedImports`] with all refusals at once, [`GuestError::WrongWorld`],
    /// [`GuestError::Instantiation`], [`GuestError::Limit`], [`GuestError::Directory`],
    /// [`GuestError::DescriptionInvalid`], or what a failing call of `describe` ends in.
    pub fn new(
        runtime: &Arc<GuestRuntime>,
        component: &Component,
        settings: ComputationSettings,
    ) -> Result<Computation, GuestError> {
        check_limits(runtime, &settings)?;
        let refuse = |verdicts: &Verdicts| match verdicts.refusals() {
            refusals if refusals.is_empty() => Ok(()),
            refusals => Err(GuestError::RefusedImports {
                computation: settings.name.clone(),
                refusals,
            }),
        };
        refuse(&policy::judge(component, &settings.grants, None))?;
        let prepared = prepare(runtime, component, &settings.name)?;
        let description = describe(runtime, &prepared, &settings)?;
        let verdicts = policy::judge(component, &settings.grants, Some(description.kind));
        refuse(&verdicts)?;
        let outside = Outside::granted(&settings.grants);
        // A directory that can't be opened is told now, not by the first batch.
        new_store(runtime, &settings, &outside)?;
        Ok(Computation {
            runtime: Arc::clone(runtime),
            prepared,
            settings,
            outside,
            verdicts,
            description,
            kept: None,
            batch_size: BatchSize::unbounded(),
            #[cfg(feature = "native-computations")]
            native: None,
        })
    }

    /// Calls `function` in place of the component, which has been judged and described as ever.
    #[cfg(feature = "native-computations")]
    #[must_use]
    pub fn with_native(self, function: NativeFunction) -> Computation {
        Computation {
            native: Some(function),
            ..self
        }
    }

    /// What the component says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What the host made of its imports and grants.
    pub fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Whether an output may have several parents.
    pub fn has_relaxed_batching(&self) -> bool {
        self.settings.relaxed_batching
    }

    /// Whether [`Computation::verify_cut`] says anything: not where the host's clock, random numbers
    /// or files may change the outputs anyway, and not where they depend on the cut by permission.
    pub fn can_verify_cut(&self) -> bool {
        #[cfg(feature = "native-computations")]
        if self.native.is_some() {
            return false;
        }
        self.verdicts.determinism != Determinism::Host && !self.settings.relaxed_batching
    }

    /// How many items the next batch should have at most, so that it passes at once: judged by the
    /// fuel of the calls so far. At least 1. Results do not depend on it.
    pub fn suggested_rows(&self) -> usize {
        self.batch_size.rows()
    }

    /// Runs one batch. When the call fails it is repeated in parts on fresh instances, so that the
    /// effects, or the item that fails, do not depend on how large batches are. The same batch may
    /// be run again at will. The calling thread must not drive asynchronous tasks.
    ///
    /// # Errors
    ///
    /// How the first item that fails did so alone ([`GuestError::item`] names it),
    /// [`GuestError::PartsTooLarge`], or why no instance could be made.
    pub fn process(&mut self, batch: &Batch) -> Result<Call, GuestError> {
        self.process_deciding(batch, &mut |_, _| AfterFailure::Fail)
    }

    /// As [`Computation::process`], with `decide` to say what becomes of an item that fails alone, by its number and
    /// how it failed: in the effects of what passes, an item that is passed over has no part.
    ///
    /// # Errors
    ///
    /// As [`Computation::process`], of items that are not passed over.
    pub fn process_deciding(
        &mut self,
        batch: &Batch,
        decide: &mut dyn FnMut(u32, &GuestError) -> AfterFailure,
    ) -> Result<Call, GuestError> {
        #[cfg(feature = "native-computations")]
        if let Some(function) = &self.native {
            return native::call(function, &self.settings.name, batch);
        }
        let call = self.process_whole_or_in_parts(batch, decide)?;
        let fuel_limit = self.settings.limits.fuel;
        if !call.passed_items.is_empty() {
            // In how many parts it passed says nothing of the fuel then.
            return Ok(call);
        }
        self.batch_size
            .learn(batch.item_count(), call.parts, call.fuel, fuel_limit);
        Ok(call)
    }

    fn process_whole_or_in_parts(
        &mut self,
        batch: &Batch,
        decide: &mut dyn FnMut(u32, &GuestError) -> AfterFailure,
    ) -> Result<Call, GuestError> {
        if let Some(mut instance) = self.kept.take() {
            if let Ok(call) = self.call(&mut instance, batch) {
                self.kept = Some(instance);
                return Ok(call);
            }
            tracing::debug!(
                computation = self.settings.name,
                "call failed in a kept instance, repeated on a fresh one"
            );
        }
        let mut instance = self.start()?;
        let failed = match self.call(&mut instance, batch) {
            Ok(call) => {
                let may_keep = self.settings.instance == InstancePolicy::Reuse;
                if may_keep && self.runtime.slots().keep(&mut instance.slot) {
                    self.kept = Some(instance);
                }
                return Ok(call);
            }
            Err(failed) => failed,
        };
        // Its place in the pool is needed for the parts.
        drop(instance);
        match batch.item_count() {
            0 => Err(failed.into_error(&self.settings, None)),
            item_count => {
                tracing::debug!(
                    computation = self.settings.name,
                    items = item_count,
                    fault = ?failed.fault,
                    "call failed, repeated in parts"
                );
                self.run_parts(batch, Parts::of_failed(item_count, failed), decide)
            }
        }
    }

    /// The items of a batch before `item`, with their keys and those keys' states.
    pub fn items_before(&self, batch: &Batch, item: u32) -> Batch {
        CutBatch::new(batch, &self.description)
            .part(0..item as usize)
            .batch
    }

    /// Runs a batch again in two parts, cut before item `at`, and compares their effects with those
    /// of the whole. A run has no effects by itself, so this may be done to any share of batches.
    /// It says something only where [`Computation::can_verify_cut`] holds.
    ///
    /// # Errors
    ///
    /// [`GuestError::DependsOnCut`] when they differ. Anything else proves nothing:
    /// [`GuestError::Deadline`] when a part ran into the deadline, or why no instance could be made.
    pub fn verify_cut(&self, batch: &Batch, whole: &Call, at: usize) -> Result<(), GuestError> {
        let differ = |difference| GuestError::DependsOnCut {
            computation: self.settings.name.clone(),
            difference,
        };
        let parts = Parts::cut_at(batch.item_count(), at);
        let is_passed = |item| whole.passed_items.iter().any(|passed| passed.item == item);
        let mut decide = |item, _: &GuestError| match is_passed(item) {
            true => AfterFailure::PassOver,
            false => AfterFailure::Fail,
        };
        match self.run_parts(batch, parts, &mut decide) {
            Ok(call) => {
                let unlike = (whole.passed_items.iter())
                    .find(|passed| !call.passed_items.iter().any(|it| it.item == passed.item));
                if let Some(passed) = unlike {
                    return Err(differ(CutDifference::passed(&passed.error)));
                }
                let (whole, parts) = (&whole.effects, &call.effects);
                cut_difference::compare(batch, whole, parts).map_err(differ)
            }
            // A value that is too large between two messages is only seen where the batch is cut there.
            Err(error) if error.is_verdict() && !matches!(error, GuestError::OverLimit { .. }) => {
                Err(differ(CutDifference::failed(&error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Runs a batch in parts, each on a fresh instance, so that nothing but the cut differs.
    fn run_parts(
        &self,
        batch: &Batch,
        parts: Parts,
        decide: &mut dyn FnMut(u32, &GuestError) -> AfterFailure,
    ) -> Result<Call, GuestError> {
        let batch = CutBatch::new(batch, &self.description);
        let call = |part: &Batch| {
            let mut instance = self.start().map_err(CallFailure::NotOfTheBatch)?;
            self.call(&mut instance, part)
                .map_err(CallFailure::OfTheBatch)
        };
        parts.run(batch, &self.settings, call, decide)
    }

    fn start(&self) -> Result<Instance, GuestError> {
        start(&self.runtime, &self.prepared, &self.settings, &self.outside)
    }

    fn call(&self, instance: &mut Instance, batch: &Batch) -> Result<Call, Box<FailedCall>> {
        let limits = &self.settings.limits;
        let states = columns::lend_states(batch);
        let lent = columns::lend_batch(batch, &states);
        let guest = instance.guest.tidelock_computation_computation();
        let (answer, report) = run(&self.runtime, &mut instance.store, limits, |store| {
            guest.call_process(store, &self.settings.parameters, lent)
        });
        match answer.and_then(|answer| self.take_answer(answer, batch)) {
            Ok(effects) => Ok(Call {
                effects,
                parts: 1,
                fuel: report.fuel,
                stdout: report.stdout,
                stderr: report.stderr,
                passed_items: Vec::new(),
            }),
            Err(fault) => Err(Box::new(FailedCall { fault, report })),
        }
    }

    fn take_answer(
        &self,
        answer: Result<contract::Effects, contract::Failure>,
        batch: &Batch,
    ) -> Result<Effects, CallFault> {
        let limits = &self.settings.limits;
        let effects = answer.map_err(|failure| CallFault::Failure {
            // A hint that points nowhere is none.
            item: failure
                .item
                .filter(|item| (*item as usize) < batch.item_count()),
            reason: bounded(failure.reason, limits.log_bytes),
        })?;
        let size_bytes = columns::size_bytes(&effects);
        if size_bytes > limits.output_bytes {
            return Err(CallFault::Oversize {
                size_bytes: Some(size_bytes),
            });
        }
        let effects = columns::take_effects(effects, batch, &self.description, &self.settings)
            .map_err(CallFault::Malformed)?;
        effect_limits::check(&effects, batch, &self.description, limits)
            .map_err(CallFault::OverLimit)?;
        Ok(effects)
    }
}

/// A guest's text, cut to the limit.
fn bounded(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push_str(" ... (cut to the limit `log`)");
    }
    text
}

fn check_limits(runtime: &GuestRuntime, settings: &ComputationSettings) -> Result<(), GuestError> {
    let memory_bytes_max = runtime.options().memory_bytes_max;
    let memory_bytes = settings.limits.memory_bytes;
    if memory_bytes > memory_bytes_max {
        return Err(GuestError::Limit {
            computation: settings.name.clone(),
            finding: format!(
                "`limits.memory` is {memory_bytes} bytes, this host allows {memory_bytes_max}; \
                 lower it"
            ),
        });
    }
    Ok(())
}

/// Links a component whose imports were judged.
fn prepare(
    runtime: &GuestRuntime,
    component: &Component,
    computation: &str,
) -> Result<Prepared, GuestError> {
    let linked = runtime
        .linker()
        .instantiate_pre(component.compiled())
        .map_err(|error| GuestError::Instantiation {
            computation: computation.to_owned(),
            reason: format!("{error:#}"),
        })?;
    match GuestIndices::new(&linked) {
        Ok(exports) => Ok(Prepared { linked, exports }),
        Err(_) => Err(wrong_world(component, computation)),
    }
}

/// Says what a component exports in place of the contract.
fn wrong_world(component: &Component, computation: &str) -> GuestError {
    let (interface, _) = CONTRACT
        .split_once('@')
        .expect("the contract has a version");
    let of_ours: Vec<&str> = component
        .exports()
        .iter()
        .map(String::as_str)
        .filter(|export| export.starts_with(interface))
        .collect();
    let found = match (of_ours.is_empty(), component.exports().is_empty()) {
        (false, _) => format!("it exports {}", of_ours.join(", ")),
        (true, false) => format!("it exports only {}", component.exports().join(", ")),
        (true, true) => "it exports nothing".to_owned(),
    };
    GuestError::WrongWorld {
        computation: computation.to_owned(),
        expected: CONTRACT,
        found,
    }
}

/// Asks a component for its description. It sees nothing of the outside whatever is granted: a
/// description that could change would be none.
fn describe(
    runtime: &GuestRuntime,
    prepared: &Prepared,
    settings: &ComputationSettings,
) -> Result<Description, GuestError> {
    let mut instance = start(runtime, prepared, settings, &Outside::sealed())?;
    let guest = instance.guest.tidelock_computation_computation();
    let (answer, report) = run(runtime, &mut instance.store, &settings.limits, |store| {
        guest.call_describe(store)
    });
    let described =
        answer.map_err(|fault| FailedCall { fault, report }.into_error(settings, None))?;
    take_description(described).map_err(|finding| GuestError::DescriptionInvalid {
        computation: settings.name.clone(),
        finding,
    })
}

fn new_store(
    runtime: &GuestRuntime,
    settings: &ComputationSettings,
    outside: &Outside,
) -> Result<Store<GuestState>, GuestError> {
    let limits = &settings.limits;
    let state =
        GuestState::new(outside, limits).map_err(|(path, source)| GuestError::Directory {
            computation: settings.name.clone(),
            path,
            source,
        })?;
    let mut store = Store::new(runtime.engine(), state);
    store.limiter(GuestState::memory_limit);
    store.set_hostcall_fuel(limits.output_bytes.saturating_add(COPY_BYTES_BEYOND_OUTPUT));
    Ok(store)
}

/// Makes a fresh instance, under the limits of a call: a component may run code when it starts.
fn start(
    runtime: &GuestRuntime,
    prepared: &Prepared,
    settings: &ComputationSettings,
    outside: &Outside,
) -> Result<Instance, GuestError> {
    let slot = runtime.slots().take();
    let mut store = new_store(runtime, settings, outside)?;
    let (started, report) = run(runtime, &mut store, &settings.limits, |store| {
        prepared.linked.instantiate(store)
    });
    let started = started.map_err(|fault| match fault {
        // No guest was on the stack: the engine or its pool refused the component.
        CallFault::Malformed(fault) => GuestError::Instantiation {
            computation: settings.name.clone(),
            reason: fault.to_string(),
        },
        fault => FailedCall { fault, report }.into_error(settings, None),
    })?;
    // The types of the exports are compared with the contract's here.
    let guest = prepared.exports.load(&mut store, &started);
    let guest = guest.map_err(|error| GuestError::WrongWorld {
        computation: settings.name.clone(),
        expected: CONTRACT,
        found: format!("its functions have other types: {error:#}"),
    })?;
    Ok(Instance { guest, store, slot })
}

/// Runs guest code under the limits of one call and reports on it.
fn run<R>(
    runtime: &GuestRuntime,
    store: &mut Store<GuestState>,
    limits: &CallLimits,
    code: impl FnOnce(&mut Store<GuestState>) -> wasmtime::Result<R>,
) -> (Result<R, CallFault>, CallReport) {
    let counts_fuel = runtime.options().fuel;
    store.data_mut().begin_call();
    if counts_fuel {
        store.set_fuel(limits.fuel).expect("the engine counts fuel");
    }
    store.set_epoch_deadline(deadline::ticks(limits.deadline));
    let running = runtime.deadlines().enter();
    let answer = code(store);
    drop(running);

    let left = match counts_fuel {
        true => store.get_fuel().expect("the engine counts fuel"),
        false => limits.fuel,
    };
    let (stdout, stderr) = store.data().take_prints();
    let mut report = CallReport {
        item: None,
        fuel: limits.fuel.saturating_sub(left),
        backtrace: String::new(),
        stdout,
        stderr,
    };
    let answer = answer.map_err(|error| {
        report.backtrace = call_fault::backtrace(&error);
        call_fault::classify(&error, store.data().denied_bytes(), &report.stderr)
    });
    (answer, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_may_move_to_another_thread() {
        fn check<T: Send>() {}
        check::<Computation>();
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(bounded("short".to_owned(), 5), "short");
        assert!(bounded("aé".to_owned(), 2).starts_with("a ... "));
    }

    #[test]
    fn the_contract_is_the_one_in_wit() {
        let wit = include_str!("../../../wit/computation.wit");
        let (package, version) = CONTRACT.split_once('@').expect("a version");
        let (package, _) = package.split_once('/').expect("an interface");
        assert!(wit.contains(&format!("package {package}@{version};")));
    }
}
