//! What a reader makes of lanes: their order, their repetition, their gaps.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::epoch::BatchRoom;
use crate::engine::stream::InputMessages;
use crate::storage::contract::commit_of;
use crate::storage::memory::MemoryStorage;
use crate::storage::{CommitOutcome, Storage, leases};
use crate::types::batch::Timestamp;
use crate::types::epoch::{ChunkMessages, EpochCommit, EpochTime, FrontierAdvance, LaneChunk};
use crate::types::ids::{EpochId, LaneId, MessageId, PartitionId, PublicId, StreamId};
use crate::types::lease::Lease;
use crate::types::pipeline::LaneLimits;
use crate::types::watermark::{END_OF_TIME, LaneStep, LaneTime};
use crate::worker::board::{LaneBoard, WrittenChunk};
use crate::worker::input::lanes::LanesInput;
use crate::worker::input::{InputItems, ItemLocation};
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

    /// Commits a chunk of messages of alignment 1 and of watermark steps, in this order.
    fn commit_items(&self, lane: LaneId, items: &[Item<'_>]) {
        let mut chunk = ChunkMessages::default();
        for (index, item) in (0..).zip(items) {
            match item {
                Item::Message(payload) => push(&mut chunk, index, (1, 0, payload)),
                Item::Step(time) => chunk.steps.push(LaneStep { index, time: *time }),
            }
        }
        let chunk = self.commit_chunk(lane, chunk);
        self.board.hand_on(lane, chunk.epoch, &chunk.messages);
    }

    /// As [`Lanes::commit`], but nothing reaches the channel.
    fn commit_silently(
        &self,
        lane: LaneId,
        messages: &[(Timestamp, Timestamp, &str)],
    ) -> LaneChunk {
        let mut chunk = ChunkMessages::default();
        for (index, message) in (0..).zip(messages) {
            push(&mut chunk, index, *message);
        }
        self.commit_chunk(lane, chunk)
    }

    fn commit_chunk(&self, lane: LaneId, chunk: ChunkMessages) -> LaneChunk {
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
        self.open_at(plans, &EpochTime::default())
    }

    fn open_at(&self, plans: &[LanePlan], time: &EpochTime) -> LanesInput {
        LanesInput::open(plans, 1 << 20, time, &self.storage, &self.board).unwrap()
    }

    /// The payloads of the next batch, separated by blanks, or the watermarks of a step.
    fn next(&self, input: &mut LanesInput, room: BatchRoom) -> String {
        match input.next(room, &self.storage, &self.board).unwrap() {
            InputItems::Messages(messages) => text_of(&messages),
            InputItems::Step(watermarks) => format!("{:?}", watermarks.of_inputs()),
            InputItems::PassedOver | InputItems::Nothing => String::new(),
        }
    }

    /// All that comes next, until there is nothing more.
    fn all(&self, input: &mut LanesInput, room: BatchRoom) -> Vec<String> {
        let next = || Some(self.next(input, room)).filter(|next| !next.is_empty());
        std::iter::from_fn(next).collect()
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

/// What a lane holds.
enum Item<'a> {
    Message(&'a str),
    Step(LaneTime),
}

fn step<'a>(watermark: Timestamp) -> Item<'a> {
    Item::Step(LaneTime {
        watermark,
        is_idle: false,
    })
}

fn push(
    chunk: &mut ChunkMessages,
    index: u32,
    (alignment, time, payload): (Timestamp, Timestamp, &str),
) {
    chunk.indexes.push(index);
    chunk.key_hashes.push(0);
    chunk.keys.push(b"k");
    chunk.event_times.push(time);
    chunk.alignments.push(alignment);
    chunk.payloads.push(payload.as_bytes());
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
    let id = |partition, index| MessageId {
        partition: PartitionId(partition),
        epoch: EpochId(1),
        index,
    };
    let ids = [first, last].map(|name| name.map(|name| name.id));
    assert_eq!(ids, [Some(id(2, 0)), Some(id(1, 1))]);
    let public_ids = [id(1, 0), id(2, 0), id(1, 1)].map(PublicId::from);
    assert_eq!(input.public_ids(), public_ids);
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

#[test]
fn t1_a_step_comes_behind_the_messages_before_it_and_no_batch_reaches_across_it() {
    use Item::Message;
    let plans = [plan(1, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    let items = [Message("1"), Message("2"), step(5), Message("3"), step(7)];
    lanes.commit_items(lane(1, 0), &items);
    lanes.commit_items(lane(1, 0), &[step(8)]);
    lanes.commit_items(lane(1, 0), &[Message("4")]);
    for rows in [1_000, 1] {
        let mut input = lanes.open(&plans);
        let all = lanes.all(&mut input, BatchRoom { rows, ..ALL });
        let whole = all.join(" ");
        assert_eq!(whole, "1 2 [5] 3 [7] [8] 4", "in batches of {rows}");
    }
}

#[test]
fn t1_a_readers_watermark_is_the_least_of_its_lanes() {
    let plans = [plan(1, 0), plan(2, 0), plan(3, 1)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    let mut input = lanes.open(&plans);
    lanes.commit_items(lane(1, 0), &[step(5)]);
    lanes.commit_items(lane(3, 1), &[step(9)]);
    assert_eq!(lanes.all(&mut input, ALL), ["[0, 9]"]);
    lanes.commit_items(lane(2, 0), &[step(4)]);
    assert_eq!(lanes.all(&mut input, ALL), ["[4, 9]"]);
}

#[test]
fn t1_a_successor_goes_on_with_the_time_that_its_frontiers_remember() {
    use Item::Message;
    let plans = [plan(1, 0), plan(2, 0)];
    let mut lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit_items(lane(1, 0), &[step(5), Message("a")]);
    lanes.commit_items(lane(2, 0), &[step(6), Message("b"), step(7)]);
    let mut input = lanes.open(&plans);
    let one = BatchRoom { rows: 1, ..ALL };
    assert_eq!(lanes.next(&mut input, one), "[5]");
    assert_eq!(lanes.next(&mut input, one), "a");
    lanes.commit_frontiers(&mut input);
    let time = EpochTime {
        input_watermarks: vec![5],
        ..EpochTime::default()
    };
    let mut successor = lanes.open_at(&plans, &time);
    lanes.commit_items(lane(1, 0), &[step(9)]);
    assert_eq!(lanes.all(&mut successor, ALL), ["[6]", "b", "[7]"]);
    // In another run what the frontiers remember of the time counts no more.
    let time = EpochTime {
        run: time.run + 1,
        ..EpochTime::default()
    };
    let mut next_run = lanes.open_at(&plans, &time);
    lanes.commit_items(lane(1, 0), &[step(8)]);
    assert_eq!(lanes.all(&mut next_run, ALL), ["b", "[7]"]);
}

#[test]
fn t1_the_end_of_all_lanes_is_one_last_step() {
    use Item::Message;
    let plans = [plan(1, 0), plan(2, 0)];
    let lanes = Lanes::new(&plans, LaneLimits::default());
    lanes.commit_items(lane(1, 0), &[Message("a"), step(5)]);
    let mut input = lanes.open(&plans);
    lanes.board.close(lane(1, 0));
    assert_eq!(lanes.all(&mut input, ALL), ["a"]);
    lanes.commit_items(lane(2, 0), &[step(6), Message("b")]);
    assert_eq!(lanes.all(&mut input, ALL), ["[6]", "b"]);
    assert!(!input.is_ended());
    lanes.board.close(lane(2, 0));
    assert_eq!(lanes.all(&mut input, ALL), [format!("[{END_OF_TIME}]")]);
    assert!(input.is_ended());
}

/// A writer waits until everything that it wrote is covered: a step that changes nothing for the reader
/// has to be committed all the same.
#[test]
fn a_step_that_changes_nothing_moves_the_frontier() {
    let plans = [plan(1, 0), plan(2, 0)];
    let mut lanes = Lanes::new(&plans, LaneLimits::default());
    let mut input = lanes.open(&plans);
    lanes.commit_items(lane(1, 0), &[step(5)]);
    assert!(lanes.all(&mut input, ALL).is_empty());
    assert!(input.has_moved());
    lanes.commit_frontiers(&mut input);
    assert!(!input.has_moved());
    assert!(lanes.board.are_covered([lane(1, 0)]));
}
