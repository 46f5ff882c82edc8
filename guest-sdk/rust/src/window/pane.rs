//! One firing of a window.

use serde::{Deserialize, Serialize};

use super::interval::Window;
use crate::error::{Context, Result};

/// What there is to emit when a window fires.
#[derive(Debug)]
pub struct Pane<'a, A> {
    pub(super) key: &'a [u8],
    pub(super) window: Window,
    pub(super) timing: Timing,
    pub(super) number: u32,
    pub(super) accumulator: &'a A,
}

/// When a window fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// Before the watermark has reached the window's end: a preliminary result.
    Early,
    /// When the watermark has reached the window's end. This pane comes for every window that had a
    /// message in time, even if nothing is new since an early one, so that readers know it is complete.
    OnTime,
    /// For a message that came behind the window's end: a corrected result.
    Late,
}

impl<'a, A> Pane<'a, A> {
    /// The key that the window belongs to.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The key as text.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8.
    pub fn key_text(&self) -> Result<&'a str> {
        std::str::from_utf8(self.key).context("the window's key")
    }

    /// The window.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Whether it is early, on time or late.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// How many panes of the window came before it. The last one of a window has the greatest number.
    /// Where sessions were merged, their panes are counted on from the greatest number of any.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What was gathered: since the window began, or with
    /// [`discarding`](super::Windowing::discarding) since the pane before.
    pub fn accumulator(&self) -> &'a A {
        self.accumulator
    }
}
