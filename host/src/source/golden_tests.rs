//! The positions that sources store, as golden files in `golden/`.

use std::path::Path;

use crate::golden::{self, Kind};
use crate::source::directory::stored;
use crate::source::file::position::FilePosition;
use crate::source::file::position::tests::position as file_position;
use crate::source::generator;
use crate::source::queue::position::QueuePosition;
use crate::types::ids::PartitionId;

const FOLDER: &str = "src/source/golden";

#[test]
fn positions_that_were_stored_once_decode() {
    golden::check(FOLDER, &kinds());
}

#[test]
fn positions_of_a_newer_release_are_refused_by_name() {
    golden::check_newer_is_refused(&kinds());
}

fn kinds() -> Vec<Kind<'static>> {
    let queue_position = QueuePosition {
        partition: PartitionId(300),
        next: 1 << 40,
        write_time: 1_700_000_000_000,
        passed_bytes: 1 << 50,
    };
    let (generator_position, held) = generator::tests::stored_position();
    let [(directory_position, held_position), (done_mark, held_mark)] = stored::stored_kinds();
    let no_key = Vec::new;
    vec![
        Kind {
            name: "directory_position",
            called: "the stored position in in/",
            version: 1,
            version_at: 1,
            written: (no_key(), directory_position),
            held: held_position,
            decode: Box::new(|_, value| {
                shown(stored::decode_shown(Path::new("in/"), false, value))
            }),
        },
        Kind {
            name: "directory_mark",
            called: "the stored position in in/monday.csv",
            version: 1,
            version_at: 0,
            written: (no_key(), done_mark),
            held: held_mark,
            decode: Box::new(|_, value| {
                shown(stored::decode_shown(
                    Path::new("in/monday.csv"),
                    true,
                    value,
                ))
            }),
        },
        Kind {
            name: "file_position",
            called: "the stored position in a.csv",
            version: 1,
            version_at: 0,
            written: (no_key(), file_position().encode()),
            held: format!("{:?}", file_position()),
            decode: Box::new(|_, value| {
                let position = FilePosition::decode(Path::new("a.csv"), value);
                shown(position.map(|position| format!("{position:?}")))
            }),
        },
        Kind {
            name: "queue_position",
            // Whoever asks says which queue's.
            called: "",
            version: 1,
            version_at: 1,
            written: (no_key(), queue_position.encode()),
            held: format!("{queue_position:?}"),
            decode: Box::new(|_, value| {
                QueuePosition::decode(value).map(|position| format!("{position:?}"))
            }),
        },
        Kind {
            name: "generator_position",
            called: "the stored position in part 3",
            version: 1,
            version_at: 1,
            written: (no_key(), generator_position),
            held,
            decode: Box::new(|_, value| shown(generator::tests::decode_shown("part 3", value))),
        },
    ]
}

fn shown<T, E: std::fmt::Display>(decoded: Result<T, E>) -> Result<T, String> {
    decoded.map_err(|error| error.to_string())
}
