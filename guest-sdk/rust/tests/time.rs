//! What a computation may rely on about time, shown on one that keeps a script of what to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;
use tidelock_guest::testing::{StandingTimer, TestBench};

#[derive(Streams)]
enum Inputs {
    Scripts,
    Others,
}

#[derive(Streams)]
enum Outputs {
    Fired,
}

/// Not declared in the order of their names.
#[derive(Timers)]
enum Alarms {
    Zulu,
    Alpha,
    #[timer(system_time)]
    Clock,
}

#[derive(State)]
struct Keyed {
    script: Value<Vec<Line>>,
}

/// Something to do, at once or when a timer fires.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    /// The timer that it belongs to; at once if none.
    when: Option<(String, u64)>,
    deed: Deed,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Deed {
    Set(String, u64),
    Carry(String, u64, u64),
    Cancel(String, u64),
    SetAfter(u64),
    Fail,
}
use Deed::{Cancel, Carry, Fail, Set, SetAfter};

struct Scripted;

impl Scripted {
    fn act(effects: &mut Effects<Outputs, Alarms>, deed: &Deed) -> Result<()> {
        let stream = |name: &str| match name {
            "zulu" => Alarms::Zulu,
            _ => Alarms::Alpha,
        };
        match deed {
            Set(name, at) => effects.timer(stream(name)).set_at(Timestamp(*at)),
            Carry(name, at, event_time) => effects
                .timer(stream(name))
                .event_time(Timestamp(*event_time))
                .set_at(Timestamp(*at)),
            Cancel(name, at) => effects.timer(stream(name)).cancel_at(Timestamp(*at)),
            SetAfter(ms) => effects
                .timer(Alarms::Clock)
                .set_after(Duration::from_millis(*ms)),
            Fail => bail!("told to fail"),
        }
    }
}

impl Transform for Scripted {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = Alarms;
    type State = Keyed;

    fn new(_: NoParameters) -> Result<Scripted> {
        Ok(Scripted)
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        let lines: Vec<Line> = message.json()?;
        for line in &lines {
            if line.when.is_none() {
                Scripted::act(effects, &line.deed)?;
            }
        }
        let script = state.script.get_or_default()?;
        script.extend(lines.into_iter().filter(|line| line.when.is_some()));
        Ok(())
    }

    fn on_timer(
        &self,
        timer: &Timer<Alarms>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        let name = match timer.stream() {
            Alarms::Zulu => "zulu",
            Alarms::Alpha => "alpha",
            Alarms::Clock => "clock",
        };
        let at = timer.trigger_time().as_ms();
        effects
            .emit(Outputs::Fired)
            .bytes(format!("{at} {name} {}", timer.key_text()?));
        for line in state.script.get_or_default()?.iter() {
            if line.when == Some((name.to_owned(), at)) {
                Scripted::act(effects, &line.deed)?;
            }
        }
        Ok(())
    }
}

type Bench = TestBench<Scripted>;

fn now(deed: Deed) -> Line {
    Line { when: None, deed }
}

fn when(name: &str, at: u64, deed: Deed) -> Line {
    Line {
        when: Some((name.to_owned(), at)),
        deed,
    }
}

fn set(name: &str, at: u64) -> Deed {
    Set(name.to_owned(), at)
}

fn bench() -> Bench {
    Bench::new("{}").expect("no parameters")
}

fn send(bench: &mut Bench, key: &str, lines: &[Line]) {
    bench.send_json("scripts", key, Timestamp(5), &lines);
}

fn standing(bench: &Bench) -> Vec<(u64, String, String)> {
    let text = |timer: &StandingTimer| {
        let key = String::from_utf8_lossy(&timer.key).into_owned();
        (timer.trigger_time.0, timer.name.clone(), key)
    };
    bench.timers().map(text).collect()
}

#[test]
fn timers_fire_by_trigger_then_name_of_the_stream_then_key() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        for key in ["b", "a"] {
            send(bench, key, &[now(set("zulu", 10)), now(set("alpha", 10))]);
            send(bench, key, &[now(set("zulu", 9)), now(set("alpha", 11))]);
        }
        bench.advance_watermarks(Timestamp(10))
    });
    assert_eq!(
        bench.payloads("fired"),
        [
            "9 zulu a",
            "9 zulu b",
            "10 alpha a",
            "10 alpha b",
            "10 zulu a",
            "10 zulu b"
        ]
    );
    assert_eq!(
        standing(&bench),
        [
            (11, "alpha".to_owned(), "a".to_owned()),
            (11, "alpha".to_owned(), "b".to_owned())
        ]
    );
}

