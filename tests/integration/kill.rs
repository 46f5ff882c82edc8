//! F1 on a real process: SIGKILL at any moment of the flights pipeline, fifty times on one data
//! directory, and the output is byte for byte that of an undisturbed run. The same rounds against
//! a host whose commit is broken on purpose show that the test would see it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use harness::{Finished, Running, TestHost, component, program, tidelock, workspace};

/// Times that the host is started and killed.
const ROUNDS: u64 = 50;

/// Kills that must hit an epoch between its opening and its commit.
const RUNNING_EPOCHS_HIT_MIN: usize = 30;

/// One round kills after at most this many epochs have been opened.
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

#[test]
fn f1_fifty_kills_leave_the_output_of_an_undisturbed_run() {
    let seed = seed();
    let undisturbed = run_undisturbed();
    let rounds = kill_rounds(&tidelock(), seed);
    println!(
        "{ROUNDS} rounds, seed {seed}: {} kills hit a running epoch, {} hit the start",
        rounds.running_epochs_hit, rounds.starts_hit,
    );
    assert!(
        rounds.running_epochs_hit >= RUNNING_EPOCHS_HIT_MIN,
        "only {} kills hit a running epoch",
        rounds.running_epochs_hit
    );
    assert!(rounds.starts_hit > 0, "no kill hit the start");
    for name in OUTPUTS {
        assert!(
            rounds.outputs[name] == undisturbed[name],
            "{name}.jsonl differs after the kills of seed {seed}"
        );
    }
}

#[test]
fn f1_the_kill_test_sees_a_broken_commit() {
    let seed = seed();
    let undisturbed = run_undisturbed();
    let rounds = kill_rounds(&program("broken-host"), seed);
    assert!(rounds.running_epochs_hit > 0, "no kill hit a running epoch");
    assert!(
        OUTPUTS
            .iter()
            .any(|name| rounds.outputs[name] != undisturbed[name]),
        "{} kills of a host that writes its sinks before the commit went unseen",
        rounds.running_epochs_hit
    );
}

/// What the rounds led to.
struct Rounds {
    running_epochs_hit: usize,
    starts_hit: usize,
    outputs: BTreeMap<&'static str, Vec<u8>>,
}

/// Starts and kills `host` on one data directory, then lets it run to the end.
fn kill_rounds(host: &PathBuf, seed: u64) -> Rounds {
    let folder = pipeline();
    let mut random = Random(seed);
    let (mut running_epochs_hit, mut starts_hit) = (0, 0);
    for round in 0..ROUNDS {
        let mut running = start(host, &folder);
        if round % 3 == 0 {
            let line = START_LINES[random.below(START_LINES.len() as u64) as usize];
            running.wait_for_lines(line, 1);
        } else {
            let epochs = 1 + random.below(EPOCHS_PER_ROUND_MAX);
            running.wait_for_lines("epoch opened", epochs as usize);
        }
        let killed = running.kill();
        assert!(
            !killed.status.success(),
            "round {round} ended before its kill: {:?}",
            killed.stderr.last()
        );
        assert!(
            !killed.stderr.iter().any(|line| line.starts_with("error")),
            "round {round} failed by itself: {:?}",
            killed.stderr
        );
        if hit_a_running_epoch(&killed) {
            running_epochs_hit += 1;
        } else if !killed
            .stderr
            .iter()
            .any(|line| line.contains("epoch opened"))
        {
            starts_hit += 1;
        }
    }
    let last = start(host, &folder).wait();
    assert!(
        last.status.success(),
        "the last run failed: {:?}",
        last.stderr
    );
    Rounds {
        running_epochs_hit,
        starts_hit,
        outputs: outputs(&folder),
    }
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

fn start(host: &PathBuf, folder: &TestHost) -> Running {
    let mut command = Command::new(host);
    command
        .current_dir(folder.folder())
        .args(["--log", "debug", "run", "tidelock.toml"]);
    Running::start(&mut command)
}

fn run_undisturbed() -> BTreeMap<&'static str, Vec<u8>> {
    let folder = pipeline();
    let finished = start(&tidelock(), &folder).wait();
    assert!(finished.status.success(), "{:?}", finished.stderr);
    outputs(&folder)
}

fn outputs(folder: &TestHost) -> BTreeMap<&'static str, Vec<u8>> {
    OUTPUTS
        .into_iter()
        .map(|name| (name, folder.read(&format!("out/{name}.jsonl"))))
        .collect()
}

/// The flights example in a folder of its own, with epochs so small that kills find many.
fn pipeline() -> TestHost {
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
    folder.write("tidelock.toml", file.to_string());
    folder
}

/// A seed of the environment's, or a fixed one: the same kills after the same lines.
fn seed() -> u64 {
    std::env::var("TIDELOCK_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_130_107)
}

/// A small generator of numbers (SplitMix64), enough to choose where to kill.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
