//! `tidelock graph` as a person uses it, and the picture that the documentation shows.

use harness::{TestHost, workspace};

fn graph(arguments: &[&str]) -> harness::Finished {
    let folder = TestHost::new();
    let mut command = folder.command();
    command.current_dir(workspace()).arg("graph");
    harness::Running::start(command.args(arguments)).wait()
}

#[test]
fn the_picture_in_the_documentation_is_what_the_command_draws() {
    let drawn = graph(&["examples/flights", "--format", "svg"]).expect_code(0);
    let kept = std::fs::read(workspace().join("docs/flights.svg"));
    assert!(
        drawn.stdout == kept.expect("docs/flights.svg can be read"),
        "draw it again: tidelock graph examples/flights --format svg > docs/flights.svg"
    );
}

#[test]
fn text_and_document_name_the_jobs() {
    let text = graph(&["examples/flights"]).expect_code(0).stdout_text();
    let jobs: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("job of "))
        .collect();
    assert_eq!(
        jobs,
        [
            "job of source departures, 1 partition",
            "job of transform delays, 1 partition"
        ]
    );
    let document = graph(&["examples/flights", "-o", "json"]).expect_code(0);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).expect("JSON");
    let graph = &document["graph"];
    assert_eq!(
        graph["jobs"][0]["steps"],
        serde_json::json!(["source departures", "map parse"])
    );
    assert_eq!(
        graph["lanes"],
        serde_json::json!([{"stream": "legs", "from": "source departures", "to": "transform delays"}])
    );
}

#[test]
fn a_component_that_is_missing_is_a_finding_with_its_line() {
    let folder = TestHost::new();
    folder.write("in.txt", "");
    folder.write(
        "tidelock.toml",
        "name = \"p\"\n[components]\nabsent = \"absent.wasm\"\n\
         [sources.in]\ntype = \"file\"\npath = \"in.txt\"\nformat = \"lines\"\n\
         [computations.c]\ncomponent = \"absent\"\nkind = \"map\"\ninputs = [\"in\"]\noutputs = [\"out\"]\n\
         [sinks.out]\ntype = \"stdout\"\ninputs = [\"out\"]\n",
    );
    let refused = folder.run(["graph", ".", "--format", "svg"]).expect_code(1);
    assert!(refused.stdout.is_empty(), "{}", refused.stdout_text());
    let said = refused.stderr_text();
    assert!(
        said.contains("tidelock.toml:3: the file of component absent"),
        "{said}"
    );
}
