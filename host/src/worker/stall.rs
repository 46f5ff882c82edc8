//! Why a watermark stands still, for those who wait for what follows from it.

use std::fmt;

use crate::worker::source_times::IdleStall;

/// What keeps a job's watermark where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stall {
    /// More partitions of a source are without records than may be left out.
    Idle {
        /// The source.
        source: String,
        /// How many there are, and how many may be left out.
        partitions: IdleStall,
    },
    /// A partition of a source waits for its turn, and may bring anything.
    NotBegun {
        /// What it is: "tuesday.csv of source departures".
        partition: String,
    },
    /// A partition is a drift bound ahead of one that has no records, and reads no further.
    Drift {
        /// The source.
        source: String,
        /// The index of the partition that it waits for.
        slowest: usize,
    },
}

impl fmt::Display for Stall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stall::Idle { source, partitions } => {
                let IdleStall {
                    quiet,
                    partitions,
                    allowed,
                } = partitions;
                write!(
                    formatter,
                    "source {source}: {quiet} of {partitions} partitions idle, max_ratio leaves out {allowed}"
                )
            }
            Stall::Drift { source, slowest } => {
                write!(
                    formatter,
                    "drift_bound ahead of partition {slowest} of source {source}, which has no records"
                )
            }
            Stall::NotBegun { partition } => {
                write!(formatter, "waits for {partition}, which is not begun")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_who_and_how_much() {
        let idle = Stall::Idle {
            source: "departures".to_owned(),
            partitions: IdleStall {
                quiet: 3,
                partitions: 4,
                allowed: 1,
            },
        };
        let not_begun = Stall::NotBegun {
            partition: "tuesday.csv of source departures".to_owned(),
        };
        let drift = Stall::Drift {
            source: "departures".to_owned(),
            slowest: 2,
        };
        let shown = [idle, not_begun, drift].map(|stall| stall.to_string());
        assert_eq!(
            shown,
            [
                "source departures: 3 of 4 partitions idle, max_ratio leaves out 1",
                "waits for tuesday.csv of source departures, which is not begun",
                "drift_bound ahead of partition 2 of source departures, which has no records",
            ]
        );
    }
}
