//! The first of many rows, in memory: as many as a limit allows, the rest is in storage. Which rows are in
//! memory never changes a result.
//!
//! **Invariant:** a window has every row before its bound and none from there on; one without a bound has
//! all.

use std::collections::BTreeMap;

use crate::types::batch::{TimeDomain, Timestamp};
use crate::types::small_bytes::SmallBytes;

/// How much a window keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimit {
    /// Rows, at least 1.
    pub rows: usize,
    /// About how many bytes they take in memory. One row is kept whatever its size.
    pub bytes: usize,
}

impl Default for WindowLimit {
    /// 16,384 rows and 4 MiB: 16 batches, and a fraction of what a job may keep.
    fn default() -> WindowLimit {
        WindowLimit {
            rows: 16_384,
            bytes: 4 << 20,
        }
    }
}

/// What rows are ordered by.
pub trait WindowKey: Ord {
    /// About how many bytes it takes beyond its own size.
    fn allocated_bytes(&self) -> usize;
}

/// A timer's place in the order in which the timers of its clock fire. Streams count in the order of their
/// names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerAt {
    /// When it fires.
    pub trigger_time: Timestamp,
    /// Its stream.
    pub stream: u16,
    /// Its key.
    pub key: SmallBytes,
}

impl TimerAt {
    /// The place of the same timer when it fires at `trigger_time`.
    pub fn firing_at(&self, trigger_time: Timestamp) -> TimerAt {
        TimerAt {
            trigger_time,
            ..self.clone()
        }
    }

    /// The least place behind this one.
    pub fn next(&self) -> TimerAt {
        TimerAt {
            key: SmallBytes::new(&[&*self.key, &[0]].concat()),
            ..self.clone()
        }
    }
}

impl WindowKey for TimerAt {
    fn allocated_bytes(&self) -> usize {
        self.key.allocated_bytes()
    }
}

/// A timer by the moment at which it holds the output watermark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldAt {
    /// That moment.
    pub moment: Timestamp,
    /// The timer's clock.
    pub domain: TimeDomain,
    /// The timer.
    pub timer: TimerAt,
}

impl HoldAt {
    /// The least of all.
    pub fn least() -> HoldAt {
        HoldAt {
            moment: 0,
            domain: TimeDomain::EventTime,
            timer: TimerAt::default(),
        }
    }

    /// The least place behind this one.
    pub fn next(&self) -> HoldAt {
        HoldAt {
            timer: self.timer.next(),
            ..*self
        }
    }
}

impl WindowKey for HoldAt {
    fn allocated_bytes(&self) -> usize {
        self.timer.allocated_bytes()
    }
}

/// The first rows of all, in order.
#[derive(Debug)]
pub struct Window<K, V> {
    rows: BTreeMap<K, V>,
    bound: Option<K>,
    limit: WindowLimit,
    size_bytes: usize,
}

impl<K: WindowKey, V> Window<K, V> {
    /// A window that has no row yet: what is from `bound` on must be read, or there is none at all.
    pub fn new(limit: WindowLimit, bound: Option<K>) -> Window<K, V> {
        Window {
            rows: BTreeMap::new(),
            bound,
            limit,
            size_bytes: 0,
        }
    }

    /// About how many bytes its rows take in memory.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Where what is to be read begins; `None` when all rows are here.
    pub fn bound(&self) -> Option<&K> {
        self.bound.as_ref()
    }

    /// Whether a row with this key would be here.
    pub fn knows(&self, key: &K) -> bool {
        self.bound.as_ref().is_none_or(|bound| key < bound)
    }

    /// The row with this key, if it is here.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }

    /// The first row that is here.
    pub fn first(&self) -> Option<&K> {
        self.rows.first_key_value().map(|(key, _)| key)
    }

    /// The rows that are here, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    /// There is a row, new or with another value than before. Keeps it if it is before the bound.
    pub fn insert(&mut self, key: K, value: V) {
        if !self.knows(&key) {
            return;
        }
        let size = size_bytes::<K, V>(&key);
        if self.rows.insert(key, value).is_none() {
            self.size_bytes += size;
        }
        self.shrink();
    }

    /// There is no such row any more. Its value, if it was here.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.rows.remove(key)?;
        self.size_bytes -= size_bytes::<K, V>(key);
        Some(value)
    }

    /// Removes the first row that is here if it is before `end`.
    pub fn pop_before(&mut self, end: &K) -> Option<(K, V)> {
        let first = self.rows.first_entry().filter(|first| first.key() < end)?;
        let (key, value) = first.remove_entry();
        self.size_bytes -= size_bytes::<K, V>(&key);
        Some((key, value))
    }

    /// Takes in what was read from the bound on: all rows up to the new bound.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = (K, V)>, bound: Option<K>) {
        self.bound = bound;
        for (key, value) in rows {
            self.insert(key, value);
        }
    }

    fn shrink(&mut self) {
        while self.rows.len() > self.limit.rows
            || self.size_bytes > self.limit.bytes && self.rows.len() > 1
        {
            let Some((key, _)) = self.rows.pop_last() else {
                return;
            };
            self.size_bytes -= size_bytes::<K, V>(&key);
            self.bound = Some(key);
        }
    }
}

fn size_bytes<K: WindowKey, V>(key: &K) -> usize {
    size_of::<K>() + size_of::<V>() + key.allocated_bytes()
}

