//! What a reader makes of lanes: their order, their repetition, their gaps.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::epoch::BatchRoom;
use crate::engine::stream::InputMessages;
use crate::storage::contract::commit_of;
use crate::storage::memory::MemoryStorage;
use crate::storage::{CommitOutcome, Storage, leases};
use crate::types::batch::Timestamp;
use crate::types::epoch::{ChunkMessages, EpochCommit, FrontierAdvance, LaneChunk};
use crate::types::ids::{EpochId, LaneId, PartitionId, StreamId};
use crate::types::lease::Lease;
use crate::types::pipeline::LaneLimits;
use crate::worker::board::{LaneBoard, WrittenChunk};
use crate::worker::input::ItemLocation;
use crate::worker::input::lanes::LanesInput;
use crate::worker::plan::LanePlan;

const READER: PartitionId = PartitionId(9);

/// No bound on a batch.
const ALL: BatchRoom = BatchRoom {
    rows: 1_000,
    bytes: 1 << 20,
};

/// A lane of stream `stream` from `producer` to the only reader.
fn lane(producer: u64, stream: u64) -> LaneId {
    LaneId {
        producer: PartitionId(producer),
        stream: StreamId(stream),
        reader: READER,
    }
}

/// A plan to read it by input `stream`.
fn plan(producer: u64, stream: u64) -> LanePlan {
    LanePlan {
        lane: lane(producer, stream),
        input: u16::try_from(stream).unwrap(),
        delay: Duration::ZERO,
        retiring: None,
    }
}

/// Lanes in storage and on a board, written by the test and read by one reader.
struct Lanes {
    storage: MemoryStorage,
    board: LaneBoard,
    reader: Lease,
    reader_epoch: u64,
}

impl Lanes {
    fn new(plans: &[LanePlan], limits: LaneLimits) -> Lanes {
        let storage = MemoryStorage::new();
        let board = LaneBoard::new(limits);
        for plan in plans {
            board.open(plan.lane, &[]);
        }
        Lanes {
            reader: leases::grant(&storage, READER).unwrap(),
            reader_epoch: 0,
            storage,
            board,
        }
    }

    /// Commits a chunk of messages, each an alignment timestamp, an event time and a payload.
    fn commit(&self, lane: LaneId, messages: &[(Timestamp, Timestamp, &str)]) {
        let chunk = self.commit_silently(lane, messages);
        self.board.hand_on(lane, chunk.epoch, &chunk.messages);
    }

    /// As [`Lanes::commit`], but nothing reaches the channel.
    fn commit_silently(
        &self,
        lane: LaneId,
        messages: &[(Timestamp, Timestamp, &str)],
    ) -> LaneChunk {
        let mut chunk = ChunkMessages::default();
        for (index, (alignment, time, payload)) in (0..).zip(messages) {
            chunk.indexes.push(index);
            chunk.key_hashes.push(0);
            chunk.keys.push(b"k");
            chunk.event_times.push(*time);
            chunk.alignments.push(*alignment);
            chunk.payloads.push(payload.as_bytes());
        }
        let lease = leases::grant(&self.storage, lane.producer).unwrap();
        let epoch = self.storage.head(lane.producer).unwrap().epoch.next();
        let chunk = LaneChunk {
            lane,
            epoch,
            messages: Arc::new(chunk),
        };
        let commit = EpochCommit {
            chunks: vec![chunk.clone()],
            ..commit_of(lease, epoch.0)
        };
        let outcome = self.storage.commit_epoch(lease, commit);
        assert!(matches!(outcome, Ok(CommitOutcome::Committed(_))));
        chunk
    }

    fn open(&self, plans: &[LanePlan]) -> LanesInput {
        LanesInput::open(plans, 1 << 20, &self.storage, &self.board).unwrap()
    }

