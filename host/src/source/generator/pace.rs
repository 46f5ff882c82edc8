//! How fast a generator goes: record by record at a fixed rate, counted from the first look at the time.

use std::time::Duration;

/// Records come due by so much at a time, so that a quick reader gets a few at once and not one by one.
const TICK: Duration = Duration::from_millis(1);

/// A pause longer than this is not made up for: the rate goes on from where it is.
const LAG_MAX: Duration = Duration::from_secs(1);

const SECOND_NS: u128 = 1_000_000_000;

/// The pace of one of `partitions` that have `rate` records a second together.
#[derive(Debug)]
pub(super) struct Pace {
    rate: u64,
    partition: u32,
    partitions: u32,
    /// When a record was due from which on the others are counted, and its number.
    anchor: Option<(Duration, u64)>,
    now: Duration,
}

impl Pace {
    pub(super) fn new(rate: u64, partition: u32, partitions: u32) -> Pace {
        Pace {
            rate: rate.max(1),
            partition,
            partitions,
            anchor: None,
            now: Duration::ZERO,
        }
    }

    /// The process has run for so long, and record `next` is the next one.
    pub(super) fn tell(&mut self, now: Duration, next: u64) {
        self.now = now;
        match self.anchor {
            // Partitions begin one after the other, as their records' event times do.
            None => {
                let offset = u128::from(self.partition) * SECOND_NS / u128::from(self.rate);
                self.anchor = Some((now + nanoseconds(offset), next));
            }
            Some(_) if now > self.due_at(next) + LAG_MAX => self.anchor = Some((now, next)),
            Some(_) => {}
        }
    }

    /// How many records from `next` on are due.
    pub(super) fn due(&self, next: u64) -> u64 {
        let Some((since, first)) = self.anchor else {
            return 0;
        };
        let tick_ns = TICK.as_nanos();
        let now_ns = self.now.as_nanos() / tick_ns * tick_ns;
        let since_ns = since.as_nanos() / tick_ns * tick_ns;
        let Some(passed_ns) = now_ns.checked_sub(since_ns) else {
            return 0;
        };
        let each = SECOND_NS * u128::from(self.partitions);
        let due = passed_ns * u128::from(self.rate) / each + 1;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        first.saturating_add(due).saturating_sub(next)
    }

    /// How long it is until record `next` is due.
    pub(super) fn wait(&self, next: u64) -> Duration {
        self.due_at(next).saturating_sub(self.now).max(TICK)
    }

    fn due_at(&self, number: u64) -> Duration {
        let Some((since, first)) = self.anchor else {
            return Duration::ZERO;
        };
        let behind = u128::from(number.saturating_sub(first));
        let each = SECOND_NS * u128::from(self.partitions);
        since + nanoseconds(behind * each / u128::from(self.rate))
    }
}

fn nanoseconds(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Duration {
        SECOND + Duration::from_millis(ms)
    }

    /// Takes all that is due at each moment.
    fn taken(pace: &mut Pace, next: &mut u64, ms: u64) -> u64 {
        pace.tell(at(ms), *next);
        let due = pace.due(*next);
        *next += due;
        due
    }

    #[test]
    fn a_rate_is_kept_whenever_it_is_looked_at() {
        let mut pace = Pace::new(1_000, 0, 1);
        let mut next = 17;
        assert_eq!(taken(&mut pace, &mut next, 0), 1);
        assert_eq!(taken(&mut pace, &mut next, 0), 0);
        assert_eq!(pace.wait(next), Duration::from_millis(1));
        assert_eq!(taken(&mut pace, &mut next, 1), 1);
        assert_eq!(taken(&mut pace, &mut next, 500), 499);
        assert_eq!(taken(&mut pace, &mut next, 1_000), 500);
    }

    #[test]
    fn partitions_share_the_rate() {
        let mut sum = 0;
        for partition in 0..4 {
            let mut pace = Pace::new(10, partition, 4);
            let mut next = 0;
            sum += taken(&mut pace, &mut next, 0);
            for ms in (0..10_000).step_by(7) {
                sum += taken(&mut pace, &mut next, ms);
            }
        }
        assert_eq!(sum, 100);
    }

    #[test]
    fn a_pause_longer_than_a_second_is_not_made_up_for() {
        let mut pace = Pace::new(100, 0, 1);
        let mut next = 0;
        taken(&mut pace, &mut next, 0);
        assert_eq!(taken(&mut pace, &mut next, 900), 90);
        assert_eq!(taken(&mut pace, &mut next, 5_000), 1);
        assert_eq!(taken(&mut pace, &mut next, 5_100), 10);
    }

    #[test]
    fn many_records_a_millisecond_come_by_ticks() {
        let mut pace = Pace::new(1_000_000, 0, 1);
        let mut next = 0;
        pace.tell(SECOND, next);
        next += pace.due(next);
        pace.tell(SECOND + Duration::from_micros(999), next);
        assert_eq!(pace.due(next), 0);
        assert_eq!(taken(&mut pace, &mut next, 1), 1_000);
    }
}
