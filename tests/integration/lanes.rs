//! What lanes leave in a data directory: as little as there are lanes, and everything that waits.

use harness::TestHost;
use tidelock::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use tidelock::storage::{Storage, keys, rows};
use tidelock::types::ids::{EpochId, LaneId, PartitionId};

use crate::example::{limit_epochs, line_count, pipeline, write_lines, write_pipeline};
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
fn d2_files_that_come_and_go_leave_nothing_at_their_readers() {
    const DAYS: usize = 6;
    let partitions = 4;
    let edit = |file: &mut toml::Table, name: &str| {
        partitioned(partitions)(file);
        file["sources"]["departures"]["path"] = name.into();
    };
    let folder = TestHost::new();
    for day in 0..DAYS {
        let name = format!("day-{day}.csv");
        // No day is another one's beginning.
        write_lines(&folder, 200 + day);
        let lines = folder.read("flights.csv");
        folder.write(&name, [format!("day {day}\n").as_bytes(), &lines].concat());
        write_pipeline(&folder, |file| edit(file, &name));
        run(&folder);
        let expected = LaneRows {
            frontiers: partitions as usize,
            chunks: 0,
            waiting_chunks: 0,
        };
        assert_eq!(lane_rows(&folder), expected, "day {day}");
    }
    // A file that comes back after its frontiers went is read on, and nothing of it twice.
    let count = rows_count(&folder);
    let first = "day-0.csv";
    write_pipeline(&folder, |file| edit(file, first));
    run(&folder);
    assert_eq!(rows_count(&folder), count);
    let line = folder.read(first);
    let line = line.split_inclusive(|byte| *byte == b'\n').nth(5);
    let grown = [&folder.read(first)[..], line.expect("it has lines")].concat();
    folder.write(first, grown);
    run(&folder);
    assert_eq!(rows_count(&folder), count + 1, "the new line is taken");
}

fn rows_count(folder: &TestHost) -> usize {
    line_count(folder, "out/statistics.jsonl")
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
