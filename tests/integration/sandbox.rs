//! What guests can and can't do: every test guest and every behaviour gets the error that it
//! deserves, with the remedy in its text, and none takes the host with it.
//!
//! The guests are components of `tests/guests`, built by `cargo xtask components`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use guest_behaviours::behaviours::{BEHAVIOURS, WRONG_COLUMNS};
use tidelock::guest::error::NotAComponent;
use tidelock::guest::policy::{self, Determinism};
use tidelock::guest::{
    Call, CallReport, Component, Computation, ComputationSettings, GuestError, GuestOptions,
    GuestRuntime,
};
use tidelock::types::batch::{Batch, MessageColumns, StateColumn};
use tidelock::types::column::Column;
use tidelock::types::pipeline::{CallLimits, ClockGrant, Grants, InstancePolicy, RandomGrant};

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

mod good_guests {
    use super::*;

    #[test]
    fn effects_come_back_with_fuel_and_state() {
        let settings = settings("{}");
        let mut computation =
            Computation::new(&RUNTIME, &component("count"), settings).expect("links");
        assert_eq!(computation.description().states[0].name, "count");
        assert_eq!(computation.verdicts().determinism, Determinism::Pure);

        let first = computation
            .process(&batch(&["a", "b"], true))
            .expect("counts");
        assert_eq!(first.effects.states[0].values.get(0), 2_u64.to_le_bytes());
        assert!(first.fuel > 0);

        let mut next = batch(&["c"], true);
        next.states = first.effects.states;
        let second = computation.process(&next).expect("counts on");
        assert_eq!(second.effects.states[0].values.get(0), 3_u64.to_le_bytes());
        assert_eq!(&second.effects.outputs.payloads.get(0)[8..], b"c");
    }

    #[test]
    fn same_call_uses_the_same_fuel_on_every_fresh_instance() {
        let mut computation = behaving("counts-keys", |_| {});
        let input = batch(&["a", "b", "c"], true);
        let first = computation.process(&input).expect("counts");
        assert_eq!(computation.process(&input).expect("counts"), first);
    }

    #[test]
    fn an_empty_batch_is_a_call_like_any_other() {
        let call = behaving("echoes", |_| {})
            .process(&batch(&[], true))
            .expect("echoes");
        assert!(call.effects.outputs.streams.is_empty());
    }

    #[test]
    fn more_threads_than_instances_wait_for_each_other() {
        let options = GuestOptions {
            instances_max: 2,
            ..GuestOptions::default()
        };
        let runtime = GuestRuntime::new(options).expect("the guest runtime starts");
        let component = runtime.load(&guest_bytes("count")).expect("loads");
        std::thread::scope(|scope| {
            for instance in [InstancePolicy::Fresh, InstancePolicy::Reuse].repeat(4) {
                let (runtime, component) = (&runtime, &component);
                scope.spawn(move || {
                    let mut settings = settings("{}");
                    settings.instance = instance;
                    let mut computation =
                        Computation::new(runtime, component, settings).expect("links");
                    for _ in 0..20 {
                        computation.process(&batch(&["a"], true)).expect("counts");
                    }
                });
            }
        });
    }
}

mod failures {
    use super::*;

    #[test]
    fn panic_is_told_with_its_text_place_and_backtrace() {
        let error = fail("panics", |_| {});
        assert!(matches!(error, GuestError::Panic { .. }), "{error:?}");
        check_text(
            &error,
            &[
                "behaviours.rs:",
                "the guest panics on purpose",
                "handle the case",
            ],
        );
        let report = report(&error);
        assert!(
            report.backtrace.contains("std::panicking::panic_handler"),
            "{report}"
        );
        assert!(report.backtrace.contains("behaviours.rs:"), "{report}");
        assert!(
            report.stderr.contains("the guest panics on purpose"),
            "{report}"
        );
        assert!(report.fuel > 0, "{report}");
        assert!(error.is_verdict());
    }

    #[test]
    fn panic_text_survives_a_flood_before_it() {
        let error = fail("floods-stderr-then-panics", |_| {});
        check_text(&error, &["the guest panics after a flood"]);
        let stderr = &report(&error).stderr;
        assert!(
            stderr.len() < CallLimits::default().log_bytes + 100,
            "{} bytes",
            stderr.len()
        );
        assert!(stderr.starts_with("line 0 of the flood"), "{stderr}");
    }

