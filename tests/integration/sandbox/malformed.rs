//! Bytes that are no component, and components that are no computation.

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
    for _ in 0..30 {
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
