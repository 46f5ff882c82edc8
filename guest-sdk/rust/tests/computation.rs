//! What an author may rely on, shown on one computation that follows commands in its messages.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;
use tidelock_guest::testing::{TestBench, TestFailure};

#[derive(Streams)]
enum Inputs {
    Commands,
    #[stream(name = "more-commands")]
    MoreCommands,
}

#[derive(Streams)]
enum Outputs {
    Answers,
    Copies,
}

#[derive(Timers)]
enum Alarms {
    Event,
    #[timer(system_time, name = "wall-clock")]
    System,
}

#[derive(State)]
struct Keyed {
    count: Value<u64>,
    #[state(name = "last-words", version = 3, codec = Json)]
    words: Value<Vec<String>>,
    #[state(codec = Bytes)]
    raw: Value<Vec<u8>>,
    /// Not to be written as JSON once it has an entry: its keys are no strings.
    #[state(codec = Json)]
    pairs: Value<BTreeMap<(u8, u8), u8>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    Count,
    Say(String),
    Hear,
    Raw(Vec<u8>),
    ShowRaw,
    Clear,
    Fail,
    Retag { key: String, event_time: u64 },
    SetAt(u64),
    CancelAt(u64),
    SetAfter(u64),
    Cancel,
    WrongDomain,
    NoEncoding,
    Pair,
}
use Command::{
    Cancel, CancelAt, Clear, Count, Fail, Hear, NoEncoding, Pair, Raw, Retag, Say, SetAfter, SetAt,
    ShowRaw, WrongDomain,
};

struct Obedient;

impl Transform for Obedient {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = Alarms;
    type State = Keyed;

    fn new(_: NoParameters) -> Result<Obedient> {
        Ok(Obedient)
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        match message.json()? {
            Count => {
                let count = state.count.get_or_default()?;
                *count += 1;
                effects.emit(Outputs::Answers).json(count)?;
            }
            Say(word) => state.words.get_or_default()?.push(word),
            Hear => {
                let words = state.words.get()?.map_or(0, Vec::len);
                effects.emit(Outputs::Answers).json(&words)?;
            }
            Raw(bytes) => state.raw.set(bytes),
            ShowRaw => match state.raw.get()? {
                Some(bytes) => effects.emit(Outputs::Answers).bytes(bytes),
                None => effects.emit(Outputs::Answers).bytes("none"),
            },
            Clear => {
                state.count.clear();
                let words = state.words.take()?;
                effects.debug(format!("dropped {words:?}"));
            }
            Fail => bail!("told to fail with {:?}", message.key_text()?),
            Retag { key, event_time } => effects
                .emit(Outputs::Copies)
                .key(&key)
                .event_time(Timestamp(event_time))
                .bytes(message.payload()),
            SetAt(at) => effects.timer(Alarms::Event).set_at(Timestamp(at))?,
            CancelAt(at) => effects.timer(Alarms::Event).cancel_at(Timestamp(at))?,
            SetAfter(ms) => effects
                .timer(Alarms::System)
                .set_after(Duration::from_millis(ms))?,
            Cancel => effects.timer(Alarms::System).cancel()?,
            WrongDomain => effects.timer(Alarms::System).set_at(Timestamp(1))?,
            Pair => {
                state.pairs.get_or_default()?.insert((1, 2), 3);
            }
            NoEncoding => {
                // A map whose keys are no strings is no JSON: the output fails half written.
                let value = BTreeMap::from([((1, 2), 3)]);
                let refused = effects.emit(Outputs::Answers).json(&value);
                effects.warn(refused.expect_err("it has no encoding").to_string());
                effects.emit(Outputs::Answers).bytes("whole");
            }
        }
        Ok(())
    }

    fn on_timer(
        &self,
        timer: &Timer<Alarms>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs, Alarms>,
    ) -> Result<()> {
        let count = state.count.get()?.copied().unwrap_or(0);
        let answer = match timer.stream() {
            Alarms::Event => format!("event {} count {count}", timer.trigger_time().as_ms()),
            Alarms::System => format!("system {} count {count}", timer.trigger_time().as_ms()),
        };
        effects.emit(Outputs::Answers).bytes(answer);
        // Setting itself again for the same moment must not fire again in the same step.
        if timer.trigger_time() == Timestamp(77) {
            effects.timer(Alarms::Event).set_at(timer.trigger_time())?;
        }
        Ok(())
    }
}

export!(Obedient);

type Bench = TestBench<Obedient>;

