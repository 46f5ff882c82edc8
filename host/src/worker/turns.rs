//! Whose turn it is among the partitions of a source: as many as the source allows are read at once,
//! those with the oldest records first; the next one begins when one of them is at its end.
//!
//! A job that waits for its turn waits here and not for the board, which changes with every epoch
//! of every other job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::types::batch::Timestamp;

/// Why the lock can be taken.
const UNPOISONED: &str = "no job panics while it looks whose turn it is";

/// A partition's place among those of its source. Those that come first are read first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceTurn {
    /// The source.
    pub source: String,
    /// How many of its partitions are read at once at most, at least 1.
    pub parallel: usize,
    /// When the partition's next record was written.
    pub write_time: Timestamp,
    /// Its place in the source's list, which decides between equally old ones.
    pub index: usize,
}

/// The partitions of sources that are not at their end.
#[derive(Debug, Default)]
pub struct SourceTurns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    waiting: BTreeMap<String, BTreeSet<SourceTurn>>,
}

impl SourceTurns {
    /// Takes a place. All partitions of a source take theirs before the first one is read. A job that
    /// starts again leaves the one that it had, as it goes on at another record.
    pub fn join(&self, turn: &SourceTurn) {
        let mut state = self.state();
        let waiting = state.waiting.entry(turn.source.clone()).or_default();
        waiting.retain(|before| before.index != turn.index);
        waiting.insert(turn.clone());
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the partition may be read. One that is at its end keeps nobody waiting and may.
    pub fn is_at(&self, turn: &SourceTurn) -> bool {
        self.state().is_at(turn)
    }

    /// Waits until the partition may be read or the run is to stop.
    pub fn wait_for(&self, turn: &SourceTurn) {
        let mut state = self.state();
        while !state.stopped && !state.is_at(turn) {
            state = self.changed.wait(state).expect(UNPOISONED);
        }
    }

    /// The partition is at its end.
    pub fn pass_on(&self, turn: &SourceTurn) {
        if let Some(waiting) = self.state().waiting.get_mut(&turn.source) {
            waiting.remove(turn);
        }
        self.changed.notify_all();
    }

    /// Ends every wait.
    pub fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNPOISONED)
    }
}

impl State {
    fn is_at(&self, turn: &SourceTurn) -> bool {
        let waiting = self.waiting.get(&turn.source);
        waiting.is_none_or(|waiting| {
            !waiting.contains(turn)
                || waiting
                    .iter()
                    .take(turn.parallel)
                    .any(|first| first == turn)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(write_time: Timestamp, index: usize, parallel: usize) -> SourceTurn {
        SourceTurn {
            source: "days".to_owned(),
            parallel,
            write_time,
            index,
        }
    }

    #[test]
    fn the_oldest_go_first_and_the_next_begins_when_one_is_at_its_end() {
        let turns = SourceTurns::default();
        let days = [turn(30, 0, 2), turn(10, 1, 2), turn(20, 2, 2)];
        days.iter().for_each(|day| turns.join(day));
        let at_turn = || -> Vec<usize> {
            let at = days.iter().filter(|day| turns.is_at(day));
            at.map(|day| day.index).collect()
        };
        assert_eq!(at_turn(), [1, 2]);
        turns.pass_on(&days[2]);
        assert_eq!(at_turn(), [0, 1, 2], "one at its end may look again");
    }

    #[test]
    fn equally_old_ones_go_in_the_order_of_the_list() {
        let turns = SourceTurns::default();
        let days = [turn(10, 0, 1), turn(10, 1, 1)];
        days.iter().rev().for_each(|day| turns.join(day));
        assert!(turns.is_at(&days[0]) && !turns.is_at(&days[1]));
    }

    /// Lost: the rest of a run. A job that was started again took a second place, by the time of the
    /// record that it was at; nobody passed the first one on, and it kept all others waiting. Found by
    /// the simulation (seeds 6, 11, 12).
    #[test]
    fn a_job_that_starts_again_leaves_the_place_that_it_had() {
        let turns = SourceTurns::default();
        let (first, second) = (turn(10, 0, 1), turn(20, 1, 1));
        turns.join(&first);
        turns.join(&second);
        let again = turn(15, 0, 1);
        turns.join(&again);
        assert!(turns.is_at(&again) && !turns.is_at(&second));
        turns.pass_on(&again);
        assert!(turns.is_at(&second));
    }

    #[test]
    fn a_wait_ends_with_the_turn_or_the_run() {
        let turns = SourceTurns::default();
        let days = [turn(1, 0, 1), turn(2, 1, 1), turn(3, 2, 1)];
        days.iter().for_each(|day| turns.join(day));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turns.wait_for(&days[1]));
            let third = scope.spawn(|| turns.wait_for(&days[2]));
            turns.pass_on(&days[0]);
            second.join().unwrap();
            assert!(!turns.is_at(&days[2]));
            turns.stop();
            third.join().unwrap();
        });
    }
}
