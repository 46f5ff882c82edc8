//! The simulation: random pipelines run over storage in memory while jobs crash, leases move and
//! commits fail, at any step and in any order. One seed is one run, on one thread, by a clock of its
//! own; the same seed makes the same run again.
//!
//! `cargo xtask simulate [--seed S] [--runs N]` runs other seeds than the test does. Reading order:
//! [`world`] makes a run, [`checkers`] judge it, [`mutation`] breaks the engine to show that they do.

mod ages;
mod backpressure;
mod checkers;
mod clock;
mod deployment;
mod disturbance;
mod faults;
mod graph;
mod guests;
mod history;
mod items;
mod layouts;
mod merge;
mod model;
mod mutation;
mod order;
mod pipeline;
mod queues;
mod random;
mod record_source;
mod replay;
mod sequence;
mod standing;
mod start;
mod storage;
mod stored;
mod time_options;
mod timer_book;
mod watermarks;
mod worker;
mod world;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;

use crate::checkers::{Checker, Finding};
use crate::faults::{Fault, FaultCounts};
use crate::guests::Guests;
use crate::mutation::Mutation;
use crate::world::Verdict;

/// Names the first seed, in place of [`FIRST_SEED`].
const SEED_VARIABLE: &str = "TIDELOCK_SIMULATION_SEED";
/// Names the number of seeds, in place of [`RUNS`].
const RUNS_VARIABLE: &str = "TIDELOCK_SIMULATION_RUNS";
/// The first seed of a test.
const FIRST_SEED: u64 = 1;
/// How many seeds a test runs.
const RUNS: u64 = 1_000;
/// Seeds within which every mutation is caught by the checker that has to.
const MUTATION_SEEDS: u64 = 40;
/// So many of them are enough.
const CATCHES_ENOUGH: usize = 3;
/// Seeds between two lines about progress.
const SEEDS_PER_LINE: u64 = 100;
/// Threads that run seeds, each its own ones.
const THREADS: usize = 2;
/// Stack of such a thread: guests run on it.
const STACK_BYTES: usize = 8 << 20;

static GUESTS: LazyLock<Guests> = LazyLock::new(Guests::load);

#[test]
fn whatever_goes_wrong_each_input_counts_once() {
    let first = from_environment(SEED_VARIABLE, FIRST_SEED);
    let runs = from_environment(RUNS_VARIABLE, RUNS);
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Sum::default());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || {
                    loop {
                        let run = next.fetch_add(1, Ordering::Relaxed);
                        if run >= runs {
                            return;
                        }
                        let seed = first.wrapping_add(run);
                        let verdict = run_seed(seed, None);
                        let mut sum = sum.lock().expect("nobody panics with the sum");
                        sum.add(seed, &verdict, runs);
                    }
                })
                .expect("a thread can be started");
        }
    });
    let sum = sum.into_inner().expect("nobody panics with the sum");
    println!(
        "{} seeds, {} epochs; faults made:\n{}",
        sum.seeds, sum.epochs, sum.counts
    );
    assert!(sum.failed.is_empty(), "{}", sum.failures());
    // Fewer seeds need not meet every fault.
    for fault in Fault::ALL.into_iter().filter(|_| runs >= RUNS) {
        assert!(sum.counts.of(fault) > 0, "no seed made the fault {fault:?}");
    }
}

#[test]
fn a_seed_makes_the_same_run_again() {
    let mut histories = BTreeSet::new();
    for seed in 0..10 {
        let (first, second) = (run_seed(seed, None), run_seed(seed, None));
        assert!(
            first == second,
            "seed {seed} made two different runs: {}",
            difference(&first, &second)
        );
        histories.insert(first.history);
    }
    assert_eq!(histories.len(), 10, "different seeds make different runs");
}

/// Where two runs part.
fn difference(first: &Verdict, second: &Verdict) -> String {
    let same = first.history.bytes().zip(second.history.bytes());
    let at = same.take_while(|(left, right)| left == right).count();
    let around = |history: &str| {
        let (start, end) = (at.saturating_sub(300), (at + 100).min(history.len()));
        String::from_utf8_lossy(&history.as_bytes()[start..end]).into_owned()
    };
    format!(
        "{} and {} epochs, {:?} and {:?}, first at byte {at}:\n{}\n{}",
        first.epochs,
        second.epochs,
        first.findings,
        second.findings,
        around(&first.history),
        around(&second.history)
    )
}

#[test]
fn a_broken_engine_is_found_out() {
    for mutation in Mutation::ALL {
        let mut caught = Vec::new();
        let mut by = BTreeSet::new();
        for seed in 0..MUTATION_SEEDS {
            let found = run_seed(seed, Some(mutation)).findings;
            let found = found.iter().map(|finding| finding.checker);
            // That a broken engine stands still or panics is no merit of the checkers, unless it is
            // all that can be seen of it.
            let found =
                found.filter(|by| *by == mutation.checker() || by.judges_what_was_decided());
            let found: BTreeSet<Checker> = found.collect();
            if found.contains(&mutation.checker()) {
                caught.push(seed);
            }
            by.extend(found);
            if caught.len() == CATCHES_ENOUGH {
                break;
            }
        }
        println!("{mutation:?}: caught by {by:?} in seeds {caught:?}");
        assert!(!caught.is_empty(), "{mutation:?} gets through");
    }
}

/// What came of many seeds.
#[derive(Default)]
struct Sum {
    seeds: u64,
    epochs: usize,
    counts: FaultCounts,
    failed: Vec<(u64, Vec<Finding>)>,
}

impl Sum {
    fn add(&mut self, seed: u64, verdict: &Verdict, runs: u64) {
        self.seeds += 1;
        self.epochs += verdict.epochs;
        self.counts.add_all(&verdict.counts);
        if !verdict.findings.is_empty() {
            self.failed.push((seed, verdict.findings.clone()));
            println!("seed {seed} failed");
        }
        if self.seeds.is_multiple_of(SEEDS_PER_LINE) {
            println!(
                "{} of {runs} seeds, {} failed",
                self.seeds,
                self.failed.len()
            );
        }
    }

    /// The first failed seeds, each with the command that repeats it.
    fn failures(&self) -> String {
        let mut text = format!("{} of {} seeds failed\n", self.failed.len(), self.seeds);
        for (seed, findings) in self.failed.iter().take(5) {
            text.push_str(&format!(
                "seed {seed}; repeat it by `cargo xtask simulate --seed {seed} --runs 1`\n"
            ));
            for finding in findings.iter().take(8) {
                text.push_str(&format!("  {:?}: {}\n", finding.checker, finding.text));
            }
        }
        text
    }
}

/// Runs a seed; a panic is a finding.
fn run_seed(seed: u64, mutation: Option<Mutation>) -> Verdict {
    let run = catch_unwind(AssertUnwindSafe(|| world::run(seed, mutation, &GUESTS)));
    run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict {
            findings: vec![Finding {
                checker: Checker::Panics,
                text: format!("panicked: {}", text.unwrap_or_default()),
            }],
            counts: FaultCounts::default(),
            epochs: 0,
            history: String::new(),
        }
    })
}

fn from_environment(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
        Err(_) => default,
    }
}