    #[test]
    fn trap_and_abort_are_told_with_their_backtrace() {
        for behaviour in ["traps", "aborts"] {
            let error = fail(behaviour, |_| {});
            assert!(
                matches!(error, GuestError::Trap { .. }),
                "{behaviour}: {error:?}"
            );
            check_text(&error, &["unreachable", "correct the component"]);
            assert!(
                report(&error).backtrace.contains("behaviours.rs:"),
                "{behaviour}"
            );
        }
    }

    #[test]
    fn exit_is_told_apart_from_a_trap() {
        let error = fail("exits", |_| {});
        // WASI carries no more than success or not.
        assert!(
            matches!(error, GuestError::Exit { code: 1, .. }),
            "{error:?}"
        );
        check_text(&error, &["never exits"]);
    }

    #[test]
    fn endless_recursion_has_an_error_of_its_own() {
        let error = fail("recurses", |_| {});
        assert!(
            matches!(error, GuestError::StackOverflow { .. }),
            "{error:?}"
        );
        check_text(&error, &["use a loop"]);
    }

    #[test]
    fn failure_carries_reason_and_item() {
        let error = fail("fails", |_| {});
        assert!(
            matches!(error, GuestError::Failure { item: None, .. }),
            "{error:?}"
        );
        check_text(&error, &["the guest fails on purpose", "what it documents"]);
        let error = fail("fails-on-an-item", |_| {});
        assert_eq!(error.item(), Some(1));
        check_text(&error, &["on item 1", "refuses this item"]);
    }

    #[test]
    fn invalid_utf8_is_a_malformed_result() {
        let error = fail("returns-invalid-utf8", |_| {});
        assert!(
            matches!(error, GuestError::MalformedEffects { .. }),
            "{error:?}"
        );
        check_text(&error, &["utf-8", "defect of the component"]);
    }

    #[test]
    fn every_wrong_column_is_named() {
        let parameters =
            |column: &str| format!("{{\"behaviour\":\"wrong-column\",\"column\":\"{column}\"}}");
        let input = batch(&["one"], true);
        let mut unspoiled = behaving("wrong-column", |settings| {
            settings.parameters = parameters("none");
        });
        unspoiled
            .process(&input)
            .expect("only the spoiled column is wrong");

        for column in WRONG_COLUMNS {
            let mut computation = behaving("wrong-column", |settings| {
                settings.parameters = parameters(column);
            });
            let error = computation.process(&input).expect_err(column);
            assert!(
                matches!(error, GuestError::MalformedEffects { .. }),
                "{column}: {error:?}"
            );
            check_text(&error, &[&named(column), "defect of the component"]);
            let text = error.to_string();
            assert!(
                text.contains("allowed") || text.contains("needed"),
                "{text}"
            );
        }
    }

    /// How the error names a column that was spoiled.
    fn named(column: &str) -> String {
        match column {
            // The lengths of a group are compared with its first column.
            "outputs.streams.length" => "outputs.parents has 2 rows".to_owned(),
            "states" => "2 state columns".to_owned(),
            "timers.twice" => "cancel-timers names the timer".to_owned(),
            _ => {
                let mut fields = column.split('.');
                let (group, field) = (fields.next(), fields.next());
                let group = group.map(|group| group.replace("states", "states[0]"));
                format!("{}.{}", group.expect("a group"), field.expect("a field"))
            }
        }
    }
}

mod limits {
    use super::*;

    #[test]
    fn fuel_stops_a_spinning_guest() {
        let error = fail("spins", |settings| settings.limits.fuel = 10_000_000);
        assert!(
            matches!(
                error,
                GuestError::OutOfFuel {
                    limit: 10_000_000,
                    ..
                }
            ),
            "{error:?}"
        );
        check_text(&error, &["limits.fuel", "endless loop"]);
        assert_eq!(report(&error).fuel, 10_000_000);
        assert!(
            report(&error).backtrace.contains("behaviours.rs"),
            "{}",
            report(&error)
        );
    }