#[test]
fn a_timer_that_a_handler_sets_fires_at_its_place_between_those_of_other_keys() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &[now(set("zulu", 10))]);
        send(bench, "a", &[when("zulu", 10, set("alpha", 20))]);
        send(bench, "a", &[when("alpha", 20, set("zulu", 20))]);
        for (key, at) in [("b", 15), ("c", 25), ("d", 20)] {
            send(bench, key, &[now(set("alpha", at))]);
        }
        bench.advance_watermarks(Timestamp(100))
    });
    assert_eq!(
        bench.payloads("fired"),
        [
            "10 zulu a",
            "15 alpha b",
            "20 alpha a",
            "20 alpha d",
            "20 zulu a",
            "25 alpha c"
        ]
    );
}

#[test]
fn a_timer_at_or_before_the_place_of_its_handlers_waits_for_the_next_step() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &[now(set("zulu", 20))]);
        for (name, at) in [("zulu", 20), ("alpha", 20), ("zulu", 19)] {
            send(bench, "a", &[when("zulu", 20, set(name, at))]);
        }
        bench.advance_watermarks(Timestamp(50))?;
        assert_eq!(bench.payloads("fired"), ["20 zulu a"]);
        assert_eq!(standing(bench).len(), 3);
        // The watermark stands where it stood, and it is a step all the same.
        bench.advance_watermarks(Timestamp(50))
    });
    assert_eq!(
        bench.payloads("fired"),
        ["20 zulu a", "19 zulu a", "20 alpha a", "20 zulu a"]
    );
}

#[test]
fn a_handler_can_cancel_a_timer_that_is_due_behind_it() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &[now(set("zulu", 10)), now(set("alpha", 20))]);
        let cancel = Cancel("alpha".to_owned(), 20);
        send(bench, "a", &[when("zulu", 10, cancel)]);
        bench.advance_watermarks(Timestamp(50))
    });
    assert_eq!(bench.payloads("fired"), ["10 zulu a"]);
    assert_eq!(bench.timers().count(), 0);
}

#[test]
fn at_the_end_of_the_input_timers_fire_once_and_what_they_set_waits_for_the_next_run() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &[now(set("zulu", 10)), now(SetAfter(5))]);
        send(bench, "a", &[when("zulu", 10, set("alpha", 20))]);
        send(bench, "a", &[when("zulu", 10, set("alpha", 30))]);
        send(bench, "b", &[now(set("alpha", 25))]);
        bench.end_of_input()?;
        assert_eq!(bench.payloads("fired"), ["10 zulu a", "25 alpha b"]);
        assert!(bench.timers().all(|timer| timer.event_time == Timestamp(5)));
        assert_eq!(standing(bench).len(), 3, "two wait, and the clock's");
        bench.advance_watermarks(Timestamp(20))?;
        assert_eq!(bench.payloads("fired").len(), 2, "the run has ended");

        bench.next_run();
        send(bench, "b", &[now(set("alpha", 21))]);
        bench.advance_watermarks(Timestamp(20))?;
        assert_eq!(bench.payloads("fired")[2..], ["20 alpha a"]);
        bench.advance_watermarks(Timestamp(30))
    });
    assert_eq!(bench.payloads("fired")[3..], ["21 alpha b", "30 alpha a"]);
    assert_eq!(standing(&bench).len(), 1, "the clock's");
}

#[test]
fn a_timer_that_is_set_again_at_the_end_of_the_input_waits_too() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &[now(set("zulu", 10)), now(set("alpha", 20))]);
        send(bench, "a", &[when("zulu", 10, set("alpha", 20))]);
        bench.end_of_input()
    });
    assert_eq!(bench.payloads("fired"), ["10 zulu a"]);
    assert_eq!(standing(&bench).len(), 1);
}

#[test]
#[should_panic(expected = "the input has ended")]
fn nothing_comes_after_the_end_of_the_input() {
    let mut bench = bench();
    bench.end_of_input().expect("nothing is due");
    send(&mut bench, "a", &[]);
}

#[test]
fn system_time_timers_wait_at_least_a_millisecond_and_replace_each_other() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "b", &[now(SetAfter(0))]);
        send(bench, "b", &[when("clock", 1, SetAfter(0))]);
        send(bench, "a", &[now(SetAfter(50))]);
        send(bench, "a", &[now(SetAfter(1))]);
        bench.advance_clock(Duration::ZERO)?;
        assert_eq!(bench.payloads("fired").len(), 0);
        bench.advance_clock(Duration::from_millis(9))?;
        assert_eq!(bench.payloads("fired"), ["1 clock a", "1 clock b"]);
        bench.advance_clock(Duration::from_millis(1))
    });
    // What was set at 9 goes by the clock, not by the moment that its handler's timer was due.
    assert_eq!(bench.payloads("fired")[2..], ["10 clock b"]);
}

#[test]
fn a_refused_timer_is_named_and_those_behind_it_stand() {
    for batch_size in [1, 2, 1000] {
        let mut bench = bench().with_batch_size(batch_size);
        for key in ["a", "b", "c"] {
            send(&mut bench, key, &[now(set("zulu", 10))]);
        }
        send(&mut bench, "b", &[when("zulu", 10, Fail)]);
        let failure = bench
            .advance_watermarks(Timestamp(10))
            .expect_err("the second one fails");
        assert_eq!(
            failure.to_string(),
            "timer \"zulu\" with key \"b\": told to fail"
        );
        assert_eq!(bench.payloads("fired"), ["10 zulu a"]);
        bench
            .advance_watermarks(Timestamp(10))
            .expect("the third one goes on");
        assert_eq!(bench.payloads("fired"), ["10 zulu a", "10 zulu c"]);
    }
}

