//! What the jobs of one process tell each other about the lanes between them: how far a lane's
//! writer has committed, how far its reader has, and when either is done.
//!
//! The board decides nothing, and what it carries is a copy: chunks and frontiers live in storage,
//! so a job that starts anew finds all it needs there. A job that finds nothing to do waits for the
//! next change and looks again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::types::dead_letter::LetterRequest;
use crate::types::epoch::ChunkMessages;
use crate::types::ids::{EpochId, LaneId, PartitionId};
use crate::types::pipeline::LaneLimits;
use crate::worker::channel::{LaneChannel, Receipt};
use crate::worker::letter_requests::LetterRequests;
use crate::worker::source_times::SourceTimes;
use crate::worker::turns::SourceTurns;

/// Why the board's lock can be taken.
const UNPOISONED: &str = "no job panics while it holds the board";

/// The lanes of one run, shared by its jobs.
#[derive(Debug, Default)]
pub struct LaneBoard {
    limits: LaneLimits,
    lanes: Mutex<Lanes>,
    changed: Condvar,
    turns: SourceTurns,
    source_times: SourceTimes,
    letter_requests: LetterRequests,
    /// The partition whose job is careful now, after an unclean stop.
    careful: Mutex<Option<PartitionId>>,
}

#[derive(Debug, Default)]
struct Lanes {
    /// Rises with every change.
    version: u64,
    stopped: bool,
    by_id: BTreeMap<LaneId, LaneStatus>,
}

/// Where a lane stands.
#[derive(Debug, Default)]
struct LaneStatus {
    /// The newest epoch that put a chunk into the lane.
    written: EpochId,
    /// The newest epoch whose chunk, and all before it, the reader has committed past.
    covered: EpochId,
    /// The chunks that are written and not covered, oldest first.
    waiting: VecDeque<WrittenChunk>,
    /// Their bytes.
    waiting_bytes: u64,
    /// No chunk will follow in this run.
    closed: bool,
    /// Committed chunks on their way to the reader.
    channel: LaneChannel,
}

/// A chunk that a lane's writer has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenChunk {
    /// Its epoch.
    pub epoch: EpochId,
    /// How much it holds, as [`ChunkMessages::size_bytes`] counts it.
    pub size_bytes: u64,
}

impl LaneBoard {
    /// A board for one run.
    pub fn new(limits: LaneLimits) -> LaneBoard {
        LaneBoard {
            limits,
            ..LaneBoard::default()
        }
    }

    /// Makes a lane known, with the chunks that storage holds of it, oldest first. What the board
    /// knows of its reader stays: a writer that starts again in the middle of a run opens its lanes
    /// again, and what its reader has passed does not wait although it is still kept.
    pub fn open(&self, lane: LaneId, kept: &[WrittenChunk]) {
        self.change(lane, |status| {
            status.waiting.clear();
            status.waiting_bytes = 0;
            for chunk in kept {
                status.written = status.written.max(chunk.epoch);
                status.wait(*chunk);
            }
            status.closed = false;
        });
    }

    /// The lane's writer has committed a chunk: hands it on to the reader.
    pub fn hand_on(&self, lane: LaneId, epoch: EpochId, chunk: &Arc<ChunkMessages>) {
        let channel_bytes = self.limits.channel_bytes / (self.lanes().by_id.len() as u64).max(1);
        self.change(lane, |status| {
            // A writer that was slow to say so has a successor that found the chunk in storage.
            if epoch > status.written {
                let previous = std::mem::replace(&mut status.written, epoch);
                let size_bytes = chunk.size_bytes() as u64;
                status.wait(WrittenChunk { epoch, size_bytes });
                status.channel.send(previous, epoch, chunk, channel_bytes);
            }
        });
    }

    /// The chunk that follows `read`, the newest epoch that the lane's reader has read.
    pub fn receive(&self, lane: LaneId, read: EpochId) -> Receipt {
        match self.lanes().by_id.get_mut(&lane) {
            Some(status) => match status.channel.receive(read, status.written) {
                Receipt::UpToDate if status.closed => Receipt::End,
                receipt => receipt,
            },
            None => Receipt::UpToDate,
        }
    }

