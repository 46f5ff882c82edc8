//! How many items the next batch of a computation should have, judged by its calls so far. It is a
//! suggestion that saves work: a batch that is too large passes in parts, with the same results.

/// A batch should use at most this share of its fuel, so that one that happens to be harder passes
/// at once.
const FUEL_SHARE: u64 = 4;

/// A bound that was reached grows by this share when its batch used less than half of what it
/// should.
const GROWTH_SHARE: usize = 8;

/// The bound.
#[derive(Debug)]
pub(super) struct BatchSize {
    rows: usize,
}

impl BatchSize {
    /// No bound until a call says otherwise.
    pub(super) fn unbounded() -> BatchSize {
        BatchSize { rows: usize::MAX }
    }

    /// Items that the next batch should have at most, at least 1.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Learns from a batch that passed, in this many parts and with this much fuel in all.
    pub(super) fn learn(&mut self, item_count: usize, parts: usize, fuel: u64, fuel_limit: u64) {
        let fuel_wanted = fuel_limit / FUEL_SHARE;
        if fuel > fuel_wanted {
            let rows = item_count as u128 * u128::from(fuel_wanted) / u128::from(fuel);
            self.rows = rows as usize;
        } else if item_count >= self.rows && fuel <= fuel_wanted / 2 {
            self.rows = self.rows.saturating_add(self.rows / GROWTH_SHARE + 1);
        }
        if parts > 1 {
            self.rows = self.rows.min(item_count / parts);
        }
        self.rows = self.rows.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 400_000;

    /// Runs batches as large as suggested, at most `most` items, in a guest that uses this fuel
    /// for each call and each item. Returns the last size.
    fn settle(most: usize, of_call: u64, of_item: u64) -> usize {
        let mut size = BatchSize::unbounded();
        for _ in 0..100 {
            let items = size.rows().min(most);
            size.learn(items, 1, of_call + of_item * items as u64, LIMIT);
        }
        size.rows().min(most)
    }

    #[test]
    fn batches_settle_between_an_eighth_and_a_quarter_of_the_fuel() {
        assert!((45..=100).contains(&settle(1_000, 0, 1_000)));
        assert!((40..=90).contains(&settle(1_000, 10_000, 1_000)));
    }

    #[test]
    fn cheap_items_are_not_bounded() {
        assert_eq!(settle(1_000, 10_000, 10), 1_000);
    }

    #[test]
    fn a_call_that_costs_too_much_by_itself_leaves_one_item() {
        assert_eq!(settle(1_000, 300_000, 1_000), 1);
    }

    #[test]
    fn a_bound_grows_again_when_items_get_cheap() {
        let mut size = BatchSize::unbounded();
        size.learn(1_000, 1, LIMIT, LIMIT);
        assert_eq!(size.rows(), 250);
        size.learn(250, 1, 1_000, LIMIT);
        assert_eq!(size.rows(), 282);
        size.learn(100, 1, 1_000, LIMIT);
        assert_eq!(
            size.rows(),
            282,
            "only a batch that reached the bound says so"
        );
    }

    #[test]
    fn a_batch_that_passed_in_parts_was_too_large() {
        let mut size = BatchSize::unbounded();
        size.learn(1_000, 10, 1_000, LIMIT);
        assert_eq!(size.rows(), 100);
        size.learn(1, 1, u64::MAX, LIMIT);
        assert_eq!(size.rows(), 1);
    }
}
