//! The sandbox: loads a component, limits it, runs one batch through it.
//!
//! The only module that names wasmtime. It knows nothing of pipelines, storage or time: a batch
//! goes in, checked effects or a [`GuestError`] come out, and whatever bytes a guest is made of or
//! returns, the host does not panic.
//!
//! - [`runtime`]: the engine with its settings, the pool of instances; loads components.
//! - [`component`]: a loaded component: its digest, imports and exports.
//! - [`policy`]: which imported functions are offered, granted or refused, and why.
//! - [`computation`]: a component with its settings, ready to be called.
//! - `columns`: the one place that knows the layout of what crosses the boundary.
//! - [`effect_limits`]: how much of everything one call may return.
//! - `verdict`: from a batch that failed to the one item to blame; `cut`: a batch in parts.
//! - [`passed_item`]: what becomes of an item that failed alone.
//! - [`cut_difference`]: whether effects depend on where a batch was cut.
//! - `native`: with the feature `native-computations`, a function in place of a component, for
//!   measurements alone.
//! - [`recorded_settings`], `letter_failure`: what a dead letter keeps of a call that failed.
//! - [`error`], [`column_fault`]: what can go wrong, one variant for each situation.
//!
//! **Invariant:** a fresh instance remembers nothing of another call, and nothing that a guest is
//! offered without a grant `host` differs between two calls.
//!
//! Guests run on the caller's thread, which must not be one that drives asynchronous tasks: a
//! guest's print would block there, and tokio refuses that by a panic.

mod artifacts;
mod batch_size;
mod bindings;
mod call_fault;
mod capture;
pub mod column_fault;
mod columns;
pub mod component;
pub mod computation;
mod cut;
pub mod cut_difference;
mod deadline;
mod description;
pub mod effect_limits;
pub mod error;
mod instances;
mod letter_failure;
#[cfg(feature = "native-computations")]
pub mod native;
pub mod passed_item;
pub mod policy;
pub mod recorded_settings;
pub mod runtime;
mod verdict;
mod wasi;

pub use component::{Component, ImportedFunction};
pub use computation::{Call, Computation, ComputationSettings};
pub use error::{CallReport, GuestError};
pub use passed_item::{AfterFailure, PassedItem};
pub use recorded_settings::RecordedSettings;
pub use runtime::{COMPONENT_BYTES_MAX, GuestOptions, GuestRuntime};
