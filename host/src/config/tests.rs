//! Every finding once, the defaults, and the whole list of a thoroughly wrong file.

use std::time::Duration;

use crate::config::{PIPELINE_FILE_BYTES_MAX, load};
use crate::types::batch::ComputationKind;
use crate::types::finding::Finding;
use crate::types::pipeline::{
    AllIdle, CallLimits, ClockGrant, EpochLimits, FailurePolicy, FileSourceOptions, Grants,
    IdleOptions, InstancePolicy, LaneLimits, OnFailure, Pipeline, RandomGrant, RecordFormat,
    SinkConnector, SourceConnector, StateTtl, UnreadPartitions, WatermarkOptions,
};

/// A pipeline file without a finding. Tests change one thing in it.
const VALID: &str = r#"name = "flights"
[components]
parse = "parse.wasm"
delays = "delays.wasm"
[sources.departures]
type = "file"
path = "flights.csv"
format = "lines"
[computations.parse]
component = "parse"
kind = "map"
inputs = ["departures"]
outputs = ["legs"]
[computations.delays]
component = "delays"
kind = "transform"
inputs = ["legs"]
outputs = ["statistics"]
[sinks.statistics]
type = "file"
path = "out/statistics.jsonl"
inputs = ["statistics"]
"#;

/// A folder with the files that [`VALID`] names.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["parse.wasm", "delays.wasm", "flights.csv"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    folder
}

/// All findings of `text`, whether or not they stop a run, without the folder's own name.
fn findings_of(text: &str) -> (Option<Pipeline>, Vec<String>) {
    let folder = folder();
    std::fs::write(folder.path().join("tidelock.toml"), text).unwrap();
    let real = folder.path().canonicalize().unwrap();
    let shown = |findings: &[Finding]| {
        let shown = |finding: &Finding| {
            let text = finding.to_string();
            let text = text.replace(&format!("{}/", folder.path().display()), "");
            text.replace(&format!("{}/", real.display()), "")
        };
        findings.iter().map(shown).collect()
    };
    match load(folder.path()) {
        Ok(pipeline) => {
            let warnings = shown(&pipeline.warnings);
            (Some(pipeline), warnings)
        }
        Err(error) => (None, shown(&error.findings)),
    }
}

/// Replaces `old` by `new` in [`VALID`] and compares all that is found.
#[track_caller]
fn check(old: &str, new: &str, expected: &[&str]) {
    assert_eq!(
        VALID.matches(old).count(),
        1,
        "{old:?} stands once in the valid file"
    );
    let (_, found) = findings_of(&VALID.replacen(old, new, 1));
    let expected: Vec<String> = expected
        .iter()
        .map(|it| format!("tidelock.toml:{it}"))
        .collect();
    assert_eq!(found, expected);
}

/// As [`check`], with lines added to the first computation, a map, or the second, a transform.
#[track_caller]
fn check_map_with(lines: &str, expected: &[&str]) {
    check(
        "outputs = [\"legs\"]",
        &format!("outputs = [\"legs\"]\n{lines}"),
        expected,
    );
}

#[track_caller]
fn check_transform_with(lines: &str, expected: &[&str]) {
    let old = "outputs = [\"statistics\"]";
    check(old, &format!("{old}\n{lines}"), expected);
}

#[test]
fn a_short_file_gets_the_documented_defaults() {
    let (pipeline, warnings) = findings_of(VALID);
    let pipeline = pipeline.unwrap();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(pipeline.name, "flights");
    assert_eq!(pipeline.epoch, EpochLimits::default());
    assert_eq!(pipeline.lanes, LaneLimits::default());
    assert!(pipeline.components["parse"].path.is_absolute());
    assert_eq!(pipeline.components["parse"].line, 3);
    let departures = &pipeline.sources["departures"];
    assert_eq!(departures.parallel_partitions, None);
    assert_eq!(departures.watermarks, WatermarkOptions::default());
    let [SourceConnector::File(source)] = &departures.partitions[..] else {
        panic!("a path is one partition");
    };
    assert_eq!(source.format, RecordFormat::Lines);
    assert_eq!(source.written_path, "flights.csv");
    assert!(!source.follow);
    assert_eq!(
        source.max_record_bytes,
        FileSourceOptions::RECORD_BYTES_MAX_DEFAULT
    );
    let delays = &pipeline.computations["delays"];
    assert_eq!(delays.kind, ComputationKind::Transform);
    assert_eq!((delays.partitions, delays.parameters.as_str()), (1, "{}"));
    assert_eq!(delays.grants, Grants::default());
    assert_eq!(delays.limits, CallLimits::default());
    assert_eq!(delays.instance, InstancePolicy::Fresh);
    assert_eq!(delays.failure, FailurePolicy::default());
    assert_eq!(delays.late_output, None);
    assert!(delays.allowed_lateness.is_empty() && delays.state_ttls.is_empty());
    assert_eq!(
        (delays.line, delays.lines.component, delays.lines.inputs),
        (14, 15, 17)
    );
    assert_eq!((delays.lines.outputs, delays.lines.limits), (18, 14));
    let sink = &pipeline.sinks["statistics"];
    assert_eq!((sink.line, sink.inputs_line), (19, 22));
    assert!(matches!(&sink.connector, SinkConnector::File { path } if path.is_absolute()));
}

