//! The one source of chance in a run: a SplitMix64 generator. The same seed makes the same run, on
//! every machine, for as long as the simulation's own code stays the same.

use std::ops::RangeInclusive;

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The numbers of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A generator of its own, so that what one part of the world draws moves no other part.
    pub(crate) fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    /// A number in the range.
    pub(crate) fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let span = (range.end() - range.start()) as u64 + 1;
        range.start() + (self.next() % span) as usize
    }

    /// An index into something of this length, which is not empty.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.within(0..=length - 1)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Brings the items into some order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
