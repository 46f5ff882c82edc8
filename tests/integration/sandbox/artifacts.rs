//! Compiled components on disk.

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