/// Which rows of a [`TimerWindow`] are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Those before the start.
    Before,
    /// Those from the start on.
    Behind,
}

/// The first timer of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// This one.
    At(&'a TimerAt),
    /// There is none.
    None,
    /// It must be read.
    Unread(Side),
}

/// The timers of one clock around the place from which they fire. Timers that are set for a moment that has
/// passed already stand before it, and must not push out of memory those that are to fire next.
#[derive(Debug)]
pub struct TimerWindow<V> {
    /// All that is before is not to fire for now.
    start: TimerAt,
    before: Window<TimerAt, V>,
    behind: Window<TimerAt, V>,
}

impl<V> TimerWindow<V> {
    /// Timers of which none is here yet, unless there is none at all.
    pub fn new(limit: WindowLimit, is_empty: bool) -> TimerWindow<V> {
        let bound = (!is_empty).then(TimerAt::default);
        TimerWindow {
            start: TimerAt::default(),
            before: Window::new(limit, None),
            behind: Window::new(limit, bound),
        }
    }

    /// About how many bytes its rows take in memory.
    pub fn size_bytes(&self) -> usize {
        self.before.size_bytes() + self.behind.size_bytes()
    }

    /// Timers fire from `start` on: the least place to fire from, or behind the one that fired last.
    pub fn start_at(&mut self, start: TimerAt) {
        if start < self.start {
            self.join();
        }
        if start == self.start {
            return;
        }
        if self.behind.bound().is_some_and(|bound| *bound < start) {
            // Nothing is known from its bound to the new start.
            let limit = self.behind.limit;
            let mut known = Window::new(limit, Some(start.clone()));
            std::mem::swap(&mut self.behind, &mut known);
            let bound = known.bound.take();
            if self.before.bound().is_none() {
                self.before.extend(known.rows, bound);
            }
        } else {
            while let Some((timer, value)) = self.behind.pop_before(&start) {
                // Dropped where something before it is not here.
                self.before.insert(timer, value);
            }
        }
        self.start = start;
    }

    /// Forgets the start: all timers are in one window. Each step begins so, and most steps leave few timers
    /// before the start: the side with more of them stays as it is.
    fn join(&mut self) {
        let limit = self.behind.limit;
        let before = std::mem::replace(&mut self.before, Window::new(limit, None));
        self.start = TimerAt::default();
        if before.bound().is_some() {
            // Nothing is known from there to the old start.
            self.behind = before;
            return;
        }
        let mut fewer = before;
        if fewer.rows.len() > self.behind.rows.len() {
            std::mem::swap(&mut fewer, &mut self.behind);
            self.behind.bound = fewer.bound.take();
        }
        for (timer, value) in fewer.rows {
            self.behind.insert(timer, value);
        }
    }

    /// Whether a timer of this place would be here.
    pub fn knows(&self, timer: &TimerAt) -> bool {
        self.side(timer).knows(timer)
    }

    /// The timer of this place, if it is here.
    pub fn get(&self, timer: &TimerAt) -> Option<&V> {
        self.side(timer).get(timer)
    }

    fn side(&self, timer: &TimerAt) -> &Window<TimerAt, V> {
        match *timer < self.start {
            true => &self.before,
            false => &self.behind,
        }
    }

    fn side_mut(&mut self, timer: &TimerAt) -> &mut Window<TimerAt, V> {
        match *timer < self.start {
            true => &mut self.before,
            false => &mut self.behind,
        }
    }

    /// There is a timer, new or with another value than before.
    pub fn insert(&mut self, timer: TimerAt, value: V) {
        self.side_mut(&timer).insert(timer, value);
    }

    /// There is no such timer any more. Its value, if it was here.
    pub fn remove(&mut self, timer: &TimerAt) -> Option<V> {
        self.side_mut(timer).remove(timer)
    }

    /// The first timer of all.
    pub fn first(&self) -> First<'_> {
        match (self.before.first(), self.before.bound()) {
            (Some(first), _) => return First::At(first),
            (None, Some(_)) => return First::Unread(Side::Before),
            (None, None) => {}
        }
        match (self.behind.first(), self.behind.bound()) {
            (Some(first), _) => First::At(first),
            (None, Some(_)) => First::Unread(Side::Behind),
            (None, None) => First::None,
        }
    }

    /// The timers that fire next, as far as they are here.
    pub fn firing(&self) -> impl Iterator<Item = (&TimerAt, &V)> {
        self.behind.rows()
    }

    /// Where the timers of a side that are not here begin, and where the side ends if it does.
    pub fn unread(&self, side: Side) -> Option<(&TimerAt, Option<&TimerAt>)> {
        match side {
            Side::Before => Some((self.before.bound()?, Some(&self.start))),
            Side::Behind => Some((self.behind.bound()?, None)),
        }
    }

    /// Takes in what was read of a side: all timers from where those not here began up to the new bound; to
    /// the end of the side where that is `None`.
    pub fn extend(
        &mut self,
        side: Side,
        timers: impl IntoIterator<Item = (TimerAt, V)>,
        bound: Option<TimerAt>,
    ) {
        match side {
            Side::Before => self.before.extend(timers, bound),
            Side::Behind => self.behind.extend(timers, bound),
        }
    }
}
