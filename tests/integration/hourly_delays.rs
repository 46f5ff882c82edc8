//! Windows over event time, end to end: the hourly delays example in both orders of its departures. The
//! rows and the late departures are those of an independent calculation, however the run is cut.

use harness::{TestHost, workspace};
use toml::Table;

use crate::example::{add, line_count, write_example};

const COMPONENTS: [(&str, &str); 2] = [
    ("parse", "hourly-delays-parse"),
    ("statistics", "hourly-delays-statistics"),
];

/// One of the example's pipelines in a folder of its own, its file changed by `edit`.
fn pipeline(order: &str, edit: impl FnOnce(&mut Table)) -> TestHost {
    let folder = TestHost::new();
    let data = match order {
        "sorted" => "departures-sorted.csv",
        _ => "departures.csv",
    };
    folder.write("departures.csv", example_file(&format!("data/{data}")));
    write_example(
        &folder,
        &format!("hourly-delays/{order}"),
        &COMPONENTS,
        |file| {
            file["sources"]["departures"]["path"] = "departures.csv".into();
            edit(file);
        },
    );
    folder
}

fn example_file(name: &str) -> Vec<u8> {
    let path = workspace().join("examples/hourly-delays").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs to the end of the source.
fn run(folder: &TestHost) {
    let finished = folder.run(["run", "tidelock.toml"]);
    assert!(finished.status.success(), "{:?}", finished.stderr);
}

/// Compares both outputs with the answers, byte for byte.
fn assert_as_expected(folder: &TestHost, order: &str) {
    for name in ["hours.jsonl", "late.jsonl"] {
        let expected = example_file(&format!("expected/{order}/{name}"));
        // A sink that gets no row may leave no file.
        let found = std::fs::read(folder.path(&format!("out/{name}"))).unwrap_or_default();
        let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (found, expected) = (lines(&found), lines(&expected));
        let differs = (found.lines().zip(expected.lines())).position(|(found, row)| found != row);
        if let Some(index) = differs {
            let (found, expected) = (found.lines().nth(index), expected.lines().nth(index));
            panic!(
                "{order}/{name}, line {}: {found:?}, not {expected:?}",
                index + 1
            );
        }
        assert_eq!(found.len(), expected.len(), "{order}/{name}");
    }
}

#[test]
fn t2_hours_are_told_of_when_the_watermark_is_past_them_in_their_order() {
    let folder = pipeline("sorted", |_| {});
    run(&folder);
    assert_as_expected(&folder, "sorted");
    assert_eq!(line_count(&folder, "out/late.jsonl"), 0);
}

#[test]
fn t4_late_departures_go_to_an_output_of_their_own_and_are_those_of_an_independent_count() {
    let folder = pipeline("file-order", |_| {});
    run(&folder);
    assert_as_expected(&folder, "file-order");
    assert_eq!(line_count(&folder, "out/late.jsonl"), 3773);
}

#[test]
fn n3_windows_and_late_departures_do_not_depend_on_batches_and_epochs() {
    // A watermark comes after 1,000 records: in the middle of some epochs, at the end of others.
    for (rows_per_epoch, rows_per_batch) in [(1, 1), (7, 2), (64, 7), (1000, 64), (65_536, 65_536)]
    {
        // Epochs of one row are slow, and the sorted file has more windows.
        let order = if rows_per_epoch == 1 {
            "file-order"
        } else {
            "sorted"
        };
        let folder = pipeline(order, |file| {
            let limits = format!(
                "epoch = {{ max_rows_per_epoch = {rows_per_epoch}, max_rows_per_batch = {rows_per_batch} }}"
            );
            add(file, &limits);
        });
        run(&folder);
        assert_as_expected(&folder, order);
    }
}

#[test]
fn a_second_run_with_more_departures_begins_its_hours_anew() {
    let folder = pipeline("sorted", |_| {});
    let all = example_file("data/departures-sorted.csv");
    let half: Vec<u8> = (all.split_inclusive(|byte| *byte == b'\n').take(2500))
        .flatten()
        .copied()
        .collect();
    folder.write("departures.csv", &half);
    run(&folder);
    let first = line_count(&folder, "out/hours.jsonl");
    folder.write("departures.csv", &all);
    run(&folder);
    // At the end of a run everything is over. Watermarks begin at 0 in the next one, so what is left of
    // the hour that was cut is not late, and has a row of its own.
    let rows = line_count(&folder, "out/hours.jsonl");
    assert!(first > 0 && rows > first);
    assert_eq!(line_count(&folder, "out/late.jsonl"), 0);
    let text = String::from_utf8(folder.read("out/hours.jsonl")).expect("rows are UTF-8");
    let counted: u64 = text
        .lines()
        .map(|row| {
            let row: serde_json::Value = serde_json::from_str(row).expect("rows are JSON");
            row["count"].as_u64().expect("a count")
        })
        .sum();
    assert_eq!(counted, 5588, "every leg is in one row");
}
