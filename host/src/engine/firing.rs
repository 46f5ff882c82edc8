//! Which of some due timers may fire in one call.
//!
//! **Invariant:** timers fire as if each had a call of its own, in the order of trigger time, name of their
//! stream, key: what a handler sets joins at its place in that order.

use crate::types::batch::{TimeDomain, TimerColumns, TimerDeclaration, Timestamp};
use crate::types::column::Column;

/// How many of the first `count` due timers of event time, one for each of `keys`, may fire in a call that sets
/// `set`: those before the place of a timer that it sets and that is due in the same step, at `until`. At least
/// one of them. A timer at or before the (trigger time, stream) of the one that fires waits for the next step.
pub fn before_new_timers(
    due: &TimerColumns,
    keys: &Column,
    count: usize,
    set: &TimerColumns,
    until: Timestamp,
    declarations: &[TimerDeclaration],
) -> usize {
    let name = |stream: u16| declarations[usize::from(stream)].name.as_str();
    let place = |timer: usize| (due.trigger_times[timer], name(due.streams[timer]));
    let mut before = count;
    for row in 0..set.streams.len() {
        let is_event_time =
            declarations[usize::from(set.streams[row])].time == TimeDomain::EventTime;
        // Each key has one timer in the call, at the key's own place.
        let setter = set.keys[row] as usize;
        let new = (set.trigger_times[row], name(set.streams[row]));
        if !is_event_time || new.0 > until || new <= place(setter) {
            continue;
        }
        let new = (new.0, new.1, keys.get(setter));
        let (mut low, mut high) = (setter + 1, before.max(setter + 1));
        while low < high {
            let middle = low.midpoint(high);
            let (trigger_time, stream) = place(middle);
            match (trigger_time, stream, keys.get(middle)) < new {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        before = before.min(low);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declarations() -> Vec<TimerDeclaration> {
        // In the order of the declarations, which is not that of the names.
        [
            ("ring", TimeDomain::EventTime),
            ("chime", TimeDomain::EventTime),
            ("tick", TimeDomain::SystemTime),
        ]
        .map(|(name, time)| TimerDeclaration {
            name: name.to_owned(),
            time,
        })
        .to_vec()
    }

    /// Of `a` at 10, `b` at 20 and `c` at 30, all of stream `ring`, how many fire where this is set: the
    /// setter's place, the stream, the trigger time.
    fn fire(set: &[(u32, u16, Timestamp)]) -> usize {
        let due = TimerColumns {
            streams: vec![0; 3],
            keys: vec![0, 1, 2],
            trigger_times: vec![10, 20, 30],
            event_times: vec![0; 3],
        };
        let keys = [b"a", b"b", b"c"]
            .iter()
            .map(|key| key.as_slice())
            .collect();
        let columns = TimerColumns {
            keys: set.iter().map(|set| set.0).collect(),
            streams: set.iter().map(|set| set.1).collect(),
            trigger_times: set.iter().map(|set| set.2).collect(),
            event_times: vec![0; set.len()],
        };
        before_new_timers(&due, &keys, 3, &columns, 100, &declarations())
    }

    #[test]
    fn t2_a_call_ends_before_the_place_of_a_timer_that_it_sets() {
        assert_eq!(fire(&[]), 3);
        assert_eq!(fire(&[(0, 0, 15)]), 1);
        assert_eq!(fire(&[(0, 0, 25)]), 2);
        assert_eq!(fire(&[(0, 0, 20)]), 1, "a comes before b at one moment");
        assert_eq!(fire(&[(1, 0, 30)]), 2, "b comes before c at one moment");
        assert_eq!(fire(&[(0, 1, 30)]), 2, "chime comes before ring");
        assert_eq!(fire(&[(2, 0, 30), (0, 0, 25)]), 2);
        assert_eq!(fire(&[(0, 0, 25), (0, 0, 15)]), 1);
    }

    #[test]
    fn t2_what_waits_or_is_not_due_cuts_no_call() {
        assert_eq!(fire(&[(1, 0, 20)]), 3, "the same moment");
        assert_eq!(fire(&[(1, 1, 20)]), 3, "an earlier name at the same moment");
        assert_eq!(fire(&[(1, 0, 5)]), 3, "before the one that fires");
        assert_eq!(fire(&[(0, 0, 101)]), 3, "behind the watermark");
        assert_eq!(fire(&[(0, 0, 31)]), 3, "behind all that are due");
        assert_eq!(fire(&[(0, 2, 1)]), 3, "a delay by the clock");
        assert_eq!(fire(&[(2, 0, 40)]), 3);
    }
}
