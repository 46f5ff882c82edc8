//! What the controller keeps beside the rows of pipelines, as golden files in `golden/`.

use crate::controller::layouts::EarlierLayouts;
use crate::controller::queues::{intake, registry as queues};
use crate::controller::registry::rows::{LAYOUTS, decode, encode, node_key};
use crate::controller::source_rows;
use crate::golden::{self, Kind};
use crate::storage::keys;
use crate::types::ids::PartitionId;

const FOLDER: &str = "src/controller/golden";
const PIPELINE: &str = "flights";

#[test]
fn rows_of_the_controller_that_were_stored_once_decode() {
    golden::check(FOLDER, &kinds());
}

#[test]
fn rows_of_the_controller_of_a_newer_release_are_refused_by_name() {
    golden::check_newer_is_refused(&kinds());
}

fn kinds() -> Vec<Kind<'static>> {
    let layouts = EarlierLayouts {
        retiring: vec![
            vec![PartitionId(300)],
            vec![PartitionId(301), PartitionId(302)],
        ],
        is_moving: true,
    };
    let row = source_rows::tests::row();
    let queue = queues::tests::row();
    let of_pipeline = |name, key, written, held, decode| Kind {
        name,
        called: "a row of pipeline flights",
        version: 1,
        version_at: 0,
        written: (key, written),
        held,
        decode,
    };
    vec![
        of_pipeline(
            "layouts",
            node_key(PIPELINE, LAYOUTS, "totals"),
            encode(&layouts),
            format!("{layouts:?}"),
            Box::new(|_, value| {
                let layouts = decode::<EarlierLayouts>(PIPELINE, value);
                shown(layouts.map(|layouts| format!("{layouts:?}")))
            }),
        ),
        of_pipeline(
            "source_partition",
            node_key(PIPELINE, "source-partition/", "in/a.csv"),
            encode(&row),
            format!("{row:?}"),
            Box::new(|_, value| shown(source_rows::tests::decode_shown(PIPELINE, value))),
        ),
        Kind {
            name: "queue",
            called: "the row of queue orders",
            version: 1,
            version_at: 0,
            written: (keys::queue("orders"), queues::tests::encode(&queue)),
            held: format!("{queue:?}"),
            decode: Box::new(|_, value| shown(queues::tests::decode_shown("orders", value))),
        },
        Kind {
            name: "producer",
            called: "the last number of producer till 3",
            version: 1,
            version_at: 0,
            written: (b"till 3".to_vec(), intake::encode_last_number(77)),
            held: "77".to_owned(),
            decode: Box::new(|key, value| {
                let last = intake::decode_last_number(PartitionId(9), key, value);
                shown(last.map(|last| last.to_string()))
            }),
        },
    ]
}

fn shown<T, E: std::fmt::Display>(decoded: Result<T, E>) -> Result<T, String> {
    decoded.map_err(|error| error.to_string())
}