    /// Runs the spinning guest on twice as many threads as there are cores and returns the errors.
    fn spin_everywhere(limits: CallLimits) -> Vec<GuestError> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        std::thread::scope(|scope| {
            let spinning: Vec<_> = (0..2 * cores + 1)
                .map(|_| scope.spawn(|| fail("spins", |settings| settings.limits = limits)))
                .collect();
            spinning
                .into_iter()
                .map(|thread| thread.join().expect("no host panic"))
                .collect()
        })
    }

    #[test]
    fn fuel_stops_spinning_guests_on_more_threads_than_cores() {
        let limits = CallLimits {
            fuel: 50_000_000,
            ..CallLimits::default()
        };
        for error in spin_everywhere(limits) {
            assert!(matches!(error, GuestError::OutOfFuel { .. }), "{error:?}");
        }
    }

    #[test]
    fn deadline_stops_spinning_guests_that_no_fuel_stops() {
        let limits = CallLimits {
            fuel: u64::MAX,
            deadline: Duration::from_millis(200),
            ..CallLimits::default()
        };
        for error in spin_everywhere(limits) {
            assert!(matches!(error, GuestError::Deadline { .. }), "{error:?}");
            check_text(&error, &["200ms", "limits.deadline"]);
            assert!(!error.is_verdict());
        }
    }

    #[test]
    fn memory_is_bounded_whether_the_guest_would_trap_or_ask_politely() {
        for behaviour in ["eats-memory", "eats-memory-by-try-reserve"] {
            let error = fail(behaviour, |settings| {
                settings.limits.memory_bytes = 32 << 20;
            });
            let GuestError::OutOfMemory {
                asked_bytes,
                limit_bytes,
                ..
            } = &error
            else {
                panic!("{behaviour}: {error:?}");
            };
            assert_eq!(*limit_bytes, 32 << 20);
            assert!((32 << 20..40 << 20).contains(asked_bytes), "{asked_bytes}");
            check_text(&error, &["limits.memory"]);
            assert!(
                report(&error).backtrace.contains("eat_memory"),
                "{}",
                report(&error)
            );
        }
    }

    #[test]
    fn a_memory_limit_beyond_the_hosts_is_refused_at_once() {
        let mut settings = settings("{}");
        settings.limits.memory_bytes = usize::MAX;
        let error = Computation::new(&RUNTIME, &component("count"), settings).expect_err("refused");
        assert!(matches!(error, GuestError::Limit { .. }), "{error:?}");
        check_text(&error, &["limits.memory"]);
    }

    #[test]
    fn output_is_bounded_before_and_after_it_is_copied() {
        let one = batch(&["one"], true);
        let mut too_much_to_copy = behaving("returns-much", |_| {});
        let error = too_much_to_copy.process(&one).expect_err("too much");
        assert!(
            matches!(
                error,
                GuestError::OversizeOutput {
                    size_bytes: None,
                    ..
                }
            ),
            "{error:?}"
        );
        check_text(&error, &["limits.output"]);

        let mut just_too_much = behaving("returns-much", |settings| {
            settings.limits.output_bytes = 79 << 20;
        });
        let error = just_too_much.process(&one).expect_err("too much");
        let GuestError::OversizeOutput {
            size_bytes: Some(size_bytes),
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert!(size_bytes > 80 << 20, "{size_bytes}");

        let mut allowed = behaving("returns-much", |settings| {
            settings.limits.output_bytes = 81 << 20;
        });
        allowed.process(&one).expect("it is only the limit");
    }

    #[test]
    fn a_flood_of_empty_columns_is_bounded_too() {
        let error = fail("returns-many-columns", |settings| {
            settings.limits.output_bytes = 1 << 20;
        });
        assert!(
            matches!(error, GuestError::OversizeOutput { .. }),
            "{error:?}"
        );
    }

    #[test]
    fn prints_are_bounded_and_reported_as_written() {
        let mut computation = behaving("prints-much", |settings| settings.limits.log_bytes = 1_000);
        let call = computation
            .process(&batch(&["one"], true))
            .expect("the guest notices nothing");
        assert!(call.stdout.len() < 1_100, "{}", call.stdout.len());
        assert!(
            call.stdout.starts_with("line 0 of many\n"),
            "{}",
            call.stdout
        );
        assert!(
            call.stdout.ends_with("line 19999 of many\n"),
            "{}",
            call.stdout
        );
        assert!(call.stdout.contains("over the limit"), "{}", call.stdout);
    }

    #[test]
    fn endless_printing_ends_with_the_fuel() {
        let error = fail("prints-endlessly", |settings| {
            settings.limits.fuel = 20_000_000;
        });
        assert!(matches!(error, GuestError::OutOfFuel { .. }), "{error:?}");
        assert!(report(&error).stdout.len() < CallLimits::default().log_bytes + 100);
    }

    #[test]
    fn log_lines_are_bounded() {
        let mut computation = behaving("logs-much", |settings| settings.limits.log_bytes = 1_000);
        let call = computation
            .process(&batch(&["one"], true))
            .expect("the guest notices nothing");
        let logs = &call.effects.logs;
        assert_eq!(logs.len(), 10);
        assert!(logs[9].text.contains("9991 more lines"), "{}", logs[9].text);
    }
}

