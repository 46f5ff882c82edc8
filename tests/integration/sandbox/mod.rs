//! What guests can and can't do: every test guest and every behaviour gets the error that it
//! deserves, with the remedy in its text, and none takes the host with it.
//!
//! The guests are components of `tests/guests`, built by `cargo xtask components`.

mod artifacts;
mod effect_limits;
mod failures;
mod good_guests;
mod imports;
mod limits;
mod malformed;
mod purity;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use guest_behaviours::behaviours::{BEHAVIOURS, WRONG_COLUMNS};
use guest_behaviours::obey::BAD;
use tidelock::guest::error::NotAComponent;
use tidelock::guest::policy::{self, Determinism};
use tidelock::guest::{
    AfterFailure, Call, CallReport, Component, Computation, ComputationSettings, GuestError,
    GuestOptions, GuestRuntime,
};
use tidelock::types::batch::{Batch, MessageColumns, StateColumn};
use tidelock::types::column::Column;
use tidelock::types::pipeline::{
    CallLimits, ClockGrant, DirectoryGrant, Grants, InstancePolicy, RandomGrant,
};

static RUNTIME: LazyLock<Arc<GuestRuntime>> =
    LazyLock::new(|| GuestRuntime::new(GuestOptions::default()).expect("the guest runtime starts"));

/// Where `cargo xtask components` puts the test guests.
fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/components/wasm32-wasip2/component/examples")
}

fn guest_bytes(guest: &str) -> Vec<u8> {
    let path = guests().join(format!("{guest}.wasm"));
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run cargo xtask components", path.display()))
}

/// A test guest, compiled once.
fn component(guest: &str) -> Component {
    static LOADED: LazyLock<Mutex<BTreeMap<String, Component>>> = LazyLock::new(Mutex::default);
    let mut loaded = LOADED.lock().expect("no load panics");
    loaded
        .entry(guest.to_owned())
        .or_insert_with(|| {
            RUNTIME
                .load(&guest_bytes(guest))
                .expect("the test guest loads")
        })
        .clone()
}

fn settings(parameters: &str) -> ComputationSettings {
    ComputationSettings {
        name: "tried".to_owned(),
        parameters: parameters.to_owned(),
        grants: Grants::default(),
        limits: CallLimits::default(),
        instance: InstancePolicy::Fresh,
        relaxed_batching: false,
    }
}

/// The guest with all behaviours, set to one of them; `adjust` may change the rest.
fn behaving(behaviour: &str, adjust: impl FnOnce(&mut ComputationSettings)) -> Computation {
    let mut settings = settings(&format!("{{\"behaviour\":\"{behaviour}\"}}"));
    adjust(&mut settings);
    Computation::new(&RUNTIME, &component("behaviours"), settings).expect("the test guest links")
}

fn with_grants(guest: &str, grants: Grants) -> Result<Computation, GuestError> {
    let mut settings = settings("{}");
    settings.grants = grants;
    Computation::new(&RUNTIME, &component(guest), settings)
}

/// One message for each payload, all with one key. The state column is there if `stateful`.
fn batch(payloads: &[&str], stateful: bool) -> Batch {
    Batch {
        watermarks: vec![0],
        keys: [b"key".as_slice()].into_iter().collect(),
        states: vec![StateColumn::default(); usize::from(stateful)],
        messages: MessageColumns {
            streams: vec![0; payloads.len()],
            keys: vec![0; payloads.len()],
            event_times: vec![0; payloads.len()],
            payloads: payloads.iter().map(|payload| payload.as_bytes()).collect(),
        },
        ..Batch::default()
    }
}

fn payloads(call: &Call) -> Vec<String> {
    let payloads: &Column = &call.effects.outputs.payloads;
    payloads
        .iter()
        .map(|payload| String::from_utf8_lossy(payload).into_owned())
        .collect()
}

/// The guest with all behaviours, set to do so much of one of them for each message.
fn behaving_much(
    behaviour: &str,
    amount: usize,
    adjust: impl FnOnce(&mut CallLimits),
) -> Computation {
    behaving(behaviour, |settings| {
        settings.parameters = format!("{{\"behaviour\":\"{behaviour}\",\"amount\":{amount}}}");
        adjust(&mut settings.limits);
    })
}

fn fail(behaviour: &str, adjust: impl FnOnce(&mut ComputationSettings)) -> GuestError {
    let mut computation = behaving(behaviour, adjust);
    let answer = computation.process(&batch(&["one", "two"], true));
    answer.expect_err(&format!("{behaviour} must fail"))
}

/// The error's text has the computation's name and the remedy.
fn check_text(error: &GuestError, parts: &[&str]) {
    let text = error.to_string();
    for part in ["tried"].iter().chain(parts) {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

fn report(error: &GuestError) -> &CallReport {
    error.report().expect("a failed call has a report")
}

/// A guest or behaviour without a test is worth nothing, so each must be named above.
#[test]
fn every_guest_and_every_behaviour_has_a_test() {
    let tests = [
        include_str!("mod.rs"),
        include_str!("good_guests.rs"),
        include_str!("failures.rs"),
        include_str!("limits.rs"),
        include_str!("effect_limits.rs"),
        include_str!("purity.rs"),
        include_str!("imports.rs"),
        include_str!("malformed.rs"),
        include_str!("../verdicts.rs"),
        include_str!("../batching.rs"),
        include_str!("../check.rs"),
        include_str!("../kill.rs"),
        include_str!("../watching.rs"),
        include_str!("../repartition.rs"),
        include_str!("../alarms.rs"),
        include_str!("../../simulation/guests.rs"),
    ]
    .concat();
    let names_in = |folder: &Path| -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder).expect("the guests are there");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    let packages = names_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("guests"));
    let guests: Vec<String> = (packages.iter())
        .flat_map(|package| names_in(&package.join("examples")))
        .map(|path| {
            let name = path.file_stem().expect("a name");
            name.to_string_lossy().into_owned()
        })
        .collect();
    assert!(guests.len() > 5, "{guests:?}");
    for name in BEHAVIOURS
        .iter()
        .copied()
        .chain(guests.iter().map(String::as_str))
    {
        assert!(tests.contains(&format!("\"{name}\"")), "{name} has no test");
    }
}
