//! What a message costs at the guest boundary: columns in, a state update and an output for each
//! message, columns out; next to the same function called natively.
//!
//! Run by `cargo bench -p tidelock-tests --bench guest_boundary`, after
//! `cargo xtask components`. Criterion shows elements per second; a message is an element. Compare
//! ways within one run: another run on a busy machine is another machine.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use guest_behaviours::{batch_of, count, push};
use tidelock::guest::{Computation, ComputationSettings, GuestOptions, GuestRuntime};
use tidelock::types::batch::{Batch, MessageColumns, StateColumn};
use tidelock::types::pipeline::{CallLimits, Grants, InstancePolicy};

const BATCH_SIZES: [usize; 4] = [1, 100, 1_000, 10_000];
const PAYLOAD: [u8; 100] = [b'p'; 100];

/// 16 bytes each; a tenth as many keys as messages.
fn keys(messages: usize) -> Vec<String> {
    (0..messages.div_ceil(10))
        .map(|key| format!("key {key:>12}"))
        .collect()
}

fn batch(messages: usize) -> Batch {
    let keys = keys(messages);
    let counts = [7_u8, 0, 0, 0, 0, 0, 0, 0];
    Batch {
        watermarks: vec![0],
        keys: keys.iter().map(String::as_bytes).collect(),
        states: vec![StateColumn {
            keys: (0..keys.len() as u32).collect(),
            values: keys.iter().map(|_| counts.as_slice()).collect(),
        }],
        messages: MessageColumns {
            streams: vec![0; messages],
            keys: (0..messages)
                .map(|message| (message % keys.len()) as u32)
                .collect(),
            event_times: vec![0; messages],
            payloads: (0..messages).map(|_| PAYLOAD.as_slice()).collect(),
        },
        ..Batch::default()
    }
}

/// The same batch in the guest's own types.
fn native_batch(messages: usize) -> guest_behaviours::contract::Batch {
    let keys = keys(messages);
    let mut batch = batch_of(&vec![(b"".as_slice(), PAYLOAD.as_slice()); messages], true);
    batch.keys = guest_behaviours::empty_column();
    for (index, key) in keys.iter().enumerate() {
        push(&mut batch.keys, key.as_bytes());
        batch.states[0].keys.push(index as u32);
        push(&mut batch.states[0].values, &7_u64.to_le_bytes());
    }
    for (message, key) in batch.messages.keys.iter_mut().enumerate() {
        *key = (message % keys.len()) as u32;
    }
    batch
}

fn computation(options: &GuestOptions, instance: InstancePolicy) -> Computation {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/components/wasm32-wasip2/component/examples/count.wasm");
    let bytes = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run cargo xtask components", path.display()));
    let runtime: Arc<GuestRuntime> =
        GuestRuntime::new(options.clone()).expect("the guest runtime starts");
    let component = runtime.load(&bytes).expect("the guest loads");
    let settings = ComputationSettings {
        name: "count".to_owned(),
        parameters: "{}".to_owned(),
        grants: Grants::default(),
        limits: CallLimits::default(),
        instance,
        relaxed_batching: false,
    };
    Computation::new(&runtime, &component, settings).expect("the guest links")
}

fn guest_boundary(criterion: &mut Criterion) {
    let usual = GuestOptions::default();
    let without_fuel = GuestOptions {
        fuel: false,
        ..usual.clone()
    };
    let native_target = GuestOptions {
        baseline_target: false,
        ..usual.clone()
    };
    let ways = [
        ("fresh", &usual, InstancePolicy::Fresh),
        ("reuse", &usual, InstancePolicy::Reuse),
        ("reuse-without-fuel", &without_fuel, InstancePolicy::Reuse),
        (
            "reuse-on-native-target",
            &native_target,
            InstancePolicy::Reuse,
        ),
    ];
    let mut group = criterion.benchmark_group("guest_boundary");
    for messages in BATCH_SIZES {
        group.throughput(Throughput::Elements(messages as u64));
        let input = batch(messages);
        for (way, options, instance) in ways {
            let mut computation = computation(options, instance);
            group.bench_function(BenchmarkId::new(way, messages), |bencher| {
                bencher.iter(|| computation.process(black_box(&input)).expect("it counts"));
            });
        }
        let input = native_batch(messages);
        group.bench_function(BenchmarkId::new("native-function", messages), |bencher| {
            bencher.iter(|| count::process(black_box(&input)));
        });
    }
    group.finish();
}

criterion_group!(benches, guest_boundary);
criterion_main!(benches);
