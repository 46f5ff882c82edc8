//! The stretch of event time that a window covers.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::timestamp::{Timestamp, duration_ms};

/// A stretch of event time, from its start up to its end, which is no longer part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    // The end comes first: windows are ordered as they close.
    end: Timestamp,
    start: Timestamp,
}

impl Window {
    /// From `start` up to `end`.
    pub(super) fn new(start: u64, end: u64) -> Window {
        Window {
            end: Timestamp(end),
            start: Timestamp(start),
        }
    }

    /// Its first moment.
    pub fn start(self) -> Timestamp {
        self.start
    }

    /// The first moment behind it. The window closes when the watermark gets there.
    pub fn end(self) -> Timestamp {
        self.end
    }

    /// Its last millisecond: the event time of what is emitted for it.
    pub fn last(self) -> Timestamp {
        self.end - Duration::from_millis(1)
    }

    /// Whether it has a moment in common with another one. Windows that only touch have none.
    pub(super) fn overlaps(self, other: Window) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The least window around both.
    pub(super) fn hull(self, other: Window) -> Window {
        Window {
            end: self.end.max(other.end),
            start: self.start.min(other.start),
        }
    }
}

/// The window of `size_ms` around a moment, of those that begin at `offset_ms` and every `size_ms`
/// behind it. It is cut off at both ends of time.
pub(super) fn aligned(moment: u64, size_ms: u64, offset_ms: u64) -> Window {
    let into = since_start(moment, size_ms, offset_ms);
    Window::new(
        moment - into.min(moment),
        moment.saturating_add(size_ms - into),
    )
}

/// How far a moment is behind the last one of those at `offset_ms` and every `period_ms` before and
/// behind it.
pub(super) fn since_start(moment: u64, period_ms: u64, offset_ms: u64) -> u64 {
    let into = moment % period_ms;
    match into.checked_sub(offset_ms) {
        Some(into) => into,
        None => into + (period_ms - offset_ms),
    }
}

/// A duration of at least a millisecond, in milliseconds.
pub(super) fn positive_ms(duration: Duration, what: &str) -> Result<u64> {
    match duration_ms(duration) {
        0 => Err(Error::new(format!(
            "{what} is {duration:?}, but has to be at least 1 ms"
        ))),
        ms => Ok(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_windows_cover_every_moment_once_and_end_at_the_ends_of_time() {
        for (moment, size, offset, start, end) in [
            (0, 10, 0, 0, 10),
            (9, 10, 0, 0, 10),
            (10, 10, 0, 10, 20),
            (12, 10, 3, 3, 13),
            (13, 10, 3, 13, 23),
            // What would begin before 1970 is cut off.
            (2, 10, 3, 0, 3),
            (u64::MAX, 10, 0, u64::MAX - 5, u64::MAX),
            (5, u64::MAX, 0, 0, u64::MAX),
            (5, u64::MAX, 7, 0, 7),
        ] {
            let window = aligned(moment, size, offset);
            assert_eq!(window, Window::new(start, end), "{moment} {size} {offset}");
        }
    }

    #[test]
    fn windows_that_touch_do_not_overlap() {
        let window = Window::new(10, 20);
        assert!(!window.overlaps(Window::new(20, 30)));
        assert!(!window.overlaps(Window::new(0, 10)));
        assert!(window.overlaps(Window::new(19, 30)));
        assert_eq!(window.hull(Window::new(5, 12)), Window::new(5, 20));
        assert_eq!(window.last(), Timestamp(19));
    }
}
