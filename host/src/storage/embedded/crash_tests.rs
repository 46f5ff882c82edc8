//! Crash tests: a real process runs a workload and ends hard at each numbered point between two
//! writes or syncs, or is killed at a random moment; this process opens what it left, compares it
//! with a model that knows what was acknowledged, carries the workload on to its end, and compares
//! that with an undisturbed run. Commits broken on purpose show that the comparison sees them.
//!
//! The process is this test binary, started again to run [`child`] alone.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::crash_files::{self, FileContent};
use super::crash_queues::{self, Follower, QueueContent};
use super::tests::copy_directory;
use super::*;
use crate::storage::contract::{chunk, commit_of, states, timers};
use crate::storage::queue_rows::QueueError;
use crate::storage::rows::{self, ChunkLimit};
use crate::storage::scan::ScanLimit;
use crate::storage::timer_keys::TimerKey;
use crate::storage::{CommitOutcome, Refusal, timer_rows};
use crate::types::batch::TimeDomain;
use crate::types::epoch::{FrontierAdvance, LaneTrim, SinkAppend};
use crate::types::ids::{LaneId, StreamId};
use crate::types::timer::TimerChanges;
use crate::types::watermark::LaneTime;

const PARTITIONS: u64 = 3;
/// The partition that loses its lease between look and decision.
const DOOMED: u64 = 2;
/// The round in which it does.
const DOOM_ROUND: u64 = 3;
/// Epochs of each partition in the workload that is stopped at every point.
const EPOCHS: u64 = 7;
const EXIT_CODE: i32 = 9;

const DIR: &str = "TIDELOCK_CRASH_DIR";
const STOP_AT: &str = "TIDELOCK_CRASH_STOP_AT";
const EPOCH_COUNT: &str = "TIDELOCK_CRASH_EPOCHS";
const SABOTAGE: &str = "TIDELOCK_CRASH_SABOTAGE";

// --------------------------------------------------------------------------------- points

/// Numbers the points and stops the process at one of them.
#[derive(Default)]
struct Points {
    passed: AtomicUsize,
    stop_at: usize,
    names: Mutex<Vec<&'static str>>,
    dir: PathBuf,
    /// Whose lease ends at the next decision.
    doomed: Mutex<Option<(Weak<EmbeddedStorage>, Lease)>>,
}

impl FaultPoints for Points {
    fn reach(&self, point: &'static str) -> io::Result<()> {
        let number = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.stop_at {
            std::fs::write(self.dir.join("hit"), point)?;
            std::process::exit(EXIT_CODE);
        }
        self.names.lock().unwrap().push(point);
        if point == "decide: write the heads"
            && let Some((storage, lease)) = self.doomed.lock().unwrap().take()
            && let Some(storage) = storage.upgrade()
        {
            leases::end(&*storage, lease).unwrap();
        }
        Ok(())
    }
}

fn options(points: &Arc<Points>, sabotage: Option<Sabotage>) -> EmbeddedOptions {
    EmbeddedOptions {
        // Applied now and then, at the same places in every run.
        apply_bytes: 8_000,
        apply_idle_ms: 3_600_000,
        // With some epochs before they are applied, with others as they are.
        sink_bytes: 40,
        sink_idle_ms: 3_600_000,
        faults: Arc::<Points>::clone(points),
        sabotage,
        ..EmbeddedOptions::default()
    }
}

// ------------------------------------------------------------------------------- workload

/// Where the files of one run lie.
pub(super) struct Place {
    pub(super) dir: PathBuf,
}

impl Place {
    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
    /// A sink of partition 1 alone.
    fn own(&self) -> PathBuf {
        self.dir.join("own")
    }
    /// A sink of all partitions.
    fn shared(&self) -> PathBuf {
        self.dir.join("shared")
    }
    fn acknowledged(&self) -> PathBuf {
        self.dir.join("acknowledged")
    }
}

fn lane_of(partition: u64) -> LaneId {
    LaneId {
        producer: PartitionId(partition),
        stream: StreamId(1),
        reader: PartitionId(partition % PARTITIONS + 1),
    }
}

fn shared_line(partition: u64, epoch: u64) -> String {
    format!("partition {partition} epoch {epoch}\n")
}

fn own_line(epoch: u64) -> String {
    let width = 20 + epoch as usize % 30;
    format!("{epoch:>width$}\n")
}