fn send(bench: &mut Bench, key: &str, command: &Command) {
    bench.send_json("commands", key, Timestamp(5), command);
}

/// Plays commands under many cuts, each a key and what to do, and returns the answers.
fn answers(commands: &[(&str, Command)]) -> Vec<String> {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        for (key, command) in commands {
            send(bench, key, command);
        }
        bench.run()
    });
    bench.payloads("answers")
}

#[test]
fn each_key_has_its_own_state_carried_along_within_a_batch() {
    let answers = answers(&[
        ("a", Count),
        ("b", Count),
        ("a", Count),
        ("a", Count),
        ("b", Count),
    ]);
    assert_eq!(answers, ["1", "1", "2", "3", "2"]);
}

#[test]
fn state_lasts_between_calls_under_its_declared_name() {
    let mut bench = Bench::new("{}").expect("no parameters");
    send(&mut bench, "a", &Count);
    send(&mut bench, "a", &Say("x".into()));
    bench.run().expect("handled");
    send(&mut bench, "a", &Count);
    bench.run().expect("handled");
    assert_eq!(bench.state::<Postcard, u64>("count", "a"), Some(2));
    assert_eq!(
        bench.state_bytes("last-words", "a"),
        Some(br#"["x"]"#.as_slice())
    );
    assert_eq!(bench.state_bytes("count", "b"), None);
}

#[test]
fn a_cleared_state_is_gone_at_once_and_its_row_deleted() {
    let commands = [
        ("a", Count),
        ("a", Say("x".into())),
        ("a", Clear),
        ("a", Hear),
        ("a", Count),
        ("a", Clear),
    ];
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        for (key, command) in &commands {
            send(bench, key, command);
        }
        bench.run()
    });
    assert_eq!(bench.payloads("answers"), ["1", "0", "1"]);
    assert_eq!(bench.state_bytes("count", "a"), None);
    assert_eq!(bench.state_bytes("last-words", "a"), None);
    assert_eq!(bench.logs()[0].text, "dropped Some([\"x\"])");
    assert_eq!(bench.logs()[1].text, "dropped None");
}

#[test]
fn an_empty_string_of_bytes_is_no_value_in_the_same_batch_either() {
    let answers = answers(&[
        ("a", ShowRaw),
        ("a", Raw(b"xy".to_vec())),
        ("a", ShowRaw),
        ("a", Raw(vec![])),
        ("a", ShowRaw),
    ]);
    assert_eq!(answers, ["none", "xy", "none"]);
}

#[test]
fn outputs_inherit_key_and_event_time_unless_given_others() {
    let mut bench = Bench::new("{}").expect("no parameters");
    let retag = Retag {
        key: "z".into(),
        event_time: 9,
    };
    for command in [&Count, &retag, &Count] {
        send(&mut bench, "a", command);
    }
    bench.run().expect("handled");
    let seen: Vec<_> = (bench.outputs().iter())
        .map(|output| {
            (
                output.stream.as_str(),
                output.key.as_slice(),
                output.event_time.0,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("answers", b"a".as_slice(), 5),
            ("copies", b"z", 9),
            ("answers", b"a", 5),
        ]
    );
}

#[test]
fn the_last_word_about_a_timer_counts() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        for command in [
            SetAt(10),
            SetAt(20),
            CancelAt(10),
            CancelAt(30),
            SetAt(30),
            SetAfter(50),
            Cancel,
            SetAfter(70),
            SetAfter(60),
        ] {
            send(bench, "a", &command);
        }
        bench.run()
    });
    let standing: Vec<_> = (bench.timers())
        .map(|timer| (timer.name.as_str(), timer.trigger_time.0))
        .collect();
    assert_eq!(standing, [("event", 20), ("event", 30), ("wall-clock", 60)]);
}

#[test]
fn timers_fire_with_the_state_of_their_key_in_order_of_their_triggers() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &SetAt(20));
        send(bench, "b", &SetAt(10));
        send(bench, "a", &SetAt(10));
        send(bench, "a", &SetAt(77));
        send(bench, "a", &SetAfter(40));
        send(bench, "a", &Count);
        bench.advance_watermark("commands", Timestamp(100))?;
        assert_eq!(
            bench.payloads("answers"),
            ["1"],
            "the other input holds the watermark"
        );
        bench.advance_watermark("more-commands", Timestamp(80))?;
        bench.advance_clock(Duration::from_millis(40))
    });
    assert_eq!(
        bench.payloads("answers"),
        [
            "1",
            "event 10 count 1",
            "event 10 count 0",
            "event 20 count 1",
            "event 77 count 1",
            "system 40 count 1",
        ]
    );
    let again: Vec<_> = bench.timers().map(|timer| timer.trigger_time.0).collect();
    assert_eq!(again, [77], "set again, it waits for the next step");
}

