//! What is remembered of pipelines, over storage in memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::storage::embedded::{EmbeddedOptions, EmbeddedStorage};
use crate::storage::memory::MemoryStorage;
use crate::types::batch::{ComputationKind, TimeDomain};
use crate::types::digest::Digest;

fn encoding(version: u32) -> StateEncoding {
    StateEncoding {
        version,
        format: "json".to_owned(),
    }
}

pub(in crate::controller) fn intent(parameters: &str, source: &str, state_version: u32) -> Intent {
    let computation = ComputationIntent {
        kind: ComputationKind::Transform,
        digest: Digest::of(b"component"),
        parameters: parameters.to_owned(),
        inputs: vec!["departures".to_owned()],
        states: BTreeMap::from([("totals".to_owned(), encoding(state_version))]),
        timers: BTreeMap::new(),
        partition_count: 1,
    };
    let source = SourceIntent {
        kind: source.to_owned(),
        partitions: vec!["flights.csv".to_owned()],
    };
    Intent {
        computations: BTreeMap::from([("delays".to_owned(), computation)]),
        sources: BTreeMap::from([("departures".to_owned(), source)]),
        sinks: BTreeMap::new(),
        streams: vec!["departures".to_owned(), "statistics".to_owned()],
    }
}

/// Registers what is about to run; the changes that it found.
pub(in crate::controller) fn register(
    storage: &MemoryStorage,
    pipeline: &str,
    intent: &Intent,
) -> Vec<String> {
    let registration = Registration::draft(storage, pipeline, intent).unwrap();
    registration.commit(storage).unwrap();
    let changes = registration.changes.iter();
    changes.map(Change::to_string).collect()
}

pub(in crate::controller) fn without_computations() -> Intent {
    Intent {
        computations: BTreeMap::new(),
        ..intent("{}", "file x", 1)
    }
}

#[test]
fn numbers_stay_and_an_unchanged_pipeline_stays_one_deployment() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    let first = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
    register(&storage, "a", &intent("{}", "file x", 1));
    let second = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
    assert_eq!(first.now, second.now);
    assert_eq!(first.stream("statistics"), second.stream("statistics"));
    assert_eq!((first.deployment(), second.deployment()), (1, 1));
}

#[test]
fn two_pipelines_share_no_number() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    register(&storage, "b", &intent("{}", "file x", 1));
    let a = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
    let b = Registration::draft(&storage, "b", &intent("{}", "file x", 1)).unwrap();
    let of_b = b.partitions_ever();
    assert!(a.partitions_ever().iter().all(|id| !of_b.contains(id)));
    assert_ne!(a.stream("departures"), b.stream("departures"));
}

#[test]
fn every_change_is_named_with_both_values_and_once_committed_is_none() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    let now = intent("{\"limit\":1}", "file y", 1);
    let expected = [
        "source departures: was file x, now file y",
        "parameters of computation delays: was {}, now {\"limit\":1}",
    ];
    // A draft that is not committed changes nothing.
    let draft = Registration::draft(&storage, "a", &now).unwrap();
    assert_eq!(draft.changes.len(), 2);
    assert_eq!(register(&storage, "a", &now), expected);
    assert!(register(&storage, "a", &now).is_empty());
}

#[test]
fn timer_streams_that_come_go_and_change_their_clock_are_a_change() {
    let storage = MemoryStorage::default();
    let with = |timers: &[(&str, TimeDomain)]| {
        let mut intent = intent("{}", "file x", 1);
        let delays = intent.computations.get_mut("delays").unwrap();
        let timers = timers.iter();
        delays.timers = timers.map(|(name, of)| ((*name).to_owned(), *of)).collect();
        intent
    };
    let (event, system) = (TimeDomain::EventTime, TimeDomain::SystemTime);
    register(&storage, "a", &with(&[]));
    assert_eq!(
        register(&storage, "a", &with(&[("quiet", event), ("hour", event)])),
        ["timers of computation delays: was none, now hour (event time), quiet (event time)"]
    );
    assert_eq!(
        register(&storage, "a", &with(&[("quiet", system)])),
        [
            "timers of computation delays: was hour (event time), quiet (event time), \
          now quiet (system time)"
        ]
    );
    assert!(register(&storage, "a", &with(&[("quiet", system)])).is_empty());
}

