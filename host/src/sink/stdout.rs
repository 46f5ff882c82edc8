//! Stdout sink.
