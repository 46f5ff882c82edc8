//! Guests that fail, each in its own way.

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
fn failure_carries_the_guests_reason() {
    let error = fail("fails", |_| {});
    assert!(matches!(error, GuestError::Failure { .. }), "{error:?}");
    check_text(&error, &["the guest fails on purpose", "what it documents"]);
}

#[test]
fn n3_the_verdict_is_on_an_item_alone_whatever_the_guest_hints() {
    // It refuses every batch and blames the second item each time there is one.
    let mut computation = behaving("fails-on-an-item", |_| {});
    let input = batch(&["one", "two", "three"], true);
    let error = computation.process(&input).expect_err("it refuses all");
    assert_eq!(error.item(), Some(0));
    check_text(&error, &["refuses this item"]);
}

#[test]
fn n3_one_item_that_panics_is_named_whatever_comes_before_and_after_it() {
    for before in [0, 1, 20] {
        let mut payloads = vec!["good"; before];
        payloads.extend(["bad", "good", "bad"]);
        let mut computation = behaving("panics-on-a-payload", |settings| {
            settings.parameters =
                "{\"behaviour\":\"panics-on-a-payload\",\"payload\":\"bad\"}".to_owned();
        });
        let error = computation
            .process(&batch(&payloads, true))
            .expect_err("it panics");
        assert!(matches!(error, GuestError::Panic { .. }), "{error:?}");
        assert_eq!(error.item(), Some(before as u32));
        assert!(error.is_verdict());
    }
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

#[test]
fn b2_outputs_without_exactly_one_parent_are_refused() {
    let columns = [
        "outputs.parent-ends",
        "outputs.parents",
        "outputs.parents.length",
    ];
    for column in columns {
        assert!(WRONG_COLUMNS.contains(&column), "{column}");
        let mut computation = behaving("wrong-column", |settings| {
            settings.parameters =
                format!("{{\"behaviour\":\"wrong-column\",\"column\":\"{column}\"}}");
        });
        let error = computation
            .process(&batch(&["one"], true))
            .expect_err(column);
        check_text(&error, &[&named(column), "defect of the component"]);
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

/// Whatever way items fail in: those that are passed over have no part in what the others lead to, and each comes back
/// with the call that failed.
#[test]
fn p1_items_that_are_passed_over_leave_the_others_as_they_would_be_without_them() {
    let obeying = || {
        behaving("obeys-payloads", |settings| {
            settings.limits.fuel = 100_000_000;
            settings.limits.memory_bytes = 32 << 20;
            settings.limits.output_bytes = 1 << 20;
        })
    };
    let mut given: Vec<&str> = Vec::new();
    for word in BAD {
        given.extend(["good", word]);
    }
    given.extend(["good", "good"]);
    let mut passed = Vec::new();
    let call = obeying()
        .process_deciding(&batch(&given, true), &mut |item, error| {
            assert!(error.is_verdict(), "{error}");
            passed.push(given[item as usize]);
            AfterFailure::PassOver
        })
        .expect("all that fail are passed over");
    assert_eq!(passed, BAD);
    let good: Vec<&str> = given
        .iter()
        .copied()
        .filter(|word| *word == "good")
        .collect();
    let alone = obeying()
        .process(&batch(&good, true))
        .expect("they are good");
    assert_eq!(payloads(&call), payloads(&alone));
    assert_eq!(call.effects.states, alone.effects.states);
    for (before, item) in (1..).zip(&call.passed_items) {
        assert_eq!(item.batch.messages.payloads.iter().count(), 1);
        let state = item.batch.states[0].values.iter().next();
        assert_eq!(
            state,
            Some(before.to_string().as_bytes()),
            "what was good before it"
        );
    }
    // The same under other cuts, and a computation that would pass one of them then is found out.
    let computation = obeying();
    for at in [1, 7, given.len() - 1] {
        (computation.verify_cut(&batch(&given, true), &call, at)).expect("it is the same");
    }
}
