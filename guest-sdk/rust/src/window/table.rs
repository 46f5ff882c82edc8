//! The windows of one key, and how they are stored.
//!
//! The value of the state has a head for each window, in the order in which windows end, then the
//! accumulators laid end to end. Heads are read when the key is first touched in a batch; an accumulator
//! is decoded when a message or a firing needs it, and its bytes are copied as they are otherwise.
//!
//! **Invariant:** a table without windows is no value: the key's row is deleted.

use std::marker::PhantomData;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::interval::Window;
use crate::codec::Codec;
use crate::error::{Context, Error, Result};

/// The windows of a key, in the order in which they end.
pub(crate) struct Table<A> {
    pub(super) windows: Vec<Open<A>>,
    /// The accumulators as they came.
    bytes: Vec<u8>,
}

impl<A> Default for Table<A> {
    fn default() -> Table<A> {
        Table {
            windows: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

/// A window that is kept.
pub(super) struct Open<A> {
    pub(super) window: Window,
    accumulator: Slot<A>,
    /// How many panes have been emitted.
    pub(super) panes: u32,
    /// How many messages were added since the last pane.
    pub(super) unfired: u32,
    /// Whether the pane on time has been emitted, or would have been before the first message came.
    pub(super) closed: bool,
    /// The trigger of the timer that closes the window or frees its state. For a session that has grown
    /// it may be that of an earlier end: the timer is moved when it fires, not with each message.
    pub(super) timer: u64,
    /// The trigger of the timer for the next early pane, if one stands.
    pub(super) early: Option<u64>,
}

enum Slot<A> {
    Encoded(Range<usize>),
    Decoded(A),
}

/// What is stored of a window beside its accumulator.
#[derive(Serialize, Deserialize)]
struct Head {
    start: u64,
    length: u64,
    panes: u32,
    unfired: u32,
    closed: bool,
    /// Behind the start, as that has fewer digits.
    timer_after_start: u64,
    early: Option<u64>,
    size_bytes: usize,
}

impl<A: Default> Open<A> {
    /// A window without messages.
    pub(super) fn new(window: Window) -> Open<A> {
        Open {
            window,
            accumulator: Slot::Decoded(A::default()),
            panes: 0,
            unfired: 0,
            closed: false,
            timer: 0,
            early: None,
        }
    }

    /// Begins to gather anew.
    pub(super) fn reset(&mut self) {
        self.accumulator = Slot::Decoded(A::default());
    }
}

impl<A> Open<A> {
    /// The triggers of its timers.
    pub(super) fn timers(&self) -> impl Iterator<Item = u64> + use<A> {
        [Some(self.timer), self.early].into_iter().flatten()
    }

    /// Covers what another window covers too, whose accumulator is for the caller to merge. The earlier of
    /// their timers stand for both.
    pub(super) fn absorb(&mut self, other: &Open<A>) {
        self.window = self.window.hull(other.window);
        self.panes = self.panes.max(other.panes);
        self.unfired = self.unfired.saturating_add(other.unfired);
        self.timer = self.timer.min(other.timer);
        self.early = match (self.early, other.early) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
    }

    /// What was gathered. `bytes` are the table's, `decode` is its codec's.
    pub(super) fn accumulator(
        &mut self,
        bytes: &[u8],
        decode: fn(&[u8]) -> Result<A>,
    ) -> Result<&mut A> {
        if let Slot::Encoded(range) = &self.accumulator {
            let value = decode(&bytes[range.clone()])
                .with_context(|| format!("the window from {}", self.window.start()))?;
            self.accumulator = Slot::Decoded(value);
        }
        match &mut self.accumulator {
            Slot::Decoded(value) => Ok(value),
            Slot::Encoded(_) => unreachable!("it was decoded above"),
        }
    }

    /// Hands over what was gathered.
    pub(super) fn into_accumulator(
        self,
        bytes: &[u8],
        decode: fn(&[u8]) -> Result<A>,
    ) -> Result<A> {
        match self.accumulator {
            Slot::Encoded(range) => decode(&bytes[range])
                .with_context(|| format!("the window from {}", self.window.start())),
            Slot::Decoded(value) => Ok(value),
        }
    }
}

impl<A> Table<A> {
    /// A window and the bytes that its accumulator may lie in.
    pub(super) fn window(&mut self, index: usize) -> (&mut Open<A>, &[u8]) {
        (&mut self.windows[index], &self.bytes)
    }

    /// Where a window is, or where it would be.
    pub(super) fn find(&self, window: Window) -> Result<usize, usize> {
        self.windows
            .binary_search_by_key(&window, |open| open.window)
    }

    /// The windows that overlap another one, where no two of the table's do.
    pub(super) fn overlapping(&self, window: Window) -> Range<usize> {
        let start = (self.windows).partition_point(|open| open.window.end() <= window.start());
        let count = self.windows[start..]
            .iter()
            .take_while(|open| open.window.overlaps(window))
            .count();
        start..start + count
    }

    /// Takes windows out.
    pub(super) fn take(&mut self, range: Range<usize>) -> Vec<Open<A>> {
        self.windows.drain(range).collect()
    }

    /// Whether any window still needs the timer with this trigger.
    pub(super) fn needs_timer(&self, trigger: u64) -> bool {
        (self.windows.iter()).any(|open| open.timer == trigger || open.early == Some(trigger))
    }
}

/// The encoding of a [`Table`] whose accumulators are encoded by `C`.
pub(crate) struct TableCodec<C>(PhantomData<C>);

impl<A, C: Codec<A>> Codec<Table<A>> for TableCodec<C> {
    const FORMAT: &'static str = "windows";

    fn encode(table: &Table<A>, bytes: &mut Vec<u8>) -> Result<()> {
        if table.windows.is_empty() {
            return Ok(());
        }
        let mut accumulators = Vec::with_capacity(table.bytes.len());
        let mut heads = Vec::with_capacity(table.windows.len());
        for open in &table.windows {
            let start = accumulators.len();
            match &open.accumulator {
                Slot::Encoded(range) => {
                    accumulators.extend_from_slice(&table.bytes[range.clone()]);
                }
                Slot::Decoded(value) => C::encode(value, &mut accumulators)?,
            }
            let window_start = open.window.start().as_ms();
            heads.push(Head {
                start: window_start,
                length: open.window.end().as_ms() - window_start,
                panes: open.panes,
                unfired: open.unfired,
                closed: open.closed,
                timer_after_start: open.timer.wrapping_sub(window_start),
                early: open.early,
                size_bytes: accumulators.len() - start,
            });
        }
        crate::codec::write_postcard(&heads, bytes)?;
        bytes.extend_from_slice(&accumulators);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Table<A>> {
        let (heads, accumulators): (Vec<Head>, &[u8]) = postcard::take_from_bytes(bytes)?;
        let mut start: usize = 0;
        let mut windows = Vec::with_capacity(heads.len());
        for head in heads {
            let end = (start.checked_add(head.size_bytes))
                .filter(|end| *end <= accumulators.len())
                .context("a window's accumulator reaches behind the value")?;
            windows.push(Open {
                window: Window::new(head.start, head.start.saturating_add(head.length)),
                accumulator: Slot::Encoded(start..end),
                panes: head.panes,
                unfired: head.unfired,
                closed: head.closed,
                timer: head.start.wrapping_add(head.timer_after_start),
                early: head.early,
            });
            start = end;
        }
        if start != accumulators.len() {
            return Err(Error::new("the value goes on behind its last window"));
        }
        Ok(Table {
            windows,
            bytes: accumulators.to_vec(),
        })
    }

    fn is_nothing(table: &Table<A>) -> bool {
        table.windows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Postcard;

    type Encoding = TableCodec<Postcard>;

    fn table() -> Table<u64> {
        let mut table = Table::default();
        for (start, end, value) in [(0, 10, 7), (10, 20, 300), (5, u64::MAX, 0)] {
            let mut open = Open::new(Window::new(start, end));
            open.timer = end;
            open.accumulator = Slot::Decoded(value);
            table.windows.push(open);
        }
        table
    }

    fn decoded(bytes: &[u8]) -> Result<Table<u64>> {
        Encoding::decode(bytes)
    }

    #[test]
    fn windows_come_back_and_those_that_nobody_touched_keep_their_bytes() {
        let mut first = Vec::new();
        Encoding::encode(&table(), &mut first).expect("it has an encoding");
        let mut table = decoded(&first).expect("it decodes");
        let (open, bytes) = table.window(1);
        let value = open
            .accumulator(bytes, <Postcard as Codec<u64>>::decode)
            .expect("it decodes");
        assert_eq!(*value, 300);
        assert!(matches!(table.windows[0].accumulator, Slot::Encoded(_)));
        let mut second = Vec::new();
        Encoding::encode(&table, &mut second).expect("it has an encoding");
        assert_eq!(first, second);
        assert_eq!(table.find(Window::new(10, 20)), Ok(1));
        assert_eq!(table.find(Window::new(9, 20)), Err(1));
        assert!(table.needs_timer(u64::MAX) && !table.needs_timer(0));
    }

    #[test]
    fn a_table_without_windows_is_no_value() {
        let mut bytes = Vec::new();
        Encoding::encode(&Table::<u64>::default(), &mut bytes).expect("it has an encoding");
        assert!(bytes.is_empty());
        assert!(Encoding::is_nothing(&Table::<u64>::default()));
    }

    #[test]
    fn a_value_that_is_cut_or_too_long_is_refused() {
        let mut bytes = Vec::new();
        Encoding::encode(&table(), &mut bytes).expect("it has an encoding");
        for length in 0..bytes.len() {
            assert!(decoded(&bytes[..length]).is_err(), "{length} bytes");
        }
        bytes.push(0);
        assert!(decoded(&bytes).is_err());
    }

    #[test]
    fn overlapping_windows_are_those_with_a_moment_in_common() {
        let mut table = Table::<u64>::default();
        for (start, end) in [(0, 10), (20, 30), (40, 50)] {
            table.windows.push(Open::new(Window::new(start, end)));
        }
        for (start, end, expected) in [
            (10, 20, 1..1),
            (9, 20, 0..1),
            (10, 21, 1..2),
            (5, 45, 0..3),
            (50, 60, 3..3),
        ] {
            assert_eq!(table.overlapping(Window::new(start, end)), expected);
        }
    }
}