fn states_of(partition: u64, epoch: u64) -> BTreeMap<String, Option<String>> {
    (0..5)
        .map(|index| {
            let value = format!("{partition}/{epoch}/{index}").repeat(12);
            let is_set = !(epoch + index).is_multiple_of(4);
            (
                format!("key {}", (epoch * 3 + index) % 9),
                is_set.then_some(value),
            )
        })
        .collect()
}

/// One timer is put off from epoch to epoch.
fn timers_of(epoch: u64) -> Vec<TimerChanges> {
    let before = [("k", epoch - 1, epoch - 1)];
    let before = if epoch > 1 { &before[..] } else { &[] };
    let domain = TimeDomain::SystemTime;
    vec![timers(domain, "quiet", 1, before, &[("k", epoch, epoch)])]
}

/// The epoch, a pure function of its partition and number.
fn epoch_of(lease: Lease, epoch: u64, files: &Files) -> EpochCommit {
    let Files { own, shared, .. } = *files;
    let partition = lease.partition.0;
    let mut appends = vec![SinkAppend {
        file: shared,
        bytes: shared_line(partition, epoch).into_bytes(),
    }];
    if partition == 1 {
        appends.push(SinkAppend {
            file: own,
            bytes: own_line(epoch).into_bytes(),
        });
    }
    let mut finished_files = Vec::new();
    if partition == crash_files::WRITER {
        let file = files.rolling[&crash_files::number_of(epoch)];
        appends.push(SinkAppend {
            file,
            bytes: crash_files::line(epoch).into_bytes(),
        });
        finished_files.extend(crash_files::finishes(epoch).then_some(file));
    }
    let trims = (epoch > 2).then(|| LaneTrim {
        lane: lane_of(partition),
        epoch: EpochId(epoch - 2),
    });
    EpochCommit {
        source_position: Some(epoch.to_string().into_bytes()),
        frontiers: vec![FrontierAdvance {
            run: 1,
            time: LaneTime::default(),
            lane: LaneId {
                producer: PartitionId(77),
                stream: StreamId(7),
                reader: lease.partition,
            },
            epoch: EpochId(epoch),
            index: 1,
        }],
        states: states(states_of(partition, epoch)),
        timers: timers_of(epoch),
        chunks: vec![chunk(
            lane_of(partition),
            epoch,
            &[&format!("{partition}/{epoch}")],
        )],
        trims: trims.into_iter().collect(),
        appends,
        finished_files,
        queue_appends: crash_queues::appends_of(partition, epoch),
        ..commit_of(lease, epoch)
    }
}

/// The files that epochs write to.
struct Files {
    own: SinkFileId,
    shared: SinkFileId,
    /// Those that are finished, by number.
    rolling: BTreeMap<u64, SinkFileId>,
}

impl Files {
    /// Makes sure that there is the file that the next epoch of the one that finishes files writes to.
    fn open_next(
        &mut self,
        storage: &EmbeddedStorage,
        place: &Place,
        epochs: u64,
    ) -> Result<(), StorageError> {
        let next = storage.head(PartitionId(crash_files::WRITER))?.epoch.0 + 1;
        let number = crash_files::number_of(next);
        if next <= epochs && !self.rolling.contains_key(&number) {
            // So that the committer passes no points meanwhile, and all come in one order.
            storage.settle()?;
            let file = storage.open_sink_file(&crash_files::part(place, number))?;
            self.rolling.insert(number, file);
        }
        Ok(())
    }
}

