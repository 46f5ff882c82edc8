//! Limits on what a call returns: outputs, their size, state values, timers, log lines. What a batch has too
//! much of as a whole is returned in parts; what one message has too much of is a verdict on that message.

use tidelock::guest::effect_limits::LimitExcess;
use tidelock::types::key::MESSAGE_KEY_BYTES_MAX;

use super::*;

/// Five messages of one key.
const NUMBERS: [&str; 5] = ["0", "1", "2", "3", "4"];

/// The message of five that has too much by itself, whatever batches the others pass in.
fn guilty(mut computation: Computation) -> (Option<u32>, LimitExcess) {
    let error = computation
        .process(&batch(&NUMBERS, true))
        .expect_err("each message has too much");
    assert!(error.is_verdict(), "{error:?}");
    let item = error.item();
    let GuestError::OverLimit { excess, .. } = error else {
        panic!("{error:?}");
    };
    (item, excess)
}

/// How many parts five messages pass in.
fn parts(mut computation: Computation) -> usize {
    let call = computation.process(&batch(&NUMBERS, true));
    let call = call.unwrap_or_else(|error| panic!("each message passes alone: {error}"));
    assert_eq!(payloads(&call).first().map(String::as_str), Some("0"));
    call.parts
}

#[test]
fn outputs_are_counted() {
    let emitting = |amount| behaving_much("emits-many", amount, |limits| limits.outputs = 20);
    assert_eq!(parts(emitting(4)), 1, "20 of all are within the limit");
    assert_eq!(
        parts(emitting(10)),
        3,
        "50 of all are returned in parts of up to 20"
    );
    let (item, excess) = guilty(emitting(21));
    assert_eq!(item, Some(0));
    assert_eq!(
        excess,
        LimitExcess::Outputs {
            found: 21,
            allowed: 20
        }
    );

    let mut by_default = behaving_much("emits-many", 1_000_001, |_| {});
    let error = by_default
        .process(&batch(&["0"], true))
        .expect_err("the default is a million");
    check_text(
        &error,
        &["1000001 outputs", "allowed are 1000000", "`limits.outputs`"],
    );
}

#[test]
fn an_output_may_not_be_larger_than_a_message_may() {
    let mut computation = behaving("echoes", |settings| settings.limits.message_bytes = 8);
    // The key has three bytes.
    let call = computation
        .process(&batch(&["12345", "1", "54321"], true))
        .expect("8 bytes of key and payload are allowed, however many there are");
    assert_eq!(call.parts, 1);

    let error = computation
        .process(&batch(&["12345", "1", "123456", "1234567"], true))
        .expect_err("two are too large");
    assert_eq!(error.item(), Some(2), "the first one that is too large");
    check_text(
        &error,
        &[
            "9 bytes of key and payload in output 0",
            "allowed are 8",
            "`limits.message`",
        ],
    );

    let mut by_default = behaving("returns-much", |settings| {
        settings.limits.output_bytes = 81 << 20;
    });
    let error = by_default
        .process(&batch(&["one"], true))
        .expect_err("the default is 16 MiB");
    check_text(&error, &["allowed are 16777216", "`limits.message`"]);
}

#[test]
fn a_state_value_may_not_be_larger_than_the_limit() {
    let keeping =
        |amount| behaving_much("keeps-much", amount, |limits| limits.state_value_bytes = 9);
    assert_eq!(parts(keeping(9)), 1);
    let (item, excess) = guilty(keeping(10));
    assert_eq!(item, Some(0));
    assert_eq!(
        excess.to_string(),
        "10 bytes as state count of key \"key\", allowed are 9; spread it over several keys or states, \
         or raise `limits.state_value`"
    );

    let mut by_default = behaving_much("keeps-much", (16 << 20) + 1, |_| {});
    let error = by_default
        .process(&batch(&["0"], true))
        .expect_err("the default is 16 MiB");
    check_text(&error, &["16777217 bytes as state count of key \"key\""]);
}

#[test]
fn timers_of_a_key_are_counted_those_cancelled_too() {
    let setting = |amount| {
        behaving_much("sets-many-timers", amount, |limits| {
            limits.timers_per_key = 20;
        })
    };
    assert_eq!(parts(setting(4)), 1, "20 timers of the key are allowed");
    assert_eq!(parts(setting(10)), 3, "50 are set in parts of up to 20");
    let (item, excess) = guilty(setting(21));
    assert_eq!(item, Some(0));
    assert_eq!(
        excess,
        LimitExcess::Timers {
            key: "key".to_owned(),
            found: 21,
            allowed: 20
        }
    );

    let mut by_default = behaving_much("sets-many-timers", 10_001, |_| {});
    let error = by_default
        .process(&batch(&["0"], true))
        .expect_err("the default is ten thousand");
    check_text(
        &error,
        &["10001 timers of key \"key\"", "`limits.timers_per_key`"],
    );
}

#[test]
fn timers_of_other_keys_do_not_count() {
    let mut computation =
        behaving_much("sets-many-timers", 10, |limits| limits.timers_per_key = 10);
    let mut of_many_keys = batch(&NUMBERS, true);
    of_many_keys.keys = NUMBERS.iter().map(|key| key.as_bytes()).collect();
    of_many_keys.messages.keys = (0..5).collect();
    let call = computation
        .process(&of_many_keys)
        .expect("ten for each key");
    assert_eq!(call.parts, 1);
}

#[test]
fn log_lines_are_counted_and_those_over_the_limit_dropped() {
    let mut computation = behaving_much("logs-many-lines", 3, |limits| limits.log_lines = 10);
    let call = computation
        .process(&batch(&NUMBERS, true))
        .expect("nothing follows from log lines");
    assert_eq!(call.parts, 1);
    let logs = &call.effects.logs;
    assert_eq!(logs.len(), 11);
    assert_eq!(
        logs[10].text,
        "5 more lines, over the limit `log_lines` of 10"
    );
}

#[test]
fn a_key_that_is_too_long_is_refused_wherever_a_guest_could_bring_one() {
    // Keys of states and timers are indexes into the batch's keys, so a guest makes new ones for outputs alone.
    let mut computation = behaving("emits-a-long-key", |_| {});
    let error = computation
        .process(&batch(&["0", "1"], true))
        .expect_err("one byte too much");
    assert_eq!(error.item(), Some(0));
    check_text(
        &error,
        &["outputs.keys", &format!("{}", MESSAGE_KEY_BYTES_MAX + 1)],
    );
}
