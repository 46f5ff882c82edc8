//! What the jobs of one process tell each other about the lanes between them: how far a lane's
//! writer has committed, how far its reader has, and when either is done.
//!
//! The board carries no messages and decides nothing: chunks and frontiers live in storage, so a
//! job that starts anew finds all it needs there. A job that finds nothing to do waits for the
//! next change and looks again.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::types::ids::{EpochId, LaneId};
use crate::worker::turns::SourceTurns;

/// How many bytes of messages a lane may hold that its reader has not committed past, before its
/// writer waits. One epoch may pass the bound.
pub const LANE_BYTES_MAX: u64 = 64 << 20;

/// Why the board's lock can be taken.
const UNPOISONED: &str = "no job panics while it holds the board";

/// The lanes of one run, shared by its jobs.
#[derive(Debug, Default)]
pub struct LaneBoard {
    lanes: Mutex<Lanes>,
    changed: Condvar,
    turns: SourceTurns,
}

#[derive(Debug, Default)]
struct Lanes {
    /// Rises with every change.
    version: u64,
    stopped: bool,
    by_id: BTreeMap<LaneId, LaneStatus>,
}

/// Where a lane stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LaneStatus {
    /// The newest epoch that put a chunk into the lane.
    written: EpochId,
    /// The newest epoch whose chunk, and all before it, the reader has committed past.
    covered: EpochId,
    /// Bytes written and not covered.
    waiting_bytes: u64,
    /// No chunk will follow in this run.
    closed: bool,
}

impl LaneBoard {
    /// Makes a lane known, with the newest chunk that storage holds of it and the size of all of
    /// them. What the board knows of its reader stays: a writer that starts again in the middle of
    /// a run opens its lanes again.
    pub fn open(&self, lane: LaneId, newest: Option<EpochId>, waiting_bytes: u64) {
        self.change(lane, |status| {
            status.written = status.written.max(newest.unwrap_or(EpochId::NONE));
            status.waiting_bytes = waiting_bytes;
            status.closed = false;
        });
    }

    /// The lane's writer has committed a chunk of `size_bytes`.
    pub fn written(&self, lane: LaneId, epoch: EpochId, size_bytes: u64) {
        self.change(lane, |status| {
            status.written = epoch;
            status.waiting_bytes += size_bytes;
        });
    }

    /// The lane's reader has committed past all chunks up to `epoch`, `size_bytes` more than
    /// when it said so last. Never moves back: a reader that starts again can't tell how far it was
    /// when the chunk that its frontier stands in is gone.
    pub fn covered(&self, lane: LaneId, epoch: EpochId, size_bytes: u64) {
        self.change(lane, |status| {
            status.covered = status.covered.max(epoch);
            status.waiting_bytes = status.waiting_bytes.saturating_sub(size_bytes);
        });
    }

    /// The lane's writer will write nothing more in this run.
    pub fn close(&self, lane: LaneId) {
        self.change(lane, |status| status.closed = true);
    }

    /// Ends every wait: a job has failed or the run is to stop.
    pub fn stop(&self) {
        let mut lanes = self.lanes();
        lanes.stopped = true;
        lanes.version += 1;
        drop(lanes);
        self.changed.notify_all();
        self.turns.stop();
    }

    /// Whose turn it is among the partitions of sources.
    pub fn turns(&self) -> &SourceTurns {
        &self.turns
    }

    /// Whether the run is to stop.
    pub fn is_stopped(&self) -> bool {
        self.lanes().stopped
    }

    /// How far the lane's reader has committed.
    pub fn covered_up_to(&self, lane: LaneId) -> EpochId {
        self.lanes().status(lane).covered
    }

    /// The newest epoch that put a chunk into the lane.
    pub fn written_up_to(&self, lane: LaneId) -> EpochId {
        self.lanes().status(lane).written
    }

    /// Whether no chunk will follow in any of the lanes in this run.
    pub fn are_closed(&self, of: impl IntoIterator<Item = LaneId>) -> bool {
        self.all(of, |status| status.closed)
    }

