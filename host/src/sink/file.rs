//! File sink.
