//! A column of timestamps that seldom change from one value to the next: a file's records all have
//! one write time, an epoch's messages one creation time.

use crate::types::batch::Timestamp;

/// Timestamps as runs of equal ones: run `i` covers the values up to `ends[i]` (exclusive), from
/// `ends[i - 1]` on, and `ends[-1]` is 0.
///
/// Runs made by this type's own methods are always well formed. Those that came from a store must
/// pass [`TimestampRuns::is_well_formed`] before any value is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimestampRuns {
    /// Where each run ends; rising.
    pub ends: Vec<u32>,
    /// The value of each run.
    pub values: Vec<Timestamp>,
}

impl TimestampRuns {
    /// One timestamp `count` times.
    ///
    /// # Panics
    ///
    /// As [`TimestampRuns::push_many`].
    pub fn repeated(value: Timestamp, count: usize) -> TimestampRuns {
        let mut runs = TimestampRuns::default();
        runs.push_many(value, count);
        runs
    }

    /// How many timestamps there are.
    pub fn len(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends a timestamp.
    pub fn push(&mut self, value: Timestamp) {
        self.push_many(value, 1);
    }

    /// Appends a timestamp `count` times.
    ///
    /// # Panics
    ///
    /// When there would be 2^32 timestamps; every limit on what goes into a column is far below.
    pub fn push_many(&mut self, value: Timestamp, count: usize) {
        if count == 0 {
            return;
        }
        let end = u32::try_from(self.len() + count).expect("columns are bounded far below 2^32");
        match (self.values.last(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if *last == value => *last_end = end,
            _ => {
                self.values.push(value);
                self.ends.push(end);
            }
        }
    }

    /// Timestamp `index`.
    ///
    /// # Panics
    ///
    /// When there is no such timestamp.
    pub fn get(&self, index: usize) -> Timestamp {
        self.values[self.run_of(index)]
    }

    /// The run that timestamp `index` belongs to.
    pub fn run_of(&self, index: usize) -> usize {
        self.ends.partition_point(|end| *end as usize <= index)
    }

    /// All timestamps in order.
    pub fn iter(&self) -> impl Iterator<Item = Timestamp> {
        let mut start = 0;
        self.ends
            .iter()
            .zip(&self.values)
            .flat_map(move |(end, value)| {
                let count = (*end - std::mem::replace(&mut start, *end)) as usize;
                std::iter::repeat_n(*value, count)
            })
    }

    /// Removes all timestamps and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.values.clear();
    }

    /// Whether every run has a value and at least one timestamp.
    pub fn is_well_formed(&self) -> bool {
        let rises = self.ends.windows(2).all(|pair| pair[0] < pair[1]);
        self.ends.len() == self.values.len() && rises && self.ends.first() != Some(&0)
    }
}

impl FromIterator<Timestamp> for TimestampRuns {
    fn from_iter<I: IntoIterator<Item = Timestamp>>(values: I) -> TimestampRuns {
        let mut runs = TimestampRuns::default();
        for value in values {
            runs.push(value);
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_share_a_run_and_values_come_back() {
        let values = [5, 5, 7, 5, 5, 5];
        let mut runs: TimestampRuns = values.into_iter().collect();
        assert_eq!(runs.ends, [2, 3, 6]);
        assert_eq!(runs.iter().collect::<Vec<_>>(), values);
        assert_eq!((runs.get(1), runs.get(2), runs.get(5)), (5, 7, 5));
        runs.push_many(9, 0);
        runs.push_many(5, 2);
        assert_eq!((runs.len(), runs.values.len()), (8, 3));
        runs.clear();
        assert!(runs.is_empty() && runs.is_well_formed());
    }

    #[test]
    fn runs_without_timestamps_or_values_are_malformed() {
        let runs = |ends: &[u32], values: &[Timestamp]| TimestampRuns {
            ends: ends.to_vec(),
            values: values.to_vec(),
        };
        assert!(runs(&[1, 3], &[4, 4]).is_well_formed());
        assert!(!runs(&[0, 3], &[4, 5]).is_well_formed());
        assert!(!runs(&[2, 2], &[4, 5]).is_well_formed());
        assert!(!runs(&[2], &[]).is_well_formed());
    }
}