    /// The first of the lanes that has no room for another epoch.
    pub fn first_without_room(&self, of: impl IntoIterator<Item = LaneId>) -> Option<LaneId> {
        let lanes = self.lanes();
        let mut of = of.into_iter();
        of.find(|lane| lanes.status(*lane).waiting_bytes >= LANE_BYTES_MAX)
    }

    /// Whether the readers have committed past everything in the lanes.
    pub fn are_covered(&self, of: impl IntoIterator<Item = LaneId>) -> bool {
        self.all(of, |status| status.covered >= status.written)
    }

    /// A number that rises with every change, for [`LaneBoard::wait_past`].
    pub fn version(&self) -> u64 {
        self.lanes().version
    }

    /// Waits for a change that a look at the board at `version` can't have seen.
    pub fn wait_past(&self, version: u64) {
        let mut lanes = self.lanes();
        while lanes.version == version {
            lanes = self.changed.wait(lanes).expect(UNPOISONED);
        }
    }

    fn all(
        &self,
        of: impl IntoIterator<Item = LaneId>,
        holds: impl Fn(&LaneStatus) -> bool,
    ) -> bool {
        let lanes = self.lanes();
        of.into_iter().all(|lane| holds(&lanes.status(lane)))
    }

    fn change(&self, lane: LaneId, change: impl FnOnce(&mut LaneStatus)) {
        let mut lanes = self.lanes();
        change(lanes.by_id.entry(lane).or_default());
        lanes.version += 1;
        drop(lanes);
        self.changed.notify_all();
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().expect(UNPOISONED)
    }
}

impl Lanes {
    /// A lane that nobody has opened is empty and stays so.
    fn status(&self, lane: LaneId) -> LaneStatus {
        self.by_id.get(&lane).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::{PartitionId, StreamId};

    const LANE: LaneId = LaneId {
        producer: PartitionId(1),
        stream: StreamId(1),
        reader: PartitionId(2),
    };

    fn board() -> LaneBoard {
        let board = LaneBoard::default();
        board.open(LANE, Some(EpochId(3)), 0);
        board
    }

    #[test]
    fn a_lane_is_covered_when_its_reader_has_committed_past_its_newest_chunk() {
        let board = board();
        assert!(!board.are_covered([LANE]));
        board.covered(LANE, EpochId(3), 0);
        assert!(board.are_covered([LANE]));
        board.written(LANE, EpochId(4), 1);
        assert!(!board.are_covered([LANE]));
    }

    #[test]
    fn a_lane_has_room_until_its_bound_and_again_when_its_reader_commits() {
        let board = board();
        board.written(LANE, EpochId(4), LANE_BYTES_MAX);
        assert_eq!(board.first_without_room([LANE]), Some(LANE));
        board.covered(LANE, EpochId(4), LANE_BYTES_MAX);
        assert_eq!(board.first_without_room([LANE]), None);
    }

    /// Lost: the end of the run. A writer that crashed and was started again on the board wiped out
    /// that its reader had covered the lane; the reader, at its end, never said so again, and the
    /// writer waited for it for ever. Found by the simulation (seeds 4, 5, 9).
    #[test]
    fn a_writer_that_opens_its_lane_again_still_knows_what_is_covered() {
        let board = board();
        board.written(LANE, EpochId(4), 1);
        board.covered(LANE, EpochId(4), 1);
        board.close(LANE);
        board.open(LANE, Some(EpochId(4)), 0);
        assert!(board.are_covered([LANE]));
        assert!(!board.are_closed([LANE]));
    }

    /// Lost: the same, by a reader that was started again after its last chunk was trimmed: from its
    /// frontier alone it can only say that the chunk before is covered.
    #[test]
    fn a_reader_that_starts_again_does_not_uncover_its_lane() {
        let board = board();
        board.written(LANE, EpochId(4), 1);
        board.covered(LANE, EpochId(4), 1);
        board.covered(LANE, EpochId(3), 0);
        assert!(board.are_covered([LANE]));
    }

    #[test]
    fn a_wait_ends_with_the_next_change_and_misses_none() {
        let board = board();
        let version = board.version();
        board.close(LANE);
        board.wait_past(version);
        let version = board.version();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| board.wait_past(version));
            board.stop();
            assert!(waiting.join().is_ok());
        });
        assert!(board.is_stopped());
    }
}
