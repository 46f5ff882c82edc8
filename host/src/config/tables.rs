//! The tables of a pipeline file, one function each: which fields there are, their ranges and
//! defaults. Those of sources and sinks are in `connectors/`, those of queues in `queues.rs`, those that tell of
//! time in `time.rs`;
//! how the named things hang together is checked in `graph.rs`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeValue;

use crate::config::fields::{Fields, Located, check_name};
use crate::config::graph::{Graph, Node, NodeKind};
use crate::config::report::Report;
use crate::types::batch::ComputationKind;
use crate::types::pipeline::{
    CallLimits, ClockGrant, ComponentReference, ComputationLines, ComputationOptions,
    DirectoryGrant, EpochLimits, FailurePolicy, Grants, InstancePolicy, LaneLimits, MemoryLimits,
    OnFailure, Pipeline, RandomGrant,
};

/// The longest parameters of a computation, as JSON text, in bytes: they are kept with the pipeline's
/// other rows, among the few and small, and are shown whole when they change.
pub(super) const PARAMETERS_BYTES_MAX: usize = 3 << 10;

/// The greatest number of partitions of a transform: each is a job with a thread of its own.
pub(super) const PARTITIONS_MAX: u32 = 256;

/// The greatest number of rows that an epoch or a batch may be told to hold.
const ROWS_MAX: u64 = 1_000_000;

/// For how long an epoch may be told to take items.
const EPOCH_DURATIONS: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3_600);

/// How much later than its timestamps say a stream may be merged.
const DELAYS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(365 * 24 * 3_600);

/// How many bytes may be told to wait between jobs.
const LANE_BYTES: RangeInclusive<u64> = 1..=1 << 40;
/// How many rows of one kind a call may be told to return.
const EFFECT_ROWS: RangeInclusive<u64> = 1..=100_000_000;
/// How many lines a call may be told to log.
const LOG_LINES: RangeInclusive<u64> = 1..=1_000_000;
/// What a job may keep of states.
const STATE_CACHE_BYTES: RangeInclusive<u64> = 1 << 10..=64 << 30;

/// The most that an epoch, a batch or the effects of a call may be told to hold, in bytes.
const BYTES_MAX: u64 = 1 << 30;

/// Reads the whole file. `None` when there is no pipeline to speak of; the report has the reasons.
pub(super) fn read_pipeline(
    report: &Report<'_>,
    file: &Path,
    folder: &Path,
    fields: Fields<'_>,
) -> Option<Pipeline> {
    let mut tables = Tables {
        report,
        folder,
        graph: Graph::default(),
    };
    tables.pipeline(file, fields)
}

/// What reading the tables needs, and the graph that comes together on the way.
pub(super) struct Tables<'a> {
    pub(super) report: &'a Report<'a>,
    pub(super) folder: &'a Path,
    pub(super) graph: Graph,
}