/// Brings every partition to `epochs`, from wherever it stands.
fn run_workload(
    storage: &Arc<EmbeddedStorage>,
    points: &Points,
    place: &Place,
    epochs: u64,
    mut note: impl FnMut(String),
) -> Result<(), StorageError> {
    let mut follower = Follower::default();
    leases::end_all(&**storage)?;
    let mut files = Files {
        own: storage.open_sink_file(&place.own())?,
        shared: storage.open_sink_file(&place.shared())?,
        rolling: BTreeMap::new(),
    };
    let mut jobs = (1..=PARTITIONS)
        .map(|partition| leases::grant(&**storage, PartitionId(partition)))
        .collect::<Result<Vec<_>, _>>()?;
    for round in 1.. {
        files.open_next(storage, place, epochs)?;
        let mut group = Vec::new();
        for lease in &jobs {
            let done = storage.head(lease.partition)?.epoch.0;
            // Partition 1 has two epochs in flight.
            let in_flight = if lease.partition.0 == 1 { 2 } else { 1 };
            let next = done + 1..=epochs.min(done + in_flight);
            group.extend(next.map(|epoch| (*lease, epoch_of(*lease, epoch, &files))));
        }
        if group.is_empty() {
            break;
        }
        if round == DOOM_ROUND {
            let lease = jobs[DOOMED as usize - 1];
            *points.doomed.lock().unwrap() = Some((Arc::downgrade(storage), lease));
        }
        let names: Vec<_> = group
            .iter()
            .map(|(lease, epoch)| (*lease, epoch.epoch.0))
            .collect();
        for ((lease, epoch), ticket) in names.into_iter().zip(storage.submit_epochs(group)) {
            match ticket.wait()? {
                CommitOutcome::Committed(_) => {
                    note(format!("epoch {} {epoch}", lease.partition.0));
                }
                CommitOutcome::Refused(Refusal::LeaseLost { .. }) => {
                    // A zombie now: it tries once more, and again beside its successor. The first
                    // answer also tells that the committer has done all that it had to before: so
                    // the points come in one order.
                    for is_replaced in [false, true] {
                        if is_replaced {
                            jobs[DOOMED as usize - 1] = leases::grant(&**storage, lease.partition)?;
                        }
                        let epoch = epoch_of(lease, epoch, &files);
                        let zombie = storage.commit_epoch(lease, epoch)?;
                        assert!(matches!(zombie, CommitOutcome::Refused(_)), "{zombie:?}");
                    }
                }
                outcome => panic!("{outcome:?}"),
            }
        }
        follower.follow(&**storage, &mut note)?;
        if round % 3 == 0 {
            trim(storage, &mut note)?;
        }
        if round % 4 == 0 {
            storage.settle()?;
        }
    }
    trim(storage, &mut note)?;
    storage.settle()
}

fn trim(storage: &EmbeddedStorage, note: &mut impl FnMut(String)) -> Result<(), StorageError> {
    let before = crash_queues::trim_point(storage.head(PartitionId(1))?.epoch.0);
    storage.trim_queue(crash_queues::OWN, before)?;
    note(format!("trim own {before}"));
    Ok(())
}

/// The other process. Without its variables this test has nothing to do.
#[test]
fn child() {
    let variable = |name| std::env::var(name).ok();
    let (Some(dir), Some(stop_at), Some(epochs)) =
        (variable(DIR), variable(STOP_AT), variable(EPOCH_COUNT))
    else {
        return;
    };
    let sabotage = variable(SABOTAGE).map(|name| {
        let all = [
            Sabotage::RowsBeforeDecision,
            Sabotage::EntriesNotStaged,
            Sabotage::EntriesRemovedBeforeRows,
            Sabotage::AppendWithoutOffset,
            Sabotage::FilesFinishedBeforeRows,
            Sabotage::QueueRowsBeforeDecision,
            Sabotage::QueueRowsAtTheEnd,
            Sabotage::ChunksTrimmedBeforeBounds,
        ];
        all.into_iter()
            .find(|how| format!("{how:?}") == name)
            .expect("a known sabotage")
    });
    let place = Place {
        dir: PathBuf::from(dir),
    };
    let points = Arc::new(Points {
        stop_at: stop_at.parse().unwrap(),
        dir: place.dir.clone(),
        ..Points::default()
    });
    let storage = EmbeddedStorage::open(&place.data(), options(&points, sabotage)).unwrap();
    let storage = Arc::new(storage);
    let opened_at = points.passed.load(Ordering::SeqCst);
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(place.acknowledged())
        .unwrap();
    let note = |line: String| {
        log.write_all(format!("{line}\n").as_bytes()).unwrap();
    };
    run_workload(&storage, &points, &place, epochs.parse().unwrap(), note).unwrap();
    drop(storage);
    let names = points.names.lock().unwrap().join("\n");
    std::fs::write(place.dir.join("points"), format!("{opened_at}\n{names}")).unwrap();
}

fn start_child(place: &Place, stop_at: usize, epochs: u64, sabotage: Option<Sabotage>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "storage::embedded::crash_tests::child",
            "--test-threads=1",
        ])
        .env(DIR, &place.dir)
        .env(STOP_AT, stop_at.to_string())
        .env(EPOCH_COUNT, epochs.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(sabotage) = sabotage {
        command.env(SABOTAGE, format!("{sabotage:?}"));
    }
    command.spawn().unwrap()
}

