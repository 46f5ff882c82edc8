//! Tidelock: a host that runs other people's computations on streams of data, each sealed in a
//! WebAssembly component, and applies every message exactly once.
//!
//! The modules, in reading order:
//!
//! - [`types`]: passive data that every other module speaks of: ids, columns, epochs, pipelines.
//! - [`engine`]: the pure core; decides what an epoch holds and never touches the outside.
//! - [`guest`]: the sandbox; loads a component, limits it, runs one batch through it.
//! - [`storage`]: the contract of durable storage, and the implementations that keep it.
//! - [`source`] and [`sink`]: the two kinds of connector.
//! - [`worker`]: runs jobs; `worker/job/` is the loop where all of the above meet.
//! - [`controller`]: brings a pipeline to its target state: partitions, leases, jobs.
//! - [`cli`]: the command line.
//! - [`config`], [`clock`], [`telemetry`]: what `main` makes and hands down.

// It panics when nobody reads; `cli::printing` does not.
#![cfg_attr(not(test), deny(clippy::print_stdout))]

pub mod types;

pub mod engine;
pub mod guest;
pub mod sink;
pub mod source;
pub mod storage;

pub mod worker;

pub mod controller;

pub mod cli;

#[cfg(test)]
mod golden;

pub mod clock;
pub mod config;
pub mod telemetry;
