//! A step of time on a bench: due timers fire in their order, however many come in one call.

use super::batch::Item;
use super::bench::TestBench;
use super::failure::TestFailure;
use super::timers::{StandingTimer, TimerBook, TimerPlace};
use crate::bindings::{Effects, Failure, TimeDomain};

impl<C> TestBench<C> {
    /// Fires the timers of a clock that are due by `until`, and those that their handlers set for a place
    /// behind them.
    pub(super) fn fire(&mut self, domain: TimeDomain, until: u64) -> Result<(), TestFailure> {
        let mut limit = self.batch_size;
        let mut fired_up_to = None;
        let mut unexplained = None;
        loop {
            let due = self.timers.due(domain, until, fired_up_to.as_ref(), limit);
            if due.is_empty() {
                break;
            }
            let (places, timers): (Vec<TimerPlace>, Vec<StandingTimer>) = due.into_iter().unzip();
            let items: Vec<Item> = timers.iter().map(Item::from).collect();
            match self.fire_together(domain, until, &places, &items) {
                Ok(count) => fired_up_to = places.into_iter().nth(count - 1),
                // The verdict is on one timer alone, so from here on they come one by one.
                Err(failure) if items.len() > 1 => {
                    limit = 1;
                    unexplained = Some(failure.reason);
                }
                Err(failure) => {
                    self.timers.remove(domain, &places[0]);
                    return Err(TestFailure {
                        item: Some(self.name_of(&items[0])),
                        reason: failure.reason,
                    });
                }
            }
        }
        match unexplained {
            Some(reason) => {
                panic!("the timers fail as a whole, but none of them alone: {reason}")
            }
            None => Ok(()),
        }
    }

    /// Fires as many of these timers as can come in one call and says how many.
    fn fire_together(
        &mut self,
        domain: TimeDomain,
        until: u64,
        places: &[TimerPlace],
        items: &[Item],
    ) -> Result<usize, Failure> {
        let mut count = items.len();
        loop {
            let items = &items[..count];
            let keys = Self::keys_of(items);
            let effects = self.ask(&keys, items)?;
            let cut = self.first_overtaken(until, &places[..count], &keys, &effects);
            if cut < count {
                count = cut;
                continue;
            }
            for place in &places[..count] {
                self.timers.remove(domain, place);
            }
            self.apply(&keys, items, &effects);
            return Ok(count);
        }
    }

    /// The index of the first timer that has to wait for one that an earlier one of the call has set.
    fn first_overtaken(
        &self,
        until: u64,
        places: &[TimerPlace],
        keys: &[&[u8]],
        effects: &Effects,
    ) -> usize {
        if self.is_end_of_run() {
            return places.len();
        }
        TimerBook::places_set(&self.description.timers, keys, effects)
            .filter(|set| set.trigger_time <= until)
            .filter_map(|set| {
                let setter = places.iter().position(|place| place.key == set.key)?;
                let next = places.partition_point(|place| *place < set);
                (next > setter).then_some(next)
            })
            .min()
            .unwrap_or(places.len())
    }
}
