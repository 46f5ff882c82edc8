//! The lanes that a job writes: where each message goes, which chunks storage still keeps, and what
//! their readers have passed.

use crate::engine::lane::KeptChunks;
use crate::storage::rows::{self, ChunkLimit};
use crate::storage::{Storage, StorageError};
use crate::types::epoch::{LaneChunk, LaneTrim};
use crate::types::ids::{EpochId, LaneId};
use crate::types::key::partition_of;
use crate::worker::board::{LaneBoard, WrittenChunk};
use crate::worker::plan::JobPlan;

/// How many chunks of one lane are looked at at a time when its writer starts.
const CHUNKS_RESTORED: ChunkLimit = ChunkLimit {
    chunks: 1_024,
    bytes: 16 << 20,
};

/// The lanes that a job writes.
pub(super) struct LanesOutput {
    /// In the order of their ids; a lane's place is its index here.
    lanes: Vec<WrittenLane>,
    /// For each of the job's streams and each transform that reads it, the places of the lanes to
    /// its partitions.
    routes: Vec<Vec<Vec<usize>>>,
    is_closed: bool,
}

struct WrittenLane {
    id: LaneId,
    /// Chunks that no submitted epoch removes.
    kept: KeptChunks,
    /// Bytes of the submitted epoch, which the board does not know of.
    submitted_bytes: u64,
}

impl LanesOutput {
    /// The lanes of a job as storage has them; puts them on the board.
    pub(super) fn announce(
        plan: &JobPlan,
        storage: &dyn Storage,
        board: &LaneBoard,
    ) -> Result<LanesOutput, StorageError> {
        let mut ids = plan.lanes_written();
        ids.sort_unstable();
        let mut lanes = Vec::with_capacity(ids.len());
        for id in &ids {
            let chunks = restore_chunks(storage, *id)?;
            board.open(*id, &chunks);
            lanes.push(WrittenLane {
                id: *id,
                kept: KeptChunks::restored(chunks.iter().map(|chunk| chunk.epoch)),
                submitted_bytes: 0,
            });
        }
        let place_of = |lane: &LaneId| ids.binary_search(lane).expect("a plan lists all its lanes");
        let streams = plan.streams.iter().map(|stream| {
            let readers = stream.readers.iter().map(|partitions| {
                let lane = |reader| LaneId {
                    producer: plan.lease.partition,
                    stream: stream.id,
                    reader,
                };
                let partitions = partitions.iter().copied();
                partitions.map(|reader| place_of(&lane(reader))).collect()
            });
            readers.collect()
        });
        Ok(LanesOutput {
            routes: streams.collect(),
            lanes,
            is_closed: false,
        })
    }

    /// All lanes, in the order of their places.
    pub(super) fn ids(&self) -> impl Iterator<Item = LaneId> {
        self.lanes.iter().map(|lane| lane.id)
    }

    /// Whether any transform reads a stream of the job.
    pub(super) fn is_read(&self, stream: usize) -> bool {
        !self.routes[stream].is_empty()
    }

    /// The places of the lanes that a message of a stream goes to, one for each transform that
    /// reads it.
    pub(super) fn route(&self, stream: usize, key_hash: u64) -> impl Iterator<Item = usize> {
        let readers = self.routes[stream].iter();
        readers.map(move |places| places[partition_of(key_hash, places.len())])
    }

    /// The first lane that has no room for another epoch.
    pub(super) fn full_lane(&self, board: &LaneBoard) -> Option<LaneId> {
        let lanes = self.lanes.iter();
        board.full_lane(lanes.map(|lane| (lane.id, lane.submitted_bytes)))
    }

    /// The chunks that every reader has passed. They count as gone from here on: a job whose
    /// commit is refused ends, and its lanes are restored by its successor.
    pub(super) fn take_trims(&mut self, board: &LaneBoard) -> Vec<LaneTrim> {
        let mut trims = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| !lane.kept.is_empty()) {
            let covered = board.covered_up_to(lane.id);
            let trim = |epoch| LaneTrim {
                lane: lane.id,
                epoch,
            };
            trims.extend(lane.kept.take_covered(covered).map(trim));
        }
        trims
    }

    /// An epoch with these chunks was handed to storage.
    pub(super) fn submitted(&mut self, chunks: &[LaneChunk]) {
        for chunk in chunks {
            self.lane(chunk.lane).submitted_bytes += chunk.messages.size_bytes() as u64;
        }
    }

    /// That epoch is committed: hands its chunks on to their readers.
    pub(super) fn committed(&mut self, epoch: EpochId, chunks: &[LaneChunk], board: &LaneBoard) {
        for chunk in chunks {
            let lane = self.lane(chunk.lane);
            lane.kept.push(epoch);
            lane.submitted_bytes = 0;
            board.hand_on(chunk.lane, epoch, &chunk.messages);
        }
    }

    /// Tells readers, once, that no chunk will follow in this run.
    pub(super) fn close(&mut self, board: &LaneBoard) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.ids().for_each(|lane| board.close(lane));
        }
    }

    /// Whether the readers have committed past everything.
    pub(super) fn are_covered(&self, board: &LaneBoard) -> bool {
        board.are_covered(self.ids())
    }

    /// Whether storage keeps any chunk.
    pub(super) fn has_chunks(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.kept.is_empty())
    }

    fn lane(&mut self, id: LaneId) -> &mut WrittenLane {
        let place = self.lanes.binary_search_by_key(&id, |lane| lane.id);
        &mut self.lanes[place.expect("a job writes into its own lanes")]
    }
}

/// The chunks of a lane that earlier runs left, oldest first.
fn restore_chunks(storage: &dyn Storage, lane: LaneId) -> Result<Vec<WrittenChunk>, StorageError> {
    let mut kept: Vec<WrittenChunk> = Vec::new();
    loop {
        let from = kept.last().map_or(EpochId::NONE, |last| last.epoch.next());
        let chunks = rows::read_chunks(storage, lane, from, CHUNKS_RESTORED)?;
        if chunks.is_empty() {
            return Ok(kept);
        }
        kept.extend(chunks.iter().map(|(epoch, chunk)| WrittenChunk {
            epoch: *epoch,
            size_bytes: chunk.size_bytes() as u64,
        }));
    }
}