impl Tables<'_> {
    fn pipeline(&mut self, file: &Path, mut fields: Fields<'_>) -> Option<Pipeline> {
        let name = fields.text("name");
        let name = fields.require("name", name, "write name = \"...\" at the top");
        if let Some(name) = &name {
            check_name(self.report, "pipeline", name);
        }
        let components = self.components(&mut fields);
        let queues = self.queues(&mut fields);
        let sources = self.sources(&mut fields, &queues);
        let computations = self.computations(&mut fields);
        let sinks = self.sinks(&mut fields, &queues);
        let epoch = fields.table("epoch");
        let epoch = epoch.map_or_else(EpochLimits::default, |table| self.epoch(table));
        let lanes = fields.table("lanes");
        let lanes = lanes.map_or_else(LaneLimits::default, lane_limits);
        let memory = fields.table("limits");
        let memory = memory.map_or_else(MemoryLimits::default, memory_limits);
        fields.finish();
        self.graph.check(self.report);
        self.check_sink_paths(&sources, &sinks);
        self.check_queue_users(&sources, &sinks);
        Some(Pipeline {
            name: name?.value,
            file: file.to_owned(),
            components,
            sources,
            computations,
            sinks,
            queues,
            epoch,
            lanes,
            memory,
            warnings: Vec::new(),
        })
    }

    fn components(&mut self, fields: &mut Fields<'_>) -> BTreeMap<String, ComponentReference> {
        let mut components = BTreeMap::new();
        for (name, value) in fields.named("components", "component") {
            self.graph.components.push(name.clone());
            if let Some(path) = self.component_path(&name, value) {
                let line = name.line;
                components.insert(name.value, ComponentReference { path, line });
            }
        }
        components
    }

    fn component_path(&self, name: &Located<String>, value: &DeValue<'_>) -> Option<PathBuf> {
        let DeValue::String(path) = value else {
            self.report.error(
                name.line,
                format!("component {} is not a path", name.value),
                "write the path of a .wasm file in quotes",
            );
            return None;
        };
        if path.starts_with("sha256:") {
            let what = format!("component {} by digest", name.value);
            let remedy = "write the path of its .wasm file";
            self.report.not_supported_yet(name.line, &what, remedy);
            return None;
        }
        let what = format!("component {}", name.value);
        self.existing_file(&what, name.line, path, "build it, or correct the path")
    }

    fn computations(&mut self, fields: &mut Fields<'_>) -> BTreeMap<String, ComputationOptions> {
        let mut computations = BTreeMap::new();
        for (name, fields) in fields.named_tables("computations", "computation") {
            if let Some(options) = self.computation(fields) {
                computations.insert(name.value, options);
            }
        }
        computations
    }

    fn computation(&mut self, mut fields: Fields<'_>) -> Option<ComputationOptions> {
        let component = fields.text("component");
        let remedy = "write component = \"...\", a name under [components]";
        let component = fields.require("component", component, remedy);
        let kinds = [
            ("map", ComputationKind::Map),
            ("transform", ComputationKind::Transform),
        ];
        let kind = fields.choice("kind", &kinds, &[]);
        let kind = fields.require("kind", kind, "write kind = \"map\" or \"transform\"");
        let kind = kind.map(|kind| kind.value);
        let inputs = self.inputs(&mut fields);
        let outputs = fields.texts("outputs").map(|streams| streams.value);
        let remedy = "write outputs = [...], the streams that it writes, or [] for none";
        let outputs = fields.require("outputs", outputs, remedy);
        let time = self.time_options(&mut fields, kind, inputs.as_deref());
        let written = outputs.iter().flatten().chain(&time.late_output).cloned();
        self.graph.nodes.push(Node {
            kind: NodeKind::Computation,
            what: fields.what.clone(),
            line: fields.line,
            component: component.clone(),
            inputs: inputs.clone(),
            outputs: outputs.is_some().then(|| written.collect()),
        });
        let partitions = self.partitions(&mut fields, kind);
        let parameters = self.parameters(&mut fields);
        let grants = fields.table("grants");
        let grants = grants.map_or_else(Grants::default, |table| self.grants(table, kind));
        let limits = fields
            .table("limits")
            .map_or_else(CallLimits::default, call_limits);
        let instances = [
            ("fresh", InstancePolicy::Fresh),
            ("reuse", InstancePolicy::Reuse),
        ];
        let instance = fields.choice("instance", &instances, &[]);
        let relaxed_batching = self.relaxed_batching(&mut fields, kind);
        let failure = failure_policy(&mut fields);
        // What it may say today is what happens anyway.
        let modes = [("exactly_once", ()), ("at_least_once_consistent", ())];
        fields.choice("processing_mode", &modes, &["at_most_once"]);
        let stream_delays = self.stream_delays(&mut fields, kind, inputs.as_deref());
        let lines = computation_lines(&fields);
        let line = fields.line;
        fields.finish();
        Some(ComputationOptions {
            component: component?.value,
            kind: kind?,
            inputs: values(inputs?),
            outputs: values(outputs?),
            partitions,
            stream_delays,
            late_output: time.late_output.map(|stream| stream.value),
            allowed_lateness: time.allowed_lateness,
            state_ttls: time.state_ttls,
            parameters: parameters?,
            grants,
            limits,
            instance: instance.map_or_else(InstancePolicy::default, |instance| instance.value),
            relaxed_batching,
            failure,
            line,
            lines,
        })
    }

    /// Whether outputs may have several parents.
    fn relaxed_batching(&self, fields: &mut Fields<'_>, kind: Option<ComputationKind>) -> bool {
        let Some(allowed) = fields.switch("allow_batching_with_relaxed_guarantees") else {
            return false;
        };
        let what = &fields.what;
        match (allowed.value, kind) {
            (true, Some(ComputationKind::Transform)) => self.report.error(
                allowed.line,
                format!("{what} is a transform, and only a map may have outputs of several parents"),
                "gather messages in the transform's state, which takes no guarantee back, or remove the field",
            ),
            (true, _) => self.report.warning(
                allowed.line,
                format!("{what} may batch with relaxed guarantees: its outputs depend on how input is cut into batches"),
                "remove the field where results must not, as a transform gathers messages in its state",
            ),
            (false, _) => {}
        }
        allowed.value
    }

    /// The streams that a computation or sink reads: at least one.
    pub(super) fn inputs(&self, fields: &mut Fields<'_>) -> Option<Vec<Located<String>>> {
        let remedy = "write inputs = [...], the streams that it reads";
        let inputs = fields.texts("inputs");
        let inputs = fields.require("inputs", inputs, remedy)?;
        if inputs.value.is_empty() {
            self.report.error(
                inputs.line,
                format!("{} reads no stream", fields.what),
                remedy,
            );
        }
        Some(inputs.value)
    }

    /// Into how many partitions a transform is cut; one where nothing is said.
    fn partitions(&self, fields: &mut Fields<'_>, kind: Option<ComputationKind>) -> u32 {
        let Some(partitions) = fields.number("partitions", 1..=u64::from(PARTITIONS_MAX)) else {
            return 1;
        };
        let what = &fields.what;
        if kind == Some(ComputationKind::Map) {
            let message = format!("{what} is a map and has no partitions of its own");
            self.report
                .error(partitions.line, message, "remove the field");
            return 1;
        }
        u32::try_from(partitions.value).expect("the range is checked above")
    }

    /// By how much inputs are to be merged later than their timestamps say.
    fn stream_delays(
        &self,
        fields: &mut Fields<'_>,
        kind: Option<ComputationKind>,
        inputs: Option<&[Located<String>]>,
    ) -> BTreeMap<String, Duration> {
        let what = fields.what.clone();
        let Some(mut ordering) = fields.table("input_ordering") else {
            return BTreeMap::new();
        };
        if kind == Some(ComputationKind::Map) {
            let message =
                format!("{what} is a map and takes messages in the order of what feeds it");
            self.report
                .error(ordering.line, message, "remove input_ordering");
        }
        let delays = ordering.named_durations("stream_delays", "stream", &DELAYS);
        ordering.finish();
        self.of_inputs(&what, delays, inputs)
    }

    /// What is said of streams, each of which has to be an input of the computation.
    pub(super) fn of_inputs(
        &self,
        what: &str,
        durations: Vec<(Located<String>, Duration)>,
        inputs: Option<&[Located<String>]>,
    ) -> BTreeMap<String, Duration> {
        let mut read = BTreeMap::new();
        for (stream, duration) in durations {
            let is_input = |input: &Located<String>| input.value == stream.value;
            if inputs.is_some_and(|inputs| !inputs.iter().any(is_input)) {
                self.report.error(
                    stream.line,
                    format!("{what} does not read stream {}", stream.value),
                    "name one of its inputs",
                );
            }
            read.insert(stream.value, duration);
        }
        read
    }

    /// The parameters as JSON text with sorted names, so that equal parameters are equal texts.
    fn parameters(&self, fields: &mut Fields<'_>) -> Option<String> {
        let Some(Located { value, line }) = fields.raw("parameters") else {
            return Some("{}".to_owned());
        };
        let what = &fields.what;
        if !value.is_table() {
            let message = format!("parameters of {what} must be a table");
            self.report
                .error(line, message, "write parameters = { name = value, ... }");
            return None;
        }
        let json = match json_of(value) {
            Ok(json) => json.to_string(),
            Err(finding) => {
                let message =
                    format!("parameters of {what} hold {finding}, which JSON can't carry");
                self.report.error(line, message, "write it as a string");
                return None;
            }
        };
        if json.len() > PARAMETERS_BYTES_MAX {
            let found = json.len();
            let message = format!(
                "parameters of {what} are {found} bytes as JSON, the limit is {PARAMETERS_BYTES_MAX}"
            );
            self.report
                .error(line, message, "read what is this large from a source");
            return None;
        }
        Some(json)
    }

    fn grants(&self, mut fields: Fields<'_>, kind: Option<ComputationKind>) -> Grants {
        let randoms = [
            ("deny", RandomGrant::Deny),
            ("seeded", RandomGrant::Seeded),
            ("host", RandomGrant::Host),
        ];
        let clocks = [
            ("deny", ClockGrant::Deny),
            ("frozen", ClockGrant::Frozen),
            ("host", ClockGrant::Host),
        ];
        let random = fields.choice("random", &randoms, &[]);
        let clock = fields.choice("clock", &clocks, &[]);
        if let Some(random) = &random
            && random.value == RandomGrant::Host
        {
            self.impure(&fields, "random", "seeded", random.line, kind);
        }
        if let Some(clock) = &clock
            && clock.value == ClockGrant::Host
        {
            self.impure(&fields, "clock", "frozen", clock.line, kind);
        }
        let directories = match fields.texts("directories") {
            Some(directories) => self.directories(&fields.what, &directories, kind),
            None => Vec::new(),
        };
        fields.finish();
        Grants {
            random: random.map_or_else(RandomGrant::default, |grant| grant.value),
            clock: clock.map_or_else(ClockGrant::default, |grant| grant.value),
            directories,
        }
    }

    /// Directories that a transform may read; they have to be there already.
    fn directories(
        &self,
        what: &str,
        written: &Located<Vec<Located<String>>>,
        kind: Option<ComputationKind>,
    ) -> Vec<DirectoryGrant> {
        if kind == Some(ComputationKind::Map) && !written.value.is_empty() {
            self.report.error(
                written.line,
                format!("directories in {what} make a map impure"),
                "remove them, or make it a transform",
            );
        } else if !written.value.is_empty() {
            self.report.warning(
                written.line,
                format!("directories in {what}: its results can't be reproduced"),
                "read the files by a source where that will do",
            );
        }
        let mut directories = Vec::new();
        for directory in &written.value {
            let path = self.folder.join(&directory.value);
            if path.is_dir() {
                directories.push(DirectoryGrant {
                    guest_path: directory.value.clone(),
                    path,
                });
                continue;
            }
            self.report.error(
                directory.line,
                format!("directories in {what}: {} is not a folder", path.display()),
                "make the folder, or correct the path",
            );
        }
        directories
    }

    /// The grant `host`: refused for a map, which must be deterministic, and a warning otherwise.
    fn impure(
        &self,
        fields: &Fields<'_>,
        key: &str,
        pure: &str,
        line: usize,
        kind: Option<ComputationKind>,
    ) {
        let what = &fields.what;
        match kind {
            Some(ComputationKind::Map) => self.report.error(
                line,
                format!("{key} = \"host\" in {what} makes a map impure"),
                format!("write {key} = {pure:?}, or make it a transform"),
            ),
            _ => self.report.warning(
                line,
                format!("{key} = \"host\" in {what}: its results can't be reproduced"),
                format!("write {key} = {pure:?} where that will do"),
            ),
        }
    }

    fn epoch(&self, mut fields: Fields<'_>) -> EpochLimits {
        fields.what = "epoch".to_owned();
        let defaults = EpochLimits::default();
        let rows = 1..=ROWS_MAX;
        let bytes = 1..=BYTES_MAX;
        let batch_rows = fields.number("max_rows_per_batch", rows.clone());
        let batch_bytes = fields.size("max_bytes_per_batch", bytes.clone());
        let max_rows_per_epoch = value_or(
            fields.number("max_rows_per_epoch", rows),
            defaults.max_rows_per_epoch,
        );
        let max_bytes_per_epoch = value_or(
            fields.size("max_bytes_per_epoch", bytes),
            defaults.max_bytes_per_epoch,
        );
        let max_duration = fields.duration("max_duration", EPOCH_DURATIONS);
        fields.finish();
        for (key, batch, epoch) in [
            ("rows", &batch_rows, max_rows_per_epoch),
            ("bytes", &batch_bytes, max_bytes_per_epoch),
        ] {
            if let Some(batch) = batch
                && batch.value as usize > epoch
            {
                let message = format!(
                    "max_{key}_per_batch is above max_{key}_per_epoch, and no batch leaves its epoch"
                );
                let remedy = format!("raise max_{key}_per_epoch or lower this");
                self.report.warning(batch.line, message, remedy);
            }
        }
        let rows = value_or(batch_rows, defaults.max_rows_per_batch);
        let bytes = value_or(batch_bytes, defaults.max_bytes_per_batch);
        EpochLimits {
            max_rows_per_batch: rows.min(max_rows_per_epoch),
            max_bytes_per_batch: bytes.min(max_bytes_per_epoch),
            max_rows_per_epoch,
            max_bytes_per_epoch,
            max_duration: max_duration.map_or(defaults.max_duration, |duration| duration.value),
        }
    }

    /// The absolute path of a file that has to be there already.
    pub(super) fn existing_file(
        &self,
        what: &str,
        line: usize,
        written: &str,
        remedy: &str,
    ) -> Option<PathBuf> {
        let path = self.folder.join(written);
        let finding = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => return Some(path),
            Ok(metadata) if metadata.is_dir() => "it is a folder".to_owned(),
            Ok(_) => "it is not a regular file".to_owned(),
            Err(error) => error.to_string(),
        };
        let shown = path.display();
        let message = format!("the file of {what} can't be read: {shown}: {finding}");
        self.report.error(line, message, remedy);
        None
    }
}