    /// The payloads of the next batch, separated by blanks.
    fn next(&self, input: &mut LanesInput, room: BatchRoom) -> String {
        let messages = input.next(room, &self.storage, &self.board).unwrap();
        text_of(&messages)
    }

    fn commit_frontiers(&mut self, input: &mut LanesInput) {
        let (frontiers, coverage) = input.seal();
        self.commit_epoch(frontiers);
        coverage.into_iter().for_each(|lane| lane.tell(&self.board));
    }

    fn commit_epoch(&mut self, frontiers: Vec<FrontierAdvance>) {
        self.reader_epoch += 1;
        let commit = EpochCommit {
            frontiers,
            ..commit_of(self.reader, self.reader_epoch)
        };
        let outcome = self.storage.commit_epoch(self.reader, commit);
        assert!(matches!(outcome, Ok(CommitOutcome::Committed(_))));
    }
}

fn text_of(messages: &InputMessages) -> String {
    let texts: Vec<&str> = (messages.payloads.iter())
        .map(|payload| std::str::from_utf8(payload).unwrap())
        .collect();
    texts.join(" ")
}

#[test]
fn r1_messages_of_one_stream_are_taken_by_alignment_then_by_id() {
    let plans = [plan(2, 0), plan(1, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(
        lane(2, 0),
        &[(10, 0, "b10"), (30, 0, "b30"), (50, 0, "b50")],
    );
    lanes.commit(
        lane(1, 0),
        &[
            (10, 0, "a10"),
            (20, 0, "a20"),
            (30, 0, "a30"),
            (30, 0, "A30"),
        ],
    );
    let mut input = lanes.open(&plans);
    assert_eq!(lanes.next(&mut input, ALL), "a10 b10 a20 a30 A30 b30 b50");
}

#[test]
fn r1_a_lane_is_first_in_first_out_across_its_chunks() {
    let plans = [plan(1, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(lane(1, 0), &[(10, 0, "1"), (10, 0, "2")]);
    lanes.commit(lane(1, 0), &[(10, 0, "3")]);
    lanes.commit(lane(1, 0), &[(10, 0, "4"), (11, 0, "5")]);
    let mut input = lanes.open(&plans);
    let two = BatchRoom { rows: 2, ..ALL };
    assert_eq!(lanes.next(&mut input, two), "1 2");
    assert_eq!(lanes.next(&mut input, two), "3 4");
    assert_eq!(lanes.next(&mut input, two), "5");
    assert_eq!(lanes.next(&mut input, two), "");
}

#[test]
fn r3_streams_are_merged_by_their_lead_and_delay_and_ties_by_input() {
    // Stream 1 was written a long time after its events; its records are of the same moments.
    let events = |lanes: &Lanes| {
        lanes.commit(
            lane(1, 0),
            &[(100, 100, "a100"), (200, 200, "a200"), (300, 300, "a300")],
        );
        lanes.commit(
            lane(2, 1),
            &[(900_100, 100, "b100"), (900_200, 200, "b200")],
        );
    };
    let plans = [plan(1, 0), plan(2, 1)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    events(&lanes);
    assert_eq!(
        lanes.next(&mut lanes.open(&plans), ALL),
        "a100 b100 a200 b200 a300"
    );
    // Without a lead the alignment timestamps alone would have put all of b last.
    let delayed = [
        LanePlan {
            delay: Duration::from_millis(101),
            ..plan(1, 0)
        },
        plan(2, 1),
    ];
    let lanes = Lanes::new(&delayed, LaneLimits::default());
    events(&lanes);
    assert_eq!(
        lanes.next(&mut lanes.open(&delayed), ALL),
        "b100 b200 a100 a200 a300"
    );
}

#[test]
fn r3_no_lane_is_waited_for() {
    let plans = [plan(1, 0), plan(2, 1)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(lane(2, 1), &[(900, 0, "b900")]);
    let mut input = lanes.open(&plans);
    assert_eq!(lanes.next(&mut input, ALL), "b900");
    lanes.commit(lane(1, 0), &[(100, 0, "a100")]);
    assert_eq!(lanes.next(&mut input, ALL), "a100");
}

#[test]
fn r4_lanes_of_retiring_partitions_are_read_first_in_the_order_of_their_layouts() {
    let retiring = |producer, rank| LanePlan {
        retiring: Some(rank),
        ..plan(producer, 0)
    };
    let plans = [plan(7, 0), retiring(2, 1), retiring(1, 0), plan(8, 1)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(lane(7, 0), &[(1, 0, "new")]);
    lanes.commit(lane(2, 0), &[(5, 0, "old5"), (6, 0, "old6")]);
    lanes.commit(lane(1, 0), &[(9, 0, "oldest9")]);
    lanes.commit(lane(8, 1), &[(7, 0, "other7")]);
    let mut input = lanes.open(&plans);
    assert_eq!(lanes.next(&mut input, ALL), "other7 oldest9 old5 old6 new");
}

#[test]
fn d1_what_the_frontier_has_passed_is_not_taken_again_from_anywhere() {
    let plans = [plan(1, 0)];
    let mut lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(lane(1, 0), &[(1, 0, "1"), (1, 0, "2"), (1, 0, "3")]);
    lanes.commit(lane(1, 0), &[(1, 0, "4")]);
    let mut input = lanes.open(&plans);
    let two = BatchRoom { rows: 2, ..ALL };
    assert_eq!(lanes.next(&mut input, two), "1 2");
    lanes.commit_frontiers(&mut input);
    // Taken, and lost with the job before it was committed.
    assert_eq!(lanes.next(&mut input, two), "3 4");
    let mut successor = lanes.open(&plans);
    assert_eq!(lanes.next(&mut successor, ALL), "3 4");
    // From the channel this time: what was read from storage waits there too.
    lanes.commit(lane(1, 0), &[(1, 0, "5")]);
    assert_eq!(lanes.next(&mut successor, ALL), "5");
}

#[test]
fn a_gap_in_the_channel_is_filled_from_storage() {
    let plans = [plan(1, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    let mut input = lanes.open(&plans);
    lanes.commit(lane(1, 0), &[(1, 0, "1")]);
    assert_eq!(lanes.next(&mut input, ALL), "1");
    let lost = lanes.commit_silently(lane(1, 0), &[(1, 0, "2")]);
    // Its writer's successor finds it in storage and goes on.
    let kept = WrittenChunk {
        epoch: lost.epoch,
        size_bytes: lost.messages.size_bytes() as u64,
    };
    lanes.board.open(lane(1, 0), &[kept]);
    lanes.commit(lane(1, 0), &[(1, 0, "3")]);
    lanes.commit(lane(1, 0), &[(1, 0, "4")]);
    assert_eq!(lanes.next(&mut input, ALL), "2 3 4");
    assert_eq!(lanes.next(&mut input, ALL), "");
}

#[test]
fn chunks_for_which_the_channel_has_no_room_come_from_storage() {
    let plans = [plan(1, 0)];
    let none = LaneLimits {
        channel_bytes: 0,
        ..LaneLimits::default()
    };
    let lanes = Lanes::new(&plans, none);
    let mut input = lanes.open(&plans);
    lanes.commit(lane(1, 0), &[(1, 0, "1")]);
    lanes.commit(lane(1, 0), &[(1, 0, "2")]);
    assert_eq!(lanes.next(&mut input, ALL), "1 2");
}

#[test]
fn a_batch_ends_with_the_message_that_passes_its_bytes() {
    let plans = [plan(1, 0), plan(2, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    // Each message has two bytes, one of them its key's.
    lanes.commit(
        lane(1, 0),
        &[(1, 0, "1"), (1, 0, "2"), (5, 0, "5"), (5, 0, "6")],
    );
    lanes.commit(lane(2, 0), &[(3, 0, "3"), (4, 0, "4")]);
    let mut input = lanes.open(&plans);
    let bytes = |bytes| BatchRoom { rows: 100, bytes };
    assert_eq!(lanes.next(&mut input, bytes(1)), "1");
    assert_eq!(lanes.next(&mut input, bytes(5)), "2 3 4");
    assert_eq!(lanes.next(&mut input, bytes(3)), "5 6");
}

#[test]
fn items_of_a_batch_are_found_again_by_their_ids() {
    let plans = [plan(1, 0), plan(2, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(lane(1, 0), &[(1, 0, "1"), (5, 0, "5")]);
    lanes.commit(lane(2, 0), &[(3, 0, "3")]);
    let mut input = lanes.open(&plans);
    assert_eq!(lanes.next(&mut input, ALL), "1 3 5");
    let ItemLocation::Messages { first, last } = input.locate(&(1..3)) else {
        panic!("lanes hold messages");
    };
    let (first, last) = (first.unwrap(), last.unwrap());
    assert_eq!(
        (first.partition, first.epoch, first.index),
        (PartitionId(2), EpochId(1), 0)
    );
    assert_eq!(
        (last.partition, last.epoch, last.index),
        (PartitionId(1), EpochId(1), 1)
    );
}

#[test]
fn a_writer_is_told_what_was_committed_and_no_more() {
    let plans = [plan(1, 0)];
    let mut lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit(lane(1, 0), &[(1, 0, "1")]);
    lanes.commit(lane(1, 0), &[(1, 0, "2"), (1, 0, "3")]);
    let mut input = lanes.open(&plans);
    let two = BatchRoom { rows: 2, ..ALL };
    assert_eq!(lanes.next(&mut input, two), "1 2");
    assert_eq!(lanes.board.covered_up_to(lane(1, 0)), EpochId(0));
    lanes.commit_frontiers(&mut input);
    assert_eq!(lanes.board.covered_up_to(lane(1, 0)), EpochId(1));
    let left = lanes.board.waiting_bytes(lane(1, 0));
    assert!(left > 0, "the chunk of epoch 2 is not read to its end");
    assert_eq!(lanes.next(&mut input, two), "3");
    lanes.commit_frontiers(&mut input);
    assert_eq!(lanes.board.waiting_bytes(lane(1, 0)), 0);
}

/// Lost: the end of the run. A reader found a chunk in storage before its writer handed it on, committed
/// past it, and crashed; its successor passed the chunk over and did not say so, as its frontier
/// never moved, and the writer waited for it for ever. Found by the simulation (seed 728).
#[test]
fn a_chunk_that_a_successor_passes_over_late_is_covered() {
    let plans = [plan(1, 0)];
    let limits = LaneLimits {
        channel_bytes: 0,
        ..LaneLimits::default()
    };
    let mut lanes = Lanes::new(&plans, limits);
    let mut input = lanes.open(&plans);
    lanes.commit(lane(1, 0), &[(1, 0, "1")]);
    let second = lanes.commit_silently(lane(1, 0), &[(1, 0, "2")]);
    // The channel has room for nothing: both are read from storage.
    let mut reader = lanes.open(&plans);
    assert_eq!(lanes.next(&mut reader, ALL), "1 2");
    let (frontiers, _untold) = reader.seal();
    lanes.commit_epoch(frontiers);
    let mut successor = lanes.open(&plans);
    assert_eq!(lanes.next(&mut successor, ALL), "");
    (lanes.board).hand_on(lane(1, 0), second.epoch, &second.messages);
    assert_eq!(lanes.next(&mut successor, ALL), "");
    assert!(lanes.board.are_covered([lane(1, 0)]));
    assert_eq!(lanes.board.waiting_bytes(lane(1, 0)), 0);
    assert_eq!(
        lanes.next(&mut input, ALL),
        "1 2",
        "who has not committed reads all"
    );
}
