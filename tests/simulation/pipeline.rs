//! A graph as the pipeline that its author would write, and what the components in it would
//! declare: what the product's own code cuts into jobs and numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use guest_behaviours::contract::TimeDomain as GuestTimeDomain;
use guest_behaviours::trace;
use tidelock::controller::registry::{
    ComputationIntent, Intent, SinkIntent, SourceIntent, StateEncoding,
};
use tidelock::types::batch::{
    ComputationKind, Description, StateDeclaration, TimeDomain, TimerDeclaration,
};
use tidelock::types::digest::Digest;
use tidelock::types::pipeline::{
    CallLimits, ComputationLines, ComputationOptions, EpochLimits, FailurePolicy,
    FileSourceOptions, Grants, InstancePolicy, LaneLimits, MemoryLimits, OnFailure, Pipeline,
    QueueSourceOptions, QueueStart, RecordFormat, SinkConnector, SinkOptions, SourceConnector,
    SourceOptions, StateTtl,
};

use crate::graph::{Computation, Graph};
use crate::queues::{QUEUE_SOURCE, SINK_PARTITIONS};

/// The name under which the pipeline is registered.
const NAME: &str = "simulated";

/// The pipeline's file.
pub(crate) fn pipeline(graph: &Graph) -> Pipeline {
    let sources = (0..graph.sources).map(|source| {
        let name = graph.source_name(source);
        let (partitions, parallel) = graph.source_partitions[source];
        let connector = |partition| {
            if source == QUEUE_SOURCE {
                let index = u32::try_from(partition).expect("there are few");
                let options = QueueSourceOptions::new(&name, index, false, QueueStart::Start);
                return SourceConnector::Queue(options);
            }
            SourceConnector::File(FileSourceOptions {
                path: PathBuf::from(format!("{name}p{partition}")),
                written_path: format!("{name}p{partition}"),
                format: RecordFormat::Lines,
                max_record_bytes: FileSourceOptions::RECORD_BYTES_MAX_DEFAULT,
                follow: false,
            })
        };
        let options = SourceOptions {
            on_failure: OnFailure::Fail,
            partitions: (0..partitions).map(connector).collect(),
            parallel_partitions: Some(parallel),
            watermarks: graph.watermarks[source],
            line: 1,
        };
        (name, options)
    });
    let computations = graph.computations.iter();
    let sinks = graph.sinks.iter().enumerate();
    Pipeline {
        name: NAME.to_owned(),
        file: PathBuf::from("tidelock.toml"),
        components: BTreeMap::new(),
        sources: sources.collect(),
        computations: computations
            .map(|computation| (computation.name.clone(), options(graph, computation)))
            .collect(),
        queues: BTreeMap::new(),
        sinks: sinks
            .map(|(sink, taken)| {
                let options = SinkOptions {
                    connector: match graph.is_queue_sink(sink) {
                        true => SinkConnector::Queue {
                            queue: graph.sink_name(sink),
                            partitions: SINK_PARTITIONS,
                        },
                        false => SinkConnector::File {
                            path: PathBuf::from("/sinks").join(graph.sink_name(sink)),
                        },
                    },
                    inputs: graph.stream_names(taken),
                    line: 1,
                    inputs_line: 1,
                };
                (graph.sink_name(sink), options)
            })
            .collect(),
        epoch: EpochLimits::default(),
        lanes: LaneLimits::default(),
        memory: MemoryLimits::default(),
        warnings: Vec::new(),
    }
}

/// What each computation's component would declare.
pub(crate) fn descriptions(graph: &Graph) -> BTreeMap<String, Description> {
    let state = |name: &str| StateDeclaration {
        name: name.to_owned(),
        version: 1,
        format: "bytes".to_owned(),
    };
    let computations = graph.computations.iter();
    computations
        .map(|computation| {
            let states: &[&str] = match computation.is_transform {
                true => &trace::STATES,
                false => &[],
            };
            let timers = timers(computation.is_transform);
            let description = Description {
                kind: kind(computation),
                inputs: graph.stream_names(&computation.inputs),
                outputs: graph.stream_names(&computation.outputs),
                states: states.iter().copied().map(state).collect(),
                timers: timers
                    .map(|(name, time)| TimerDeclaration { name, time })
                    .collect(),
            };
            (computation.name.clone(), description)
        })
        .collect()
}

