//! F1 on a real process: SIGKILL at any moment of the flights pipeline, fifty times on one data
//! directory, and the output is byte for byte that of an undisturbed run. The same rounds against
//! a host whose commit is broken on purpose show that the test would see it. A second pipeline has
//! sinks that two jobs append to and a map that two jobs feed: there the order of the lines of each
//! job is what must stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Finished, Running, TestHost, component, program, tidelock, workspace};

/// Times that the host is started and killed. Every third round kills during the start.
const ROUNDS: usize = 50;

/// Rounds of the pipelines that differ in one thing only.
const FEWER_ROUNDS: usize = 18;

/// One round kills after at most this many epochs have been committed.
const EPOCHS_PER_ROUND_MAX: u64 = 30;

/// What the host says while it starts; a kill during start comes after one of these lines.
const START_LINES: [&str; 5] = [
    "components admitted",
    "storage opened",
    "pipeline registered",
    "lease granted",
    "job opened",
];

const OUTPUTS: [&str; 4] = ["statistics", "alerts", "cancelled", "rejected"];

type Outputs = BTreeMap<&'static str, Vec<u8>>;

#[test]
fn f1_fifty_kills_leave_the_output_of_an_undisturbed_run() {
    let undisturbed = run_undisturbed(&tidelock(), &pipeline(|_| {}), &OUTPUTS);
    let folder = pipeline(|_| {});
    let rounds = kill_rounds(&tidelock(), &folder, ROUNDS);
    assert!(
        rounds.running_epochs_hit >= 30,
        "too few kills hit a running epoch: {rounds:?}"
    );
    assert!(rounds.meant_for_start * 3 >= ROUNDS, "{rounds:?}");
    assert!(
        rounds.starts_hit >= 10,
        "too few kills hit the start: {rounds:?}"
    );
    assert_same(&outputs(&folder, &OUTPUTS), &undisturbed);
}

#[test]
fn f1_the_kill_test_sees_a_broken_commit() {
    let broken = program("broken-host");
    let undisturbed = run_undisturbed(&tidelock(), &pipeline(|_| {}), &OUTPUTS);
    // Nothing but a kill shows what is wrong with it.
    assert_same(
        &run_undisturbed(&broken, &pipeline(|_| {}), &OUTPUTS),
        &undisturbed,
    );
    let folder = pipeline(|_| {});
    let rounds = kill_rounds(&broken, &folder, ROUNDS);
    assert!(rounds.running_epochs_hit >= 30, "{rounds:?}");
    let found = outputs(&folder, &OUTPUTS);
    let repeated: usize = OUTPUTS
        .iter()
        .map(|name| surplus(&found[name], &undisturbed[name]))
        .sum();
    println!("{repeated} lines came twice");
    assert!(
        repeated > 0,
        "a host that writes its sinks before the commit repeated no line: {rounds:?}"
    );
}

#[test]
fn f1_kills_keep_the_order_of_each_job_in_a_file_that_two_jobs_append_to() {
    const SHARED: [&str; 3] = ["statistics", "mixed", "notices"];
    let undisturbed = run_undisturbed(&tidelock(), &shared_pipeline(), &SHARED);
    let folder = shared_pipeline();
    let rounds = kill_rounds(&tidelock(), &folder, FEWER_ROUNDS);
    assert!(
        rounds.running_epochs_hit >= FEWER_ROUNDS / 3,
        "too few kills hit a running epoch: {rounds:?}"
    );
    let found = outputs(&folder, &SHARED);
    assert!(found["statistics"] == undisturbed["statistics"]);
    // Alerts are written by the job of the transform, the rest by that of the source.
    let apart = run_undisturbed(&tidelock(), &pipeline(|_| {}), &OUTPUTS);
    let alerts: BTreeSet<&[u8]> = lines(&apart["alerts"]).collect();
    for name in ["mixed", "notices"] {
        let of_job = |bytes| -> (Vec<&[u8]>, Vec<&[u8]>) {
            lines(bytes).partition(|line| alerts.contains(line))
        };
        let (found, expected) = (of_job(&found[name]), of_job(&undisturbed[name]));
        assert!(!expected.0.is_empty() && !expected.1.is_empty());
        assert!(found.0 == expected.0, "alerts in {name} differ");
        assert!(
            found.1 == expected.1,
            "lines of the source in {name} differ"
        );
    }
    assert_eq!(
        lines(&found["mixed"]).count(),
        ["alerts", "cancelled", "rejected"]
            .map(|name| lines(&apart[name]).count())
            .iter()
            .sum::<usize>(),
    );
}

#[test]
fn a1_at_least_once_consistent_is_no_weaker_than_exactly_once() {
    let undisturbed = run_undisturbed(&tidelock(), &pipeline(|_| {}), &OUTPUTS);
    let folder = pipeline(|file| {
        for name in ["parse", "delays"] {
            file["computations"][name]
                .as_table_mut()
                .expect("a computation is a table")
                .insert(
                    "processing_mode".to_owned(),
                    "at_least_once_consistent".into(),
                );
        }
    });
    let rounds = kill_rounds(&tidelock(), &folder, FEWER_ROUNDS);
    assert!(
        rounds.running_epochs_hit >= FEWER_ROUNDS / 3,
        "too few kills hit a running epoch: {rounds:?}"
    );
    assert_same(&outputs(&folder, &OUTPUTS), &undisturbed);
}

/// What the kills hit.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    seed: u64,
    meant_for_start: usize,
    /// Kills before any job had opened an epoch.
    starts_hit: usize,
    /// Kills between the opening of an epoch and its commit.
    pub(crate) running_epochs_hit: usize,
}