mod purity {
    use super::*;

    fn call_thrice(mut computation: Computation) -> Vec<String> {
        (0..3)
            .flat_map(|_| payloads(&computation.process(&batch(&["x"], true)).expect("succeeds")))
            .collect()
    }

    #[test]
    fn hidden_counter_is_invisible_on_fresh_instances() {
        assert_eq!(
            call_thrice(behaving("counts-calls", |_| {})),
            ["1", "1", "1"]
        );
    }

    #[test]
    fn kept_instance_is_kept() {
        let kept = behaving("counts-calls", |settings| {
            settings.instance = InstancePolicy::Reuse;
        });
        assert_eq!(call_thrice(kept), ["1", "2", "3"]);
    }

    #[test]
    fn failure_that_comes_from_a_kept_instance_is_never_seen() {
        for behaviour in ["panics-on-second-call", "fails-on-second-call"] {
            let kept = behaving(behaviour, |settings| {
                settings.instance = InstancePolicy::Reuse;
            });
            assert_eq!(call_thrice(kept), ["x", "x", "x"], "{behaviour}");
        }
    }

    #[test]
    fn failure_of_the_batch_is_seen_under_reuse_too() {
        let error = fail("fails", |settings| {
            settings.instance = InstancePolicy::Reuse;
        });
        assert!(matches!(error, GuestError::Failure { .. }), "{error:?}");
    }

    #[test]
    fn nan_has_one_bit_pattern() {
        let mut computation = behaving("returns-nan-bits", |_| {});
        let call = computation.process(&batch(&["x"], true)).expect("succeeds");
        let bits = call.effects.outputs.payloads.get(0);
        assert_eq!(bits.len(), 4 * 8);
        for result in bits.chunks(8) {
            let bits = u64::from_le_bytes(result.try_into().expect("eight bytes"));
            assert_eq!(bits, 0x7ff8_0000_0000_0000, "{bits:#x}");
        }
    }

    /// Outputs of one call with the whole batch, and of one call for each message.
    fn cut_both_ways(behaviour: &str) -> (Vec<String>, Vec<String>) {
        let mut computation = behaving(behaviour, |_| {});
        let whole = computation
            .process(&batch(&["a", "b"], true))
            .expect("succeeds");
        let halves = ["a", "b"]
            .map(|one| payloads(&computation.process(&batch(&[one], true)).expect("succeeds")));
        (payloads(&whole), halves.concat())
    }

    #[test]
    fn outputs_that_hang_on_the_cut_show_when_the_batch_is_cut_again() {
        let (whole, halves) = cut_both_ways("numbers-messages-in-the-batch");
        assert_eq!(
            (whole, halves),
            (vec!["0".into(), "1".into()], vec!["0".into(), "0".into()])
        );
        let (whole, halves) = cut_both_ways("echoes");
        assert_eq!(whole, halves);
    }
}

mod imports {
    use super::*;

    const SEEDED: Grants = Grants {
        random: RandomGrant::Seeded,
        clock: ClockGrant::Deny,
        directories: Vec::new(),
    };
    const FROZEN: Grants = Grants {
        random: RandomGrant::Deny,
        clock: ClockGrant::Frozen,
        directories: Vec::new(),
    };

    fn check_refused(guest: &str, parts: &[&str]) {
        let error = with_grants(guest, Grants::default()).expect_err("refused");
        assert!(
            matches!(error, GuestError::RefusedImports { .. }),
            "{guest}: {error:?}"
        );
        check_text(&error, parts);
    }