    /// The lane's reader has committed past all chunks up to `epoch`. Never moves back: a reader that
    /// starts again can't tell how far it was when the chunk that its frontier stands in is gone. May
    /// come before the writer hands the chunk on: the reader can find it in storage.
    pub fn covered(&self, lane: LaneId, epoch: EpochId) {
        self.change(lane, |status| {
            status.covered = status.covered.max(epoch);
            let covered = status.covered;
            while let Some(chunk) = status.waiting.pop_front_if(|chunk| chunk.epoch <= covered) {
                status.waiting_bytes -= chunk.size_bytes;
            }
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

    /// How far the partitions of sources are in time.
    pub fn source_times(&self) -> &SourceTimes {
        &self.source_times
    }

    /// What is asked to be done with dead letters.
    pub fn letter_requests(&self) -> &LetterRequests {
        &self.letter_requests
    }

    /// More is asked, and durable in the catalog; jobs that wait look again. Returns how many of the requests a job of
    /// this run looks after.
    pub fn request_letters(&self, requests: &[LetterRequest]) -> usize {
        let count = self.letter_requests.add(requests);
        if count > 0 {
            self.wake_all();
        }
        count
    }

    /// Gives a partition's job the turn to be careful, if no other has it. Whether it has it now.
    pub fn take_careful_turn(&self, partition: PartitionId) -> bool {
        let mut careful = self
            .careful
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *careful.get_or_insert(partition) == partition
    }

    /// The partition's job is done with its turn, if it has it.
    pub fn pass_careful_turn_on(&self, partition: PartitionId) {
        let mut careful = self
            .careful
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        careful.take_if(|holder| *holder == partition);
    }

    /// Lets every job that waits for a change look again.
    pub fn wake_all(&self) {
        self.lanes().version += 1;
        self.changed.notify_all();
    }

    /// Whether the run is to stop.
    pub fn is_stopped(&self) -> bool {
        self.lanes().stopped
    }

    /// How far the lane's reader has committed.
    pub fn covered_up_to(&self, lane: LaneId) -> EpochId {
        self.status(lane, |status| status.covered)
    }

    /// The newest epoch that put a chunk into the lane.
    pub fn written_up_to(&self, lane: LaneId) -> EpochId {
        self.status(lane, |status| status.written)
    }

    /// The first of the lanes that has no room for another epoch; each comes with the bytes that its
    /// writer has put into it and not handed on yet.
    pub fn full_lane(&self, of: impl IntoIterator<Item = (LaneId, u64)>) -> Option<LaneId> {
        let lanes = self.lanes();
        let is_full = |(lane, more_bytes): &(LaneId, u64)| {
            let waiting_bytes = lanes
                .by_id
                .get(lane)
                .map_or(0, |status| status.waiting_bytes);
            waiting_bytes + more_bytes >= self.limits.max_bytes
        };
        of.into_iter().find(is_full).map(|(lane, _)| lane)
    }

    /// Bytes of messages in a lane that its reader has not committed past.
    #[cfg(test)]
    pub fn waiting_bytes(&self, lane: LaneId) -> u64 {
        self.status(lane, |status| status.waiting_bytes)
    }

    /// Whether the readers have committed past everything in the lanes.
    pub fn are_covered(&self, of: impl IntoIterator<Item = LaneId>) -> bool {
        self.all(of, |status| status.covered >= status.written)
    }

    /// A number that rises with every change, for [`LaneBoard::wait_past`].
    pub fn version(&self) -> u64 {
        self.lanes().version
    }

    /// Waits for a change that a look at the board at `version` can't have seen, but no longer than
    /// `limit`, where there is one.
    pub fn wait_past(&self, version: u64, limit: Option<Duration>) {
        let lanes = self.lanes();
        let is_same = |lanes: &mut Lanes| lanes.version == version;
        match limit {
            None => drop(self.changed.wait_while(lanes, is_same).expect(UNPOISONED)),
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(lanes, limit, is_same);
                drop(waited.expect(UNPOISONED));
            }
        }
    }

    fn all(
        &self,
        of: impl IntoIterator<Item = LaneId>,
        holds: impl Fn(&LaneStatus) -> bool,
    ) -> bool {
        let lanes = self.lanes();
        let nothing = LaneStatus::default();
        of.into_iter()
            .all(|lane| holds(lanes.by_id.get(&lane).unwrap_or(&nothing)))
    }

    /// A lane that nobody has opened is empty and stays so.
    fn status<T: Default>(&self, lane: LaneId, read: impl FnOnce(&LaneStatus) -> T) -> T {
        self.lanes().by_id.get(&lane).map(read).unwrap_or_default()
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

impl LaneStatus {
    /// A chunk waits for the reader, unless that was quicker.
    fn wait(&mut self, chunk: WrittenChunk) {
        if chunk.epoch > self.covered {
            self.waiting.push_back(chunk);
            self.waiting_bytes += chunk.size_bytes;
        }
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

    fn chunk() -> Arc<ChunkMessages> {
        let mut chunk = ChunkMessages::default();
        chunk.indexes.push(0);
        chunk.alignments.push(0);
        Arc::new(chunk)
    }

    fn kept(epoch: u64) -> WrittenChunk {
        WrittenChunk {
            epoch: EpochId(epoch),
            size_bytes: chunk().size_bytes() as u64,
        }
    }

    fn board() -> LaneBoard {
        let board = LaneBoard::default();
        board.open(LANE, &[kept(3)]);
        board
    }

    #[test]
    fn a_lane_is_covered_when_its_reader_has_committed_past_its_newest_chunk() {
        let board = board();
        assert!(!board.are_covered([LANE]));
        board.covered(LANE, EpochId(3));
        assert!(board.are_covered([LANE]));
        board.hand_on(LANE, EpochId(4), &chunk());
        assert!(!board.are_covered([LANE]));
    }

    #[test]
    fn a_lane_has_room_until_its_bound_and_again_when_its_reader_commits() {
        let size_bytes = chunk().size_bytes() as u64;
        let board = LaneBoard::new(LaneLimits {
            max_bytes: 2 * size_bytes,
            ..LaneLimits::default()
        });
        board.hand_on(LANE, EpochId(4), &chunk());
        assert_eq!(board.full_lane([(LANE, size_bytes - 1)]), None);
        assert_eq!(board.full_lane([(LANE, size_bytes)]), Some(LANE));
        board.hand_on(LANE, EpochId(5), &chunk());
        assert_eq!(board.full_lane([(LANE, 0)]), Some(LANE));
        board.covered(LANE, EpochId(4));
        assert_eq!(board.full_lane([(LANE, 0)]), None);
    }

    #[test]
    fn a_chunk_that_is_handed_on_late_does_not_hide_a_newer_one() {
        let board = board();
        board.hand_on(LANE, EpochId(7), &chunk());
        board.hand_on(LANE, EpochId(6), &chunk());
        assert_eq!(board.written_up_to(LANE), EpochId(7));
        let written = EpochId(7);
        assert_eq!(board.receive(LANE, EpochId(1)), Receipt::Gap { written });
        assert_eq!(
            board.receive(LANE, EpochId(3)),
            Receipt::Chunk(written, chunk())
        );
    }

    #[test]
    fn lanes_share_what_channels_may_hold() {
        let size_bytes = chunk().size_bytes() as u64;
        let other = LaneId {
            reader: PartitionId(3),
            ..LANE
        };
        let board = LaneBoard::new(LaneLimits {
            channel_bytes: 2 * size_bytes,
            ..LaneLimits::default()
        });
        board.open(LANE, &[]);
        board.open(other, &[]);
        board.hand_on(LANE, EpochId(1), &chunk());
        board.hand_on(LANE, EpochId(2), &chunk());
        assert!(matches!(
            board.receive(LANE, EpochId(0)),
            Receipt::Chunk(EpochId(1), _)
        ));
        let written = EpochId(2);
        assert_eq!(board.receive(LANE, EpochId(1)), Receipt::Gap { written });
    }

    #[test]
    fn a_chunk_that_was_covered_before_it_is_handed_on_does_not_wait() {
        let board = board();
        board.covered(LANE, EpochId(4));
        board.hand_on(LANE, EpochId(4), &chunk());
        assert_eq!(board.waiting_bytes(LANE), 0);
        assert!(board.are_covered([LANE]));
    }

    /// Lost: the end of the run. A writer that crashed and was started again on the board wiped out
    /// that its reader had covered the lane; the reader, at its end, never said so again, and the
    /// writer waited for it for ever. Found by the simulation (seeds 4, 5, 9).
    #[test]
    fn a_writer_that_opens_its_lane_again_still_knows_what_is_covered() {
        let board = board();
        board.hand_on(LANE, EpochId(4), &chunk());
        board.covered(LANE, EpochId(4));
        board.close(LANE);
        board.open(LANE, &[kept(4)]);
        assert!(board.are_covered([LANE]));
        assert_eq!(board.receive(LANE, EpochId(4)), Receipt::UpToDate);
    }

    /// Lost: the same, by a reader that was started again after its last chunk was trimmed: from its
    /// frontier alone it can only say that the chunk before is covered.
    #[test]
    fn a_reader_that_starts_again_does_not_uncover_its_lane() {
        let board = board();
        board.hand_on(LANE, EpochId(4), &chunk());
        board.covered(LANE, EpochId(4));
        board.covered(LANE, EpochId(3));
        assert!(board.are_covered([LANE]));
    }

    #[test]
    fn a_wait_ends_with_the_next_change_and_misses_none() {
        let board = board();
        let version = board.version();
        board.close(LANE);
        board.wait_past(version, None);
        let version = board.version();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| board.wait_past(version, None));
            board.stop();
            assert!(waiting.join().is_ok());
        });
        assert!(board.is_stopped());
    }
}