#[test]
fn what_leaves_the_pipeline_is_a_change_once_and_again_when_it_comes_back() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    let partitions = |intent: &Intent| {
        let draft = Registration::draft(&storage, "a", intent).unwrap();
        draft.partitions_ever()
    };
    let before = partitions(&without_computations());
    assert_eq!(
        register(&storage, "a", &without_computations()),
        ["computation delays: was part of the pipeline, now not in the pipeline"]
    );
    assert!(register(&storage, "a", &without_computations()).is_empty());
    assert_eq!(
        register(&storage, "a", &intent("{}", "file x", 1)),
        ["computation delays: was removed in deployment 2, \
          now part of the pipeline again, without what passed in between"]
    );
    assert!(register(&storage, "a", &intent("{}", "file x", 1)).is_empty());
    assert_eq!(partitions(&without_computations()), before);
}

fn with_sink(path: &str) -> Intent {
    let sink = SinkIntent {
        identity: format!("file {path} of statistics"),
        path: Some(path.to_owned()),
        queue: None,
    };
    Intent {
        sinks: BTreeMap::from([("out".to_owned(), sink)]),
        ..intent("{}", "file x", 1)
    }
}

#[test]
fn a_sink_that_moves_is_a_change() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &with_sink("/out/1"));
    assert_eq!(
        register(&storage, "a", &with_sink("/out/2")),
        ["sink out: was file /out/1 of statistics, now file /out/2 of statistics"]
    );
}

#[test]
fn a_file_that_another_pipeline_writes_is_refused() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &with_sink("/out/1"));
    let refused = Registration::draft(&storage, "b", &with_sink("/out/1"));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("/out/1, which pipeline a writes"), "{text}");
    assert!(Registration::draft(&storage, "b", &with_sink("/out/2")).is_ok());
}

#[test]
fn another_state_version_is_refused() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    let refused = Registration::draft(&storage, "a", &intent("{}", "file x", 2));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("state totals of computation delays: was 1, now 2"),
        "{text}"
    );
    // Nobody's word makes old values readable.
    for part in [
        "--accept-change does not convert them",
        "another data directory",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}

#[test]
fn a_registration_that_another_one_overtook_is_refused() {
    let storage = MemoryStorage::default();
    let late = Registration::draft(&storage, "a", &intent("{}", "file x", 1)).unwrap();
    register(&storage, "a", &intent("{}", "file y", 1));
    assert!(matches!(
        late.commit(&storage),
        Err(RegistryError::Contended { .. })
    ));
}

#[test]
fn a_row_of_a_newer_release_is_refused_by_its_version() {
    let storage = MemoryStorage::default();
    let change = CatalogChange {
        expectations: Vec::new(),
        writes: vec![(pipeline_key("a"), Some(vec![9]))],
    };
    storage.commit_catalog(&change).unwrap();
    let refused = Registration::draft(&storage, "a", &intent("{}", "file x", 1));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("a row of pipeline a"), "{text}");
}

/// A name as long as one may be.
fn long_name(kind: &str, number: usize) -> String {
    format!("{kind}{number:0>width$}", width = 64 - kind.len())
}