/// Runs the child to its stop and returns the point that it stopped at, if it did.
fn run_child(place: &Place, stop_at: usize, sabotage: Option<Sabotage>) -> Option<String> {
    let status = start_child(place, stop_at, EPOCHS, sabotage)
        .wait()
        .unwrap();
    let hit = std::fs::read_to_string(place.dir.join("hit")).ok();
    let expected = if hit.is_some() { EXIT_CODE } else { 0 };
    assert_eq!(
        status.code(),
        Some(expected),
        "the child died in another way at {hit:?}"
    );
    hit
}

// ---------------------------------------------------------------------------------- model

/// All that a run leaves, leases and generations excepted.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    partitions: Vec<PartitionContent>,
    own: String,
    /// Each partition's lines, in order.
    shared: Vec<String>,
    shared_len: usize,
    queues: QueueContent,
    files: FileContent,
}

#[derive(Debug, PartialEq, Eq)]
struct PartitionContent {
    epoch: u64,
    position: Option<String>,
    frontier: Option<u64>,
    states: BTreeMap<String, String>,
    /// When each timer fires, where each holds, and how many a stream has.
    timers: [Vec<u64>; 3],
    chunks: Vec<(u64, String)>,
    record_count: usize,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the workload writes text")
}

fn read_timers(
    storage: &dyn Storage,
    partition: PartitionId,
) -> Result<[Vec<u64>; 3], StorageError> {
    let (mut fire, mut hold) = (Vec::new(), Vec::new());
    let limit = ScanLimit::rows(1_000);
    let domain = TimeDomain::SystemTime;
    let visit = |timer: TimerKey<'_>, _| fire.push(timer.trigger_time);
    timer_rows::scan_timers(storage, partition, domain, None, limit, visit)?;
    let visit = |moment, _: TimerKey<'_>| hold.push(moment);
    timer_rows::scan_timer_holds(storage, partition, None, limit, visit)?;
    let streams = timer_rows::pending_streams(storage, partition)?;
    let pending = streams.iter().map(|stream| stream.pending);
    Ok([fire, hold, pending.collect()])
}

fn read_content(storage: &dyn Storage, place: &Place) -> Result<Content, QueueError> {
    let read_partition = |partition: u64| {
        let id = PartitionId(partition);
        let lane = lane_of(partition);
        let limit = ChunkLimit {
            chunks: 10_000,
            bytes: 1 << 30,
        };
        let frontier_lane = LaneId {
            producer: PartitionId(77),
            stream: StreamId(7),
            reader: id,
        };
        let epoch = storage.head(id)?.epoch.0;
        let mut record_count = 0;
        for recorded in epoch.saturating_sub(20)..=epoch + 3 {
            let record = rows::read_epoch_record(storage, id, EpochId(recorded))?;
            record_count += usize::from(record.is_some());
        }
        Ok(PartitionContent {
            epoch,
            position: rows::read_source_position(storage, id)?.map(text),
            frontier: rows::read_frontier(storage, frontier_lane)?.map(|found| found.epoch.0),
            states: (rows::scan_states(storage, id, "count", b"", ScanLimit::rows(1_000))?
                .rows
                .into_iter())
            .map(|(key, stored)| (text(key), text(stored.value)))
            .collect(),
            timers: read_timers(storage, id)?,
            chunks: (rows::read_chunks(storage, lane, EpochId(0), limit)?.into_iter())
                .map(|(epoch, messages)| (epoch.0, text(messages.payloads.bytes)))
                .collect(),
            record_count,
        })
    };
    let partitions = (1..=PARTITIONS)
        .map(read_partition)
        .collect::<Result<Vec<_>, StorageError>>()?;
    let queues = crash_queues::read_queues(storage, PARTITIONS)?;
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let shared = read(place.shared());
    let lines_of = |partition: u64| {
        let prefix = format!("partition {partition} ");
        shared
            .split_inclusive('\n')
            .filter(|line| line.starts_with(&prefix))
            .collect()
    };
    Ok(Content {
        partitions,
        own: read(place.own()),
        shared: (1..=PARTITIONS).map(lines_of).collect(),
        shared_len: shared.len(),
        queues,
        files: crash_files::read_files(storage, place)?,
    })
}