#[test]
fn a_message_behind_its_inputs_watermark_is_late_unless_that_is_allowed() {
    let send_at = |bench: &mut Bench, stream: &str, ms: u64| {
        bench.send(
            stream,
            "a",
            Timestamp(ms),
            r#"[{"when":null,"deed":{"Set":["zulu",1000]}}]"#,
        );
    };
    let play = |divert: bool| {
        Bench::assert_cuts_agree("{}", |bench| {
            bench.set_allowed_lateness("others", Duration::from_millis(10));
            if divert {
                bench.divert_late_messages();
            }
            // Not late: nothing has been said yet of this moment.
            send_at(bench, "scripts", 1);
            bench.advance_watermark("scripts", Timestamp(100))?;
            bench.advance_watermark("others", Timestamp(100))?;
            for ms in [0, 99, 100] {
                send_at(bench, "scripts", ms);
            }
            for ms in [89, 90] {
                send_at(bench, "others", ms);
            }
            bench.run()
        })
    };
    let late = |bench: &Bench| -> Vec<(String, u64)> {
        (bench.late_messages().iter())
            .map(|late| (late.stream.clone(), late.event_time.0))
            .collect()
    };
    let expected = [("scripts".to_owned(), 99), ("others".to_owned(), 89)];
    let (kept, diverted) = (play(false), play(true));
    assert_eq!(late(&kept), expected);
    assert_eq!(late(&diverted), expected);
    // The timer carries the event time of the message that set it last.
    let carried = |bench: &Bench| bench.timers().next().map(|timer| timer.event_time.0);
    assert_eq!(carried(&kept), Some(90));
    assert_eq!(carried(&diverted), Some(90));
    assert_eq!(kept.late_messages()[0].watermark, Timestamp(100));
}

#[test]
fn a_diverted_message_never_reaches_the_computation() {
    let mut bench = bench();
    bench.divert_late_messages();
    bench.advance_watermarks(Timestamp(100)).expect("a step");
    bench.send("scripts", "a", Timestamp(99), "no script");
    bench.run().expect("it was diverted");
    assert_eq!(bench.late_messages().len(), 1);
    bench.send("scripts", "a", Timestamp(100), "no script");
    bench.run().expect_err("it is no script");
}

#[test]
fn pending_timers_hold_the_output_watermark() {
    let mut bench = bench();
    bench
        .advance_watermark("scripts", Timestamp(100))
        .expect("a step");
    assert_eq!(bench.output_watermark(), Timestamp(0), "the other input");
    bench
        .advance_watermark("others", Timestamp(90))
        .expect("a step");
    assert_eq!(bench.output_watermark(), Timestamp(90));
    for (deed, held) in [
        (Carry("zulu".to_owned(), 200, 80), 80),
        // Its trigger is the lesser one, and the watermark is not there yet.
        (Carry("alpha".to_owned(), 95, 300), 80),
        (Cancel("zulu".to_owned(), 200), 90),
        (SetAfter(10_000), 5),
    ] {
        send(&mut bench, "a", &[now(deed)]);
        bench.run().expect("handled");
        assert_eq!(bench.output_watermark(), Timestamp(held));
    }
}

/// Random scripts, many keys, few moments: every cut must give the same.
#[test]
fn results_of_random_scripts_do_not_depend_on_the_cut() {
    let mut fired = 0;
    for seed in 1..=60_u64 {
        let bench = Bench::assert_cuts_agree("{}", |bench| {
            let mut random = Random(seed);
            let mut watermark = 0;
            for _ in 0..12 {
                for _ in 0..random.below(12) {
                    let key = ["a", "b", "c", "d", "e"][random.below(5) as usize];
                    let mut name = || ["alpha", "zulu"][random.below(2) as usize].to_owned();
                    let (cause, effect) = (name(), name());
                    let (at, later) = (random.below(40), random.below(40));
                    let line = match random.below(6) {
                        0 => now(Cancel(effect, later)),
                        1 => when(&cause, at, Cancel(effect, later)),
                        2 | 3 => now(Set(effect, later)),
                        _ => when(&cause, at, Set(effect, later)),
                    };
                    send(bench, key, &[line]);
                }
                watermark += random.below(8);
                bench.advance_watermarks(Timestamp(watermark))?;
            }
            bench.end_of_input()?;
            bench.next_run();
            bench.advance_watermarks(Timestamp(30))
        });
        fired += bench.payloads("fired").len();
    }
    assert!(fired > 1000, "only {fired} timers fired");
}

/// Numbers that depend on their seed alone (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