/// A pipeline that takes what `docs/pipeline.md` lets one have: 1,000 sources, computations and sinks with
/// the longest names, parameters of 3 KiB, 256 partitions, a transform and a sink that take every
/// stream, and components with many states.
fn largest_intent() -> Intent {
    let (sources, computations, sinks) = (400, 300, 300);
    let sources: Vec<String> = (0..sources).map(|number| long_name("s", number)).collect();
    let mut parameters = String::new();
    write!(parameters, "{{\"p\":\"{}\"}}", "x".repeat((3 << 10) - 8)).unwrap();
    let computation = |number: usize| ComputationIntent {
        kind: ComputationKind::Transform,
        digest: Digest::of(b"component"),
        parameters: parameters.clone(),
        inputs: match number {
            0 => sources.clone(),
            number => vec![sources[number].clone()],
        },
        states: match number {
            0 => (0..1_000)
                .map(|state| (format!("{state:0>200}"), encoding(1)))
                .collect(),
            _ => BTreeMap::from([("totals".to_owned(), encoding(1))]),
        },
        timers: match number {
            0 => (0..1_000)
                .map(|timer| (format!("{timer:0>200}"), TimeDomain::EventTime))
                .collect(),
            _ => BTreeMap::new(),
        },
        partition_count: 256,
    };
    let outputs: Vec<String> = (0..computations)
        .map(|number| long_name("o", number))
        .collect();
    let streams: Vec<String> = sources.iter().chain(&outputs).cloned().collect();
    let sink = |number: usize| {
        let path = format!("/out/{number}");
        let inputs = match number {
            0 => streams.join(", "),
            number => streams[number].clone(),
        };
        SinkIntent {
            identity: format!("file {path} of {inputs}"),
            path: Some(path),
            queue: None,
        }
    };
    let source = |name: &String| SourceIntent {
        kind: "files as lines".to_owned(),
        partitions: vec![format!("{}/{name}", "d".repeat(447))],
    };
    Intent {
        computations: (0..computations)
            .map(|number| (long_name("c", number), computation(number)))
            .collect(),
        sources: sources
            .iter()
            .map(|name| (name.clone(), source(name)))
            .collect(),
        sinks: (0..sinks)
            .map(|number| (long_name("k", number), sink(number)))
            .collect(),
        streams,
    }
}

fn check_largest(storage: &dyn Storage) {
    let name = long_name("p", 1);
    let intent = largest_intent();
    let first = Registration::draft(storage, &name, &intent).unwrap();
    first.commit(storage).unwrap();
    let second = Registration::draft(storage, &name, &intent).unwrap();
    assert!(second.changes.is_empty());
    assert_eq!((second.deployment(), second.known), (1, first.now));
    let of_another = Registration::draft(storage, "b", &largest_intent());
    assert!(matches!(of_another, Err(RegistryError::SinkTaken { .. })));
}

/// Registering it failed once: all streams of a pipeline were in one row of at most 4,096 bytes.
#[test]
fn a_pipeline_as_large_as_one_may_be_is_registered() {
    check_largest(&MemoryStorage::default());
    let directory = tempfile::tempdir().unwrap();
    let open = || EmbeddedStorage::open(directory.path(), EmbeddedOptions::default()).unwrap();
    check_largest(&open());
    // And is there for the next process.
    let draft = Registration::draft(&open(), &long_name("p", 1), &largest_intent()).unwrap();
    assert!(draft.changes.is_empty());
    assert_eq!(draft.deployment(), 1);
}

#[test]
fn a_new_stream_alone_is_numbered_once_and_another_deployment() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    let mut more = intent("{}", "file x", 1);
    more.streams.push("late".to_owned());
    register(&storage, "a", &more);
    let first = Registration::draft(&storage, "a", &more).unwrap();
    let second = Registration::draft(&storage, "a", &more).unwrap();
    assert_eq!(first.stream("late"), second.stream("late"));
    assert_eq!(first.stream_name(first.stream("late")), Some("late"));
    assert_eq!(first.deployment(), 2);
}

#[test]
fn states_of_an_earlier_component_are_remembered_with_their_versions() {
    let storage = MemoryStorage::default();
    register(&storage, "a", &intent("{}", "file x", 1));
    let mut renamed = intent("{}", "file x", 1);
    let computation = renamed.computations.get_mut("delays").unwrap();
    computation.states = BTreeMap::from([("worst".to_owned(), encoding(7))]);
    register(&storage, "a", &renamed);
    let refused = Registration::draft(&storage, "a", &intent("{}", "file x", 2));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("state totals of computation delays: was 1, now 2"),
        "{text}"
    );
}
