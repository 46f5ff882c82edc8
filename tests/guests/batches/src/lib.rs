//! A map whose outputs have several parents, and a transform behind it, for tests of batching with relaxed guarantees.

pub mod joins_lines;
pub mod refuses_a_block;
