//! Windows against a naive model that keeps every message and calculates each pane anew: random
//! sequences of messages and watermark steps, of all kinds and options, under many cuts.

mod model;
mod panes;
mod random;

use std::collections::BTreeSet;

use tidelock_guest::Timestamp;
use tidelock_guest::testing::TestBench;
use tidelock_guest::window::Timing;

use crate::model::Model;
use crate::panes::{Gather, Kind, Options, Row};
use crate::random::Random;

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
enum Event {
    Message { key: usize, moment: u64, id: u32 },
    Step { watermark: u64 },
    EndOfRun,
}

const KEYS: [&str; 3] = ["a", "b", "c"];

/// Plays events under all cuts and compares with the model; returns the panes.
fn check(options: &Options, events: &[Event]) -> Vec<Row> {
    let parameters = serde_json::to_string(options).expect("options are JSON");
    let bench = TestBench::<Gather>::assert_cuts_agree(&parameters, |bench| {
        for event in events {
            // What had been emitted for those who read it, before this.
            let told = bench.output_watermark();
            let emitted = bench.outputs().len();
            match *event {
                Event::Message { key, moment, id } => {
                    bench.send_json("numbers", KEYS[key], Timestamp(moment), &id);
                    continue;
                }
                Event::Step { watermark } => {
                    bench.advance_watermark("numbers", Timestamp(watermark))?;
                }
                Event::EndOfRun => {
                    bench.end_of_input()?;
                    assert_eq!(bench.state_keys("windows").count(), 0, "state is left");
                    assert_eq!(bench.timers().count(), 0, "timers are left");
                    bench.next_run();
                }
            }
            for output in &bench.outputs()[emitted..] {
                if output.stream == "panes" && output.json::<Row>().timing != Timing::Late {
                    assert!(output.event_time >= told, "{} is late", output.text());
                }
            }
        }
        bench.run()
    });
    let mut model = Model::new(options.clone());
    for event in events {
        match *event {
            Event::Message { key, moment, id } => model.message(KEYS[key], moment, id),
            Event::Step { watermark } => model.step(watermark),
            Event::EndOfRun => model.end_of_run(),
        }
    }
    let rows: Vec<Row> = (bench.outputs().iter())
        .filter(|output| output.stream == "panes")
        .map(|output| {
            let row: Row = output.json();
            assert_eq!(output.event_time.as_ms(), row.end - 1, "{row:?}");
            row
        })
        .collect();
    for key in KEYS {
        let of_key = |rows: &[Row]| -> Vec<Row> {
            rows.iter().filter(|row| row.key == key).cloned().collect()
        };
        assert_eq!(
            of_key(&rows),
            of_key(&model.panes),
            "{options:?} {events:?}"
        );
    }
    let too_late: Vec<u32> = (bench.outputs().iter())
        .filter(|output| output.stream == "too_late")
        .map(tidelock_guest::testing::Output::json)
        .collect();
    assert_eq!(too_late, model.too_late, "{options:?} {events:?}");
    rows
}

fn random_options(random: &mut Random) -> Options {
    let size = 1 + random.below(40);
    Options {
        kind: match random.below(3) {
            0 => Kind::Tumbling { size },
            1 => Kind::Sliding {
                size,
                period: 1 + random.below(size),
            },
            _ => Kind::Session { gap: size },
        },
        offset: random.below(50),
        allowed_lateness: [0, random.below(60)][random.below(2) as usize],
        early_every: (random.below(2) == 0).then(|| 1 + random.below(20)),
        early_after: (random.below(2) == 0).then(|| 1 + random.below(4) as u32),
        discarding: random.below(2) == 0,
    }
}

fn random_events(random: &mut Random) -> Vec<Event> {
    let mut events = Vec::new();
    let mut id = 0;
    for _ in 0..1 + random.below(2) {
        let mut watermark = 0;
        for _ in 0..random.below(14) {
            for _ in 0..random.below(8) {
                id += 1;
                events.push(Event::Message {
                    key: random.below(3) as usize,
                    moment: (watermark + random.below(80)).saturating_sub(40),
                    id,
                });
            }
            watermark += random.below(30);
            events.push(Event::Step { watermark });
        }
        events.push(Event::EndOfRun);
    }
    events
}

