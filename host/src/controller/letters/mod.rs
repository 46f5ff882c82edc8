//! The dead letters of a store: found, asked for, discarded. For commands and for a start; what becomes of a letter that is
//! replayed, its partition's job decides.
//!
//! - [`filter`]: which letters are meant.
//! - [`walk`]: all letters of a store, oldest first, a page at a time.
//! - [`request`]: asks for letters to be replayed or discarded.
//! - [`discard`]: lets letters go whose partitions no job has.
//! - [`unserved`]: what a start finds asked for that no job of its run can do.

pub mod discard;
pub mod filter;
pub mod request;
pub mod unserved;
pub mod walk;
