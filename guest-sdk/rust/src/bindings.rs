//! What wit-bindgen makes of the contract, and nothing else. Authors never see it: the rest of the
//! crate turns columns into messages and effects back into columns.

wit_bindgen::generate!({
    path: "../../wit/computation.wit",
    world: "guest",
    pub_export_macro: true,
    generate_unused_types: true,
});

pub use exports::tidelock::computation::computation::{
    Batch, Column, Description, Effects, Failure, Guest, Kind, Level, LogLine, Messages, Outputs,
    StateColumn, StateDeclaration, TimeDomain, TimerDeclaration, Timers,
};