/// What the partitions must hold when they stand at these epochs, and the trimmed queue begins at a row.
fn model(epochs: &[u64], own_start: u64) -> Content {
    let lines = |partition: u64, epoch: u64| -> String {
        (1..=epoch)
            .map(|epoch| shared_line(partition, epoch))
            .collect()
    };
    let partitions = (1..=PARTITIONS).zip(epochs).map(|(partition, &epoch)| {
        let mut states = BTreeMap::new();
        for epoch in 1..=epoch {
            for (key, value) in states_of(partition, epoch) {
                match value {
                    Some(value) => states.insert(key, value),
                    None => states.remove(&key),
                };
            }
        }
        let oldest_chunk = if epoch > 2 { epoch - 1 } else { 1 };
        PartitionContent {
            epoch,
            position: (epoch > 0).then(|| epoch.to_string()),
            frontier: (epoch > 0).then_some(epoch),
            states,
            timers: match epoch {
                0 => Default::default(),
                epoch => [vec![epoch], vec![epoch], vec![1]],
            },
            chunks: (oldest_chunk..=epoch)
                .map(|epoch| (epoch, format!("{partition}/{epoch}")))
                .collect(),
            record_count: (epoch.saturating_sub(20).max(1)..=epoch).count(),
        }
    });
    let shared: Vec<String> = (1..=PARTITIONS)
        .zip(epochs)
        .map(|(partition, epoch)| lines(partition, *epoch))
        .collect();
    Content {
        partitions: partitions.collect(),
        own: (1..=epochs[0]).map(own_line).collect(),
        shared_len: shared.iter().map(String::len).sum(),
        shared,
        queues: crash_queues::model_of_queues(epochs, own_start),
        files: crash_files::model_of_files(epochs[crash_files::WRITER as usize - 1]),
    }
}

/// Opens what a dead process left and compares it with the model: acknowledged epochs are there, any
/// other one whole or not at all; then brings the workload to its end.
fn check_and_finish(place: &Place, epochs: u64, sabotage: Option<Sabotage>) -> Result<(), String> {
    let points = Arc::new(Points::default());
    let show = |error: StorageError| error.to_string();
    let storage = EmbeddedStorage::open(&place.data(), options(&points, sabotage)).map_err(show)?;
    let storage = Arc::new(storage);
    check_against_model(&storage, place, epochs)?;
    run_workload(&storage, &points, place, epochs, drop).map_err(show)?;
    let found = read_content(&*storage, place).map_err(|error| error.to_string())?;
    let expected = model(
        &[epochs; PARTITIONS as usize],
        crash_queues::trim_point(epochs),
    );
    match found == expected {
        true => Ok(()),
        false => Err(format!("at the end {found:?} instead of {expected:?}")),
    }
}

fn check_against_model(
    storage: &EmbeddedStorage,
    place: &Place,
    epochs: u64,
) -> Result<(), String> {
    let damaged = storage.damaged();
    if !damaged.is_empty() {
        return Err(format!("damaged: {damaged:?}"));
    }
    let found = read_content(storage, place).map_err(|error| error.to_string())?;
    let heads: Vec<u64> = found
        .partitions
        .iter()
        .map(|partition| partition.epoch)
        .collect();
    let log = std::fs::read_to_string(place.acknowledged()).unwrap_or_default();
    let (mut trimmed, mut seen) = (0, BTreeMap::new());
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "epoch" if heads[number(1) as usize - 1] < number(2) => {
                return Err(format!("{line} was acknowledged and is lost: {heads:?}"));
            }
            "row" => drop(seen.insert(number(1), words[2].to_owned())),
            "trim" => trimmed = number(2),
            _ => {}
        }
    }
    crash_queues::check_seen(storage, &seen)?;
    if heads.iter().any(|head| *head > epochs) {
        return Err(format!("nobody made these epochs: {heads:?}"));
    }
    let own_start = found.queues.own_start();
    if own_start < trimmed || own_start > crash_queues::trim_point(heads[0]) {
        return Err(format!("begins at row {own_start}, trimmed to {trimmed}"));
    }
    let expected = model(&heads, own_start);
    match found == expected {
        true => Ok(()),
        false => Err(format!("after the crash {found:?} instead of {expected:?}")),
    }
}

fn new_place(root: &Path, name: &str) -> Place {
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    Place { dir }
}

