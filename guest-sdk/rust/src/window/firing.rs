//! One message or one timer and the windows of its key: what is opened, merged, fired, freed.

use std::ops::Range;

use super::aggregate::Aggregate;
use super::interval::Window;
use super::kind::MergeFunction;
use super::pane::{Pane, Timing};
use super::state::Windows;
use super::table::{Open, Table};
use super::windowing::{Placement, Windowing};
use crate::effects::Effects;
use crate::error::{Error, Result};
use crate::timestamp::Timestamp;

/// The windows of a key while an item of it is handled.
pub(super) struct Firing<'f, 'a, G: Aggregate> {
    windowing: &'f Windowing<G>,
    windows: &'f mut Windows<G::Accumulator>,
    effects: &'f mut Effects<'a, G::Outputs, G::Timers>,
    /// The least watermark of the inputs, in milliseconds: that of the last step.
    watermark: u64,
}

impl<'f, 'a, G: Aggregate> Firing<'f, 'a, G> {
    pub(super) fn new(
        windowing: &'f Windowing<G>,
        windows: &'f mut Windows<G::Accumulator>,
        effects: &'f mut Effects<'a, G::Outputs, G::Timers>,
        watermark: u64,
    ) -> Firing<'f, 'a, G> {
        Firing {
            windowing,
            windows,
            effects,
            watermark,
        }
    }

    /// Adds a value to a window that merges with no other.
    pub(super) fn add(&mut self, window: Window, value: &G::Value) -> Result<Placement> {
        if self.windowing.freed_at(window) <= self.watermark {
            return Ok(Placement::TooLate);
        }
        let index = match self.windows.value.get_or_default()?.find(window) {
            Ok(index) => index,
            Err(index) => self.open(index, window)?,
        };
        self.gather(index, value)?;
        Ok(Placement::Placed)
    }

    /// Adds a value to the window that becomes of its own and all that overlap it.
    pub(super) fn add_merging(
        &mut self,
        own: Window,
        merge: MergeFunction<G>,
        value: &G::Value,
    ) -> Result<Placement> {
        let too_late = self.windowing.freed_at(own) <= self.watermark;
        let overlapping = match self.windows.value.get()? {
            Some(table) => table.overlapping(own),
            None => 0..0,
        };
        let index = overlapping.start;
        match (overlapping.is_empty(), too_late) {
            (true, true) => return Ok(Placement::TooLate),
            (true, false) => drop(self.open(index, own)?),
            (false, _) => self.widen(overlapping, own, merge)?,
        }
        self.gather(index, value)?;
        Ok(Placement::Placed)
    }

    /// Opens a window at its place in the table, which is handed back.
    fn open(&mut self, index: usize, window: Window) -> Result<usize> {
        let table = self.windows.value.get_or_default()?;
        self.windowing.check_room(table)?;
        let mut open = Open::new(window);
        open.closed = window.end().as_ms() <= self.watermark;
        open.timer = self.windowing.due_at(&open);
        set_timer(self.effects, self.windowing.timer, open.timer)?;
        table.windows.insert(index, open);
        Ok(index)
    }

    /// Makes one window of several neighbours and `own`, which overlaps them all. It has the place of the
    /// first one.
    fn widen(
        &mut self,
        neighbours: Range<usize>,
        own: Window,
        merge: MergeFunction<G>,
    ) -> Result<()> {
        let (decode, aggregate) = (self.windows.decode, &self.windowing.aggregate);
        let table = self.windows.value.get_or_default()?;
        let absorbed = table.take(neighbours.start + 1..neighbours.end);
        let (open, bytes) = table.window(neighbours.start);
        let mut dropped = Vec::new();
        for later in absorbed {
            dropped.extend(open.timers().chain(later.timers()));
            open.absorb(&later);
            let later = later.into_accumulator(bytes, decode)?;
            merge(aggregate, open.accumulator(bytes, decode)?, later)?;
        }
        open.window = open.window.hull(own);
        // A session that was over goes on if the message carries its end ahead of the watermark.
        open.closed = open.window.end().as_ms() <= self.watermark;
        let due = self.windowing.due_at(open);
        // A timer that is too early is moved on when it fires.
        if due < open.timer {
            dropped.push(open.timer);
            open.timer = due;
            set_timer(self.effects, self.windowing.timer, due)?;
        }
        for trigger in dropped {
            if !table.needs_timer(trigger) {
                let timer = self.effects.timer_of(self.windowing.timer);
                timer.cancel_at(Timestamp(trigger))?;
            }
        }
        Ok(())
    }

