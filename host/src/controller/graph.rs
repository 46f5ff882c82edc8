//! The graph of a pipeline, cut into jobs: which maps are chained behind a source or a transform,
//! and who takes each stream out of the chain.

use std::collections::BTreeSet;

use crate::types::batch::ComputationKind;
use crate::types::pipeline::Pipeline;

/// What one kind of job runs: a source or a transform, and the maps chained behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobShape {
    /// The source or transform.
    pub head: JobHead,
    /// The maps, each after those that feed it.
    pub maps: Vec<String>,
    /// Every stream written inside the job, the source's own first.
    pub streams: Vec<String>,
}

/// What feeds a job's chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobHead {
    /// A source, by name.
    Source(String),
    /// A transform, by name.
    Transform(String),
}

impl JobHead {
    /// The name of the source or transform.
    pub fn name(&self) -> &str {
        match self {
            JobHead::Source(name) | JobHead::Transform(name) => name,
        }
    }
}

impl JobShape {
    /// Where a stream stands among the job's streams.
    pub fn place_of(&self, stream: &str) -> Option<usize> {
        self.streams.iter().position(|name| name == stream)
    }
}

/// The jobs of a pipeline whose graph has been checked, sources first.
pub fn job_shapes(pipeline: &Pipeline) -> Vec<JobShape> {
    let sources = pipeline.sources.keys().map(|name| {
        let streams = vec![name.clone()];
        shape(pipeline, JobHead::Source(name.clone()), streams)
    });
    let transforms = pipeline
        .computations
        .iter()
        .filter(|(_, options)| options.kind == ComputationKind::Transform)
        .map(|(name, options)| {
            let streams = options.streams_written().cloned().collect();
            shape(pipeline, JobHead::Transform(name.clone()), streams)
        });
    sources.chain(transforms).collect()
}

/// Chains every map that reads one of the streams written so far, until no more does.
fn shape(pipeline: &Pipeline, head: JobHead, mut streams: Vec<String>) -> JobShape {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut next = 0;
    while let Some(stream) = streams.get(next).cloned() {
        next += 1;
        for (name, options) in &pipeline.computations {
            let is_map = options.kind == ComputationKind::Map;
            if is_map && options.inputs.contains(&stream) && reached.insert(name) {
                streams.extend(options.outputs.iter().cloned());
            }
        }
    }
    JobShape {
        maps: in_order_of_feeding(pipeline, reached),
        head,
        streams,
    }
}

/// Orders maps so that each stands after those whose outputs it reads. Graphs have no cycles.
fn in_order_of_feeding(pipeline: &Pipeline, mut waiting: BTreeSet<&str>) -> Vec<String> {
    let mut order = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let is_fed_by_waiting = |name: &str| {
            let inputs = &pipeline.computations[name].inputs;
            waiting.iter().any(|other| {
                let outputs = &pipeline.computations[*other].outputs;
                outputs.iter().any(|output| inputs.contains(output))
            })
        };
        let ready: Vec<&str> = waiting
            .iter()
            .copied()
            .filter(|name| !is_fed_by_waiting(name))
            .collect();
        assert!(!ready.is_empty(), "a checked graph has no cycle");
        for name in ready {
            waiting.remove(name);
            order.push(name.to_owned());
        }
    }
    order
}

/// The transforms that read a stream, in the order of their names.
pub fn transforms_reading<'a>(
    pipeline: &'a Pipeline,
    stream: &'a str,
) -> impl Iterator<Item = &'a str> {
    pipeline
        .computations
        .iter()
        .filter(move |(_, options)| {
            options.kind == ComputationKind::Transform
                && options.inputs.iter().any(|input| input == stream)
        })
        .map(|(name, _)| name.as_str())
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::types::pipeline::{
        CallLimits, ComputationLines, ComputationOptions, EpochLimits, FailurePolicy,
        FileSourceOptions, Grants, InstancePolicy, LaneLimits, MemoryLimits, RecordFormat,
        SourceConnector, SourceOptions, WatermarkOptions,
    };

    fn computation(kind: ComputationKind, inputs: &[&str], outputs: &[&str]) -> ComputationOptions {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ComputationOptions {
            component: "any".to_owned(),
            kind,
            inputs: names(inputs),
            outputs: names(outputs),
            partitions: 1,
            stream_delays: std::collections::BTreeMap::new(),
            late_output: None,
            allowed_lateness: std::collections::BTreeMap::new(),
            state_ttls: std::collections::BTreeMap::new(),
            parameters: "{}".to_owned(),
            grants: Grants::default(),
            limits: CallLimits::default(),
            instance: InstancePolicy::Fresh,
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

    /// source s ▸ a ▸ b ▸ (x, y); transform t reads x and y, map z is chained behind it, map l behind its
    /// late messages.
    pub(in crate::controller) fn pipeline() -> Pipeline {
        use ComputationKind::{Map, Transform};
        let source = SourceOptions {
            on_failure: crate::types::pipeline::OnFailure::Fail,
            partitions: vec![SourceConnector::File(FileSourceOptions {
                path: PathBuf::from("s.csv"),
                written_path: "s.csv".to_owned(),
                format: RecordFormat::Lines,
                max_record_bytes: 1,
                follow: false,
            })],
            parallel_partitions: None,
            watermarks: WatermarkOptions::default(),
            line: 1,
        };
        let t = ComputationOptions {
            late_output: Some("late".to_owned()),
            ..computation(Transform, &["x", "y"], &["t_out"])
        };
        let computations = [
            ("l", computation(Map, &["late"], &["l_out"])),
            ("z", computation(Map, &["t_out"], &["z_out"])),
            ("b", computation(Map, &["a_out", "s"], &["x", "y"])),
            ("a", computation(Map, &["s"], &["a_out"])),
            ("t", t),
        ];
        Pipeline {
            name: "p".to_owned(),
            file: PathBuf::from("tidelock.toml"),
            components: std::collections::BTreeMap::new(),
            sources: [("s".to_owned(), source)].into(),
            computations: computations
                .into_iter()
                .map(|(name, options)| (name.to_owned(), options))
                .collect(),
            sinks: std::collections::BTreeMap::new(),
            queues: std::collections::BTreeMap::new(),
            epoch: EpochLimits::default(),
            lanes: LaneLimits::default(),
            memory: MemoryLimits::default(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn maps_are_chained_behind_what_feeds_them_in_order() {
        let shapes = job_shapes(&pipeline());
        assert_eq!(shapes.len(), 2);
        assert_eq!(shapes[0].head, JobHead::Source("s".to_owned()));
        assert_eq!(shapes[0].maps, ["a", "b"]);
        assert_eq!(shapes[0].streams, ["s", "a_out", "x", "y"]);
        assert_eq!(shapes[1].head, JobHead::Transform("t".to_owned()));
        assert_eq!(shapes[1].maps, ["l", "z"]);
        assert_eq!(shapes[1].streams, ["t_out", "late", "z_out", "l_out"]);
    }

    #[test]
    fn only_transforms_take_a_stream_out_of_a_chain() {
        let pipeline = pipeline();
        assert_eq!(
            transforms_reading(&pipeline, "x").collect::<Vec<_>>(),
            ["t"]
        );
        assert_eq!(transforms_reading(&pipeline, "s").count(), 0);
    }
}
