//! Results and failures that do not depend on how the host cuts its input into batches: limits that
//! a batch breaks and its parts do not, one item of a thousand that fails, and components whose
//! outputs do depend on the cut.

use harness::{Finished, TestHost, component, workspace};

/// A size of batches at which the whole input of a test is one batch.
const ONE_BATCH: usize = 1_000;

/// A pipeline of one source, computations, and a sink for each of some streams.
struct Pipeline {
    source: &'static str,
    computations: String,
    sinks: &'static [&'static str],
    rows_per_batch: usize,
}

impl Pipeline {
    /// In a folder of its own, with these lines to read.
    fn write(&self, lines: &[u8]) -> TestHost {
        let folder = TestHost::new();
        folder.write("lines.txt", lines);
        let sink = |name: &&str| {
            format!(
                "[sinks.{name}]\ntype = \"file\"\npath = \"out/{name}\"\ninputs = [\"{name}\"]\n"
            )
        };
        let sinks: String = self.sinks.iter().map(sink).collect();
        let is_used = |name: &&str| self.computations.contains(&format!("\"{name}\""));
        let component = |name: &str| format!("{name} = {:?}\n", component(name));
        let components: String = COMPONENTS
            .into_iter()
            .filter(is_used)
            .map(component)
            .collect();
        folder.write(
            "tidelock.toml",
            format!(
                r#"
name = "verdicts"
[epoch]
max_rows_per_batch = {rows_per_batch}
[components]
{components}
[sources.{source}]
type = "file"
path = "lines.txt"
format = "lines"
{computations}
{sinks}
"#,
                rows_per_batch = self.rows_per_batch,
                source = self.source,
                computations = self.computations,
            ),
        );
        folder
    }
}

const COMPONENTS: [&str; 6] = [
    "behaves_as_map",
    "behaves_as_next_map",
    "behaves_as_transform",
    "flights_delays",
    "flights_parse",
    "reads_monotonic_clock",
];

/// A map of the test guests from stream "in" to stream "out".
fn map(name: &str, parameters: &str) -> String {
    format!(
        "[computations.{name}]\ncomponent = \"behaves_as_map\"\nkind = \"map\"\n\
         inputs = [\"in\"]\noutputs = [\"out\"]\nparameters = {{ {parameters} }}\n"
    )
}

/// A transform of the test guests from stream "in" to stream "out".
fn transform(name: &str, parameters: &str) -> String {
    map(name, parameters)
        .replace("behaves_as_map", "behaves_as_transform")
        .replace("\"map\"", "\"transform\"")
}

/// A map of the test guests from stream "out" to stream "next-out".
fn next_map(name: &str, parameters: &str) -> String {
    map(name, parameters)
        .replace("behaves_as_map", "behaves_as_next_map")
        .replace("\"out\"", "\"next-out\"")
        .replace("\"in\"", "\"out\"")
}

/// Parameters with which a test guest panics when it comes to this payload.
fn panic_on(payload: usize) -> String {
    format!("behaviour = \"panics-on-a-payload\", payload = \"{payload}\"")
}

/// The numbers from 1 to 1,000 through these computations.
fn numbers_through(
    computations: String,
    sinks: &'static [&'static str],
    rows_per_batch: usize,
) -> TestHost {
    Pipeline {
        source: "in",
        computations,
        sinks,
        rows_per_batch,
    }
    .write(&numbers())
}

/// The flights pipeline; each computation's calls have this fuel.
fn flights(fuel: u64, rows_per_batch: usize) -> Pipeline {
    let computations = format!(
        r#"
[computations.parse]
component = "flights_parse"
kind = "map"
inputs = ["departures"]
outputs = ["legs", "cancelled", "rejected"]
limits = {{ fuel = {fuel} }}
[computations.delays]
component = "flights_delays"
kind = "transform"
inputs = ["legs"]
outputs = ["statistics", "alerts"]
parameters = {{ alert_minutes = 180 }}
limits = {{ fuel = {fuel} }}
"#
    );
    Pipeline {
        source: "departures",
        computations,
        sinks: &["statistics", "alerts", "rejected", "cancelled"],
        rows_per_batch,
    }
}

fn departures() -> Vec<u8> {
    const WEEK: &str = "examples/flights/data/flights-2013-01-week1.csv";
    std::fs::read(workspace().join(WEEK)).expect("the example carries its week")
}

/// The numbers from 1 to 1,000, each on its own line.
fn numbers() -> Vec<u8> {
    (1..=ONE_BATCH)
        .map(|number| format!("{number}\n"))
        .collect::<String>()
        .into_bytes()
}

fn run(folder: &TestHost) -> Finished {
    folder.run(["--log", "debug", "run", "tidelock.toml"])
}

