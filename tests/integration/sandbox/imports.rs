//! Guests that import what they may not have, and what grants change.

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

fn granted(guest_path: &str, path: &Path) -> DirectoryGrant {
    DirectoryGrant {
        guest_path: guest_path.to_owned(),
        path: path.to_owned(),
    }
}

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
fn o5_clocks_are_refused_or_stand_still() {
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
fn o5_random_numbers_are_refused_or_always_the_same() {
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
fn n1_host_grants_are_refused_for_a_map() {
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
fn o5_sockets_are_refused() {
    check_refused(
        "opens_socket",
        &["wasi:sockets/tcp", "std::net", "by a source"],
    );
    let every_grant = Grants {
        random: RandomGrant::Host,
        clock: ClockGrant::Host,
        directories: vec![granted("/", Path::new("/"))],
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
fn o5_files_are_there_only_under_a_granted_directory_and_only_to_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("greeting.txt");
    std::fs::write(&file, "hello").expect("written");
    let path = "data/greeting.txt";

    let mut none = with_grants("opens_file", Grants::default()).expect("offered");
    assert_eq!(none.verdicts().determinism, Determinism::Pure);
    let answer = call(&mut none, path);
    assert!(answer.starts_with("not read: "), "{answer}");

    let grants = Grants {
        directories: vec![granted("data", directory.path())],
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
fn o5_unknown_imports_are_refused_by_name() {
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
