//! Which windows a message belongs to.

use super::aggregate::{Aggregate, Merge};
use super::session::Session;
use super::sliding::Sliding;
use super::tumbling::Tumbling;
use crate::error::Result;

/// A kind of window: [`Tumbling`], [`Sliding`], or [`Session`] for what can be [merged](Merge).
pub trait WindowKind<G: Aggregate>: private::Sealed {
    #[doc(hidden)]
    fn assigner(self) -> Assigner<G>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Tumbling {}
    impl Sealed for super::Sliding {}
    impl Sealed for super::Session {}
}

/// How accumulators of sessions become one.
pub(super) type MergeFunction<G> =
    fn(&G, &mut <G as Aggregate>::Accumulator, <G as Aggregate>::Accumulator) -> Result<()>;

/// The kinds, told apart.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "no part of the API")]
pub enum Assigner<G: Aggregate> {
    Tumbling(Tumbling),
    Sliding(Sliding),
    Session(Session, MergeFunction<G>),
}

impl<G: Aggregate> WindowKind<G> for Tumbling {
    fn assigner(self) -> Assigner<G> {
        Assigner::Tumbling(self)
    }
}

impl<G: Aggregate> WindowKind<G> for Sliding {
    fn assigner(self) -> Assigner<G> {
        Assigner::Sliding(self)
    }
}

impl<G: Merge> WindowKind<G> for Session {
    fn assigner(self) -> Assigner<G> {
        Assigner::Session(self, G::merge)
    }
}
