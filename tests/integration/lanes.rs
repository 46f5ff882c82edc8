//! What lanes leave in a data directory: as little as there are lanes, and everything that waits.

use harness::TestHost;
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::{Storage, keys, rows};
use tidelock::types::ids::{EpochId, LaneId, PartitionId};

use crate::example::{limit_epochs, pipeline};
use crate::partitions::{partitioned, rows_by_key, run};

/// More partitions than any of these pipelines ever has.
const PARTITIONS_MAX: u64 = 100;
/// More rows than any of these lanes leaves.
const ROWS_MAX: usize = 100_000;

/// How many rows of lanes a data directory has.
#[derive(Debug, PartialEq, Eq)]
struct LaneRows {
    frontiers: usize,
    chunks: usize,
    /// Chunks of which their reader has not passed all.
    waiting_chunks: usize,
}

fn lane_rows(folder: &TestHost) -> LaneRows {
    let data = folder.path(".tidelock");
    let storage = EmbeddedStorage::open(&data, EmbeddedOptions::default());
    let storage = storage.expect("nobody else has it");
    let count = |prefix: u8| {
        let (start, end) = (vec![prefix], keys::prefix_end(&[prefix]));
        let keys = storage.scan_keys(&start, &end, ROWS_MAX);
        keys.expect("the store is sound").len()
    };
    let lanes = (1..PARTITIONS_MAX).flat_map(|producer| {
        rows::lanes_kept(&storage, PartitionId(producer)).expect("the store is sound")
    });
    LaneRows {
        frontiers: count(keys::FRONTIER),
        chunks: count(keys::CHUNK),
        waiting_chunks: lanes.map(|lane| waiting_chunks(&storage, lane)).sum(),
    }
}

fn waiting_chunks(storage: &dyn Storage, lane: LaneId) -> usize {
    let frontier = rows::read_frontier(storage, lane).expect("it can be read");
    let passed = frontier.map_or(EpochId::NONE, |frontier| frontier.epoch);
    let waiting = rows::chunk_epochs(storage, lane, passed.next(), EpochId(u64::MAX));
    waiting.expect("the store is sound").len()
}

/// Kills the run after this many commits; the rows of lanes that it leaves.
fn kill_after(folder: &TestHost, commits: usize) -> LaneRows {
    let mut running = folder.start(["--log", "debug", "run", "."]);
    running.wait_for_lines("epoch committed", commits);
    assert!(running.kill().was_killed(), "killed before its end");
    lane_rows(folder)
}

#[test]
fn d2_what_deduplication_remembers_is_a_position_for_each_lane_however_many_messages() {
    for partitions in [1, 4] {
        for lines in [300, 6_000] {
            let folder = pipeline(lines, partitioned(partitions));
            // Messages that come again: what was not committed before a kill.
            for commits in [2, 5] {
                let left = kill_after(&folder, commits);
                assert!(left.frontiers <= partitions as usize, "{left:?}");
            }
            run(&folder);
            let expected = LaneRows {
                frontiers: partitions as usize,
                chunks: 0,
                waiting_chunks: 0,
            };
            assert_eq!(lane_rows(&folder), expected, "{lines} lines");
        }
    }
}

#[test]
fn f3_messages_that_wait_in_lanes_survive_a_kill() {
    let edit = |file: &mut toml::Table| limit_epochs(file, 32);
    let undisturbed = pipeline(3_000, edit);
    run(&undisturbed);
    let folder = pipeline(3_000, edit);
    let mut waited = 0;
    for commits in [3, 9, 20, 14, 6] {
        let left = kill_after(&folder, commits);
        waited += left.waiting_chunks;
    }
    assert!(waited > 0, "no kill left a message in a lane");
    println!("{waited} chunks waited in lanes when their process was killed");
    run(&folder);
    for name in ["statistics", "alerts"] {
        assert_eq!(
            rows_by_key(&folder, name),
            rows_by_key(&undisturbed, name),
            "{name}"
        );
    }
    assert_eq!(lane_rows(&folder).chunks, 0, "nothing waits any more");
}
