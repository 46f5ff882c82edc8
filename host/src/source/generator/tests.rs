//! Records of generators: always the same ones, as even, as late and as fast as is asked.

use std::collections::BTreeMap;

use super::*;

fn options() -> GeneratorOptions {
    GeneratorOptions {
        partition: 0,
        partition_name: "all".to_owned(),
        rate: None,
        count: Some(1_000),
        records: GeneratedRecords {
            partitions: 1,
            keys: 100,
            skew: 0.0,
            event_time_start: 1_700_000_000_000,
            event_time_step_ns: 1_500_000,
            jitter_ms: 0,
            payload_bytes: 0,
            seed: 7,
        },
    }
}

/// A position as it is stored, and what it holds.
pub(in crate::source) fn stored_position() -> (Vec<u8>, String) {
    let mut options = options();
    options.partition = 3;
    options.records.partitions = 4;
    options.records.skew = 1.25;
    let mut source = GeneratorSource::open(&options, None, OnChange::Refuse).unwrap();
    source.next = 900;
    let held = GeneratorPosition {
        partition: 3,
        next: 900,
        records: options.records,
    };
    (source.position(), format!("{held:?}"))
}

pub(in crate::source) fn decode_shown(name: &str, encoded: &[u8]) -> Result<String, SourceError> {
    GeneratorPosition::decode(name, encoded).map(|position| format!("{position:?}"))
}

fn with(change: impl FnOnce(&mut GeneratorOptions)) -> GeneratorOptions {
    let mut options = options();
    change(&mut options);
    options
}

fn open(options: &GeneratorOptions, position: Option<&[u8]>) -> GeneratorSource {
    GeneratorSource::open(options, position, OnChange::Refuse).unwrap()
}

/// Reads to the end, so many rows at a time.
fn read(source: &mut GeneratorSource, rows: usize) -> SourceRecords {
    let mut records = SourceRecords::default();
    let limit = PollLimit {
        rows,
        bytes: usize::MAX,
    };
    while source.poll(limit, &mut records).unwrap() != PollOutcome::End {}
    records
}

fn texts(records: &SourceRecords) -> Vec<String> {
    let texts = records.payloads.iter();
    texts
        .map(|it| String::from_utf8(it.to_vec()).unwrap())
        .collect()
}

#[test]
fn the_first_records_are_the_same_for_ever() {
    let skewed = with(|options| {
        options.count = Some(3);
        options.records.skew = 1.1;
        options.records.jitter_ms = 5_000;
        options.records.payload_bytes = 120;
    });
    let records = read(&mut open(&skewed, None), 10);
    let padding = "x".repeat(21);
    assert_eq!(
        texts(&records),
        [
            ("key-20", 817_596, 1_699_999_998_876_u64),
            ("key-18", 843_776, 1_699_999_999_555),
            ("key-28", 276_061, 1_699_999_997_129),
        ]
        .iter()
        .enumerate()
        .map(|(at, (key, number, time))| format!(
            r#"{{"partition":0,"sequence":{at},"key":"{key}","amount":{number},"event_time":{time},"padding":"{padding}"}}"#
        ))
        .collect::<Vec<_>>()
    );
}

#[test]
fn records_do_not_depend_on_how_they_are_read() {
    let whole = read(&mut open(&options(), None), 1_000);
    assert_eq!(whole.payloads.len(), 1_000);
    assert_eq!(read(&mut open(&options(), None), 7), whole);
    // Opened again and again, behind every few records.
    let mut pieces = SourceRecords::default();
    let mut position = None;
    loop {
        let mut source = open(&options(), position.as_deref());
        let limit = PollLimit {
            rows: 13,
            bytes: 1_000,
        };
        let outcome = source.poll(limit, &mut pieces).unwrap();
        position = Some(source.position());
        if outcome == PollOutcome::End {
            break;
        }
    }
    assert_eq!(pieces, whole);
}

#[test]
fn partitions_divide_the_count_and_the_times_among_them() {
    let mut times = Vec::new();
    for partition in 0..3 {
        let options = with(|options| {
            options.partition = partition;
            options.records.partitions = 3;
        });
        let records = read(&mut open(&options, None), 1_000);
        times.extend(records.event_times);
    }
    times.sort_unstable();
    let one = read(&mut open(&options(), None), 1_000);
    assert_eq!(times, one.event_times);
    assert_eq!(
        one.event_times[..4],
        [0, 1, 3, 4].map(|ms| 1_700_000_000_000 + ms)
    );
}