#[test]
fn windows_agree_with_a_model_that_keeps_every_message() {
    let mut seen = BTreeSet::new();
    let mut too_late = 0;
    for seed in 1..=1500 {
        let mut random = Random::new(seed);
        let options = random_options(&mut random);
        let events = random_events(&mut random);
        let rows = check(&options, &events);
        let kind = options.kind.name();
        seen.extend(rows.iter().map(|row| (kind, row.timing)));
        let messages = events
            .iter()
            .filter(|event| matches!(event, Event::Message { .. }));
        let gathered: BTreeSet<u32> = rows.iter().flat_map(|row| row.ids.clone()).collect();
        too_late += messages.count() - gathered.len();
    }
    assert_eq!(
        seen.len(),
        9,
        "each kind fires early, on time and late: {seen:?}"
    );
    assert!(too_late > 100, "only {too_late} messages were too late");
}

fn message(moment: u64, id: u32) -> Event {
    Event::Message { key: 0, moment, id }
}

fn step(watermark: u64) -> Event {
    Event::Step { watermark }
}

fn options(kind: Kind) -> Options {
    Options {
        kind,
        offset: 0,
        allowed_lateness: 0,
        early_every: None,
        early_after: None,
        discarding: false,
    }
}

/// Start, end, timing, number and ids of each pane.
fn told(rows: &[Row]) -> Vec<(u64, u64, Timing, u32, Vec<u32>)> {
    rows.iter()
        .map(|row| (row.start, row.end, row.timing, row.number, row.ids.clone()))
        .collect()
}

#[test]
fn panes_of_a_window_are_numbered_and_told_apart() {
    let with = Options {
        allowed_lateness: 20,
        early_after: Some(2),
        ..options(Kind::Tumbling { size: 10 })
    };
    let events = [
        message(1, 1),
        message(2, 2),
        message(3, 3),
        step(10),
        message(4, 4),
        step(29),
        message(5, 5),
        step(30),
        message(6, 6),
        Event::EndOfRun,
    ];
    let expected = [
        (0, 10, Timing::Early, 0, vec![1, 2]),
        (0, 10, Timing::OnTime, 1, vec![1, 2, 3]),
        (0, 10, Timing::Late, 2, vec![1, 2, 3, 4]),
        (0, 10, Timing::Late, 3, vec![1, 2, 3, 4, 5]),
    ];
    assert_eq!(told(&check(&with, &events)), expected);
    let discarding = Options {
        discarding: true,
        ..with
    };
    let ids = [vec![1, 2], vec![3], vec![4], vec![5]];
    let found: Vec<_> = check(&discarding, &events)
        .into_iter()
        .map(|row| row.ids)
        .collect();
    assert_eq!(found, ids);
}

#[test]
fn a_message_bridges_two_sessions_of_which_one_was_over() {
    let with = Options {
        allowed_lateness: 100,
        ..options(Kind::Session { gap: 10 })
    };
    let rows = check(
        &with,
        &[
            message(10, 1),
            message(28, 2),
            step(25),
            message(19, 3),
            step(38),
            message(36, 4),
            step(200),
            message(36, 5),
            Event::EndOfRun,
        ],
    );
    assert_eq!(
        told(&rows),
        [
            (10, 20, Timing::OnTime, 0, vec![1]),
            (10, 38, Timing::OnTime, 1, vec![1, 2, 3]),
            // It carries the end ahead of the watermark again.
            (10, 46, Timing::OnTime, 2, vec![1, 2, 3, 4]),
        ]
    );
}

#[test]
fn sessions_that_become_one_have_one_timer() {
    let with = Options {
        early_every: Some(8),
        ..options(Kind::Session { gap: 10 })
    };
    let parameters = serde_json::to_string(&with).expect("options are JSON");
    let bench = TestBench::<Gather>::assert_cuts_agree(&parameters, |bench| {
        for (id, moment) in [(1, 100), (2, 118), (3, 136)] {
            bench.send_json("numbers", "a", Timestamp(moment), &id);
        }
        bench.run()?;
        let triggers: Vec<u64> = bench.timers().map(|timer| timer.trigger_time.0).collect();
        assert_eq!(triggers, [8, 110, 128, 146]);
        for (id, moment) in [(4, 127), (5, 109)] {
            bench.send_json("numbers", "a", Timestamp(moment), &id);
        }
        bench.run()
    });
    let triggers: Vec<u64> = bench.timers().map(|timer| timer.trigger_time.0).collect();
    assert_eq!(
        triggers,
        [8, 110],
        "the earliest one, which moves on when it fires"
    );
}

