//! File source.
