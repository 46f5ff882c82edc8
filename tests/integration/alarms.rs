//! A pipeline that does with timers what its lines tell it: `KEY TIME COMMAND`; see the guest `alarms` for
//! the commands and for the rows that follow.

use harness::{TestHost, component};
use toml::Table;

use crate::example::add;

/// The pipeline: lines, read in order, and a watermark behind each of them; rows into `rows.txt`.
const PIPELINE: &str = r#"
name = "alarms"

[components]

[sources.lines]
type = "file"
path = "lines.txt"
format = "lines"
watermark_generator = { out_of_orderness_bound = "0ms", records_per_watermark = 1 }

[computations.commands]
component = "commands"
kind = "map"
inputs = ["lines"]
outputs = ["commands"]

[computations.alarms]
component = "alarms"
kind = "transform"
inputs = ["commands"]
outputs = ["rows"]

[sinks.rows]
type = "file"
path = "rows.txt"
inputs = ["rows"]
"#;

/// The pipeline over these lines, its file changed by what `more` says in TOML.
pub(crate) fn alarms(lines: &[&str], more: &str) -> TestHost {
    let folder = TestHost::new();
    write_lines(&folder, lines);
    write_alarms(&folder, more);
    folder
}

/// Writes the pipeline file anew.
pub(crate) fn write_alarms(folder: &TestHost, more: &str) {
    write_alarms_without(folder, "", more);
}

/// Writes the pipeline file anew, without one of the source's options.
pub(crate) fn write_alarms_without(folder: &TestHost, option: &str, more: &str) {
    let mut file: Table = PIPELINE.parse().expect("the pipeline is TOML");
    let guest = |name: &str| component(name).display().to_string().into();
    let components = file["components"].as_table_mut().expect("it is a table");
    components.insert("commands".to_owned(), guest("reads_commands"));
    components.insert("alarms".to_owned(), guest("keeps_alarms"));
    let source = file["sources"]["lines"].as_table_mut();
    source.expect("it is a table").remove(option);
    add(&mut file, more);
    folder.write("tidelock.toml", file.to_string());
}

/// Writes the lines that the pipeline reads.
pub(crate) fn write_lines(folder: &TestHost, lines: &[&str]) {
    folder.write("lines.txt", lines.join("\n") + "\n");
}

/// The rows that the runs so far have made.
pub(crate) fn rows(folder: &TestHost) -> Vec<String> {
    let rows = String::from_utf8(folder.read("rows.txt")).expect("rows are text");
    rows.lines().map(str::to_owned).collect()
}

/// Runs the pipeline to its end and returns all rows so far.
pub(crate) fn run(folder: &TestHost) -> Vec<String> {
    folder.run(["run", "."]).expect_code(0);
    rows(folder)
}