/// What the store is to remember of the pipeline.
pub(crate) fn intent(graph: &Graph, pipeline: &Pipeline) -> Intent {
    let computations = pipeline.computations.iter();
    Intent {
        computations: computations
            .map(|(name, options)| {
                let is_transform = options.kind == ComputationKind::Transform;
                let states: &[&str] = if is_transform { &trace::STATES } else { &[] };
                let intent = ComputationIntent {
                    kind: options.kind,
                    digest: Digest::of(options.component.as_bytes()),
                    parameters: options.parameters.clone(),
                    inputs: options.inputs.clone(),
                    states: (states.iter())
                        .map(|name| {
                            let encoding = StateEncoding {
                                version: 1,
                                format: "json".to_owned(),
                            };
                            ((*name).to_owned(), encoding)
                        })
                        .collect(),
                    timers: timers(is_transform).collect(),
                    partition_count: if is_transform { options.partitions } else { 0 },
                };
                (name.clone(), intent)
            })
            .collect(),
        sources: (pipeline.sources.iter())
            .map(|(name, options)| {
                let partitions = options.partitions.iter();
                let names = partitions.map(SourceConnector::partition_name);
                let intent = SourceIntent {
                    kind: name.clone(),
                    partitions: names.map(str::to_owned).collect(),
                };
                (name.clone(), intent)
            })
            .collect(),
        sinks: (pipeline.sinks.keys())
            .map(|name| {
                let intent = SinkIntent {
                    identity: name.clone(),
                    path: Some(name.clone()),
                    queue: None,
                };
                (name.clone(), intent)
            })
            .collect(),
        streams: (graph.streams())
            .map(|stream| graph.stream_name(stream))
            .collect(),
    }
}

fn options(graph: &Graph, computation: &Computation) -> ComputationOptions {
    // Streams are found by the names that components declare, never by their order here.
    let reversed = |mut names: Vec<String>| {
        names.reverse();
        names
    };
    ComputationOptions {
        component: if computation.is_transform {
            "tally"
        } else {
            "relay"
        }
        .to_owned(),
        kind: kind(computation),
        inputs: reversed(graph.stream_names(&computation.inputs)),
        outputs: reversed(graph.stream_names(&computation.outputs)),
        partitions: u32::try_from(computation.partitions).expect("there are few"),
        stream_delays: stream_delays(graph, computation),
        late_output: computation.late.map(|stream| graph.stream_name(stream)),
        allowed_lateness: allowed_lateness(graph, computation),
        state_ttls: state_ttls(computation),
        parameters: graph.parameters(computation).write(),
        grants: Grants::default(),
        limits: CallLimits::default(),
        instance: InstancePolicy::Reuse,
        relaxed_batching: false,
        failure: FailurePolicy::default(),
        line: 1,
        lines: ComputationLines {
            component: 1,
            kind: 1,
            inputs: 1,
            outputs: 1,
            parameters: 1,
            grants: 1,
            limits: 1,
            instance: 1,
        },
    }
}

fn stream_delays(graph: &Graph, computation: &Computation) -> BTreeMap<String, Duration> {
    let delays = computation.delays_ms.iter().copied();
    let names = graph.stream_names(&computation.inputs).into_iter();
    names.zip(delays.map(Duration::from_millis)).collect()
}

fn allowed_lateness(graph: &Graph, computation: &Computation) -> BTreeMap<String, Duration> {
    let names = graph.stream_names(&computation.inputs).into_iter();
    let lateness = computation.time.allowed_lateness_ms.iter();
    names
        .zip(lateness.copied().map(Duration::from_millis))
        .collect()
}

fn state_ttls(computation: &Computation) -> BTreeMap<String, StateTtl> {
    let states = trace::STATES.into_iter().zip(computation.time.ttls_ms);
    let ttl = |ttl_ms| StateTtl {
        ttl: Duration::from_millis(ttl_ms),
        line: 1,
    };
    states
        .filter(|_| computation.is_transform)
        .filter_map(|(state, ttl_ms)| Some((state.to_owned(), ttl(ttl_ms?))))
        .collect()
}

/// The timer streams of a computation.
fn timers(is_transform: bool) -> impl Iterator<Item = (String, TimeDomain)> {
    let timers = trace::TIMERS.into_iter().filter(move |_| is_transform);
    timers.map(|(name, time)| (name.to_owned(), domain(time)))
}

/// A clock as the host has it.
pub(crate) fn domain(time: GuestTimeDomain) -> TimeDomain {
    match time {
        GuestTimeDomain::EventTime => TimeDomain::EventTime,
        GuestTimeDomain::SystemTime => TimeDomain::SystemTime,
    }
}

fn kind(computation: &Computation) -> ComputationKind {
    match computation.is_transform {
        true => ComputationKind::Transform,
        false => ComputationKind::Map,
    }
}
