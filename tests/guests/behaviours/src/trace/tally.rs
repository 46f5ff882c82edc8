//! The transform: what it keeps of a key and what an item of that key leads to.

use std::collections::BTreeMap;

use super::alarms::{Alarms, TIMERS, TimerWish};
use super::items::{self, Emitted, Fired};
use super::{Parameters, emit, emitted, hash};
use crate::contract::{Batch, Effects, StateColumn, TimeDomain, Timers};
use crate::{empty_column, no_effects, push, value};

/// The states of the transform.
pub const STATES: [&str; 3] = ["tally", "last", "alarms"];
/// A tally that reaches this count is deleted.
pub const COUNT_MAX: u64 = 5;

/// What the transform keeps of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Items since the tally was deleted last.
    pub count: u64,
    /// A hash over their payloads, in order.
    pub fold: u64,
    /// The hash of the last one; 0 where there is none.
    pub last: u64,
    /// What is known of timers.
    alarms: Alarms,
}

/// What an item leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Messages: the first output answers every item, the second one some.
    pub messages: Vec<Emitted>,
    /// What becomes of a timer.
    pub timer: Option<TimerWish>,
}

impl Tally {
    /// Takes a message in.
    pub fn take(
        &mut self,
        parameters: &Parameters,
        payload: &[u8],
        event_time: u64,
        watermarks: &[u64],
    ) -> Taken {
        let name = &parameters.name;
        self.alarms.record = items::record_of(payload).to_vec();
        let watermark = watermarks.iter().copied().min().unwrap_or(0);
        let timer = match parameters.sets_timers {
            true => (self.alarms).on_message(name, payload, event_time, watermark),
            false => None,
        };
        Taken {
            messages: self.answer(name, payload, watermarks),
            timer,
        }
    }

    /// A timer fires.
    pub fn fire(&mut self, parameters: &Parameters, fired: &Fired, watermarks: &[u64]) -> Taken {
        let name = &parameters.name;
        self.alarms.fired += 1;
        let payload = items::timer_payload(&self.alarms.record, name, fired, self.alarms.fired);
        let timer = self.alarms.on_timer(name, fired, &payload);
        Taken {
            messages: self.answer(name, &payload, watermarks),
            timer,
        }
    }

    fn answer(&mut self, name: &str, payload: &[u8], watermarks: &[u64]) -> Vec<Emitted> {
        let hash = hash(name.as_bytes(), payload);
        self.count += 1;
        self.fold = self.fold.rotate_left(7) ^ hash;
        self.last = hash;
        let count = self.count;
        if count == COUNT_MAX {
            (self.count, self.fold, self.last) = (0, 0, 0);
        }
        let emit = |output: &u16| {
            let step = items::answer(name, count, watermarks, *output);
            emitted(*output, payload, &step)
        };
        let outputs: &[u16] = if hash.is_multiple_of(3) {
            &[0, 1]
        } else {
            &[0]
        };
        outputs.iter().map(emit).collect()
    }

    /// The tally from its stored states.
    pub fn from_states(states: [&[u8]; 3]) -> Tally {
        let number = |bytes: &[u8]| {
            bytes
                .first_chunk()
                .map_or(0, |chunk| u64::from_le_bytes(*chunk))
        };
        Tally {
            count: number(states[0]),
            fold: number(states[0].get(8..).unwrap_or_default()),
            last: number(states[1]),
            alarms: Alarms::read(states[2]),
        }
    }

    /// The tally as stored, each state empty where there is none.
    pub fn to_states(&self) -> [Vec<u8>; 3] {
        let tally = match (self.count, self.fold) {
            (0, 0) => Vec::new(),
            (count, fold) => [count.to_le_bytes(), fold.to_le_bytes()].concat(),
        };
        let last = match self.last {
            0 => Vec::new(),
            last => last.to_le_bytes().to_vec(),
        };
        [tally, last, self.alarms.write()]
    }
}