/// Runs the workload undisturbed in a process of its own. Returns the points and how many of them
/// were passed while opening.
fn count_points(root: &Path, sabotage: Option<Sabotage>) -> (Vec<String>, usize) {
    let place = new_place(root, &format!("undisturbed {sabotage:?}"));
    assert_eq!(run_child(&place, 0, sabotage), None);
    let listed = std::fs::read_to_string(place.dir.join("points")).unwrap();
    let mut lines = listed.lines();
    let opened_at = lines.next().unwrap().parse().unwrap();
    if sabotage.is_none() {
        let storage = EmbeddedStorage::open(&place.data(), EmbeddedOptions::default()).unwrap();
        let own_start = crash_queues::trim_point(EPOCHS);
        let expected = model(&[EPOCHS; PARTITIONS as usize], own_start);
        assert!(own_start > 0, "nothing was trimmed");
        assert_eq!(
            read_content(&storage, &place).unwrap(),
            expected,
            "the undisturbed run"
        );
    }
    (lines.map(str::to_owned).collect(), opened_at)
}

// ---------------------------------------------------------------------------------- tests

#[test]
fn f1_a_process_stopped_at_any_point_loses_and_repeats_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (points, _) = count_points(root.path(), None);
    let next = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(name) = points.get(number - 1) else {
                        return;
                    };
                    let place = new_place(root.path(), &format!("stopped at {number}"));
                    let hit = run_child(&place, number, None);
                    assert_eq!(hit.as_ref(), Some(name), "point {number}");
                    if let Err(finding) = check_and_finish(&place, EPOCHS, None) {
                        panic!("point {number} ({name}): {finding}");
                    }
                    std::fs::remove_dir_all(&place.dir).unwrap();
                }
            });
        }
    });
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &points {
        *by_name.entry(name).or_default() += 1;
    }
    println!("{} points, each of them hit:", points.len());
    for (name, count) in &by_name {
        println!("{count:>5}  {name}");
    }
    let expected = [
        "stage: write the entries",
        "stage: sync the entries",
        "decide: write the heads",
        "decide: flush the heads",
        "decide: sync the heads",
        "decide: remove refused entries",
        "apply: write to a sink file",
        "apply: sync a sink file",
        "apply: write the rows",
        "settle: sync the rows",
        "finish: sync the rows",
        "finish: rename the file",
        "finish: sync the folder",
        "finish: remove the length",
        "trim: write the rows",
        "trim: sync the rows",
        "catalog: sync the rows",
        "sink: make the file",
        "open: sync the rows",
    ];
    for name in expected {
        assert!(
            by_name.contains_key(name),
            "the workload never came to {name}"
        );
    }
    let is_ahead =
        |pair: &[String]| pair[0] == "apply: sync a sink file" && pair[1].starts_with("stage");
    assert!(
        points.windows(2).any(is_ahead),
        "sink bytes were never ahead of the rows"
    );
}

#[test]
fn f1_a_process_stopped_while_it_recovers_loses_and_repeats_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (points, _) = count_points(root.path(), None);
    // Stopped at a decision with decided epochs behind it: there is a chain to follow, and there
    // are entries that nobody decided.
    let last_apply = points
        .iter()
        .rposition(|name| name.starts_with("apply"))
        .unwrap();
    let decision = "decide: write the heads";
    let number = 1 + points[..last_apply]
        .iter()
        .rposition(|name| name == decision)
        .unwrap();
    let left = new_place(root.path(), "left behind");
    assert_eq!(run_child(&left, number, None).as_deref(), Some(decision));
    std::fs::remove_file(left.dir.join("hit")).unwrap();
    let mut names = Vec::new();
    for number in 1.. {
        let place = new_place(root.path(), &format!("recovery {number}"));
        copy_directory(&left.dir, &place.dir);
        let hit = run_child(&place, number, None).expect("the workload passes more points");
        if hit.starts_with("catalog") {
            break;
        }
        if let Err(finding) = check_and_finish(&place, EPOCHS, None) {
            panic!("point {number} ({hit}): {finding}");
        }
        names.push(hit);
    }
    println!(
        "{} points of a recovery, each of them hit: {names:?}",
        names.len()
    );
    for name in [
        "apply: write to a sink file",
        "apply: write the rows",
        "open: sync the rows",
    ] {
        assert!(
            names.iter().any(|hit| hit == name),
            "the recovery never came to {name}"
        );
    }
}