#[test]
fn everything_that_may_be_written_is_read() {
    let text = VALID
        .replace(
            "format = \"lines\"",
            r#"format = "jsonl"
max_record_bytes = "2KiB"
parallel_partitions = 3
follow = true
watermark_generator = { out_of_orderness_bound = "0s", records_per_watermark = 1, future_limit = "2d", idle_partitions = { duration = "5m", max_ratio = 1 }, all_idle = { advance_after = "10m" }, unread_partitions = "leave_out", drift_bound = "20m" }"#,
        )
        .replace(
            "outputs = [\"statistics\"]",
            r#"outputs = ["statistics"]
partitions = 1
parameters = { alert_minutes = 180, nested = { b = [1.5, true], a = "x" }, day = 2013-01-01 }
grants = { random = "seeded", clock = "frozen", directories = [] }
limits = { fuel = 1_000, memory = "1MiB", deadline = "250ms", output = "2KiB", outputs = 5, message = "6B", state_value = "7KiB", timers_per_key = 8, log = "3B", log_lines = 9 }
instance = "reuse"
input_ordering = { stream_delays = { legs = "5s" } }
late_output = "late"
allowed_lateness = { legs = "1h" }
states = { "Totals of day" = { ttl = "7d" } }
on_failure = "dead_letter"
attempts = 7
processing_mode = "at_least_once_consistent""#,
        )
        + "[epoch]\nmax_rows_per_epoch = 8\nmax_bytes_per_epoch = \"1MiB\"\nmax_duration = \"20ms\"\n\
           [lanes]\nmax_bytes = \"3KiB\"\nchannel_bytes = \"0B\"\n\
           [sinks.screen]\ntype = \"stdout\"\ninputs = [\"legs\", \"late\"]\n";
    let (pipeline, warnings) = findings_of(&text);
    assert_eq!(warnings, [""; 0]);
    let pipeline = pipeline.unwrap();
    let departures = &pipeline.sources["departures"];
    // There is one file, and a file that is followed has its turn from the beginning.
    assert_eq!(departures.parallel_partitions, Some(1));
    let watermarks = WatermarkOptions {
        out_of_orderness_bound: Duration::ZERO,
        records_per_watermark: 1,
        future_limit: Duration::from_secs(2 * 86_400),
        idle_partitions: Some(IdleOptions {
            duration: Duration::from_secs(300),
            max_ratio: 1.0,
        }),
        all_idle: AllIdle::AdvanceAfter(Duration::from_secs(600)),
        unread_partitions: UnreadPartitions::LeaveOut,
        drift_bound: Some(Duration::from_secs(1_200)),
    };
    assert_eq!(departures.watermarks, watermarks);
    let [SourceConnector::File(source)] = &departures.partitions[..] else {
        panic!("a path is one partition");
    };
    assert_eq!(
        (source.format, source.max_record_bytes),
        (RecordFormat::Jsonl, 2_048)
    );
    assert!(source.follow);
    let delays = &pipeline.computations["delays"];
    assert_eq!(
        delays.parameters,
        r#"{"alert_minutes":180,"day":"2013-01-01","nested":{"a":"x","b":[1.5,true]}}"#
    );
    assert_eq!(delays.grants.random, RandomGrant::Seeded);
    assert_eq!(delays.grants.clock, ClockGrant::Frozen);
    let limits = CallLimits {
        fuel: 1_000,
        memory_bytes: 1 << 20,
        deadline: Duration::from_millis(250),
        output_bytes: 2_048,
        outputs: 5,
        message_bytes: 6,
        state_value_bytes: 7 << 10,
        timers_per_key: 8,
        log_bytes: 3,
        log_lines: 9,
    };
    assert_eq!(delays.limits, limits);
    assert_eq!(delays.instance, InstancePolicy::Reuse);
    let failure = FailurePolicy {
        on_failure: OnFailure::DeadLetter,
        attempts: 7,
    };
    assert_eq!(delays.failure, failure);
    // A batch never leaves its epoch.
    let epoch = EpochLimits {
        max_rows_per_batch: 8,
        max_bytes_per_batch: 1 << 20,
        max_rows_per_epoch: 8,
        max_bytes_per_epoch: 1 << 20,
        max_duration: Duration::from_millis(20),
    };
    assert_eq!(pipeline.epoch, epoch);
    assert_eq!(
        (pipeline.lanes.max_bytes, pipeline.lanes.channel_bytes),
        (3_072, 0)
    );
    assert_eq!(delays.stream_delays["legs"], Duration::from_secs(5));
    assert_eq!(delays.late_output.as_deref(), Some("late"));
    assert_eq!(delays.allowed_lateness["legs"], Duration::from_secs(3_600));
    let ttl = StateTtl {
        ttl: Duration::from_secs(7 * 86_400),
        line: 31,
    };
    assert_eq!(delays.state_ttls["Totals of day"], ttl);
    assert!(matches!(
        pipeline.sinks["screen"].connector,
        SinkConnector::Stdout
    ));
}