/// What becomes of an item that the computation or source of these fields fails on.
pub(in crate::config) fn on_failure(fields: &mut Fields<'_>) -> OnFailure {
    let choices = [
        ("fail", OnFailure::Fail),
        ("skip", OnFailure::Skip),
        ("dead_letter", OnFailure::DeadLetter),
    ];
    let chosen = fields.choice("on_failure", &choices, &[]);
    chosen.map_or_else(OnFailure::default, |chosen| chosen.value)
}

fn failure_policy(fields: &mut Fields<'_>) -> FailurePolicy {
    let on_failure = on_failure(fields);
    let attempts = fields.number("attempts", 1..=u64::from(FailurePolicy::ATTEMPTS_MAX));
    let default = FailurePolicy::default();
    FailurePolicy {
        on_failure,
        attempts: attempts.map_or(default.attempts, |attempts| {
            u32::try_from(attempts.value).expect("the range is checked above")
        }),
    }
}

fn call_limits(mut fields: Fields<'_>) -> CallLimits {
    let defaults = CallLimits::default();
    let deadlines = Duration::from_millis(1)..=Duration::from_secs(3_600);
    let fuel = fields.number("fuel", 1..=i64::MAX as u64);
    let memory = fields.size("memory", 64 << 10..=CallLimits::MEMORY_BYTES_MAX as u64);
    let deadline = fields.duration("deadline", deadlines);
    let output = fields.size("output", 1 << 10..=BYTES_MAX);
    let outputs = fields.number("outputs", EFFECT_ROWS);
    let message = fields.size("message", 1..=BYTES_MAX);
    let state_value = fields.size("state_value", 1..=BYTES_MAX);
    let timers_per_key = fields.number("timers_per_key", EFFECT_ROWS);
    let log = fields.size("log", 1..=16 << 20);
    let log_lines = fields.number("log_lines", LOG_LINES);
    fields.finish();
    CallLimits {
        fuel: fuel.map_or(defaults.fuel, |fuel| fuel.value),
        memory_bytes: value_or(memory, defaults.memory_bytes),
        deadline: deadline.map_or(defaults.deadline, |deadline| deadline.value),
        output_bytes: value_or(output, defaults.output_bytes),
        outputs: value_or(outputs, defaults.outputs),
        message_bytes: value_or(message, defaults.message_bytes),
        state_value_bytes: value_or(state_value, defaults.state_value_bytes),
        timers_per_key: value_or(timers_per_key, defaults.timers_per_key),
        log_bytes: value_or(log, defaults.log_bytes),
        log_lines: value_or(log_lines, defaults.log_lines),
    }
}