/// The control: some stop of a broken commit must be seen.
fn check_sabotage_is_seen(sabotage: Sabotage) {
    let root = tempfile::tempdir().unwrap();
    let (points, opened_at) = count_points(root.path(), Some(sabotage));
    let candidates = (points.iter().enumerate().skip(opened_at)).filter(|(_, name)| {
        ["stage", "decide", "apply", "finish", "trim"]
            .iter()
            .any(|step| name.starts_with(step))
    });
    for (index, name) in candidates {
        let place = new_place(root.path(), &format!("stopped at {index}"));
        assert_eq!(
            run_child(&place, index + 1, Some(sabotage)).as_ref(),
            Some(name)
        );
        if let Err(finding) = check_and_finish(&place, EPOCHS, Some(sabotage)) {
            let finding: String = finding.chars().take(200).collect();
            println!(
                "{sabotage:?} seen at point {} ({name}): {finding}",
                index + 1
            );
            return;
        }
        std::fs::remove_dir_all(&place.dir).unwrap();
    }
    panic!("{sabotage:?} was not seen at any point");
}

#[test]
fn rows_written_before_the_decision_are_seen() {
    check_sabotage_is_seen(Sabotage::RowsBeforeDecision);
}

#[test]
fn decisions_without_a_staged_entry_are_seen() {
    check_sabotage_is_seen(Sabotage::EntriesNotStaged);
}

#[test]
fn entries_removed_before_their_rows_are_written_are_seen() {
    check_sabotage_is_seen(Sabotage::EntriesRemovedBeforeRows);
}

#[test]
fn sink_bytes_written_without_an_offset_are_seen() {
    check_sabotage_is_seen(Sabotage::AppendWithoutOffset);
}

#[test]
fn files_finished_before_their_rows_are_applied_are_seen() {
    check_sabotage_is_seen(Sabotage::FilesFinishedBeforeRows);
}

#[test]
fn queue_rows_written_before_the_decision_are_seen() {
    check_sabotage_is_seen(Sabotage::QueueRowsBeforeDecision);
}

#[test]
fn queue_rows_put_elsewhere_than_their_entry_says_are_seen() {
    check_sabotage_is_seen(Sabotage::QueueRowsAtTheEnd);
}

#[test]
fn chunks_trimmed_before_the_bounds_are_seen() {
    check_sabotage_is_seen(Sabotage::ChunksTrimmedBeforeBounds);
}

#[test]
fn f1_a_process_killed_at_random_moments_loses_and_repeats_nothing() {
    const ROUNDS: u64 = 20;
    /// More than the rounds come to.
    const EPOCHS: u64 = 100_000;
    const FINISH_EXTRA: u64 = 5;
    let root = tempfile::tempdir().unwrap();
    let place = new_place(root.path(), "killed");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let (_sender, never) = mpsc::channel::<()>();
    let acknowledged = || std::fs::metadata(place.acknowledged()).map_or(0, |file| file.len());
    let (mut running, mut starting) = (0, 0);
    for round in 0..ROUNDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let before = acknowledged();
        let mut child = start_child(&place, 0, EPOCHS, None);
        if round % 3 == 2 {
            // Somewhere in its start.
            let _ = never.recv_timeout(Duration::from_micros(20_000 + random % 60_000));
        } else {
            // After so many bytes of acknowledgements, and a little later.
            let enough = before + 16 * (1 + random % 300);
            for _ in 0..20_000 {
                if acknowledged() >= enough {
                    break;
                }
                let _ = never.recv_timeout(Duration::from_micros(500));
            }
            assert!(acknowledged() >= enough, "the child makes no progress");
            let _ = never.recv_timeout(Duration::from_micros(random % 2_000));
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
        match acknowledged() > before {
            true => running += 1,
            false => starting += 1,
        }
        let points = Arc::new(Points::default());
        let storage = EmbeddedStorage::open(&place.data(), options(&points, None)).unwrap();
        if let Err(finding) = check_against_model(&storage, &place, EPOCHS) {
            panic!("round {round}: {finding}");
        }
    }
    println!("{running} kills hit running epochs, {starting} the start");
    assert!(running >= 10, "only {running} kills hit running epochs");
    let points = Arc::new(Points::default());
    let storage = EmbeddedStorage::open(&place.data(), options(&points, None)).unwrap();
    let heads =
        (1..=PARTITIONS).map(|partition| storage.head(PartitionId(partition)).unwrap().epoch.0);
    let end = heads.max().unwrap() + FINISH_EXTRA;
    drop(storage);
    check_and_finish(&place, end, None).unwrap();
}
