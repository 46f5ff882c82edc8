//! Reads on where the windows end: what storage shows, and the epochs that it may not show yet on top.

use std::collections::BTreeMap;

use super::{RowTimes, Timers};
use crate::engine::timer_window::{HoldAt, Side, TimerAt};
use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::TimerKey;
use crate::storage::{Storage, StorageError, timer_rows};
use crate::types::batch::TimeDomain;
use crate::types::small_bytes::SmallBytes;
use crate::types::timer::TimerTimes;

impl Timers {
    // --------------------------------------------------------------------------------- reading on

    /// As much as one read takes in: half of what a window may keep, so that timers which are set next to those
    /// read do not push them out at once.
    fn read_limit(&self) -> ScanLimit {
        ScanLimit {
            rows: (self.limit.rows / 2).max(1),
            bytes: self.limit.bytes / 2,
        }
    }

    /// Reads the next timers of a clock that are not in memory.
    pub(super) fn read_on(
        &mut self,
        domain: TimeDomain,
        side: Side,
        storage: &dyn Storage,
    ) -> Result<(), StorageError> {
        let Some((from, end)) = self.window(domain).unread(side) else {
            return Ok(());
        };
        let (from, end) = (from.clone(), end.cloned());
        let mut found = BTreeMap::new();
        let mut unknown = None;
        let (mut last, mut has_held) = (None, false);
        let key = self.key(domain, &from);
        let visit = |timer: TimerKey<'_>, times: TimerTimes| match self.rank(timer.stream) {
            None => unknown = Some(timer.stream.to_owned()),
            Some(stream) => {
                let at = TimerAt {
                    trigger_time: timer.trigger_time,
                    stream,
                    key: SmallBytes::new(timer.key),
                };
                last = Some(at.clone());
                match times.held_in_run == self.run {
                    true => has_held = true,
                    false => drop(found.insert(at, RowTimes::from(times))),
                }
            }
        };
        let limit = self.read_limit();
        let has_more =
            timer_rows::scan_timers(storage, self.partition, domain, Some(&key), limit, visit)?;
        self.check_known(unknown)?;
        self.has_held |= has_held;
        let bound = last.filter(|_| has_more).map(|last| last.next());
        let bound = bound.filter(|bound| end.as_ref().is_none_or(|end| bound < end));
        let end = bound.as_ref().or(end.as_ref());
        let is_read = |at: &TimerAt| *at >= from && end.is_none_or(|end| at < end);
        self.log.replay(|name, before, after| {
            if self.domain(name.stream) != domain {
                return;
            }
            if let Some(times) = before {
                found.remove(&name.firing_at(times.trigger_time));
            }
            if let Some(times) = after.filter(|times| times.held_in_run != self.run) {
                let at = name.firing_at(times.trigger_time);
                if is_read(&at) {
                    found.insert(at, times.into());
                }
            }
        });
        let found = found.into_iter().filter(|(at, _)| is_read(at));
        let found: Vec<_> = found.collect();
        self.window_mut(domain).extend(side, found, bound);
        Ok(())
    }

    /// Reads the next rows of holds that are not in memory.
    pub(super) fn read_holds_on(&mut self, storage: &dyn Storage) -> Result<(), StorageError> {
        let Some(from) = self.holds.bound().cloned() else {
            return Ok(());
        };
        let mut found = BTreeMap::new();
        let (mut unknown, mut last) = (None, None);
        let key = self.key(from.domain, &from.timer);
        let visit = |moment, timer: TimerKey<'_>| match self.rank(timer.stream) {
            None => unknown = Some(timer.stream.to_owned()),
            Some(stream) => {
                let hold = HoldAt {
                    moment,
                    domain: timer.domain,
                    timer: TimerAt {
                        trigger_time: timer.trigger_time,
                        stream,
                        key: SmallBytes::new(timer.key),
                    },
                };
                last = Some(hold.clone());
                found.insert(hold, ());
            }
        };
        let start = Some((from.moment, &key));
        let has_more =
            timer_rows::scan_timer_holds(storage, self.partition, start, self.read_limit(), visit)?;
        self.check_known(unknown)?;
        let bound = last.filter(|_| has_more).map(|last| last.next());
        let is_read =
            |hold: &HoldAt| *hold >= from && bound.as_ref().is_none_or(|bound| hold < bound);
        self.log.replay(|name, before, after| {
            let domain = self.domain(name.stream);
            let hold = |times: TimerTimes| {
                Some(HoldAt {
                    moment: times.hold(domain)?,
                    domain,
                    timer: name.firing_at(times.trigger_time),
                })
            };
            if let Some(hold) = before.and_then(hold) {
                found.remove(&hold);
            }
            if let Some(hold) = after.and_then(hold).filter(is_read) {
                found.insert(hold, ());
            }
        });
        self.holds.extend(found, bound);
        Ok(())
    }

    fn check_known(&self, unknown: Option<String>) -> Result<(), StorageError> {
        match unknown {
            None => Ok(()),
            Some(stream) => Err(StorageError::Undecodable {
                what: format!("a pending timer of partition {}", self.partition),
                finding: format!("the count of its stream {stream} is missing"),
            }),
        }
    }
}