#[test]
fn a_refused_message_is_named_and_leaves_what_came_before_it() {
    for batch_size in [1, 2, 1000] {
        let mut bench = Bench::new("{}")
            .expect("no parameters")
            .with_batch_size(batch_size);
        for command in [Count, Fail, Count] {
            send(&mut bench, "a", &command);
        }
        let failure = bench.run().expect_err("the second one fails");
        assert_eq!(
            failure.to_string(),
            "message \"\\\"fail\\\"\" with key \"a\" of stream \"commands\": \
             told to fail with \"a\""
        );
        assert_eq!(bench.payloads("answers"), ["1"]);
        bench.run().expect("the third one goes on");
        assert_eq!(bench.payloads("answers"), ["1", "2"]);
    }
}

#[test]
fn an_output_without_encoding_leaves_nothing_behind() {
    let bench = Bench::assert_cuts_agree("{}", |bench| {
        send(bench, "a", &NoEncoding);
        bench.run()
    });
    assert_eq!(bench.payloads("answers"), ["whole"]);
    assert_eq!(
        bench.logs()[0].text,
        "a message to stream \"answers\": key must be a string"
    );
}

#[test]
fn a_state_without_encoding_fails_the_item_that_made_it() {
    let mut bench = Bench::new("{}").expect("no parameters");
    for command in [Count, Pair, Count] {
        send(&mut bench, "a", &command);
    }
    let failure = bench.run().expect_err("the second one made it");
    let item = failure.item.expect("an item is to blame");
    assert!(item.contains("pair"), "{item}");
    assert_eq!(failure.reason, "state \"pairs\": key must be a string");
    assert_eq!(bench.payloads("answers"), ["1"]);
}

#[test]
fn a_timer_of_the_other_clock_is_refused_with_the_remedy() {
    let mut bench = Bench::new("{}").expect("no parameters");
    send(&mut bench, "a", &WrongDomain);
    let failure = bench.run().expect_err("the clocks differ");
    assert!(
        failure
            .reason
            .starts_with("timer \"wall-clock\" goes by system time: use set_after"),
        "{failure}"
    );
}

#[test]
fn unknown_parameters_are_refused_before_any_message() {
    let failure = Bench::new(r#"{"x": 1}"#).expect_err("there are none");
    assert_eq!(
        failure.reason,
        "parameters: unknown parameter \"x\": there are none"
    );
}

/// A transform that breaks the rule: what it answers depends on where its batches begin.
struct Counting(std::cell::Cell<u64>);

impl Transform for Counting {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = NoTimers;
    type State = NoState;

    fn new(_: NoParameters) -> Result<Counting> {
        Ok(Counting(0.into()))
    }

    fn on_message(
        &self,
        _message: &Message<Inputs>,
        _state: &mut NoState,
        effects: &mut Effects<Outputs>,
    ) -> Result<()> {
        self.0.set(self.0.get() + 1);
        effects.emit(Outputs::Answers).json(&self.0.get())
    }
}

#[test]
#[should_panic(expected = "outputs differ in batches of 1 and of all")]
fn a_computation_that_depends_on_the_cut_is_caught() {
    TestBench::<Counting>::assert_cuts_agree("{}", |bench| {
        bench.send("commands", "a", Timestamp(0), "");
        bench.send("commands", "a", Timestamp(0), "");
        bench.run()
    });
}

/// A map, which has neither state nor timers.
struct Shout;

impl Map for Shout {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<Shout> {
        Ok(Shout)
    }

    fn on_message(&self, message: &Message<Inputs>, effects: &mut Effects<Outputs>) -> Result<()> {
        effects
            .emit(Outputs::Copies)
            .bytes(message.text()?.to_uppercase());
        Ok(())
    }
}

#[test]
fn a_map_handles_each_message_and_names_the_one_that_it_refuses() -> Result<(), TestFailure> {
    let mut bench = TestBench::<Shout>::new("{}")?;
    bench.send("commands", "", Timestamp(0), "quiet");
    bench.send("more-commands", "", Timestamp(0), b"\xff");
    let failure = bench.run().expect_err("not UTF-8");
    assert_eq!(bench.payloads("copies"), ["QUIET"]);
    assert!(failure.to_string().contains("\"\\xff\""), "{failure}");
    Ok(())
}