#[test]
fn a_payload_says_what_the_columns_say_and_is_as_long_as_is_asked() {
    let padded = with(|options| options.records.payload_bytes = 200);
    let records = read(&mut open(&padded, None), 100);
    for (at, text) in texts(&records).iter().enumerate() {
        assert_eq!(text.len(), 200);
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(json["sequence"], at);
        assert_eq!(
            json["key"].as_str().unwrap().as_bytes(),
            records.keys.get(at)
        );
        assert_eq!(json["event_time"], records.event_times[at]);
        assert!(json["amount"].as_u64().unwrap() < NUMBERS);
    }
    // What is longer than that stays as it is.
    let short = with(|options| options.records.payload_bytes = 10);
    let same = read(&mut open(&short, None), 100);
    assert_eq!(same, read(&mut open(&options(), None), 100));
}

#[test]
fn keys_are_drawn_as_evenly_as_is_asked() {
    let counts = |skew: f64| {
        let options = with(|options| {
            options.count = Some(100_000);
            options.records.skew = skew;
        });
        let records = read(&mut open(&options, None), 1_000);
        let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for key in records.keys.iter() {
            *counts.entry(key.to_vec()).or_default() += 1;
        }
        counts
    };
    let even = counts(0.0);
    assert_eq!(even.len(), 100);
    assert!(even.values().all(|count| (800..1_200).contains(count)));
    let skewed = counts(1.0);
    // The sum of 1/k up to 100 is 5.187.
    let (first, second) = (skewed[b"key-0".as_slice()], skewed[b"key-1".as_slice()]);
    assert!((18_900..19_700).contains(&first), "{first}");
    assert!((9_300..9_980).contains(&second), "{second}");
}

#[test]
fn jitter_puts_event_times_out_of_order_by_no_more_and_write_times_not_at_all() {
    let options = with(|options| options.records.jitter_ms = 40);
    let records = read(&mut open(&options, None), 1_000);
    let written: Vec<Timestamp> = records.write_times.iter().collect();
    assert!(written.is_sorted());
    assert!(!records.event_times.is_sorted());
    let behind: Vec<u64> = (written.iter().zip(&records.event_times))
        .map(|(written, event)| written - event)
        .collect();
    assert_eq!(behind.iter().max(), Some(&40));
    assert_eq!(behind.iter().min(), Some(&0));
}

#[test]
fn other_options_are_refused_by_name_until_they_are_accepted() {
    let mut source = open(&options(), None);
    let limit = PollLimit {
        rows: 5,
        bytes: 1 << 20,
    };
    source.poll(limit, &mut SourceRecords::default()).unwrap();
    let position = source.position();
    let other = with(|options| {
        options.records.keys = 99;
        options.records.seed = 8;
    });
    let refused = GeneratorSource::open(&other, Some(&position), OnChange::Refuse);
    let Err(SourceError::OptionsChanged { was, now }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (was.as_str(), now.as_str()),
        ("keys 100, seed 7", "keys 99, seed 8")
    );
    let accepted = GeneratorSource::open(&other, Some(&position), OnChange::StartOver).unwrap();
    assert_eq!(accepted.next, 0);
    // Rate and count do not change what a record is.
    let more = with(|options| {
        options.count = None;
        options.rate = Some(10);
    });
    assert_eq!(open(&more, Some(&position)).next, 5);
    let reading = read_position(&options(), "all", &position).unwrap();
    assert!(!reading.is_at_end);
    assert_eq!(reading.passed, "5 records of it read");
}

#[test]
fn a_position_that_is_none_of_its_own_is_refused() {
    let position = open(&options(), None).position();
    let mut newer = position.clone();
    newer[1] = 9;
    for encoded in [&b""[..], b"\x01\x02", &position[..5], &newer] {
        let refused = GeneratorSource::open(&options(), Some(encoded), OnChange::Refuse);
        assert!(matches!(
            refused,
            Err(SourceError::UndecodablePosition { .. })
        ));
    }
}

#[test]
fn a_rate_makes_the_source_wait_and_say_for_how_long() {
    let options = with(|options| options.rate = Some(100));
    let mut source = open(&options, None);
    let mut records = SourceRecords::default();
    let limit = PollLimit {
        rows: 1_000,
        bytes: 1 << 20,
    };
    source.tell_time(Duration::from_secs(5));
    assert_eq!(source.poll(limit, &mut records).unwrap(), PollOutcome::Wait);
    assert_eq!(records.lines, [0]);
    assert_eq!(source.wait_at_most(), Some(Duration::from_millis(10)));
    source.tell_time(Duration::from_millis(5_500));
    assert_eq!(source.poll(limit, &mut records).unwrap(), PollOutcome::Wait);
    assert_eq!(records.lines.len(), 51);
}
