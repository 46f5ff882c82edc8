//! Which timers the transform sets and cancels: by lot, from what the item is.

use super::hash;
use super::items::Fired;
use crate::contract::TimeDomain;

/// The timer streams of the transform, in an order that is not that of their names.
pub const TIMERS: [(&str, TimeDomain); 3] = [
    ("ring", TimeDomain::EventTime),
    ("chime", TimeDomain::EventTime),
    ("tick", TimeDomain::SystemTime),
];
/// Indexes into [`TIMERS`].
const RING: u16 = 0;
const CHIME: u16 = 1;
const TICK: u16 = 2;
/// How far behind its message a timer may be that fires at the end of a run.
const FAR_MS: u64 = 50_000;

/// A timer of the item's key that is to be set or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerWish {
    /// Index of its stream.
    pub stream: u16,
    /// When it fires; by the system's clock after how long, 0 where it is cancelled.
    pub at: u64,
    /// The event time that it carries; `None`: it is cancelled.
    pub event_time: Option<u64>,
}

impl TimerWish {
    fn set(stream: u16, at: u64, event_time: u64) -> TimerWish {
        TimerWish {
            stream,
            at: at.max(1),
            event_time: Some(event_time),
        }
    }

    fn cancel(stream: u16, at: u64) -> TimerWish {
        TimerWish {
            stream,
            at,
            event_time: None,
        }
    }
}

/// What a transform keeps of the timers of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Alarms {
    /// When `ring` was set for last; 0 for never.
    ring: u64,
    /// How many timers have fired.
    pub(super) fired: u64,
    /// The last record that led to a message of the key.
    pub(super) record: Vec<u8>,
}

impl Alarms {
    /// From what is stored.
    pub(super) fn read(stored: &[u8]) -> Alarms {
        let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Alarms {
            ring: number(stored.first_chunk()),
            fired: number(stored.get(8..).and_then(<[u8]>::first_chunk)),
            record: stored.get(16..).unwrap_or_default().to_vec(),
        }
    }

    /// As stored; empty for a key without message.
    pub(super) fn write(&self) -> Vec<u8> {
        match self.record.is_empty() {
            true => Vec::new(),
            false => [
                &self.ring.to_le_bytes(),
                &self.fired.to_le_bytes(),
                &self.record[..],
            ]
            .concat(),
        }
    }

    /// What a message does to timers.
    pub(super) fn on_message(
        &mut self,
        name: &str,
        payload: &[u8],
        event_time: u64,
        watermark: u64,
    ) -> Option<TimerWish> {
        let lot = hash(format!("timers of {name}").as_bytes(), payload);
        let base = match (event_time, watermark) {
            (0, 0 | u64::MAX) => 1_000,
            (0, watermark) => watermark,
            (event_time, _) => event_time,
        };
        let at = base + (lot >> 8) % 400;
        // Where messages have no event times, timers have none either.
        let carried = match (event_time, (lot >> 24) % 3) {
            (0, _) | (_, 0) => 0,
            (event_time, 1) => event_time,
            _ => at + 10,
        };
        Some(match lot % 16 {
            0 | 1 => self.set_ring(at, carried),
            2 | 3 => TimerWish::set(CHIME, at, carried),
            4 => TimerWish::cancel(RING, self.ring()?),
            5 => {
                let at = self.ring()?;
                self.set_ring(at, event_time)
            }
            6 | 7 => TimerWish::set(TICK, 1 + (lot >> 8) % 30, carried),
            8 => TimerWish::cancel(TICK, 0),
            9 => self.set_ring(base + FAR_MS, carried),
            10 => self.set_ring(base.saturating_sub((lot >> 8) % 100), carried),
            _ => return None,
        })
    }

    /// What a timer that fires does to others.
    pub(super) fn on_timer(
        &mut self,
        name: &str,
        fired: &Fired,
        payload: &[u8],
    ) -> Option<TimerWish> {
        let lot = hash(format!("timers behind {name}").as_bytes(), payload);
        let at = match fired.stream == TIMERS[usize::from(TICK)].0 {
            true => 1_000,
            false => fired.trigger_time,
        };
        Some(match lot % 16 {
            0 | 1 => self.set_ring(at, 0),
            2 | 3 => self.set_ring(at + 1 + (lot >> 8) % 60, fired.event_time),
            4 => TimerWish::set(CHIME, at, 0),
            5 => self.set_ring(at.saturating_sub((lot >> 8) % 60), 0),
            6 => TimerWish::cancel(RING, self.ring()?),
            7 => TimerWish::set(TICK, 1 + (lot >> 8) % 9, 0),
            _ => return None,
        })
    }

    fn set_ring(&mut self, at: u64, event_time: u64) -> TimerWish {
        self.ring = at.max(1);
        TimerWish::set(RING, at, event_time)
    }

    fn ring(&self) -> Option<u64> {
        Some(self.ring).filter(|ring| *ring > 0)
    }
}