/// Starts and kills `host` on one data directory, then lets it run to the end.
pub(crate) fn kill_rounds(host: &Path, folder: &TestHost, count: usize) -> Rounds {
    let mut rounds = Rounds {
        seed: seed(),
        ..Rounds::default()
    };
    let mut random = Random(rounds.seed);
    for round in 0..count {
        let mut running = start(host, folder);
        if round % 3 == 0 {
            rounds.meant_for_start += 1;
            let line = START_LINES[random.below(START_LINES.len() as u64) as usize];
            running.wait_for_lines(line, 1);
        } else {
            let committed = 1 + random.below(EPOCHS_PER_ROUND_MAX);
            running.wait_for_lines("epoch committed", committed as usize);
            // And then into the next one.
            let opened = running.count_lines("epoch opened");
            running.wait_for_lines("epoch opened", opened + 1);
        }
        let killed = running.kill();
        assert!(
            killed.was_killed(),
            "round {round} ended before its kill: {:?}",
            killed.stderr.last()
        );
        assert!(
            !killed.stderr.iter().any(|line| line.starts_with("error")),
            "round {round} failed by itself: {:?}",
            killed.stderr
        );
        let has_opened = killed.stderr_text().contains("epoch opened");
        rounds.starts_hit += usize::from(!has_opened);
        rounds.running_epochs_hit += usize::from(hit_a_running_epoch(&killed));
    }
    println!("{count} kills: {rounds:?}");
    let _ = start(host, folder).wait().expect_code(0);
    rounds
}

/// Whether some job had opened an epoch and not yet said that it was committed.
fn hit_a_running_epoch(killed: &Finished) -> bool {
    let mut is_open: BTreeMap<&str, bool> = BTreeMap::new();
    for line in &killed.stderr {
        let Some(job) = line
            .split("job{")
            .nth(1)
            .and_then(|rest| rest.split('}').next())
        else {
            continue;
        };
        if line.contains("epoch opened") {
            is_open.insert(job, true);
        } else if line.contains("epoch committed") {
            is_open.insert(job, false);
        }
    }
    is_open.values().any(|open| *open)
}

fn start(host: &Path, folder: &TestHost) -> Running {
    let mut command = Command::new(host);
    command
        .current_dir(folder.folder())
        .args(["--log", "debug", "run", "tidelock.toml"]);
    Running::start(&mut command)
}

fn run_undisturbed(host: &Path, folder: &TestHost, names: &[&'static str]) -> Outputs {
    let _ = start(host, folder).wait().expect_code(0);
    outputs(folder, names)
}

fn outputs(folder: &TestHost, names: &[&'static str]) -> Outputs {
    (names.iter())
        .map(|name| (*name, folder.read(&format!("out/{name}.jsonl"))))
        .collect()
}

fn assert_same(found: &Outputs, undisturbed: &Outputs) {
    for (name, expected) in undisturbed {
        assert!(
            found[name] == *expected,
            "{name}.jsonl differs from an undisturbed run: {} lines too many, {} missing",
            surplus(&found[name], expected),
            surplus(expected, &found[name]),
        );
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

/// How many lines `these` has that `those` has not, each counted as often as it comes.
fn surplus(these: &[u8], those: &[u8]) -> usize {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    for line in lines(those) {
        *counts.entry(line).or_default() += 1;
    }
    lines(these)
        .filter(|line| match counts.get_mut(line) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        })
        .count()
}

/// The flights example in a folder of its own, with epochs so small that kills find many.
fn pipeline(adjust: impl FnOnce(&mut toml::Table)) -> TestHost {
    let folder = TestHost::new();
    let example = workspace().join("examples/flights");
    let text = std::fs::read_to_string(example.join("tidelock.toml"))
        .expect("the example has a pipeline file");
    let path = |path: PathBuf| path.display().to_string();
    let mut file: toml::Table = text.parse().expect("the example's pipeline file is TOML");
    let components = [("parse", "flights-parse"), ("delays", "flights-delays")];
    for (name, package) in components {
        file["components"][name] = path(component(package)).into();
    }
    file["sources"]["departures"]["path"] =
        path(example.join("data/flights-2013-01-week1.csv")).into();
    file.insert(
        "epoch".to_owned(),
        toml::Table::from_iter([("max_rows_per_epoch".to_owned(), 8.into())]).into(),
    );
    adjust(&mut file);
    folder.write("tidelock.toml", file.to_string());
    folder
}

/// The same with a file that the jobs of source and transform append to, and with a map that both
/// feed and whose sink both append to.
fn shared_pipeline() -> TestHost {
    pipeline(|file| {
        let guest = component("merges_streams").display().to_string();
        let more: toml::Table = format!(
            r#"
[components]
merge = {guest:?}
[computations.merge]
component = "merge"
kind = "map"
inputs = ["cancelled", "alerts"]
outputs = ["notices"]
[sinks.mixed]
type = "file"
path = "out/mixed.jsonl"
inputs = ["rejected", "cancelled", "alerts"]
[sinks.notices]
type = "file"
path = "out/notices.jsonl"
inputs = ["notices"]
"#
        )
        .parse()
        .expect("the tables are TOML");
        for (name, table) in more {
            let table = table.as_table().expect("they are tables").clone();
            let old = file[&name].as_table_mut().expect("it is a table");
            old.extend(table);
        }
        let sinks = file["sinks"].as_table_mut().expect("it is a table");
        sinks.retain(|name, _| ["statistics", "mixed", "notices"].contains(&name));
    })
}

/// A seed of the environment's, or a fixed one: the same kills after the same lines.
pub(crate) fn seed() -> u64 {
    std::env::var("TIDELOCK_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_130_107)
}

/// A small generator of numbers (SplitMix64), enough to choose where to kill.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