/// What the run says about its failure, without its log.
fn failure(folder: &TestHost) -> String {
    let finished = folder.run(["run", "tidelock.toml"]).expect_code(1);
    finished.stderr_text()
}

fn calls_repeated_in_parts(finished: &Finished) -> usize {
    let repeated = |line: &&String| line.contains("call failed, repeated in parts");
    finished.stderr.iter().filter(repeated).count()
}

fn check(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

#[test]
fn n3_fuel_for_five_rows_but_not_for_a_thousand_gives_the_same_output() {
    let plenty = flights(10_000_000_000, ONE_BATCH);
    let expected = plenty.write(&departures());
    let undisturbed = run(&expected).expect_code(0);
    assert_eq!(calls_repeated_in_parts(&undisturbed), 0);

    let too_little = flights(FUEL_FOR_FIVE_ROWS, ONE_BATCH).write(&departures());
    let finished = run(&too_little).expect_code(0);
    let repeated = calls_repeated_in_parts(&finished);
    assert!(
        repeated >= 2,
        "both computations ran out of fuel: {repeated}"
    );
    for name in plenty.sinks {
        let name = format!("out/{name}");
        assert!(
            too_little.read(&name) == expected.read(&name),
            "{name} differs"
        );
    }

    let five = flights(FUEL_FOR_FIVE_ROWS, 5).write(&departures()[..50_000]);
    assert_eq!(calls_repeated_in_parts(&run(&five).expect_code(0)), 0);
}

/// Between what five rows and what a thousand need in either computation.
const FUEL_FOR_FIVE_ROWS: u64 = 1_000_000;

#[test]
fn n3_one_line_of_a_thousand_that_fails_is_named_whatever_the_batches() {
    for rows_per_batch in [1, 7, ONE_BATCH] {
        let folder = numbers_through(map("refuse", &panic_on(417)), &["out"], rows_per_batch);
        check(
            &failure(&folder),
            &[
                "computation refuse failed",
                "at line 417 of source in",
                "the guest refuses 417",
            ],
        );
    }
}

/// The first map fails too, but at a later line. Its batch is the first to fail, and the failure
/// that counts is still the first one in the input.
#[test]
fn n3_the_first_failing_line_is_named_through_chained_maps_whatever_the_batches() {
    for rows_per_batch in [1, 7, ONE_BATCH] {
        let chain = map("late", &panic_on(700)) + &next_map("early", &panic_on(300));
        let folder = numbers_through(chain, &["next-out"], rows_per_batch);
        check(
            &failure(&folder),
            &["computation early failed", "at line 300 of source in"],
        );
    }
}

#[test]
fn n3_a_message_that_fails_in_a_transform_is_named_whatever_the_batches() {
    let said = |rows_per_batch| {
        let computations = transform("refuse", &panic_on(417));
        let said = failure(&numbers_through(computations, &["out"], rows_per_batch));
        check(
            &said,
            &["computation refuse failed", "the guest refuses 417"],
        );
        let at = said.find("at message ").expect("one message is named");
        said[at..].lines().next().map(str::to_owned)
    };
    let in_one_batch = said(ONE_BATCH);
    assert_eq!(said(7), in_one_batch);
    assert_eq!(said(1), in_one_batch);
}

#[test]
fn n1_a_component_that_depends_on_the_cut_is_caught_and_named_with_its_partition() {
    for computation in [map, transform] {
        let numbering = "behaviour = \"numbers-messages-in-the-batch\"";
        let folder = numbers_through(computation("number", numbering), &["out"], ONE_BATCH);
        check(
            &failure(&folder),
            &[
                "computation number failed",
                "of partition p",
                "outputs depend on how the batch was cut",
                "keep nothing from one message to the next",
            ],
        );
        // The same pipeline with an honest behaviour passes.
        let honest = computation("echo", "behaviour = \"echoes\"");
        let honest = numbers_through(honest, &["out"], ONE_BATCH);
        let _ = run(&honest).expect_code(0);
        assert_eq!(honest.read("out/out"), numbers());
    }
}

/// What sees the machine may return something else each time, so an audit would prove nothing.
#[test]
fn n1_a_transform_that_was_granted_the_machines_clock_is_not_audited() {
    let timing = transform("time", "").replace("behaves_as_transform", "reads_monotonic_clock");
    let granted = timing + "grants = { clock = \"host\" }\n";
    let folder = numbers_through(granted, &["out"], ONE_BATCH);
    let _ = run(&folder).expect_code(0);
    let out = folder.read("out/out");
    let times: std::collections::BTreeSet<&[u8]> = out.split(|byte| *byte == b'\n').collect();
    assert!(times.len() > 2, "the outputs differ even within a batch");
}
