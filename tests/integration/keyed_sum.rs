//! The keyed-sum example as it is written, in a folder of its own, for tests to change and to run.

use harness::TestHost;
use toml::Table;

use crate::example::write_example;

/// Writes the pipeline file over `events.jsonl`, changed by `edit`. Its rows go to `sums.jsonl`.
pub(crate) fn write_pipeline(folder: &TestHost, edit: impl FnOnce(&mut Table)) {
    let components = [("parse", "keyed-sum-parse"), ("sum", "keyed-sum-sum")];
    write_example(folder, "keyed-sum", &components, |file| {
        file["sources"]["events"]["path"] = "events.jsonl".into();
        file["sinks"]["sums"]["path"] = "sums.jsonl".into();
        edit(file);
    });
}

/// Gives the source these files in place of its one, each a document a line.
pub(crate) fn read_files(file: &mut Table, files: &[&str]) {
    let source = file["sources"]["events"].as_table_mut();
    let source = source.expect("a source is a table");
    source.remove("path");
    source.insert("paths".to_owned(), files.to_vec().into());
    source.insert("format".to_owned(), "jsonl".into());
}
