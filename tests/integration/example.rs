//! Examples as they are written, the flights above all, in a folder of their own, for tests to change and
//! to run.

use std::path::Path;

use harness::{TestHost, component, workspace};
use toml::{Table, Value};

/// The example with the first `lines` lines of its week, its pipeline file changed by `edit`.
pub(crate) fn pipeline(lines: usize, edit: impl FnOnce(&mut Table)) -> TestHost {
    let folder = TestHost::new();
    write_lines(&folder, lines);
    write_pipeline(&folder, edit);
    folder
}

/// Writes the pipeline file anew, changed by `edit`.
pub(crate) fn write_pipeline(folder: &TestHost, edit: impl FnOnce(&mut Table)) {
    let components = [("parse", "flights-parse"), ("delays", "flights-delays")];
    write_example(folder, "flights", &components, |file| {
        file["sources"]["departures"]["path"] = "flights.csv".into();
        edit(file);
    });
}

/// Writes the pipeline file of an example with its components where they are built, changed by
/// `edit`.
pub(crate) fn write_example(
    folder: &TestHost,
    example: &str,
    components: &[(&str, &str)],
    edit: impl FnOnce(&mut Table),
) {
    let path = workspace().join(format!("examples/{example}/tidelock.toml"));
    let text = std::fs::read_to_string(path).expect("the example has a pipeline file");
    let mut file: Table = text.parse().expect("the example's pipeline file is TOML");
    for (name, package) in components {
        file["components"][*name] = text_of(&component(package));
    }
    edit(&mut file);
    folder.write("tidelock.toml", file.to_string());
}

/// Adds what a text in TOML says; where both say something, the text counts.
pub(crate) fn add(file: &mut Table, text: &str) {
    fn merge(into: &mut Table, more: Table) {
        for (name, value) in more {
            match (into.get_mut(&name), value) {
                (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
                (_, value) => drop(into.insert(name, value)),
            }
        }
    }
    merge(file, text.parse().expect("tests write TOML"));
}

/// Writes the first `lines` lines of the week as the pipeline's source.
pub(crate) fn write_lines(folder: &TestHost, lines: usize) {
    let week = workspace().join("examples/flights/data/flights-2013-01-week1.csv");
    let week = std::fs::read(week).expect("the example carries its week");
    let lines = week.split_inclusive(|byte| *byte == b'\n').take(lines);
    folder.write("flights.csv", lines.flatten().copied().collect::<Vec<u8>>());
}

/// Takes a computation out of the pipeline, and the sinks that it feeds.
pub(crate) fn remove_computation(file: &mut Table, name: &str) {
    let removed = table(file, "computations").remove(name);
    let outputs = removed.expect("it was there")["outputs"].clone();
    let outputs = outputs.as_array().expect("outputs are a list").clone();
    table(file, "sinks").retain(|_, sink| {
        let inputs = sink["inputs"].as_array().expect("inputs are a list");
        !inputs.iter().any(|input| outputs.contains(input))
    });
}

/// Makes epochs so small that kills find many.
pub(crate) fn limit_epochs(file: &mut Table, max_rows: i64) {
    let limits = Table::from_iter([("max_rows_per_epoch".to_owned(), max_rows.into())]);
    file.insert("epoch".to_owned(), limits.into());
}

/// How many lines a file of the pipeline's folder has; none where there is no file.
pub(crate) fn line_count(folder: &TestHost, name: &str) -> usize {
    match std::fs::read(folder.path(name)) {
        Ok(bytes) => bytes.iter().filter(|byte| **byte == b'\n').count(),
        Err(_) => 0,
    }
}

fn table<'a>(file: &'a mut Table, name: &str) -> &'a mut Table {
    file[name].as_table_mut().expect("it is a table")
}

fn text_of(path: &Path) -> Value {
    path.display().to_string().into()
}
