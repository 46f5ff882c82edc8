//! When a state with a time to live is absent: once `touched + ttl <= watermark`.
//!
//! *Touched* is the greatest, over all items that its key has had, of the item's event time and the
//! partition's latest watermark at the item. *Watermark* is the latest one of the partition, as of the
//! last watermark step; it never falls, not even from run to run. While there is none nothing is absent,
//! and what was touched before the first one, at no event time, counts from there.
//!
//! **Invariant:** all of it follows from the sequence of items and steps, not from how that was cut into
//! batches and epochs, nor from which rows are still stored.

use crate::types::batch::Timestamp;
use crate::types::epoch::{EpochTime, StateAge, StateAges, is_expired};

/// The age of the states of one partition.
#[derive(Debug, Clone, Default)]
pub(super) struct StateAging {
    /// One for each declared state; `None` for one that lasts for ever.
    states: Vec<Option<Aging>>,
    first_watermark: Timestamp,
    latest_watermark: Timestamp,
}

#[derive(Debug, Clone, Copy, Default)]
struct Aging {
    ttl: Timestamp,
    since: Timestamp,
    expired_up_to: Timestamp,
}

impl StateAging {
    /// For each declared state its time to live, at least 1 ms; those behind the last one have none.
    pub(super) fn new(states: usize, ttls: &[Option<Timestamp>]) -> StateAging {
        let ttl_of = |state| ttls.get(state).copied().flatten();
        let aging = |ttl| Aging {
            // With none at all a batch's end would decide what the item behind it finds.
            ttl: Timestamp::max(ttl, 1),
            ..Aging::default()
        };
        StateAging {
            states: (0..states).map(|state| ttl_of(state).map(aging)).collect(),
            ..StateAging::default()
        }
    }

    /// Goes on from where the partition stands. A state that is given its time to live only now is as
    /// young as can be.
    pub(super) fn resume(&mut self, names: &[String], time: &EpochTime) {
        self.first_watermark = time.ages.first_watermark;
        self.latest_watermark = time.latest_watermark;
        for (name, aging) in names.iter().zip(&mut self.states) {
            let Some(aging) = aging else {
                continue;
            };
            match time.ages.states.iter().find(|age| age.state == *name) {
                Some(age) => {
                    aging.since = age.since;
                    aging.expired_up_to = age.expired_up_to;
                }
                None => aging.since = time.latest_watermark,
            }
        }
        self.advance(time.latest_watermark);
    }

    /// The partition's latest watermark is this one from here on.
    pub(super) fn advance(&mut self, latest_watermark: Timestamp) {
        if self.latest_watermark == 0 {
            self.first_watermark = latest_watermark;
        }
        self.latest_watermark = self.latest_watermark.max(latest_watermark);
        for aging in self.states.iter_mut().flatten() {
            let expired = self.latest_watermark.saturating_sub(aging.ttl);
            // Rises only: a longer time to live brings nothing back.
            aging.expired_up_to = aging.expired_up_to.max(expired);
        }
    }

    /// What a successor goes on from.
    pub(super) fn ages(&self, names: &[String]) -> StateAges {
        let ages = names.iter().zip(&self.states).filter_map(|(name, aging)| {
            let aging = (*aging)?;
            Some(StateAge {
                state: name.clone(),
                since: aging.since,
                expired_up_to: aging.expired_up_to,
            })
        });
        let states: Vec<StateAge> = ages.collect();
        StateAges {
            first_watermark: match states.is_empty() {
                true => 0,
                false => self.first_watermark,
            },
            states,
        }
    }

    /// Whether any state has a time to live.
    pub(super) fn is_any(&self) -> bool {
        self.states.iter().any(Option::is_some)
    }

    /// The first state from `state` on that has a time to live.
    pub(super) fn next_from(&self, state: usize) -> Option<usize> {
        (state..self.states.len()).find(|state| self.states[*state].is_some())
    }

