//! Every format of one pipeline as a golden file. After a change that is meant, the failing test's
//! message has what is drawn now: look at it, then put it into the file.

use std::path::Path;

use super::*;
use crate::types::pipeline::Pipeline;

const FILES: [&str; 9] = [
    "components/parse.wasm",
    "components/filter.wasm",
    "components/totals.wasm",
    "components/alerts.wasm",
    "orders.jsonl",
    "returns-1.csv",
    "returns-2.csv",
    "returns-3.csv",
    "returns-4.csv",
];

/// The pipeline of the golden file, `alerts` in four partitions.
fn shop(folder: &Path) -> Pipeline {
    std::fs::create_dir(folder.join("components")).unwrap();
    for file in FILES {
        std::fs::write(folder.join(file), "").unwrap();
    }
    let file = folder.join(config::PIPELINE_FILE_NAME);
    std::fs::write(&file, include_str!("golden/shop.toml")).unwrap();
    let mut pipeline = config::load(&file).unwrap();
    let alerts = pipeline.computations.get_mut("alerts").unwrap();
    alerts.partitions = 4;
    pipeline
}

fn check(format: GraphFormat, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let drawn = drawn(&GraphDocument::of(&shop(folder.path())), format);
    assert!(drawn == expected, "drawn now:\n{drawn}");
}

#[test]
fn text_lists_jobs_with_their_steps_streams_and_readers() {
    check(GraphFormat::Text, include_str!("golden/shop.txt"));
}

#[test]
fn dot_has_a_cluster_for_each_job() {
    check(GraphFormat::Dot, include_str!("golden/shop.dot"));
}

#[test]
fn svg_is_drawn_as_it_was() {
    check(GraphFormat::Svg, include_str!("golden/shop.svg"));
}

#[test]
fn lanes_lead_from_every_job_that_writes_a_stream_to_every_transform_that_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let graph = GraphDocument::of(&shop(folder.path()));
    let lanes: Vec<String> = graph
        .lanes
        .iter()
        .map(|lane| format!("{}: {} -> {}", lane.stream, lane.from, lane.to))
        .collect();
    assert_eq!(
        lanes,
        [
            "sales: source orders -> transform alerts",
            "sales: source orders -> transform totals",
            "sales: source returns -> transform alerts",
            "sales: source returns -> transform totals",
            "sums: transform totals -> transform alerts",
        ]
    );
}

#[test]
fn boxes_labels_and_frames_of_the_picture_do_not_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let graph = GraphDocument::of(&shop(folder.path()));
    let picture = picture::Picture::of(&graph, &svg::Texts);
    let boxes = picture.boxes.iter().map(|it| (it.corner, it.size));
    let labels = picture.labels.iter().map(|it| (it.corner, it.size));
    let parts: Vec<_> = boxes.chain(labels).collect();
    let frames = picture.frames.iter().map(|it| (it.corner, it.size));
    for parts in [parts, frames.collect()] {
        assert!(parts.len() >= 4);
        for (index, (a, a_size)) in parts.iter().enumerate() {
            for (b, b_size) in &parts[index + 1..] {
                let apart = a.x + a_size.width <= b.x
                    || b.x + b_size.width <= a.x
                    || a.y + a_size.height <= b.y
                    || b.y + b_size.height <= a.y;
                assert!(apart, "{a:?} {a_size:?} overlaps {b:?} {b_size:?}");
            }
            let right = a.x + a_size.width;
            assert!(a.x >= 0 && a.y >= 0 && right <= picture.size.width);
            assert!(a.y + a_size.height <= picture.size.height);
        }
    }
}
