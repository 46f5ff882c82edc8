//! What the test guests share: raw bindings of the contract and the computations themselves, as
//! plain functions that also run natively.
//!
//! The components are this package's examples. Nothing is exported here, so that an example which
//! links this library exports its own computation and no other.

pub mod behaviours;
pub mod count;
pub mod number;
pub mod obey;
pub mod trace;

/// The contract as wit-bindgen spells it.
#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    clippy::all,
    reason = "generated"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "guest",
        pub_export_macro: true,
        export_macro_name: "export_computation",
        default_bindings_module: "guest_behaviours::bindings",
    });
}

pub use bindings::exports::tidelock::computation::computation as contract;

use contract::{Batch, Column, Description, Effects, Kind, Messages, Outputs, StateColumn, Timers};

/// A map with one input and one output.
pub fn describe_map() -> Description {
    Description {
        kind: Kind::Map,
        inputs: vec!["in".to_owned()],
        outputs: vec!["out".to_owned()],
        states: Vec::new(),
        timers: Vec::new(),
    }
}

/// A transform with one input and one output that keeps nothing.
pub fn describe_transform() -> Description {
    Description {
        kind: Kind::Transform,
        ..describe_map()
    }
}

/// Effects of nothing.
pub fn no_effects() -> Effects {
    Effects {
        outputs: Outputs {
            streams: Vec::new(),
            parents: Vec::new(),
            parent_ends: Vec::new(),
            keys: empty_column(),
            event_times: Vec::new(),
            payloads: empty_column(),
        },
        states: Vec::new(),
        set_timers: no_timers(),
        cancel_timers: no_timers(),
        logs: Vec::new(),
    }
}

/// One output for each message of `batch`: its key, and the payload that `payload` makes of the
/// message's index in the batch.
pub fn one_output_each(batch: &Batch, mut payload: impl FnMut(usize) -> Vec<u8>) -> Effects {
    let mut effects = no_effects();
    for index in 0..batch.messages.streams.len() {
        push_output(&mut effects, batch, index, &payload(index));
    }
    effects
}

/// Appends an output caused by message `index` of `batch`.
pub fn push_output(effects: &mut Effects, batch: &Batch, index: usize, payload: &[u8]) {
    let first_message = batch.timers.streams.len();
    let outputs = &mut effects.outputs;
    outputs.streams.push(0);
    outputs.parents.push((first_message + index) as u32);
    push(
        &mut outputs.keys,
        value(&batch.keys, batch.messages.keys[index] as usize),
    );
    push(&mut outputs.payloads, payload);
}

/// Value `index` of a column.
pub fn value(column: &Column, index: usize) -> &[u8] {
    let start = match index {
        0 => 0,
        _ => column.ends[index - 1] as usize,
    };
    &column.bytes[start..column.ends[index] as usize]
}

/// Appends a value to a column.
pub fn push(column: &mut Column, value: &[u8]) {
    column.bytes.extend_from_slice(value);
    column.ends.push(column.bytes.len() as u32);
}

/// A column without values.
pub fn empty_column() -> Column {
    Column {
        ends: Vec::new(),
        bytes: Vec::new(),
    }
}

/// No timers.
pub fn no_timers() -> Timers {
    Timers {
        streams: Vec::new(),
        keys: Vec::new(),
        trigger_times: Vec::new(),
        event_times: Vec::new(),
    }
}

/// A batch of messages on input 0: `keys[i]` and `payloads[i]`, every key listed once for each
/// message, and one empty state column if `stateful`.
pub fn batch_of(messages: &[(&[u8], &[u8])], stateful: bool) -> Batch {
    let mut batch = Batch {
        watermarks: Vec::new(),
        keys: empty_column(),
        states: Vec::new(),
        timers: no_timers(),
        messages: Messages {
            streams: Vec::new(),
            keys: Vec::new(),
            event_times: Vec::new(),
            payloads: empty_column(),
        },
        visits: Vec::new(),
    };
    if stateful {
        batch.states.push(StateColumn {
            keys: Vec::new(),
            values: empty_column(),
        });
    }
    for (index, (key, payload)) in messages.iter().enumerate() {
        push(&mut batch.keys, key);
        push(&mut batch.messages.payloads, payload);
        batch.messages.streams.push(0);
        batch.messages.keys.push(index as u32);
        batch.messages.event_times.push(0);
    }
    batch
}