fn lane_limits(mut fields: Fields<'_>) -> LaneLimits {
    fields.what = "lanes".to_owned();
    let defaults = LaneLimits::default();
    let max_bytes = fields.size("max_bytes", LANE_BYTES);
    let channel_bytes = fields.size("channel_bytes", 0..=*LANE_BYTES.end());
    fields.finish();
    LaneLimits {
        max_bytes: max_bytes.map_or(defaults.max_bytes, |bytes| bytes.value),
        channel_bytes: channel_bytes.map_or(defaults.channel_bytes, |bytes| bytes.value),
    }
}

fn memory_limits(mut fields: Fields<'_>) -> MemoryLimits {
    fields.what = "limits".to_owned();
    let state_cache = fields.size("state_cache", STATE_CACHE_BYTES);
    fields.finish();
    MemoryLimits {
        state_cache_bytes: state_cache.map(|bytes| bytes.value as usize),
    }
}

fn computation_lines(fields: &Fields<'_>) -> ComputationLines {
    ComputationLines {
        component: fields.line_of("component"),
        kind: fields.line_of("kind"),
        inputs: fields.line_of("inputs"),
        outputs: fields.line_of("outputs"),
        parameters: fields.line_of("parameters"),
        grants: fields.line_of("grants"),
        limits: fields.line_of("limits"),
        instance: fields.line_of("instance"),
    }
}