    fn call(computation: &mut Computation, payload: &str) -> String {
        let call = computation
            .process(&batch(&[payload], false))
            .expect("succeeds");
        payloads(&call).remove(0)
    }

    /// Under the grant two calls give the same, and the host calls it "granted".
    fn check_constant(guest: &str, grants: Grants) -> String {
        let mut computation = with_grants(guest, grants).expect("granted");
        assert_eq!(computation.verdicts().determinism, Determinism::Granted);
        let first = call(&mut computation, "x");
        assert_eq!(call(&mut computation, "x"), first);
        first
    }

    #[test]
    fn clocks_are_refused_or_stand_still() {
        check_refused(
            "reads_clock",
            &["wasi:clocks/wall-clock.now", "SystemTime", "frozen"],
        );
        assert_eq!(check_constant("reads_clock", FROZEN), "1577836800000000000");
        check_refused(
            "reads_monotonic_clock",
            &["wasi:clocks/monotonic-clock.now", "frozen"],
        );
        assert_eq!(check_constant("reads_monotonic_clock", FROZEN), "0");
    }

    #[test]
    fn random_numbers_are_refused_or_always_the_same() {
        check_refused(
            "reads_random",
            &["wasi:random/random.get-random-bytes", "seeded"],
        );
        check_refused("reads_random", &["2 imports or grants", "get-random-u64"]);
        check_constant("reads_random", SEEDED);
        check_refused(
            "uses_hash_map",
            &["wasi:random/insecure-seed", "HashMap", "BTreeMap"],
        );
        check_constant("uses_hash_map", SEEDED);
    }

    #[test]
    fn host_grants_are_real_for_a_transform() {
        let host = Grants {
            random: RandomGrant::Host,
            clock: ClockGrant::Host,
            directories: Vec::new(),
        };
        let mut random = with_grants("reads_random", host.clone()).expect("granted");
        assert_eq!(random.verdicts().determinism, Determinism::Host);
        assert_eq!(random.verdicts().warnings.len(), 2);
        assert_ne!(call(&mut random, "x"), call(&mut random, "x"));

        // The guest sleeps for an hour between its two readings; it never waits for real.
        let mut clock = with_grants("reads_monotonic_clock", host).expect("granted");
        let elapsed_ns: u64 = call(&mut clock, "x").parse().expect("a number");
        assert!((1..3_600_000_000_000).contains(&elapsed_ns), "{elapsed_ns}");
    }

    #[test]
    fn host_grants_are_refused_for_a_map() {
        let grants = Grants {
            clock: ClockGrant::Host,
            ..Grants::default()
        };
        let error = with_grants("reads_clock", grants).expect_err("refused");
        assert!(
            matches!(error, GuestError::RefusedImports { .. }),
            "{error:?}"
        );
        check_text(
            &error,
            &["clock = \"host\"", "a map", "make it a transform"],
        );
    }

    #[test]
    fn sleeping_needs_no_grant_and_takes_no_time() {
        let mut computation = with_grants("sleeps", Grants::default()).expect("offered");
        assert_eq!(computation.verdicts().determinism, Determinism::Pure);
        assert_eq!(call(&mut computation, "x"), "slept");
    }

    #[test]
    fn sockets_are_refused() {
        check_refused(
            "opens_socket",
            &["wasi:sockets/tcp", "std::net", "by a source"],
        );
        let every_grant = Grants {
            random: RandomGrant::Host,
            clock: ClockGrant::Host,
            directories: vec![PathBuf::from("/")],
        };
        let verdicts = policy::judge(&component("opens_socket"), &every_grant, None);
        let refused: Vec<_> = verdicts
            .refusals()
            .into_iter()
            .map(|refusal| refusal.name)
            .collect();
        assert!(!refused.is_empty());
        assert!(
            refused.iter().all(|name| name.starts_with("wasi:sockets/")),
            "{refused:?}"
        );
    }

    #[test]
    fn files_are_there_only_under_a_granted_directory_and_only_to_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("greeting.txt");
        std::fs::write(&file, "hello").expect("written");
        let path = file.to_str().expect("a path in UTF-8");

