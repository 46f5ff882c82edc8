//! What a guest can't carry from one call to the next, or learn from it.

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
fn a_guest_learns_nothing_from_those_who_started_it() {
    let mut computation = behaving("looks-around", |_| {});
    let call = computation.process(&batch(&["x"], true)).expect("succeeds");
    assert_eq!(
        payloads(&call),
        ["0 variables, 0 arguments, 0 bytes of input, terminal: false"]
    );
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

/// Compares a batch with its parts, wherever it is cut.
fn verify_every_cut(behaviour: &str) -> Result<(), GuestError> {
    let mut computation = behaving(behaviour, |_| {});
    let input = batch(&["a", "b", "c"], true);
    let whole = computation.process(&input).expect("succeeds");
    (0..=3).try_for_each(|at| computation.verify_cut(&input, &whole, at))
}

#[test]
fn n1_outputs_that_depend_on_the_cut_are_told_with_both_values() {
    let error = verify_every_cut("numbers-messages-in-the-batch").expect_err("they differ");
    assert!(
        matches!(error, GuestError::DependsOnCut { .. }),
        "{error:?}"
    );
    check_text(
        &error,
        &[
            "outputs depend on how the batch was cut",
            "output 1 is \"1\"",
            "\"0\"",
            "state",
        ],
    );
    for independent in ["echoes", "counts-keys"] {
        verify_every_cut(independent).expect(independent);
    }
}