#[test]
fn equal_parameters_are_equal_texts() {
    let with = |parameters: &str| {
        let lines = format!("outputs = [\"statistics\"]\n{parameters}");
        let (pipeline, _) = findings_of(&VALID.replace("outputs = [\"statistics\"]", &lines));
        pipeline.unwrap().computations["delays"].parameters.clone()
    };
    assert_eq!(
        with("parameters = { b = 1, a = { d = 0x10, c = 2 } }"),
        with("[computations.delays.parameters]\na.c = 2\na.d = 16\nb = 1")
    );
}

#[test]
fn a_thoroughly_wrong_file_gets_all_its_findings_at_once() {
    let (pipeline, found) = findings_of(include_str!("golden/wrong.toml"));
    assert!(pipeline.is_none());
    let found = found.join("\n") + "\n";
    assert_eq!(found, include_str!("golden/wrong.findings"));
}

#[test]
fn the_example_in_the_manual_is_valid() {
    let manual = include_str!("../../../docs/pipeline.md");
    let example = manual
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("components")).unwrap();
    for name in [
        "components/parse.wasm",
        "components/delays.wasm",
        "flights.csv.zip",
    ] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    std::fs::write(folder.path().join("tidelock.toml"), example).unwrap();
    let pipeline = load(&folder.path().join("tidelock.toml")).unwrap();
    let messages: Vec<&str> = pipeline
        .warnings
        .iter()
        .map(|it| it.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "nobody reads stream rejected, so its messages are dropped",
            "nobody reads stream alerts, so its messages are dropped",
        ]
    );
}

