//! What a well-behaved guest can rely on.

use super::*;

#[test]
fn effects_come_back_with_fuel_and_state() {
    let settings = settings("{}");
    let mut computation = Computation::new(&RUNTIME, &component("count"), settings).expect("links");
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
    let second = computation.process(&input).expect("counts");
    assert_eq!((second.effects, second.fuel), (first.effects, first.fuel));
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