        let mut none = with_grants("opens_file", Grants::default()).expect("offered");
        assert_eq!(none.verdicts().determinism, Determinism::Pure);
        let answer = call(&mut none, path);
        assert!(answer.starts_with("not read: "), "{answer}");

        let grants = Grants {
            directories: vec![directory.path().to_owned()],
            ..Grants::default()
        };
        let mut granted = with_grants("opens_file", grants.clone()).expect("granted");
        assert_eq!(granted.verdicts().determinism, Determinism::Host);
        assert_eq!(call(&mut granted, path), "hello, not written");
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("listed").count(),
            1
        );

        drop(directory);
        let error = with_grants("opens_file", grants).expect_err("it is gone");
        assert!(matches!(error, GuestError::Directory { .. }), "{error:?}");
    }

    #[test]
    fn unknown_imports_are_refused_by_name() {
        let bytes = wat::parse_str(
            r#"(component
                (import "acme:secrets/vault@1.0.0" (instance (export "open" (func))))
                (import "call-me" (func)))"#,
        );
        let component = RUNTIME.load(&bytes.expect("wat")).expect("a component");
        let error = Computation::new(&RUNTIME, &component, settings("{}")).expect_err("refused");
        check_text(
            &error,
            &["acme:secrets/vault.open@1.0.0", "call-me", "leave out"],
        );
    }
}

mod malformed {
    use super::*;

    fn load_error(bytes: &[u8]) -> NotAComponent {
        match RUNTIME.load(bytes) {
            Err(GuestError::NotAComponent(finding)) => finding,
            other => panic!("{other:?}"),
        }
    }

    fn new_error(text: &str) -> GuestError {
        let bytes = wat::parse_str(text).expect("wat");
        let component = RUNTIME.load(&bytes).expect("a component");
        Computation::new(&RUNTIME, &component, settings("{}")).expect_err("refused")
    }

    #[test]
    fn bytes_that_are_no_component_are_told_apart() {
        assert_eq!(load_error(b""), NotAComponent::Empty);
        assert_eq!(
            load_error(b"PK\x03\x04 an archive"),
            NotAComponent::NotWebAssembly
        );
        assert_eq!(load_error(b"(component)"), NotAComponent::Text);
        let module = wat::parse_str("(module (func (export \"process\")))").expect("wat");
        assert_eq!(load_error(&module), NotAComponent::CoreModule);
        assert!(load_error(&module).to_string().contains("wasm32-wasip2"));
    }

    #[test]
    fn truncated_components_are_told_how_much_is_missing() {
        let whole = guest_bytes("count");
        for len in [5, 100, whole.len() / 2, whole.len() - 1] {
            let finding = load_error(&whole[..len]);
            let NotAComponent::Truncated {
                needed_bytes,
                found_bytes,
            } = finding
            else {
                panic!("{len} bytes: {finding:?}");
            };
            assert!(found_bytes < needed_bytes && needed_bytes <= whole.len() as u64);
        }
    }

