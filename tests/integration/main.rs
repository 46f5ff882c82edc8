//! Tests of the built programs, in one binary: the host as a process, the guests as components. Each
//! file is one subject; none depends on another or on the order in which they run.

// What `cargo xtask components` leaves behind.
mod components;
// A pipeline's graph, printed and drawn.
mod graph;
// SIGKILL at any moment, and output as if nothing had happened.
mod kill;
// The command line as a person uses it.
mod run;
// What guests can do, and what becomes of those that try more.
mod sandbox;
