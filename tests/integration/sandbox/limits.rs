//! Guests that want too much: time, memory, output, logs.

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
        assert_eq!(error.item(), Some(0), "it is named all the same");
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
        settings.limits.message_bytes = 81 << 20;
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