    /// Whether the state has a time to live.
    pub(super) fn ages_state(&self, state: usize) -> bool {
        self.states[state].is_some()
    }

    /// The least time to live.
    pub(super) fn least_ttl(&self) -> Option<Timestamp> {
        self.states.iter().flatten().map(|aging| aging.ttl).min()
    }

    /// The latest watermark.
    pub(super) fn latest_watermark(&self) -> Timestamp {
        self.latest_watermark
    }

    /// Whether a row of the state is absent that was last touched then; 0 where that is not known.
    pub(super) fn is_expired(&self, state: usize, touched: Timestamp) -> bool {
        let Some(aging) = &self.states[state] else {
            return false;
        };
        if self.latest_watermark == 0 {
            return false;
        }
        is_expired(
            touched,
            self.first_watermark,
            aging.since,
            aging.expired_up_to,
        )
    }

    /// Whether it has to be remembered that a key was touched then: of a key without value no longer than
    /// until the watermark passes that, as a later touch counts at least as much as the watermark.
    pub(super) fn outlasts_the_watermark(&self, touched: Timestamp) -> bool {
        touched > self.latest_watermark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["seen".to_owned(), "kept".to_owned()]
    }

    fn aging(ttl: Timestamp, time: &EpochTime) -> StateAging {
        let mut aging = StateAging::new(2, &[Some(ttl)]);
        aging.resume(&names(), time);
        aging
    }

    /// What a successor finds.
    fn left_behind(aging: &StateAging) -> EpochTime {
        EpochTime {
            latest_watermark: aging.latest_watermark(),
            ages: aging.ages(&names()),
            ..EpochTime::default()
        }
    }

    #[test]
    fn a_state_is_absent_once_the_watermark_is_a_ttl_behind_the_last_touch() {
        let mut aging = aging(10, &EpochTime::default());
        aging.advance(100);
        aging.advance(109);
        assert!(!aging.is_expired(0, 100));
        assert!(aging.is_expired(0, 99));
        aging.advance(110);
        assert!(aging.is_expired(0, 100));
        assert!(!aging.is_expired(1, 1), "the other one has no ttl");
    }

    #[test]
    fn before_the_first_watermark_nothing_grows_old_and_times_unknown_count_from_it() {
        let mut aging = aging(10, &EpochTime::default());
        assert!(!aging.is_expired(0, 0) && !aging.is_expired(0, 5));
        aging.advance(100);
        assert!(!aging.is_expired(0, 0));
        assert!(aging.is_expired(0, 5), "it happened long before");
        let mut aging = super::tests::aging(10, &left_behind(&aging));
        aging.advance(109);
        assert!(!aging.is_expired(0, 0));
        aging.advance(110);
        assert!(aging.is_expired(0, 0));
    }

    #[test]
    fn a_state_that_gets_its_ttl_later_is_young_then() {
        let time = EpochTime {
            latest_watermark: 1_000,
            ..EpochTime::default()
        };
        let mut aging = aging(10, &time);
        assert!(!aging.is_expired(0, 0) && !aging.is_expired(0, 3));
        let mut successor = super::tests::aging(10, &left_behind(&aging));
        for aging in [&mut aging, &mut successor] {
            aging.advance(1_010);
            assert!(aging.is_expired(0, 0) && aging.is_expired(0, 3));
            assert!(!aging.is_expired(0, 1_001));
        }
    }

    #[test]
    fn a_longer_ttl_brings_nothing_back() {
        let mut aging = aging(10, &EpochTime::default());
        aging.advance(100);
        assert!(aging.is_expired(0, 90) && !aging.is_expired(0, 91));
        let mut longer = super::tests::aging(50, &left_behind(&aging));
        assert!(longer.is_expired(0, 90) && !longer.is_expired(0, 91));
        longer.advance(141);
        assert!(longer.is_expired(0, 91) && !longer.is_expired(0, 92));
    }
}