/// The JSON of a TOML value; a date becomes its text. What JSON can't carry is named.
fn json_of(value: &DeValue<'_>) -> Result<serde_json::Value, String> {
    Ok(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_err(|_| format!("the number {integer}"))?
            .into(),
        DeValue::Float(float) => float
            .as_str()
            .parse()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .ok_or_else(|| format!("the number {float}"))?
            .into(),
        DeValue::Boolean(boolean) => (*boolean).into(),
        DeValue::Datetime(datetime) => datetime.to_string().into(),
        DeValue::Array(array) => array
            .iter()
            .map(|element| json_of(element.get_ref()))
            .collect::<Result<Vec<_>, _>>()?
            .into(),
        DeValue::Table(table) => {
            let mut sorted = BTreeMap::new();
            for (name, value) in table {
                sorted.insert(name.get_ref().to_string(), json_of(value.get_ref())?);
            }
            serde_json::Value::Object(sorted.into_iter().collect())
        }
    })
}

/// A number of rows or bytes; every range allowed here fits a `usize` of 64 bits.
fn value_or(written: Option<Located<u64>>, default: usize) -> usize {
    written.map_or(default, |written| {
        usize::try_from(written.value).unwrap_or(usize::MAX)
    })
}

pub(super) fn values(located: Vec<Located<String>>) -> Vec<String> {
    located.into_iter().map(|it| it.value).collect()
}