#[test]
fn findings_serialise_to_json() {
    let folder = folder();
    let file = folder.path().join("tidelock.toml");
    std::fs::write(&file, VALID.replace("kind = \"map\"", "kind = \"mop\"")).unwrap();
    let error = load(&file).unwrap_err();
    let expected = serde_json::json!({ "findings": [{
        "file": file,
        "line": 11,
        "severity": "error",
        "message": "kind = \"mop\" of computation parse is unknown",
        "remedy": "did you mean \"map\"?",
    }]});
    assert_eq!(serde_json::to_value(&error).unwrap(), expected);
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidelock.toml");
    let finding = || {
        load(folder.path())
            .unwrap_err()
            .to_string()
            .replace(&file.display().to_string(), "F")
    };
    assert_eq!(
        finding(),
        "F: can't be read: No such file or directory (os error 2); name a pipeline file, or a \
         folder that holds a tidelock.toml, that can be read"
    );
    std::fs::write(&file, b"name = \"a\"\n\n# \xff\n").unwrap();
    assert_eq!(
        finding(),
        "F:3: is not UTF-8 from this line on; save it as UTF-8"
    );
    std::fs::write(&file, vec![b'#'; PIPELINE_FILE_BYTES_MAX + 1]).unwrap();
    assert_eq!(
        finding(),
        "F: is longer than 1048576 bytes; check that this is the pipeline file and not one of its inputs"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(finding().starts_with("F: is not a regular file"));
}

#[test]
fn broken_toml_is_reported_with_its_lines_and_nothing_else() {
    let (_, found) = findings_of("name = \"a\n[sources.x]\ntype = = 3\nname = 1\nname = 2\n");
    assert!(found.len() >= 2, "{found:?}");
    assert!(
        found[0].starts_with("tidelock.toml:1: not TOML: "),
        "{found:?}"
    );
    assert!(
        found.iter().all(|finding| finding.contains("not TOML")),
        "{found:?}"
    );
}

#[test]
fn an_empty_file_says_what_is_missing() {
    let (_, found) = findings_of("");
    assert_eq!(
        found,
        [
            "tidelock.toml:1: the pipeline has no name; write name = \"...\" at the top",
            "tidelock.toml:1: the pipeline has no source; write [sources.NAME] with type, path and format",
            "tidelock.toml:1: the pipeline has neither a computation nor a sink; write [computations.NAME] and [sinks.NAME]",
        ]
    );
}

#[test]
fn wrong_names() {
    let form = "use 1 to 64 of a-z, 0-9, \"_\" and \"-\"";
    let finding = |line: usize, noun: &str, name: &str| {
        format!("{line}: {noun} name {name:?} is not allowed; {form}")
    };
    check(
        "\"flights\"",
        "\"Flights\"",
        &[&finding(1, "pipeline", "Flights")],
    );
    check("\"flights\"", "\"\"", &[&finding(1, "pipeline", "")]);
    let long = "x".repeat(65);
    check(
        "\"flights\"",
        &format!("{long:?}"),
        &[&finding(1, "pipeline", &long)],
    );
    check(
        "[sinks.statistics]",
        "[sinks.\"a b\"]",
        &[&finding(19, "sink", "a b")],
    );
    check(
        "outputs = [\"statistics\"]",
        "outputs = [\"statistics\",\n\"Alerts\"]",
        &[
            &finding(19, "stream", "Alerts"),
            "19: warning: nobody reads stream Alerts, so its messages are dropped; \
             add \"Alerts\" to the inputs of a sink if they are wanted",
        ],
    );
}

#[test]
fn wrong_fields_and_types() {
    check(
        "kind = \"map\"\ninputs",
        "kind = \"map\"\ninput",
        &[
            "9: computation parse has no inputs; write inputs = [...], the streams that it reads",
            "12: unknown field \"input\" in computation parse; did you mean \"inputs\"?",
        ],
    );
    check(
        "format = \"lines\"",
        "format = \"lines\"\nencoding = \"latin1\"",
        &["9: unknown field \"encoding\" in source departures; \
           remove it; known here: type, path, paths, format, \
           max_record_bytes, parallel_partitions, follow, watermark_generator, on_failure"],
    );
    check(
        "name = \"flights\"",
        "name = 5",
        &["1: name of the pipeline must be a string, not an integer; put it in quotes"],
    );
    check(
        "inputs = [\"legs\"]",
        "inputs = \"legs\"",
        &[
            "17: inputs of computation delays must be a list of strings, not a string; \
           write names in quotes between brackets, as in [\"a\", \"b\"]",
        ],
    );
    check(
        "inputs = [\"legs\"]",
        "inputs = [\n\"legs\",\n7]",
        &[
            "19: inputs of computation delays must be a list of strings, not an integer; \
           write names in quotes between brackets, as in [\"a\", \"b\"]",
        ],
    );
    check(
        "parse = \"parse.wasm\"",
        "parse = 3",
        &["3: component parse is not a path; write the path of a .wasm file in quotes"],
    );
    check(
        "name = \"flights\"",
        "name = \"flights\"\nepoch = 3",
        &["2: epoch of the pipeline must be a table, not an integer; write { name = value, ... }"],
    );
    check(
        "name = \"flights\"",
        "name = \"flights\"\nsinks.x = 3",
        &["2: sink x is an integer, not a table; write [sinks.x] and its fields below"],
    );
}

#[test]
fn a_source_of_several_files_has_a_partition_for_each() {
    let paths = "paths = [\"./flights.csv\", \"parse.wasm\"]\nparallel_partitions = 1";
    let (pipeline, warnings) = findings_of(&VALID.replace("path = \"flights.csv\"", paths));
    assert_eq!(warnings, [""; 0]);
    let departures = &pipeline.unwrap().sources["departures"];
    let names = departures.partitions.iter();
    let names: Vec<&str> = names.map(SourceConnector::partition_name).collect();
    assert_eq!(names, ["flights.csv", "parse.wasm"]);
    assert_eq!(departures.parallel_partitions, Some(1));
}

#[test]
fn lists_of_files() {
    let path = "path = \"flights.csv\"";
    check(
        path,
        "path = \"flights.csv\"\npaths = [\"parse.wasm\"]",
        &["8: source departures has both path and paths; \
           remove path and add its file to paths"],
    );
    check(
        path,
        "paths = []",
        &["7: source departures reads 0 files; list 1 to 256 in paths"],
    );
    let many = vec!["\"flights.csv\""; 257].join(", ");
    check(
        path,
        &format!("paths = [{many}]"),
        &["7: source departures reads 257 files; list 1 to 256 in paths"],
    );
    // Every file is looked at, whatever is wrong with another one.
    check(
        path,
        "paths = [\n\"flights.csv\",\n\"nowhere\",\n\"x/../flights.csv\",\n\"./flights.csv\"]",
        &[
            "9: the file of source departures can't be read: nowhere: \
           No such file or directory (os error 2); correct the path; it is relative to the pipeline file",
            "10: the file of source departures can't be read: x/../flights.csv: \
           No such file or directory (os error 2); correct the path; it is relative to the pipeline file",
            "11: source departures reads the file ./flights.csv twice; remove it here, or on line 8",
        ],
    );
    let long = "x".repeat(513);
    check(
        path,
        &format!("paths = [\"{long}\"]"),
        &[
            "7: a path of source departures has 513 bytes; move the file, so that 512 bytes are enough",
        ],
    );
    check(
        path,
        "path = \"flights.csv\"\nparallel_partitions = 0",
        &["8: parallel_partitions = 0 of source departures is out of range; write 1 to 256"],
    );
}

#[test]
fn missing_fields() {
    check(
        "type = \"file\"\npath = \"flights.csv\"",
        "",
        &[
            "5: source departures has no type; write type = \"file\", \"directory\", \"queue\" or \"generator\"",
        ],
    );
    check(
        "path = \"flights.csv\"\nformat = \"lines\"",
        "",
        &[
            "5: source departures has no path; write path = \"...\", the file to read, \
             or paths = [...], several of them",
            "5: source departures has no format; write format = \"lines\", \"csv\" or \"jsonl\"",
        ],
    );
    check(
        "component = \"parse\"\nkind = \"map\"",
        "",
        &[
            "3: warning: no computation runs component parse; remove it, or name it in a computation",
            "9: computation parse has no component; write component = \"...\", a name under [components]",
            "9: computation parse has no kind; write kind = \"map\" or \"transform\"",
        ],
    );
    check(
        "outputs = [\"statistics\"]",
        "",
        &["14: computation delays has no outputs; \
           write outputs = [...], the streams that it writes, or [] for none"],
    );
    check(
        "path = \"out/statistics.jsonl\"",
        "",
        &["19: sink statistics has no path; write path = \"...\", the file to append to"],
    );
    check(
        "type = \"file\"\npath = \"out/statistics.jsonl\"",
        "",
        &[
            "19: sink statistics has no type; write type = \"file\", \"directory\", \"queue\", \"stdout\" or \"null\"",
        ],
    );
}

#[test]
fn wrong_quantities() {
    let limits = |limits: &str, finding: &str| {
        check_transform_with(
            &format!("limits = {{ {limits} }}"),
            &[&format!("19: {finding}")],
        );
    };
    limits(
        "memory = \"256MB\"",
        "memory = \"256MB\" of limits of computation delays is not a size; \
         write a whole number and a unit, B, KiB, MiB or GiB, as in \"64MiB\"",
    );
    limits(
        "memory = 1000",
        "memory of limits of computation delays must be a size, not an integer; \
         write a whole number and a unit, B, KiB, MiB or GiB, as in \"64MiB\"",
    );
    limits(
        "memory = \"2GiB\"",
        "memory = 2GiB of limits of computation delays is out of range; write 64KiB to 1GiB",
    );
    limits(
        "deadline = \"30\"",
        "deadline = \"30\" of limits of computation delays is not a duration; \
         write a whole number and a unit, ms, s, m, h or d, as in \"250ms\"",
    );
    limits(
        "deadline = \"2h\"",
        "deadline = 2h of limits of computation delays is out of range; write 1ms to 1h",
    );
    limits(
        "fuel = -1",
        "fuel = -1 of limits of computation delays is out of range; write 1 to 9223372036854775807",
    );
    limits(
        "fuel = \"1\"",
        "fuel of limits of computation delays must be a whole number, not a string; \
         write it without quotes",
    );
    limits(
        "output = \"1B\"",
        "output = 1B of limits of computation delays is out of range; write 1KiB to 1GiB",
    );
    limits(
        "outputs = 0",
        "outputs = 0 of limits of computation delays is out of range; write 1 to 100000000",
    );
    limits(
        "message = \"2GiB\"",
        "message = 2GiB of limits of computation delays is out of range; write 1B to 1GiB",
    );
    limits(
        "state_value = 5",
        "state_value of limits of computation delays must be a size, not an integer; \
         write a whole number and a unit, B, KiB, MiB or GiB, as in \"64MiB\"",
    );
    limits(
        "timers_per_key = 0",
        "timers_per_key = 0 of limits of computation delays is out of range; write 1 to 100000000",
    );
    limits(
        "log_lines = 0",
        "log_lines = 0 of limits of computation delays is out of range; write 1 to 1000000",
    );
    limits(
        "log = \"0B\"",
        "log = 0B of limits of computation delays is out of range; write 1B to 16MiB",
    );
    limits(
        "logs = \"1B\"",
        "unknown field \"logs\" in limits of computation delays; did you mean \"log\"?",
    );
    check(
        "format = \"lines\"",
        "format = \"lines\"\nmax_record_bytes = \"1GiB\"",
        &["9: max_record_bytes = 1GiB of source departures is out of range; write 1B to 64MiB"],
    );
    check(
        "[components]",
        "[epoch]\nmax_rows_per_epoch = 0\n[components]",
        &["3: max_rows_per_epoch = 0 of epoch is out of range; write 1 to 1000000"],
    );
    check(
        "[components]",
        "[epoch]\nmax_rows_per_batch = 9\nmax_rows_per_epoch = 8\n[components]",
        &[
            "3: warning: max_rows_per_batch is above max_rows_per_epoch, and no batch leaves its \
           epoch; raise max_rows_per_epoch or lower this",
        ],
    );
}

#[test]
fn granted_directories_have_to_be_there() {
    check_transform_with(
        "grants = { directories = [\"nowhere\"] }",
        &[
            "19: warning: directories in grants of computation delays: its results can't be \
             reproduced; read the files by a source where that will do",
            "19: directories in grants of computation delays: nowhere is not a folder; \
           make the folder, or correct the path",
        ],
    );
}

#[test]
fn what_comes_in_later_releases_is_refused_in_a_clear_word() {
    check(
        "format = \"lines\"",
        "format = \"lines\"\nevent_time = { column = 3 }",
        &["9: event_time of source departures is not supported yet; \
           remove it, and let a map give event times"],
    );
    check(
        "type = \"file\"\npath = \"out/statistics.jsonl\"",
        "type = \"table\"\ntable = \"alerts\"",
        &[
            "20: type = \"table\" of sink statistics is not supported yet; write \"file\", \"directory\", \"queue\", \"stdout\" or \"null\"",
        ],
    );
    check(
        "type = \"file\"\npath = \"flights.csv\"",
        "type = \"kafka\"\ntopic = \"flights\"",
        &[
            "6: type = \"kafka\" of source departures is not supported yet; write \"file\", \"directory\", \"queue\" or \"generator\"",
        ],
    );
    check(
        "parse = \"parse.wasm\"",
        "parse = \"sha256:0123\"",
        &["3: component parse by digest is not supported yet; write the path of its .wasm file"],
    );
    check_transform_with(
        "attempts = 0",
        &["19: attempts = 0 of computation delays is out of range; write 1 to 100"],
    );
    check_transform_with(
        "processing_mode = \"at_most_once\"",
        &[
            "19: processing_mode = \"at_most_once\" of computation delays is not supported yet; \
           write \"exactly_once\" or \"at_least_once_consistent\"",
        ],
    );
}

#[test]
fn delays_are_for_inputs_of_transforms() {
    check_transform_with(
        "input_ordering = { stream_delays = { legs = \"5s\" } }",
        &[],
    );
    check_transform_with(
        "input_ordering = { stream_delays = { leg = \"5s\", legs = 5 }, time_type = \"x\" }",
        &[
            "19: legs of input_ordering of computation delays must be a duration, not an integer; \
             write a whole number and a unit, ms, s, m, h or d, as in \"250ms\"",
            "19: unknown field \"time_type\" in input_ordering of computation delays; \
             remove it; known here: stream_delays",
            "19: computation delays does not read stream leg; name one of its inputs",
        ],
    );
    check_map_with(
        "input_ordering = { stream_delays = {} }",
        &[
            "14: computation parse is a map and takes messages in the order of what feeds it; \
           remove input_ordering",
        ],
    );
}

#[test]
fn watermarks_are_made_as_one_of_the_documented_ways() {
    let generator = |generator: &str, findings: &[&str]| {
        let findings: Vec<String> = findings.iter().map(|it| format!("9: {it}")).collect();
        check(
            "format = \"lines\"",
            &format!("format = \"lines\"\nwatermark_generator = {{ {generator} }}"),
            &findings.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    generator("", &[]);
    generator("all_idle = \"hold\"", &[]);
    generator("idle_partitions = { max_ratio = 0.25 }", &[]);
    let of = "watermark_generator of source departures";
    generator(
        "out_of_orderness_bound = 60",
        &[&format!(
            "out_of_orderness_bound of {of} must be a duration, not an integer; \
             write a whole number and a unit, ms, s, m, h or d, as in \"250ms\""
        )],
    );
    generator(
        "records_per_watermark = 0, drift_bound = \"0ms\", future_limit = \"36501d\"",
        &[
            &format!("records_per_watermark = 0 of {of} is out of range; write 1 to 1000000"),
            &format!("future_limit = 36501d of {of} is out of range; write 0ms to 36500d"),
            &format!("drift_bound = 0ms of {of} is out of range; write 1ms to 36500d"),
        ],
    );
    generator(
        "idle_partitions = { max_ratio = 1.5, durations = \"1m\" }",
        &[
            &format!("max_ratio = 1.5 of idle_partitions of {of} is out of range; write 0 to 1"),
            &format!(
                "unknown field \"durations\" in idle_partitions of {of}; did you mean \"duration\"?"
            ),
        ],
    );
    generator(
        "idle_partitions = { max_ratio = nan }",
        &[&format!(
            "max_ratio = nan of idle_partitions of {of} is out of range; write 0 to 1"
        )],
    );
    generator(
        "idle_partitions = { max_ratio = \"1\" }",
        &[&format!(
            "max_ratio of idle_partitions of {of} must be a number, not a string; \
             write it without quotes, as in 0.5"
        )],
    );
    let forms = "write all_idle = \"hold\" or all_idle = { advance_after = \"10m\" }";
    generator(
        "all_idle = \"advance\"",
        &[&format!(
            "all_idle of {of} is neither of its forms; {forms}"
        )],
    );
    generator(
        "all_idle = {}",
        &[&format!(
            "all_idle of {of} has no advance_after; write all_idle = {{ advance_after = \"10m\" }}"
        )],
    );
    generator(
        "unread_partitions = \"leaveout\"",
        &[&format!(
            "unread_partitions = \"leaveout\" of {of} is unknown; did you mean \"leave_out\"?"
        )],
    );
    generator(
        "idle = 1",
        &[&format!(
            "unknown field \"idle\" in {of}; remove it; known here: out_of_orderness_bound, \
             records_per_watermark, future_limit, idle_partitions, all_idle, unread_partitions, \
             drift_bound"
        )],
    );
}

#[test]
fn files_that_are_followed_are_all_read_at_once() {
    let files = "paths = [\"flights.csv\", \"parse.wasm\"]\nfollow = true";
    let (pipeline, _) = findings_of(&VALID.replace("path = \"flights.csv\"", files));
    let departures = &pipeline.unwrap().sources["departures"];
    assert_eq!(departures.parallel_partitions, Some(2));
    check(
        "path = \"flights.csv\"",
        &format!("{files}\nparallel_partitions = 1"),
        &[
            "9: source departures follows 2 files and reads fewer at once: the others would never \
           be begun; write 2 or more, or remove it",
        ],
    );
    check(
        "path = \"flights.csv\"",
        "path = \"flights.csv\"\nfollow = \"yes\"",
        &[
            "8: follow of source departures must be true or false, not a string; write it without quotes",
        ],
    );
}

#[test]
fn late_messages_have_a_stream_as_any_other() {
    check_transform_with(
        "late_output = \"late\"",
        &[
            "19: warning: nobody reads stream late, so its messages are dropped; \
           add \"late\" to the inputs of a sink if they are wanted",
        ],
    );
    check_transform_with(
        "late_output = \"legs\"",
        &[
            "19: computation delays writes stream legs, which computation parse already writes; \
           a stream has one writer: rename one of them",
        ],
    );
    check_transform_with(
        "late_output = \"statistics\"",
        &["19: computation delays writes stream statistics twice; name each stream once"],
    );
    check_transform_with(
        "late_output = \"Late\"",
        &[
            "19: stream name \"Late\" is not allowed; use 1 to 64 of a-z, 0-9, \"_\" and \"-\"",
            "19: warning: nobody reads stream Late, so its messages are dropped; \
             add \"Late\" to the inputs of a sink if they are wanted",
        ],
    );
    // The transform would feed itself what comes too late for it.
    check(
        "inputs = [\"legs\"]",
        "late_output = \"late\"\ninputs = [\"legs\", \"late\"]",
        &[
            "14: computations feed each other in a circle: delays -> delays; \
           remove one of these streams from the inputs that it closes",
        ],
    );
}

#[test]
fn lateness_is_allowed_for_inputs_and_states_grow_old_after_a_time() {
    check_transform_with(
        "allowed_lateness = { leg = \"1h\", legs = \"1 h\" }",
        &[
            "19: legs = \"1 h\" of computation delays is not a duration; \
             write a whole number and a unit, ms, s, m, h or d, as in \"250ms\"",
            "19: computation delays does not read stream leg; name one of its inputs",
        ],
    );
    check_transform_with(
        "[computations.delays.states]\ntotals = 7\nlast = {}\nold = { ttl = \"0s\", tll = \"1d\" }",
        &[
            "20: state totals is an integer, not a table; write [states.totals] and its fields below",
            "21: state last of computation delays has no ttl; write ttl = \"7d\", or remove the state here",
            "22: ttl = 0s of state old of computation delays is out of range; write 1ms to 36500d",
            "22: unknown field \"tll\" in state old of computation delays; did you mean \"ttl\"?",
        ],
    );
}

#[test]
fn a_map_makes_nothing_of_time() {
    let finding = |line: usize, key: &str| {
        format!(
            "{line}: computation parse is a map and makes nothing of time; remove {key}, or make it a transform"
        )
    };
    check_map_with(
        "late_output = \"late\"\nallowed_lateness = { departures = \"1h\" }\nstates = { a = { ttl = \"1d\" } }",
        &[
            &finding(14, "late_output"),
            &finding(15, "allowed_lateness"),
            &finding(16, "states"),
        ],
    );
}

#[test]
fn a_map_has_no_partitions_and_sees_nothing_of_the_host() {
    check_map_with(
        "partitions = 1",
        &["14: computation parse is a map and has no partitions of its own; remove the field"],
    );
    check_map_with(
        "grants = { random = \"host\" }",
        &[
            "14: random = \"host\" in grants of computation parse makes a map impure; \
           write random = \"seeded\", or make it a transform",
        ],
    );
    check_transform_with(
        "grants = { clock = \"host\" }",
        &[
            "19: warning: clock = \"host\" in grants of computation delays: its results can't be \
           reproduced; write clock = \"frozen\" where that will do",
        ],
    );
    check_transform_with(
        "grants = { clock = \"forzen\" }",
        &[
            "19: clock = \"forzen\" of grants of computation delays is unknown; did you mean \"frozen\"?",
        ],
    );
}

#[test]
fn parameters_are_a_small_table_that_json_can_carry() {
    check_transform_with(
        "parameters = 3",
        &[
            "19: parameters of computation delays must be a table; write parameters = { name = value, ... }",
        ],
    );
    check_transform_with(
        "parameters = { worst = nan }",
        &[
            "19: parameters of computation delays hold the number nan, which JSON can't carry; \
           write it as a string",
        ],
    );
    check_transform_with(
        "parameters = { worst = 9223372036854775808 }",
        &[
            "19: parameters of computation delays hold the number 9223372036854775808, which JSON \
           can't carry; write it as a string",
        ],
    );
    check_transform_with(
        &format!("parameters = {{ text = \"{}\" }}", "x".repeat(4_096)),
        &[
            "19: parameters of computation delays are 4107 bytes as JSON, the limit is 3072; \
           read what is this large from a source",
        ],
    );
}

#[test]
fn files_that_are_not_there() {
    check(
        "parse = \"parse.wasm\"",
        "parse = \"prase.wasm\"",
        &[
            "3: the file of component parse can't be read: prase.wasm: No such file or directory \
           (os error 2); build it, or correct the path",
        ],
    );
    check(
        "path = \"flights.csv\"",
        "path = \"./\"",
        &[
            "7: the file of source departures can't be read: ./: it is a folder; \
           correct the path; it is relative to the pipeline file",
        ],
    );
    check(
        "path = \"out/statistics.jsonl\"",
        "path = \"..\"",
        &["21: path \"..\" of sink statistics is a folder; name a file in it"],
    );
}

#[test]
fn components_are_found_by_name() {
    check(
        "component = \"delays\"",
        "component = \"delay\"",
        &[
            "4: warning: no computation runs component delays; remove it, or name it in a computation",
            "15: computation delays runs unknown component \"delay\"; did you mean \"delays\"?",
        ],
    );
    check(
        "delays = \"delays.wasm\"",
        "",
        &["15: computation delays runs unknown component \"delays\"; \
           add delays = \"...\" under [components]"],
    );
}

#[test]
fn streams_have_one_writer_and_a_reader() {
    check(
        "outputs = [\"statistics\"]",
        "outputs = [\"statistics\", \"legs\"]",
        &[
            "18: computation delays writes stream legs, which computation parse already writes; \
           a stream has one writer: rename one of them",
        ],
    );
    check(
        "outputs = [\"legs\"]",
        "outputs = [\"legs\", \"departures\"]",
        &[
            "13: computation parse writes stream departures, which source departures already writes; \
           a stream has one writer: rename one of them",
        ],
    );
    check(
        "outputs = [\"legs\"]",
        "outputs = [\"legs\", \"legs\"]",
        &["13: computation parse writes stream legs twice; name each stream once"],
    );
    check(
        "inputs = [\"legs\"]",
        "inputs = [\"legs\", \"legs\"]",
        &["17: computation delays reads stream legs twice; name each stream once"],
    );
    check(
        "inputs = [\"legs\"]",
        "inputs = [\"lags\"]",
        &[
            "13: warning: nobody reads stream legs, so its messages are dropped; \
             add \"legs\" to the inputs of a sink if they are wanted",
            "17: computation delays reads stream \"lags\", which nobody writes; did you mean \"legs\"?",
        ],
    );
    check(
        "inputs = [\"legs\"]",
        "inputs = [\"legs\", \"weather\"]",
        &[
            "17: computation delays reads stream \"weather\", which nobody writes; \
           name a source, or an output of a computation",
        ],
    );
    check(
        "inputs = [\"departures\"]",
        "inputs = []",
        &[
            "5: nobody reads source departures; \
             add \"departures\" to the inputs of a computation or sink, or remove it",
            "12: computation parse reads no stream; write inputs = [...], the streams that it reads",
        ],
    );
    check(
        "inputs = [\"statistics\"]",
        "inputs = []",
        &[
            "18: warning: nobody reads stream statistics, so its messages are dropped; \
             add \"statistics\" to the inputs of a sink if they are wanted",
            "22: sink statistics reads no stream; write inputs = [...], the streams that it reads",
        ],
    );
}

#[test]
fn cycles_are_shown_whole_and_once() {
    let remedy = "remove one of these streams from the inputs that it closes";
    check(
        "inputs = [\"departures\"]",
        "inputs = [\"departures\", \"statistics\"]",
        &[&format!(
            "9: computations feed each other in a circle: parse -> delays -> parse; {remedy}"
        )],
    );
    check(
        "inputs = [\"legs\"]",
        "inputs = [\"legs\", \"statistics\"]",
        &[&format!(
            "14: computations feed each other in a circle: delays -> delays; {remedy}"
        )],
    );
}

#[test]
fn a_file_has_one_writer_and_is_not_read_by_it() {
    let second = |path: &str| {
        format!(
            "[sinks.again]\ntype = \"file\"\npath = \"{path}\"\ninputs = [\"legs\"]\n[sinks.statistics]"
        )
    };
    let (_, found) = findings_of(&VALID.replace(
        "[sinks.statistics]",
        &second("./out/../out/statistics.jsonl"),
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0],
        "tidelock.toml:23: sink statistics writes the file that sink again writes; \
         give it a file of its own instead of out/statistics.jsonl"
    );
    let (_, found) = findings_of(&VALID.replace("[sinks.statistics]", &second("x/../flights.csv")));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("sink again writes the file that source departures reads"),
        "{found:?}"
    );
}

#[test]
fn a_pipeline_has_a_limit_of_nodes() {
    let mut text = VALID.to_owned();
    for index in 0..1_000 {
        text += &format!("[sinks.s{index}]\ntype = \"stdout\"\ninputs = [\"legs\"]\n");
    }
    let (_, found) = findings_of(&text);
    assert_eq!(
        found,
        [
            "tidelock.toml:1: the pipeline has 1004 sources, computations and sinks; \
          write at most 1000; cut it in two"
        ]
    );
}

#[test]
fn random_edits_never_panic() {
    let mut random = 7_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let folder = folder();
    let file = folder.path().join("tidelock.toml");
    let source = include_bytes!("golden/wrong.toml");
    for _ in 0..500 {
        let mut bytes = source.to_vec();
        for _ in 0..1 + next(8) {
            let (at, from) = (next(bytes.len()), next(source.len()));
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => {
                    bytes.drain(at..(at + next(40)).min(bytes.len()));
                }
                _ => {
                    let piece = &source[from..(from + 40).min(source.len())];
                    bytes.splice(at..at, piece.iter().copied());
                }
            }
        }
        // Writing over a file makes some file systems wait for the disk.
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, &bytes).unwrap();
        let error = load(&file).unwrap_err();
        assert!(error.findings.iter().any(Finding::is_error));
    }
}