/// Of each key, stream and trigger time of a call what is to become of that timer: the last word wins.
type Wishes = BTreeMap<(u32, u16, u64), TimerWish>;

/// Takes every item of a batch into the tally of its key.
pub(super) fn process(parameters: &Parameters, batch: &Batch) -> Effects {
    let keys = batch.keys.ends.len();
    let mut stored = vec![[&[][..]; 3]; keys];
    for (state, column) in batch.states.iter().enumerate() {
        for (row, key) in column.keys.iter().enumerate() {
            stored[*key as usize][state] = value(&column.values, row);
        }
    }
    let mut tallies: Vec<Tally> = stored.into_iter().map(Tally::from_states).collect();
    let watermarks = &batch.watermarks[..parameters.inputs.min(batch.watermarks.len())];
    let mut touched = vec![false; keys];
    let mut effects = no_effects();
    let mut wishes = Wishes::new();
    let mut take = |item: usize, key: u32, taken: Taken| {
        for message in &taken.messages {
            emit(&mut effects, item, message);
        }
        if let Some(wish) = taken.timer {
            let named_at = match TIMERS[usize::from(wish.stream)].1 {
                TimeDomain::EventTime => wish.at,
                TimeDomain::SystemTime => 0,
            };
            wishes.insert((key, wish.stream, named_at), wish);
        }
        touched[key as usize] = true;
    };
    for (index, key) in batch.timers.keys.iter().enumerate() {
        let fired = Fired {
            stream: TIMERS[usize::from(batch.timers.streams[index])]
                .0
                .to_owned(),
            trigger_time: batch.timers.trigger_times[index],
            event_time: batch.timers.event_times[index],
            key: value(&batch.keys, *key as usize).to_vec(),
        };
        let tally = &mut tallies[*key as usize];
        take(index, *key, tally.fire(parameters, &fired, watermarks));
    }
    let timers = batch.timers.keys.len();
    for (index, key) in batch.messages.keys.iter().enumerate() {
        let payload = value(&batch.messages.payloads, index);
        let event_time = batch.messages.event_times[index];
        let tally = &mut tallies[*key as usize];
        let taken = tally.take(parameters, payload, event_time, watermarks);
        take(timers + index, *key, taken);
    }
    effects.states = states_of(&tallies, &touched);
    for ((key, ..), wish) in wishes {
        match wish.event_time {
            Some(event_time) => {
                push_timer(&mut effects.set_timers, key, wish);
                effects.set_timers.event_times.push(event_time);
            }
            None => push_timer(&mut effects.cancel_timers, key, wish),
        }
    }
    effects
}

fn push_timer(timers: &mut Timers, key: u32, wish: TimerWish) {
    timers.streams.push(wish.stream);
    timers.keys.push(key);
    timers.trigger_times.push(wish.at);
}

fn states_of(tallies: &[Tally], touched: &[bool]) -> Vec<StateColumn> {
    let mut columns: Vec<StateColumn> = (0..STATES.len())
        .map(|_| StateColumn {
            keys: Vec::new(),
            values: empty_column(),
        })
        .collect();
    for (key, tally) in tallies.iter().enumerate().filter(|(key, _)| touched[*key]) {
        for (column, value) in columns.iter_mut().zip(tally.to_states()) {
            column.keys.push(key as u32);
            push(&mut column.values, &value);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_on_from_its_states_and_is_deleted_at_its_bound() {
        let parameters = Parameters {
            name: "t".to_owned(),
            inputs: 1,
            gives_times: false,
            sets_timers: true,
        };
        let mut tally = Tally::default();
        for count in 1..COUNT_MAX {
            tally.take(&parameters, b"s0p0.1", 0, &[0]);
            assert_eq!(tally.count, count);
            let [counted, last, alarms] = tally.to_states();
            assert_eq!(Tally::from_states([&counted, &last, &alarms]), tally);
        }
        tally.take(&parameters, b"s0p0.1", 0, &[0]);
        assert_eq!(tally.to_states()[..2], [Vec::<u8>::new(), Vec::new()]);
    }
}