    /// Adds a value to a window of the table and fires what that makes fire.
    fn gather(&mut self, index: usize, value: &G::Value) -> Result<()> {
        let table = self.windows.value.get_or_default()?;
        let (open, bytes) = table.window(index);
        let accumulator = open.accumulator(bytes, self.windows.decode)?;
        self.windowing.aggregate.add(accumulator, value)?;
        open.unfired = open.unfired.saturating_add(1);
        if open.closed {
            return self.fire(index, Timing::Late);
        }
        if (self.windowing.early_after).is_some_and(|count| open.unfired >= count) {
            return self.fire(index, Timing::Early);
        }
        if let (Some(period), None) = (self.windowing.early_every_ms, open.early) {
            let next = (self.watermark / period + 1).saturating_mul(period);
            if next < open.window.end().as_ms() {
                open.early = Some(next);
                set_timer(self.effects, self.windowing.timer, next)?;
            }
        }
        Ok(())
    }

    /// Does what is due in the windows that have a timer with this trigger.
    pub(super) fn timer(&mut self, trigger: u64) -> Result<()> {
        let mut index = 0;
        while let Some(table) = self.windows.value.get_mut()? {
            let Some(open) = table.windows.get_mut(index) else {
                break;
            };
            let is_early = open.early == Some(trigger);
            if is_early {
                open.early = None;
                // If the window is over by now, its pane on time comes in this same step.
                let goes_on = open.window.end().as_ms() > self.watermark;
                if goes_on && !open.closed && open.unfired > 0 {
                    self.fire(index, Timing::Early)?;
                }
            }
            if self.is_due(index, trigger)? && self.close(index, trigger)? {
                continue;
            }
            index += 1;
        }
        Ok(())
    }

    fn is_due(&mut self, index: usize, trigger: u64) -> Result<bool> {
        let table = self.windows.value.get()?;
        Ok(table.is_some_and(|table| table.windows[index].timer == trigger))
    }

    /// Fires a window whose timer is due, or moves the timer on; says whether the window was freed.
    fn close(&mut self, index: usize, trigger: u64) -> Result<bool> {
        let table = self.windows.value.get_or_default()?;
        let open = &mut table.windows[index];
        let due = self.windowing.due_at(open);
        // At the end of time a timer would wait for the next run, so what is to come comes now.
        if due > trigger && self.watermark < u64::MAX {
            open.timer = due;
            set_timer(self.effects, self.windowing.timer, due)?;
            return Ok(false);
        }
        let freed_at = self.windowing.freed_at(open.window);
        if !open.closed {
            open.closed = true;
            self.fire(index, Timing::OnTime)?;
        }
        let table = self.windows.value.get_or_default()?;
        if freed_at <= self.watermark {
            table.take(index..index + 1);
            return Ok(true);
        }
        table.windows[index].timer = freed_at;
        set_timer(self.effects, self.windowing.timer, freed_at)?;
        Ok(false)
    }

    /// Emits the next pane of a window.
    fn fire(&mut self, index: usize, timing: Timing) -> Result<()> {
        let decode = self.windows.decode;
        let table = self.windows.value.get_or_default()?;
        let (open, bytes) = table.window(index);
        let number = open.panes;
        open.panes = open.panes.saturating_add(1);
        open.unfired = 0;
        let window = open.window;
        let pane = Pane {
            key: self.effects.key(),
            window,
            timing,
            number,
            accumulator: open.accumulator(bytes, decode)?,
        };
        self.effects.date_outputs(Some(window.last()));
        let emitted = self.windowing.aggregate.emit(&pane, self.effects);
        self.effects.date_outputs(None);
        emitted?;
        if self.windowing.discarding {
            open.reset();
        }
        Ok(())
    }
}

impl<G: Aggregate> Windowing<G> {
    /// When a window has something to do beside early panes: at its end, then when its state is freed.
    fn due_at(&self, open: &Open<G::Accumulator>) -> u64 {
        match open.closed {
            false => open.window.end().as_ms(),
            true => self.freed_at(open.window),
        }
    }

    /// Refuses another window for a key that has as many as it may.
    fn check_room(&self, table: &Table<G::Accumulator>) -> Result<()> {
        if table.windows.len() < self.max_open_windows {
            return Ok(());
        }
        Err(Error::new(format!(
            "the key has {} open windows, as many as it may: raise max_open_windows, choose larger windows or \
             less lateness, or look for event times that are far ahead",
            table.windows.len()
        )))
    }
}

/// Sets the timer of a moment. It carries the last moment before, so that what a window emits at its end
/// is not late.
fn set_timer<O, T: crate::timer::Timers>(
    effects: &mut Effects<'_, O, T>,
    stream: u16,
    trigger: u64,
) -> Result<()> {
    effects
        .timer_of(stream)
        .event_time(Timestamp(trigger.saturating_sub(1)))
        .set_at(Timestamp(trigger))
}