    #[test]
    fn damaged_components_never_take_the_host_with_them() {
        let whole = guest_bytes("count");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut refused_count = 0;
        for _ in 0..60 {
            let mut damaged = whole.clone();
            for _ in 0..20 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = (state >> 33) as usize % damaged.len();
                damaged[at] ^= (state >> 24) as u8 | 1;
            }
            let answer = RUNTIME.load(&damaged).and_then(|component| {
                let mut settings = settings("{}");
                settings.limits.fuel = 10_000_000;
                Computation::new(&RUNTIME, &component, settings)?.process(&batch(&["a"], true))
            });
            refused_count += usize::from(answer.is_err());
        }
        assert!(refused_count > 0);
    }

    #[test]
    fn oversized_component_is_refused_before_it_is_read() {
        let options = GuestOptions {
            component_bytes_max: 1_000,
            ..GuestOptions::default()
        };
        let runtime = GuestRuntime::new(options).expect("the guest runtime starts");
        let error = runtime.load(&guest_bytes("count")).expect_err("too large");
        assert!(matches!(
            error,
            GuestError::ComponentTooLarge {
                limit_bytes: 1_000,
                ..
            }
        ));
    }

    #[test]
    fn missing_export_is_told_with_what_is_there() {
        let error = new_error("(component)");
        assert!(matches!(error, GuestError::WrongWorld { .. }), "{error:?}");
        check_text(
            &error,
            &[
                "tidelock:computation/computation@0.1.0",
                "exports nothing",
                "wit/",
            ],
        );
    }

    /// A component whose only export is the interface of this name, with functions of no
    /// parameters.
    fn exporting(interface: &str) -> String {
        format!(
            r#"(component
                (core module $m (func (export "f")))
                (core instance $i (instantiate $m))
                (func $f (canon lift (core func $i "f")))
                (instance $c (export "describe" (func $f)) (export "process" (func $f)))
                (export "{interface}" (instance $c)))"#
        )
    }

    #[test]
    fn other_version_of_the_contract_is_told_with_both() {
        let error = new_error(&exporting("tidelock:computation/computation@0.2.0"));
        assert!(matches!(error, GuestError::WrongWorld { .. }), "{error:?}");
        check_text(&error, &["computation@0.1.0", "computation@0.2.0.process"]);
    }

    #[test]
    fn functions_of_other_types_are_the_wrong_world() {
        let error = new_error(&exporting("tidelock:computation/computation@0.1.0"));
        assert!(matches!(error, GuestError::WrongWorld { .. }), "{error:?}");
        check_text(&error, &["other types"]);
    }

    /// A component of the right export whose core module is `module`.
    fn starting(module: &str) -> GuestError {
        let text = exporting("tidelock:computation/computation@0.1.0");
        let text = text.replace("(core module $m", &format!("(core module $m {module}"));
        let bytes = wat::parse_str(text).expect("wat");
        let component = RUNTIME.load(&bytes).expect("a component");
        let mut settings = settings("{}");
        settings.limits.fuel = 1_000_000;
        Computation::new(&RUNTIME, &component, settings).expect_err("refused")
    }

    #[test]
    fn code_that_runs_at_the_start_has_the_limits_of_a_call() {
        let spins = starting("(func $s (loop (br 0))) (start $s)");
        assert!(matches!(spins, GuestError::OutOfFuel { .. }), "{spins:?}");
        let traps = starting("(func $s unreachable) (start $s)");
        assert!(matches!(traps, GuestError::Trap { .. }), "{traps:?}");
        let eats = starting("(memory 8000)");
        assert!(matches!(eats, GuestError::OutOfMemory { .. }), "{eats:?}");
    }
}

mod artifacts {
    use super::*;

    fn runtime(directory: &Path) -> Arc<GuestRuntime> {
        let options = GuestOptions {
            cache_directory: Some(directory.to_owned()),
            ..GuestOptions::default()
        };
        GuestRuntime::new(options).expect("the guest runtime starts")
    }

    fn check_runs(runtime: &Arc<GuestRuntime>, component: &Component) {
        let mut computation = Computation::new(runtime, component, settings("{}")).expect("links");
        computation.process(&batch(&["a"], true)).expect("counts");
    }

    #[test]
    fn cached_component_is_not_compiled_again_and_a_damaged_file_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let bytes = guest_bytes("count");
        let compiled = runtime(directory.path()).load(&bytes).expect("loads");
        assert!(!compiled.is_from_cache());

        let second = runtime(directory.path());
        let cached = second.load(&bytes).expect("loads");
        assert!(cached.is_from_cache());
        check_runs(&second, &cached);

        let files: Vec<_> = std::fs::read_dir(directory.path())
            .expect("listed")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let mut damaged = std::fs::read(&files[0]).expect("read");
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&files[0], damaged).expect("written");

        let third = runtime(directory.path());
        let compiled_again = third.load(&bytes).expect("loads");
        assert!(!compiled_again.is_from_cache());
        check_runs(&third, &compiled_again);
        assert!(third.load(&bytes).expect("loads").is_from_cache());
    }
}

/// A guest or behaviour without a test is worth nothing, so each must be named above.
#[test]
fn every_guest_and_every_behaviour_has_a_test() {
    let tests = include_str!("sandbox.rs");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/behaviours/examples");
    let guests: Vec<String> = std::fs::read_dir(examples)
        .expect("the guests are there")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
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
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests");
    let packages = std::fs::read_dir(packages)
        .expect("the guests are there")
        .count();
    assert_eq!(
        packages, 1,
        "a new package of guests needs its tests listed here"
    );
}
