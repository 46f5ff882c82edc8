//! Sinks: where streams leave the pipeline. One file per connector.

pub mod file;
pub mod stdout;
