//! What the jobs of one process tell each other about the lanes between them: how far a lane's
//! writer has committed, how far its reader has, and when either is done.
//!
//! The board carries no messages and decides nothing: chunks and frontiers live in storage, so a
//! job that starts anew finds all it needs there. Every wait here ends when something changes or
//! when the run is stopped.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::types::ids::{EpochId, LaneId};

/// How many bytes of messages a lane may hold that its reader has not committed past, before its
/// writer waits. One epoch may pass the bound.
pub const LANE_BYTES_MAX: u64 = 64 << 20;

/// The lanes of one run, shared by its jobs.
#[derive(Debug, Default)]
pub struct LaneBoard {
    lanes: Mutex<Lanes>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lanes {
    stopped: bool,
    by_id: BTreeMap<LaneId, LaneStatus>,
}

/// Where a lane stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LaneStatus {
    /// The newest epoch that put a chunk into the lane.
    written: u64,
    /// The newest epoch whose chunk, and all before it, the reader has committed past.
    covered: u64,
    /// Bytes written and not covered.
    waiting_bytes: u64,
    /// No chunk will follow in this run.
    closed: bool,
}

/// What a reader finds when it has read all that it knew of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneNews {
    /// There is more in a lane.
    Written,
    /// Every lane is closed and read to its end.
    Closed,
    /// The run was stopped.
    Stopped,
}

impl LaneBoard {
    /// Makes a lane known, with the newest chunk that storage holds of it from earlier runs.
    pub fn open(&self, lane: LaneId, newest: Option<EpochId>) {
        let status = LaneStatus {
            written: newest.map_or(0, |epoch| epoch.0),
            ..LaneStatus::default()
        };
        self.lanes().by_id.insert(lane, status);
    }

    /// The lane's writer has committed a chunk of `size_bytes`.
    pub fn written(&self, lane: LaneId, epoch: EpochId, size_bytes: u64) {
        self.change(lane, |status| {
            status.written = epoch.0;
            status.waiting_bytes += size_bytes;
        });
    }

    /// The lane's reader has committed past all chunks up to `epoch`, `size_bytes` more than
    /// when it said so last.
    pub fn covered(&self, lane: LaneId, epoch: EpochId, size_bytes: u64) {
        self.change(lane, |status| {
            status.covered = epoch.0;
            status.waiting_bytes = status.waiting_bytes.saturating_sub(size_bytes);
        });
    }

    /// The lane's writer will write nothing more in this run.
    pub fn close(&self, lane: LaneId) {
        self.change(lane, |status| status.closed = true);
    }

    /// Ends every wait: a job has failed or the run is to stop.
    pub fn stop(&self) {
        self.lanes().stopped = true;
        self.changed.notify_all();
    }

    /// Whether the run is to stop.
    pub fn is_stopped(&self) -> bool {
        self.lanes().stopped
    }

    /// How far the lane's reader has committed.
    pub fn covered_up_to(&self, lane: LaneId) -> EpochId {
        EpochId(self.lanes().by_id[&lane].covered)
    }

    /// The newest epoch that put a chunk into the lane.
    pub fn written_up_to(&self, lane: LaneId) -> EpochId {
        EpochId(self.lanes().by_id[&lane].written)
    }

    /// Waits until one of the lanes holds more than `read` says has been read of it.
    pub fn wait_for_more(&self, read: &[(LaneId, EpochId)]) -> LaneNews {
        self.wait(|lanes| {
            let more = |(lane, epoch): &(LaneId, EpochId)| lanes.by_id[lane].written > epoch.0;
            if read.iter().any(more) {
                return Some(LaneNews::Written);
            }
            let closed = read.iter().all(|(lane, _)| lanes.by_id[lane].closed);
            closed.then_some(LaneNews::Closed)
        })
        .unwrap_or(LaneNews::Stopped)
    }

    /// Waits until each of the lanes has room for another epoch. False when the run was stopped.
    pub fn wait_for_room(&self, lanes_written: &[LaneId]) -> bool {
        self.wait(|lanes| {
            let room = |lane| lanes.by_id[lane].waiting_bytes < LANE_BYTES_MAX;
            lanes_written.iter().all(room).then_some(())
        })
        .is_some()
    }

    /// Waits until the readers have committed past everything. False when the run was stopped.
    pub fn wait_until_covered(&self, lanes_written: &[LaneId]) -> bool {
        self.wait(|lanes| {
            let covered = |lane| lanes.by_id[lane].covered >= lanes.by_id[lane].written;
            lanes_written.iter().all(covered).then_some(())
        })
        .is_some()
    }

    fn change(&self, lane: LaneId, change: impl FnOnce(&mut LaneStatus)) {
        change(self.lanes().by_id.entry(lane).or_default());
        self.changed.notify_all();
    }

    /// Waits for `look` to find what it looks for; `None` when the run was stopped first.
    fn wait<T>(&self, mut look: impl FnMut(&Lanes) -> Option<T>) -> Option<T> {
        let mut lanes = self.lanes();
        loop {
            if lanes.stopped {
                return None;
            }
            if let Some(found) = look(&lanes) {
                return Some(found);
            }
            lanes = self
                .changed
                .wait(lanes)
                .expect("no job panics while it holds the board");
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes
            .lock()
            .expect("no job panics while it holds the board")
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
        board.open(LANE, Some(EpochId(3)));
        board
    }

    #[test]
    fn a_reader_hears_of_more_then_of_the_end() {
        let board = board();
        let read = |epoch| board.wait_for_more(&[(LANE, EpochId(epoch))]);
        assert_eq!(read(2), LaneNews::Written);
        board.close(LANE);
        assert_eq!(read(2), LaneNews::Written);
        assert_eq!(read(3), LaneNews::Closed);
    }

    #[test]
    fn a_writer_waits_for_room_until_its_reader_commits() {
        let board = board();
        board.written(LANE, EpochId(4), LANE_BYTES_MAX);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| board.wait_for_room(&[LANE]));
            board.covered(LANE, EpochId(4), LANE_BYTES_MAX);
            assert!(writer.join().unwrap());
        });
        assert!(board.wait_until_covered(&[LANE]));
    }

    #[test]
    fn stopping_ends_every_wait() {
        let board = board();
        board.stop();
        assert_eq!(
            board.wait_for_more(&[(LANE, EpochId(3))]),
            LaneNews::Stopped
        );
        assert!(!board.wait_until_covered(&[LANE]));
    }
}