#[test]
fn windows_at_the_end_of_time_close_at_the_end_of_the_run() {
    let last = u64::MAX;
    for kind in [
        Kind::Tumbling { size: 10 },
        Kind::Sliding {
            size: 10,
            period: 5,
        },
        Kind::Session { gap: 10 },
    ] {
        let with = Options {
            allowed_lateness: 100,
            early_every: Some(7),
            ..options(kind)
        };
        let parameters = serde_json::to_string(&with).expect("options are JSON");
        let bench = TestBench::<Gather>::assert_cuts_agree(&parameters, |bench| {
            bench.send_json("numbers", "a", Timestamp(last), &1);
            bench.advance_watermark("numbers", Timestamp(last - 1))?;
            bench.send_json("numbers", "a", Timestamp(last - 2), &2);
            bench.end_of_input()
        });
        assert_eq!(bench.timers().count(), 0);
        assert_eq!(bench.state_keys("windows").count(), 0);
        let gathered: BTreeSet<u32> = (bench.outputs().iter())
            .flat_map(|output| output.json::<Row>().ids)
            .collect();
        assert_eq!(gathered, BTreeSet::from([1, 2]), "{with:?}");
    }
}

#[test]
fn a_windows_timer_is_set_when_it_is_opened_and_not_with_each_message() {
    for kind in [
        Kind::Tumbling { size: 1000 },
        Kind::Sliding {
            size: 1000,
            period: 500,
        },
        Kind::Session { gap: 1000 },
    ] {
        let with = options(kind);
        let parameters = serde_json::to_string(&with).expect("options are JSON");
        let mut bench = TestBench::<Gather>::new(&parameters).expect("they fit");
        bench.send_json("numbers", "a", Timestamp(100), &0);
        bench.run().expect("handled");
        let first: Vec<_> = bench.timers().cloned().collect();
        for id in 1..400_u32 {
            bench.send_json("numbers", "a", Timestamp(100 + u64::from(id)), &id);
        }
        bench.run().expect("handled");
        let then: Vec<_> = bench.timers().cloned().collect();
        assert_eq!(first, then, "{with:?}");
    }
}

#[test]
fn a_key_may_not_have_more_windows_than_allowed() {
    let with = options(Kind::Tumbling { size: 10 });
    let parameters = serde_json::to_string(&with).expect("options are JSON");
    let mut bench = TestBench::<Gather>::new(&parameters).expect("they fit");
    for id in 0..panes::MAX_OPEN_WINDOWS as u32 + 1 {
        bench.send_json("numbers", "a", Timestamp(u64::from(id) * 10), &id);
    }
    let failure = bench.run().expect_err("one too many");
    assert!(
        failure.reason.contains("raise max_open_windows"),
        "{failure}"
    );
    // Another key has room of its own.
    bench.send_json("numbers", "b", Timestamp(0), &0);
    bench.run().expect("handled");
}

#[test]
fn options_without_sense_are_refused_when_the_computation_is_made() {
    let refused = |options: &Options| {
        let parameters = serde_json::to_string(options).expect("options are JSON");
        TestBench::<Gather>::new(&parameters)
            .expect_err("refused")
            .reason
    };
    let hour = options(Kind::Tumbling { size: 3_600_000 });
    let early_every = Options {
        early_every: Some(0),
        ..hour.clone()
    };
    assert!(refused(&early_every).contains("early firing"));
    let early_after = Options {
        early_after: Some(0),
        ..hour
    };
    assert!(refused(&early_after).contains("early firing"));
    assert!(refused(&options(Kind::Session { gap: 0 })).contains("the gap between sessions"));
    assert!(refused(&options(Kind::Tumbling { size: 0 })).contains("the size of a tumbling"));
}
