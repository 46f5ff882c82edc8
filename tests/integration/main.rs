//! The integration tests: one binary, one module for each part of the host.

/// What guests can and can't do.
mod sandbox;
