//! The streams that a computation declares, as the variants of an enum. So a stream that is not
//! declared can't be named at all.

/// Declared streams: an enum without fields, made by `#[derive(Streams)]`.
///
/// A stream's name is its variant's in snake case, or what `#[stream(name = "...")]` says.
///
/// ```
/// use tidelock_guest::Streams;
///
/// #[derive(Streams)]
/// enum Outputs {
///     Statistics,
///     #[stream(name = "late-alerts")]
///     LateAlerts,
/// }
///
/// assert_eq!(Outputs::NAMES, ["statistics", "late-alerts"]);
/// ```
///
/// Two streams of one name do not compile:
///
/// ```compile_fail
/// #[derive(tidelock_guest::Streams)]
/// enum Outputs {
///     Alerts,
///     #[stream(name = "alerts")]
///     Statistics,
/// }
/// ```
pub trait Streams: Sized + 'static {
    /// Their names, in the order of the variants.
    const NAMES: &'static [&'static str];

    /// The stream with that place among the names.
    fn from_index(index: usize) -> Option<Self>;

    /// The stream's place among the names.
    fn index(&self) -> u16;
}

/// No streams: what a computation emits to if it emits nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStreams {}

impl Streams for NoStreams {
    const NAMES: &'static [&'static str] = &[];

    fn from_index(_index: usize) -> Option<NoStreams> {
        None
    }

    fn index(&self) -> u16 {
        match *self {}
    }
}
