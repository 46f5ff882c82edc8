//! When a state with a time to live is too old, for the model: by what a partition's record said of time
//! before an epoch, and by the watermarks that its items have seen since.

use tidelock::types::batch::Timestamp;
use tidelock::types::epoch::EpochTime;

/// What the age of a partition's states is judged by at some item.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ages {
    /// The latest watermark.
    pub(crate) latest: Timestamp,
    /// The first watermark that there ever was.
    pub(crate) first: Timestamp,
    /// Of each state with a time to live that and what was known of it before.
    pub(crate) states: [Option<StateAge>; 2],
}

/// What is known of a state with a time to live.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StateAge {
    ttl: Timestamp,
    since: Timestamp,
    expired_up_to: Timestamp,
}

impl Ages {
    /// As a record leaves them; `names` and `ttls` are those of the states.
    pub(crate) fn behind(time: &EpochTime, names: [&str; 2], ttls: [Option<Timestamp>; 2]) -> Ages {
        let age = |(name, ttl): (&str, Option<Timestamp>)| {
            let known = time.ages.states.iter().find(|age| age.state == name);
            Some(StateAge {
                ttl: ttl?,
                since: known.map_or(time.latest_watermark, |age| age.since),
                expired_up_to: known.map_or(0, |age| age.expired_up_to),
            })
        };
        Ages {
            latest: time.latest_watermark,
            first: time.ages.first_watermark,
            states: [age((names[0], ttls[0])), age((names[1], ttls[1]))],
        }
    }

    /// Whether the value of a state is gone that was touched last at `touched`, 0 for never known.
    pub(crate) fn is_expired(&self, state: usize, touched: Timestamp) -> bool {
        let Some(age) = self.states[state].filter(|_| self.latest > 0) else {
            return false;
        };
        let counted = match touched {
            0 => self.first,
            touched => touched,
        };
        let expired_up_to = self.latest.saturating_sub(age.ttl).max(age.expired_up_to);
        counted.max(age.since) <= expired_up_to
    }
}
